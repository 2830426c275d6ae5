//! Index maps of operators that only move elements: each maps an output element to an input element.

use kiln_ir::dim::{Dim, DimKind};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::expr::Num;
use kiln_ir::infer::{Fact, InferCx, MAX_CONTENT};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

/// Input element of each output element; `None` where there is none (padding, an index out of range).
pub type Moves = Vec<Option<usize>>;

/// The fact of an output of type `ty`, its contents followed through `moves(input shape, output shape)` of input 0;
/// gaps are 0.
pub fn infer(
    cx: &InferCx<'_>,
    ty: TensorType,
    moves: impl FnOnce(&[usize], &[usize]) -> Result<Moves, OpError>,
) -> Result<Vec<Fact>, OpError> {
    let small = ty.static_volume().is_some_and(|n| n <= MAX_CONTENT);
    if let (true, Some(x), Some(from), Some(to)) =
        (small, cx.contents(0), cx.ty(0)?.static_dims(), ty.static_dims())
    {
        let at = moves(&from, &to)?.into_iter();
        let v = at.map(|m| m.and_then(|i| x.get(i)).cloned().unwrap_or(Dim::new(0))).collect();
        return Ok(vec![Fact::contents(ty, v)]);
    }
    Ok(vec![Fact::of(ty)])
}

/// The fact of an output of type `ty` with the elements of input 0 in their order.
pub fn infer_same(cx: &InferCx<'_>, ty: TensorType) -> Vec<Fact> {
    match cx.contents(0) {
        Some(v) => vec![Fact::contents(ty, v)],
        None => vec![Fact::of(ty)],
    }
}

/// The oracle: output 0 from input 0 through `moves(input shape, output shape)`; gaps are 0.
pub fn eval(
    cx: &EvalCx<'_>,
    moves: impl FnOnce(&[usize], &[usize]) -> Result<Moves, OpError>,
) -> Result<Vec<Tensor>, OpError> {
    let (x, shape) = (cx.input(0)?, cx.out_shape(0)?);
    let elems = take(&x.elems(), &moves(x.shape(), &shape)?, Num::I(0));
    Ok(vec![cx.make(0, &shape, elems)?])
}

/// The elements at these places; `gap` where there is none.
pub fn take(x: &Elems, at: &[Option<usize>], gap: Num) -> Elems {
    fn pick<T: Copy>(v: &[T], at: &[Option<usize>], gap: T) -> Vec<T> {
        at.iter().map(|m| m.and_then(|i| v.get(i)).copied().unwrap_or(gap)).collect()
    }
    match (x, gap) {
        (Elems::F(v), Num::F(gap)) => Elems::F(pick(v, at, gap)),
        (Elems::F(v), Num::I(gap)) => Elems::F(pick(v, at, gap as f64)),
        (Elems::I(v), Num::I(gap)) => Elems::I(pick(v, at, gap)),
        (Elems::I(v), Num::F(gap)) => Elems::I(pick(v, at, gap as i64)),
    }
}

/// An index counted from the end if negative; `None` outside `0..size`.
pub fn wrap_index(i: i64, size: usize) -> Option<usize> {
    let i = if i < 0 { i.checked_add(size as i64)? } else { i };
    usize::try_from(i).ok().filter(|&i| i < size)
}

/// Refuses an input whose elements are not i32 or i64.
pub fn check_index_dtype(cx: &InferCx<'_>, i: usize) -> Result<(), OpError> {
    cx.check_dtype(i, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64").map(drop)
}

/// The elements of a 1-D integer host input, each as a number or symbol if it is known. Its length must be known.
pub fn host_list(cx: &InferCx<'_>, i: usize) -> Result<Vec<Option<Dim>>, OpError> {
    check_index_dtype(cx, i)?;
    cx.check_rank(i, 1)?;
    if let Some(v) = cx.contents(i) {
        return Ok(v.into_iter().map(Some).collect());
    }
    let len = cx.dims(i)?.first().and_then(Dim::as_const).and_then(|n| usize::try_from(n).ok());
    match len.filter(|&n| n <= MAX_CONTENT) {
        Some(n) => Ok(vec![None; n]),
        None => Err(OpError::NeedsValue {
            input: i,
            name: port_name(cx, i),
            wanted: format!("of a length (at most {MAX_CONTENT}) that is known when the network is built"),
        }),
    }
}

/// The element of an integer host input of one element, if it is known.
pub fn host_scalar(cx: &InferCx<'_>, i: usize) -> Result<Option<Dim>, OpError> {
    check_index_dtype(cx, i)?;
    check_single(cx, i)?;
    Ok(cx.contents(i).and_then(|v| v.into_iter().next()))
}

/// Refuses an input that certainly has not exactly one element.
pub fn check_single(cx: &InferCx<'_>, i: usize) -> Result<(), OpError> {
    cx.check_shape(i, |d| d.iter().all(|n| n.as_const().is_none_or(|n| n == 1)), "one element")
}

/// A new dimension that follows from the contents of these inputs (absent ones don't count) and is at most `bound`:
/// the host computes it if it can know all of them, else the device.
pub fn fresh(cx: &InferCx<'_>, inputs: &[usize], hint: &str, bound: Option<Dim>) -> Dim {
    let on_host = |d: &Dim| d.kind() <= DimKind::Host;
    let known = |&i: &usize| !cx.has(i) || cx.contents(i).is_some_and(|v| v.iter().all(on_host));
    if inputs.iter().all(known) && bound.as_ref().is_none_or(on_host) {
        cx.fresh_host(hint, bound)
    } else {
        cx.fresh_device(hint, bound)
    }
}

/// A bound of a size that is element `k` of the contents of input `i`, as far as the host knows these.
pub fn size_bound(cx: &InferCx<'_>, i: usize, k: usize) -> Option<Dim> {
    let size = cx.contents(i)?.into_iter().nth(k).filter(|d| d.kind() <= DimKind::Host)?;
    Some(size.max_with(&Dim::new(0)))
}

fn port_name(cx: &InferCx<'_>, i: usize) -> String {
    cx.def.inputs.get(i).map_or(String::new(), |p| p.name.into())
}
