//! Sign of a dimension, as far as it is certain.

use super::{Atom, Dim, DimOp, Origin};

impl Dim {
    /// Whether it is certainly at least 0, whatever the values of its symbols. An element of a shape input may be negative;
    /// a difference counts as uncertain.
    pub fn is_nonnegative(&self) -> bool {
        self.terms().iter().all(|t| t.coef > 0 && t.atoms.iter().all(Atom::is_nonnegative))
    }

    /// Whether it is certainly not 0.
    pub fn is_nonzero(&self) -> bool {
        let all = self.interval(&|_| None);
        all.lo().is_some_and(|n| n > 0) || all.hi().is_some_and(|n| n < 0)
    }
}

impl Atom {
    /// Whether it is certainly at least 0.
    pub(super) fn is_nonnegative(&self) -> bool {
        match self {
            Atom::Sym(s) => !matches!(s.origin, Origin::Content),
            Atom::Op(DimOp::Max, a, b) => a.is_nonnegative() || b.is_nonnegative(),
            Atom::Op(DimOp::Mod, _, divisor) => divisor.is_nonnegative(),
            Atom::Op(DimOp::Min | DimOp::FloorDiv | DimOp::CeilDiv, a, b) => {
                a.is_nonnegative() && b.is_nonnegative()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_known_or_not() {
        let (n, c) = (Dim::host("n"), Dim::content("c"));
        assert!((n.clone() * 2.into() + 1.into()).is_nonnegative() && Dim::new(0).is_nonnegative());
        assert!(c.max_with(&Dim::new(0)).is_nonnegative());
        assert!(!Dim::new(-1).is_nonnegative() && !(n.clone() - 1.into()).is_nonnegative());
        assert!(!c.is_nonnegative() && !n.min_with(&c).is_nonnegative());
        assert!((n.clone() + 1.into()).is_nonzero() && (Dim::new(-1) - n.clone()).is_nonzero());
        assert!(!n.is_nonzero() && !(n - 1.into()).is_nonzero() && !c.is_nonzero());
    }
}
