//! Operators that move elements by affine index arithmetic: the element at index c of the output is that at
//! offset + Σ c·stride of the input.

use crate::cx::halves;
use crate::limits::{is_far, near_or_far};
use crate::scalar::register;
use crate::site::{Cx, Site, op_error};
use crate::template::{fill, sections};
use crate::{Body, Entry, Kernel, Launch, plain};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::infer::normalize_axis;
use kiln_ops::slice::window::window;
use kiln_ops::util::{broadcast_strides, strides};

type LaunchFn = fn(&Cx<'_>) -> Result<Vec<Launch>, BackendError>;

const fn affine(name: &'static str, ops: &'static [&'static str], launch: LaunchFn) -> Kernel {
    Kernel { name, ops, epilogue: true, tactics: |site| plain(site.kernel_name()), source, launch }
}

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    affine("copy", &["reshape", "squeeze", "unsqueeze"], copy),
    affine("transpose", &["transpose"], transpose),
    Kernel {
        tactics: |site| Ok(vec![near_or_far(site, Tactic::plain(site.kernel_name()))]),
        ..affine("slice", &["slice"], slice)
    },
    affine("expand", &["expand"], expand),
    affine("tile", &["tile"], tile),
    affine("depth_to_space", &["depth_to_space"], depth_to_space),
    affine("space_to_depth", &["space_to_depth"], space_to_depth),
];

fn source(site: &Site<'_>, tactic: &Tactic) -> Result<Body, BackendError> {
    let far = is_far(tactic);
    let names: &[&str] = if far { &["far64", "affine_far"] } else { &["affine"] };
    let code = fill(&sections(site.text("moves"), names), &[("REG", register(site.out_dtype(0)))]);
    let far = if far { vec![0] } else { Vec::new() };
    Ok(Body { inputs: Some(vec![0]), entries: vec![Entry::Map(0)], code, far, ..Body::default() })
}

/// The same elements in the same order.
fn copy(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    if cx.aliased.contains(&(0, 0)) && !cx.fused {
        return Ok(Vec::new());
    }
    let n: usize = cx.out_shape(0)?.iter().product();
    gather(0, &[n], &[1])
}

fn signed(v: Vec<usize>) -> Vec<i64> {
    v.into_iter().map(|s| s as i64).collect()
}

fn transpose(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let own = strides(&x);
    let perm = cx.op()?.attrs().ints("perm").map_err(op_error)?;
    let order: Vec<usize> = if perm.is_empty() {
        (0..x.len()).rev().collect()
    } else {
        perm.iter()
            .map(|&p| normalize_axis(p, x.len(), "perm"))
            .collect::<Result<_, _>>()
            .map_err(op_error)?
    };
    let by: Vec<i64> = order.iter().map(|&p| own[p] as i64).collect();
    gather(0, &cx.out_shape(0)?, &by)
}

fn slice(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let missing = || BackendError::Internal("a slice without bounds".into());
    let (starts, ends) = (cx.ints(1)?.ok_or_else(missing)?, cx.ints(2)?.ok_or_else(missing)?);
    let axes = cx.ints(3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = cx.ints(4)?.unwrap_or_else(|| vec![1; starts.len()]);
    let mut by = signed(strides(&x));
    let mut offset = 0;
    for (((&a, &start), &end), &step) in axes.iter().zip(&starts).zip(&ends).zip(&steps) {
        let axis = normalize_axis(a, x.len(), "axes").map_err(op_error)?;
        let w = window(x[axis] as i64, start, end, step);
        if w.len > 0 {
            offset += w.first * by[axis];
        }
        // A single element needs no step; a huge one would overflow.
        by[axis] = if w.len > 1 { by[axis] * w.step } else { 0 };
    }
    match cx.far() {
        true => far(offset, &cx.out_shape(0)?, &by),
        false => gather(offset, &cx.out_shape(0)?, &by),
    }
}

/// As [`gather`], for positions of 64 bits.
fn far(offset: i64, dims: &[usize], strides: &[i64]) -> Result<Vec<Launch>, BackendError> {
    let (dims, strides) = coalesce(dims, strides);
    let mut words = vec![crate::word(dims.len())?];
    words.extend(crate::words(dims)?);
    words.extend([offset].iter().chain(&strides).flat_map(|&n| halves(n as u64)));
    Ok(vec![Launch::map(0, words)])
}

fn expand(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let out = cx.out_shape(0)?;
    gather(0, &out, &signed(broadcast_strides(&cx.shape(0)?, &out)))
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
    gather(0, &dims, &by)
}

fn block(cx: &Cx<'_>) -> Result<usize, BackendError> {
    Ok(cx.op()?.attrs().int("block").map_err(op_error)? as usize)
}

fn depth_to_space(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let b = block(cx)?;
    let out = cx.out_shape(0)?;
    let &[n, c, h, w] = &out[..] else { return Ok(Vec::new()) };
    let (h, w) = (h / b, w / b);
    let plane = (h * w) as i64;
    let crd = cx.op()?.attrs().str("mode").map_err(op_error)? == "CRD";
    let (of_c, of_block) = if crd { ((b * b) as i64 * plane, plane) } else { (plane, c as i64 * plane) };
    let dims = [n, c, h, b, w, b];
    let by = [(c * b * b) as i64 * plane, of_c, w as i64, b as i64 * of_block, 1, of_block];
    gather(0, &dims, &by)
}

fn space_to_depth(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let b = block(cx)?;
    let x = cx.shape(0)?;
    let &[n, c, h, w] = &x[..] else { return Ok(Vec::new()) };
    let (row, plane) = (w as i64, (h * w) as i64);
    let step = b as i64;
    let batch = c as i64 * plane;
    match cx.op()?.attrs().str("mode").map_err(op_error)? {
        "CRD" => gather(0, &[n, c, b, b, h / b, w / b], &[batch, plane, row, 1, row * step, step]),
        _ => gather(0, &[n, b, b, c, h / b, w / b], &[batch, row, 1, plane, row * step, step]),
    }
}

/// A launch that reads with these strides (which may be negative) from an offset on.
pub fn gather(offset: i64, dims: &[usize], strides: &[i64]) -> Result<Vec<Launch>, BackendError> {
    let (dims, strides) = coalesce(dims, strides);
    let mut words = vec![offset as u32, crate::word(dims.len())?];
    words.extend(crate::words(dims)?);
    words.extend(strides.iter().map(|&s| s as u32));
    Ok(vec![Launch::map(0, words)])
}

/// Joins neighbouring dimensions that are walked as one, and drops those of size 1.
pub fn coalesce(dims: &[usize], strides: &[i64]) -> (Vec<usize>, Vec<i64>) {
    let mut out: (Vec<usize>, Vec<i64>) = (Vec::new(), Vec::new());
    for (&n, &s) in dims.iter().zip(strides).filter(|(n, _)| **n != 1) {
        match (out.0.last_mut(), out.1.last_mut()) {
            (Some(m), Some(t)) if *t == s * n as i64 => {
                *m *= n;
                *t = s;
            }
            _ => {
                out.0.push(n);
                out.1.push(s);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn contiguous_dimensions_join() {
        assert_eq!(super::coalesce(&[2, 3, 1, 4], &[12, 4, 9, 1]), (vec![24], vec![1]));
        assert_eq!(super::coalesce(&[2, 3], &[1, 2]), (vec![2, 3], vec![1, 2]));
        assert_eq!(super::coalesce(&[4, 3], &[0, 0]), (vec![12], vec![0]));
    }
}
