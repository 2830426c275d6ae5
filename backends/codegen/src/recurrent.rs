//! Recurrences: a workgroup for each sequence and direction.

use crate::scalar::float;
use crate::site::{Cx, Site, op_error};
use crate::template::{fill, section};
use crate::{Body, Entry, Grid, Kernel, Launch, plain, words};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::Op;
use kiln_ops::recurrent::activations;
use std::fmt::Write;

pub const KERNELS: &[Kernel] = &[Kernel {
    name: "recurrent",
    ops: &["rnn", "gru", "lstm"],
    epilogue: false,
    tactics: |_| plain("recurrent"),
    source,
    launch,
}];

/// One activation of the value `v`; `relu` is max(v, 0).
pub fn activation(name: &str, a: f64, b: f64) -> String {
    let (a, b) = (float(a), float(b));
    match name {
        "tanh" => "ktanh(v)".into(),
        "sigmoid" => "1.0f / (1.0f + kexp(-v))".into(),
        "relu" => "relu".into(),
        "softsign" => "v / (1.0f + abs(v))".into(),
        "softplus" => "relu + klog1p(kexp(-abs(v)))".into(),
        "affine" => format!("{a} * v + {b}"),
        "leakyrelu" => format!("select(v, {a} * v, v < 0.0f)"),
        "thresholdedrelu" => format!("select(v, 0.0f, v <= {a})"),
        "scaledtanh" => format!("{a} * ktanh({b} * v)"),
        "hardsigmoid" => format!("select(clamp({a} * v + {b}, 0.0f, 1.0f), v, is_nan(v))"),
        _ => format!("select(v, {a} * kexpm1(v), v < 0.0f)"),
    }
}

/// The forget gate of an `lstm`, given its sum; `i_gate` is the input gate.
pub fn forget_gate(op: &Op, sum: &str) -> String {
    match op.attrs().bool("input_forget") {
        Ok(true) => "1.0f - i_gate".into(),
        _ => format!("activate(d, 0u, {sum})"),
    }
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    Ok(Body { code: code(site)?, entries: vec![Entry::Free("recur")], scratch: true, ..Body::default() })
}

/// The template, filled in.
pub fn code(site: &Site<'_>) -> Result<String, BackendError> {
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
    let gates = match op.name() {
        "lstm" => "4u",
        "gru" => "3u",
        _ => "1u",
    };
    // What a `gru` does first, for one element and for those of a thread.
    let first = |name| if op.is("gru") { section(site.text("recurrent"), name) } else { "" };
    let (reset, recurrent) = if flag("linear_before_reset") {
        ("r", "bitcast<f32>(scratch[reset + j]) * of_state(d, 2u, j, old_h)")
    } else {
        ("r * bitcast<f32>(scratch[old_h + j])", "of_state(d, 2u, j, reset)")
    };
    let forget = forget_gate(op, "gate(d, 2u, j, x, old_h) + peep(d, 2u, j) * c");
    let text = site.text("recurrent").split_once("// ---- ").map_or("", |p| p.0);
    let parts = [
        ("FIRST_LOOP", first("gru_loop")),
        ("FIRST", first("gru_first")),
        ("CELL", section(site.text("recurrent"), op.name())),
        ("CASES", &*cases),
    ];
    let words = [
        ("GATESu", gates),
        ("ACTIVATIONSu", &*format!("{}u", all.len() / dirs)),
        ("BIAS_W", given(3, "sum += x3(d * GATE_ROWS * 2u + gate * m(4u) + j);", "")),
        ("BIAS_R", given(3, "sum += x3(d * GATE_ROWS * 2u + GATE_ROWS + gate * m(4u) + j);", "")),
        ("GATE_ROWS", &*format!("({gates} * m(4u))")),
        ("PEEP", given(7, "return x7((d * 3u + g) * m(4u) + j);", "return 0.0f;")),
        ("H0", given(5, "x5(row + j)", "0.0f")),
        ("C0", given(6, "x6(row + j)", "0.0f")),
        ("LEN", given(4, "u32(clamp(near4(b), 0, i32(steps)))", "steps")),
        ("RESET", reset),
        ("RECURRENT", recurrent),
        ("FORGET", &*forget),
        ("LAST", if op.is("lstm") { "emit2(row + j, bitcast<f32>(scratch[cell + j]));" } else { "" }),
    ];
    Ok(fill(&fill(text, &parts), &words))
}

/// A recurrence at launch.
pub struct Sizes {
    /// Steps, directions, batch, inputs, states, is the batch first, do they go backward, clip.
    pub words: Vec<u32>,
    /// Steps of the longest sequence.
    pub steps: usize,
    /// Elements of an input.
    pub inputs: usize,
    /// Elements of a state.
    pub hidden: usize,
    /// Sequences of all directions.
    pub sequences: u64,
    /// Bytes of scratch memory.
    pub scratch: u64,
}

/// What a launch walks over.
pub fn sizes(cx: &Cx<'_>) -> Result<Sizes, BackendError> {
    let a = cx.op()?.attrs();
    let (x, r) = (cx.shape(0)?, cx.shape(2)?);
    let first = a.int("layout").map_err(op_error)? == 1;
    let (steps, batch) = if first { (x[1], x[0]) } else { (x[0], x[1]) };
    let (dirs, inputs, hidden) = (r[0], x[2], r[2]);
    let backward = a.str("direction").map_err(op_error)? == "reverse";
    let mut w = words([steps, dirs, batch, inputs, hidden, usize::from(first), usize::from(backward)])?;
    w.push((a.float("clip").map_err(op_error)? as f32).to_bits());
    let sequences = (dirs * batch) as u64;
    Ok(Sizes { words: w, steps, inputs, hidden, sequences, scratch: sequences * hidden as u64 * 16 })
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let s = sizes(cx)?;
    // Gates, rows of a thread, elements of a product.
    let iterations = 4 * s.hidden.div_ceil(64) * (s.inputs + s.hidden + 2);
    let chunk = (cx.rounds / iterations.max(1)).max(1);
    let starts = (0..s.steps.max(1)).step_by(chunk);
    starts
        .map(|from| {
            let bounds = words([from, from.saturating_add(chunk).min(s.steps)])?;
            let launch = Launch::map(0, [s.words.clone(), bounds].concat());
            Ok(launch.on(Grid::Groups(s.sequences)).scratch(s.scratch))
        })
        .collect()
}
