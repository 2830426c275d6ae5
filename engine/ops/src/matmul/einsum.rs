//! `einsum`: sums of products in index notation.

mod equation;

use crate::util::{PLAIN, for_each_index, offset, strides};
use equation::{Equation, Label};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, broadcast, unify};
use kiln_ir::op::{OpDef, Tolerance, Traits, required, variadic};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;
use kiln_ir::work::{Shapes, product};
use std::collections::BTreeMap;

kiln_ir::op_names! {
    EINSUM = "einsum",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: EINSUM,
    doc: "The product of the inputs, element by element under the labels of `equation` (\"bij,bjk->bik\"), summed over the \
          labels that the output lacks. Labels are ASCII letters; `...` stands for any dimensions, right-aligned between \
          inputs; a label twice in one input takes the diagonal; a dimension of 1 stretches. Without `->` the output has \
          the ellipsis, then, sorted, the labels that occur once; an ellipsis that an explicit output lacks is summed. \
          Floats accumulate in f32 at least and round once; integers wrap.",
    inputs: &[variadic("x")],
    attrs: &[required("equation", || Attr::Str(String::new()))],
    infer,
    eval,
    tolerance: Tolerance::Sum,
    problems,
    traits: Traits::heavy(products),
    ..PLAIN
}];

/// The product of the sizes of all labels, for each input.
fn products(s: &Shapes<'_>) -> u64 {
    let ranks: Vec<usize> = s.inputs().iter().map(Vec::len).collect();
    let Ok(eq) = s.attrs.str("equation").and_then(|e| Equation::parse(e, &ranks)) else { return u64::MAX };
    let mut sizes: BTreeMap<Label, u64> = BTreeMap::new();
    for (&label, &n) in eq.inputs.iter().flatten().zip(s.inputs().iter().flatten()) {
        let size = sizes.entry(label).or_insert(n);
        // A dimension of 1 stretches.
        *size = if *size == 1 { n } else { *size };
    }
    let one = product(&sizes.into_values().collect::<Vec<_>>());
    one.saturating_mul(ranks.len().saturating_sub(1) as u64)
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let allowed = |d: DType| d != DType::Bool && !matches!(d, DType::F8E4M3 | DType::I4);
    let dtype = cx.check_dtype(0, allowed, "f32, f16, bf16, i8, u8, i32 or i64")?;
    (1..cx.len()).try_for_each(|i| cx.same_dtype(0, i).map(drop))?;
    let shapes = (0..cx.len()).map(|i| cx.dims(i)).collect::<Result<Vec<_>, _>>()?;
    let eq = Equation::parse(cx.attrs.str("equation")?, &shapes.iter().map(|d| d.len()).collect::<Vec<_>>())?;
    let sizes = sizes(cx, &eq, &shapes)?;
    let dims = eq.output.iter().map(|l| size_of(&sizes, *l)).collect();
    Ok(vec![Fact::of(TensorType { dtype, dims })])
}

fn size_of(sizes: &[(Label, Dim)], label: Label) -> Dim {
    sizes.iter().find(|s| s.0 == label).map_or(Dim::new(1), |s| s.1.clone())
}

/// The dimension of every label.
fn sizes(cx: &InferCx<'_>, eq: &Equation, shapes: &[&[Dim]]) -> Result<Vec<(Label, Dim)>, OpError> {
    let mut all: Vec<(Label, Dim)> = Vec::new();
    for (i, (labels, dims)) in eq.inputs.iter().zip(shapes).enumerate() {
        let mut own: Vec<(Label, Dim)> = Vec::new();
        for (&label, d) in labels.iter().zip(*dims) {
            match own.iter_mut().find(|s| s.0 == label) {
                None => own.push((label, d.clone())),
                Some((_, e)) => {
                    let wanted = format!("equal dimensions for label {label}, which it has twice");
                    *e = unify(e, d).ok_or_else(|| cx.bad_shape(i, &wanted))?;
                }
            }
        }
        for (label, d) in own {
            match all.iter_mut().find(|s| s.0 == label) {
                None => all.push((label, d)),
                Some((_, e)) => {
                    let joined = broadcast(std::slice::from_ref(e), std::slice::from_ref(&d));
                    let wanted = format!("{e} or 1 for label {label}, as other inputs have");
                    let [d] = joined
                        .ok()
                        .and_then(|v| v.try_into().ok())
                        .ok_or_else(|| cx.bad_shape(i, &wanted))?;
                    *e = d;
                }
            }
        }
    }
    Ok(all)
}

/// Order in which the elements of the result are summed.
#[derive(Clone, Debug)]
pub struct Walk {
    /// Strides of every input along the dimensions of the result.
    pub outer: Vec<Vec<usize>>,
    /// The dimensions that are summed.
    pub inner: Vec<usize>,
    /// Strides of every input along them.
    pub within: Vec<Vec<usize>>,
}

/// The walk over inputs of these shapes.
pub fn walk(equation: &str, shapes: &[&[usize]]) -> Result<Walk, OpError> {
    let eq = Equation::parse(equation, &shapes.iter().map(|s| s.len()).collect::<Vec<_>>())?;
    let size = |l: Label| {
        let dims = eq.inputs.iter().zip(shapes).flat_map(|(labels, s)| labels.iter().zip(*s));
        dims.filter(|&(&k, &d)| k == l && d != 1).map(|(_, &d)| d).next().unwrap_or(1)
    };
    let summed = eq.summed();
    let along = |labels: &[Label], shape: &[usize], over: &[Label]| -> Vec<usize> {
        let own = strides(shape);
        let stride = |l: Label| {
            let at = labels.iter().zip(shape).zip(&own).filter(|&((&k, &d), _)| k == l && d != 1);
            at.map(|(_, s)| s).sum()
        };
        over.iter().map(|&l| stride(l)).collect()
    };
    let all = |over: &[Label]| eq.inputs.iter().zip(shapes).map(|(l, s)| along(l, s, over)).collect();
    Ok(Walk {
        outer: all(&eq.output),
        inner: summed.iter().map(|&l| size(l)).collect(),
        within: all(&summed),
    })
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let ins = (0..cx.len()).map(|i| cx.input(i)).collect::<Result<Vec<_>, _>>()?;
    let shapes: Vec<&[usize]> = ins.iter().map(|t| t.shape()).collect();
    let Walk { outer, inner, within } = walk(cx.attrs().str("equation")?, &shapes)?;
    let shape = cx.out_shape(0)?;
    let elems: Vec<Elems> = ins.iter().map(|t| t.elems()).collect();
    let (mut floats, mut ints) = (Vec::new(), Vec::new());
    for_each_index(&shape, |at| {
        let base: Vec<usize> = outer.iter().map(|s| offset(at, s)).collect();
        let (mut f, mut i) = (0.0f64, 0i64);
        for_each_index(&inner, |at| {
            let (mut pf, mut pi) = (1.0f64, 1i64);
            for ((e, s), b) in elems.iter().zip(&within).zip(&base) {
                match e {
                    Elems::F(v) => pf *= v[b + offset(at, s)],
                    Elems::I(v) => pi = pi.wrapping_mul(v[b + offset(at, s)]),
                }
            }
            f += pf;
            i = i.wrapping_add(pi);
        });
        floats.push(f);
        ints.push(i);
    });
    let elems = if cx.out_dtype(0)?.is_float() { Elems::F(floats) } else { Elems::I(ints) };
    Ok(vec![cx.make(0, &shape, elems)?])
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let cases: &[(&str, &[&[usize]])] = &[
        ("ij->ji", &[&[3, 5]]),
        ("bij,bjk->bik", &[&[2, 5, 7], &[2, 7, 3]]),
        ("i,i", &[&[9], &[9]]),
        ("...ii->...i", &[&[2, 3, 5, 5]]),
        ("...ij,...jk", &[&[4, 1, 3, 5], &[2, 5, 2]]),
        ("ij,jk,kl->il", &[&[3, 4], &[4, 5], &[5, 2]]),
        ("bhid,bhjd->bhij", &[&[2, 3, 9, 16], &[2, 3, 11, 16]]),
        ("ij->", &[&[3, 4]]),
        ("ik,kj->ij", &[&[3, 0], &[0, 4]]),
        ("i...->...", &[&[3, 4, 5]]),
        ("ij,kj->ik", &[&[65, 130], &[67, 130]]),
    ];
    let mut out = Vec::new();
    for (equation, shapes) in cases {
        for t in [DType::F32, DType::F16, DType::BF16, DType::I32] {
            let attrs = Attrs::new().with("equation", *equation);
            let ins: Vec<_> = shapes.iter().map(|s| Some(rng.tensor(t, s))).collect();
            out.push(Problem::of(&format!("{equation} {t}"), "einsum", attrs, ins));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, infer, iota, run};

    fn ein(equation: &str, ins: &[Tensor]) -> Tensor {
        run("einsum", Attrs::new().with("equation", equation), ins)
    }

    #[test]
    fn products_sums_and_diagonals_by_hand() {
        let (a, b) = (iota(&[2, 3]), iota(&[3, 2]));
        assert_near(&ein("ij,jk", &[a.clone(), b.clone()]), &[2, 2], &[10.0, 13.0, 28.0, 40.0], 0.0);
        assert_near(&ein(" ij , jk -> ki ", &[a.clone(), b]), &[2, 2], &[10.0, 28.0, 13.0, 40.0], 0.0);
        assert_near(&ein("ij->j", std::slice::from_ref(&a)), &[3], &[3.0, 5.0, 7.0], 0.0);
        assert_near(&ein("ba", &[a]), &[3, 2], &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0], 0.0);
        let c = iota(&[2, 2, 2]);
        assert_near(&ein("...ii->...i", std::slice::from_ref(&c)), &[2, 2], &[0.0, 3.0, 4.0, 7.0], 0.0);
        assert_near(&ein("iii", &[c]), &[], &[7.0], 0.0);
    }

    #[test]
    fn ellipses_align_right_and_ones_stretch() {
        let (a, b) = (iota(&[2, 1, 2]), iota(&[3, 2]));
        let want = [0.0, 1.0, 0.0, 3.0, 0.0, 5.0, 0.0, 3.0, 4.0, 9.0, 8.0, 15.0];
        assert_near(&ein("...,...", &[a.clone(), b.clone()]), &[2, 3, 2], &want, 0.0);
        assert_near(&ein("...i,...i->...", &[a, b.clone()]), &[2, 3], &[1.0, 3.0, 5.0, 3.0, 13.0, 23.0], 0.0);
        let one = iota(&[1, 2]);
        assert_near(&ein("ij,ij->i", &[b, one]), &[3], &[1.0, 3.0, 5.0], 0.0);
    }

    #[test]
    fn wrong_equations_and_shapes_are_named() {
        let dims = |v: &[i64]| v.iter().map(|&n| Dim::new(n)).collect::<Vec<_>>();
        let bad = |equation: &str, shapes: &[&[i64]]| {
            let ins: Vec<_> = shapes.iter().map(|s| (DType::F32, dims(s))).collect();
            infer("einsum", Attrs::new().with("equation", equation), &ins).unwrap_err().to_string()
        };
        assert!(bad("ij,jk", &[&[2, 3], &[4, 5]]).contains("3 or 1 for label j"));
        assert!(bad("ii", &[&[2, 3]]).contains("label i"));
        assert!(bad("ij,jk", &[&[2, 3]]).contains("2 inputs"));
        assert!(bad("ijk", &[&[2, 3]]).contains("3 labels"));
        assert!(bad("ij->ik", &[&[2, 3]]).contains("'k'"));
        assert!(bad("ij->ii", &[&[2, 3]]).contains("twice"));
        assert!(bad("i1", &[&[2, 3]]).contains("'1'"));
        assert!(bad("i..j", &[&[2, 3]]).contains("'.'"));
        assert!(bad("...i...", &[&[2, 3]]).contains("ellipsis"));
    }

    #[test]
    fn symbols_pass_through() {
        let (b, s) = (Dim::host("b"), Dim::host("s"));
        let f = DType::F16;
        let ins = [(f, vec![b.clone(), s.clone(), 8.into()]), (f, vec![8.into(), 4.into()])];
        let out = infer("einsum", Attrs::new().with("equation", "...d,de"), &ins).unwrap();
        assert_eq!(out[0].ty.dims, [b, s, 4.into()]);
    }
}
