//! `matmul`: of floats here, of integers in [`super::integer`].

use super::form::Form;
use super::gemm::{Bias, How, Size, Strided, gemm_into};
use super::operand::operand;
use super::{NodeCx, Types};
use kiln_backend::BackendError;
use kiln_ir::DType;
use kiln_ops::util::broadcast_strides;

/// Whether the kernel covers a node: floats, or integers of 8, 32 or 64 bits.
pub fn covers(t: &Types<'_>) -> bool {
    let types = [0, 1].map(|i| t.input(i).map(|t| t.dtype));
    let narrow = |d: Option<DType>| matches!(d, Some(DType::I8 | DType::U8));
    t.all_real()
        || types.into_iter().all(narrow)
        || types == [Some(DType::I32); 2]
        || types == [Some(DType::I64); 2]
}

/// The right matrix of a product that has one for all rows of its left ones.
pub fn form(t: &Types<'_>) -> Option<Form> {
    let attrs = t.node.op.attrs();
    let (ta, tb) = (attrs.bool("trans_a").unwrap_or(false), attrs.bool("trans_b").unwrap_or(false));
    let r = operand(&t.input(1)?.static_dims()?, tb, false)?;
    let single = r.batch.iter().product::<usize>() == 1 && !ta && t.input(0)?.dims.len() > 1;
    single.then_some(Form { k: r.rows, n: r.cols, row: r.row, col: r.col, groups: 1 })
}

pub fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let (ta, tb) = (attrs.bool("trans_a").unwrap_or(false), attrs.bool("trans_b").unwrap_or(false));
    let (sa, sb) = (cx.shape(0).to_vec(), cx.shape(1).to_vec());
    let (Some(l), Some(r)) = (operand(&sa, ta, true), operand(&sb, tb, false)) else { return Ok(false) };
    let single = r.batch.iter().product::<usize>() == 1 && !ta && sa.len() > 1;
    let (Some(a), Some(b)) = (cx.floats(0), cx.weights(usize::from(single))) else {
        return super::integer::run(cx);
    };
    let s = Size { m: l.rows, n: r.cols, k: l.cols };
    let vectors = usize::from(sa.len() == 1) + usize::from(sb.len() == 1);
    let Some(out) = cx.out_shape(0) else { return Ok(false) };
    let batch = out[..(out.len() + vectors).saturating_sub(2).min(out.len())].to_vec();
    let tail = cx.take_tail(DType::F32);
    let kept = How { tail, ..cx.how(0) };
    let how = How { kept: None, ..kept };
    let done = cx.write_floats(0, &out, |c| {
        if single {
            // One right matrix for all: the rows of the batch are rows of one product.
            let s = Size { m: a.len().checked_div(s.k).unwrap_or(c.len() / s.n.max(1)), ..s };
            let left = Strided { data: &a, row: l.row, col: l.col };
            let right = Strided { data: &b, row: r.row, col: r.col };
            return gemm_into(s, (&left, &right, Bias::None), c, (s.n, 0), kept);
        }
        let (ba, bb) = (broadcast_strides(&l.batch, &batch), broadcast_strides(&r.batch, &batch));
        let size = (s.m * s.n).max(1);
        let mut matrices = c.chunks_exact_mut(size).enumerate();
        let mut result = Ok(());
        kiln_ops::util::for_each_index(&batch, |at| {
            let offset = |strides: &[usize]| kiln_ops::util::offset(at, strides);
            let (oa, ob) = (offset(&ba) * s.m * s.k, offset(&bb) * s.k * s.n);
            let left = Strided { data: &a[oa..], row: l.row, col: l.col };
            let right = Strided { data: &b[ob..], row: r.row, col: r.col };
            if let (Some((i, c)), Ok(())) = (matrices.next(), &result) {
                let how = How { tail: how.tail.map(|t| t.from(i * size)), ..how };
                result = gemm_into(s, (&left, &right, Bias::None), c, (s.n, 0), how);
            }
        });
        result
    })?;
    Ok(done)
}
