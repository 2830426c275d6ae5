//! The tolerances of operators find wrong results: mutations of the oracle's own results, which must not pass.

use super::problems;
use kiln_backend::compare::{Expectation, Latitude};
use kiln_ir::problem::Problem;
use kiln_ir::{DType, Elems, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// A way to spoil results; `None` where it would change nothing that counts.
type Mutation = fn(&Problem, &[Tensor]) -> Option<Vec<Tensor>>;

const MUTATIONS: &[(&str, Mutation)] = &[
    ("scaled", scaled),
    ("small results zeroed", zeroed),
    ("neighbours swapped", swapped),
    ("a term dropped", dropped),
];

/// Operators whose problems have nothing for a mutation to change, with the reason.
const INAPPLICABLE: &[(&str, &str)] = &[
    ("assertion", "passes its input on, one truth value"),
    ("random", "is compared by its distribution"),
    ("size", "has one integer, without neighbours"),
];

#[test]
fn wrong_results_do_not_pass() {
    let mut missed = Vec::new();
    let mut applied: BTreeMap<&str, usize> = BTreeMap::new();
    let mut all = BTreeSet::new();
    for p in problems() {
        if INAPPLICABLE.iter().any(|(op, _)| *op == p.op.name()) {
            continue;
        }
        all.insert(p.op.name());
        let Ok(expected) = Expectation::new(&p.op, &p.inputs, Latitude::default()) else { continue };
        assert_eq!(expected.check(expected.wanted()), Ok(()), "{}, {}", p.op.name(), p.label);
        for (name, mutation) in MUTATIONS {
            let Some(wrong) = mutation(&p, expected.wanted()) else { continue };
            *applied.entry(p.op.name()).or_default() += 1;
            if expected.check(&wrong).is_ok() {
                missed.push(format!("{}, {}: {name}", p.op.name(), p.label));
            }
        }
    }
    let untouched: Vec<_> = all.iter().filter(|op| !applied.contains_key(**op)).collect();
    assert!(untouched.is_empty(), "no mutation changes results of {untouched:?}");
    assert!(missed.is_empty(), "{} mutations pass:\n{}", missed.len(), missed.join("\n"));
}

/// Whether no input is of a narrower type than f32, to which intermediate results may be rounded.
fn is_wide(p: &Problem) -> bool {
    p.inputs.iter().flatten().all(|t| !t.dtype().is_float() || t.dtype() == DType::F32)
}

/// Each tensor with its values changed by `f`, if that changes one of them by 0.1 % of its size at least.
fn changed(all: &[Tensor], f: impl Fn(&Tensor, Vec<f64>) -> Vec<f64>) -> Option<Vec<Tensor>> {
    let mut some = false;
    let one = |t: &Tensor| match t.elems() {
        Elems::F(v) if t.dtype() == DType::F32 => {
            let new = f(t, v.clone());
            let counts =
                |(a, b): (&f64, &f64)| a.is_finite() && b.is_finite() && (a - b).abs() > 1e-3 * a.abs();
            some |= v.iter().zip(&new).any(counts);
            Tensor::from_elems(t.dtype(), t.shape(), &Elems::F(new)).unwrap()
        }
        _ => t.clone(),
    };
    let new = all.iter().map(one).collect();
    some.then_some(new)
}

/// All floats by 0.2 % too large, where inputs are of f32. Sums of more than 2^15 numbers may be as wrong as that: by half a unit in the
/// last place for each.
fn scaled(p: &Problem, all: &[Tensor]) -> Option<Vec<Tensor>> {
    let most = |of: &mut dyn Iterator<Item = usize>| of.max().unwrap_or(0);
    let given = most(&mut p.inputs.iter().flatten().map(Tensor::len));
    let made = most(&mut all.iter().map(Tensor::len));
    (is_wide(p) && given <= made << 15).then_some(())?;
    changed(all, |_, v| v.into_iter().map(|x| x * (1.0 + 1.0 / 512.0)).collect())
}

/// Floats below a fifth of the greatest set to zero.
fn zeroed(_: &Problem, all: &[Tensor]) -> Option<Vec<Tensor>> {
    changed(all, |_, v| {
        let most = v.iter().filter(|x| x.is_finite()).fold(0.0, |m: f64, x| m.max(x.abs()));
        v.into_iter().map(|x| if x.abs() > 1e-3 * most && x.abs() < 0.2 * most { 0.0 } else { x }).collect()
    })
}

/// The first two neighbours that differ by 5 % at least, and by more than subnormal values of their type, swapped; integers and truth
/// values, too.
fn swapped(_: &Problem, all: &[Tensor]) -> Option<Vec<Tensor>> {
    let mut out = all.to_vec();
    let (at, elems) = all.iter().enumerate().find_map(|(at, t)| match t.elems() {
        Elems::I(mut v) => {
            let i = v
                .windows(2)
                .position(|w| w[0].abs_diff(w[1]) > 1 || t.dtype() == DType::Bool && w[0] != w[1])?;
            v.swap(i, i + 1);
            Some((at, Elems::I(v)))
        }
        Elems::F(mut v) => {
            let normal = if t.dtype() == DType::F16 { 2f64.powi(-14) } else { 1e-37 };
            let differ = |a: f64, b: f64| {
                a.is_finite() && b.is_finite() && (a - b).abs() > (0.05 * a.abs().max(b.abs())).max(normal)
            };
            let i = v.windows(2).position(|w| differ(w[0], w[1]))?;
            v.swap(i, i + 1);
            Some((at, Elems::F(v)))
        }
    })?;
    out[at] = Tensor::from_elems(all[at].dtype(), all[at].shape(), &elems)?;
    Some(out)
}

/// The results without the last element of the first float input: zero in its place.
fn dropped(p: &Problem, all: &[Tensor]) -> Option<Vec<Tensor>> {
    is_wide(p).then_some(())?;
    let mut inputs = p.inputs.clone();
    let host = |i: usize| p.op.port(i).is_some_and(|port| port.host);
    let slot = (0..inputs.len())
        .find(|&i| !host(i) && inputs[i].as_ref().is_some_and(|t| t.dtype() == DType::F32 && t.len() > 1))?;
    let t = inputs[slot].take()?;
    let mut v = t.to_f64();
    *v.last_mut()? = 0.0;
    inputs[slot] = Tensor::from_elems(t.dtype(), t.shape(), &Elems::F(v));
    let wrong = p.op.eval(&inputs).ok()?;
    let same = wrong.len() == all.len() && wrong.iter().zip(all).all(|(a, b)| a.ty() == b.ty());
    let counts = |(a, b): (&Tensor, &Tensor)| {
        let most = b.to_f64().iter().filter(|x| x.is_finite()).fold(0.0, |m: f64, x| m.max(x.abs()));
        let differ = |(x, y): (f64, f64)| x.is_finite() && y.is_finite() && (x - y).abs() > 1e-2 * most;
        a.dtype() == DType::F32 && a.to_f64().into_iter().zip(b.to_f64()).any(differ)
    };
    (same && wrong.iter().zip(all).any(counts)).then_some(wrong)
}
