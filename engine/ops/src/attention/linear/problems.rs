//! Test problems of linear attention.

use crate::util::REALS;
use kiln_ir::attr::Attrs;
use kiln_ir::dtype::DType;
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};

/// Batch, steps, query heads, key heads, size of keys, size of values.
type Sizes = [usize; 6];

/// Label, sizes, is there a past state, is the decay a number a row, is beta a number a head.
const CASES: &[(&str, Sizes, bool, bool, bool)] = &[
    ("odd sizes", [2, 5, 3, 3, 7, 9], true, true, true),
    ("no past, numbers shared", [2, 4, 4, 4, 8, 8], false, false, false),
    ("grouped heads", [1, 6, 6, 2, 5, 11], true, false, true),
    ("one key head", [2, 3, 4, 1, 33, 10], false, true, false),
    ("one step", [2, 1, 4, 2, 64, 20], true, true, true),
    ("keys of one element", [1, 3, 2, 2, 1, 3], true, true, true),
    ("long keys", [1, 3, 2, 1, 130, 17], true, true, true),
    ("longer keys than a warp keeps", [1, 2, 2, 1, 261, 5], true, false, true),
    ("no steps", [2, 0, 2, 2, 4, 5], true, true, true),
    ("empty batch", [0, 3, 2, 2, 4, 5], true, true, true),
    ("no values", [2, 3, 2, 2, 4, 0], true, true, true),
];

pub(super) fn problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for &(label, sizes, past, by_row, by_head) in CASES {
        for t in REALS {
            for rule in ["linear", "gated", "delta", "gated_delta"] {
                let attrs = attrs(sizes, rule);
                let ins = inputs(sizes, rule, t, past.then_some(t), (by_row, by_head), rng);
                out.push(Problem::of(&format!("{label} {t} {rule}"), "linear_attention", attrs, ins));
            }
        }
    }
    // The type of the state is its own.
    for (t, state) in [(DType::F16, DType::F32), (DType::BF16, DType::F32), (DType::F32, DType::F16)] {
        let sizes = [2, 4, 4, 2, 16, 12];
        let ins = inputs(sizes, "gated_delta", t, Some(state), (true, true), rng);
        let attrs = attrs(sizes, "gated_delta").with("scale", 0.3);
        out.push(Problem::of(&format!("{t} with a state of {state}"), "linear_attention", attrs, ins));
    }
    out.extend(edges(rng));
    out
}

fn attrs([_, _, q_heads, kv_heads, ..]: Sizes, rule: &str) -> Attrs {
    Attrs::new().with("q_heads", q_heads as i64).with("kv_heads", kv_heads as i64).with("rule", rule)
}

fn inputs(
    [batch, steps, q_heads, kv_heads, dk, dv]: Sizes,
    rule: &str,
    t: DType,
    past: Option<DType>,
    (by_row, by_head): (bool, bool),
    rng: &mut Rng,
) -> Vec<Option<Tensor>> {
    // Keys are about as long as 1, as delta rules want them: else states grow from step to step.
    let most = (3.0 / dk as f64).sqrt();
    let q = rng.tensor_in(t, &[batch, steps, q_heads * dk], -1.0, 1.0, 1);
    let k = rng.tensor_in(t, &[batch, steps, kv_heads * dk], -most, most, 1);
    let v = rng.tensor_in(t, &[batch, steps, kv_heads * dv], -2.0, 2.0, 1);
    let past = past.map(|t| rng.tensor_in(t, &[batch, kv_heads, dk, dv], -1.0, 1.0, 1));
    let row = if by_row { dk } else { 1 };
    let decay = rng.tensor_in(t, &[batch, steps, kv_heads * row], -2.0, 0.0, 1);
    let beta = rng.tensor_in(t, &[batch, steps, if by_head { kv_heads } else { 1 }], 0.0, 1.0, 1);
    let gated = rule.starts_with("gated").then_some(decay);
    let delta = rule.ends_with("delta").then_some(beta);
    vec![Some(q), Some(k), Some(v), past, gated, delta]
}

/// A decay of −∞ forgets all, one of 0 nothing; what is not a number stays in its column.
fn edges(rng: &mut Rng) -> Vec<Problem> {
    let sizes = [1, 4, 2, 1, 3, 5];
    let mut ins = inputs(sizes, "gated", DType::F32, Some(DType::F32), (false, true), rng);
    let decay = [0.0, f64::NEG_INFINITY, -1e30, 0.0];
    ins[4] = Tensor::from_elems(DType::F32, &[1, 4, 1], &Elems::F(decay.to_vec()));
    let mut values = rng.tensor(DType::F32, &[1, 4, 5]).to_f64();
    (values[11], values[12]) = (f64::NAN, f64::INFINITY);
    ins[2] = Tensor::from_elems(DType::F32, &[1, 4, 5], &Elems::F(values));
    let k = rng.tensor_in(DType::F32, &[1, 4, 3], 0.1, 1.0, 1);
    let q = rng.tensor_in(DType::F32, &[1, 4, 6], 0.1, 1.0, 1);
    (ins[0], ins[1]) = (Some(q), Some(k));
    vec![Problem::of("decay to nothing, NaN", "linear_attention", attrs(sizes, "gated"), ins)]
}
