//! Reductions: one thread a result, or one workgroup a result.

use crate::scalar::{cast, float, int, register};
use crate::site::{Cx, Site, op_error, unsupported};
use crate::template::{fill, section};
use crate::{Body, Entry, Grid, Kernel, Launch, plain, views::coalesce, word, words};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ops::reduce::{ReduceOp, mask};
use kiln_ops::util::strides;

pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "reduce.group",
        ops: &["reduce"],
        epilogue: true,
        tactics: group_tactics,
        source: |site, _| source(site, "group"),
        launch: |cx| launch(cx, true),
    },
    Kernel {
        name: "reduce.serial",
        ops: &["reduce"],
        epilogue: true,
        tactics: |_| plain("reduce.serial"),
        source: |site, _| source(site, "serial"),
        launch: |cx| launch(cx, false),
    },
];

/// What is computed along the axes.
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

/// How a reduction is written: `acc` is the sum so far, `v` an element or another sum, `n` the number of elements.
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

fn source(site: &Site<'_>, variant: &str) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let op = reduce_op(site)?;
    let w = Sum::of(op, t, site.target.has("i64"));
    let shift = if op == ReduceOp::LogSumExp { section(site.text("reduce"), "shift") } else { "" };
    let infinite = result("top", DType::F32, t);
    let shared = site.text("reduce").split_once("// ---- serial").map_or("", |p| p.0);
    let text = (shared.to_owned() + section(site.text("reduce"), variant)).replace("SHIFT", shift);
    let code = fill(
        &text.replace("INFINITE", &infinite),
        &[
            ("REG", register(t)),
            ("ACC", register(w.acc)),
            ("START", &w.start),
            ("STEP", &w.step),
            ("MERGE", &w.merge),
            ("LAST", &w.last),
        ],
    );
    let entry = if variant == "group" { Entry::Free("rows") } else { Entry::Map(0) };
    Ok(Body { code, entries: vec![entry], inputs: Some(vec![0]), ..Body::default() })
}

/// A reduction at launch.
pub struct Geometry {
    /// Rank, dimensions and strides of what is kept; the same of what is reduced, and its elements.
    pub words: Vec<u32>,
    /// Results.
    pub results: usize,
    /// Elements of each.
    pub elements: usize,
    /// Dimensions that they lie in.
    pub rank: usize,
}

/// What a launch reduces.
pub fn geometry(cx: &Cx<'_>) -> Result<Geometry, BackendError> {
    let x = cx.shape(0)?;
    let mask = mask(cx.op()?.attrs(), cx.ints(1)?.as_deref(), x.len()).map_err(op_error)?;
    let own = strides(&x);
    let mut g = Geometry { words: Vec::new(), results: 1, elements: 1, rank: 0 };
    for reduced in [false, true] {
        let axes: Vec<usize> = (0..x.len()).filter(|&i| mask[i] == reduced).collect();
        let dims: Vec<usize> = axes.iter().map(|&i| x[i]).collect();
        let by: Vec<i64> = axes.iter().map(|&i| own[i] as i64).collect();
        let count: usize = dims.iter().product();
        let (dims, by) = coalesce(&dims, &by);
        g.rank = dims.len();
        g.words.push(word(dims.len())?);
        g.words.extend(words(dims)?);
        g.words.extend(by.iter().map(|&s| s as u32));
        if reduced {
            g.words.push(word(count)?);
            g.elements = count;
        } else {
            g.results = count;
        }
    }
    Ok(g)
}

fn launch(cx: &Cx<'_>, group: bool) -> Result<Vec<Launch>, BackendError> {
    let g = geometry(cx)?;
    let launch = Launch::map(0, g.words);
    Ok(vec![if group { launch.on(Grid::Groups(g.results as u64)) } else { launch }])
}
