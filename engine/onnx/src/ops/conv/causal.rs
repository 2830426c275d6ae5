//! Causal convolution with a state.

use kiln_ir::infer::differ;
use kiln_ir::{Attrs, DType, Dim};
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal, unsupported};
use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[Operator::new("CausalConvWithState", &[27], causal_conv)];

/// A convolution of each channel by itself over what the state kept and the input; the new state is the end of both.
fn causal_conv(cx: &mut Cx<'_>) -> Outs {
    let (x, w) = (cx.input(0)?, cx.input(1)?);
    let activation = cx.text("activation", "none")?;
    if !["none", "silu", "swish"].contains(&activation) {
        let reason = format!("is '{activation}': wanted none, silu or swish");
        return Err(cx.bad_attr("activation", &reason));
    }
    if cx.rank(x) != 3 || cx.rank(w) != 3 || !cx.dtype(x).is_float() {
        return unsupported(format!(
            "an input {} with a weight {}: wants floats [batch, channels, length] and [channels, 1, k]",
            cx.ty(x),
            cx.ty(w)
        ));
    }
    let known = |axis| cx.dim(w, axis).and_then(|d| d.as_const());
    if known(2).is_some_and(|k| k < 1) {
        return unsupported(format!("a weight {}: wants a kernel length of 1 or more", cx.ty(w)));
    }
    let (Some(channels), Some(k)) = (known(0), known(2)) else {
        return causal_conv_of_shapes(cx, x, w, activation != "none");
    };
    let past = match cx.opt(3) {
        Some(past) => Some(in_state_shape(cx, past, x, k)?),
        None => None,
    };
    let whole = match past {
        Some(past) if k > 1 => cx.concat(&[past, x], 2)?,
        _ => x,
    };
    let missing = if past.is_some() { 0 } else { k - 1 };
    let attrs = Attrs::new().with("groups", channels).with("pads", vec![missing, 0]);
    let mut y = cx.layer("conv", attrs, &[Some(whole), Some(w), cx.opt(2)])?;
    if activation != "none" {
        y = cx.un("swish", y)?;
    }
    if !cx.wants(1) {
        return Ok(vec![y]);
    }
    let state = present(cx, whole, k, missing)?;
    Ok(vec![y, in_state_shape(cx, state, x, k)?])
}

/// Causal convolution whose number of channels or kernel length is known at the run only: products of the
/// windows of each channel with its weights.
fn causal_conv_of_shapes(cx: &mut Cx<'_>, x: TensorId, w: TensorId, activate: bool) -> Outs {
    let (own, zero, one) = (cx.dtype(x), cx.i64s(&[0])?, cx.i64s(&[1])?);
    let (batch, channels) = (cx.dims(x, 0..1)?, cx.dims(x, 1..2)?);
    let (length, k) = (cx.dims(x, 2..3)?, cx.dims(w, 2..3)?);
    let kept = cx.bin("sub", k, one)?;
    let whole = match cx.opt(3) {
        Some(past) if cx.rank(past) == 3 => {
            let shape = cx.join(&[batch, channels, kept])?;
            let past = cx.reshape_to(past, shape)?;
            cx.concat(&[past, x], 2)?
        }
        Some(past) => return unsupported(format!("a state {}: wants three dimensions", cx.ty(past))),
        None => {
            let (pads, axes) = (cx.join(&[kept, zero])?, cx.i64s(&[2])?);
            cx.layer("pad", Attrs::new(), &[Some(x), Some(pads), None, Some(axes)])?
        }
    };
    // Element t of the result reads elements t up to t + k − 1 of the whole.
    let (starts, steps) = (count_to(cx, length)?, count_to(cx, k)?);
    let starts = cx.unsqueeze(starts, &[1])?;
    let at = cx.bin("add", starts, steps)?;
    let windows = cx.layer("gather", Attrs::new().with("axis", 2i64), &[Some(whole), Some(at)])?;
    // Another number of channels, or more than one weight for each, does not fit this shape.
    let shape = cx.join(&[channels, k, one])?;
    let weights = cx.reshape_to(w, shape)?;
    let (windows, weights) = (cx.cast(windows, DType::F32)?, cx.cast(weights, DType::F32)?);
    let y = cx.bin("matmul", windows, weights)?;
    let mut y = cx.squeeze(y, &[3])?;
    if let Some(bias) = cx.opt(2) {
        let shape = cx.join(&[channels, one])?;
        let bias = cx.reshape_to(bias, shape)?;
        let bias = cx.cast(bias, DType::F32)?;
        y = cx.bin("add", y, bias)?;
    }
    let mut y = cx.cast(y, own)?;
    if activate {
        y = cx.un("swish", y)?;
    }
    if !cx.wants(1) {
        return Ok(vec![y]);
    }
    // The whole has as many elements before this one as the input has.
    let end = cx.i64s(&[i64::MAX])?;
    Ok(vec![y, cx.slice_to(whole, 2, length, end)?])
}

/// The numbers 0, 1, … up to but without `n`, a 1-D tensor of one element.
fn count_to(cx: &mut Cx<'_>, n: TensorId) -> Result<TensorId, Refusal> {
    let (zero, one, n) = (cx.i64(0)?, cx.i64(1)?, cx.as_scalar(n)?);
    cx.layer("range", Attrs::new(), &[Some(zero), Some(n), Some(one)])
}

/// The state [batch, channels, k − 1]. Where its shape is not known before a run, another one is an error of the run.
fn in_state_shape(cx: &mut Cx<'_>, past: TensorId, x: TensorId, k: i64) -> Result<TensorId, Refusal> {
    let wanted = [cx.dim(x, 0), cx.dim(x, 1), Some((k - 1).into())];
    let found: Vec<_> = (0..cx.rank(past)).map(|axis| cx.dim(past, axis)).collect();
    if found == wanted {
        return Ok(past);
    }
    let clash = |a: Option<&Dim>, b: Option<&Dim>| a.zip(b).is_some_and(|(a, b)| differ(a, b));
    if found.len() != 3 || found.iter().zip(&wanted).any(|(a, b)| clash(a.as_ref(), b.as_ref())) {
        let (past, x) = (cx.ty(past), cx.ty(x));
        return unsupported(format!(
            "a state {past} of an input {x} and a kernel of length {k}: wants [batch, channels, {}]",
            k - 1
        ));
    }
    let (lead, last) = (cx.dims(x, 0..2)?, cx.i64s(&[k - 1])?);
    let shape = cx.join(&[lead, last])?;
    cx.reshape_to(past, shape)
}

/// The last k − 1 elements of `x` with `missing` zeros in front.
fn present(cx: &mut Cx<'_>, x: TensorId, k: i64, missing: i64) -> Result<TensorId, Refusal> {
    if k == 1 {
        return cx.slice(x, 2, 0, 0);
    }
    // Where the length is known, only the part that is kept is padded.
    let length = cx.dim(x, 2).and_then(|d| d.as_const());
    let (x, zeros) = match length.filter(|_| missing > 0) {
        Some(length) => (cx.slice(x, 2, 1 - k, i64::MAX)?, (k - 1 - length).max(0)),
        None => (x, missing),
    };
    if zeros == 0 {
        return cx.slice(x, 2, 1 - k, i64::MAX);
    }
    let (pads, axes) = (cx.i64s(&[zeros, 0])?, cx.i64s(&[2])?);
    let padded = cx.layer("pad", Attrs::new(), &[Some(x), Some(pads), None, Some(axes)])?;
    if length.is_some() { Ok(padded) } else { cx.slice(padded, 2, 1 - k, i64::MAX) }
}
