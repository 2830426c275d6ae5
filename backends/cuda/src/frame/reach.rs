//! Reading of a fused expression's operands. Most are laid out like the result or are one row of it. That is
//! known when the source is written, and takes no division.

use kiln_codegen::site::Site;
use kiln_ir::{DType, Dim, ValueId};
use std::fmt::Write;

/// Place of the operand's element for an element of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// At the same place.
    Same,
    /// At the remainder by so many: the result's last dimensions.
    Tail(u64),
    /// There is one element.
    One,
    /// By dimensions and strides from the host.
    Strided,
}

impl Reach {
    /// The offset for the result's element `at`, where it takes no loop.
    fn offset(self) -> Option<String> {
        match self {
            Reach::Same => Some("at".to_owned()),
            Reach::Tail(n) => Some(format!("at % {n}u")),
            Reach::One => Some("0u".to_owned()),
            Reach::Strided => None,
        }
    }

    /// Whether it is the same element for all rows of `columns`.
    pub fn of_column(self, columns: Option<u64>) -> bool {
        match self {
            Reach::One => true,
            Reach::Tail(n) => columns.is_some_and(|c| c % n.max(1) == 0),
            Reach::Same | Reach::Strided => false,
        }
    }

    /// Reach for eight neighbours in a row: a row of the operand must not end within.
    pub fn of_eight(self) -> Reach {
        match self {
            Reach::Tail(n) if n % 8 != 0 => Reach::Strided,
            other => other,
        }
    }
}

/// The reach of every extra of a region.
pub fn reaches(site: &Site<'_>) -> Vec<Reach> {
    let Some(result) = site.result() else { return vec![Reach::Strided; site.extras.len()] };
    let out = &site.graph.ty(result).dims;
    let of = |(k, &v): (usize, &ValueId)| match sliced(site, k) {
        true => Reach::Strided,
        false => reach(&site.graph.ty(v).dims, out),
    };
    site.extras.iter().enumerate().map(of).collect()
}

/// Whether an extra is read through a slice.
fn sliced(site: &Site<'_>, k: usize) -> bool {
    site.slices.get(k).is_some_and(Option::is_some)
}

fn reach(own: &[Dim], out: &[Dim]) -> Reach {
    let one = |d: &Dim| d.as_const() == Some(1);
    if own.iter().all(one) {
        return Reach::One;
    }
    let mut tail = Some(1u64);
    for (k, n) in out.iter().rev().enumerate() {
        let d = own.len().checked_sub(k + 1).and_then(|i| own.get(i));
        if d.is_none_or(|d| d != n) {
            // What is left of the operand must be of size 1; if that is so of the result as well, there is no difference.
            let rest = own.get(..own.len().saturating_sub(k)).unwrap_or_default();
            let beyond = out.get(..out.len() - k).unwrap_or_default();
            return match tail {
                _ if !rest.iter().all(one) => Reach::Strided,
                _ if beyond.iter().all(one) => Reach::Same,
                Some(n) if n <= u64::from(u32::MAX) => Reach::Tail(n),
                _ => Reach::Strided,
            };
        }
        let size = n.as_const().and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
        tail = tail.zip(size).and_then(|(t, n)| t.checked_mul(n));
    }
    if own.len() <= out.len() { Reach::Same } else { Reach::Strided }
}

/// Whether eight neighbours of the result, from `at` on, are in one row of the dimensions by which operands are found.
pub const IN_ONE_ROW: &str = "word(extras_at) == 0u || at % word(extras_at + word(extras_at)) + 8u <= word(extras_at + word(extras_at))";

/// Whether there are operands whose elements beside eight neighbours take a loop to find.
pub fn strided(site: &Site<'_>) -> bool {
    reaches(site).into_iter().any(|r| r.of_eight() == Reach::Strided)
}

/// Statements that define the offset `o<k>` of those extras, by position, for the result's element `at`. With
/// `steps` they define the step `s<k>` to the next one of those that are strided.
pub fn offsets(site: &Site<'_>, extras: &[(usize, Reach)], steps: bool) -> String {
    let mut s = String::new();
    for (k, r) in extras {
        if let Some(o) = r.offset() {
            let _ = writeln!(s, "    const u32 o{k} = {o};");
        }
    }
    let looked = || extras.iter().filter(|(_, r)| *r == Reach::Strided).map(|(k, _)| *k);
    if looked().next().is_none() {
        return s;
    }
    s += "    const u32 base = extras_at;\n    const u32 rank = word(base);\n    u32 rest = at;\n";
    for k in looked() {
        let offset = match sliced(site, k) {
            // Offsets stand behind the strides of all extras.
            true => {
                let before = (0..k).filter(|&k| sliced(site, k)).count();
                format!("word(base + rank * {}u + {}u) + ", site.extras.len() + 1, before + 1)
            }
            false => String::new(),
        };
        let _ = writeln!(s, "    u32 o{k} = {offset}(rank == 0u ? at : 0u);");
        if steps {
            let _ = writeln!(s, "    const u32 s{k} = rank == 0u ? 1u : word(base + rank * {}u);", k + 2);
        }
    }
    s += "    for (u32 d = rank; d > 0u; d--) {\n        const u32 n = word(base + d);\n";
    s += "        const u32 c = d == 1u ? rest : rest % n;\n        rest = d == 1u ? 0u : rest / n;\n";
    for k in looked() {
        let _ = writeln!(s, "        o{k} += c * word(base + rank * {}u + d);", k + 1);
    }
    s + "    }\n"
}

/// Whether extras that are read by vectors start at multiples of 16 bytes.
pub fn even(site: &Site<'_>, reaches: &[Reach]) -> String {
    let vectors: Vec<String> = reaches
        .iter()
        .zip(&site.extras)
        .enumerate()
        .filter(|(_, (r, v))| {
            matches!(r, Reach::Same | Reach::Tail(_)) && whole_bytes(site.graph.ty(**v).dtype)
        })
        .map(|(k, _)| format!("u64(be{k})"))
        .collect();
    match vectors.is_empty() {
        true => "true".to_owned(),
        false => format!("(({}) & 15u) == 0u", vectors.join(" | ")),
    }
}

/// Whether an element of the type has at least a byte.
pub fn whole_bytes(t: DType) -> bool {
    t.bits() >= 8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(d: &[i64]) -> Vec<Dim> {
        d.iter().map(|&n| Dim::from(n)).collect()
    }

    #[test]
    fn operands_are_found_without_strides_where_types_tell() {
        let of = |own: &[i64], out: &[i64]| reach(&dims(own), &dims(out));
        assert_eq!(of(&[2, 3, 8], &[2, 3, 8]), Reach::Same);
        assert_eq!(of(&[3, 8], &[1, 3, 8]), Reach::Same);
        assert_eq!(of(&[1, 3, 8], &[1, 3, 8]), Reach::Same);
        assert_eq!(of(&[8], &[2, 3, 8]), Reach::Tail(8));
        assert_eq!(of(&[1, 3, 8], &[2, 3, 8]), Reach::Tail(24));
        assert_eq!(of(&[2, 1, 8], &[2, 3, 8]), Reach::Strided);
        assert_eq!(of(&[2, 3, 1], &[2, 3, 8]), Reach::Strided);
        assert_eq!(of(&[2, 3, 1], &[2, 3, 1]), Reach::Same);
        assert_eq!(of(&[], &[2, 3]), Reach::One);
        assert_eq!(of(&[1, 1], &[16, 1]), Reach::One);
        assert_eq!(of(&[8, 1], &[2, 8, 1]), Reach::Tail(8));
        assert_eq!(of(&[0], &[2, 0]), Reach::Strided);
        assert_eq!(Reach::Tail(12).of_eight(), Reach::Strided);
        assert_eq!(Reach::Tail(24).of_eight(), Reach::Tail(24));
    }

    #[test]
    fn what_lies_along_a_row_is_the_same_for_all_rows() {
        let found =
            [Reach::One, Reach::Tail(8), Reach::Tail(16), Reach::Tail(24), Reach::Same, Reach::Strided]
                .map(|r| (r.of_column(Some(16)), r.of_column(None)));
        let (always, known, no) = ((true, true), (true, false), (false, false));
        assert_eq!(found, [always, known, known, no, no, no]);
    }

    #[test]
    fn a_dimension_that_is_not_known_is_like_itself_alone() {
        let (n, m) = (Dim::host("n"), Dim::host("m"));
        assert_eq!(reach(&[n.clone(), Dim::from(8)], &[n.clone(), Dim::from(8)]), Reach::Same);
        assert_eq!(reach(&[Dim::from(8)], &[n.clone(), Dim::from(8)]), Reach::Tail(8));
        assert_eq!(reach(&[n.clone()], &[m.clone(), n.clone()]), Reach::Strided);
        assert_eq!(reach(&[m], &[n]), Reach::Strided);
    }
}
