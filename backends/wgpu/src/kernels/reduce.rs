//! Reductions: one thread a result, or one workgroup a result.

use kiln_backend::BackendError;
use kiln_codegen::long::{continued, repeated, spans, state, summing};
use kiln_codegen::reduce::{Geometry, accumulator, by, geometry, group_tactics, reduce_op, result};
use kiln_codegen::scalar::register;
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::template::{fill, section};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, plain, word};
use kiln_ir::DType;
use kiln_ops::reduce::ReduceOp;

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

fn source(site: &Site<'_>, variant: &str) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let op = reduce_op(site)?;
    // NVIDIA's compiler loses truth values that a loop carries as booleans.
    let acc = match accumulator(op, t, site.target.has("i64")) {
        DType::Bool => DType::I32,
        acc => acc,
    };
    let w = by(op, t, acc);
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

/// Iterations that an element takes: a round, and a loop over the dimensions.
fn cost(g: &Geometry) -> usize {
    2 + g.rank
}

fn serial(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let g = geometry(cx)?;
    let (cost, results, n) = (cost(&g), g.results, g.elements);
    let mut w = g.words;
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
    let g = geometry(cx)?;
    let (cost, results, n, w) = (cost(&g), g.results, g.elements, g.words);
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
