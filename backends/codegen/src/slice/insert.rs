//! Parts of results in place: a kernel that copies a part, and words by which other kernels store their results as parts.

use crate::scalar::{register, zero};
use crate::site::{Cx, Site, op_error};
use crate::{Body, Entry, Grid, Kernel, Launch};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::TensorType;
use kiln_ir::infer::normalize_axis;
use kiln_ops::slice::insert::Placed;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel::alone("insert_slice", &["insert_slice"], source, launch)];

crate::params! {
    /// The place of a part in a result.
    pub struct InsertSliceParams {
        /// Elements of the part from one position before the axis to the next.
        run: u32,
        /// Elements of the result from one such position to the next.
        pitch: u32,
        /// The first element of the part in the result.
        offset: u32,
    }
}

/// The words of a part's place.
pub fn place_words(placed: Placed) -> Result<Vec<u32>, BackendError> {
    let Placed { run, pitch, offset } = placed;
    InsertSliceParams { run, pitch, offset }.words()
}

/// Argument words of a part's place.
pub const PLACE_WORDS: u32 = 3;

/// Whether eight neighbours of a part, from a multiple of eight on, are eight such neighbours of the result, whatever the shapes of a
/// run.
pub fn keeps_eights(site: &Site<'_>) -> bool {
    let Some((_, node)) = site.insert else { return true };
    let types = [node.inputs.get(1).copied().flatten(), node.outputs.first().copied()];
    let [Some(part), Some(whole)] = types.map(|v| v.map(|v| site.graph.ty(v))) else { return false };
    // Sizes in front of the axis do not matter.
    let known = |t: &TensorType| {
        t.dims.iter().map(|d| usize::try_from(d.as_const().unwrap_or(1)).unwrap_or(0)).collect()
    };
    let (part_dims, dims): (Vec<usize>, Vec<usize>) = (known(part), known(whole));
    let axis = node.op.attrs().int("axis").ok().and_then(|a| normalize_axis(a, dims.len(), "axis").ok());
    let fixed = axis.is_some_and(|a| whole.dims[a..].iter().all(|d| d.as_const().is_some()));
    let eights = |p: Placed| [p.run, p.pitch, p.offset].iter().all(|n| n.is_multiple_of(8));
    fixed && Placed::of(node.op.attrs(), &part_dims, &dims).is_ok_and(eights)
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let value = if site.dtype(0).is_some() { "x0(at)" } else { zero(t) };
    let code = site.function("rest", &[("at", "u32")], register(t), value);
    let entries = ["insert_part", "copy_rest"].map(Entry::threads);
    Ok(Body::of("slice/insert", entries.into()).with(code))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (part, out) = (cx.shape(1)?, cx.out_shape(0)?);
    let attrs = cx.op()?.attrs();
    let words = place_words(Placed::of(attrs, &part, &out).map_err(op_error)?)?;
    let count = |s: &[usize]| Grid::Threads(s.iter().map(|&d| d as u64).product());
    let kept = match cx.has(0) {
        true => cx.aliased(0, 0),
        false => attrs.bool("unset").map_err(op_error)?,
    };
    let rest = Launch::map(1, words.clone()).on(count(&out));
    let part = Launch::map(0, words).on(count(&part));
    Ok((!kept).then_some(rest).into_iter().chain([part]).collect())
}
