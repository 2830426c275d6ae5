//! Arithmetic in the normal form. Coefficients saturate: a dimension that large is refused where it is used.

use super::{Atom, Dim, DimOp, Repr, Term};
use std::collections::BTreeMap;
use std::ops::{Add, Mul, Neg, Sub};
use std::sync::Arc;

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
            _ => Dim(Repr::Poly(Arc::new(terms))),
        }
    }

    fn op(op: DimOp, a: Dim, b: Dim) -> Dim {
        Dim::from_terms(vec![Term { atoms: vec![Atom::Op(op, Box::new(a), Box::new(b))], coef: 1 }])
    }

    /// `self / d` if it divides exactly as a polynomial by a product.
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
            out.push(Term { atoms, coef: t.coef / by.coef });
        }
        Some(Dim::from_terms(out))
    }

    /// Quotient rounded down. Division by zero gives 0.
    pub fn floor_div(&self, d: &Dim) -> Dim {
        match (self.as_const(), d.as_const()) {
            (_, Some(0)) => Dim::new(0),
            (Some(a), Some(b)) => {
                let down = i64::from(b < 0 && a.wrapping_rem_euclid(b) != 0);
                Dim::new(a.wrapping_div_euclid(b).wrapping_sub(down))
            }
            _ => self.div_exact(d).unwrap_or_else(|| Dim::op(DimOp::FloorDiv, self.clone(), d.clone())),
        }
    }

    /// Quotient rounded up. Division by zero gives 0.
    pub fn ceil_div(&self, d: &Dim) -> Dim {
        match (self.as_const(), d.as_const()) {
            (_, Some(0)) => Dim::new(0),
            (Some(a), Some(b)) => -Dim::new(a.wrapping_neg()).floor_div(&Dim::new(b)),
            _ => self.div_exact(d).unwrap_or_else(|| Dim::op(DimOp::CeilDiv, self.clone(), d.clone())),
        }
    }

    /// Remainder with the sign of the divisor; 0 for divisor 0.
    pub fn modulo(&self, d: &Dim) -> Dim {
        match (self.as_const(), d.as_const()) {
            (_, Some(0)) => Dim::new(0),
            (Some(_), Some(_)) => self.clone() - self.floor_div(d) * d.clone(),
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
        let Repr::Poly(terms) = &self.0 else { return None };
        match terms.as_slice() {
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
        let mut out = Vec::new();
        for a in self.terms().iter() {
            for b in o.terms().iter() {
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
        // Another operand is no reason.
        let other = Dim::host("t").min_with(&n);
        assert_ne!(s.max_with(&other), s);
        assert_ne!(s.max_with(&(low + 1.into())), s);
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
