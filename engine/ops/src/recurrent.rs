//! `rnn`, `gru` and `lstm`: recurrences over a sequence, in one or both directions.

mod activation;
mod cells;
mod problems;
mod run;
#[cfg(test)]
mod tests;

use crate::util::{PLAIN, REAL, is_real};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::infer::{Fact, InferCx, differ};
use kiln_ir::op::{AttrDef, OpDef, Port, Tolerance, Traits, attr, choice, input, optional};
use kiln_ir::range::{IndexRange, RangeCx};
use kiln_ir::ty::{TensorType, dims_text};
use kiln_ir::work::{Shapes, product};

/// Constants of one of the three operators.
#[derive(Clone, Copy)]
struct Kind {
    /// Rows of weights per hidden unit.
    gates: usize,
    /// Activations of one direction, unless given.
    activations: &'static [&'static str],
    /// Whether there is a second state.
    cell: bool,
}

const RNN_CELL: Kind = Kind { gates: 1, activations: &["tanh"], cell: false };
const GRU_CELL: Kind = Kind { gates: 3, activations: &["sigmoid", "tanh"], cell: false };
const LSTM_CELL: Kind = Kind { gates: 4, activations: &["sigmoid", "tanh", "tanh"], cell: true };

const PORTS: &[Port] = &[
    input("x"),
    input("w"),
    input("r"),
    optional("b"),
    optional("seq_lens"),
    optional("h0"),
    optional("c0"),
    optional("p"),
];

const DIRECTION: AttrDef = choice("direction", || "forward".into(), &["forward", "reverse", "bidirectional"]);
const ACTIVATIONS: AttrDef = attr("activations", || Attr::Strs(Vec::new()));
const ALPHA: AttrDef = attr("alpha", || Attr::Floats(Vec::new()));
const BETA: AttrDef = attr("beta", || Attr::Floats(Vec::new()));
const CLIP: AttrDef = attr("clip", || Attr::Float(0.0));
const HIDDEN: AttrDef = attr("hidden", || Attr::Int(0));
const LAYOUT: AttrDef = attr("layout", || Attr::Int(0));

kiln_ir::op_names! {
    RNN = "rnn",
    GRU = "gru",
    LSTM = "lstm",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: RNN,
        doc: "h = f(x·Wᵀ + h·Rᵀ + wb + rb) over a sequence; f is tanh unless `activations` says else. With T steps, D \
              directions, batch B, input size I and hidden size H: x [T, B, I], w [D, H, I], r [D, H, H], b [D, 2H] (wb \
              then rb), seq_lens [B], h0 [D, B, H]; y [T, D, B, H], h [D, B, H]. layout 1 puts B first in x, h0, y and \
              h. Steps from seq_lens[b] on give y = 0, and a length that is negative or above T is an error; the reverse direction starts at the last step of each sequence. \
              `hidden` is H, or 0 for that of r. `clip` > 0 bounds the input of every activation. Activations are one \
              per direction, by name, capitals and underscores ignored: tanh, sigmoid, relu, softsign, softplus, and \
              with alpha and beta affine (1, 0), leaky_relu (0.01), thresholded_relu (1), scaled_tanh (1, 1), \
              hard_sigmoid (0.2, 0.5), elu (1); `alpha` and `beta` are consumed in order by those that have them.",
        inputs: PORTS.split_at(6).0,
        outputs: &["y", "h"],
        attrs: &[DIRECTION, ACTIVATIONS, ALPHA, BETA, CLIP, HIDDEN, LAYOUT],
        infer: |cx| infer(cx, RNN_CELL),
        eval: |cx| run::eval(cx, RNN_CELL, &cells::rnn),
        ranges: Some(lengths),
        tolerance: Tolerance::Narrow,
        problems: |rng| problems::problems(RNN, RNN_CELL, rng),
        traits: Traits::heavy(gates),
        ..PLAIN
    },
    OpDef {
        name: GRU,
        doc: "z = f(x·Wzᵀ + h·Rzᵀ + wbz + rbz); r likewise; n = g(x·Wnᵀ + (r∘h)·Rnᵀ + rbn + wbn), or with \
              linear_before_reset n = g(x·Wnᵀ + r∘(h·Rnᵀ + rbn) + wbn); h = (1 − z)∘n + z∘h. f is sigmoid, g tanh. \
              Shapes and attributes as those of `rnn`, with w [D, 3H, I], r [D, 3H, H], b [D, 6H], gates in the order \
              z r n, activations f g per direction.",
        inputs: PORTS.split_at(6).0,
        outputs: &["y", "h"],
        attrs: &[
            DIRECTION,
            ACTIVATIONS,
            ALPHA,
            BETA,
            CLIP,
            HIDDEN,
            LAYOUT,
            attr("linear_before_reset", || Attr::Bool(false)),
        ],
        infer: |cx| infer(cx, GRU_CELL),
        eval: |cx| run::eval(cx, GRU_CELL, &cells::gru),
        ranges: Some(lengths),
        tolerance: Tolerance::Narrow,
        problems: |rng| problems::problems(GRU, GRU_CELL, rng),
        traits: Traits::heavy(gates),
        ..PLAIN
    },
    OpDef {
        name: LSTM,
        doc: "i = f(x·Wiᵀ + h·Riᵀ + pi∘c + wbi + rbi), f likewise (or 1 − i with input_forget), g = g(x·Wcᵀ + h·Rcᵀ + \
              wbc + rbc), c = f∘c + i∘g, o = f(x·Woᵀ + h·Roᵀ + po∘c + wbo + rbo) with the new c, h = o∘h(c). f is \
              sigmoid, g and h are tanh. Shapes and attributes as those of `rnn`, with w [D, 4H, I], r [D, 4H, H], b \
              [D, 8H], gates in the order i o f c, c0 as h0, peepholes p [D, 3H] in the order i o f, a third output c, \
              activations f g h per direction.",
        inputs: PORTS,
        outputs: &["y", "h", "c"],
        attrs: &[
            DIRECTION,
            ACTIVATIONS,
            ALPHA,
            BETA,
            CLIP,
            HIDDEN,
            LAYOUT,
            attr("input_forget", || Attr::Bool(false)),
        ],
        infer: |cx| infer(cx, LSTM_CELL),
        eval: |cx| run::eval(cx, LSTM_CELL, &cells::lstm),
        ranges: Some(lengths),
        tolerance: Tolerance::Narrow,
        problems: |rng| problems::problems(LSTM, LSTM_CELL, rng),
        traits: Traits::heavy(gates),
        ..PLAIN
    },
];

/// Products of the weights in each step of each sequence.
fn gates(s: &Shapes<'_>) -> u64 {
    let steps = product(s.dims(0).get(..2).unwrap_or(&[]));
    steps.saturating_mul(s.volume(1).saturating_add(s.volume(2)))
}

/// The activations of an `rnn`, `gru` or `lstm`, direction by direction: plain name (lower case, without underscores),
/// alpha and beta.
pub fn activations(op: &kiln_ir::Op) -> Result<Vec<(&'static str, f64, f64)>, OpError> {
    let kind = match op.id() {
        LSTM => LSTM_CELL,
        GRU => GRU_CELL,
        _ => RNN_CELL,
    };
    Ok(activation::of(op.attrs(), kind)?.iter().map(|a| a.describe()).collect())
}

/// Lengths of sequences: at most the number of steps.
fn lengths(cx: &RangeCx<'_>) -> Result<Vec<IndexRange>, OpError> {
    let steps = usize::from(batch_first(cx.attrs)?);
    Ok(vec![IndexRange::up_to(4, cx.size(0, steps))])
}

/// One direction or two.
fn directions(attrs: &Attrs) -> Result<usize, OpError> {
    Ok(if attrs.str("direction")? == "bidirectional" { 2 } else { 1 })
}

/// Whether the batch comes first.
fn batch_first(attrs: &Attrs) -> Result<bool, OpError> {
    match attrs.int("layout")? {
        n @ (0 | 1) => Ok(n == 1),
        n => Err(OpError::Attr { name: "layout".into(), found: n.to_string(), wanted: "0 or 1".into() }),
    }
}

/// Refuses an input, if present, of another type or other dimensions.
fn check(cx: &InferCx<'_>, i: usize, dims: &[Dim]) -> Result<(), OpError> {
    if !cx.has(i) {
        return Ok(());
    }
    cx.same_dtype(0, i)?;
    crate::util::check_fits(cx, i, dims, false)
        .map_err(|_| cx.bad_shape(i, &format!("[{}]", dims_text(dims))))
}

fn infer(cx: &mut InferCx<'_>, kind: Kind) -> Result<Vec<Fact>, OpError> {
    let dtype = cx.check_dtype(0, is_real, REAL)?;
    cx.check_rank(0, 3)?;
    cx.check_rank(2, 3)?;
    let first = batch_first(cx.attrs)?;
    let dirs = Dim::new(directions(cx.attrs)? as i64);
    activation::of(cx.attrs, kind)?;
    let x = cx.dims(0)?;
    let (steps, batch) = if first { (&x[1], &x[0]) } else { (&x[0], &x[1]) };
    let own = &cx.dims(2)?[2];
    let hidden = match cx.attrs.int("hidden")? {
        0 => own.clone(),
        n if differ(own, &n.into()) => {
            return Err(OpError::Attr {
                name: "hidden".into(),
                found: n.to_string(),
                wanted: format!("0 or {own}, that of r"),
            });
        }
        n => Dim::new(n),
    };
    let times = |n: usize| Dim::new(n as i64) * hidden.clone();
    let state = |d: &Dim| {
        if first { [batch, d, &hidden].map(Dim::clone) } else { [d, batch, &hidden].map(Dim::clone) }
    };
    check(cx, 1, &[dirs.clone(), times(kind.gates), x[2].clone()])?;
    check(cx, 2, &[dirs.clone(), times(kind.gates), hidden.clone()])?;
    check(cx, 3, &[dirs.clone(), times(2 * kind.gates)])?;
    check(cx, 5, &state(&dirs))?;
    check(cx, 6, &state(&dirs))?;
    check(cx, 7, &[dirs.clone(), times(3)])?;
    if cx.has(4) {
        cx.check_dtype(4, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64")?;
        cx.check_shape(4, |d| d.len() == 1 && !differ(&d[0], batch), &format!("[{batch}]"))?;
    }
    let y = if first { [batch, steps, &dirs, &hidden] } else { [steps, &dirs, batch, &hidden] };
    let fact = |dims: &[Dim]| Fact::of(TensorType { dtype, dims: dims.to_vec() });
    let mut out = vec![fact(&y.map(Dim::clone)), fact(&state(&dirs))];
    if kind.cell {
        out.push(fact(&state(&dirs)));
    }
    Ok(out)
}
