//! Kernels that check the contents of index inputs, derived from the ranges that operators declare.
//!
//! Every kernel whose anchor has index inputs gets one more entry point for each of them: a thread an element, which
//! records the first element found out of range in the words of its step. The host reads these words with the outputs.
//! The kernel itself must only stay within its memory for such elements; its results are not handed out.

use crate::site::{Cx, Site, op_error};
use crate::template::{fill, section};
use crate::{Body, Entry, Grid, Kernel, Launch, word};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::{DType, Fact, IndexRange, Op};

/// Words of a step's record: whether it is set, input, element, halves of its value, least and greatest value.
pub const RECORD_WORDS: usize = 8;

impl Kernel {
    /// The body as [`Kernel::body`] returns it, in the site's dialect. A dialect without templates gets the right entry points
    /// and bindings, but no valid code.
    pub fn outline(&self, site: &Site<'_>, tactic: &Tactic) -> Result<Body, BackendError> {
        let mut body = (self.source)(site, tactic)?;
        for input in checked(site)? {
            let index = if site.dtype(input) == Some(DType::I64) { "i64" } else { "i32" };
            let high = if index == "i64" { "u32(i32(v >> 32u))" } else { "select(0u, 4294967295u, v < 0)" };
            let pairs = [("INPUT", &*input.to_string()), ("IDX", index), ("HIGH", high)];
            let text = section(site.text("checks"), "check");
            let named = [("checkINPUT", &*format!("check{input}")), ("xINPUT", &*format!("x{input}"))];
            body.code += &fill(&fill(text, &named), &pairs);
            body.entries.push(Entry::Partial(NAMES.get(input).copied().unwrap_or("check")));
            body.checks.push(input);
            if let Some(bound) = body.inputs.as_mut().filter(|b| !b.contains(&input)) {
                bound.push(input);
            }
        }
        Ok(body)
    }

    /// What is launched, the checks of these inputs first; the kernel has so many entry points. Contents that the host knows
    /// are checked at once: `layer` is what an error names.
    pub fn launches(
        &self,
        cx: &Cx<'_>,
        entries: usize,
        checks: &[usize],
        layer: &str,
    ) -> Result<Vec<Launch>, BackendError> {
        let mut all = Vec::new();
        if let Some(op) = cx.op {
            let ranges = op.ranges_of_facts(&cx.inputs).map_err(op_error)?;
            for (k, range) in ranges.iter().enumerate() {
                if let Some(t) = cx.inputs.get(range.input).copied().flatten().and_then(Fact::as_const) {
                    let refuse = |e: kiln_ir::OpError| refused(layer, e.to_string());
                    range.check(op.def(), t).map_err(refuse)?;
                    continue;
                }
                let count = checks.len();
                let entry = checks.iter().position(|&i| i == range.input).map(|at| entries - count + at);
                let lost = || BackendError::Internal(format!("no check {k} of \"{layer}\""));
                all.push(launch(cx, entry.ok_or_else(lost)?, range)?);
            }
        }
        // Nothing is computed where all results are empty; their other dimensions may be any size.
        let empty = |f: &&Fact| f.ty.static_dims().is_some_and(|d| d.contains(&0));
        if cx.outputs.is_empty() || !cx.outputs.iter().all(empty) || !pure(cx.op) {
            all.extend((self.launch)(cx)?);
        }
        Ok(all)
    }
}

fn pure(op: Option<&Op>) -> bool {
    op.is_none_or(|op| !op.def().traits.side_effect && !op.def().traits.data_dependent)
}

const NAMES: [&str; 8] = ["check0", "check1", "check2", "check3", "check4", "check5", "check6", "check7"];

/// Positions of the anchor's index inputs.
pub(crate) fn checked(site: &Site<'_>) -> Result<Vec<usize>, BackendError> {
    let Some((_, node)) = site.anchor else { return Ok(Vec::new()) };
    let facts: Vec<Option<&Fact>> =
        node.inputs.iter().map(|v| v.map(|v| &site.graph.value(v).fact)).collect();
    let ranges = node.op.ranges_of_facts(&facts).map_err(op_error)?;
    Ok(ranges.into_iter().map(|r| r.input).collect())
}

/// A thread for each element.
fn launch(cx: &Cx<'_>, entry: usize, range: &IndexRange) -> Result<Launch, BackendError> {
    let n: usize = cx.shape(range.input)?.iter().product();
    let mut words = vec![word(range.bounds.len())?, u32::from(range.except.is_some())];
    let except = range.except.unwrap_or(0);
    words.extend([except as u32, (except >> 32) as u32]);
    let near = |n: i64| n.clamp(i32::MIN.into(), i32::MAX.into()) as i32 as u32;
    words.extend(range.bounds.iter().flat_map(|&(least, greatest)| [near(least), near(greatest)]));
    Ok(Launch::map(entry, words).on(Grid::Threads(n as u64)))
}

fn refused(layer: &str, message: String) -> BackendError {
    BackendError::Execution { layer: layer.to_owned(), message }
}

/// The error that the record of a step tells of, if it is set.
pub fn recorded(record: &[u8], op: Option<&Op>, layer: &str) -> Result<(), BackendError> {
    let words: Vec<u32> = record.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
    let &[set, input, at, low, high, least, greatest, ..] = &words[..] else { return Ok(()) };
    if set == 0 {
        return Ok(());
    }
    let Some(op) = op else { return Err(refused(layer, "an index is out of range".into())) };
    let bound = (i64::from(least as i32), i64::from(greatest as i32));
    let found = (u64::from(high) << 32 | u64::from(low)) as i64;
    let range = IndexRange { input: input as usize, bounds: vec![bound], except: None };
    Err(refused(layer, range.error(op.def(), at.into(), found).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::Attrs;

    #[test]
    fn a_record_says_what_the_oracle_says() {
        let op = Op::new("gather", Attrs::new()).unwrap();
        let words = [1u32, 1, 6, -9i32 as u32, u32::MAX, -4i32 as u32, 3, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let e = recorded(&bytes, Some(&op), "g").unwrap_err();
        let wanted = "layer \"g\": gather: element 6 of input 1 (\"indices\") is -9, wants -4 to 3";
        assert_eq!(e.to_string(), wanted);
        assert_eq!(recorded(&[0; 32], Some(&op), "g"), Ok(()));
    }
}
