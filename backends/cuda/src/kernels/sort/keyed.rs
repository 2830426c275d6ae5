//! Keys of elements, and the sizes of a top-k.

use crate::frame::{cell, element};
use crate::kernels::shape::{input, ints, output};
use kiln_backend::BackendError;
use kiln_codegen::Body;
use kiln_codegen::site::{Site, op_error, unsupported};
use kiln_ir::DType;
use kiln_ir::infer::normalize_axis;

/// Unsigned numbers in the order of elements of type `t`: bits, and the expression of an element `v` in memory.
fn key(t: DType) -> (u32, &'static str) {
    match t {
        DType::F32 => (32, "kernels::float_key<32u, 0x7f800000u>(__float_as_uint(v))"),
        DType::F16 => (16, "kernels::float_key<16u, 0x7c00u>(v)"),
        DType::BF16 => (16, "kernels::float_key<16u, 0x7f80u>(v)"),
        DType::F8E4M3 => (8, "kernels::float_key<8u, 0x7eu>(v)"),
        DType::I32 => (32, "kernels::signed_key<32u>(u32(v))"),
        DType::I64 => (64, "kernels::signed_key(v)"),
        DType::I8 => (8, "kernels::signed_key<8u>(u32(v))"),
        _ => (8, "u32(v)"),
    }
}

/// Bytes of a key with its position.
pub fn slot_bytes(t: DType) -> usize {
    if key(t).0 > 32 { 16 } else { 8 }
}

/// Refuses types whose elements share bytes.
pub fn check(site: &Site<'_>) -> Result<(), BackendError> {
    match site.first_dtype() {
        t if t.bits() < 8 => unsupported(format!("keys of {t}, which shares bytes")),
        _ => Ok(()),
    }
}

/// The body with the types and functions that `kernels/sort` asks for.
pub fn keyed(site: &Site<'_>, body: Body) -> Result<Body, BackendError> {
    let t = site.first_dtype();
    let (bits, value) = key(t);
    let (number, slot) = if bits > 32 { ("u64", "WideSlot") } else { ("u32", "u64") };
    let short = if bits > 16 { slot } else { "u32" };
    let largest = site.op()?.attrs().bool("largest").map_err(op_error)?;
    let all = u64::MAX >> (64 - bits);
    let value = if largest { format!("{number}({all:#x}) - {value}") } else { value.to_owned() };
    let space = |name: &str| if name == "WideSlot" { format!("kernels::{name}") } else { name.to_owned() };
    let code = element("Cell", "wide", t)
        + &format!("typedef {number} Key;\ntypedef {} Slot;\ntypedef {} Short;\n", space(slot), space(short))
        + &site.constant("KEY_BITS", "u32", format_args!("{bits}u"))
        + &site.constant("VALUES", "bool", site.wanted(0))
        + &site.constant("PLACES", "bool", site.wanted(1))
        + &site.function("key", &[("v", cell(t))], number, &value);
    let unwritten = (0..2).filter(|&j| !site.wanted(j)).collect();
    Ok(Body { scratch: true, unwritten, ..body.with(code) })
}

/// Sizes of a top-k that a build knows.
pub struct Sizes {
    /// Elements of a line.
    pub count: usize,
    /// Number of lines.
    pub rows: usize,
    /// Elements of a line of the result.
    pub kept: usize,
}

/// The sizes, if a build knows them.
pub fn sizes(site: &Site<'_>) -> Option<Sizes> {
    let (x, y) = (input(site, 0)?, output(site, 0)?);
    let axis = normalize_axis(site.op().ok()?.attrs().int("axis").ok()?, x.rank(), "axis").ok()?;
    let size = |t: &kiln_ir::TensorType| usize::try_from(t.dims.get(axis)?.as_const()?).ok();
    let (count, kept) = (size(x)?, size(y)?);
    let rows = x.static_volume()?.checked_div(count)?;
    Some(Sizes { count, rows, kept })
}

/// The number of elements of a line of the result, if a build knows it.
pub fn kept(site: &Site<'_>) -> Option<usize> {
    let known = sizes(site).map(|s| s.kept);
    known.or_else(|| usize::try_from(*ints(site, 1)?.first()?).ok())
}
