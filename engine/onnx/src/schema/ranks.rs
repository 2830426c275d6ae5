//! Ranks that the texts of the operators fix and their schemas do not say: data in `ranks.txt`.

use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;

use super::Schema;
use crate::convert::{Cx, Refusal};

const TABLE: &str = include_str!("ranks.txt");

/// Number of dimensions that an input may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// Least and greatest number.
    Between(usize, usize),
    /// Least number.
    AtLeast(usize),
    /// Number that another input has, less some.
    Like(&'static str, usize),
}

impl Wanted {
    fn read(text: &'static str) -> Option<Wanted> {
        if let Some(other) = text.strip_prefix('=') {
            return match other.split_once('-') {
                Some((name, less)) => Some(Wanted::Like(name, less.parse().ok()?)),
                None => Some(Wanted::Like(other, 0)),
            };
        }
        if let Some(least) = text.strip_suffix('+') {
            return Some(Wanted::AtLeast(least.parse().ok()?));
        }
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        Some(Wanted::Between(least.parse().ok()?, most.parse().ok()?))
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Between(least, most) if least == most => write!(f, "{least}"),
            Wanted::Between(least, most) => write!(f, "{least} to {most}"),
            Wanted::AtLeast(least) => write!(f, "{least} or more"),
            Wanted::Like(other, 0) => write!(f, "as many as {other} has"),
            Wanted::Like(other, less) => write!(f, "{less} fewer than {other} has"),
        }
    }
}

/// The line of an operator from one version on.
#[derive(Debug)]
struct Line {
    from: i64,
    inputs: Vec<(&'static str, Wanted)>,
}

fn table() -> &'static HashMap<&'static str, Vec<Line>> {
    static READ: OnceLock<HashMap<&'static str, Vec<Line>>> = OnceLock::new();
    READ.get_or_init(|| {
        let mut table: HashMap<_, Vec<Line>> = HashMap::new();
        for (name, line) in TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(read) {
            table.entry(name).or_default().push(line);
        }
        table
    })
}

fn read(line: &'static str) -> Option<(&'static str, Line)> {
    let (name, rest) = line.split_once(' ')?;
    let first = rest.split_once(' ').and_then(|(first, rest)| Some((first.parse().ok()?, rest)));
    let (from, rest) = first.unwrap_or((1, rest));
    let input = |text: &'static str| {
        let (input, wanted) = text.split_once('=')?;
        Some((input, Wanted::read(wanted)?))
    };
    Some((name, Line { from, inputs: rest.split(' ').map(input).collect::<Option<_>>()? }))
}

/// Refuses an input whose rank the operator's text does not allow. Without a schema the line names the inputs in order.
pub(super) fn check(cx: &Cx<'_>, name: &str, schema: Option<&Schema>) -> Result<(), Refusal> {
    let lines = table().get(name).map_or(&[][..], Vec::as_slice);
    let Some(line) = lines.iter().rfind(|line| line.from <= cx.version()) else { return Ok(()) };
    let position = |input: &str| match schema {
        Some(schema) => schema.inputs.iter().position(|i| i.name == input),
        None => line.inputs.iter().position(|(name, _)| *name == input),
    };
    let rank = |input: &str| Some(cx.rank(cx.opt(position(input)?)?));
    for &(input, wanted) in &line.inputs {
        let Some((index, t)) = position(input).and_then(|i| Some((i, cx.opt(i)?))) else { continue };
        let found = cx.rank(t);
        let fits = match wanted {
            Wanted::Between(least, most) => (least..=most).contains(&found),
            Wanted::AtLeast(least) => found >= least,
            Wanted::Like(other, less) => rank(other).is_none_or(|other| found + less == other),
        };
        if !fits {
            let found = cx.ty(t).clone();
            return Err(Refusal::InputRank { index, input, found, wanted: wanted.to_string() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_and_names_inputs_that_exist() {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(table().values().map(Vec::len).sum::<usize>(), lines.count());
        for (name, lines) in table() {
            assert!(lines.is_sorted_by_key(|line| line.from), "{name}");
            let Some(versions) = super::super::table().get(name) else {
                assert!(name.contains('.'), "{name} is not an operator of ONNX");
                continue;
            };
            for (input, wanted) in lines.iter().flat_map(|line| &line.inputs) {
                let known = |n: &str| versions.iter().flat_map(|s| &s.inputs).any(|i| i.name == n);
                assert!(known(input), "{name} has no input {input}");
                assert!(!matches!(wanted, Wanted::Like(other, _) if !known(other)), "{name} {input}");
            }
        }
    }

    #[test]
    fn forms_are_read_and_said() {
        for (text, said) in [
            ("2", "2"),
            ("3+", "3 or more"),
            ("0..1", "0 to 1"),
            ("=X", "as many as X has"),
            ("=X-1", "1 fewer than X has"),
        ] {
            assert_eq!(Wanted::read(text).map(|w| w.to_string()).as_deref(), Some(said));
        }
        assert_eq!(Wanted::read("two"), None);
    }
}
