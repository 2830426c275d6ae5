//! Recurrences: a workgroup for each sequence and direction.

use kiln_backend::{BackendError, Tactic};
use kiln_families::scalar::float;
use kiln_families::site::{Cx, Site, op_error, unsupported};
use kiln_families::template::{fill, section};
use kiln_families::{Body, Entry, Grid, Kernel, Launch, plain, words};
use kiln_ir::ops::rnn::activations;
use std::fmt::Write;

const TEXT: &str = include_str!("../../../../shaders/recurrent.wgsl");

pub const KERNELS: &[Kernel] = &[Kernel {
    name: "recurrent",
    ops: &["rnn", "gru", "lstm"],
    epilogue: false,
    tactics: |_| plain("recurrent"),
    source,
    launch,
}];

/// One activation of the value `v`; `relu` is max(v, 0).
fn activation(name: &str, a: f64, b: f64) -> String {
    let (a, b) = (float(a), float(b));
    match name {
        "tanh" => "ktanh(v)".into(),
        "sigmoid" => "1.0 / (1.0 + kexp(-v))".into(),
        "relu" => "relu".into(),
        "softsign" => "v / (1.0 + abs(v))".into(),
        "softplus" => "relu + klog1p(kexp(-abs(v)))".into(),
        "affine" => format!("{a} * v + {b}"),
        "leakyrelu" => format!("select(v, {a} * v, v < 0.0)"),
        "thresholdedrelu" => format!("select(v, 0.0, v <= {a})"),
        "scaledtanh" => format!("{a} * ktanh({b} * v)"),
        "hardsigmoid" => format!("select(clamp({a} * v + {b}, 0.0, 1.0), v, is_nan(v))"),
        _ => format!("select(v, {a} * kexpm1(v), v < 0.0)"),
    }
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let op = site.op()?;
    let has = |i: usize| site.dtype(i).is_some();
    let given = |i: usize, text: &'static str, default: &'static str| if has(i) { text } else { default };
    let all = activations(op).map_err(op_error)?;
    let dirs = if op.attrs().str("direction").map_err(op_error)? == "bidirectional" { 2 } else { 1 };
    let mut cases = String::new();
    for (i, &(name, a, b)) in all.iter().enumerate() {
        let _ = writeln!(cases, "        case {i}u: {{ return {}; }}", activation(name, a, b));
    }
    let flag = |name: &str| op.attrs().bool(name).unwrap_or(false);
    let (gates, first, first_loop) = match op.name() {
        "lstm" => ("4u", "", ""),
        "gru" => ("3u", section(TEXT, "gru_first"), section(TEXT, "gru_loop")),
        _ => ("1u", "", ""),
    };
    let (reset, recurrent) = if flag("linear_before_reset") {
        ("r", "bitcast<f32>(scratch[reset + j]) * of_state(d, 2u, j, old_h)")
    } else {
        ("r * bitcast<f32>(scratch[old_h + j])", "of_state(d, 2u, j, reset)")
    };
    let forget = if flag("input_forget") {
        "1.0 - i_gate"
    } else {
        "activate(d, 0u, gate(d, 2u, j, x, old_h) + peep(d, 2u, j) * c)"
    };
    let text = TEXT.split_once("// ---- ").map_or("", |p| p.0);
    let parts = [
        ("FIRST_LOOP", first_loop),
        ("FIRST", first),
        ("CELL", section(TEXT, op.name())),
        ("CASES", &*cases),
    ];
    let words = [
        ("GATESu", gates),
        ("ACTIVATIONSu", &*format!("{}u", all.len() / dirs)),
        ("BIAS_W", given(3, "sum += x3(d * GATE_ROWS * 2u + gate * m(4u) + j);", "")),
        ("BIAS_R", given(3, "sum += x3(d * GATE_ROWS * 2u + GATE_ROWS + gate * m(4u) + j);", "")),
        ("GATE_ROWS", &*format!("({gates} * m(4u))")),
        ("PEEP", given(7, "return x7((d * 3u + g) * m(4u) + j);", "return 0.0;")),
        ("H0", given(5, "x5(row + j)", "0.0")),
        ("C0", given(6, "x6(row + j)", "0.0")),
        ("LEN", given(4, "u32(clamp(near4(b), 0, i32(steps)))", "steps")),
        ("RESET", reset),
        ("RECURRENT", recurrent),
        ("FORGET", forget),
        ("LAST", if op.is("lstm") { "emit2(row + j, bitcast<f32>(scratch[cell + j]));" } else { "" }),
    ];
    let code = fill(&fill(text, &parts), &words);
    let entries = ["recur", "wide_start", "wide_reset", "wide_step", "wide_accept", "wide_finish"];
    Ok(Body { code, entries: entries.map(Entry::Free).into(), scratch: true, ..Body::default() })
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let a = cx.op()?.attrs();
    let (x, r) = (cx.shape(0)?, cx.shape(2)?);
    let first = a.int("layout").map_err(op_error)? == 1;
    let (steps, batch) = if first { (x[1], x[0]) } else { (x[0], x[1]) };
    let (dirs, hidden) = (r[0], r[2]);
    let backward = a.str("direction").map_err(op_error)? == "reverse";
    let mut w = words([steps, dirs, batch, x[2], hidden, usize::from(first), usize::from(backward)])?;
    w.push((a.float("clip").map_err(op_error)? as f32).to_bits());
    let groups = (dirs * batch) as u64;
    let scratch = groups * hidden as u64 * 16;
    // Gates, and elements of their products.
    let element = 4 * (x[2] + hidden + 2);
    let rows = hidden.div_ceil(64);
    // What comes before the first step and behind the last one.
    let around = 2 * rows + 8;
    if (element + 3) * rows + around > cx.rounds {
        return wide(cx, w, steps, element, groups * hidden as u64, scratch);
    }
    let launch = Launch::map(0, w).on(Grid::Groups(groups)).scratch(scratch);
    let chunk = ((cx.rounds - around) / ((element + 3) * rows).max(1)).max(1);
    let starts = (0..steps.max(1)).step_by(chunk);
    starts.map(|from| launch.clone().span(from, (from + chunk).min(steps))).collect()
}

/// Launches for each part of each step.
fn wide(
    cx: &Cx<'_>,
    w: Vec<u32>,
    steps: usize,
    element: usize,
    threads: u64,
    scratch: u64,
) -> Result<Vec<Launch>, BackendError> {
    let op = cx.op()?;
    if element > cx.rounds {
        return unsupported(format!(
            "{} with loops of {element} iterations, {} are possible",
            op.name(),
            cx.rounds
        ));
    }
    let parts: &[usize] = if op.is("gru") { &[2, 3, 4] } else { &[3, 4] };
    let of_step = |k: usize| parts.iter().map(move |&entry| (entry, k));
    let all = std::iter::once((1, 0)).chain((0..steps).flat_map(of_step)).chain([(5, steps)]);
    let launch =
        |(entry, k)| Launch::map(entry, w.clone()).on(Grid::Threads(threads)).scratch(scratch).span(k, k + 1);
    all.map(launch).collect()
}
