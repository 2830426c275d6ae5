//! Indices of one axis that a slice takes.

use kiln_ir::dim::{Dim, DimKind};

/// The indices `first`, `first + step`, … (`len` of them) of one axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// The first index.
    pub first: i64,
    /// Distance between indices; not 0.
    pub step: i64,
    /// Number of indices.
    pub len: i64,
}

/// The indices that a slice takes of an axis of `d` elements; none of an axis of negative size, which a later check refuses.
pub fn window(d: i64, start: i64, end: i64, step: i64) -> Window {
    let d = d.max(0);
    let from_end = |x: i64| if x < 0 { x.saturating_add(d) } else { x };
    let (start, end) = (from_end(start), from_end(end));
    let (first, distance) = if step > 0 {
        let first = start.clamp(0, d);
        (first, end.clamp(0, d) - first)
    } else {
        // With d = 0 both are −1, and nothing is taken.
        let first = start.max(0).min(d - 1);
        (first, first - end.max(-1).min(d - 1))
    };
    let len = distance.max(0).unsigned_abs().div_ceil(step.unsigned_abs().max(1));
    Window { first, step, len: len as i64 }
}

/// Bounds at or beyond this (or its negative) mean "to the end" of an axis whose size is not a number yet.
const FAR: i64 = i32::MAX as i64;

/// A place on an axis.
enum Place {
    /// Distance from the front.
    Front(Dim),
    /// Distance from the end.
    Back(Dim),
}

/// Number of indices that a slice takes of an axis of `d` elements; `None` if no expression says it.
pub fn length(d: &Dim, start: &Dim, end: &Dim, step: i64) -> Option<Dim> {
    if let (Some(d), Some(start), Some(end)) = (d.as_const(), start.as_const(), end.as_const()) {
        return Some(Dim::new(window(d, start, end, step).len));
    }
    let distance = if step > 0 {
        forward(d, place(start)?, place(end)?)?
    } else {
        let from_last = start.as_const().is_some_and(|s| s == -1 || s >= FAR);
        let to_first = end.as_const().is_some_and(|e| e <= -FAR);
        (from_last && to_first).then(|| d.clone())?
    };
    Some(distance.ceil_div(&Dim::new(step.checked_abs()?)))
}

/// A bound that may be negative or not, depending on symbols, has no place.
fn place(x: &Dim) -> Option<Place> {
    match x.as_const() {
        Some(n) if n < 0 => Some(Place::Back(Dim::new(n.saturating_neg()))),
        _ if x.is_nonnegative() => Some(Place::Front(x.clone())),
        _ => None,
    }
}

/// The number of elements from one place up to another.
fn forward(d: &Dim, start: Place, end: Place) -> Option<Dim> {
    use Place::{Back, Front};
    let zero = Dim::new(0);
    let front = |a: &Dim| a.min_with(d);
    let far = |x: &Dim| x.as_const().is_some_and(|n| n >= FAR);
    let back = |k: &Dim| if far(k) { Dim::new(0) } else { (d.clone() - k.clone()).max_with(&Dim::new(0)) };
    let whole = |x: &Dim| x == d || far(x);
    Some(match (&start, &end) {
        (Front(a), Front(b)) if a.is(0) && whole(b) => d.clone(),
        (Front(a), Front(b)) if whole(b) => back(a),
        (Front(a), Front(b)) if a.is(0) => front(b),
        (Front(a), Back(k)) if a.is(0) => back(k),
        (Back(k), Front(b)) if far(k) => {
            if whole(b) {
                d.clone()
            } else {
                front(b)
            }
        }
        (Back(k), Front(b)) if whole(b) => front(k),
        (Front(a), Front(b)) if (a.clone() - b.clone()).is_nonnegative() => zero,
        (Front(a), Front(b)) if (b.clone() - a.clone()).is_nonnegative() => front(b) - front(a),
        (Back(k), Back(j)) if (j.clone() - k.clone()).is_nonnegative() => zero,
        (Back(k), Back(j)) => back(j) - back(k),
        (Front(a), Front(b)) => (front(b) - front(a)).max_with(&zero),
        (Front(a), Back(k)) => (back(k) - front(a)).max_with(&zero),
        // Grows and then shrinks with d: a bound of d would give no bound of it.
        (Back(_), Front(_)) if d.kind() == DimKind::Device => return None,
        (Back(k), Front(b)) => (front(b) - back(k)).max_with(&zero),
    })
}
