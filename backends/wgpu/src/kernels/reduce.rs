//! Reductions: one thread a result, or one workgroup a result.

use kiln_backend::{BackendError, Tactic};
use kiln_families::long::{continued, repeated, spans, state, summing};
use kiln_families::scalar::register;
use kiln_families::scalar::{cast, float, int};
use kiln_families::site::{Cx, Site, op_error, unsupported};
use kiln_families::template::{fill, section};
use kiln_families::{Body, Entry, Grid, Kernel, Launch, affine::coalesce, plain, word, words};
use kiln_ir::DType;
use kiln_ir::ops::reduce::{ReduceOp, mask};
use kiln_ir::ops::util::strides;

const TEXT: &str = include_str!("../../../../shaders/reduce.wgsl");

pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "reduce.group",
        ops: &["reduce"],
        epilogue: true,
        tactics: group_tactics,
        source: |site, _| source(site, "group"),
        launch: grouped,
    },
    Kernel {
        name: "reduce.serial",
        ops: &["reduce"],
        epilogue: true,
        tactics: |_| plain("reduce.serial"),
        source: |site, _| source(site, "serial"),
        launch: serial,
    },
];

fn reduce_op(site: &Site<'_>) -> Result<ReduceOp, BackendError> {
    ReduceOp::of(site.op()?.attrs()).map_err(op_error)
}

/// Offered where a result has many elements and results are few, if that is known.
fn group_tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
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

/// How a reduction is written.
struct Words {
    acc: DType,
    start: String,
    step: String,
    merge: String,
    last: String,
}

fn of(op: ReduceOp, t: DType, wide: bool) -> Words {
    let in_float = matches!(op, ReduceOp::L2 | ReduceOp::LogSum | ReduceOp::LogSumExp);
    let acc = match t {
        _ if t.is_float() || in_float => DType::F32,
        DType::I64 => DType::I64,
        DType::I32 if wide && op == ReduceOp::Mean => DType::I64,
        // Truth values too: NVIDIA's compiler loses those that a loop carries as booleans.
        _ => DType::I32,
    };
    let number = |f: f64, i: i64| if acc == DType::F32 { float(f) } else { int(i, acc) };
    let range = t.int_range().unwrap_or((0, 1));
    let minmax = |f: &str| match acc {
        DType::F32 => format!("k{f}(acc, v)"),
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
    Words { acc, start, step, merge, last: result(&last, acc, t) }
}

/// A sum as an element of type `t`; floats saturate to integers.
fn result(x: &str, acc: DType, t: DType) -> String {
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
    let w = of(op, t, site.target.has("i64"));
    let shifted = op == ReduceOp::LogSumExp;
    let shared = TEXT.split_once("// ---- serial").map_or("", |p| p.0);
    let shift = match (variant, shifted) {
        ("group", _) => "",
        (_, true) => section(TEXT, "shift"),
        _ => section(TEXT, "no_shift"),
    };
    let text = shared.to_owned() + shift + section(TEXT, variant);
    let infinite = if shifted {
        format!("if (is_nan(top) || is_inf(top)) {{ return {}; }}", result("top", DType::F32, t))
    } else {
        String::new()
    };
    let pairs = [
        ("INFINITE", &*infinite),
        ("REG", register(t)),
        ("ACC", register(w.acc)),
        ("START", &w.start),
        ("STEP", &w.step),
        ("MERGE", &w.merge),
        ("LAST", &w.last),
    ];
    let code = fill(&text, &pairs);
    let (code, entries) = if variant == "group" {
        (state(site, w.acc) + &code, ["rows", "part", "join"].map(Entry::Free).into())
    } else {
        let mut entries = vec![Entry::Map(0), Entry::Partial("partial")];
        entries.extend(shifted.then_some(Entry::Partial("greatest")));
        (summing(site, w.acc) + &code, entries)
    };
    Ok(Body { code, entries, inputs: Some(vec![0]), scratch: true, ..Body::default() })
}

/// The words of a reduction, its results, the elements of each, and the iterations that one of them takes.
fn geometry(cx: &Cx<'_>) -> Result<(Vec<u32>, usize, usize, usize), BackendError> {
    let x = cx.shape(0)?;
    let mask = mask(cx.op()?.attrs(), cx.ints(1)?.as_deref(), x.len()).map_err(op_error)?;
    let own = strides(&x);
    let mut w = Vec::new();
    let (mut results, mut elements, mut cost) = (1, 1, 1);
    for reduced in [false, true] {
        let axes: Vec<usize> = (0..x.len()).filter(|&i| mask[i] == reduced).collect();
        let dims: Vec<usize> = axes.iter().map(|&i| x[i]).collect();
        let by: Vec<i64> = axes.iter().map(|&i| own[i] as i64).collect();
        let count: usize = dims.iter().product();
        let (dims, by) = coalesce(&dims, &by);
        // A round, and a loop over the dimensions.
        cost = 2 + dims.len();
        w.push(word(dims.len())?);
        w.extend(words(dims)?);
        w.extend(by.iter().map(|&s| s as u32));
        if reduced {
            w.push(word(count)?);
            elements = count;
        } else {
            results = count;
        }
    }
    Ok((w, results, elements, cost))
}

fn serial(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (mut w, results, n, cost) = geometry(cx)?;
    if ReduceOp::of(cx.op()?.attrs()).map_err(op_error)? != ReduceOp::LogSumExp {
        return continued(cx, w, n, cost);
    }
    // Sums first, then what they are shifted by.
    w.push(word(results * 2)?);
    let bytes = results as u64 * 12;
    let greatest = Launch::map(2, w.clone()).on(Grid::Threads(results as u64)).scratch(bytes);
    let mut out = repeated(cx, &greatest, (n, cost), 0)?;
    out.extend(continued(cx, w, n, cost)?.into_iter().map(|l| l.scratch(bytes)));
    Ok(out)
}

/// Elements of a part of a result at most.
const PART: usize = 64 * 4096;

fn grouped(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (w, results, n, cost) = geometry(cx)?;
    // The tree takes a few iterations too.
    let lane = (cx.rounds.saturating_sub(16) / cost).clamp(1, PART / 64);
    let parts = n.div_ceil(lane * 64);
    if parts <= 1 {
        return Ok(vec![Launch::map(0, w).on(Grid::Groups(results as u64))]);
    }
    spans(cx, parts.div_ceil(64), 1)?
        .get(1)
        .map_or(Ok(()), |_| unsupported(format!("a reduction of {n} elements in {parts} parts")))?;
    let all = (results * parts) as u64;
    let part = Launch::map(1, w.clone()).on(Grid::Groups(all)).scratch(all * 8);
    let join = Launch::map(2, w).on(Grid::Groups(results as u64)).scratch(all * 8);
    Ok(vec![part.span(lane * 64, parts)?, join.span(lane * 64, parts)?])
}
