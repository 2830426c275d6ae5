//! Polynomials with their measures, and the limits beyond which an expression becomes an opaque symbol.
//!
//! Expressions are walked as trees. The measures count shared operands as often as they occur, so that the limits bound
//! the work of every walk.

use super::{Atom, Dim, DimKind, Origin, Repr, Symbol, Term};
use std::cmp::Ordering;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The most terms of a sum.
pub const MAX_TERMS: usize = 256;

/// The most factors of a product.
pub const MAX_DEGREE: usize = 16;

/// The deepest nesting of operations and bounds.
pub const MAX_DEPTH: usize = 64;

/// The most terms and factors of an expression, those of operands and bounds included.
pub const MAX_SIZE: usize = 4096;

/// A sum of terms in normal form, with its measures. Equality, order and hash are those of the terms.
#[derive(Clone)]
pub(crate) struct Poly {
    terms: Vec<Term>,
    size: usize,
    depth: usize,
}

/// Size of an expression.
#[derive(Clone, Copy)]
pub(super) struct Measure {
    pub size: usize,
    pub depth: usize,
}

impl Poly {
    pub(super) fn terms(&self) -> &[Term] {
        &self.terms
    }
}

impl PartialEq for Poly {
    fn eq(&self, o: &Self) -> bool {
        std::ptr::eq(self, o) || self.terms == o.terms
    }
}
impl Eq for Poly {}
impl Hash for Poly {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.terms.hash(h);
    }
}
impl PartialOrd for Poly {
    fn partial_cmp(&self, o: &Self) -> Option<Ordering> {
        Some(self.cmp(o))
    }
}
impl Ord for Poly {
    fn cmp(&self, o: &Self) -> Ordering {
        if std::ptr::eq(self, o) { Ordering::Equal } else { self.terms.cmp(&o.terms) }
    }
}

impl Dim {
    pub(super) fn measure(&self) -> Measure {
        match &self.0 {
            Repr::Const(_) => Measure { size: 1, depth: 0 },
            Repr::Poly(p) => Measure { size: p.size, depth: p.depth },
        }
    }

    /// The number of terms and factors, those of operands and bounds included.
    pub fn size(&self) -> usize {
        self.measure().size
    }

    /// A sum in normal form as it is, or as an opaque symbol if it is too large.
    pub(super) fn limited(terms: Vec<Term>) -> Dim {
        let mut all = Measure { size: 0, depth: 0 };
        let mut degree = 0;
        for t in &terms {
            degree = degree.max(t.atoms.len());
            all.size = all.size.saturating_add(1);
            for m in t.atoms.iter().map(measure) {
                all = Measure { size: all.size.saturating_add(m.size), depth: all.depth.max(m.depth) };
            }
        }
        let Measure { size, depth } = all;
        let fits = terms.len() <= MAX_TERMS && degree <= MAX_DEGREE && depth <= MAX_DEPTH && size <= MAX_SIZE;
        let dim = Dim(Repr::Poly(Arc::new(Poly { terms, size, depth })));
        if fits { dim } else { opaque(dim.kind(), dim.is_nonnegative(), &[&dim]) }
    }

    /// An opaque symbol for a product of sums that is not multiplied out.
    pub(super) fn opaque_product(a: &Dim, b: &Dim) -> Dim {
        let nonnegative = a.is_nonnegative() && b.is_nonnegative();
        opaque(a.kind().max(b.kind()), nonnegative, &[a, b])
    }

    /// An expression of at most `size`: itself, or an opaque symbol in its place.
    pub(crate) fn at_most(&self, size: usize) -> Dim {
        if self.size() <= size {
            return self.clone();
        }
        opaque(self.kind(), self.is_nonnegative(), &[self])
    }
}

fn measure(a: &Atom) -> Measure {
    let inside = match a {
        Atom::Sym(Symbol { origin: Origin::Host(Some(b)) | Origin::Device(Some(b)), .. }) => b.measure(),
        Atom::Sym(_) => return Measure { size: 1, depth: 0 },
        Atom::Op(_, x, y) => {
            let (x, y) = (x.measure(), y.measure());
            Measure { size: x.size.saturating_add(y.size), depth: x.depth.max(y.depth) }
        }
    };
    Measure { size: inside.size.saturating_add(1), depth: inside.depth + 1 }
}

/// A bound that a symbol keeps: simplified if it is so deep or large that few operations on the symbol would be left.
pub(super) fn kept(bound: Option<Dim>) -> Option<Arc<Dim>> {
    let fits = |b: &Dim| {
        let m = b.measure();
        m.depth <= MAX_DEPTH / 4 && m.size <= MAX_SIZE / 16
    };
    let bound = bound?;
    if fits(&bound) {
        return Some(Arc::new(bound));
    }
    let simpler = bound.upper_bound().filter(fits);
    let number = || bound.interval(&|_| None).hi().map(Dim::new);
    simpler.or_else(number).map(Arc::new)
}

/// A symbol in place of an expression, named by its structure. If the expression may be negative, the difference of two
/// symbols: its positive and its negative part.
fn opaque(kind: DimKind, nonnegative: bool, of: &[&Dim]) -> Dim {
    let name = structural_name(of);
    let symbol = |name: String| match kind {
        DimKind::Device => Dim::device(name, None),
        _ => Dim::host(name),
    };
    match nonnegative {
        true => symbol(name),
        false => symbol(format!("{name}.pos")) - symbol(format!("{name}.neg")),
    }
}

fn structural_name(of: &[&Dim]) -> String {
    let half = |salt: u8| {
        let mut h = DefaultHasher::new();
        salt.hash(&mut h);
        of.iter().for_each(|d| d.hash(&mut h));
        h.finish()
    };
    format!("opaque.{:016x}{:016x}", half(0), half(1))
}
