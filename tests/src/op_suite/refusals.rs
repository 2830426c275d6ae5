//! Expected refusals of a backend: `tests/ops/expected-refusals/<backend>.txt`.
//!
//! One line `<operator> <dtype>: <reason>`, or `<operator> <dtype> some: <reason>` where other problems of the same
//! operator and type run, or are refused for other reasons. Lines that start with `#` are comments.

use crate::suite::root;
use kiln_ir::DType;
use std::collections::BTreeSet;
use std::fmt;

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The operator.
    pub op: String,
    /// The type that the problem is about.
    pub dtype: DType,
    /// Whether it is only some of the problems.
    pub some: bool,
    /// The backend's reason.
    pub why: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let some = if self.some { " some" } else { "" };
        write!(f, "{} {}{some}: {}", self.op, self.dtype, self.why)
    }
}

impl Refusal {
    fn parse(line: &str) -> Option<Refusal> {
        let (head, why) = line.split_once(": ")?;
        let words: Vec<&str> = head.split(' ').collect();
        let (op, dtype, some) = match words[..] {
            [op, dtype] => (op, dtype, false),
            [op, dtype, "some"] => (op, dtype, true),
            _ => return None,
        };
        kiln_ops::find(op)?;
        Some(Refusal { op: op.to_owned(), dtype: dtype.parse().ok()?, some, why: why.to_owned() })
    }
}

/// The list of a backend; an error names the line that is none. A backend without a file refuses nothing.
pub fn listed(backend: &str) -> Result<BTreeSet<Refusal>, String> {
    let path = root().join(format!("tests/ops/expected-refusals/{backend}.txt"));
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let lines = text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty());
    lines
        .map(|l| Refusal::parse(l).ok_or_else(|| format!("{}: \"{l}\" is no refusal", path.display())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_they_print() {
        for line in ["add f32: no", "conv f16 some: a: b"] {
            assert_eq!(Refusal::parse(line).unwrap().to_string(), line);
        }
        for line in ["nag f32: no", "add f99: no", "add f32 all: no", "add f32"] {
            assert!(Refusal::parse(line).is_none(), "{line}");
        }
    }
}
