//! Arithmetic in the normal form. Numbers and coefficients saturate: a dimension that large is refused where it is used.

use super::{Atom, Dim, DimOp, MAX_SIZE, Repr, Term};
use std::collections::BTreeMap;
use std::ops::{Add, Mul, Neg, Sub};

impl Dim {
    /// Sorts, merges equal products and drops zeros.
    pub(crate) fn from_terms(terms: Vec<Term>) -> Dim {
        let mut sum: BTreeMap<Vec<Atom>, i64> = BTreeMap::new();
        for t in terms {
            let mut atoms = t.atoms;
            atoms.sort();
            let c = sum.entry(atoms).or_insert(0);
            *c = c.saturating_add(t.coef);
        }
        let terms: Vec<Term> =
            sum.into_iter().filter(|(_, c)| *c != 0).map(|(atoms, coef)| Term { atoms, coef }).collect();
        match terms.as_slice() {
            [] => Dim::new(0),
            [t] if t.atoms.is_empty() => Dim::new(t.coef),
            _ => Dim::limited(terms),
        }
    }

    /// A single factor.
    pub(super) fn from_atom(a: Atom) -> Dim {
        Dim::from_terms(vec![Term { atoms: vec![a], coef: 1 }])
    }

    fn op(op: DimOp, a: Dim, b: Dim) -> Dim {
        Dim::from_atom(Atom::Op(op, Box::new(a), Box::new(b)))
    }

    /// `self / d` if it divides exactly as a polynomial by a product. It is the quotient wherever `d` is not 0.
    pub fn div_exact(&self, d: &Dim) -> Option<Dim> {
        if self == d && !d.is(0) {
            return Some(Dim::new(1));
        }
        let divisor = d.terms();
        let [by] = divisor.as_ref() else { return None };
        let mut out = Vec::new();
        for t in self.terms().iter() {
            let mut atoms = t.atoms.clone();
            for a in &by.atoms {
                let at = atoms.iter().position(|x| x == a)?;
                atoms.remove(at);
            }
            if t.coef.checked_rem(by.coef)? != 0 {
                return None;
            }
            out.push(Term { atoms, coef: t.coef.checked_div(by.coef)? });
        }
        Some(Dim::from_terms(out))
    }

    /// Quotient rounded down. Division by zero yields 0.
    pub fn floor_div(&self, d: &Dim) -> Dim {
        match (self.as_const(), d.as_const()) {
            (_, Some(0)) => Dim::new(0),
            (Some(a), Some(b)) => saturated(quotient(a.into(), b.into())),
            _ => self.quotient_by(d).unwrap_or_else(|| Dim::op(DimOp::FloorDiv, self.clone(), d.clone())),
        }
    }

    /// `self / d` if it divides exactly and `d` is certainly not 0, so that no division by zero is lost.
    fn quotient_by(&self, d: &Dim) -> Option<Dim> {
        self.div_exact(d).filter(|_| d.is_nonzero())
    }

    /// Quotient rounded to zero. Division by zero yields 0.
    pub fn trunc_div(&self, d: &Dim) -> Dim {
        if let (Some(a), Some(b)) = (self.as_const(), d.as_const()) {
            return Dim::new(if b == 0 { 0 } else { a.wrapping_div(b) });
        }
        let down = self.floor_div(d);
        if self.div_exact(d).is_some() || (self.is_nonnegative() && d.is_nonnegative()) {
            return down;
        }
        // Rounded down where the quotient is positive and up where it is negative; one of the two is 0.
        let zero = Dim::new(0);
        down.max_with(&zero) + self.ceil_div(d).min_with(&zero)
    }

    /// The size that completes `d` to a volume of `self`, which the caller has checked: exact as a polynomial where it can
    /// be, for which `d` is taken to be not 0.
    pub fn complement(&self, d: &Dim) -> Dim {
        self.div_exact(d).unwrap_or_else(|| self.floor_div(d))
    }

    /// Quotient rounded up. Division by zero yields 0.
    pub fn ceil_div(&self, d: &Dim) -> Dim {
        match (self.as_const(), d.as_const()) {
            (_, Some(0)) => Dim::new(0),
            (Some(a), Some(b)) => saturated(-quotient(-i128::from(a), b.into())),
            _ => self.quotient_by(d).unwrap_or_else(|| Dim::op(DimOp::CeilDiv, self.clone(), d.clone())),
        }
    }

    /// Remainder with the sign of the divisor; 0 for divisor 0.
    pub fn modulo(&self, d: &Dim) -> Dim {
        match (self.as_const(), d.as_const()) {
            (_, Some(0)) => Dim::new(0),
            (Some(a), Some(b)) => Dim::new(remainder(a, b)),
            _ if self.div_exact(d).is_some() => Dim::new(0),
            _ => Dim::op(DimOp::Mod, self.clone(), d.clone()),
        }
    }

    /// The greater of two.
    pub fn max_with(&self, o: &Dim) -> Dim {
        self.extreme(o, DimOp::Max, DimOp::Min, i64::max)
    }

    /// The lesser of two.
    pub fn min_with(&self, o: &Dim) -> Dim {
        self.extreme(o, DimOp::Min, DimOp::Max, i64::min)
    }

    /// `op` of two, by the laws of lattices: a ∨ a = a, a ∨ (a ∨ b) = a ∨ b, a ∨ (a ∧ b) = a, and their duals.
    fn extreme(&self, o: &Dim, op: DimOp, dual: DimOp, of: fn(i64, i64) -> i64) -> Dim {
        if let (Some(a), Some(b)) = (self.as_const(), o.as_const()) {
            return Dim::new(of(a, b));
        }
        if self == o {
            return self.clone();
        }
        for (a, b) in [(self, o), (o, self)] {
            match b.operation() {
                Some((inner, x, y)) if inner == op && (x == a || y == a) => return b.clone(),
                Some((inner, x, y)) if inner == dual && (x == a || y == a) => return a.clone(),
                _ => {}
            }
        }
        let (a, b) = if self <= o { (self, o) } else { (o, self) };
        Dim::op(op, a.clone(), b.clone())
    }

    /// The operation and its operands, if it is nothing but one.
    fn operation(&self) -> Option<(DimOp, &Dim, &Dim)> {
        let Repr::Poly(sum) = &self.0 else { return None };
        match sum.terms() {
            [Term { atoms, coef: 1 }] => match atoms.as_slice() {
                [Atom::Op(op, a, b)] => Some((*op, a, b)),
                _ => None,
            },
            _ => None,
        }
    }

    /// The operation by its code.
    pub fn apply(op: DimOp, a: &Dim, b: &Dim) -> Dim {
        match op {
            DimOp::FloorDiv => a.floor_div(b),
            DimOp::CeilDiv => a.ceil_div(b),
            DimOp::Mod => a.modulo(b),
            DimOp::Max => a.max_with(b),
            DimOp::Min => a.min_with(b),
        }
    }
}

/// The quotient rounded down; the divisor is not 0.
fn quotient(a: i128, b: i128) -> i128 {
    a.div_euclid(b) - i128::from(b < 0 && a.rem_euclid(b) != 0)
}

fn saturated(n: i128) -> Dim {
    Dim::new(i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX }))
}

/// The remainder with the sign of the divisor, which is not 0.
fn remainder(a: i64, b: i64) -> i64 {
    let r = a.wrapping_rem_euclid(b);
    if b < 0 && r != 0 { r + b } else { r }
}

impl Add for Dim {
    type Output = Dim;
    fn add(self, o: Dim) -> Dim {
        match (self.as_const(), o.as_const()) {
            (Some(a), Some(b)) => Dim::new(a.saturating_add(b)),
            _ => Dim::from_terms([self.terms().into_owned(), o.terms().into_owned()].concat()),
        }
    }
}

impl Neg for Dim {
    type Output = Dim;
    fn neg(self) -> Dim {
        self * Dim::new(-1)
    }
}

impl Sub for Dim {
    type Output = Dim;
    fn sub(self, o: Dim) -> Dim {
        self + -o
    }
}

impl Mul for Dim {
    type Output = Dim;
    fn mul(self, o: Dim) -> Dim {
        if let (Some(a), Some(b)) = (self.as_const(), o.as_const()) {
            return Dim::new(a.saturating_mul(b));
        }
        let (mine, other) = (self.terms(), o.terms());
        let work = self.size().saturating_mul(other.len()) + o.size().saturating_mul(mine.len());
        if work > 4 * MAX_SIZE {
            return Dim::opaque_product(&self, &o);
        }
        let mut out = Vec::new();
        for a in mine.iter() {
            for b in other.iter() {
                out.push(Term {
                    atoms: [a.atoms.clone(), b.atoms.clone()].concat(),
                    coef: a.coef.saturating_mul(b.coef),
                });
            }
        }
        Dim::from_terms(out)
    }
}

impl std::iter::Product for Dim {
    fn product<I: Iterator<Item = Dim>>(iter: I) -> Dim {
        iter.fold(Dim::new(1), |a, b| a * b)
    }
}

impl std::iter::Sum for Dim {
    fn sum<I: Iterator<Item = Dim>>(iter: I) -> Dim {
        iter.fold(Dim::new(0), |a, b| a + b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_polynomials_are_equal() {
        let (b, s) = (Dim::host("b"), Dim::host("s"));
        assert_eq!(b.clone() * s.clone() + 2.into(), s.clone() * b.clone() + 1.into() + 1.into());
        assert_eq!(
            (b.clone() * s.clone() * 64.into()).div_exact(&(s.clone() * 16.into())),
            Some(b.clone() * 4.into())
        );
        assert_eq!(b.clone() - b.clone(), 0.into());
        assert_eq!((b.clone() + 1.into()).floor_div(&2.into()).as_const(), None);
    }

    #[test]
    fn extremes_absorb() {
        let (s, n) = (Dim::host("s"), Dim::new(128));
        let low = s.min_with(&n);
        assert_eq!((s.max_with(&low), low.max_with(&s), n.max_with(&low)), (s.clone(), s.clone(), n.clone()));
        let high = s.max_with(&n);
        assert_eq!(
            (s.min_with(&high), s.max_with(&high), high.max_with(&n)),
            (s.clone(), high.clone(), high)
        );
        // Another operand is not a reason.
        let other = Dim::host("t").min_with(&n);
        assert_ne!(s.max_with(&other), s);
        assert_ne!(s.max_with(&(low + 1.into())), s);
    }

    #[test]
    fn the_ends_of_the_integers_saturate() {
        let (min, max, minus) = (Dim::new(i64::MIN), Dim::new(i64::MAX), Dim::new(-1));
        assert!(min.floor_div(&minus).is(i64::MAX) && min.ceil_div(&minus).is(i64::MAX));
        assert!(min.modulo(&minus).is(0) && min.modulo(&max).is(i64::MAX - 1) && max.modulo(&min).is(-1));
        assert!(min.ceil_div(&1.into()).is(i64::MIN) && max.ceil_div(&minus).is(-i64::MAX));
        let symbolic = Dim::host("n") * min;
        assert_eq!(symbolic.div_exact(&minus), None);
        assert_eq!(symbolic.floor_div(&minus).as_const(), None);
    }

    /// Ten squared sums, each in terms of the one before: what expanded would have 10^1024 terms.
    #[test]
    fn expressions_have_a_limit_beyond_which_they_are_opaque() {
        let sum: Dim = (0..10).map(|i| Dim::host(format!("n{i}"))).sum();
        let mut d = sum.clone();
        let mut nested = sum.clone();
        for i in 0..200i64 {
            d = d.clone() * d.clone() + sum.clone();
            nested = (nested.clone() + 1.into()).floor_div(&(nested.min_with(&sum) + i.into()));
            for d in [&d, &nested] {
                assert!(d.size() <= MAX_SIZE && d.terms().len() <= super::super::MAX_TERMS, "{}", d.size());
            }
        }
        assert!(d.is_nonnegative() && d.kind() == super::super::DimKind::Host);
        // The same expression is the same symbol, another one is another.
        let large = |k: i64| (0..9).fold(sum.clone() + k.into(), |d, _| d.clone() * d);
        assert_eq!(large(1), large(1));
        assert_ne!(large(1), large(2));
        let signed = (0..9).fold(sum.clone() - Dim::device("k", None), |d, _| d.clone() * d - 1.into());
        assert!(!signed.is_nonnegative() && signed.kind() == super::super::DimKind::Device);
    }

    /// A quotient of equal sizes is 1, except where they are 0.
    #[test]
    fn quotients_cancel_only_what_is_not_zero() {
        let (n, m) = (Dim::host("n"), Dim::host("m"));
        let at = |d: &Dim, n: i64| d.substitute(&|_| Some(n.into())).as_const();
        for quotient in [Dim::floor_div, Dim::ceil_div, Dim::trunc_div] {
            let (same, part) =
                (quotient(&n, &n), quotient(&(n.clone() * n.clone() * 6.into()), &(n.clone() * 2.into())));
            assert_eq!((at(&same, 0), at(&same, 5)), (Some(0), Some(1)));
            assert_eq!((at(&part, 0), at(&part, 5)), (Some(0), Some(15)));
            let more = n.clone() + 1.into();
            assert!(
                quotient(&more, &more).is(1)
                    && quotient(&(n.clone() * 6.into()), &(-2).into()) == n.clone() * (-3).into()
            );
            let some = n.max_with(&1.into());
            assert_eq!(quotient(&(m.clone() * some.clone()), &some), m);
        }
        assert_eq!((n.clone() * m.clone()).complement(&n), m);
    }

    #[test]
    fn truncated_quotients_round_to_zero() {
        let (x, y) = (Dim::content("x"), Dim::content("y"));
        let (both, by_two) = (x.trunc_div(&y), (x.clone() - 7.into()).trunc_div(&2.into()));
        for (a, b) in (-9..9).flat_map(|a| (-4..4).map(move |b| (a, b))) {
            let of = |s: &super::super::Symbol| Some(Dim::new(if &*s.name == "x" { a } else { b }));
            let wanted = if b == 0 { 0 } else { a / b };
            assert!(
                both.substitute(&of).is(wanted) && Dim::new(a).trunc_div(&b.into()).is(wanted),
                "{a} / {b}"
            );
            assert!(by_two.substitute(&of).is((a - 7) / 2), "{a}");
        }
        let n = Dim::host("n");
        assert_eq!(n.trunc_div(&2.into()), n.floor_div(&2.into()));
    }

    #[test]
    fn division_rounds_as_named() {
        for (a, b, floor, ceil, m) in
            [(7, 2, 3, 4, 1), (-7, 2, -4, -3, 1), (7, -2, -4, -3, -1), (-7, -2, 3, 4, -1), (6, 3, 2, 2, 0)]
        {
            let (a, b) = (Dim::new(a), Dim::new(b));
            assert!(a.floor_div(&b).is(floor) && a.ceil_div(&b).is(ceil) && a.modulo(&b).is(m), "{a} {b}");
        }
    }
}
