//! Intervals: what a dimension can be while each of its symbols is in a range.

use super::{Atom, Dim, DimOp, Origin, Symbol};

/// Finds the least and the greatest value of a symbol; `None` where nothing is known but its origin.
pub type SymbolRanges<'a> = &'a dyn Fn(&Symbol) -> Option<(i64, i64)>;

/// Beyond this (or its negative) nothing is known.
const FAR: i128 = 1 << 100;

/// A closed interval of integers, perhaps without end on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    lo: i128,
    hi: i128,
}

impl Interval {
    /// All from `lo` to `hi`.
    pub fn new(lo: i64, hi: i64) -> Interval {
        Interval { lo: lo.into(), hi: hi.into() }
    }

    /// The least value, if there is one that an `i64` holds.
    pub fn lo(&self) -> Option<i64> {
        i64::try_from(self.lo).ok()
    }

    /// The greatest value, if there is one that an `i64` holds.
    pub fn hi(&self) -> Option<i64> {
        i64::try_from(self.hi).ok()
    }

    fn of(lo: i128, hi: i128) -> Interval {
        Interval { lo: lo.clamp(-FAR, FAR), hi: hi.clamp(-FAR, FAR) }
    }

    fn point(n: i64) -> Interval {
        Interval::new(n, n)
    }

    /// The least interval that holds both.
    fn hull(self, o: Interval) -> Interval {
        Interval { lo: self.lo.min(o.lo), hi: self.hi.max(o.hi) }
    }

    /// A sum or product of two. Where numbers of 64 bits may overflow, they wrap, and may be anything; what has no end for
    /// lack of knowledge does not.
    fn combined(self, o: Interval, lo: i128, hi: i128) -> Interval {
        let fits = |i: &Interval| i64::try_from(i.lo).is_ok() && i64::try_from(i.hi).is_ok();
        let result = Interval::of(lo, hi);
        match fits(&self) && fits(&o) && !fits(&result) {
            true => Interval::of(-FAR, FAR),
            false => result,
        }
    }

    fn add(self, o: Interval) -> Interval {
        self.combined(o, self.lo + o.lo, self.hi + o.hi)
    }

    fn mul(self, o: Interval) -> Interval {
        let at = |a: i128, b: i128| a.saturating_mul(b);
        let corners = [at(self.lo, o.lo), at(self.lo, o.hi), at(self.hi, o.lo), at(self.hi, o.hi)];
        let [a, b, c, d] = corners;
        self.combined(o, a.min(b).min(c).min(d), a.max(b).max(c).max(d))
    }

    /// The parts of a divisor below and above zero, and whether it may be zero.
    fn divisors(self) -> ([Option<Interval>; 2], bool) {
        let below = (self.lo < 0).then(|| Interval { lo: self.lo, hi: self.hi.min(-1) });
        let above = (self.hi > 0).then(|| Interval { lo: self.lo.max(1), hi: self.hi });
        ([below, above], self.lo <= 0 && self.hi >= 0)
    }

    /// Applies `f` to each part of a divisor; division by zero yields 0.
    fn over(self, d: Interval, f: impl Fn(Interval, Interval) -> Interval) -> Interval {
        let (parts, zero) = d.divisors();
        let zero = zero.then(|| Interval::point(0));
        let all = parts.into_iter().flatten().map(|d| f(self, d)).chain(zero);
        all.reduce(Interval::hull).unwrap_or(Interval::point(0))
    }

    /// Quotients, rounded up or down.
    fn quotient(self, d: Interval, up: bool) -> Interval {
        self.over(d, |a, d| {
            let corners = [(a.lo, d.lo), (a.lo, d.hi), (a.hi, d.lo), (a.hi, d.hi)];
            let down = |(x, y): (i128, i128)| x.div_euclid(y) - i128::from(y < 0 && x.rem_euclid(y) != 0);
            let inexact = |(x, y): (i128, i128)| i128::from(x % y != 0);
            let lo = corners.iter().map(|&c| down(c)).min();
            let hi = corners.iter().map(|&c| down(c) + if up { inexact(c) } else { 0 });
            Interval::of(lo.unwrap_or(-FAR), hi.max().unwrap_or(FAR))
        })
    }

    /// Remainders with the sign of the divisor.
    fn remainder(self, d: Interval) -> Interval {
        self.over(d, |a, d| {
            if d.lo > 0 {
                if d.lo == d.hi && a.lo.div_euclid(d.lo) == a.hi.div_euclid(d.lo) {
                    return Interval { lo: a.lo.rem_euclid(d.lo), hi: a.hi.rem_euclid(d.lo) };
                }
                if a.lo >= 0 && a.hi < d.lo {
                    return a;
                }
                let most = if a.lo >= 0 { a.hi.min(d.hi - 1) } else { d.hi - 1 };
                return Interval { lo: 0, hi: most };
            }
            Interval { lo: d.lo + 1, hi: 0 }
        })
    }
}

impl Dim {
    /// An interval that holds its value for all values of its symbols in their ranges. Symbols without a range are what
    /// their origin says: at least 0, at most their bound; contents of shape inputs are any integers.
    pub fn interval(&self, ranges: SymbolRanges<'_>) -> Interval {
        if let Some(n) = self.as_const() {
            return Interval::point(n);
        }
        let mut sum = Interval::point(0);
        for t in self.terms().iter() {
            let product = t.atoms.iter().fold(Interval::point(t.coef), |p, a| p.mul(of_atom(a, ranges)));
            sum = sum.add(product);
        }
        sum
    }
}

fn of_atom(a: &Atom, ranges: SymbolRanges<'_>) -> Interval {
    match a {
        Atom::Sym(s) => of_symbol(s, ranges),
        Atom::Op(op, x, y) => {
            let (x, y) = (x.interval(ranges), y.interval(ranges));
            match op {
                DimOp::FloorDiv => x.quotient(y, false),
                DimOp::CeilDiv => x.quotient(y, true),
                DimOp::Mod => x.remainder(y),
                DimOp::Max => Interval { lo: x.lo.max(y.lo), hi: x.hi.max(y.hi) },
                DimOp::Min => Interval { lo: x.lo.min(y.lo), hi: x.hi.min(y.hi) },
            }
        }
    }
}

fn of_symbol(s: &Symbol, ranges: SymbolRanges<'_>) -> Interval {
    if let Some((lo, hi)) = ranges(s) {
        return Interval::new(lo, hi);
    }
    match &s.origin {
        Origin::Content => Interval { lo: -FAR, hi: FAR },
        Origin::Host(bound) | Origin::Device(bound) => {
            let hi = bound.as_ref().map_or(FAR, |b| b.interval(ranges).hi.max(0));
            Interval { lo: 0, hi }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(d: &Dim, ranges: &[(&str, i64, i64)]) -> (Option<i64>, Option<i64>) {
        let found = |s: &Symbol| ranges.iter().find(|r| r.0 == &*s.name).map(|r| (r.1, r.2));
        let i = d.interval(&found);
        (i.lo(), i.hi())
    }

    #[test]
    fn intervals_of_expressions_are_exact_where_symbols_occur_once() {
        let (n, m) = (Dim::host("n"), Dim::host("m"));
        let r = [("n", 10, 50), ("m", 10, 50)];
        assert_eq!(at(&(n.clone() - m.clone()), &r), (Some(-40), Some(40)));
        assert_eq!(at(&n.modulo(&17.into()), &r), (Some(0), Some(16)));
        assert_eq!(at(&n.modulo(&17.into()), &[("n", 20, 30)]), (Some(3), Some(13)));
        assert_eq!(at(&n.modulo(&60.into()), &r), (Some(10), Some(50)));
        assert_eq!(at(&Dim::new(1000).floor_div(&n), &r), (Some(20), Some(100)));
        assert_eq!(at(&(n.clone() * m.clone()), &r), (Some(100), Some(2500)));
        assert_eq!(at(&n.min_with(&20.into()), &r), (Some(10), Some(20)));
        assert_eq!(at(&n.max_with(&20.into()), &r), (Some(20), Some(50)));
        assert_eq!(at(&(n.clone() - 11.into()).ceil_div(&2.into()), &r), (Some(-1), Some(20)));
    }

    #[test]
    fn divisors_that_may_be_zero_and_symbols_without_ranges() {
        let k = Dim::device("k", Some(Dim::host("n")));
        assert_eq!(at(&Dim::new(1000).floor_div(&k), &[("n", 1, 8)]), (Some(0), Some(1000)));
        assert_eq!(at(&k, &[("n", 1, 8)]), (Some(0), Some(8)));
        assert_eq!(at(&Dim::host("u"), &[]), (Some(0), None));
        assert_eq!(at(&Dim::content("c"), &[]), (None, None));
        assert_eq!(at(&(Dim::host("u") * Dim::new(0)), &[]), (Some(0), Some(0)));
        // Integers wrap.
        let square = Dim::host("n") * Dim::host("n");
        assert_eq!(at(&square, &[("n", 0, 1 << 31)]), (Some(0), Some(1 << 62)));
        assert_eq!(at(&square, &[("n", 0, 1 << 32)]), (None, None));
    }

    /// Every value over small boxes, by counting.
    #[test]
    fn no_value_is_outside_its_interval() {
        let (x, y) = (Dim::content("x"), Dim::content("y"));
        for op in DimOp::ALL {
            let d = Dim::apply(op, &x, &y) * x.clone() - y.clone();
            for (a, b) in [(-7, 5), (-3, -1), (0, 6), (2, 9)] {
                for (c, e) in [(-4, 3), (-5, -2), (0, 0), (1, 4)] {
                    let (lo, hi) = at(&d, &[("x", a, b), ("y", c, e)]);
                    for (v, w) in (a..=b).flat_map(|v| (c..=e).map(move |w| (v, w))) {
                        let of = |s: &Symbol| Some(Dim::new(if &*s.name == "x" { v } else { w }));
                        let value = d.substitute(&of).as_const();
                        assert!(
                            lo <= value && value <= hi,
                            "{d} at {v}, {w}: {value:?} not in {lo:?}..{hi:?}"
                        );
                    }
                }
            }
        }
    }
}
