//! Sequences, windows, random numbers, and dropout.

pub(crate) mod constant;

use kiln_ir::{Attrs, DType};
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal, unsupported};
use crate::ops::Operator;
use crate::ops::generate::constant::{all_true, output_datatype};
use crate::ops::reduce::over;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("Bernoulli", &[15, 22], bernoulli),
    Operator::new("BlackmanWindow", &[17], |cx| window(cx, "blackman")),
    Operator::new("Dropout", &[1, 6, 7, 10, 12, 13, 22], dropout),
    Operator::new("HammingWindow", &[17], |cx| window(cx, "hamming")),
    Operator::new("HannWindow", &[17], |cx| window(cx, "hann")),
    Operator::new("Multinomial", &[7, 22], multinomial),
    Operator::new("RandomNormal", &[1, 22], |cx| random(cx, "normal", ("mean", 0.0), ("scale", 1.0))),
    Operator::new("RandomNormalLike", &[1, 22], |cx| {
        random_like(cx, "normal", ("mean", 0.0), ("scale", 1.0))
    }),
    Operator::new("RandomUniform", &[1, 22], |cx| random(cx, "uniform", ("low", 0.0), ("high", 1.0))),
    Operator::new("RandomUniformLike", &[1, 22], |cx| {
        random_like(cx, "uniform", ("low", 0.0), ("high", 1.0))
    }),
    Operator::new("Range", &[11, 27], range),
];

fn range(cx: &mut Cx<'_>) -> Outs {
    let bounds = [cx.input(0)?, cx.input(1)?, cx.input(2)?];
    let stash = cx.int("stash_type", 1)?;
    if stash != 1 {
        return unsupported(format!(
            "intermediate results of element type number {stash} (stash_type), wanted 1 (FLOAT)"
        ));
    }
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
    // Nothing is dropped: ratio and seed do not matter. Training mode was the default before version 7.
    if cx.version() < 7 && !cx.flag("is_test", false)? {
        return unsupported("dropout in training mode (is_test = 0)");
    }
    cx.skip("ratio");
    cx.skip("seed");
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

/// A seed that is never 0, which would give other numbers in every run: the one given, by its bits so that fractions count; else
/// one that follows from the node's name, so that nodes differ and builds do not.
fn seed(cx: &Cx<'_>) -> Result<i64, Refusal> {
    if let Some(seed) = cx.attr::<f32>("seed")? {
        return Ok(i64::from(seed.to_bits()) | GIVEN);
    }
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    Ok(i64::from(cx.node().label().bytes().fold(0x811c_9dc5, mix)) | NAMED)
}

/// Bit of seeds that the node sets.
const GIVEN: i64 = 1 << 32;
/// Marks seeds that follow from names.
const NAMED: i64 = 1 << 33;

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

/// Classes of a batch of unnormalized log-probabilities, by the inverse of their cumulated distribution: the
/// number of classes whose cumulated probability does not exceed a uniform number. That number is scaled by
/// the last cumulated one, so that it is always less. No class beyond the last, and none without probability,
/// is drawn.
fn multinomial(cx: &mut Cx<'_>) -> Outs {
    let x = cx.input(0)?;
    let count = cx.int("sample_size", 1)?;
    if count < 1 {
        return unsupported(format!("sample_size {count}; wants 1 or more"));
    }
    let to = cx.dtype_attr("dtype")?.unwrap_or(DType::I32);
    let logs = cx.cast(x, DType::F32)?;
    let greatest = over(cx, "max", logs, &[1])?;
    let away = cx.bin("sub", logs, greatest)?;
    let chances = cx.un("exp", away)?;
    let axis = cx.i64(1)?;
    let upto = cx.layer("cumulative", Attrs::new().with("op", "sum"), &[Some(chances), Some(axis)])?;
    let all = over(cx, "max", upto, &[1])?;
    let (batch, count) = (cx.length(x, 0)?, cx.i64s(&[count])?);
    let batch = cx.reshape(batch, &[1])?;
    let shape = cx.layer("concat", Attrs::new().with("axis", 0i64), &[Some(batch), Some(count)])?;
    let share = sample(cx, "uniform", (0.0, 1.0), DType::F32, shape)?;
    let number = cx.bin("mul", share, all)?;
    let (number, upto) = (cx.unsqueeze(number, &[2])?, cx.unsqueeze(upto, &[1])?);
    let passed = cx.bin("less_equal", upto, number)?;
    let (passed, axes) = (cx.cast(passed, DType::I32)?, cx.i64s(&[2])?);
    let attrs = Attrs::new().with("op", "sum").with("keep_dims", false);
    let class = cx.layer("reduce", attrs, &[Some(passed), Some(axes)])?;
    Ok(vec![cx.cast(class, to)?])
}
