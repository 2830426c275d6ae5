//! Dimensions: integers, or polynomials over symbols.
//!
//! A dimension is *static* (a number), *host-known* (its symbols are all host symbols: the host computes it
//! before enqueue) or *device-known*. A device-known dimension names a device symbol; an operator writes its
//! value on the device, and the host knows an upper bound.

mod arith;
mod eval;
mod interval;
mod poly;
mod sign;
pub(crate) mod text;

pub use eval::Bindings;
pub use interval::{Interval, SymbolRanges};
pub(crate) use poly::Poly;
pub use poly::{MAX_DEGREE, MAX_DEPTH, MAX_SIZE, MAX_TERMS};

use std::fmt;
use std::sync::Arc;

/// One dimension, or one element of a shape tensor. May be negative in the latter use.
///
/// Kept in a normal form (a sum of products with integer coefficients, sorted), so that `==` proves equality for
/// everything that addition and multiplication build. An expression beyond [`MAX_TERMS`], [`MAX_DEGREE`], [`MAX_DEPTH`]
/// or [`MAX_SIZE`] becomes an opaque symbol, whose value inference finds again once the inputs are numbers.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dim(pub(crate) Repr);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Repr {
    Const(i64),
    Poly(Arc<Poly>),
}

/// `coef` times the product of `atoms`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Term {
    /// Sorted, repeated for powers; empty for the constant term.
    pub atoms: Vec<Atom>,
    /// Never zero.
    pub coef: i64,
}

/// A factor of a [`Term`]: a symbol, or an operation that polynomials can't express.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Atom {
    /// A named unknown.
    Sym(Symbol),
    /// A non-polynomial operation on two dimensions.
    Op(DimOp, Box<Dim>, Box<Dim>),
}

/// Operations kept as atoms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DimOp {
    /// Quotient rounded down.
    FloorDiv = 1,
    /// Quotient rounded up.
    CeilDiv = 2,
    /// Remainder with the sign of the divisor.
    Mod = 3,
    /// The greater.
    Max = 4,
    /// The lesser.
    Min = 5,
}

/// A named unknown. Two symbols are equal if their names are: a name is given once in a network.
#[derive(Clone, Debug)]
pub struct Symbol {
    /// The name, unique in its network.
    pub name: Arc<str>,
    /// Source of its value.
    pub origin: Origin,
}

/// Source of the value of a [`Symbol`].
#[derive(Clone, Debug)]
pub enum Origin {
    /// A dimension that the host knows before enqueue; at least 0. A dimension that follows from other dimensions by
    /// no expression may have an upper bound, which the builder uses; it is not written into plans.
    Host(Option<Arc<Dim>>),
    /// An element of a shape input, which the host reads before enqueue; any integer.
    Content,
    /// An operator computes it on the device; it is at most this, and at least 0. `None`: no bound is known.
    Device(Option<Arc<Dim>>),
}

impl PartialEq for Symbol {
    fn eq(&self, o: &Self) -> bool {
        self.name == o.name
    }
}
impl Eq for Symbol {}
impl std::hash::Hash for Symbol {
    fn hash<H: std::hash::Hasher>(&self, h: &mut H) {
        self.name.hash(h);
    }
}
impl PartialOrd for Symbol {
    fn partial_cmp(&self, o: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(o))
    }
}
impl Ord for Symbol {
    fn cmp(&self, o: &Self) -> std::cmp::Ordering {
        self.name.cmp(&o.name)
    }
}

/// The three kinds of dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DimKind {
    /// A number.
    Static,
    /// Computed by the host before enqueue.
    Host,
    /// Known to the device during the run.
    Device,
}

impl Dim {
    /// A number.
    pub const fn new(n: i64) -> Dim {
        Dim(Repr::Const(n))
    }

    /// A host symbol.
    pub fn host(name: impl Into<Arc<str>>) -> Dim {
        Symbol { name: name.into(), origin: Origin::Host(None) }.into()
    }

    /// A host symbol with an upper bound, if there is one.
    pub fn host_bounded(name: impl Into<Arc<str>>, bound: Option<Dim>) -> Dim {
        Symbol { name: name.into(), origin: Origin::Host(poly::kept(bound)) }.into()
    }

    /// An element of a shape input.
    pub fn content(name: impl Into<Arc<str>>) -> Dim {
        Symbol { name: name.into(), origin: Origin::Content }.into()
    }

    /// A device symbol with its upper bound.
    pub fn device(name: impl Into<Arc<str>>, bound: Option<Dim>) -> Dim {
        Symbol { name: name.into(), origin: Origin::Device(poly::kept(bound)) }.into()
    }

    /// The number, if it is static.
    pub fn as_const(&self) -> Option<i64> {
        match self.0 {
            Repr::Const(n) => Some(n),
            Repr::Poly(_) => None,
        }
    }

    /// Whether it is this number.
    pub fn is(&self, n: i64) -> bool {
        self.as_const() == Some(n)
    }

    /// Static, host-known or device-known.
    pub fn kind(&self) -> DimKind {
        let mut kind = DimKind::Static;
        self.visit(&mut |s| {
            kind = kind.max(match s.origin {
                Origin::Host(_) | Origin::Content => DimKind::Host,
                Origin::Device(_) => DimKind::Device,
            });
        });
        kind
    }

    /// Whether it names an element of a shape input, so that its sign is unknown.
    pub fn has_content(&self) -> bool {
        let mut found = false;
        self.visit(&mut |s| found |= matches!(s.origin, Origin::Content));
        found
    }

    /// Calls `f` with every symbol in it (not with those inside bounds).
    pub fn visit(&self, f: &mut dyn FnMut(&Symbol)) {
        for atom in self.terms().iter().flat_map(|t| &t.atoms) {
            match atom {
                Atom::Sym(s) => f(s),
                Atom::Op(_, a, b) => {
                    a.visit(f);
                    b.visit(f);
                }
            }
        }
    }

    /// The terms of the normal form; a number is one term without atoms, zero has none.
    pub fn terms(&self) -> std::borrow::Cow<'_, [Term]> {
        match &self.0 {
            Repr::Const(0) => (&[][..]).into(),
            Repr::Const(n) => vec![Term { atoms: vec![], coef: *n }].into(),
            Repr::Poly(p) => p.terms().into(),
        }
    }
}

impl From<Symbol> for Dim {
    fn from(s: Symbol) -> Dim {
        Dim::from_terms(vec![Term { atoms: vec![Atom::Sym(s)], coef: 1 }])
    }
}

impl From<i64> for Dim {
    fn from(n: i64) -> Dim {
        Dim::new(n)
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
