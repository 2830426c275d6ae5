//! The layout rule of every operator against its oracle, on all its problems.

use kiln_ir::op::{Arity, AxesPlace, LayoutRule, NamedAxes, Tolerance};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::{Attr, Attrs, DType, Fact, Op, Tensor};
use kiln_ops::layout::to_last;
use kiln_ops::transpose::TRANSPOSE;
use std::collections::BTreeSet;

/// A tensor with its channels last, if it is an image of this rank.
fn last(t: &Tensor, rank: usize) -> Option<Tensor> {
    let perm: Vec<i64> = to_last(rank).iter().map(|&p| p as i64).collect();
    let op = Op::new(TRANSPOSE, Attrs::new().with("perm", perm)).expect("an operator");
    (t.shape().len() == rank).then(|| op.eval(&[Some(t.clone())]).expect("a permutation").remove(0))
}

/// A problem on images with channels last, by the operator's rule; `None` where the rule does not apply.
fn renamed(p: &Problem, rank: usize) -> Option<Problem> {
    let LayoutRule::Axes(rule) = p.op.roles().layout else { return None };
    let facts: Vec<Option<Fact>> = p.inputs.iter().map(|t| t.clone().map(Fact::constant)).collect();
    let NamedAxes { place, axes } =
        rule(p.op.attrs(), &facts.iter().map(Option::as_ref).collect::<Vec<_>>(), rank)?;
    let moved = |a: &usize| to_last(rank).iter().position(|p| p == a).expect("an axis") as i64;
    let axes: Vec<i64> = axes.iter().map(moved).collect();
    let (mut attrs, mut inputs) = (p.op.attrs().clone(), p.inputs.clone());
    let variadic = p.op.port(0).is_some_and(|port| port.arity == Arity::Variadic);
    let images = if variadic { inputs.len() } else { 1 };
    for t in inputs.iter_mut().take(images).flatten() {
        *t = last(t, rank)?;
    }
    match place {
        AxesPlace::Axis(name) => attrs = attrs.with(name, axes[0]),
        AxesPlace::List(name) => attrs = attrs.with(name, Attr::Ints(axes)),
        AxesPlace::Input(at) => {
            inputs.resize(inputs.len().max(at + 1), None);
            inputs[at] = Tensor::i64(&[axes.len()], &axes);
        }
    }
    let op = Op::new(p.op.name(), attrs).expect("the attributes of the operator");
    Some(Problem { label: p.label.clone(), op, inputs })
}

/// Distance between neighbouring numbers of a type, relative to them; 0 for integers.
fn spacing(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => f64::from(f32::EPSILON),
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        DType::F8E4M3 => 2f64.powi(-3),
        _ => 0.0,
    }
}

#[test]
fn operators_that_name_axes_give_the_same_images_with_channels_last() {
    let mut seen = BTreeSet::new();
    for def in kiln_ops::all() {
        for p in (def.problems)(&mut Rng::new(11)) {
            let Ok(out) = p.op.eval(&p.inputs) else { continue };
            let rank = out[0].shape().len();
            if !(3..=5).contains(&rank) || out.len() != 1 {
                continue;
            }
            let Some(q) = renamed(&p, rank) else { continue };
            let found = q.op.eval(&q.inputs).unwrap_or_else(|e| panic!("{} ({}): {e}", def.name, p.label));
            let wanted = last(&out[0], rank).expect("of this rank");
            assert_eq!(found[0].shape(), wanted.shape(), "{} ({})", def.name, p.label);
            // Sums in another order may fall to the other side of a tie between two numbers of the type, or two integers.
            let dtype = found[0].dtype();
            let rounded = dtype.is_int() && matches!(p.op.tolerance(), Tolerance::Sampled);
            let unit = if rounded { 1.0 } else { spacing(dtype).max(1e-5) };
            let close = |(a, b): (f64, f64)| (a - b).abs() <= unit * a.abs().max(1.0) || a == b || a.is_nan();
            let pairs = found[0].to_f64().into_iter().zip(wanted.to_f64());
            assert!(pairs.into_iter().all(close), "{} ({})", def.name, p.label);
            seen.insert(def.name.as_str());
        }
    }
    let with_rule = kiln_ops::all().filter(|d| matches!(d.roles.layout, LayoutRule::Axes(_)));
    let with_rule: BTreeSet<&str> = with_rule.map(|d| d.name.as_str()).collect();
    assert_eq!(seen, with_rule, "a rule is tried on no problem of rank 3 to 5");
}

#[test]
fn the_attribute_layout_and_its_rule_go_together() {
    for def in kiln_ops::all() {
        let attribute = def.attrs.iter().any(|a| a.choices.contains(&"channels_last"));
        let rule = matches!(def.roles.layout, LayoutRule::Attribute(1..));
        assert_eq!(attribute, rule, "{}", def.name);
    }
}
