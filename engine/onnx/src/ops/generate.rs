//! Sequences, windows, random numbers, and dropout.

use kiln_ir::{Attrs, DType, TensorId};

use super::Handler;
use super::constant::{all_true, output_datatype};
use crate::convert::{Cx, Outs, Refusal, unsupported};

/// The operators of this family.
pub(super) const OPS: &[(&str, Handler)] = &[
    ("Bernoulli", bernoulli),
    ("BlackmanWindow", |cx| window(cx, "blackman")),
    ("Dropout", dropout),
    ("HammingWindow", |cx| window(cx, "hamming")),
    ("HannWindow", |cx| window(cx, "hann")),
    ("RandomNormal", |cx| random(cx, "normal", ("mean", 0.0), ("scale", 1.0))),
    ("RandomNormalLike", |cx| random_like(cx, "normal", ("mean", 0.0), ("scale", 1.0))),
    ("RandomUniform", |cx| random(cx, "uniform", ("low", 0.0), ("high", 1.0))),
    ("RandomUniformLike", |cx| random_like(cx, "uniform", ("low", 0.0), ("high", 1.0))),
    ("Range", range),
];

fn range(cx: &mut Cx<'_>) -> Outs {
    let bounds = [cx.input(0)?, cx.input(1)?, cx.input(2)?];
    let mut scalars = Vec::new();
    for bound in bounds {
        scalars.push(Some(cx.as_scalar(bound)?));
    }
    Ok(vec![cx.layer("range", Attrs::new(), &scalars)?])
}

fn window(cx: &mut Cx<'_>, kind: &str) -> Outs {
    let attrs = Attrs::new()
        .with("kind", kind)
        .with("periodic", cx.flag("periodic", true)?)
        .with("to", output_datatype(cx)?);
    Ok(vec![cx.layer("window", attrs, &[cx.opt(0)])?])
}

/// At inference the input passes and the mask is true everywhere. The mask had the input's type before version 10.
fn dropout(cx: &mut Cx<'_>) -> Outs {
    let x = cx.input(0)?;
    let training = match cx.opt(2) {
        Some(mode) => cx.ints_of(mode).and_then(|v| v.first().copied()),
        None => Some(0),
    };
    let ratio = cx.scalar_input(1, "ratio").ok().flatten();
    if training != Some(0) && ratio != Some(0.0) {
        return unsupported("dropout in training mode");
    }
    let y = cx.identity(x)?;
    if !cx.wants(1) {
        return Ok(vec![y]);
    }
    let mut mask = all_true(cx, x)?;
    if cx.version() < 10 {
        mask = cx.cast(mask, cx.dtype(x))?;
    }
    Ok(vec![y, mask])
}

type Parameter = (&'static str, f32);

/// The seed given, by its bits so that fractions count; else one that follows from the node's name, so that nodes
/// differ and builds do not.
fn seed(cx: &Cx<'_>) -> Result<i64, Refusal> {
    if let Some(seed) = cx.node().attr::<f32>("seed")? {
        return Ok(i64::from(seed.to_bits()));
    }
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    Ok(i64::from(cx.node().label().bytes().fold(0x811c_9dc5, mix)))
}

fn sample(
    cx: &mut Cx<'_>,
    dist: &str,
    (a, b): (f64, f64),
    to: DType,
    shape: TensorId,
) -> Result<TensorId, Refusal> {
    let seed = seed(cx)?;
    let attrs = Attrs::new().with("dist", dist).with("a", a).with("b", b).with("seed", seed).with("to", to);
    cx.layer("random", attrs, &[Some(shape)])
}

fn random(cx: &mut Cx<'_>, dist: &str, a: Parameter, b: Parameter) -> Outs {
    let shape = cx.ints("shape")?.unwrap_or_default();
    let shape = cx.i64s(&shape)?;
    let to = cx.dtype_attr("dtype")?.unwrap_or(DType::F32);
    let range = (cx.float(a.0, a.1)?, cx.float(b.0, b.1)?);
    Ok(vec![sample(cx, dist, range, to, shape)?])
}

fn random_like(cx: &mut Cx<'_>, dist: &str, a: Parameter, b: Parameter) -> Outs {
    let x = cx.input(0)?;
    let shape = cx.shape(x)?;
    let to = cx.dtype_attr("dtype")?.unwrap_or(cx.dtype(x));
    let range = (cx.float(a.0, a.1)?, cx.float(b.0, b.1)?);
    Ok(vec![sample(cx, dist, range, to, shape)?])
}

/// True where a uniform number is below the input.
fn bernoulli(cx: &mut Cx<'_>) -> Outs {
    let x = cx.input(0)?;
    let to = cx.dtype_attr("dtype")?.unwrap_or(cx.dtype(x));
    let shape = cx.shape(x)?;
    let draw = sample(cx, "uniform", (0.0, 1.0), DType::F32, shape)?;
    let chance = cx.cast(x, DType::F32)?;
    let hit = cx.bin("less", draw, chance)?;
    Ok(vec![cx.cast(hit, to)?])
}
