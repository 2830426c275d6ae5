//! Sequences and optional values whose contents are known when a model is imported: lists of tensors, without a layer.

use kiln_ir::{DType, Elems};
use kiln_network::TensorId;

use super::cx::{Cx, Outs};
use super::importer::{Importer, Listed};
use crate::error::{Refusal, unsupported};
use crate::model::Node;

/// The most tensors that one sequence may hold.
const LONGEST: usize = 1 << 16;

/// Output of a node.
enum Made {
    Tensor(TensorId),
    List(Listed),
}

impl Importer {
    /// Refuses a node that reads a sequence or an optional value as if it were a tensor.
    pub(super) fn check_lists(&self, node: &Node) -> Result<(), Refusal> {
        if node.domain.is_empty() && (node.op == "Identity" || crate::ops::lists(&node.op)) {
            return Ok(());
        }
        match node.reads().find(|name| self.sequences.get(name).is_some()) {
            None => Ok(()),
            Some(name) => unsupported(format!(
                "'{name}' is a sequence or optional value, which this operator is not converted for; export the model \
                 with a fixed number of tensors (unrolled loops, SequenceAt with a constant position)"
            )),
        }
    }
}

impl Cx<'_> {
    /// Whether an input is a sequence or an optional value.
    pub(crate) fn is_list(&self, i: usize) -> bool {
        self.node.inputs.get(i).is_some_and(|name| self.importer.sequences.get(name).is_some())
    }

    /// Converts a node that makes or reads a sequence or an optional value. What is not a tensor is not an output, but known
    /// by its name.
    pub(crate) fn list_node(&mut self) -> Outs {
        let node = self.node;
        let lists: Vec<_> =
            node.inputs.iter().map(|name| self.importer.sequences.get(name).cloned()).collect();
        match convert(self, &lists)? {
            Made::Tensor(tensor) => Ok(vec![tensor]),
            Made::List(list) => {
                if let Some(name) = node.output(0) {
                    let of = node.inputs.iter().find_map(|name| self.importer.held.get(name));
                    self.importer.sequences.set(name, list);
                    self.importer.held.set(name, of);
                }
                Ok(Vec::new())
            }
        }
    }
}

fn convert(cx: &mut Cx<'_>, lists: &[Option<Listed>]) -> Result<Made, Refusal> {
    let list = |i: usize| match lists.get(i) {
        Some(Some(Listed::Tensors(list))) => Ok(list.clone()),
        _ => unsupported(format!(
            "input {i}, which is not a sequence that is known when the model is imported"
        )),
    };
    let tensors = |list: Vec<TensorId>| {
        let fits = list.len() <= LONGEST;
        if fits {
            Ok(Made::List(Listed::Tensors(list)))
        } else {
            unsupported("a sequence of more than 65536 tensors")
        }
    };
    // Types of elements are those of the tensors.
    match cx.node().op.as_str() {
        "Optional" => cx.skip("type"),
        "SequenceEmpty" => cx.skip("dtype"),
        _ => {}
    }
    match cx.node().op.as_str() {
        "SequenceConstruct" => tensors(cx.inputs()?),
        "SequenceEmpty" => tensors(Vec::new()),
        "SequenceInsert" => {
            let (mut all, new) = (list(0)?, cx.input(1)?);
            let at = place(cx, 2, all.len(), all.len() + 1)?;
            all.insert(at, new);
            tensors(all)
        }
        "SequenceErase" => {
            let mut all = list(0)?;
            let at = place(cx, 1, all.len().saturating_sub(1), all.len())?;
            all.remove(at);
            tensors(all)
        }
        "SequenceAt" => {
            let all = list(0)?;
            let at = place(cx, 1, 0, all.len())?;
            Ok(Made::Tensor(all[at]))
        }
        "SequenceLength" => {
            let length = list(0)?.len();
            Ok(Made::Tensor(cx.i64(length as i64)?))
        }
        "ConcatFromSequence" => concat(cx, list(0)?).map(Made::Tensor),
        "SplitToSequence" => tensors(split(cx)?),
        "OptionalHasElement" => {
            let has = match lists.first() {
                Some(Some(Listed::Absent)) | None => false,
                Some(Some(Listed::Tensors(_))) => true,
                Some(None) => cx.opt(0).is_some(),
            };
            Ok(Made::Tensor(cx.elems(DType::Bool, &[], Elems::I(vec![has.into()]))?))
        }
        "OptionalGetElement" if matches!(lists.first(), Some(Some(Listed::Absent))) => {
            unsupported("an optional value that has no element")
        }
        "Optional" if cx.input_count() == 0 => Ok(Made::List(Listed::Absent)),
        "Optional" | "OptionalGetElement" | "Identity" => match lists.first() {
            Some(Some(value)) => Ok(Made::List(value.clone())),
            _ => Ok(Made::Tensor(cx.input(0)?)),
        },
        _ => Err(Refusal::UnknownOperator),
    }
}

/// The place that an optional input names, counted from the end if negative, below `end`.
fn place(cx: &Cx<'_>, input: usize, absent: usize, end: usize) -> Result<usize, Refusal> {
    let at = match cx.opt(input) {
        None => absent as i64,
        Some(_) => match cx.need_ints(input, "position")?[..] {
            [at] => at,
            _ => return unsupported(format!("input {input} (position) of more than one element")),
        },
    };
    // Insertion counts from the end of the sequence as it is, which is one less than the places there are.
    let length = if cx.node().op == "SequenceInsert" { end - 1 } else { end } as i64;
    let from_start = if at < 0 { at + length } else { at };
    match usize::try_from(from_start).ok().filter(|at| *at < end) {
        Some(at) => Ok(at),
        None => unsupported(format!("position {at} in a sequence of {length} tensors")),
    }
}

fn concat(cx: &mut Cx<'_>, mut all: Vec<TensorId>) -> Result<TensorId, Refusal> {
    let axis = cx.require_attr::<i64>("axis")?;
    let Some(first) = all.first() else { return unsupported("a concatenation of no tensors") };
    if !cx.flag("new_axis", false)? {
        return cx.concat(&all, axis);
    }
    let axis = cx.axis(axis, cx.rank(*first) + 1)? as i64;
    for tensor in &mut all {
        *tensor = cx.unsqueeze(*tensor, &[axis])?;
    }
    cx.concat(&all, axis)
}

/// The parts of a tensor along an axis: of sizes given, of one size but for the last, or of 1.
fn split(cx: &mut Cx<'_>) -> Result<Vec<TensorId>, Refusal> {
    let x = cx.input(0)?;
    let axis = cx.axis(cx.int("axis", 0)?, cx.rank(x))?;
    let known = cx.dim(x, axis).and_then(|d| d.as_const());
    let keeps = cx.flag("keepdims", true)?;
    let drops = cx.opt(1).is_none() && !keeps;
    let (mut sizes, scalar) = match cx.opt(1) {
        None => (vec![1], true),
        Some(sizes) => (cx.need_ints(1, "split")?, cx.rank(sizes) == 0),
    };
    if sizes.iter().any(|size| *size < i64::from(scalar)) {
        return unsupported(format!("parts of {sizes:?}"));
    }
    if scalar {
        let Some(length) = known else {
            return unsupported(format!(
                "a split of dimension {axis} of {}, which is not known when the model is imported; give its size, or \
                 split by a list of sizes",
                cx.ty(x)
            ));
        };
        let size = sizes[0];
        if length / size >= LONGEST as i64 {
            return unsupported("a sequence of more than 65536 tensors");
        }
        let parts = (0..length).step_by(usize::try_from(size).unwrap_or(usize::MAX));
        sizes = parts.map(|start| size.min(length - start)).collect();
    }
    let total = sizes.iter().try_fold(0i64, |sum, size| sum.checked_add(*size));
    match (total, known) {
        (None, _) => return unsupported(format!("parts of {sizes:?}")),
        (Some(total), Some(length)) if total != length => {
            return unsupported(format!("parts of {sizes:?} of dimension {axis}, which has {length}"));
        }
        _ => {}
    }
    let mut start = 0;
    let mut parts = Vec::with_capacity(sizes.len());
    for size in sizes {
        let part = cx.slice(x, axis as i64, start, start + size)?;
        parts.push(if drops { cx.squeeze(part, &[axis as i64])? } else { part });
        start += size;
    }
    Ok(parts)
}
