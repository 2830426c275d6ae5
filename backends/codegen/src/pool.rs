//! Pooling, and its inverse.

use crate::conv::WINDOWS;
use crate::long::{continued, long_sum, repeated};
use crate::scalar::{float, int, register, zero};
use crate::site::{Cx, Site, op_error};
use crate::window::{WindowsParams, channels_last, taps};
use crate::{Body, Entry, Grid, Kernel, Launch};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::{DType, Dim};
use kiln_ops::conv::window::{Axis, dims, known};
use kiln_ops::layout::Layout;
use kiln_ops::pool::{self, PoolOp, max_unpool};
use kiln_ops::util::strides;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel::of("pool", &["pool"], pool_source, pool_launch).framed(),
    Kernel::of("max_pool_indices", &["max_pool_indices"], indices_source, indices_launch).framed(),
    Kernel::alone("max_unpool", &["max_unpool"], unpool_source, unpool).framed(),
];

crate::params! {
    /// Elements put where the maxima were that a pooling took.
    struct MaxUnpoolParams {
        /// Elements of a plane of x.
        plane: u32,
        /// Dimensions of the tensor that was pooled.
        pooled: [u32],
        /// Its strides.
        pooled_strides: [u32],
        /// Dimensions of the result.
        dims: [u32],
        /// Its strides.
        strides: [u32],
    }
}

/// The value of a window without elements.
fn least(t: DType) -> String {
    match t.int_range() {
        Some((lo, _)) => int(lo, t),
        None => float(f64::NEG_INFINITY),
    }
}

/// A map over windows by the functions of a file, which knows where a window starts.
fn windowed(
    site: &Site<'_>,
    file: &'static str,
    of: (&'static str, &str),
    state: DType,
    first: &str,
) -> Body {
    let t = site.out_dtype(0);
    let body = long_sum(site, file, of, state);
    let code = site.alias("Value", t)
        + &site.constant("LAST", "bool", channels_last(site))
        + &site.function("first", &[], register(t), first);
    Body { files: vec![WINDOWS, file], ..body.with(code) }
}

fn pool_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let hooks = pool_hooks(site)?;
    let body = windowed(site, "pool/pool", ("pool", "pool_sum"), site.out_dtype(0), &hooks.first);
    Ok(body.with(hooks.code))
}

/// Functions and constants of a pooling.
pub struct PoolHooks {
    /// The value of a window without elements.
    pub first: String,
    /// `step(sum, v)` adds an element, `last(sum, count)` is the result; PADDED, whether padding counts.
    pub code: String,
    /// A sum with another, as an expression of `sum` and `v`.
    pub merge: String,
}

/// The hooks of an anchor's pooling.
pub fn pool_hooks(site: &Site<'_>) -> Result<PoolHooks, BackendError> {
    let t = site.out_dtype(0);
    let r = register(t);
    let a = site.op()?.attrs();
    let include = a.bool("count_include_pad").map_err(op_error)?;
    let p = float(a.int("p").map_err(op_error)? as f64);
    let (first, step, last) = match PoolOp::of(a) {
        PoolOp::Max => {
            let step = match t {
                DType::I64 => "l_max(sum, v)",
                _ if t.is_float() => "kmax(sum, v)",
                _ => "max(sum, v)",
            };
            (least(t), step.to_owned(), "sum".to_owned())
        }
        PoolOp::Average => {
            ("0.0f".into(), "sum + v".into(), "select(sum / f32(count), 0.0f, count == 0)".into())
        }
        PoolOp::Sum => ("0".into(), "sum + v".into(), "sum".into()),
        PoolOp::Lp => ("0.0f".into(), format!("sum + kpow(abs(v), {p})"), format!("kpow(sum, 1.0f / {p})")),
    };
    let merge = if PoolOp::of(a) == PoolOp::Max { step.clone() } else { "sum + v".to_owned() };
    let padded = include && PoolOp::of(a) == PoolOp::Average;
    let code = site.constant("PADDED", "bool", padded)
        + &site.function("step", &[("sum", r), ("v", r)], r, &step)
        + &site.function("last", &[("sum", r), ("count", "i32")], r, &last);
    Ok(PoolHooks { first, code, merge })
}

fn pool_axes(cx: &Cx<'_>) -> Result<Vec<Axis<Dim>>, BackendError> {
    pool::geometry(cx.op()?.attrs(), &dims(&cx.shape(0)?)).map_err(op_error)
}

fn pool_launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let axes = pool_axes(cx)?;
    let x = Layout::of(cx.op()?.attrs()).to_linear(&cx.shape(0)?);
    let params = WindowsParams { channels: x[1], ..WindowsParams::of(&axes)? };
    continued(cx, params.words()?, taps(&axes)?, 1)
}

fn indices_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let r = register(t);
    let columns = site.op()?.attrs().int("storage_order").map_err(op_error)? == 1;
    let better = if t.is_float() { "!is_nan(b) && (is_nan(a) || a > b)" } else { "a > b" };
    let body = windowed(site, "pool/max_pool", ("max_pool", "greatest"), DType::I32, &least(t));
    let code = site.constant("COLUMNS", "bool", columns)
        + &site.function("better", &[("a", r), ("b", r)], "bool", better);
    let mut body = body.with(code);
    body.entries.push(Entry::Element(1, "max_pool_index"));
    Ok(body)
}

fn indices_launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let axes = pool_axes(cx)?;
    let mut out = continued(cx, WindowsParams::of(&axes)?.words()?, taps(&axes)?, 1)?;
    // The last launch of the first output reads what is kept, and so does that of the second.
    let entry = 1 + usize::from(cx.cut());
    let second = out.last().map(|l| Launch { entry, ..l.clone() });
    out.extend(second);
    Ok(out)
}

fn unpool_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let code = site.alias("Value", t) + &site.constant("ZERO", "Value", zero(t));
    let entries = vec![Entry::Element(0, "zeros"), Entry::threads("max_unpool")];
    Ok(Body::of("pool/max_unpool", entries).with(code))
}

/// Threads own planes of x, so that the last of equal indices wins as long as none points into another plane.
fn unpool(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, y) = (cx.shape(0)?, cx.out_shape(0)?);
    let axes =
        known(&max_unpool::geometry(cx.op()?.attrs(), &dims(&x)).map_err(op_error)?).map_err(op_error)?;
    let pooled: Vec<usize> = x[..2].iter().copied().chain(axes.iter().map(|a| a.input as usize)).collect();
    let plane = x[2..].iter().product();
    let params =
        MaxUnpoolParams { plane, pooled_strides: strides(&pooled), pooled, strides: strides(&y), dims: y };
    let launch = Launch::map(1, params.words()?).on(Grid::Threads((x[0] * x[1]) as u64));
    let mut out = vec![Launch::map(0, Vec::new())];
    out.extend(repeated(cx, &launch, (plane, 2 + x.len()), 0)?);
    Ok(out)
}
