//! Masks of attention, in every form that com.microsoft has, as numbers that are added to the scores.

use kiln_ir::{Attrs, DType};
use kiln_network::TensorId;

use crate::convert::{Cx, Refusal, unsupported};

/// Keys of a mask: [batch, queries] and the number of keys, as 1-D tensors of one element.
pub(crate) struct Keys {
    pub(crate) batch: Option<i64>,
    pub(crate) total: TensorId,
    pub(crate) past: TensorId,
}

/// The numbers 0, 1, 2 … below a 1-D tensor of one element, as i64.
pub(crate) fn count(cx: &mut Cx<'_>, below: TensorId) -> Result<TensorId, Refusal> {
    let below = cx.as_scalar(below)?;
    let (zero, one) = (cx.i64(0)?, cx.i64(1)?);
    cx.layer("range", Attrs::new(), &[Some(zero), Some(below), Some(one)])
}

/// Added numbers for a mask: 0 for keys that take part, `filter` for others, [B, 1 or S.., T] with four dimensions.
pub(crate) fn padding(
    cx: &mut Cx<'_>,
    mask: TensorId,
    keys: &Keys,
    filter: f64,
    to: DType,
) -> Result<TensorId, Refusal> {
    let takes_part = match cx.rank(mask) {
        1 => by_length(cx, mask, keys)?,
        2 => {
            let known = nonzero(cx, mask)?;
            cx.unsqueeze(known, &[1, 2])?
        }
        3 => {
            let known = nonzero(cx, mask)?;
            cx.unsqueeze(known, &[1])?
        }
        4 => window(cx, mask, keys)?,
        other => return unsupported(format!("a mask of {other} dimensions")),
    };
    let (zero, filter) = (cx.num(to, 0.0)?, cx.num(to, filter)?);
    cx.layer("select", Attrs::new(), &[Some(takes_part), Some(zero), Some(filter)])
}

fn nonzero(cx: &mut Cx<'_>, mask: TensorId) -> Result<TensorId, Refusal> {
    let zero = cx.num_like(mask, 0.0)?;
    let same = cx.bin("equal", mask, zero)?;
    cx.un("not", same)
}

/// [B]: how many keys take part. [2·B]: the ends, then the beginnings.
fn by_length(cx: &mut Cx<'_>, mask: TensorId, keys: &Keys) -> Result<TensorId, Refusal> {
    let (Some(batch), Some(length)) = (keys.batch, cx.dim(mask, 0).and_then(|d| d.as_const())) else {
        let known = cx.ty(mask).to_string();
        return unsupported(format!(
            "a mask {known} with an unknown number of entries or batch, which is ambiguous; give the shapes, or a mask \
             of [batch, keys]"
        ));
    };
    let mask = cx.cast(mask, DType::I64)?;
    let place = count(cx, keys.total)?;
    let side = |cx: &mut Cx<'_>, start: i64| {
        let part = cx.slice(mask, 0, start, start + batch)?;
        cx.unsqueeze(part, &[1])
    };
    let before_end = |cx: &mut Cx<'_>| {
        let end = side(cx, 0)?;
        cx.bin("less", place, end)
    };
    let inside = match length {
        n if n == batch => before_end(cx)?,
        n if n == 2 * batch => {
            let (end, start) = (before_end(cx)?, side(cx, batch)?);
            let from = cx.bin("greater_equal", place, start)?;
            cx.bin("and", end, from)?
        }
        n => {
            return unsupported(format!(
                "a mask of {n} entries for a batch of {batch} (1 or 2 for each are)"
            ));
        }
    };
    cx.unsqueeze(inside, &[1, 2])
}

/// [B, 1, M, M]: rows from the past on, columns of the keys.
fn window(cx: &mut Cx<'_>, mask: TensorId, keys: &Keys) -> Result<TensorId, Refusal> {
    let zero = cx.i64s(&[0])?;
    let rows = cx.slice_to(mask, 2, keys.past, keys.total)?;
    let columns = cx.slice_to(rows, 3, zero, keys.total)?;
    nonzero(cx, columns)
}
