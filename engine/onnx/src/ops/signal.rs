//! Spectra.

use kiln_ir::Attrs;

use crate::convert::{Cx, Outs};
use crate::ops::Operator;
use crate::ops::generate::constant::output_datatype;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("DFT", &[17, 20], dft),
    Operator::new("MelWeightMatrix", &[17], mel),
    Operator::new("STFT", &[17], stft),
];

/// The axis is an attribute before version 20, then an input.
fn dft(cx: &mut Cx<'_>) -> Outs {
    let axis = if cx.version() < 20 {
        let axis = cx.int("axis", 1)?;
        Some(cx.i64(axis)?)
    } else {
        cx.opt(2)
    };
    let attrs = Attrs::new()
        .with("inverse", cx.flag("inverse", false)?)
        .with("onesided", cx.flag("onesided", false)?);
    Ok(vec![cx.layer("dft", attrs, &[cx.opt(0), cx.opt(1), axis])?])
}

fn stft(cx: &mut Cx<'_>) -> Outs {
    let attrs = Attrs::new().with("onesided", cx.flag("onesided", true)?);
    Ok(vec![cx.layer("stft", attrs, &[cx.opt(0), cx.opt(1), cx.opt(2), cx.opt(3)])?])
}

fn mel(cx: &mut Cx<'_>) -> Outs {
    let attrs = Attrs::new().with("to", output_datatype(cx)?);
    let inputs = cx.all();
    Ok(vec![cx.layer("mel_weight_matrix", attrs, &inputs)?])
}
