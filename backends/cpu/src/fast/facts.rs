//! Facts about tensors, and bits under other types: `shape`, `size`, `assertion`, `bitcast`.

use super::made::fill;
use super::{Kernel, NodeCx, TABLES, kernel};
use kiln_backend::BackendError;
use kiln_ir::expr::Num;
use kiln_ir::{IrError, OpError};
use kiln_ops::cast::bitcast::BITCAST;
use kiln_ops::generate::{ASSERTION, SIZE};
use kiln_ops::shape::{SHAPE, window};

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[
    kernel(SHAPE, shape, |_| true),
    kernel(SIZE, size, |_| true),
    kernel(ASSERTION, assertion, |_| true),
    kernel(BITCAST, bitcast, |_| true),
];

fn shape(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let dims = cx.shape(0).to_vec();
    let Ok((from, to)) = window(cx.node.op.attrs(), dims.len()) else { return Ok(false) };
    fill(cx, &[to - from], |i| Num::I(dims[from + i] as i64))
}

fn size(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let n = cx.shape(0).iter().product::<usize>();
    fill(cx, &[], |_| Num::I(n as i64))
}

fn assertion(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let Some(Some(cond)) = cx.args.first() else { return Ok(false) };
    if cond.bytes().contains(&0) {
        let message = cx.node.op.attrs().str("message").unwrap_or_default();
        let failed = OpError::Value(format!("assertion failed: {message}"));
        return Err(IrError::layer(&cx.node.name, cx.node.op.name(), failed).into());
    }
    Ok(true)
}

fn bitcast(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (Some(x), Ok(to)) = (cx.args[0].clone(), cx.node.op.attrs().dtype("to")) else { return Ok(false) };
    let Some(y) = x.reinterpreted(to) else { return Ok(false) };
    cx.push(y);
    Ok(true)
}
