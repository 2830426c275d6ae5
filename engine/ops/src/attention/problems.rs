//! Test problems of attention.

use crate::util::REALS;
use kiln_ir::attr::Attrs;
use kiln_ir::dtype::DType;
use kiln_ir::problem::{Problem, Rng, made};
use kiln_ir::tensor::{Elems, Tensor};

/// Sizes of one case: batch, query heads, key heads, queries, keys, past, head size, value size.
#[derive(Clone, Copy)]
struct Case {
    label: &'static str,
    sizes: [usize; 8],
    flat: bool,
    /// Mask shape, with its element type.
    mask: Option<(DType, &'static [usize])>,
    nonpad: bool,
}

const BASE: Case =
    Case { label: "", sizes: [2, 3, 3, 5, 7, 0, 9, 9], flat: false, mask: None, nonpad: false };

const CASES: &[Case] = &[
    Case { label: "odd sizes", ..BASE },
    Case { label: "grouped heads, other value size", sizes: [1, 6, 2, 4, 5, 0, 8, 11], ..BASE },
    Case { label: "3-D, grouped", sizes: [2, 4, 2, 3, 6, 0, 8, 5], flat: true, ..BASE },
    Case { label: "past", sizes: [2, 2, 2, 1, 1, 13, 16, 16], ..BASE },
    Case { label: "bool mask", mask: Some((DType::Bool, &[5, 7])), ..BASE },
    Case { label: "float mask per head", mask: Some((DType::F32, &[2, 3, 5, 7])), ..BASE },
    Case { label: "short mask", mask: Some((DType::F32, &[2, 1, 1, 4])), ..BASE },
    Case { label: "padded keys", nonpad: true, ..BASE },
    Case { label: "no keys", sizes: [1, 2, 2, 3, 0, 0, 4, 4], ..BASE },
    Case { label: "no queries", sizes: [1, 2, 2, 0, 3, 0, 4, 4], ..BASE },
    Case { label: "larger", sizes: [1, 4, 4, 66, 130, 0, 64, 64], ..BASE },
];

pub(crate) fn problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for (n, case) in CASES.iter().enumerate() {
        let types: &[DType] = if n < 4 { &REALS } else { &[DType::F32] };
        for &t in types {
            for (causal, softcap, scale) in [(false, 0.0, 0.0), (true, 0.0, 0.4), (false, 1.5, 0.0)] {
                let heads = if case.flat { [case.sizes[1] as i64, case.sizes[2] as i64] } else { [0, 0] };
                let attrs = Attrs::new()
                    .with("causal", causal)
                    .with("softcap", softcap)
                    .with("scale", scale)
                    .with("q_heads", heads[0])
                    .with("kv_heads", heads[1])
                    .with("softmax_f32", t != DType::F32)
                    .with("qk_output", n as i64 % 4);
                let label = format!("{} {t} causal={causal} softcap={softcap}", case.label);
                out.push(Problem::of(&label, "attention", attrs, inputs(case, t, rng)));
            }
        }
    }
    for zeros in ["", "zero_nan", "zero_empty"] {
        out.push(rows_without_keys(rng, zeros));
    }
    out.extend(positioned(rng));
    out.extend(hidden(rng));
    out
}

/// Keys behind a number instead of −∞, in rows of which none, some and all are hidden; the same by sums with masks in f32.
fn hidden(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    let keys = 20;
    let bits = |row: i64, key: i64| i64::from(row > 1 || (row == 1 && key % 3 != 0));
    for t in REALS {
        for number in [-1e4, -65504.0, f64::from(f32::MIN), 0.5] {
            for softcap in [0.0, 1.5] {
                let qkv = [6, keys, keys].map(|len| Some(rng.tensor(t, &[2, 2, len as usize, 8])));
                let all = || (0..6).flat_map(|i| (0..keys).map(move |j| bits(i, j)));
                let bools = Tensor::from_elems(DType::Bool, &[6, keys as usize], &Elems::I(all().collect()));
                let attrs = Attrs::new().with("softcap", softcap);
                let own = attrs.clone().with("hidden_score", number).with("qk_output", 2i64);
                let label = format!("hidden behind {number} {t} softcap={softcap}");
                let ins = qkv.iter().cloned().chain([Some(made(bools))]).collect::<Vec<_>>();
                out.push(Problem::of(&label, "attention", own, ins));
                // A row that sums hide alone depends on their rounding: each row sees its first key.
                if number < -1e30 {
                    let seen = |(i, b)| if b == 0 && i as i64 % keys > 0 { -1e38 } else { 0.0 };
                    let added = all().enumerate().map(seen).collect();
                    let floats = Tensor::from_elems(DType::F32, &[6, keys as usize], &Elems::F(added));
                    let ins = qkv.into_iter().chain([Some(made(floats))]).collect::<Vec<_>>();
                    out.push(Problem::of(&format!("{label}, added in f32"), "attention", attrs, ins));
                }
            }
        }
    }
    out
}

/// Queries that see keys by their position: windows, and diagonals that begin where lengths tell.
fn positioned(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for (what, case) in [
        ("plain", Case { sizes: [2, 4, 2, 6, 9, 0, 8, 8], ..BASE }),
        ("past", Case { sizes: [2, 2, 2, 3, 3, 8, 8, 8], ..BASE }),
        ("lengths", Case { sizes: [3, 2, 1, 4, 9, 0, 8, 8], nonpad: true, ..BASE }),
        ("lengths, bool mask", Case { mask: Some((DType::Bool, &[5, 7])), nonpad: true, ..BASE }),
    ] {
        for (causal, left, right) in
            [(true, -1i64, -1i64), (true, 2, -1), (false, 1, 2), (false, -1, 0), (false, 0, -1)]
        {
            let attrs = Attrs::new()
                .with("causal", causal)
                .with("window_left", left)
                .with("window_right", right)
                .with("softcap", if left == 2 { 1.5 } else { 0.0 })
                .with("qk_output", if causal { 3i64 } else { 2 })
                .with("zero_empty", true);
            let label = format!("positions, {what} causal={causal} window={left},{right}");
            out.push(Problem::of(&label, "attention", attrs, inputs(&case, DType::F32, rng)));
        }
    }
    out
}

/// Rows of which no key takes part give NaN, or zeros; the others do not.
fn rows_without_keys(rng: &mut Rng, zeros: &str) -> Problem {
    let mask =
        made(Tensor::from_elems(DType::Bool, &[3, 4], &Elems::I(vec![0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1])));
    let [q, k, v] = [3, 4, 4].map(|len| Some(rng.tensor(DType::F32, &[1, 2, len, 5])));
    let mut attrs = Attrs::new().with("qk_output", 3i64);
    if !zeros.is_empty() {
        attrs.set(zeros, true);
    }
    Problem::of(&format!("a row without keys, {zeros}"), "attention", attrs, [q, k, v, Some(mask)])
}

fn inputs(case: &Case, t: DType, rng: &mut Rng) -> Vec<Option<Tensor>> {
    let [b, hq, hk, sq, sk, past, d, dv] = case.sizes;
    let shape = |h, s, d| if case.flat { vec![b, s, h * d] } else { vec![b, h, s, d] };
    let mut ins =
        [shape(hq, sq, d), shape(hk, sk, d), shape(hk, sk, dv)].map(|s| Some(rng.tensor(t, &s))).to_vec();
    // Key 0 takes part in every row, as rows without keys are NaN.
    ins.push(case.mask.map(|(mt, shape)| match mt {
        DType::Bool => {
            let keys = shape.last().copied().unwrap_or(1);
            let n: usize = shape.iter().product();
            let v: Vec<i64> = (0..n).map(|i| if i % keys == 0 { 1 } else { rng.int(0, 1) }).collect();
            made(Tensor::from_elems(DType::Bool, shape, &Elems::I(v)))
        }
        _ => rng.tensor(t, shape),
    }));
    let cache = (past > 0).then(|| [rng.tensor(t, &[b, hk, past, d]), rng.tensor(t, &[b, hk, past, dv])]);
    let [k, v] = cache.map_or([None, None], |c| c.map(Some));
    ins.extend([k, v]);
    ins.push(case.nonpad.then(|| {
        let n: Vec<i64> = (0..b).map(|_| rng.int(1, sk as i64)).collect();
        rng.i64s(&[b], &n)
    }));
    ins
}
