//! Questions of kernels about the shapes and the target of a site.

use kiln_backend::Target;
use kiln_codegen::site::Site;
use kiln_ir::{TensorType, ValueId};

/// Nanoseconds of a kernel that does little.
const LEAST_NS: f64 = 2000.0;

/// The type of an input of the anchor, if it is there.
pub fn input<'a>(site: &Site<'a>, i: usize) -> Option<&'a TensorType> {
    Some(site.graph.ty((*site.anchor?.1.inputs.get(i)?)?))
}

/// The type of an output of the anchor.
pub fn output<'a>(site: &Site<'a>, j: usize) -> Option<&'a TensorType> {
    Some(site.graph.ty(*site.anchor?.1.outputs.get(j)?))
}

/// The i-th dimension counted from the last, if it is a number.
pub fn from_end(t: &TensorType, i: usize) -> Option<usize> {
    usize::try_from(t.dims.iter().rev().nth(i)?.as_const()?).ok()
}

/// The product of some dimensions, if all are numbers.
pub fn product(dims: &[kiln_ir::Dim]) -> Option<usize> {
    dims.iter().try_fold(1usize, |p, d| p.checked_mul(usize::try_from(d.as_const()?).ok()?))
}

/// Integers that a host input of the anchor is known to have.
pub fn ints(site: &Site<'_>, i: usize) -> Option<Vec<i64>> {
    let v = (*site.anchor?.1.inputs.get(i)?)?;
    let known = site.graph.weight(v).map(|w| w.tensor.to_i64());
    known.or_else(|| Some(site.graph.value(v).fact.as_const()?.to_i64()))
}

/// Bytes of all inputs and outputs of a region.
pub fn traffic(site: &Site<'_>) -> Option<f64> {
    let bytes = |v: &ValueId| {
        let t = site.graph.ty(*v);
        Some(t.static_volume()? as f64 * f64::from(t.dtype.bits()) / 8.0)
    };
    site.graph.inputs.iter().chain(&site.graph.outputs).map(bytes).sum()
}

/// Nanoseconds of a kernel that moves these bytes `slowness` times as slowly as memory can.
pub fn moving(target: &Target, bytes: f64, slowness: f64) -> f64 {
    let bandwidth = target.numbers.get("bandwidth_gbs").map_or(500.0, |&n| n as f64).max(1.0);
    LEAST_NS + bytes * slowness / bandwidth
}
