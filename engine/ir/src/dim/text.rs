//! Text form of dimensions: `3*b*s + 1`, `floordiv(n, 2)`, `@s` for an element of a shape input, `?k` for a
//! device symbol. Names that are not plain words are quoted.

use super::{Atom, Dim, DimOp, Origin};
use std::borrow::Cow;
use std::fmt;

impl DimOp {
    /// All operations.
    pub const ALL: [DimOp; 5] = [DimOp::FloorDiv, DimOp::CeilDiv, DimOp::Mod, DimOp::Max, DimOp::Min];

    /// The name in text form.
    pub fn name(self) -> &'static str {
        match self {
            DimOp::FloorDiv => "floordiv",
            DimOp::CeilDiv => "ceildiv",
            DimOp::Mod => "mod",
            DimOp::Max => "max",
            DimOp::Min => "min",
        }
    }
}

/// Whether this may be written without quotes. A letter or `_`, then letters, digits and `_ . /`.
fn is_plain(s: &str) -> bool {
    s.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && s.chars().all(in_word)
}

/// Whether this character may be in a name without quotes.
pub(crate) fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/')
}

/// The name, in quotes and escaped if it has to be.
pub(crate) fn quoted(s: &str) -> Cow<'_, str> {
    if is_plain(s) { s.into() } else { format!("{s:?}").into() }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Sym(s) => match s.origin {
                Origin::Host(_) => f.write_str(&quoted(&s.name)),
                Origin::Content => write!(f, "@{}", quoted(&s.name)),
                Origin::Device(_) => write!(f, "?{}", quoted(&s.name)),
            },
            Atom::Op(op, a, b) => write!(f, "{}({a}, {b})", op.name()),
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms = self.terms();
        if terms.is_empty() {
            return f.write_str("0");
        }
        for (i, t) in terms.iter().rev().enumerate() {
            if i > 0 {
                f.write_str(" + ")?;
            }
            if t.coef != 1 || t.atoms.is_empty() {
                write!(f, "{}", t.coef)?;
            }
            for (k, a) in t.atoms.iter().enumerate() {
                if k > 0 || t.coef != 1 {
                    f.write_str("*")?;
                }
                write!(f, "{a}")?;
            }
        }
        Ok(())
    }
}
