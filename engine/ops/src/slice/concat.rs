//! `concat`: tensors one after another along an axis.

use crate::util::PLAIN;
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, MAX_CONTENT, normalize_axis, unify};
use kiln_ir::op::{AxesPlace, LayoutRule, NamedAxes, OpDef, Roles, attr, variadic};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::{TensorType, dims_text};

kiln_ir::op_names! {
    CONCAT = "concat",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: CONCAT,
    doc: "The inputs one after another along `axis`. They have one type and agree in all other dimensions.",
    inputs: &[variadic("x")],
    attrs: &[attr("axis", || Attr::Int(0))],
    infer,
    eval,
    problems,
    roles: Roles { absorbs_pointwise: true, layout: LayoutRule::Axes(named_axis), ..Roles::NONE },
    ..PLAIN
}];

fn named_axis(attrs: &Attrs, _: &[Option<&Fact>], rank: usize) -> Option<NamedAxes> {
    let axis = normalize_axis(attrs.int("axis").ok()?, rank, "axis").ok()?;
    Some(NamedAxes { place: AxesPlace::Axis("axis"), axes: vec![axis] })
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let x = cx.ty(0)?;
    let axis = cx.axis("axis", x.rank())?;
    let mut dims = x.dims.clone();
    for i in 1..cx.len() {
        cx.same_dtype(0, i)?;
        cx.check_rank(i, x.rank())?;
        for (k, (d, other)) in dims.iter_mut().zip(cx.dims(i)?).enumerate() {
            *d = if k == axis {
                d.clone() + other.clone()
            } else {
                unify(d, other).ok_or_else(|| OpError::Mismatch {
                    a: dims_text(&x.dims),
                    b: cx.dims(i).map(dims_text).unwrap_or_default(),
                    wanted: format!("all dimensions but the one of axis {axis} must be equal"),
                })?
            };
        }
    }
    let ty = TensorType { dtype: x.dtype, dims };
    Ok(vec![match follow(cx, &ty, axis) {
        Some(v) => Fact::contents(ty, v),
        None => Fact::of(ty),
    }])
}

fn follow(cx: &InferCx<'_>, ty: &TensorType, axis: usize) -> Option<Vec<Dim>> {
    ty.static_volume().filter(|&n| n <= MAX_CONTENT)?;
    let parts: Vec<_> = (0..cx.len()).map(|i| cx.contents(i)).collect::<Option<_>>()?;
    let shapes: Vec<_> = (0..cx.len()).map(|i| cx.fact(i)?.ty.static_dims()).collect::<Option<_>>()?;
    Some(join(&parts, &shapes, axis))
}

/// The elements of tensors of these shapes, interleaved along `axis`.
fn join<T: Clone>(parts: &[Vec<T>], shapes: &[Vec<usize>], axis: usize) -> Vec<T> {
    let outer: usize = shapes.first().map_or(0, |s| s[..axis].iter().product());
    let mut out = Vec::new();
    for o in 0..outer {
        for (v, shape) in parts.iter().zip(shapes) {
            let run: usize = shape[axis..].iter().product();
            out.extend_from_slice(&v[o * run..(o + 1) * run]);
        }
    }
    out
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let ins = (0..cx.len()).map(|i| cx.input(i)).collect::<Result<Vec<_>, _>>()?;
    let shape = cx.out_shape(0)?;
    let axis = normalize_axis(cx.attrs().int("axis")?, shape.len(), "axis")?;
    let shapes: Vec<_> = ins.iter().map(|t| t.shape().to_vec()).collect();
    let elems = if cx.out_dtype(0)?.is_float() {
        Elems::F(join(&ins.iter().map(|t| t.to_f64()).collect::<Vec<_>>(), &shapes, axis))
    } else {
        Elems::I(join(&ins.iter().map(|t| t.to_i64()).collect::<Vec<_>>(), &shapes, axis))
    };
    Ok(vec![cx.make(0, &shape, elems)?])
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let cases: &[(&str, i64, &[&[usize]])] = &[
        ("outermost", 0, &[&[2, 3], &[5, 3]]),
        ("innermost", -1, &[&[3, 7], &[3, 1], &[3, 5]]),
        ("middle", 1, &[&[2, 3, 5], &[2, 1, 5]]),
        ("one input", 0, &[&[4, 3]]),
        ("empty parts", 1, &[&[2, 0], &[2, 3], &[2, 0]]),
        ("all empty", 0, &[&[0], &[0]]),
        ("vectors", 0, &[&[1], &[1], &[3], &[1]]),
    ];
    let mut out = Vec::new();
    for &(label, axis, shapes) in cases {
        for t in DType::ALL {
            let op = kiln_ir::problem::op("concat", Attrs::new().with("axis", axis));
            let ins = shapes.iter().map(|s| rng.tensor(t, s)).collect::<Vec<_>>();
            out.push(Problem::new(&format!("{label} {t}"), op, ins));
        }
    }
    {
        let op = kiln_ir::problem::op("concat", Attrs::new());
        let exact = rng.exact_tensors(&[5, 3]);
        out.extend(exact.map(|x| Problem::new("exact values", op.clone(), [x.clone(), x])));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, infer, iota, run};
    use kiln_ir::op::Op;

    #[test]
    fn parts_follow_each_other() {
        let (a, b) = (iota(&[2, 2]), iota(&[2, 1]));
        let y = run("concat", Attrs::new().with("axis", -1), &[a.clone(), b]);
        assert_near(&y, &[2, 3], &[0.0, 1.0, 0.0, 2.0, 3.0, 1.0], 0.0);
        let y = run("concat", Attrs::new(), &[a, iota(&[1, 2])]);
        assert_near(&y, &[3, 2], &[0.0, 1.0, 2.0, 3.0, 0.0, 1.0], 0.0);
    }

    #[test]
    fn sizes_add_and_others_agree() {
        let n = Dim::host("n");
        let t = |d: Vec<Dim>| (DType::F32, d);
        let out =
            infer("concat", Attrs::new(), &[t(vec![n.clone(), 3.into()]), t(vec![2.into(), n.clone()])]);
        assert_eq!(out.unwrap()[0].ty.dims, [n + 2.into(), 3.into()]);
        assert!(
            infer("concat", Attrs::new(), &[t(vec![1.into(), 3.into()]), t(vec![1.into(), 4.into()])])
                .is_err()
        );
        assert!(infer("concat", Attrs::new(), &[t(vec![1.into()]), (DType::F16, vec![1.into()])]).is_err());
    }

    #[test]
    fn contents_are_joined() {
        let f = |d: Dim| Some(Fact::contents(TensorType::new(DType::I64, [1]), vec![d]));
        let out =
            Op::new("concat", Attrs::new()).unwrap().infer(&[f(Dim::host("n")), f(4.into())], "t").unwrap();
        assert_eq!(out[0].as_dims(), Some(vec![Dim::host("n"), 4.into()]));
    }
}
