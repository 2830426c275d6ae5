//! Operators about shapes: `shape`, `reshape`.

pub mod expand;
pub mod squeeze;

use crate::util::PLAIN;
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ};
use kiln_ir::op::{Movement, OpDef, Roles, attr, input};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    SHAPE = "shape",
    RESHAPE = "reshape",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: SHAPE,
        doc: "The dimensions of x from `start` to `end` (negative ones count from the end, both clamped to the rank) \
              as a 1-D i64 tensor.",
        attrs: &[attr("start", || Attr::Int(0)), attr("end", || Attr::Int(i64::MAX))],
        infer: infer_shape,
        eval: eval_shape,
        problems: shape_problems,
        roles: Roles { host_known: true, ..Roles::NONE },
        ..PLAIN
    },
    OpDef {
        name: RESHAPE,
        doc: "The same elements in the shape given by the i64 (or i32) 1-D tensor `shape`. One -1 stands for what is \
              left; 0 copies the input's dimension at that position, unless `allow_zero`.",
        inputs: &[input("x"), input("shape").on_host()],
        attrs: &[attr("allow_zero", || Attr::Bool(false))],
        infer: infer_reshape,
        eval: eval_copy,
        problems: reshape_problems,
        roles: Roles { movement: Movement::Reshape, ..Roles::NONE },
        ..PLAIN
    },
];

/// The dimensions that a `shape` reads, as positions from the first to one after the last.
pub fn window(cx: &Attrs, rank: usize) -> Result<(usize, usize), OpError> {
    let r = rank as i64;
    let at = |x: i64| if x < 0 { x.saturating_add(r) } else { x }.clamp(0, r) as usize;
    let (start, end) = (at(cx.int("start")?), at(cx.int("end")?));
    Ok((start, end.max(start)))
}

fn infer_shape(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let dims = cx.dims(0)?;
    let (start, end) = window(cx.attrs, dims.len())?;
    let ty = TensorType::new(DType::I64, [(end - start) as i64]);
    Ok(vec![Fact::contents(ty, dims[start..end].to_vec())])
}

fn eval_shape(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let shape = cx.input(0)?.shape();
    let (start, end) = window(cx.attrs(), shape.len())?;
    let v = shape[start..end].iter().map(|&d| d as i64).collect();
    Ok(vec![cx.make(0, &[end - start], Elems::I(v))?])
}

/// The most dimensions that a shape of unknown contents may have: a file can claim any length.
const MAX_RANK: i64 = 1024;

fn infer_reshape(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let x = cx.ty(0)?;
    cx.check_dtype(1, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64")?;
    cx.check_rank(1, 1)?;
    let dims = match cx.contents(1) {
        Some(want) if !want.iter().any(Dim::has_content) => resolve(cx, x, &want)?,
        known => {
            let length = cx.dims(1)?[0].as_const();
            if length.is_some_and(|n| !(0..=MAX_RANK).contains(&n)) {
                return Err(cx.bad_shape(1, &format!("0 to {MAX_RANK} sizes")));
            }
            let rank = known.map(|k| k.len()).or(length.map(|n| n as usize));
            let rank = rank.ok_or_else(|| OpError::NeedsValue {
                input: 1,
                name: "shape".into(),
                wanted: "of a length that is known when the network is built".into(),
            })?;
            (0..rank).map(|i| cx.fresh_from(1, &format!("d{i}"), Some(x.volume()))).collect()
        }
    };
    let mut out = Fact::of(TensorType { dtype: x.dtype, dims });
    if let Some(v) = cx.contents(0) {
        out = Fact::contents(out.ty, v);
    }
    Ok(vec![out])
}

/// Replaces 0 and -1 by what they stand for and checks the volume.
fn resolve(cx: &InferCx<'_>, x: &TensorType, want: &[Dim]) -> Result<Vec<Dim>, OpError> {
    let allow_zero = cx.attrs.bool("allow_zero")?;
    let mut dims = Vec::with_capacity(want.len());
    for (i, d) in want.iter().enumerate() {
        let d = match d.as_const() {
            Some(0) if !allow_zero => x.dims.get(i).cloned().ok_or_else(|| {
                OpError::Value(format!("shape[{i}] is 0: input 0 has no dimension {i} to copy"))
            })?,
            Some(n) if n < -1 => return Err(OpError::Value(format!("shape[{i}] is {n}; wants -1 or more"))),
            _ => d.clone(),
        };
        dims.push(d);
    }
    let misfit = |dims: &[Dim]| OpError::Mismatch {
        a: kiln_ir::ty::dims_text(&x.dims),
        b: kiln_ir::ty::dims_text(dims),
        wanted: "both must have the same number of elements".into(),
    };
    let holes: Vec<usize> = (0..dims.len()).filter(|&i| dims[i].is(-1)).collect();
    match holes[..] {
        [] => {
            let v: Dim = dims.iter().cloned().product();
            if differ(&v, &x.volume()) { Err(misfit(&dims)) } else { Ok(dims) }
        }
        [hole] => {
            let rest: Dim = (0..dims.len()).filter(|&i| i != hole).map(|i| dims[i].clone()).product();
            if rest.is(0) {
                return Err(OpError::Value("-1 is ambiguous: the other dimensions have volume 0".into()));
            }
            let volume = x.volume();
            if differ(&volume.modulo(&rest), &Dim::new(0)) {
                return Err(misfit(&dims));
            }
            dims[hole] = volume.complement(&rest);
            Ok(dims)
        }
        _ => Err(OpError::Value("more than one dimension of the shape is -1".into())),
    }
}

/// Reshapes to the inferred shape.
pub fn eval_copy(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let shape = cx.out_shape(0)?;
    let x = cx.input(0)?;
    Ok(vec![
        x.reshaped(&shape)
            .ok_or_else(|| OpError::Value(format!("{:?} does not reshape to {shape:?}", x.shape())))?,
    ])
}

fn shape_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut part = |(s, e): (i64, i64)| {
        let attrs = Attrs::new().with("start", s).with("end", e);
        Problem::of(&format!("{s}..{e}"), "shape", attrs, [Some(rng.tensor(DType::F32, &[2, 3, 0, 5]))])
    };
    [(0, i64::MAX), (1, -1), (-2, 9), (3, 1)].map(&mut part).into()
}

fn reshape_problems(rng: &mut Rng) -> Vec<Problem> {
    let cases: &[(&[usize], &[i64])] =
        &[(&[2, 3, 4], &[4, -1]), (&[2, 3, 4], &[0, 12]), (&[1], &[]), (&[0, 3], &[3, 0, 2])];
    let mut out = Vec::new();
    for &(from, to) in cases {
        let allow_zero = to.contains(&0) && from.contains(&0);
        let op = kiln_ir::problem::op("reshape", Attrs::new().with("allow_zero", allow_zero));
        for t in [DType::F32, DType::I8, DType::Bool] {
            let shape = rng.i64s(&[to.len()], to);
            out.push(Problem::new(
                &format!("{from:?} to {to:?} {t}"),
                op.clone(),
                [rng.tensor(t, from), shape],
            ));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use crate::testing::infer;
    use kiln_ir::{Attrs, DType, OpError};

    #[test]
    fn claimed_ranks_allocate_nothing() {
        for n in [-(1i64 << 29), -1, 1025, i64::MAX] {
            let inputs = [(DType::F32, vec![2.into()]), (DType::I64, vec![n.into()])];
            let e = infer("reshape", Attrs::new(), &inputs);
            assert!(matches!(e, Err(OpError::Shape { input: 1, .. })), "{n}: {e:?}");
        }
    }
}
