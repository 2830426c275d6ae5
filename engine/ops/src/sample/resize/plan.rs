//! Output sizes and scales of `resize`.

use super::coord::ResizeAxis;
use crate::util::host_dims;
use kiln_ir::attr::Attrs;
use kiln_ir::dim::{Dim, DimKind};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::infer::{InferCx, differ, normalize_axis};
use kiln_ir::ty::TensorType;

/// The resized axes in the order of the attribute; all if it is empty.
pub fn resized(attrs: &Attrs, rank: usize) -> Result<Vec<usize>, OpError> {
    let given = attrs.ints("axes")?;
    if given.is_empty() {
        return Ok((0..rank).collect());
    }
    let axes = given.iter().map(|&a| normalize_axis(a, rank, "axes")).collect::<Result<Vec<_>, _>>()?;
    let mut sorted = axes.clone();
    sorted.sort_unstable();
    if sorted.windows(2).any(|w| w[0] == w[1]) {
        return Err(OpError::Attr {
            name: "axes".into(),
            found: format!("{given:?}"),
            wanted: "without repetition".into(),
        });
    }
    Ok(axes)
}

/// Whether sizes keep the aspect ratio: the choice among the ratios of all axes, if any.
fn policy(attrs: &Attrs) -> Result<Option<fn(f64, f64) -> f64>, OpError> {
    Ok(match attrs.str("policy")? {
        "not_larger" => Some(f64::min),
        "not_smaller" => Some(f64::max),
        _ => None,
    })
}

pub(super) fn infer(cx: &InferCx<'_>) -> Result<TensorType, OpError> {
    let x = cx.ty(0)?;
    let axes = resized(cx.attrs, x.rank())?;
    if cx.has(2) == cx.has(3) {
        return Err(OpError::Value("wants either scales or sizes".into()));
    }
    check_list(cx, 1, |d| d == DType::F32, "f32", 2 * axes.len())?;
    check_list(cx, 2, |d| d == DType::F32, "f32", axes.len())?;
    check_list(cx, 3, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64", axes.len())?;
    let crop = cx.attrs.str("coord")? == "tf_crop_and_resize";
    if crop && !cx.has(1) {
        return Err(OpError::MissingInput { input: 1, name: "roi".into() });
    }
    let sizes = if cx.has(3) { by_sizes(cx, x, &axes)? } else { by_scales(cx, x, &axes)? };
    let mut dims = x.dims.clone();
    for (&axis, size) in axes.iter().zip(sizes) {
        if dims[axis].is(0) && size.as_const().is_some_and(|n| n > 0) {
            return Err(
                cx.bad_shape(0, &format!("at least one element along axis {axis}, to resize to {size}"))
            );
        }
        dims[axis] = size;
    }
    Ok(TensorType { dtype: x.dtype, dims })
}

fn check_list(
    cx: &InferCx<'_>,
    i: usize,
    ok: impl Fn(DType) -> bool,
    types: &str,
    len: usize,
) -> Result<(), OpError> {
    if !cx.has(i) {
        return Ok(());
    }
    cx.check_dtype(i, ok, types)?;
    let fits = |d: &[Dim]| d.len() == 1 && !differ(&d[0], &Dim::new(len as i64));
    cx.check_shape(i, fits, &format!("[{len}], for the axes that are resized"))
}

fn by_sizes(cx: &InferCx<'_>, x: &TensorType, axes: &[usize]) -> Result<Vec<Dim>, OpError> {
    let sizes = match cx.contents(3) {
        Some(_) => host_dims(cx, 3, "sizes")?,
        None => axes.iter().map(|a| cx.fresh_from(3, &format!("sizes{a}"), None)).collect(),
    };
    let Some(choose) = policy(cx.attrs)? else { return Ok(sizes) };
    let number = |d: &Dim| d.as_const().map(|n| n as f64);
    let pairs: Option<Vec<_>> =
        axes.iter().zip(&sizes).map(|(&a, s)| Some((number(&x.dims[a])?, number(s)?))).collect();
    let Some(pairs) = pairs else {
        return Ok(axes.iter().map(|a| cx.fresh_from(3, &format!("d{a}"), None)).collect());
    };
    let scale = common_scale(&pairs, choose);
    Ok(pairs.iter().map(|&(input, _)| Dim::new((scale * input + 0.5).floor() as i64)).collect())
}

/// The one scale that keeps the aspect ratio, from (input, wanted) sizes; axes without elements have no say.
fn common_scale(pairs: &[(f64, f64)], choose: fn(f64, f64) -> f64) -> f64 {
    let ratios = pairs.iter().filter(|p| p.0 > 0.0).map(|&(input, size)| size / input);
    ratios.reduce(choose).unwrap_or(1.0)
}

fn by_scales(cx: &InferCx<'_>, x: &TensorType, axes: &[usize]) -> Result<Vec<Dim>, OpError> {
    let Some(scales) = cx.fact(2).and_then(|f| f.as_const()).map(|t| t.to_f64()) else {
        return Ok(axes.iter().map(|a| cx.fresh_from(2, &format!("d{a}"), None)).collect());
    };
    let pairs = axes.iter().zip(scales).enumerate();
    pairs
        .map(|(k, (&a, scale))| {
            if !(scale > 0.0 && scale.is_finite()) {
                return Err(OpError::Value(format!("scales[{k}] is {scale}; wants a positive number")));
            }
            let size = scaled(&x.dims[a], scale);
            Ok(size.unwrap_or_else(|| unknown(cx, &x.dims[a], a, scale)))
        })
        .collect()
}

/// A size that is computed once the input's is a number.
fn unknown(cx: &InferCx<'_>, size: &Dim, axis: usize, scale: f64) -> Dim {
    let hint = format!("d{axis}");
    // The product is rounded to f32, so that it may be greater by a part in 2²³.
    let product = size.clone() * (scale.ceil() as i64).into();
    let bound = Some(product.clone() + product.floor_div(&(1 << 23).into()) + 1.into());
    match size.kind() {
        DimKind::Device => cx.fresh_device(&hint, bound),
        _ => cx.fresh_host(&hint, bound),
    }
}

/// ⌊size·scale⌋, the product rounded to f32. For a symbol only if the scale is a fraction so simple that the product
/// is exact for every size up to 2¹⁶.
pub fn scaled(size: &Dim, scale: f64) -> Option<Dim> {
    if let Some(n) = size.as_const() {
        return Some(Dim::new((n as f32 * scale as f32).floor() as i64));
    }
    let denominator = (0..8).map(|k| f64::from(1 << k)).find(|d| (scale * d).fract() == 0.0)?;
    let numerator = scale * denominator;
    (numerator <= 256.0)
        .then(|| (size.clone() * Dim::new(numerator as i64)).floor_div(&Dim::new(denominator as i64)))
}

/// The contents of the inputs of a `resize` that say how, where they are given.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// The region.
    pub roi: Option<Vec<f64>>,
    /// The scales.
    pub scales: Option<Vec<f64>>,
    /// The sizes.
    pub sizes: Option<Vec<i64>>,
}

/// Every dimension of a `resize` whose sizes and contents are known.
pub fn axes(
    attrs: &Attrs,
    input: &[usize],
    output: &[usize],
    given: &Given,
) -> Result<Vec<ResizeAxis>, OpError> {
    let mut all: Vec<ResizeAxis> = input.iter().map(|&n| ResizeAxis::identity(n)).collect();
    let resized = resized(attrs, input.len())?;
    let common = match (policy(attrs)?, &given.sizes) {
        (Some(choose), Some(sizes)) => {
            let pairs: Vec<_> =
                resized.iter().zip(sizes).map(|(&a, &s)| (input[a] as f64, s as f64)).collect();
            Some(common_scale(&pairs, choose))
        }
        _ => None,
    };
    let crop = attrs.str("coord")? == "tf_crop_and_resize";
    let number = |v: &Option<Vec<f64>>, k: usize| v.as_ref().and_then(|v| v.get(k)).copied();
    let edge = |k: usize, default: f64| number(&given.roi, k).filter(|_| crop).unwrap_or(default);
    for (k, &a) in resized.iter().enumerate() {
        let scale = number(&given.scales, k).or(common);
        all[a] = ResizeAxis {
            input: input[a],
            output: output[a],
            scale: scale.unwrap_or(output[a] as f64 / input[a].max(1) as f64),
            region: (edge(k, 0.0), edge(resized.len() + k, 1.0)),
        };
    }
    Ok(all)
}
