//! Sliding windows: the transpose of convolution, pooling.

use crate::long::{continued, repeated, summed};
use crate::scalar::{float, int, register, zero};
use crate::site::{Cx, Site, op_error, unsupported};
use crate::template::{fill, sections};
use crate::{Body, Entry, Grid, Kernel, Launch, word, words};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::{DType, Dim};
use kiln_ops::conv::window::{Axis, dims, known};
use kiln_ops::conv::{self, col2im, transposed};
use kiln_ops::layout::Layout;
use kiln_ops::pool::PoolOp;
use kiln_ops::pool::{self, max_unpool};
use kiln_ops::util::strides;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel::of("conv_transpose", &["conv_transpose"], |s, _| Ok(sums(s, "conv_transpose")), transposed),
    Kernel::of("col2im", &["col2im"], |s, _| Ok(sums(s, "col2im")), col2im_launch),
    Kernel::of("pool", &["pool"], pool_source, pool_launch),
    Kernel::of("max_pool_indices", &["max_pool_indices"], indices_source, indices_launch),
    Kernel::alone("max_unpool", &["max_unpool"], unpool_source, unpool),
];

/// These sections under what all share, filled in.
pub fn text(site: &Site<'_>, names: &[&str], pairs: &[(&str, &str)]) -> String {
    fill(&(shared(site).to_owned() + &sections(site.text("window"), names)), pairs)
}

/// The functions that read the words of [`axis_words`].
pub fn shared(site: &Site<'_>) -> &'static str {
    site.text("window").split_once("// ---- ").map_or("", |p| p.0)
}

/// The section of functions that know where elements lie.
pub fn layout(site: &Site<'_>) -> &'static str {
    site.anchor.map_or(Layout::Linear, |(_, n)| Layout::of(n.op.attrs())).name()
}

/// Kernels that sum products.
pub fn sums(site: &Site<'_>, name: &str) -> Body {
    let t = site.out_dtype(0);
    let bias = if site.dtype(2).is_some() && name != "col2im" { "x2(ch)" } else { zero(t) };
    let pairs = [("ACC", register(t)), ("ZERO", zero(t)), ("BIAS", bias)];
    summed(site, text(site, &[layout(site), name], &pairs), t)
}

/// Words of the windows, fewer than three led by windows of one element.
pub fn axis_words(axes: &[Axis<Dim>]) -> Result<Vec<u32>, BackendError> {
    let axes = known(axes).map_err(op_error)?;
    let mut w = Vec::new();
    let fit = |v: i64| {
        i32::try_from(v)
            .map(|v| v as u32)
            .map_err(|_| BackendError::Unsupported(format!("a window of size {v}")))
    };
    for _ in axes.len()..3 {
        w.extend([1, 1, 1, 1, 1, 0, 0]);
    }
    for a in axes {
        for v in [a.input, a.output, a.kernel, a.stride, a.dilation, a.begin, a.end] {
            w.push(fit(v)?);
        }
    }
    Ok(w)
}

/// Groups of a convolution.
pub fn groups(cx: &Cx<'_>) -> Result<usize, BackendError> {
    Ok(cx.op()?.attrs().int("groups").map_err(op_error)?.max(1) as usize)
}

/// Words of a convolution: those of its windows, channels, output channels, and both of a group.
pub fn conv_words(cx: &Cx<'_>) -> Result<Vec<u32>, BackendError> {
    let attrs = cx.op()?.attrs();
    let (x, k) = (cx.shape(0)?, cx.shape(1)?);
    let axes = conv::geometry(attrs, &dims(&x), &dims(&k)).map_err(op_error)?;
    let [x, k] = [&x, &k].map(|d| Layout::of(attrs).to_linear(d));
    let mut w = axis_words(&axes)?;
    w.extend(words([x[1], k[0], k[1], k[0] / groups(cx)?])?);
    Ok(w)
}

fn transposed(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let attrs = cx.op()?.attrs();
    let (x, k, y) = (cx.shape(0)?, cx.shape(1)?, cx.out_shape(0)?);
    let axes = transposed::geometry(attrs, &dims(&x), &dims(&k)).map_err(op_error)?;
    let (x, y) = (Layout::of(attrs).to_linear(&x), Layout::of(attrs).to_linear(&y));
    let mut w = axis_words(&axes)?;
    let channels = x[1] / groups(cx)?;
    w.extend(words([x[1], y[1], k[1], channels])?);
    continued(cx, w, channels * k[2..].iter().product::<usize>(), 1)
}

fn col2im_launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let y = cx.out_shape(0)?;
    let block: Vec<Dim> = cx.ints(2)?.unwrap_or_default().into_iter().map(Dim::new).collect();
    if block.len() > 3 {
        return unsupported(format!("{} spatial dimensions", block.len()));
    }
    let axes = col2im::geometry(cx.op()?.attrs(), &dims(&y[2..]), &block).map_err(op_error)?;
    continued(cx, axis_words(&axes)?, taps(&axes)?, 1)
}

/// Taps of a window.
fn taps(axes: &[Axis<Dim>]) -> Result<usize, BackendError> {
    Ok(known(axes).map_err(op_error)?.iter().map(|a| a.kernel.max(0) as usize).product())
}

/// The value of a window without elements.
fn least(t: DType) -> String {
    match t.int_range() {
        Some((lo, _)) => int(lo, t),
        None => float(f64::NEG_INFINITY),
    }
}

fn pool_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let a = site.op()?.attrs();
    let include = a.bool("count_include_pad").map_err(op_error)?;
    let p = float(a.int("p").map_err(op_error)? as f64);
    let (start, step, last) = match PoolOp::of(a) {
        PoolOp::Max => {
            let step = match t {
                DType::I64 => "l_max(acc, v)",
                _ if t.is_float() => "kmax(acc, v)",
                _ => "max(acc, v)",
            };
            (least(t), step.to_owned(), "acc".to_owned())
        }
        PoolOp::Average => {
            let n = if include {
                "padded_taps(0u, o.x) * padded_taps(1u, o.y) * padded_taps(2u, o.z)"
            } else {
                "count"
            };
            ("0.0f".into(), "acc + v".into(), format!("select(acc / f32({n}), 0.0f, {n} == 0)"))
        }
        PoolOp::Lp => ("0.0f".into(), format!("acc + kpow(abs(v), {p})"), format!("kpow(acc, 1.0f / {p})")),
    };
    let pairs = [("ACC", register(t)), ("START", &*start), ("STEP", &*step), ("LAST", &*last)];
    Ok(summed(site, text(site, &[layout(site), "padded", "pool"], &pairs), t))
}

fn pool_axes(cx: &Cx<'_>) -> Result<Vec<Axis<Dim>>, BackendError> {
    pool::geometry(cx.op()?.attrs(), &dims(&cx.shape(0)?)).map_err(op_error)
}

fn pool_launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let axes = pool_axes(cx)?;
    let x = Layout::of(cx.op()?.attrs()).to_linear(&cx.shape(0)?);
    let mut w = axis_words(&axes)?;
    w.push(word(x[1])?);
    continued(cx, w, taps(&axes)?, 1)
}

fn indices_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let columns = site.op()?.attrs().int("storage_order").map_err(op_error)? == 1;
    let better = if t.is_float() { "!is_nan(b) && (is_nan(a) || a > b)" } else { "a > b" };
    let order = if columns { "by_columns" } else { "by_rows" };
    let pairs = [("ACC", register(t)), ("START", &*least(t)), ("BETTER", better), ("ORDER", order)];
    let mut body = summed(site, text(site, &["max_pool_indices"], &pairs), DType::I32);
    body.entries.push(Entry::Map(1));
    Ok(body)
}

fn indices_launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let axes = pool_axes(cx)?;
    let mut out = continued(cx, axis_words(&axes)?, taps(&axes)?, 1)?;
    // The last launch of the first output reads what is kept, and so does that of the second.
    let entry = 1 + usize::from(cx.cut());
    let second = out.last().map(|l| Launch { entry, ..l.clone() });
    out.extend(second);
    Ok(out)
}

fn unpool_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let code = text(site, &["max_unpool"], &[("ACC", register(t)), ("ZERO", zero(t))]);
    Ok(Body { code, entries: vec![Entry::Map(0), Entry::Free("unpool")], ..Body::default() })
}

/// Threads own planes of x, so that the last of equal indices wins as long as none points into another plane.
fn unpool(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, y) = (cx.shape(0)?, cx.out_shape(0)?);
    let axes =
        known(&max_unpool::geometry(cx.op()?.attrs(), &dims(&x)).map_err(op_error)?).map_err(op_error)?;
    let pooled: Vec<usize> = x[..2].iter().copied().chain(axes.iter().map(|a| a.input as usize)).collect();
    let mut w = vec![word(x.len())?];
    w.extend(words(strides(&pooled))?);
    w.extend(words(pooled)?);
    w.extend(words(y.iter().copied())?);
    w.extend(words(strides(&y))?);
    let volume = x[2..].iter().product();
    w.push(word(volume)?);
    let launch = Launch::map(1, w).on(Grid::Threads((x[0] * x[1]) as u64));
    let mut out = vec![Launch::map(0, Vec::new())];
    out.extend(repeated(cx, &launch, (volume, 2 + x.len()), 0)?);
    Ok(out)
}
