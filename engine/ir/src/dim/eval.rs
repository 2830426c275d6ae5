//! Values of dimensions once their symbols are known.

use super::{Atom, Dim, DimKind, DimOp, Origin, Symbol, Term};
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

    /// An upper bound in terms of what the host knows; `None` if a device symbol has none, or an expression with one is not
    /// certain to have one.
    pub fn upper_bound(&self) -> Option<Dim> {
        self.extreme_of(true)
    }

    /// An upper (or lower) bound without device symbols.
    fn extreme_of(&self, upper: bool) -> Option<Dim> {
        let mut sum = Dim::new(0);
        for t in self.terms().iter() {
            sum = sum + term_extreme(t, upper)?;
        }
        Some(sum)
    }
}

fn term_extreme(t: &Term, upper: bool) -> Option<Dim> {
    let on_device = |a: &Atom| atom_kind(a) == DimKind::Device;
    let mut product = Dim::new(t.coef);
    if !t.atoms.iter().any(on_device) {
        return Some(t.atoms.iter().fold(product, |p, a| p * Dim::from_atom(a.clone())));
    }
    // A product grows with its factors only where none of them is negative.
    if !t.atoms.iter().all(|a| a.is_nonnegative()) {
        return None;
    }
    for a in &t.atoms {
        product = product * atom_extreme(a, upper == (t.coef > 0))?;
    }
    Some(product)
}

/// A bound of a factor that is not negative.
fn atom_extreme(a: &Atom, upper: bool) -> Option<Dim> {
    let zero = Dim::new(0);
    match a {
        Atom::Sym(Symbol { origin: Origin::Device(bound), .. }) => match upper {
            true => bound.as_ref()?.upper_bound(),
            false => Some(zero),
        },
        Atom::Sym(s) => Some(s.clone().into()),
        Atom::Op(op @ (DimOp::Max | DimOp::Min), x, y) => {
            Some(Dim::apply(*op, &x.extreme_of(upper)?, &y.extreme_of(upper)?))
        }
        Atom::Op(DimOp::Mod, x, y) => match upper {
            // Less than the divisor, and no more than what is divided.
            true => {
                let below = (y.extreme_of(true)? - 1.into()).max_with(&zero);
                let whole = x.is_nonnegative().then(|| x.extreme_of(true)).flatten();
                Some(whole.map_or(below.clone(), |x| x.min_with(&below)))
            }
            false => Some(zero),
        },
        Atom::Op(DimOp::FloorDiv | DimOp::CeilDiv, x, y) => match (upper, y.as_const()) {
            (true, Some(n)) if n > 0 => {
                let Atom::Op(op, ..) = a else { return None };
                Some(Dim::apply(*op, &x.extreme_of(true)?, y))
            }
            // The divisor is at least 1 where the quotient is not 0.
            (true, _) => x.extreme_of(true),
            (false, _) => Some(zero),
        },
    }
}

fn atom_kind(a: &Atom) -> DimKind {
    match a {
        Atom::Sym(Symbol { origin: Origin::Device(_), .. }) => DimKind::Device,
        Atom::Sym(_) => DimKind::Host,
        Atom::Op(_, x, y) => x.kind().max(y.kind()),
    }
}

fn substitute_atom(a: &Atom, known: &dyn Fn(&Symbol) -> Option<Dim>) -> Dim {
    match a {
        Atom::Sym(s) => known(s).unwrap_or_else(|| match &s.origin {
            Origin::Device(Some(bound)) => Dim::device(s.name.clone(), Some(bound.substitute(known))),
            Origin::Host(Some(bound)) => Dim::host_bounded(s.name.clone(), Some(bound.substitute(known))),
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
        // An expression that shrinks as the device's number grows is bounded at that number's least.
        let n = Dim::host("n");
        assert_eq!((n.clone() - k.clone()).upper_bound(), Some(n.clone()));
        assert_eq!(Dim::new(1000).floor_div(&k).upper_bound(), Some(1000.into()));
        assert_eq!(k.floor_div(&2.into()).upper_bound(), Some(n.clone() * 2.into()));
        let m = k.modulo(&17.into()).upper_bound();
        assert_eq!(m, Some((n.clone() * 4.into()).min_with(&16.into())));
        assert_eq!(((n.clone() - k.clone()) * k.clone()).upper_bound(), Some(n * Dim::host("n") * 4.into()));
        assert_eq!(k.kind(), super::super::DimKind::Device);
    }
}
