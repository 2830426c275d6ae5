//! Transposes, rearrangements of blocks, triangles, reversed sequences, and centered crops.

use crate::scalar::zero;
use crate::shape::{launch, strided};
use crate::site::{Cx, Site, op_error};
use crate::slice::{Mode, frame, framed};
use crate::{Body, Kernel, Launch};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::infer::normalize_axis;
use kiln_ops::util::strides;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    strided("transpose", &["transpose"], transpose),
    strided("depth_to_space", &["depth_to_space"], depth_to_space),
    strided("space_to_depth", &["space_to_depth"], space_to_depth),
    Kernel::of("center_crop_pad", &["center_crop_pad"], |s, _| Ok(framed(s, Mode::Constant)), center),
    Kernel::of("trilu", &["trilu"], trilu_source, trilu),
    Kernel::of("reverse_sequence", &["reverse_sequence"], reverse_source, reverse_sequence),
];

crate::params! {
    /// Triangles of matrices.
    struct TriluParams {
        /// Rows of a matrix.
        rows: u32,
        /// Its columns.
        columns: u32,
        /// Distance of the diagonal to the right of the main one.
        diagonal: i32,
    }
}

crate::params! {
    /// Reversed sequences.
    struct ReverseSequenceParams {
        /// Elements from one sequence to the next.
        batch_stride: u32,
        /// Number of sequences.
        batches: u32,
        /// Elements from one time to the next.
        time_stride: u32,
        /// Number of times.
        times: u32,
    }
}

fn transpose(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let own = strides(&x);
    let perm = cx.op()?.attrs().ints("perm").map_err(op_error)?;
    let order: Vec<usize> = if perm.is_empty() {
        (0..x.len()).rev().collect()
    } else {
        perm.iter()
            .map(|&p| normalize_axis(p, x.len(), "perm"))
            .collect::<Result<_, _>>()
            .map_err(op_error)?
    };
    let by: Vec<i64> = order.iter().map(|&p| own[p] as i64).collect();
    launch(cx, 0, &cx.out_shape(0)?, &by)
}

fn block(cx: &Cx<'_>) -> Result<usize, BackendError> {
    Ok(cx.op()?.attrs().int("block").map_err(op_error)? as usize)
}

fn depth_to_space(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let b = block(cx)?;
    let out = cx.out_shape(0)?;
    let &[n, c, h, w] = &out[..] else { return Ok(Vec::new()) };
    let (h, w) = (h / b, w / b);
    let plane = (h * w) as i64;
    let crd = cx.op()?.attrs().str("mode").map_err(op_error)? == "CRD";
    let (of_c, of_block) = if crd { ((b * b) as i64 * plane, plane) } else { (plane, c as i64 * plane) };
    let dims = [n, c, h, b, w, b];
    let by = [(c * b * b) as i64 * plane, of_c, w as i64, b as i64 * of_block, 1, of_block];
    launch(cx, 0, &dims, &by)
}

fn space_to_depth(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let b = block(cx)?;
    let x = cx.shape(0)?;
    let &[n, c, h, w] = &x[..] else { return Ok(Vec::new()) };
    let (row, plane) = (w as i64, (h * w) as i64);
    let step = b as i64;
    let batch = c as i64 * plane;
    match cx.op()?.attrs().str("mode").map_err(op_error)? {
        "CRD" => launch(cx, 0, &[n, c, b, b, h / b, w / b], &[batch, plane, row, 1, row * step, step]),
        _ => launch(cx, 0, &[n, b, b, c, h / b, w / b], &[batch, row, 1, plane, row * step, step]),
    }
}

fn center(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, out) = (cx.shape(0)?, cx.out_shape(0)?);
    let shift =
        |(&a, &b): (&usize, &usize)| if a >= b { -(((a - b) / 2) as i64) } else { ((b - a) / 2) as i64 };
    frame(cx, x.iter().zip(&out).map(shift).collect())
}

fn trilu_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let upper = site.op()?.attrs().bool("upper").map_err(op_error)?;
    let t = site.out_dtype(0);
    let code = site.alias("Value", t)
        + &site.constant("GAP", "Value", zero(t))
        + &site.constant("UPPER", "bool", upper);
    Ok(Body::element("transpose/trilu", "trilu").with(code))
}

fn trilu(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let [.., rows, columns] = x[..] else { return Ok(Vec::new()) };
    let k = cx.ints(1)?.and_then(|v| v.first().copied()).unwrap_or(0);
    let params = TriluParams { rows, columns, diagonal: k.clamp(-(1 << 30), 1 << 30) };
    Ok(vec![Launch::map(0, params.words()?)])
}

fn reverse_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let body = Body::element("transpose/reverse_sequence", "reverse_sequence");
    Ok(body.with(site.alias("Value", site.out_dtype(0))))
}

fn reverse_sequence(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let of = |name: &str| -> Result<usize, BackendError> {
        normalize_axis(cx.op()?.attrs().int(name).map_err(op_error)?, x.len(), name).map_err(op_error)
    };
    let (b, t) = (of("batch_axis")?, of("time_axis")?);
    let own = strides(&x);
    let params =
        ReverseSequenceParams { batch_stride: own[b], batches: x[b], time_stride: own[t], times: x[t] };
    Ok(vec![Launch::map(0, params.words()?)])
}
