//! Recurrences: a workgroup for each sequence and direction.

use crate::scalar::float;
use crate::site::{Cx, Site, op_error};
use crate::{Body, Entry, Grid, Kernel, Launch, Views, plain};
use kiln_backend::{BackendError, Tactic};
use kiln_ops::recurrent::GRU;
use kiln_ops::recurrent::LSTM;
use kiln_ops::recurrent::activations;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel {
    name: "recurrent",
    ops: &["rnn", "gru", "lstm"],
    epilogue: false,
    views: Views::Whole,
    side_results: false,
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

crate::params! {
    /// Recurrences.
    pub struct RecurrentParams {
        /// Number of steps.
        steps: u32,
        /// Number of directions.
        directions: u32,
        /// Number of sequences.
        batch: u32,
        /// Elements of an input.
        inputs: u32,
        /// Elements of a state.
        hidden: u32,
        /// Whether sequences are the outermost dimension.
        batch_first: u32,
        /// Whether the only direction is backward.
        backward: u32,
        /// Sums are between this and its negative; 0 for no bounds.
        clip: f32,
        /// The first step of the launch, where a launch has no span.
        first: u32,
        /// The step behind its last one.
        end: u32,
    }
}

/// The most activations of all directions.
const MAX_ACTIVATIONS: usize = 6;

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    body(site, vec![Entry::blocks("recur", 256)])
}

/// The kernels with these entry points.
pub fn body(site: &Site<'_>, entries: Vec<Entry>) -> Result<Body, BackendError> {
    let op = site.op()?;
    let all = activations(op).map_err(op_error)?;
    let directions = if op.attrs().str("direction").map_err(op_error)? == "bidirectional" { 2 } else { 1 };
    let gates = match op.id() {
        LSTM => 4,
        GRU => 3,
        _ => 1,
    };
    let flag = |name: &str, on: bool| site.constant(name, "bool", on);
    let attr = |name: &str| op.attrs().bool(name).unwrap_or(false);
    let has = |i: usize| site.dtype(i).is_some();
    let mut code = site.constant("GATES", "u32", format_args!("{gates}u"))
        + &site.constant("ACTIVATIONS", "u32", format_args!("{}u", all.len() / directions))
        + &flag("BOTH", directions > 1)
        + &flag("HAS_BIAS", has(3))
        + &flag("HAS_LENGTHS", has(4))
        + &flag("HAS_STATE", has(5))
        + &flag("HAS_CELL", has(6))
        + &flag("HAS_PEEPHOLES", has(7))
        + &flag("LINEAR_BEFORE_RESET", attr("linear_before_reset"))
        + &flag("INPUT_FORGET", attr("input_forget"));
    if all.len() > MAX_ACTIVATIONS {
        return Err(BackendError::Internal(format!("{} activations of a recurrence", all.len())));
    }
    for i in 0..MAX_ACTIVATIONS {
        let value = all.get(i).map_or("v".to_owned(), |&(name, a, b)| activation(name, a, b));
        let arguments = [("v", "f32"), ("relu", "f32")];
        code += &site.function(&format!("activation{i}"), &arguments, "f32", &value);
    }
    Ok(Body { scratch: true, ..Body::of("recurrent/recurrent", entries).with(code) })
}

/// A recurrence at launch.
pub struct Sizes {
    /// Parameters of a launch that makes no step yet.
    pub params: RecurrentParams,
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

/// Sizes that a launch walks over.
pub fn sizes(cx: &Cx<'_>) -> Result<Sizes, BackendError> {
    let a = cx.op()?.attrs();
    let (x, r) = (cx.shape(0)?, cx.shape(2)?);
    let first = a.int("layout").map_err(op_error)? == 1;
    let (steps, batch) = if first { (x[1], x[0]) } else { (x[0], x[1]) };
    let (dirs, inputs, hidden) = (r[0], x[2], r[2]);
    let backward = a.str("direction").map_err(op_error)? == "reverse";
    let params = RecurrentParams {
        steps,
        directions: dirs,
        batch,
        inputs,
        hidden,
        batch_first: usize::from(first),
        backward: usize::from(backward),
        clip: a.float("clip").map_err(op_error)? as f32,
        first: 0,
        end: 0,
    };
    let sequences = (dirs * batch) as u64;
    Ok(Sizes { params, steps, inputs, hidden, sequences, scratch: sequences * hidden as u64 * 16 })
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let s = sizes(cx)?;
    // Gates, rows of a thread, elements of a product.
    let iterations = 4 * s.hidden.div_ceil(64) * (s.inputs + s.hidden + 2);
    let chunk = (cx.rounds / iterations.max(1)).max(1);
    let starts = (0..s.steps.max(1)).step_by(chunk);
    starts
        .map(|from| {
            let end = from.saturating_add(chunk).min(s.steps);
            let params = RecurrentParams { first: from, end, ..s.params.clone() };
            let launch = Launch::map(0, params.words()?);
            Ok(launch.on(Grid::Groups(s.sequences)).scratch(s.scratch))
        })
        .collect()
}
