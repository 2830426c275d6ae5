//! `select`: one of two tensors, element by element.

use crate::pointwise;
use crate::util::{PLAIN, broadcast_strides, for_each_index, offset};
use kiln_ir::attr::Attrs;
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::expr::{Builder, Expr};
use kiln_ir::infer::{Fact, InferCx};
use kiln_ir::op::{OpDef, input};
use kiln_ir::problem::{Problem, Rng};

kiln_ir::op_names! {
    SELECT = "select",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: SELECT,
    doc: "a where cond is true, b elsewhere; all three broadcast. cond is bool, a and b are of one type.",
    inputs: &[input("cond"), input("a"), input("b")],
    infer,
    eval: pointwise::eval,
    ranges: None,
    expr: Some(expr),
    problems,
    ..PLAIN
}];

fn expr(_: &Attrs, t: &[DType]) -> Result<Expr, OpError> {
    crate::pointwise::unary::check(0, t, &[DType::Bool])?;
    if t[1] != t[2] {
        return Err(OpError::DType { input: 2, found: t[2], wanted: format!("{}, as input 1 is", t[1]) });
    }
    let mut b = Builder::new(t);
    let (c, x, y) = (b.load(0), b.load(1), b.load(2));
    let r = b.select(c, x, y);
    Ok(b.finish(r, t[1]))
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let mut out = pointwise::infer(cx)?;
    if let Some(v) = follow(cx, &out[0]) {
        out[0] = Fact::contents(out[0].ty.clone(), v);
    }
    Ok(out)
}

/// The contents of the result where both branches are followed: those that a constant condition picks, else numbers that the
/// device knows, bounded by the greater branch. A symbol of the device is at least 0, so both branches must be.
fn follow(cx: &InferCx<'_>, out: &Fact) -> Option<Vec<Dim>> {
    matches!(out.ty.dtype, DType::I32 | DType::I64).then_some(())?;
    let (cond, a, b) = (cx.ints(0), cx.contents(1)?, cx.contents(2)?);
    let natural = |d: &Dim| d.interval(&|_| None).lo().is_some_and(|n| n >= 0);
    if cond.is_none() && !a.iter().chain(&b).all(natural) {
        return None;
    }
    let shape = out.ty.static_dims()?;
    let strides = (0..3)
        .map(|i| Some(broadcast_strides(&cx.fact(i)?.ty.static_dims()?, &shape)))
        .collect::<Option<Vec<_>>>()?;
    out.ty.static_volume().filter(|&n| n <= kiln_ir::infer::MAX_CONTENT)?;
    let mut v = Vec::new();
    for_each_index(&shape, |at| {
        let i = |k: usize| offset(at, &strides[k]);
        let (x, y) = (&a[i(1)], &b[i(2)]);
        v.push(match &cond {
            Some(c) => {
                if c[i(0)] != 0 {
                    x.clone()
                } else {
                    y.clone()
                }
            }
            None if x == y => x.clone(),
            None => {
                let bound = x.upper_bound().zip(y.upper_bound()).map(|(x, y)| x.max_with(&y));
                cx.fresh_device(&format!("selected{}", v.len()), bound)
            }
        });
    });
    Some(v)
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    let op = kiln_ir::problem::op("select", Attrs::new());
    let shapes: &[(&str, [&[usize]; 3])] = &[
        ("odd sizes", [&[3, 7, 5], &[3, 7, 5], &[3, 7, 5]]),
        ("scalars", [&[], &[], &[]]),
        ("empty", [&[0, 3], &[0, 3], &[1]]),
        ("broadcast condition", [&[7, 1], &[2, 1, 5], &[5]]),
        ("scalar branch", [&[4, 3], &[], &[3]]),
    ];
    for t in DType::ALL {
        for (label, [c, a, b]) in shapes {
            let ins = [rng.tensor(DType::Bool, c), rng.tensor(t, a), rng.tensor(t, b)];
            out.push(Problem::new(&format!("{label} {t}"), op.clone(), ins));
        }
        if t.is_float() {
            let ins = [rng.tensor(DType::Bool, &[19]), rng.edge_floats(t, 19), rng.tensor(t, &[19])];
            out.push(Problem::new(&format!("special values {t}"), op.clone(), ins));
        }
    }
    let big = rng.i64s(&[2], &[1 << 40, i64::MIN]);
    let ins = [rng.tensor(DType::Bool, &[3, 1]), big, rng.i64s(&[], &[7])];
    out.push(Problem::new("beyond 32 bits", op, ins));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, assert_near, f32s, ints, run};
    use kiln_ir::op::Op;
    use kiln_ir::ty::TensorType;

    #[test]
    fn chooses_and_broadcasts() {
        let c = ints(DType::Bool, &[2, 1], &[1, 0]);
        let y = run("select", Attrs::new(), &[c, f32s(&[2], &[1.0, f64::NAN]), f32s(&[], &[9.0])]);
        assert_near(&y, &[2, 2], &[1.0, f64::NAN, 9.0, 9.0], 0.0);
    }

    #[test]
    fn follows_contents_under_a_constant_condition() {
        let dims = |d: Vec<Dim>| Some(Fact::contents(TensorType::new(DType::I64, [2]), d));
        let n = Dim::host("n");
        let c = Some(Fact::constant(ints(DType::Bool, &[2], &[0, 1])));
        let (a, b) = (dims(vec![n.clone(), n.clone()]), dims(vec![7.into(), 8.into()]));
        let out = Op::new("select", Attrs::new()).unwrap().infer(&[c, a, b], "t").unwrap();
        assert_eq!(out[0].as_dims(), Some(vec![7.into(), n]));
    }

    #[test]
    fn follows_bounds_under_an_unknown_condition() {
        let number = |d: Dim| Some(Fact::contents(TensorType::new(DType::I64, [0; 0]), vec![d]));
        let c = || Some(Fact::of(TensorType::new(DType::Bool, [0; 0])));
        let chosen = |a: Dim, b: Dim| {
            let out =
                Op::new("select", Attrs::new()).unwrap().infer(&[c(), number(a), number(b)], "t").unwrap();
            out[0].as_dims().map(|d| d[0].clone())
        };
        let n = Dim::host("n");
        assert_eq!(chosen(n.clone(), n.clone()), Some(n.clone()));
        assert_eq!(chosen(5.into(), 0.into()).and_then(|d| d.upper_bound()), Some(5.into()));
        assert_eq!(chosen(n.clone(), 0.into()).and_then(|d| d.upper_bound()), Some(n.max_with(&0.into())));
        assert_eq!(chosen((-1).into(), 4.into()), None, "numbers of the device are not negative");
        assert_eq!(chosen(Dim::content("s[0]"), 4.into()), None);
    }

    #[test]
    fn types_must_agree() {
        let t = |d| (d, vec![Dim::new(2)]);
        assert!(
            testing::infer("select", Attrs::new(), &[t(DType::I32), t(DType::F32), t(DType::F32)]).is_err()
        );
        assert!(
            testing::infer("select", Attrs::new(), &[t(DType::Bool), t(DType::F32), t(DType::F16)]).is_err()
        );
    }
}
