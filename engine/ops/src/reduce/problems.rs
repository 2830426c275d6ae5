//! Test problems of `reduce`.

use super::ReduceOp;
use kiln_ir::attr::Attrs;
use kiln_ir::dtype::DType;
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};

struct Case {
    label: &'static str,
    shape: &'static [usize],
    axes: Option<&'static [i64]>,
    keep: bool,
    noop: bool,
}

const fn case(
    label: &'static str,
    shape: &'static [usize],
    axes: Option<&'static [i64]>,
    keep: bool,
) -> Case {
    Case { label, shape, axes, keep, noop: false }
}

const CASES: &[Case] = &[
    case("odd sizes, middle axis", &[3, 5, 7], Some(&[1]), true),
    case("last axis", &[4, 33], Some(&[-1]), false),
    case("first and last", &[3, 4, 5], Some(&[2, 0]), true),
    case("all axes, dropped", &[2, 3, 4], None, false),
    case("empty list of axes", &[2, 3], Some(&[]), true),
    Case { label: "no axes", shape: &[2, 3], axes: None, keep: true, noop: true },
    case("scalar", &[], None, true),
    case("one long row", &[1, 3001], Some(&[1]), true),
    case("batch 0", &[0, 3], Some(&[1]), true),
    case("empty volume", &[2, 0, 3], Some(&[1]), true),
    case("five dimensions", &[2, 3, 2, 3, 2], Some(&[1, -1]), false),
];

/// Reductions of many elements, for operations whose results stay in range.
const LARGE: &[Case] = &[
    case("few long rows", &[3, 70_001], Some(&[-1]), false),
    case("a long row of vectors", &[1, 65_536], Some(&[-1]), false),
    case("many rows, odd", &[203, 196], Some(&[-1]), false),
    case("short rows", &[1001, 9], Some(&[-1]), false),
    case("long columns, odd", &[15_001, 3], Some(&[0]), false),
    case("long columns of vectors", &[2100, 40], Some(&[0]), true),
    case("middle axes of vectors", &[5, 50, 4, 16], Some(&[1, 2]), false),
    case("axes apart", &[40, 6, 48], Some(&[0, 2]), true),
    case("axes apart, no heads", &[0, 3, 5], Some(&[0, 2]), false),
    case("axes apart, nothing reduced", &[4, 3, 0], Some(&[0, 2]), false),
    case("axes apart, odd", &[30, 5, 7, 9], Some(&[0, 2]), false),
];

/// Values for which every reduction is well defined: near 1 for products, positive for logarithms.
fn values(rng: &mut Rng, op: ReduceOp, dtype: DType, shape: &[usize]) -> Tensor {
    match op {
        ReduceOp::Prod => rng.tensor_in(dtype, shape, 0.9, 1.1, 1),
        ReduceOp::LogSum => {
            let t = rng.tensor_in(dtype, shape, 0.1, 4.0, 9);
            if dtype.is_float() { t } else { positive(&t).unwrap_or(t) }
        }
        _ => rng.tensor(dtype, shape),
    }
}

fn positive(t: &Tensor) -> Option<Tensor> {
    let v = t.to_i64().into_iter().map(|x| x.abs() + 1).collect();
    Tensor::from_elems(t.dtype(), t.shape(), &Elems::I(v))
}

fn make(rng: &mut Rng, op: ReduceOp, name: &str, c: &Case, dtype: DType) -> Problem {
    let x = values(rng, op, dtype, c.shape);
    problem(rng, name, c, x)
}

/// A case of many elements. Those of sums are positive: a sum that is small beside its numbers shows no wrong factor.
fn make_large(rng: &mut Rng, op: ReduceOp, name: &str, c: &Case, dtype: DType) -> Problem {
    let x = match op {
        ReduceOp::Sum | ReduceOp::Mean if dtype.is_float() => rng.tensor_in(dtype, c.shape, 0.1, 0.5, 1),
        _ => values(rng, op, dtype, c.shape),
    };
    problem(rng, name, c, x)
}

fn problem(rng: &mut Rng, name: &str, c: &Case, x: Tensor) -> Problem {
    let attrs = Attrs::new().with("op", name).with("keep_dims", c.keep).with("noop_with_empty_axes", c.noop);
    let axes = c.axes.map(|a| rng.i64s(&[a.len()], a));
    let dtype = x.dtype();
    Problem::of(&format!("{name} {} {dtype}", c.label), "reduce", attrs, [Some(x), axes])
}

/// Every reduction on every case; half types and integers on some.
pub fn problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for (name, op) in ReduceOp::NAMES.iter().zip(ReduceOp::ALL) {
        out.extend(CASES.iter().map(|c| make(rng, op, name, c, DType::F32)));
        for dtype in [DType::F16, DType::BF16, DType::I32, DType::I64, DType::I8, DType::U8] {
            out.extend(CASES[..3].iter().map(|c| make(rng, op, name, c, dtype)));
        }
    }
    for name in ["sum", "mean", "max", "l2", "log_sum_exp"] {
        let Some((_, op)) = ReduceOp::NAMES.iter().zip(ReduceOp::ALL).find(|(n, _)| **n == name) else {
            continue;
        };
        for dtype in [DType::F32, DType::F16, DType::I32] {
            out.extend(LARGE.iter().map(|c| make_large(rng, op, name, c, dtype)));
        }
    }
    for name in ["max", "min"] {
        let attrs = Attrs::new().with("op", name);
        out.push(Problem::of(
            &format!("{name} NaN"),
            "reduce",
            attrs.clone(),
            [Some(rng.edge_floats(DType::F32, 12))],
        ));
        out.push(Problem::of(
            &format!("{name} bool"),
            "reduce",
            attrs,
            [Some(rng.tensor(DType::Bool, &[3, 4]))],
        ));
    }
    out
}
