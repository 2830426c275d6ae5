//! `insert_slice`: a tensor with a part along an axis replaced, in place.

use crate::util::PLAIN;
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ, normalize_axis};
use kiln_ir::op::{OpDef, Tolerance, Traits, attr, input, optional};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    INSERT_SLICE = "insert_slice",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: INSERT_SLICE,
    doc: "`into` with `part` in the place of its slices from `start` on along `axis`, in place: output and `into` are \
          the same memory. Without `into` the output has `size` slices along `axis`, and all other elements are zero; with \
          `unset` they may be anything, as layers behind this one replace them.",
    inputs: &[optional("into"), input("part")],
    attrs: &[
        attr("axis", || Attr::Int(0)),
        attr("start", || Attr::Int(0)),
        attr("size", || Attr::Int(0)),
        attr("unset", || Attr::Bool(false)),
    ],
    infer,
    eval,
    traits: Traits { must_alias: &[(0, 0)], ..Traits::PURE },
    tolerance: Tolerance::Exact,
    problems,
    ..PLAIN
}];

/// The place of a part in the result of an `insert_slice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Elements of the part from one position before the axis to the next.
    pub run: usize,
    /// Elements of the result from one such position to the next.
    pub pitch: usize,
    /// The first element of the part in the result.
    pub offset: usize,
}

impl Placed {
    /// The place of a part of this shape in a result of that shape.
    pub fn of(attrs: &Attrs, part: &[usize], result: &[usize]) -> Result<Placed, OpError> {
        let axis = normalize_axis(attrs.int("axis")?, result.len(), "axis")?;
        let inner: usize = result[axis + 1..].iter().product();
        let start = usize::try_from(attrs.int("start")?).unwrap_or(0);
        Ok(Placed {
            run: part.get(axis).copied().unwrap_or(0) * inner,
            pitch: result[axis] * inner,
            offset: start * inner,
        })
    }

    /// The position in the result of an element of the part.
    pub fn at(&self, element: usize) -> usize {
        element / self.run * self.pitch + element % self.run + self.offset
    }
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let part = cx.ty(1)?;
    let axis = cx.axis("axis", part.rank())?;
    let number = |name: &str| match cx.attrs.int(name)? {
        n if n >= 0 => Ok(n),
        n => Err(OpError::Attr { name: name.into(), found: n.to_string(), wanted: "0 or more".into() }),
    };
    let (start, size) = (number("start")?, number("size")?);
    let whole = match cx.has(0) {
        false => {
            let mut dims = part.dims.clone();
            dims[axis] = Dim::new(size);
            TensorType { dtype: part.dtype, dims }
        }
        true => {
            cx.same_dtype(0, 1)?;
            let agree = |d: &[Dim]| {
                d.len() == part.rank()
                    && d.iter().zip(&part.dims).enumerate().all(|(i, (a, b))| i == axis || !differ(a, b))
            };
            cx.check_shape(0, agree, &format!("that of the part, {part}, but for axis {axis}"))?;
            cx.ty(0)?.clone()
        }
    };
    // Memory of the result is written at these places, so that they must be known.
    let wanted = "a number of slices that is known, from `start` on no more than the result has";
    let room = whole.dims[axis].as_const().map(|n| n - start);
    let fits = |d: &[Dim]| d[axis].as_const().zip(room).is_some_and(|(n, room)| n <= room);
    cx.check_shape(1, fits, wanted)?;
    Ok(vec![Fact::of(whole)])
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let part = cx.input(1)?;
    let shape = cx.out_shape(0)?;
    let placed = Placed::of(cx.attrs(), part.shape(), &shape)?;
    let count: usize = shape.iter().product();
    let elems = match part.elems() {
        Elems::F(p) => {
            let mut y = cx.get(0).map_or_else(|| vec![0.0; count], Tensor::to_f64);
            p.into_iter().enumerate().for_each(|(i, v)| y[placed.at(i)] = v);
            Elems::F(y)
        }
        Elems::I(p) => {
            let mut y = cx.get(0).map_or_else(|| vec![0; count], Tensor::to_i64);
            p.into_iter().enumerate().for_each(|(i, v)| y[placed.at(i)] = v);
            Elems::I(y)
        }
    };
    Ok(vec![cx.make(0, &shape, elems)?])
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    let cases: &[(&str, &[usize], &[usize], i64, i64)] = &[
        ("outermost", &[5, 3], &[2, 3], 0, 3),
        ("innermost", &[4, 9], &[4, 5], -1, 2),
        ("middle", &[2, 6, 5], &[2, 3, 5], 1, 1),
        ("all", &[3, 4], &[3, 4], 1, 0),
        ("nothing", &[3, 4], &[3, 0], 1, 4),
        ("by eights", &[3, 32], &[3, 16], 1, 8),
        ("empty", &[0, 4], &[0, 2], 1, 1),
    ];
    for &(label, into, part, axis, start) in cases {
        for t in DType::ALL {
            let attrs = Attrs::new().with("axis", axis).with("start", start);
            let ins = [Some(rng.tensor(t, into)), Some(rng.tensor(t, part))];
            out.push(Problem::of(&format!("{label} {t}"), "insert_slice", attrs.clone(), ins));
            let rank = into.len() as i64;
            let size = into[(axis + rank) as usize % into.len()] as i64;
            let alone = [None, Some(rng.tensor(t, part))];
            let label = format!("{label} of zeros {t}");
            out.push(Problem::of(&label, "insert_slice", attrs.with("size", size), alone));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, infer, run};

    #[test]
    fn parts_lie_in_their_place() {
        let into = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let part = f32s(&[2, 1], &[7.0, 8.0]);
        let attrs = Attrs::new().with("axis", 1i64).with("start", 2i64);
        let y = run("insert_slice", attrs, &[into.clone(), part]);
        assert_near(&y, &[2, 3], &[1.0, 2.0, 7.0, 4.0, 5.0, 8.0], 0.0);
        let y =
            run("insert_slice", Attrs::new().with("start", 1i64), &[into, f32s(&[1, 3], &[7.0, 8.0, 9.0])]);
        assert_near(&y, &[2, 3], &[1.0, 2.0, 3.0, 7.0, 8.0, 9.0], 0.0);
    }

    #[test]
    fn misfits_are_named() {
        let dims = |v: &[i64]| v.iter().map(|&n| Dim::new(n)).collect::<Vec<_>>();
        let bad = |into: &[i64], part: &[i64], start: i64| {
            let ins = [(DType::F16, dims(into)), (DType::F16, dims(part))];
            infer("insert_slice", Attrs::new().with("axis", 1i64).with("start", start), &ins)
                .unwrap_err()
                .to_string()
        };
        assert!(bad(&[2, 3], &[2, 2], 2).contains("no more than the result has"));
        assert!(bad(&[2, 3], &[2, 2], -1).contains("0 or more"));
        assert!(bad(&[2, 3], &[2, 2], i64::MIN).contains("0 or more"));
        assert!(bad(&[2, 3], &[3, 1], 0).contains("but for axis 1"));
    }
}
