//! Test problems of recurrences.

use super::Kind;
use super::{GRU, LSTM};
use crate::util::REALS;
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dtype::DType;
use kiln_ir::op::OpName;
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::Tensor;

/// Steps, batch, input size, hidden size.
const SIZES: &[(&str, [usize; 4])] = &[
    ("odd sizes", [5, 3, 7, 9]),
    ("one step", [1, 2, 4, 5]),
    ("no steps", [0, 2, 4, 5]),
    ("empty batch", [3, 0, 4, 5]),
    ("larger", [9, 2, 33, 34]),
];

pub(crate) fn problems(name: OpName, kind: Kind, rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for &(label, sizes) in SIZES {
        for t in REALS {
            for direction in ["forward", "reverse", "bidirectional"] {
                for (full, layout) in [(false, 0i64), (true, 0), (true, 1)] {
                    let attrs = Attrs::new().with("direction", direction).with("layout", layout);
                    let attrs = if full { variant(name, kind, attrs) } else { attrs };
                    let ins = inputs(kind, sizes, t, full, layout == 1, direction, rng);
                    let label = format!("{label} {t} {direction} layout={layout} all inputs={full}");
                    out.push(Problem::of(&label, name, attrs, ins));
                }
            }
        }
    }
    out
}

/// Attributes that are not defaults.
fn variant(name: OpName, kind: Kind, attrs: Attrs) -> Attrs {
    let per = ["hard_sigmoid", "leaky_relu", "scaled_tanh"];
    let dirs = if attrs.str("direction") == Ok("bidirectional") { 2 } else { 1 };
    let names: Vec<String> =
        (0..dirs).flat_map(|_| &per[..kind.activations.len()]).map(|s| s.to_string()).collect();
    let attrs =
        attrs.with("activations", Attr::Strs(names)).with("clip", 0.9).with("alpha", vec![0.3, 0.1, 1.5]);
    match name {
        GRU => attrs.with("linear_before_reset", true),
        LSTM => attrs.with("input_forget", true),
        _ => attrs,
    }
}

fn inputs(
    kind: Kind,
    [steps, batch, size, hidden]: [usize; 4],
    t: DType,
    full: bool,
    batch_first: bool,
    direction: &str,
    rng: &mut Rng,
) -> Vec<Option<Tensor>> {
    let dirs = if direction == "bidirectional" { 2 } else { 1 };
    let rows = kind.gates * hidden;
    let state = if batch_first { [batch, dirs, hidden] } else { [dirs, batch, hidden] };
    let x = if batch_first { [batch, steps, size] } else { [steps, batch, size] };
    // Products with more states would grow from step to step, and with them what a state's rounding changes.
    let most = 0.6 * (9.0 / hidden as f64).sqrt().min(1.0);
    let weights = rng.tensor_in(t, &[dirs, rows, hidden], -most, most, 1);
    let mut small = |shape: &[usize]| Some(rng.tensor_in(t, shape, -0.6, 0.6, 1));
    let mut ins = vec![small(&x), small(&[dirs, rows, size]), Some(weights)];
    if full {
        let (b, h, c, p) =
            (small(&[dirs, 2 * rows]), small(&state), small(&state), small(&[dirs, 3 * hidden]));
        let lens: Vec<i64> = (0..batch).map(|_| rng.int(0, steps as i64)).collect();
        ins.extend([b, Some(rng.i64s(&[batch], &lens)), h]);
        if kind.cell {
            ins.extend([c, p]);
        }
    }
    ins
}
