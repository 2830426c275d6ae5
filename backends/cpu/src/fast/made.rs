//! Tensors that are made from sizes and numbers: `range`, `eye_like`, `window`, `mel_weight_matrix`.

use super::{Kernel, NodeCx, TABLES, kernel};
use crate::threads;
use crate::value::Out;
use kiln_backend::BackendError;
use kiln_ir::expr::Num;
use kiln_ir::float::{bf16_bits, f8e4m3_bits, f16_bits};
use kiln_ir::{DType, Elems};
use kiln_ops::generate::mel::{MEL_WEIGHT_MATRIX, edges};
use kiln_ops::generate::window::WINDOW;
use kiln_ops::generate::{EYE_LIKE, RANGE};
use std::f64::consts::PI;

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[
    kernel(RANGE, range, |_| true),
    kernel(EYE_LIKE, eye_like, |_| true),
    kernel(WINDOW, window, |_| true),
    kernel(MEL_WEIGHT_MATRIX, mel, |_| true),
];

/// Elements that one task makes at least.
const TASK: usize = 1 << 12;

/// Makes the next output: element `i` is `f(i)`, rounded once to the output's type; integers wrap.
pub fn fill(
    cx: &mut NodeCx<'_>,
    shape: &[usize],
    f: impl Fn(usize) -> Num + Sync,
) -> Result<bool, BackendError> {
    let Some(dtype) = cx.out_dtype(cx.outs.len()) else { return Ok(false) };
    let mut out = Out::new(cx.pool, dtype, shape, &cx.node.name)?;
    let float = |i: usize| match f(i) {
        Num::F(x) => x,
        Num::I(x) => x as f64,
    };
    let int = |i: usize| match f(i) {
        Num::F(x) => x as i64,
        Num::I(x) => x,
    };
    match dtype {
        DType::F32 => each(out.elems_mut(), |i| float(i) as f32),
        DType::F16 => each(out.elems_mut(), |i| f16_bits(float(i))),
        DType::BF16 => each(out.elems_mut(), |i| bf16_bits(float(i))),
        DType::F8E4M3 => each(out.elems_mut(), |i| f8e4m3_bits(float(i))),
        DType::Bool => each(out.elems_mut(), |i| u8::from(float(i) != 0.0)),
        DType::I8 | DType::U8 => each(out.elems_mut(), |i| int(i) as u8),
        DType::I32 => each(out.elems_mut(), |i| int(i) as i32),
        DType::I64 => each(out.elems_mut(), int),
        DType::I4 => {
            let n = shape.iter().product();
            let half = |i: usize| if i < n { int(i) as u8 & 15 } else { 0 };
            each(out.bytes_mut(), |i| half(2 * i) | half(2 * i + 1) << 4);
        }
        _ => return Ok(false),
    }
    cx.push(out.done());
    Ok(true)
}

fn each<T: Send>(y: &mut [T], f: impl Fn(usize) -> T + Sync) {
    threads::chunks(y, TASK, 1, |c, y| {
        y.iter_mut().enumerate().for_each(|(i, y)| *y = f(c * TASK + i));
    });
}

fn elems(cx: &NodeCx<'_>, i: usize) -> Option<Elems> {
    Some(cx.args.get(i)?.as_ref()?.tensor().ok()?.elems())
}

fn number(cx: &NodeCx<'_>, i: usize) -> Option<f64> {
    cx.args.get(i)?.as_ref()?.tensor().ok()?.scalar_f64()
}

fn range(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let Some(shape) = cx.out_shape(0) else { return Ok(false) };
    match (elems(cx, 0), elems(cx, 2)) {
        (Some(Elems::F(s)), Some(Elems::F(d))) if s.len() == 1 && d.len() == 1 => {
            fill(cx, &shape, |i| Num::F(s[0] + i as f64 * d[0]))
        }
        (Some(Elems::I(s)), Some(Elems::I(d))) if s.len() == 1 && d.len() == 1 => {
            fill(cx, &shape, |i| Num::I(s[0].wrapping_add((i as i64).wrapping_mul(d[0]))))
        }
        _ => Ok(false),
    }
}

fn eye_like(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (Some(shape), Ok(k)) = (cx.out_shape(0), cx.node.op.attrs().int("k")) else { return Ok(false) };
    let (&[rows, columns], Some(dtype)) = (&shape[..], cx.out_dtype(0)) else { return Ok(false) };
    if dtype.bits() < 8 {
        return fill(cx, &shape, |i| Num::I(i64::from((i % columns) as i64 - (i / columns) as i64 == k)));
    }
    let Some(one) = kiln_ir::Tensor::from_elems(dtype, &[1], &Elems::I(vec![1])) else { return Ok(false) };
    let mut out = Out::new(cx.pool, dtype, &shape, &cx.node.name)?;
    let (size, to) = (one.bytes().len(), out.bytes_mut());
    threads::chunks(to, size * TASK, 1, |_, to| to.fill(0));
    for row in 0..rows {
        let place =
            (row as i64).checked_add(k).and_then(|c| usize::try_from(c).ok()).filter(|c| *c < columns);
        if let Some(to) = place.and_then(|c| to.get_mut((row * columns + c) * size..)) {
            to[..size].copy_from_slice(one.bytes());
        }
    }
    cx.push(out.done());
    Ok(true)
}

fn window(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let (Some(shape), Ok(periodic), Ok(kind)) = (cx.out_shape(0), attrs.bool("periodic"), attrs.str("kind"))
    else {
        return Ok(false);
    };
    let n: usize = shape.iter().product();
    let span = if periodic { n } else { n.saturating_sub(1) };
    fill(cx, &shape, |i| {
        let turn = 2.0 * PI * i as f64 / span as f64;
        Num::F(match kind {
            _ if span == 0 => 1.0,
            "hann" => libm::sin(turn / 2.0).powi(2),
            "hamming" => 25.0 / 46.0 - 21.0 / 46.0 * libm::cos(turn),
            _ => 0.42 - 0.5 * libm::cos(turn) + 0.08 * libm::cos(2.0 * turn),
        })
    })
}

fn mel(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (Some(shape), [Some(length), Some(rate), Some(low), Some(high)]) =
        (cx.out_shape(0), [1, 2, 3, 4].map(|i| number(cx, i)))
    else {
        return Ok(false);
    };
    let [_, bins] = shape[..] else { return Ok(false) };
    let edges = edges(bins, length, rate, low, high);
    fill(cx, &shape, |i| {
        let (row, e) = ((i / bins) as i64, &edges[i % bins..i % bins + 3]);
        let (rise, fall) = (e[1].saturating_sub(e[0]), e[2].saturating_sub(e[1]));
        Num::F(match row {
            // The falling side wins where both apply, as at the peak.
            _ if (e[1]..e[2]).contains(&row) => e[2].saturating_sub(row) as f64 / fall as f64,
            _ if rise == 0 => f64::from(u8::from(row == e[1])),
            _ if (e[0]..=e[1]).contains(&row) => row.saturating_sub(e[0]) as f64 / rise as f64,
            _ => 0.0,
        })
    })
}
