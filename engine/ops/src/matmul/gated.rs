//! Gated products: of two products with one input, an activation of one times the other (GLU, SwiGLU, GEGLU), in one step.

use crate::util::PLAIN;
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ};
use kiln_ir::op::{OpDef, Roles, Tolerance, Traits, attr, choice, input, optional};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::stop::checkpoint;
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    GATED_MATMUL = "gated_matmul",
}

/// Columns of W that follow each other: so many of gates, then the same number of values.
pub const SIDE: usize = 32;

/// Names of activations of either half, from those of plain operators.
pub const ACTIVATIONS: &[&str] = &["none", "sigmoid", "swish", "gelu", "gelu_tanh", "relu", "tanh"];

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: GATED_MATMUL,
    doc: "gate(G)·value(V) of two halves of one matrix product. W [K, 2N], or [2N, K] with trans_b, has 32 columns of gates, then the 32 \
          columns of values that belong to them, and so on: N is a multiple of 32. X [.., M, K] gives G and V [.., M, N], with a \
          bias of 2N elements in the order of W. `normalized`, rows of X are normalized as in `norm_matmul`: by mean and \
          variance with `sums`, the sums of W over K, else by the mean of squares. Computed in f32 at least, rounded once.",
    inputs: &[input("x"), input("w"), optional("bias"), optional("sums")],
    outputs: &["y"],
    attrs: &[
        attr("trans_b", || Attr::Bool(false)),
        choice("gate", || "sigmoid".into(), ACTIVATIONS),
        choice("value", || "none".into(), ACTIVATIONS),
        attr("normalized", || Attr::Bool(false)),
        attr("epsilon", || Attr::Float(1e-5)),
    ],
    infer,
    eval,
    tolerance: Tolerance::Conditioned,
    problems,
    traits: Traits::heavy(|s| s.made(0).saturating_mul(s.from_last(0, 0)).saturating_mul(2)),
    roles: Roles { absorbs_pointwise: true, ..Roles::NONE },
    ..PLAIN
}];

/// An activation of this name; `None` for other names.
pub fn activation(name: &str) -> Option<fn(f64) -> f64> {
    fn sigmoid(x: f64) -> f64 {
        1.0 / (1.0 + libm::exp(-x))
    }
    Some(match name {
        "none" => |x| x,
        "sigmoid" => sigmoid,
        "swish" => |x| x * sigmoid(x),
        "gelu" => |x| x / 2.0 * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        "gelu_tanh" => |x| {
            let scale = (2.0 / std::f64::consts::PI).sqrt();
            x / 2.0 * (1.0 + libm::tanh(scale * (x + 0.044715 * x * x * x)))
        },
        "relu" => |x| if x < 0.0 { 0.0 } else { x },
        "tanh" => libm::tanh,
        _ => return None,
    })
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let float = |t: DType| matches!(t, DType::F16 | DType::BF16 | DType::F32);
    cx.check_dtype(0, float, "f16, bf16 or f32")?;
    cx.same_dtype(0, 1)?;
    cx.check_shape(0, |d| d.len() >= 2, "at least two dimensions")?;
    cx.check_rank(1, 2)?;
    let mut dims = cx.dims(0)?.to_vec();
    let depth = dims.pop().unwrap_or_else(|| Dim::new(1));
    let [rows, columns] = [0, 1].map(|i| cx.dims(1).map(|d| d[i].clone()));
    let (rows, columns) = (rows?, columns?);
    let (rows, columns) = if cx.attrs.bool("trans_b")? { (columns, rows) } else { (rows, columns) };
    if differ(&rows, &depth) {
        return Err(cx.bad_shape(1, &format!("a depth of {depth}")));
    }
    let pairs = columns.as_const().filter(|n| n % (2 * SIDE as i64) == 0).map(|n| n / 2);
    let Some(pairs) = pairs else {
        return Err(
            cx.bad_shape(1, &format!("a constant number of columns that is a multiple of {}", 2 * SIDE))
        );
    };
    let fits = |d: &[Dim]| d.len() == 1 && !differ(&d[0], &columns);
    if cx.has(2) {
        cx.same_dtype(0, 2)?;
        cx.check_shape(2, fits, "an element for each column")?;
    }
    if cx.has(3) {
        if !cx.attrs.bool("normalized")? {
            return Err(OpError::Unsupported("sums of columns without `normalized`".into()));
        }
        cx.check_dtype(3, |t| t == DType::F32, "f32")?;
        cx.check_shape(3, fits, "an element for each column")?;
    }
    dims.push(Dim::new(pairs));
    Ok(vec![Fact::of(TensorType { dtype: cx.ty(0)?.dtype, dims })])
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let (x, w, attrs) = (cx.input(0)?, cx.input(1)?, cx.attrs());
    let (trans, epsilon) = (attrs.bool("trans_b")?, attrs.float("epsilon")?);
    let normalized = attrs.bool("normalized")?;
    let unknown = || OpError::Unsupported("an activation of another name".into());
    let gate = activation(attrs.str("gate")?).ok_or_else(unknown)?;
    let value = activation(attrs.str("value")?).ok_or_else(unknown)?;
    let depth = x.shape().last().copied().unwrap_or(0);
    let n = w.shape()[usize::from(!trans)];
    let (v, m) = (x.to_f64(), w.to_f64());
    let [bias, sums] = [2, 3].map(|i| cx.get(i).map(Tensor::to_f64));
    let at = |k: usize, j: usize| if trans { j * depth + k } else { k * n + j };
    let rows: usize = x.shape().iter().rev().skip(1).product();
    let mut y = Vec::with_capacity(rows.saturating_mul(n / 2));
    for row in 0..rows {
        let own = &v[row * depth..][..depth];
        let mean_of = |f: fn(f64) -> f64| own.iter().map(|&x| f(x)).sum::<f64>() / depth as f64;
        let mean = if sums.is_some() { mean_of(|x| x) } else { 0.0 };
        let by = if normalized { (mean_of(|x| x * x) - mean * mean + epsilon).sqrt() } else { 1.0 };
        let half = |j: usize| {
            let product: f64 = own.iter().enumerate().map(|(k, x)| x * m[at(k, j)]).sum();
            let product = (product - mean * sums.as_ref().map_or(0.0, |s| s[j])) / by;
            product + bias.as_ref().map_or(0.0, |b| b[j])
        };
        for j in 0..n / 2 {
            checkpoint();
            let first = j / SIDE * 2 * SIDE + j % SIDE;
            y.push(gate(half(first)) * value(half(first + SIDE)));
        }
    }
    Ok(vec![cx.make(0, &cx.out_shape(0)?, Elems::F(y))?])
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    /// Name, X, N, trans_b, gate, value, bias, normalized, with sums.
    type Case = (&'static str, &'static [usize], usize, bool, [&'static str; 2], [bool; 3]);
    let cases: &[Case] = &[
        ("SwiGLU", &[5, 64], 32, false, ["swish", "none"], [false, false, false]),
        ("SwiGLU of normalized rows", &[9, 256], 96, true, ["swish", "none"], [false, true, false]),
        ("GEGLU", &[2, 3, 128], 64, true, ["gelu", "none"], [true, false, false]),
        ("GEGLU by tanh, normalized", &[130, 192], 160, false, ["gelu_tanh", "none"], [true, true, true]),
        ("GLU", &[70, 72], 64, true, ["sigmoid", "none"], [true, false, false]),
        ("both halves", &[33, 64], 32, false, ["sigmoid", "tanh"], [true, false, false]),
        ("bilinear, a long depth", &[3, 1024], 64, true, ["none", "none"], [false, true, true]),
        ("ReGLU, many rows", &[300, 64], 128, false, ["relu", "none"], [false, false, false]),
        ("an odd depth", &[4, 7], 32, false, ["swish", "none"], [true, true, false]),
        ("a row", &[1, 512], 96, true, ["swish", "none"], [true, true, true]),
        ("no row", &[0, 64], 32, true, ["swish", "none"], [true, false, false]),
        ("no column", &[4, 64], 0, true, ["swish", "none"], [false, false, false]),
    ];
    let mut out = Vec::new();
    for &(label, shape, n, trans, [gate, value], [with_bias, normalized, with_sums]) in cases {
        for t in [DType::F32, DType::F16, DType::BF16] {
            let (k, columns) = (shape[shape.len() - 1], 2 * n);
            // Sums stay where activations are not the small difference of large numbers.
            let most = 0.8 / (k as f64).sqrt();
            let x = rng.tensor_in(t, shape, -1.0, 1.0, 0);
            let w = rng.tensor_in(t, &if trans { [columns, k] } else { [k, columns] }, -most, most, 0);
            let at = |i: usize, j: usize| if trans { j * k + i } else { i * columns + j };
            let v = w.to_f64();
            let sums = (0..columns).map(|j| (0..k).map(|i| v[at(i, j)]).sum()).collect();
            let sums = Tensor::from_elems(DType::F32, &[columns], &Elems::F(sums)).filter(|_| with_sums);
            let bias = with_bias.then(|| rng.tensor_in(t, &[columns], -1.0, 1.0, 0));
            let attrs = Attrs::new().with("trans_b", trans).with("gate", gate).with("value", value);
            let attrs = attrs.with("normalized", normalized).with("epsilon", 1e-3);
            out.push(Problem::of(
                &format!("{label} {t}"),
                GATED_MATMUL,
                attrs,
                [Some(x), Some(w), bias, sums],
            ));
        }
    }
    out
}
