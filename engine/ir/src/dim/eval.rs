//! Values of dimensions once their symbols are known.

use super::{Atom, Dim, Origin, Symbol, Term};
use std::collections::HashMap;
use std::sync::Arc;

/// Values of symbols by name.
#[derive(Clone, Debug, Default)]
pub struct Bindings(HashMap<Arc<str>, i64>);

impl Bindings {
    /// Binds a symbol; returns the value it had before, if another.
    pub fn bind(&mut self, name: &Arc<str>, value: i64) -> Result<(), i64> {
        match self.0.insert(name.clone(), value) {
            Some(old) if old != value => Err(old),
            _ => Ok(()),
        }
    }

    /// The value of a symbol.
    pub fn get(&self, name: &str) -> Option<i64> {
        self.0.get(name).copied()
    }
}

impl Dim {
    /// Puts known values in place of symbols; unknown ones stay.
    pub fn substitute(&self, known: &dyn Fn(&Symbol) -> Option<Dim>) -> Dim {
        if self.as_const().is_some() {
            return self.clone();
        }
        self.terms()
            .iter()
            .map(|t| t.atoms.iter().fold(Dim::new(t.coef), |acc, a| acc * substitute_atom(a, known)))
            .sum()
    }

    /// The number that it is under `b`, or the first symbol that `b` lacks.
    pub fn eval(&self, b: &Bindings) -> Result<i64, Arc<str>> {
        if let Some(n) = self.as_const() {
            return Ok(n);
        }
        let r = self.substitute(&|s| b.get(&s.name).map(Dim::new));
        r.as_const().ok_or_else(|| first_symbol(&r))
    }

    /// An upper bound with every device symbol at its bound; `None` if one has none.
    ///
    /// Right for dimensions that do not shrink as a symbol grows; a subtracted device symbol counts as 0.
    pub fn upper_bound(&self) -> Option<Dim> {
        let mut sum = Dim::new(0);
        for Term { atoms, coef } in self.terms().iter() {
            let mut p = Dim::new(*coef);
            for a in atoms {
                p = p * match a {
                    Atom::Sym(Symbol { origin: Origin::Device(_), .. }) if *coef < 0 => Dim::new(0),
                    Atom::Sym(Symbol { origin: Origin::Device(bound), .. }) => {
                        bound.as_ref()?.upper_bound()?
                    }
                    Atom::Sym(s) => s.clone().into(),
                    Atom::Op(op, x, y) => Dim::apply(*op, &x.upper_bound()?, &y.upper_bound()?),
                };
            }
            sum = sum + p;
        }
        Some(sum)
    }
}

fn substitute_atom(a: &Atom, known: &dyn Fn(&Symbol) -> Option<Dim>) -> Dim {
    match a {
        Atom::Sym(s) => known(s).unwrap_or_else(|| match &s.origin {
            Origin::Device(Some(bound)) => Dim::device(s.name.clone(), Some(bound.substitute(known))),
            _ => s.clone().into(),
        }),
        Atom::Op(op, x, y) => Dim::apply(*op, &x.substitute(known), &y.substitute(known)),
    }
}

fn first_symbol(d: &Dim) -> Arc<str> {
    let mut found = None;
    d.visit(&mut |s| {
        found.get_or_insert_with(|| s.name.clone());
    });
    found.unwrap_or_else(|| "".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_symbols_give_numbers_and_unbound_ones_are_named() {
        let mut b = Bindings::default();
        let d = (Dim::host("n") * 3.into() + 1.into()).floor_div(&2.into());
        assert_eq!(d.eval(&b).unwrap_err().as_ref(), "n");
        b.bind(&"n".into(), 5).unwrap();
        assert_eq!(d.eval(&b), Ok(8));
        assert_eq!(b.bind(&"n".into(), 6), Err(5));
    }

    #[test]
    fn device_symbols_have_bounds() {
        let k = Dim::device("k", Some(Dim::host("n") * 4.into()));
        assert_eq!((k.clone() + 1.into()).upper_bound(), Some(Dim::host("n") * 4.into() + 1.into()));
        assert_eq!(Dim::device("u", None).upper_bound(), None);
        assert_eq!(k.kind(), super::super::DimKind::Device);
    }
}
