//! Elements of four bits: widened to bytes, computed by the kernels of bytes, and packed again.

use super::{KERNELS, Kernel, NodeCx, TABLES, Types, kernel};
use crate::buffer::Pool;
use crate::threads;
use crate::value::{Out, Val};
use kiln_backend::BackendError;
use kiln_ir::DType;
use kiln_ir::expr::{Expr, Inst, Scalar};
use kiln_ops::gather::GATHER;
use kiln_ops::gather::each::{GATHER_ELEMENTS, GATHER_ND};
use kiln_ops::generate::ONE_HOT;
use kiln_ops::scatter::{SCATTER_ELEMENTS, SCATTER_ND};
use kiln_ops::select::{COMPRESS, NONZERO, UNIQUE};
use kiln_ops::shape::expand::{EXPAND, TILE};
use kiln_ops::slice::SLICE;
use kiln_ops::slice::concat::CONCAT;
use kiln_ops::slice::insert::INSERT_SLICE;
use kiln_ops::slice::pad::PAD;
use kiln_ops::sort::TOPK;
use kiln_ops::transpose::TRANSPOSE;
use kiln_ops::transpose::rearrange::{
    CENTER_CROP_PAD, DEPTH_TO_SPACE, REVERSE_SEQUENCE, SPACE_TO_DEPTH, TRILU,
};
use std::sync::Arc;

/// Operators that move or order elements, of which bytes are as good as halves of bytes.
#[linkme::distributed_slice(TABLES)]
static MOVES: &[Kernel] = &[
    kernel(CENTER_CROP_PAD, run, covers),
    kernel(COMPRESS, run, covers),
    kernel(CONCAT, run, covers),
    kernel(DEPTH_TO_SPACE, run, covers),
    kernel(EXPAND, run, covers),
    kernel(GATHER, run, covers),
    kernel(GATHER_ELEMENTS, run, covers),
    kernel(GATHER_ND, run, covers),
    kernel(INSERT_SLICE, run, covers),
    kernel(NONZERO, run, covers),
    kernel(ONE_HOT, run, covers),
    kernel(PAD, run, covers),
    kernel(REVERSE_SEQUENCE, run, covers),
    kernel(SCATTER_ELEMENTS, run, covers),
    kernel(SCATTER_ND, run, covers),
    kernel(SLICE, run, covers),
    kernel(SPACE_TO_DEPTH, run, covers),
    kernel(TILE, run, covers),
    kernel(TOPK, run, covers),
    kernel(TRANSPOSE, run, covers),
    kernel(TRILU, run, covers),
    kernel(UNIQUE, run, covers),
];

/// Bytes that one task packs at least.
const TASK: usize = 1 << 14;

fn covers(t: &Types<'_>) -> bool {
    (0..t.node.inputs.len()).any(|i| t.input(i).is_some_and(|t| t.dtype == DType::I4))
}

/// The type that elements of a type are computed in.
pub fn held(t: DType) -> DType {
    if t == DType::I4 { DType::I8 } else { t }
}

fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let pool = cx.pool.clone();
    for arg in cx.args.iter_mut() {
        *arg = arg.take().map(|v| unpacked(v, &pool, &cx.node.name)).transpose()?;
    }
    cx.bytes = true;
    let others = TABLES.iter().filter(|table| !std::ptr::eq(table.as_ptr(), MOVES.as_ptr()));
    let all = KERNELS.iter().chain(others.flat_map(|table| table.iter()));
    let mut done = false;
    for k in all.filter(|k| cx.node.op.is(k.op)) {
        done = (k.run)(cx)?;
        if done {
            break;
        }
        cx.outs.clear();
    }
    cx.bytes = false;
    if done {
        let outs = std::mem::take(&mut cx.outs);
        for (i, v) in outs.into_iter().enumerate() {
            let packs = cx.out_dtype(i) == Some(DType::I4);
            cx.outs.push(if packs { packed(&v, &pool, &cx.node.name)? } else { v });
        }
    }
    Ok(done)
}

/// A tensor whose elements of four bits are bytes; any other tensor as it is.
pub fn unpacked(v: Val, pool: &Arc<Pool>, what: &str) -> Result<Val, BackendError> {
    if v.dtype() != DType::I4 {
        return Ok(v);
    }
    let mut out = Out::new(pool, DType::I8, v.shape(), what)?;
    let from = v.bytes();
    threads::chunks(out.elems_mut::<i8>(), 2 * TASK, 1, |c, y| {
        for (pair, &b) in y.chunks_mut(2).zip(&from[c * TASK..]) {
            pair.iter_mut().zip([b << 4, b]).for_each(|(y, b)| *y = b as i8 >> 4);
        }
    });
    Ok(out.done())
}

/// Bytes as elements of four bits, their upper halves cut off.
pub fn packed(v: &Val, pool: &Arc<Pool>, what: &str) -> Result<Val, BackendError> {
    let mut out = Out::new(pool, DType::I4, v.shape(), what)?;
    let from = v.bytes();
    threads::chunks(out.bytes_mut(), TASK, 1, |c, y| {
        for (y, pair) in y.iter_mut().zip(from[2 * c * TASK..].chunks(2)) {
            *y = pair[0] & 15 | pair.get(1).map_or(0, |b| b << 4);
        }
    });
    Ok(out.done())
}

/// An expression whose inputs and result are bytes where they were elements of four bits.
pub fn widened(mut e: Expr) -> Expr {
    e.inputs.iter_mut().for_each(|t| *t = held(*t));
    for inst in e.insts.iter_mut().filter(|i| matches!(i.op, Scalar::Input(_))) {
        inst.ty = held(inst.ty);
    }
    if e.result_type() == DType::I4
        && let Ok(last) = u16::try_from(e.insts.len())
    {
        e.insts.push(Inst { op: Scalar::Cast(e.result), ty: DType::I8 });
        e.result = last;
    }
    e
}
