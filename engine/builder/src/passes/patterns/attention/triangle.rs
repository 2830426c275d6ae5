//! Masks that hide exactly the keys behind a query, which the operator has as a flag.

use super::super::view::{View, input};
use super::scores::{HIDES, MOST, Scores, filled, uniform};
use kiln_ir::{Tensor, ValueId};
use kiln_ops::cast::{CAST, IDENTITY};
use kiln_ops::pointwise::binary::EQUAL;
use kiln_ops::pointwise::select::SELECT;
use kiln_ops::pointwise::unary::NOT;
use kiln_ops::shape::squeeze::UNSQUEEZE;
use kiln_ops::transpose::rearrange::TRILU;

/// Layers that make a mask, at most.
const LONG: usize = 8;

/// Whether the mask is one that hides from each query the keys behind it, and nothing else.
pub fn is_causal(view: &View<'_>, scores: &Scores) -> bool {
    let Some((v, choice)) = scores.only_mask() else { return false };
    let rows = |v: ValueId| view.dims(v).iter().rev().nth(1);
    rows(v) == rows(scores.value)
        && match choice {
            None => added(view, v),
            Some((keep, number)) => number <= HIDES && kept(view, v) == Some(keep),
        }
}

/// Whether a summand [.., S, T] is 0 up to the diagonal and hides what is behind it.
fn added(view: &View<'_>, v: ValueId) -> bool {
    let Some(v) = bare(view, v) else { return false };
    if let Some(w) = view.g.weight(v) {
        return content(&w.tensor, |x| x == 0.0, |x| x <= HIDES);
    }
    let Some((_, n)) = view.made_by(v, SELECT) else { return false };
    let (Some(cond), Some(a), Some(b)) = (input(n, 0), input(n, 1), input(n, 2)) else { return false };
    match (filled(view, a), filled(view, b)) {
        (Some(0.0), Some(x)) if x <= HIDES => kept(view, cond) == Some(true),
        (Some(x), Some(0.0)) if x <= HIDES => kept(view, cond) == Some(false),
        _ => false,
    }
}

/// Whether a condition [.., S, T] is true exactly up to the diagonal (true) or exactly behind it (false).
fn kept(view: &View<'_>, cond: ValueId) -> Option<bool> {
    let (mut at, mut up_to) = (bare(view, cond)?, true);
    for _ in 0..LONG {
        if let Some(w) = view.g.weight(at) {
            let (zero, other) = (|x| x == 0.0, |x| x != 0.0);
            let straight = content(&w.tensor, other, zero);
            return (straight || content(&w.tensor, zero, other)).then_some(straight == up_to);
        }
        let (_, n) = view.g.producer(at)?;
        let x = input(n, 0)?;
        match n.op.id() {
            TRILU => {
                let past = match input(n, 1) {
                    Some(k) => *view.ints(k)?.first()?,
                    None => 0,
                };
                let upper = n.op.attrs().bool("upper").ok()?;
                let borders = [(false, 0), (true, 1)].contains(&(upper, past));
                return (borders && ones(view, x)).then_some(upper != up_to);
            }
            NOT => up_to = !up_to,
            EQUAL if filled(view, input(n, 1)?) == Some(0.0) => up_to = !up_to,
            _ => return None,
        }
        at = bare(view, x)?;
    }
    None
}

/// A value without casts and dimensions of 1 that were put in front.
fn bare(view: &View<'_>, v: ValueId) -> Option<ValueId> {
    let mut at = v;
    for _ in 0..LONG {
        match view.g.producer(at) {
            Some((_, n)) if matches!(n.op.id(), CAST | IDENTITY) => at = input(n, 0)?,
            Some((_, n)) if n.op.is(UNSQUEEZE) && view.dims(v).ends_with(view.dims(input(n, 0)?)) => {
                at = input(n, 0)?;
            }
            _ => return Some(at),
        }
    }
    None
}

/// Whether a value is 1 or true everywhere.
fn ones(view: &View<'_>, v: ValueId) -> bool {
    let of =
        |v| filled(view, v) == Some(1.0) || view.g.weight(v).is_some_and(|w| uniform(&w.tensor) == Some(1.0));
    bare(view, v).is_some_and(of)
}

/// Whether elements [.., S, T] up to the diagonal fulfil one condition, and those behind it another.
fn content(t: &Tensor, up_to: impl Fn(f64) -> bool, behind: impl Fn(f64) -> bool) -> bool {
    let &[.., rows, columns] = t.shape() else { return false };
    if t.is_empty() || t.len() > MOST {
        return false;
    }
    t.to_f64().iter().enumerate().all(|(i, &x)| match i % columns <= i / columns % rows {
        true => up_to(x),
        false => behind(x),
    })
}
