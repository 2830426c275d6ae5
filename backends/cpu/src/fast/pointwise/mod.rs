//! Pointwise nodes, fused into one expression and evaluated over blocks of elements.

mod block;
mod byte_loops;
mod bytes;
mod code;
mod lanes;
mod loops;
pub(super) mod math;
mod plan;
mod stretches;
pub(crate) mod tail;
mod walk;

use crate::fast::copy::{self, Map};
use crate::fast::{RunCx, nibbles};
use crate::threads::{self, Parts};
use crate::value::{Out, Val};
use block::{Source, block};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::infer::broadcast_all;
use kiln_ir::{DType, Dim, Node};
use kiln_ops::util::broadcast_strides;
use lanes::{BLOCK, Lanes};
use walk::Walk;

pub(crate) use block::Made;
pub(crate) use plan::{Fused, covers, plan};

/// Blocks that one task computes at least.
const TASK: usize = 8;
/// Elements that follow each other from which on an operand is read where it is.
const FEW: usize = 32;

/// Runs a fused group.
pub(crate) fn run(
    made @ Made { expr, code, .. }: &Made,
    node: &Node,
    mut args: Vec<Option<Val>>,
    cx: &RunCx<'_>,
) -> Result<Val, BackendError> {
    let shape = out_shape(node, &args, cx)?;
    let dtype = expr.result_type();
    for slot in &mut args {
        *slot = slot.take().map(|v| nibbles::unpacked(v, cx.pool, &node.name)).transpose()?;
    }
    let mut out = None;
    let mut own = None;
    for (i, slot) in args.iter_mut().enumerate() {
        if out.is_none() && slot.as_ref().is_some_and(|v| v.shape() == shape) {
            match slot.take().map(|v| Out::reuse(v, dtype, &shape)) {
                Some(Ok(o)) => (out, own) = (Some(o), Some(i)),
                Some(Err(v)) => *slot = Some(v),
                None => {}
            }
        }
    }
    let mut out = match out {
        Some(o) => o,
        None => Out::new(cx.pool, dtype, &shape, &node.name)?,
    };
    let mut kept = Vec::with_capacity(args.len());
    for (i, v) in args.iter().enumerate() {
        kept.push(match v {
            Some(v) if own != Some(i) => spread(v, &shape, cx, &node.name)?,
            _ => None,
        });
    }
    let sources: Vec<Source<'_>> = args
        .iter()
        .zip(&kept)
        .enumerate()
        .map(|(i, (v, kept))| match (v, kept) {
            (_, Some((all, Some(period)))) => Source::Again(all, *period),
            (_, Some((all, None))) => Source::Given(all, Walk::new(&shape, &shape)),
            (Some(v), _) if own != Some(i) => Source::Given(v, Walk::new(v.shape(), &shape)),
            _ => Source::Output,
        })
        .collect();
    let size = dtype.bits() as usize / 8;
    let points = Checkpoints::here();
    let bytes = out.bytes_mut();
    let count = bytes.len() / size.max(1);
    if stretches::run(made, &sources, bytes) {
        return Ok(out.done());
    }
    let parts = Parts::new(bytes);
    threads::ranges(count.div_ceil(BLOCK), TASK, |blocks| {
        let mut lanes = Lanes::new(expr, code.as_ref());
        for (i, b) in blocks.enumerate() {
            if i % TASK == 0 {
                points.pass();
            }
            let start = b * BLOCK;
            // SAFETY: blocks of different numbers are disjoint, and each is of one range.
            let chunk = unsafe { parts.part(start * size, (start + BLOCK) * size) };
            block(expr, &sources, &mut lanes, (start, None), chunk);
        }
    });
    let halves = node.outputs.first().is_some_and(|&y| cx.graph.ty(y).dtype == DType::I4);
    if halves { nibbles::packed(&out.done(), cx.pool, &node.name) } else { Ok(out.done()) }
}

/// A copy of an operand whose elements would be read few at a time: once around where they come again, with the period, or as the result
/// has them.
fn spread(
    v: &Val,
    shape: &[usize],
    cx: &RunCx<'_>,
    what: &str,
) -> Result<Option<(Val, Option<usize>)>, BackendError> {
    let (walk, count) = (Walk::new(v.shape(), shape), shape.iter().product::<usize>());
    let period = walk.period().filter(|&p| p > 1 && p <= BLOCK && !walk.is_whole());
    if count < 4 * BLOCK || period.is_none() && walk.stretch() >= FEW {
        return Ok(None);
    }
    let size = v.dtype().bits() as usize / 8;
    let steps = broadcast_strides(v.shape(), shape);
    let all = || shape.iter().zip(&steps).map(|(&n, &s)| Map::all(n, s));
    let Some(period) = period else {
        let mut out = Out::new(cx.pool, v.dtype(), shape, what)?;
        copy::bytes(size, v.bytes(), out.bytes_mut(), 0, all().collect(), &[]);
        return Ok(Some((out.done(), None)));
    };
    let mut out = Out::new(cx.pool, v.dtype(), &[period + BLOCK], what)?;
    let again = shape.iter().zip(&steps).take_while(|(n, s)| **n == 1 || **s == 0).count();
    let to = out.bytes_mut();
    copy::bytes(size, v.bytes(), &mut to[..period * size], 0, all().skip(again).collect(), &[]);
    let mut done = period * size;
    while done < to.len() {
        let more = done.min(to.len() - done);
        to.copy_within(..more, done);
        done += more;
    }
    Ok(Some((out.done(), Some(period))))
}

fn out_shape(node: &Node, args: &[Option<Val>], cx: &RunCx<'_>) -> Result<Vec<usize>, BackendError> {
    if let Some(s) = node.outputs.first().and_then(|&v| cx.shapes.shape(v)) {
        return Ok(s);
    }
    let shapes: Vec<Vec<Dim>> =
        args.iter().flatten().map(|v| v.shape().iter().map(|&d| Dim::new(d as i64)).collect()).collect();
    let dims = broadcast_all(shapes.iter().map(Vec::as_slice));
    let fail = |message: String| BackendError::Execution { layer: node.name.clone(), message };
    let dims = dims.map_err(|e| fail(e.to_string()))?;
    Ok(dims.iter().filter_map(Dim::as_const).map(|d| d as usize).collect())
}
