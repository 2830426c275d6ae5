//! Checks of the contents of index inputs, by the ranges that operators declare.
//!
//! A kernel whose anchor has index inputs ends with an entry point for each of them, a thread an element. It records the first
//! element found out of range in the words of its step. Kernels whose other launches do so need it for empty results only. The host reads
//! these words with the outputs. Contents that the host knows are checked when launches are planned.

use crate::step::StepKernel;
use kiln_backend::BackendError;
use kiln_backend::launch::{Grid, Launch, LaunchSite};
use kiln_ir::{Fact, IndexRange, Op};

kiln_backend::params! {
    /// A check of an index input.
    pub struct IndexCheckParams {
        /// The least value of an element, for each of the bounds that elements have in turn.
        least: [i32],
        /// The greatest value, likewise.
        greatest: [i32],
        /// Whether a value is allowed beside those.
        excepted: u32,
        /// The lower half of this value.
        except_low: u32,
        /// Its upper half.
        except_high: u32,
    }
}

/// Words of a step's record: whether it is set, input, element, halves of its value, least and greatest value.
pub const RECORD_WORDS: usize = 8;

/// Launches that check index inputs, by the last entry points of a kernel. `layer` is what an error names.
pub fn launches<C>(
    site: &LaunchSite<'_>,
    kernel: &StepKernel<C>,
    layer: &str,
) -> Result<Vec<Launch>, BackendError> {
    let Some(op) = site.op() else { return Ok(Vec::new()) };
    let inputs = site.inputs();
    let ranges = op.ranges_of_facts(&inputs).map_err(|e| BackendError::InvalidArgument(e.to_string()))?;
    let mut all = Vec::new();
    for (k, range) in ranges.iter().enumerate() {
        let fact = inputs.get(range.input).copied().flatten();
        if let Some(t) = fact.and_then(Fact::as_const) {
            range.check(op.def(), t).map_err(|e| refused(layer, e.to_string()))?;
            continue;
        }
        if kernel.checking && !site.computes_nothing() {
            continue;
        }
        let first = kernel.maps.len().saturating_sub(kernel.checks.len());
        let entry = kernel.checks.iter().position(|&i| i == range.input).map(|at| first + at);
        let lost = || BackendError::Internal(format!("no check {k} of \"{layer}\""));
        let count = fact.and_then(|f| f.ty.static_volume());
        all.push(launch(entry.ok_or_else(lost)?, count.ok_or_else(lost)?, range)?);
    }
    Ok(all)
}

/// A thread for each of `count` elements.
fn launch(entry: usize, count: usize, range: &IndexRange) -> Result<Launch, BackendError> {
    let except = range.except.unwrap_or(0);
    let near = |n: i64| n.clamp(i32::MIN.into(), i32::MAX.into());
    let params = IndexCheckParams {
        least: range.bounds.iter().map(|b| near(b.0)).collect(),
        greatest: range.bounds.iter().map(|b| near(b.1)).collect(),
        excepted: usize::from(range.except.is_some()),
        except_low: except as u32 as usize,
        except_high: (except >> 32) as u32 as usize,
    };
    Ok(Launch::map(entry, params.words()?).on(Grid::Threads(count as u64)))
}

fn refused(layer: &str, message: String) -> BackendError {
    BackendError::Execution { layer: layer.to_owned(), message }
}

/// The error that the record of a step reports, if it is set.
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
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use kiln_backend::launch::KernelOperands;
    use kiln_backend::{Program, Tactic};
    use kiln_ir::{Attrs, DType, Elems, Tensor};

    #[test]
    fn a_record_says_what_the_oracle_says() {
        // Linked, so that its operators are registered.
        assert!(kiln_ops::FAMILY_NAMES.contains(&"select"));
        let op = Op::new("gather", Attrs::new()).unwrap();
        let words = [1u32, 1, 6, -9i32 as u32, u32::MAX, -4i32 as u32, 3, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let e = recorded(&bytes, Some(&op), "g").unwrap_err();
        let wanted = "layer \"g\": gather: element 6 of input 1 (\"indices\") is -9, wants -4 to 3";
        assert_eq!(e.to_string(), wanted);
        assert_eq!(recorded(&[0; 32], Some(&op), "g"), Ok(()));
    }

    /// Launches that check the indices of a gather from a tensor of these dimensions.
    fn checking_launches(x: &[usize], checking: bool) -> usize {
        assert!(kiln_ops::FAMILY_NAMES.contains(&"select"));
        let op = Op::new("gather", Attrs::new()).unwrap();
        let zeros = |t, shape: &[usize]| {
            Tensor::from_elems(t, shape, &Elems::I(vec![0; shape.iter().product()])).unwrap()
        };
        let given = [Some(zeros(DType::I32, x)), Some(zeros(DType::I64, &[4]))];
        let (program, inputs) = Program::single(&op, &given).unwrap();
        let shapes = program.shapes(&inputs).unwrap();
        let operands = KernelOperands { anchor: Some(0), ..KernelOperands::default() };
        let site = LaunchSite {
            graph: &program.graph,
            nodes: &program.steps[0].nodes,
            operands: &operands,
            tactic: &Tactic::plain("gather"),
            fact: &|v| shapes.fact(v),
            wanted: &[true],
            rounds: usize::MAX,
            holds: &|_| false,
        };
        let kernel: StepKernel<()> =
            StepKernel { maps: vec![None, None], checks: vec![1], checking, ..StepKernel::empty() };
        launches(&site, &kernel, "g").unwrap().len()
    }

    #[test]
    fn a_kernel_that_checks_indices_needs_no_launch_for_it_where_it_runs() {
        assert_eq!(checking_launches(&[3, 2], false), 1);
        assert_eq!(checking_launches(&[3, 2], true), 0);
        // Nothing of it runs.
        assert_eq!(checking_launches(&[3, 0], true), 1);
    }
}
