//! Operators that give elements other places by affine index arithmetic: the element at index c of the output is that at
//! offset + Σ c·stride of the input. Here are reshapes, expansions and tilings; slices and transposes use the same kernel.

use crate::limits::{is_far, near_or_far};
use crate::site::{Cx, Site, op_error};
use crate::views::coalesce;
use crate::{Body, Kernel, Launch, Launcher};
use kiln_backend::{BackendError, Tactic};
use kiln_ops::generate::SIZE;
use kiln_ops::util::{broadcast_strides, strides};

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    strided("copy", &["reshape", "squeeze", "unsqueeze"], copy),
    strided("expand", &["expand"], expand),
    strided("tile", &["tile"], tile),
    Kernel::of("shape", &["shape", "size"], dims_source, dims),
];

crate::params! {
    /// Elements by affine index arithmetic. Offset and strides wrap where they are negative.
    pub struct StridedParams {
        /// The position of the first element in the input.
        offset: u32,
        /// Its upper half, where positions have 64 bits.
        far_offset: u32,
        /// Dimensions of the output.
        dims: [u32],
        /// Strides of the input along them.
        strides: [u32],
        /// Their upper halves, where positions have 64 bits.
        far_strides: [u32],
    }
}

crate::params! {
    /// Dimensions of a tensor, or their product.
    struct DimsParams {
        /// The elements of the result.
        dims: [i64],
    }
}

/// A kernel whose launches have [`StridedParams`], made by [`launch`].
pub(crate) const fn strided(name: &'static str, ops: &'static [&'static str], launch: Launcher) -> Kernel {
    Kernel::of(name, ops, source, launch)
}

/// A kernel with positions in the input of 64 bits where it needs these, else of 32 bits.
pub(crate) const fn strided_or_far(
    name: &'static str,
    ops: &'static [&'static str],
    launch: Launcher,
) -> Kernel {
    let tactics: fn(&Site<'_>) -> Result<Vec<Tactic>, BackendError> =
        |site| Ok(vec![near_or_far(site, Tactic::plain(site.kernel_name()))]);
    Kernel { tactics, ..strided(name, ops, launch) }
}

fn source(site: &Site<'_>, tactic: &Tactic) -> Result<Body, BackendError> {
    let far = is_far(tactic);
    let code = site.alias("Value", site.out_dtype(0)) + &site.constant("FAR", "bool", far);
    let body = Body::element("shape/strided", "strided_copy").with(code);
    Ok(Body { inputs: Some(vec![0]), far: if far { vec![0] } else { Vec::new() }, ..body })
}

/// A launch that reads with these strides (which may be negative) from an offset on.
pub fn launch(
    cx: &Cx<'_>,
    offset: i64,
    dims: &[usize],
    strides: &[i64],
) -> Result<Vec<Launch>, BackendError> {
    let (dims, strides) = coalesce(dims, strides);
    let upper = |n: i64| if cx.far() { (n >> 32) as u32 as usize } else { 0 };
    let params = StridedParams {
        offset: offset as u32 as usize,
        far_offset: upper(offset),
        dims,
        far_strides: if cx.far() { strides.iter().map(|&s| upper(s)).collect() } else { Vec::new() },
        strides: strides.iter().map(|&s| s as u32 as usize).collect(),
    };
    Ok(vec![Launch::map(0, params.words()?)])
}

/// Positions in the input of the elements of a launch by [`launch`], in 32 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The position of the first element.
    pub offset: u32,
    /// Dimensions of the output.
    pub dims: Vec<usize>,
    /// Strides of the input; may be negative, wrapped to 32 bits.
    pub strides: Vec<u32>,
}

impl Walk {
    /// Reads the words of [`StridedParams`].
    pub fn of(launch: &Launch) -> Option<Walk> {
        let w = &launch.words;
        let list = |at: usize| {
            let (first, count) = (*w.get(at)? as usize, *w.get(at + 1)? as usize);
            w.get(first..first.checked_add(count)?)
        };
        let dims = list(2)?.iter().map(|&d| d as usize).collect();
        Some(Walk { offset: *w.first()?, dims, strides: list(4)?.to_vec() })
    }
}

/// Launches of a copy of all elements, in their order.
fn copy(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    if cx.aliased(0, 0) && !cx.fused {
        return Ok(Vec::new());
    }
    let n: usize = cx.out_shape(0)?.iter().product();
    launch(cx, 0, &[n], &[1])
}

/// Numbers with a sign.
pub(crate) fn signed(v: Vec<usize>) -> Vec<i64> {
    v.into_iter().map(|s| s as i64).collect()
}

fn expand(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let out = cx.out_shape(0)?;
    launch(cx, 0, &out, &signed(broadcast_strides(&cx.shape(0)?, &out)))
}

fn tile(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, out) = (cx.shape(0)?, cx.out_shape(0)?);
    let own = strides(&x);
    let mut dims = Vec::new();
    let mut by = Vec::new();
    for d in 0..x.len() {
        dims.extend([out[d].checked_div(x[d]).unwrap_or(0), x[d]]);
        by.extend([0, own[d] as i64]);
    }
    launch(cx, 0, &dims, &by)
}

fn dims_source(_: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    Ok(Body { inputs: Some(Vec::new()), ..Body::element("shape/dims", "dims") })
}

fn dims(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, op) = (cx.shape(0)?, cx.op()?);
    let dims = match op.id() {
        SIZE => vec![x.iter().product()],
        _ => {
            let (start, end) = kiln_ops::shape::window(op.attrs(), x.len()).map_err(op_error)?;
            x[start..end].to_vec()
        }
    };
    Ok(vec![Launch::map(0, DimsParams { dims: signed(dims) }.words()?)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_can_be_read_again() {
        let params = StridedParams {
            offset: 5,
            dims: vec![2, 3],
            strides: vec![7, u32::MAX as usize],
            ..StridedParams::default()
        };
        let walk = Walk::of(&Launch::map(0, params.words().unwrap())).unwrap();
        assert_eq!(walk, Walk { offset: 5, dims: vec![2, 3], strides: vec![7, u32::MAX] });
        assert_eq!(Walk::of(&Launch::map(0, vec![0, 0, 9, 9])), None);
    }
}
