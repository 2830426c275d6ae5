//! The equation of an einsum, its ellipses expanded.

use kiln_ir::error::OpError;
use std::fmt;

/// A label, or a dimension under an ellipsis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Label {
    /// Counted from the right, as ellipses align there.
    Ellipsis(std::cmp::Reverse<usize>),
    /// An ASCII letter.
    Letter(u8),
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Label::Ellipsis(_) => f.write_str("..."),
            Label::Letter(c) => write!(f, "{}", char::from(*c)),
        }
    }
}

/// One label for each dimension of each input, and of the output.
#[derive(Debug)]
pub(super) struct Equation {
    pub(super) inputs: Vec<Vec<Label>>,
    pub(super) output: Vec<Label>,
}

/// A side of a comma: letters, and where the ellipsis is.
struct Term {
    letters: Vec<u8>,
    ellipsis: Option<usize>,
}

impl Equation {
    /// The equation for inputs of these ranks.
    pub(super) fn parse(text: &str, ranks: &[usize]) -> Result<Equation, OpError> {
        let wrong =
            |wanted: String| OpError::Attr { name: "equation".into(), found: format!("\"{text}\""), wanted };
        let (left, right) = match text.split_once("->") {
            Some((l, r)) => (l, Some(term(r, &wrong)?)),
            None => (text, None),
        };
        let terms = left.split(',').map(|t| term(t, &wrong)).collect::<Result<Vec<_>, _>>()?;
        if terms.len() != ranks.len() {
            let wanted = format!("for {} inputs; it has labels for {} inputs", ranks.len(), terms.len());
            return Err(wrong(wanted));
        }
        let mut inputs = Vec::new();
        for (i, (t, &rank)) in terms.iter().zip(ranks).enumerate() {
            let hidden = rank.checked_sub(t.letters.len()).filter(|&n| n == 0 || t.ellipsis.is_some());
            let hidden = hidden.ok_or_else(|| {
                let found = t.letters.len();
                wrong(format!("as many labels as input {i} has dimensions, {rank}; it has {found} labels"))
            })?;
            inputs.push(expand(t, hidden));
        }
        let widest = inputs.iter().flatten().filter_map(ellipsis).map(|n| n + 1).max().unwrap_or(0);
        let output = match right {
            Some(t) => explicit(&t, widest, &inputs, &wrong)?,
            None => implicit(&inputs),
        };
        Ok(Equation { inputs, output })
    }

    /// Labels of the inputs that the output lacks, each once.
    pub(super) fn summed(&self) -> Vec<Label> {
        let mut v: Vec<Label> = self.inputs.iter().flatten().copied().collect();
        v.sort_unstable();
        v.dedup();
        v.retain(|l| !self.output.contains(l));
        v
    }
}

fn ellipsis(l: &Label) -> Option<usize> {
    match l {
        Label::Ellipsis(n) => Some(n.0),
        Label::Letter(_) => None,
    }
}

fn term(text: &str, wrong: &dyn Fn(String) -> OpError) -> Result<Term, OpError> {
    let mut t = Term { letters: Vec::new(), ellipsis: None };
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("...") {
            if t.ellipsis.replace(t.letters.len()).is_some() {
                return Err(wrong("one ellipsis at most in each group of labels".into()));
            }
            rest = after;
            continue;
        }
        match c {
            ' ' => {}
            _ if c.is_ascii_alphabetic() => t.letters.push(c as u8),
            _ => return Err(wrong(format!("letters, commas, \"...\" and one \"->\", not {c:?}"))),
        }
        rest = &rest[c.len_utf8()..];
    }
    Ok(t)
}

fn expand(t: &Term, hidden: usize) -> Vec<Label> {
    let mut v: Vec<Label> = t.letters.iter().map(|&c| Label::Letter(c)).collect();
    let at = t.ellipsis.unwrap_or(0);
    v.splice(at..at, (0..hidden).rev().map(|n| Label::Ellipsis(std::cmp::Reverse(n))));
    v
}

fn explicit(
    t: &Term,
    widest: usize,
    inputs: &[Vec<Label>],
    wrong: &dyn Fn(String) -> OpError,
) -> Result<Vec<Label>, OpError> {
    let out = expand(t, if t.ellipsis.is_some() { widest } else { 0 });
    for (i, l) in out.iter().enumerate() {
        if out[..i].contains(l) {
            return Err(wrong(format!("every label once in the output, not '{l}' twice")));
        }
        if !inputs.iter().any(|v| v.contains(l)) {
            return Err(wrong(format!("labels of inputs in the output; '{l}' is none")));
        }
    }
    Ok(out)
}

/// The ellipsis first, then letters that occur once, sorted.
fn implicit(inputs: &[Vec<Label>]) -> Vec<Label> {
    let mut all: Vec<Label> = inputs.iter().flatten().copied().collect();
    all.sort_unstable();
    let once = |l: &Label| ellipsis(l).is_some() || all.iter().filter(|k| *k == l).count() == 1;
    let mut out: Vec<Label> = all.iter().copied().filter(once).collect();
    out.dedup();
    out
}
