//! Problems of the suite: those of all operators, and integers that need more than 32 bits.

use kiln_ir::problem::{Problem, Rng, made};
use kiln_ir::{Attr, Attrs, DType, Elems, Tensor};

/// The seed that all problems are made from.
const SEED: u64 = 11;

/// Operators that the suite has no problem for, with the reason.
pub const UNTESTED: &[(&str, &str)] = &[
    ("if", "has bodies; the tests of control flow run it"),
    ("loop", "has bodies; the tests of control flow run it"),
    ("sparse_pack", "is computed at build only; the tests of its file have its problems"),
    ("sparse_prune", "is computed at build only; the tests of its file have its problems"),
    ("plugin", "is what a plug-in makes of it; tests/layers has its problems"),
];

/// All problems, operator by operator.
pub fn problems() -> Vec<Problem> {
    let own = kiln_ops::all().flat_map(|d| (d.problems)(&mut Rng::new(SEED)));
    let holds = made(Tensor::from_elems(DType::Bool, &[3], &Elems::I(vec![1; 3])));
    let holds = [of("holds", "assertion", Attrs::new(), vec![holds])];
    own.chain(wide()).chain(super::random::problems()).chain(holds).collect()
}

/// The element type that a problem is about: of its first input that is not a size or axis, else of its first output.
pub fn dtype_of(p: &Problem) -> DType {
    let data = |i: usize| p.op.port(i).is_none_or(|port| !port.host);
    let input = p.inputs.iter().enumerate().filter(|(i, _)| data(*i)).find_map(|(_, t)| t.as_ref());
    let facts: Vec<_> = p.inputs.iter().map(|t| t.clone().map(kiln_ir::Fact::constant)).collect();
    let output = || p.op.infer(&facts, "").ok()?.first().map(|f| f.ty.dtype);
    input.map(Tensor::dtype).or_else(output).unwrap_or(DType::Bool)
}

const BIG: i64 = 1 << 31;
const A: [i64; 6] = [BIG, -BIG - 1, 5 * BIG + 3, i64::MAX, i64::MIN + 1, 3];
const B: [i64; 6] = [BIG + 7, 3, -BIG, 2, -2, 9 * BIG];

/// Integers beyond 32 bits, as data, in operators that calculate with them, compare them or move them.
fn wide() -> Vec<Problem> {
    let big = |op: &str, attrs, inputs| of("beyond 32 bits", op, attrs, inputs);
    let two =
        ["add", "sub", "mul", "div", "floor_div", "rem", "mod", "min", "max", "bit_and", "bit_or", "bit_xor"];
    let compared = ["equal", "greater", "greater_equal", "less", "less_equal"];
    let binary = two.into_iter().chain(compared);
    let mut all: Vec<Problem> =
        binary.map(|op| big(op, Attrs::new(), vec![ints(&[6], &A), ints(&[6], &B)])).collect();
    for op in ["neg", "abs", "sign", "bit_not", "identity", "relu", "clip"] {
        all.push(big(op, Attrs::new(), vec![ints(&[6], &A)]));
    }
    for op in ["shl", "shr"] {
        all.push(big(op, Attrs::new(), vec![ints(&[3], &[3, -1, 5 * BIG]), ints(&[3], &[40, 35, 33])]));
    }
    for op in ["sum", "max", "min", "mean"] {
        let attrs = Attrs::new().with("op", op);
        all.push(big("reduce", attrs, vec![ints(&[2, 3], &[BIG, 1, 2, -BIG, -BIG, -5]), ints(&[1], &[1])]));
    }
    all.push(big(
        "reduce",
        Attrs::new().with("op", "prod"),
        vec![ints(&[1, 2], &[BIG, 3]), ints(&[1], &[1])],
    ));
    all.push(big("cumulative", Attrs::new(), vec![ints(&[3], &[BIG, BIG, -1]), ints(&[], &[0])]));
    all.push(big("argmax", Attrs::new(), vec![ints(&[6], &A)]));
    all.push(big("topk", Attrs::new(), vec![ints(&[6], &A), ints(&[1], &[3])]));
    all.push(big("unique", Attrs::new(), vec![ints(&[6], &[BIG, 0, BIG, 1, 2 * BIG, 0])]));
    all.push(big("cast", to(DType::F32), vec![ints(&[6], &A)]));
    all.push(big("cast", to(DType::I32), vec![ints(&[3], &[BIG - 1, -BIG, 7])]));
    all.push(big("cast", to(DType::Bool), vec![ints(&[3], &[2 * BIG, 0, -4 * BIG])]));
    let floats = made(Tensor::f32(&[3], &[3e9, -5e12, 9e15]));
    all.push(big("cast", to(DType::I64), vec![floats]));
    let condition = made(Tensor::from_elems(DType::Bool, &[6], &Elems::I(vec![1, 0, 1, 0, 0, 1])));
    all.push(big("select", Attrs::new(), vec![condition, ints(&[6], &A), ints(&[6], &B)]));
    let add = Attrs::new().with("axis", 0).with("reduction", "add");
    let sum = vec![ints(&[3], &[BIG, 1, -BIG]), ints(&[2], &[0, 0]), ints(&[2], &[BIG, 1])];
    all.push(big("scatter_elements", add, sum));
    all.push(big("matmul", Attrs::new(), vec![ints(&[1, 2], &[BIG, -1]), ints(&[2, 1], &[3, BIG])]));
    all
}

/// An i64 tensor.
pub fn ints(shape: &[usize], v: &[i64]) -> Tensor {
    made(Tensor::i64(shape, v))
}

fn to(dtype: DType) -> Attrs {
    Attrs::new().with("to", Attr::DType(dtype))
}

/// A problem that the oracle takes.
fn of(label: &str, op: &str, attrs: Attrs, inputs: Vec<Tensor>) -> Problem {
    let p = Problem::of(label, op, attrs, inputs.into_iter().map(Some));
    assert!(p.op.eval(&p.inputs).is_ok(), "{op} ({label}): {:?}", p.op.eval(&p.inputs).err());
    p
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_integers_reach_the_operators_that_take_them() {
        let names: std::collections::BTreeSet<_> = wide().iter().map(|p| p.op.name()).collect();
        for op in ["add", "mul", "less", "neg", "reduce", "cumulative", "cast", "select", "scatter_elements"]
        {
            assert!(names.contains(op), "{op} is not among {names:?}");
        }
    }

    #[test]
    fn every_operator_has_problems_or_is_listed() {
        let with: std::collections::BTreeSet<_> = problems().iter().map(|p| p.op.name()).collect();
        for d in kiln_ops::all() {
            let listed = UNTESTED.iter().any(|(op, _)| *op == d.name.as_str());
            assert!(with.contains(d.name.as_str()) != listed, "{}, listed: {listed}", d.name);
        }
    }

    #[test]
    fn sizes_and_axes_do_not_count_as_data() {
        let p = problems();
        let range = p.iter().find(|p| p.op.name() == "window").unwrap();
        assert!(dtype_of(range).is_float());
        let cast = p.iter().find(|p| p.op.name() == "cast" && p.label == "beyond 32 bits").unwrap();
        assert_eq!(dtype_of(cast), DType::I64);
    }
}
