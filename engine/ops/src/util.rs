//! Helpers that the families share: the record that definitions start from, and index arithmetic of the
//! reference implementations.

use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::infer::{InferCx, differ};
use kiln_ir::op::{OpDef, OpName, Roles, Tolerance, Traits, input};
use kiln_ir::ty::dims_text;

/// A pure, exact operator of one input and one output, for `..PLAIN` in definitions that say only what differs.
pub const PLAIN: OpDef = OpDef {
    name: OpName::new(""),
    doc: "",
    inputs: &[input("x")],
    outputs: &["y"],
    attrs: &[],
    infer: |_| Ok(Vec::new()),
    eval: |_| Ok(Vec::new()),
    ranges: None,
    expr: None,
    traits: Traits::PURE,
    roles: Roles::NONE,
    tolerance: Tolerance::Exact,
    problems: kiln_ir::problem::none,
};

/// Row-major strides of a shape, in elements.
pub fn strides(shape: &[usize]) -> Vec<usize> {
    let mut s = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        s[i - 1] = s[i] * shape[i];
    }
    s
}

/// Strides that read `shape` as if it were broadcast to `to` (right-aligned): 0 where it is stretched.
pub fn broadcast_strides(shape: &[usize], to: &[usize]) -> Vec<usize> {
    let own = strides(shape);
    let lead = to.len() - shape.len();
    (0..to.len()).map(|i| if i < lead || shape[i - lead] == 1 { 0 } else { own[i - lead] }).collect()
}

/// Calls `f` with every index of a shape in row-major order; not at all if it is empty.
pub fn for_each_index(shape: &[usize], mut f: impl FnMut(&[usize])) {
    if shape.contains(&0) {
        return;
    }
    let mut at = vec![0; shape.len()];
    loop {
        kiln_ir::stop::checkpoint();
        f(&at);
        let Some(axis) = (0..shape.len()).rev().find(|&i| at[i] + 1 < shape[i]) else { return };
        at[axis] += 1;
        at[axis + 1..].fill(0);
    }
}

/// The position of an index under strides.
pub fn offset(at: &[usize], strides: &[usize]) -> usize {
    at.iter().zip(strides).map(|(a, s)| a * s).sum()
}

/// Calls `f` for every index of the axes that are not in `mask`, in row-major order. `f` takes the positions
/// (in a row-major tensor of this shape) of the elements along the masked axes, in row-major order too.
pub fn for_each_group(shape: &[usize], mask: &[bool], mut f: impl FnMut(&[usize])) {
    let pick = |want: bool, v: &[usize]| -> Vec<usize> {
        v.iter().zip(mask).filter(|&(_, &m)| m == want).map(|(&x, _)| x).collect()
    };
    let all = strides(shape);
    let (kept, inner) = (pick(false, shape), pick(true, shape));
    let (kept_strides, inner_strides) = (pick(false, &all), pick(true, &all));
    let mut group = Vec::new();
    for_each_index(&kept, |at| {
        let base = offset(at, &kept_strides);
        group.clear();
        for_each_index(&inner, |at| group.push(base + offset(at, &inner_strides)));
        f(&group);
    });
}

/// A mask with `true` from `axis` on.
pub fn mask_from(axis: usize, rank: usize) -> Vec<bool> {
    (0..rank).map(|i| i >= axis).collect()
}

/// A mask with `true` at one axis.
pub fn mask_of(axis: usize, rank: usize) -> Vec<bool> {
    (0..rank).map(|i| i == axis).collect()
}

/// Refuses an input, if present, whose shape is not the given one or can't be broadcast to it (`stretch`). A
/// dimension that is not yet a number fits.
pub fn check_fits(cx: &InferCx<'_>, i: usize, to: &[Dim], stretch: bool) -> Result<(), OpError> {
    let Some(fact) = cx.fact(i) else { return Ok(()) };
    let own = &fact.ty.dims;
    let lead = to.len().checked_sub(own.len()).filter(|&lead| stretch || lead == 0);
    let fits = lead
        .is_some_and(|lead| own.iter().zip(&to[lead..]).all(|(a, b)| (stretch && a.is(1)) || !differ(a, b)));
    let wanted = if stretch { "a shape that broadcasts to" } else { "" };
    if fits { Ok(()) } else { Err(cx.bad_shape(i, format!("{wanted} [{}]", dims_text(to)).trim_start())) }
}

/// Whether it is a float type that operators compute in: f32, f16 or bf16.
pub fn is_real(d: DType) -> bool {
    REALS.contains(&d)
}

/// The types of [`is_real`].
pub const REALS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// The words for [`is_real`] in messages.
pub const REAL: &str = "f32, f16 or bf16";

/// The result type of sums of products of two inputs: i32 for i8 and u8 in any mixture, else their common type.
pub fn product_dtype(cx: &InferCx<'_>, i: usize, j: usize) -> Result<DType, OpError> {
    let narrow = |d: DType| matches!(d, DType::I8 | DType::U8);
    match (cx.dtype(i)?, cx.dtype(j)?) {
        (x, y) if narrow(x) && narrow(y) => Ok(DType::I32),
        (DType::F8E4M3, DType::F8E4M3) => Ok(DType::F32),
        (x, y) if x == y && x != DType::Bool => Ok(x),
        (x, found) => Err(OpError::DType { input: j, found, wanted: format!("what goes with {x}") }),
    }
}

/// The single element of a host input of integers: `None` if it is absent, a new symbol if it is not known yet.
pub fn host_scalar(
    cx: &InferCx<'_>,
    i: usize,
    hint: &str,
    bound: Option<Dim>,
) -> Result<Option<Dim>, OpError> {
    if !cx.has(i) {
        return Ok(None);
    }
    cx.check_dtype(i, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64")?;
    cx.check_shape(i, |d| d.iter().all(|d| d.as_const().is_none_or(|n| n == 1)), "one element")?;
    Ok(Some(match cx.contents(i).as_deref() {
        Some([n]) if !n.has_content() => n.clone(),
        _ => cx.fresh_from(i, hint, bound.or_else(|| crate::indices::size_bound(cx, i, 0))),
    }))
}

/// The dimensions in a 1-D host input of integers: as they are where they are known, new symbols where not.
/// Its length must be known; a negative number is refused.
pub fn host_dims(cx: &InferCx<'_>, i: usize, what: &str) -> Result<Vec<Dim>, OpError> {
    let dims = crate::indices::host_list(cx, i)?.into_iter().enumerate();
    dims.map(|(k, d)| match d {
        Some(d) if d.as_const().is_some_and(|n| n < 0) => {
            Err(OpError::Value(format!("{what}[{k}] is {d}; wants 0 or more")))
        }
        Some(d) if !d.has_content() => Ok(d),
        _ => Ok(cx.fresh_from(i, &format!("{what}{k}"), crate::indices::size_bound(cx, i, k))),
    })
    .collect()
}
