//! Reductions: one thread a result, or one workgroup a result.

use crate::scalar::{cast, float, int, register};
use crate::site::{Cx, Site, op_error, unsupported};
use crate::{Body, Entry, Grid, Kernel, Launch, Views, plain, views::coalesce};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ops::reduce::{ReduceOp, mask};
use kiln_ops::util::strides;

pub mod argreduce;
pub mod cumulative;

crate::params! {
    /// Lines along an axis.
    pub struct LineParams {
        /// Elements of a line.
        count: u32,
        /// Elements from one element of a line to the next.
        inner: u32,
    }
}

crate::params! {
    /// Reductions over any axes.
    pub struct ReduceParams {
        /// Elements of a result.
        elements: u32,
        /// Dimensions that are reduced.
        dims: [u32],
        /// Their strides.
        strides: [u32],
        /// Dimensions that are kept.
        kept_dims: [u32],
        /// Their strides.
        kept_strides: [u32],
        /// Offset in scratch memory of the greatest element of each result, if it is kept there.
        tops: u32,
    }
}

/// The parameters of lines along an axis, and how many lines there are.
pub fn lines(x: &[usize], axis: usize) -> (LineParams, usize) {
    let count = x.iter().product::<usize>().checked_div(x[axis]).unwrap_or(0);
    (LineParams { count: x[axis], inner: x[axis + 1..].iter().product() }, count)
}

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "reduce.group",
        ops: &["reduce"],
        epilogue: true,
        views: Views::Framed,
        side_results: false,
        tactics: group_tactics,
        source: |site, _| source(site, Entry::blocks("reduce_group", 256)),
        launch: |cx| launch(cx, true),
    },
    Kernel {
        name: "reduce.serial",
        ops: &["reduce"],
        epilogue: true,
        views: Views::Framed,
        side_results: false,
        tactics: |_| plain("reduce.serial"),
        source: |site, _| source(site, Entry::Element(0, "reduce")),
        launch: |cx| launch(cx, false),
    },
];

/// Operation along the axes.
pub fn reduce_op(site: &Site<'_>) -> Result<ReduceOp, BackendError> {
    ReduceOp::of(site.op()?.attrs()).map_err(op_error)
}

/// Offered where a result has many elements and results are few, if that is known.
pub fn group_tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    if reduce_op(site)? == ReduceOp::LogSumExp {
        return unsupported("a shifted sum by a workgroup");
    }
    let Some((_, n)) = site.anchor else { return Ok(Vec::new()) };
    let volume = |v: Option<kiln_ir::ValueId>| v.and_then(|v| site.graph.ty(v).static_volume());
    match (volume(n.inputs.first().copied().flatten()), volume(n.outputs.first().copied())) {
        (Some(x), Some(y)) if x < y * 64 => unsupported("few elements a result"),
        _ => plain("reduce.group"),
    }
}

/// Expressions of a reduction: `acc` is the sum so far, `v` an element or another sum, `n` the number of
/// elements.
pub struct Sum {
    /// The type of sums.
    pub acc: DType,
    /// The sum of nothing.
    pub start: String,
    /// With a further element.
    pub step: String,
    /// With another sum.
    pub merge: String,
    /// The result.
    pub last: String,
}

impl Sum {
    /// For results of type `t`; `wide` allows sums of 64 bits for means of narrower integers.
    pub fn of(op: ReduceOp, t: DType, wide: bool) -> Sum {
        by(op, t, accumulator(op, t, wide))
    }
}

/// The type of sums for results of type `t`; `wide` allows 64 bits for means of narrower integers.
pub fn accumulator(op: ReduceOp, t: DType, wide: bool) -> DType {
    let in_float = matches!(op, ReduceOp::L2 | ReduceOp::LogSum | ReduceOp::LogSumExp);
    match t {
        _ if t.is_float() || in_float => DType::F32,
        DType::I64 => DType::I64,
        DType::I32 if wide && op == ReduceOp::Mean => DType::I64,
        DType::Bool => DType::Bool,
        _ => DType::I32,
    }
}

/// For results of type `t` by sums of type `acc`: [`accumulator`], or i32 in the place of bool.
pub fn by(op: ReduceOp, t: DType, acc: DType) -> Sum {
    let number = |f: f64, i: i64| if acc == DType::F32 { float(f) } else { int(i, acc) };
    let range = t.int_range().unwrap_or((0, 1));
    let minmax = |f: &str| match acc {
        DType::F32 => format!("k{f}(acc, v)"),
        DType::Bool if f == "max" => "(acc | v)".into(),
        DType::Bool => "(acc & v)".into(),
        DType::I64 => format!("l_{f}(acc, v)"),
        _ => format!("{f}(acc, v)"),
    };
    let (start, step, merge) = match op {
        ReduceOp::Prod => (number(1.0, 1), "acc * v".into(), "acc * v".into()),
        ReduceOp::Max => (number(f64::NEG_INFINITY, range.0), minmax("max"), minmax("max")),
        ReduceOp::Min => (number(f64::INFINITY, range.1), minmax("min"), minmax("min")),
        ReduceOp::L1 => {
            let a = match acc {
                DType::F32 => "abs(v)",
                DType::I64 => "l_abs(v)",
                _ => "i_abs(v)",
            };
            (number(0.0, 0), format!("acc + {a}"), "acc + v".into())
        }
        ReduceOp::L2 | ReduceOp::SumSquare => (number(0.0, 0), "acc + v * v".into(), "acc + v".into()),
        ReduceOp::LogSumExp => (number(0.0, 0), "acc + kexp(v - top)".into(), "acc + v".into()),
        _ => (number(0.0, 0), "acc + v".to_owned(), "acc + v".to_owned()),
    };
    let last = match (op, acc) {
        (ReduceOp::Mean, DType::F32) => "acc / f32(n)".to_owned(),
        (ReduceOp::Mean, DType::I64) => "l_div(acc, i64(n))".to_owned(),
        (ReduceOp::Mean, _) => "i_div(acc, i32(n))".to_owned(),
        (ReduceOp::L2, _) => "ksqrt(acc)".to_owned(),
        (ReduceOp::LogSum, _) => "klog(acc)".to_owned(),
        (ReduceOp::LogSumExp, _) => "(top + klog(acc))".to_owned(),
        _ => "acc".to_owned(),
    };
    Sum { acc, start, step, merge, last: result(&last, acc, t) }
}

/// A sum as an element of type `t`; floats saturate to integers.
pub fn result(x: &str, acc: DType, t: DType) -> String {
    match t.int_range().filter(|_| acc == DType::F32) {
        Some((lo, hi)) if t != DType::I64 => {
            format!("clamp(f_to_i32({x}), {}, {})", int(lo, DType::I32), int(hi, DType::I32))
        }
        _ => cast(x, acc, if t.is_float() { DType::F32 } else { widest(t) }),
    }
}

/// The type that a narrow integer has in registers.
fn widest(t: DType) -> DType {
    kiln_ir::expr::compute_type(t)
}

/// The types and functions of a kernel that reduces to elements of type `t`.
pub fn hooks(site: &Site<'_>, sum: &Sum, t: DType) -> String {
    let shifted = reduce_op(site).is_ok_and(|op| op == ReduceOp::LogSumExp);
    site.alias("Value", t)
        + &site.alias("Sum", sum.acc)
        + &site.constant("SHIFTED", "bool", shifted)
        + &functions(site, sum, t, "")
}

/// The functions of a reduction to elements of type `t`; their names begin with `prefix`.
pub fn functions(site: &Site<'_>, sum: &Sum, t: DType, prefix: &str) -> String {
    let (r, acc) = (register(t), register(sum.acc));
    let function = |name: &str, arguments: &[(&str, &str)], result: &str, value: &str| {
        site.function(&format!("{prefix}{name}"), arguments, result, value)
    };
    function("empty", &[], acc, &sum.start)
        + &function("step", &[("acc", acc), ("v", acc), ("top", "f32")], acc, &sum.step)
        + &function("merge", &[("acc", acc), ("v", acc)], acc, &sum.merge)
        + &function("last", &[("acc", acc), ("n", "u32"), ("top", "f32")], r, &sum.last)
        + &function("infinite", &[("top", "f32")], r, &result("top", DType::F32, t))
}

fn source(site: &Site<'_>, entry: Entry) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let sum = Sum::of(reduce_op(site)?, t, site.target.has("i64"));
    let body = Body::of("reduce/reduce", vec![entry]).with(hooks(site, &sum, t));
    Ok(Body { inputs: Some(vec![0]), ..body })
}

/// A reduction at launch.
pub struct Geometry {
    /// The parameters.
    pub params: ReduceParams,
    /// Results.
    pub results: usize,
    /// Elements of each.
    pub elements: usize,
    /// Dimensions that they lie in.
    pub rank: usize,
}

/// Rows and lengths of a launch's reduction.
pub fn geometry(cx: &Cx<'_>) -> Result<Geometry, BackendError> {
    let x = cx.shape(0)?;
    let mask = mask(cx.op()?.attrs(), cx.ints(1)?.as_deref(), x.len()).map_err(op_error)?;
    let own = strides(&x);
    let mut params = ReduceParams::default();
    let (mut results, mut elements, mut rank) = (1, 1, 0);
    for reduced in [false, true] {
        let axes: Vec<usize> = (0..x.len()).filter(|&i| mask[i] == reduced).collect();
        let dims: Vec<usize> = axes.iter().map(|&i| x[i]).collect();
        let by: Vec<i64> = axes.iter().map(|&i| own[i] as i64).collect();
        let count: usize = dims.iter().product();
        let (dims, by) = coalesce(&dims, &by);
        let by = by.iter().map(|&s| s as usize).collect();
        if reduced {
            (elements, rank) = (count, dims.len());
            (params.dims, params.strides) = (dims, by);
        } else {
            results = count;
            (params.kept_dims, params.kept_strides) = (dims, by);
        }
    }
    params.elements = elements;
    Ok(Geometry { params, results, elements, rank })
}

fn launch(cx: &Cx<'_>, group: bool) -> Result<Vec<Launch>, BackendError> {
    let g = geometry(cx)?;
    let launch = Launch::map(0, g.params.words()?);
    Ok(vec![if group { launch.on(Grid::Groups(g.results as u64)) } else { launch }])
}
