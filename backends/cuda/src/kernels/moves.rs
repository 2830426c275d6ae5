//! Elements taken from elsewhere: eight neighbours at a time, or by tiles where another dimension becomes the innermost.

use super::shape::{input, moving, output};
use crate::frame::{cell, load};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::limits::{self, near_or_far};
use kiln_codegen::scalar::{register, zero};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::template::{fill, section, sections};
use kiln_codegen::{Body, Entry, FAMILIES, Grid, Kernel, Launch, word};
use kiln_ir::DType;
use kiln_ir::infer::normalize_axis;

const TEXT: &str = include_str!("../../../../kernels/moves/moves.cuh");

pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "move.vectors",
        ops: &[
            "reshape",
            "squeeze",
            "unsqueeze",
            "transpose",
            "slice",
            "expand",
            "tile",
            "depth_to_space",
            "space_to_depth",
        ],
        epilogue: true,
        tactics: |site| tactics(site, "move.vectors"),
        source: |site, _| affine_source(site),
        launch: affine,
    },
    Kernel {
        name: "gather.vectors",
        ops: &["gather"],
        epilogue: true,
        tactics: |site| {
            let all = tactics(site, "gather.vectors")?;
            Ok(all.into_iter().map(|t| near_or_far(site, t)).collect())
        },
        source: gather_source,
        launch: gather,
    },
    Kernel {
        name: "concat.vectors",
        ops: &["concat"],
        epilogue: true,
        tactics: concat_tactics,
        source: |site, _| concat_source(site),
        launch: concat,
    },
];

/// Elements of a vector.
const WIDTH: usize = 8;

/// What is moved, in bytes: the result, read and written.
fn bytes(site: &Site<'_>) -> Option<f64> {
    let y = output(site, 0)?;
    Some(2.0 * y.static_volume()? as f64 * f64::from(y.dtype.bits()) / 8.0)
}

fn tactics(site: &Site<'_>, name: &str) -> Result<Vec<Tactic>, BackendError> {
    let t = site.out_dtype(0);
    if t.bits() < 8 {
        return unsupported(format!("vectors of {t}, which shares bytes"));
    }
    let estimate_ns = bytes(site).map(|b| moving(site.target, b, 1.3));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
}

/// A number with what a division by it takes: the factor and the shift, or a shift of 32 where numbers up to `most` are too
/// large. For n < 2³¹, n / d is (⌊n·f / 2³²⌋ + n) / 2ˢ with s = ⌈log₂ d⌉ and f = ⌈2³²·(2ˢ − d) / d⌉ + 1, at most 2³² − 1.
fn divisor(d: usize, most: usize) -> Result<[u32; 3], BackendError> {
    let d32 = word(d.max(1))?;
    if most >= 1 << 31 {
        return Ok([d32, 0, 32]);
    }
    let shift = d32.next_power_of_two().trailing_zeros();
    let d = u64::from(d32);
    let factor = ((1u64 << 32) * ((1u64 << shift) - d)) / d + 1;
    Ok([d32, u32::try_from(factor).unwrap_or(u32::MAX), shift])
}

/// Copying eight elements at once, one, and one out of shared memory.
fn puts(site: &Site<'_>, from: &str) -> [String; 2] {
    let t = site.out_dtype(0);
    let c = cell(t);
    if site.fused.is_none() {
        return [format!("Run<{c}>::of(bx0 + {from}, 1u).put(by0 + at);"), format!("by0[at] = bx0[{from}];")];
    }
    let r = register(t);
    let value = load(t, "r.v", "j");
    [
        format!(
            "const auto r = Run<{c}>::of(bx0 + {from}, 1u);\n    {r} v[8];\n#pragma unroll\n    for (u32 j = 0u; j < 8u; \
             j++) {{\n        v[j] = {value};\n    }}\n    emit0_run(at, v);"
        ),
        format!("emit0(at, {});", load(t, "bx0", from)),
    ]
}

fn affine_source(site: &Site<'_>) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let [eight, one] = puts(site, "from");
    let taken = match site.fused {
        None => "by0[at] = *cells;".to_owned(),
        Some(_) => format!("emit0(at, {});", load(t, "cells", "0")),
    };
    let pitch = match t.bits() {
        8 => "68",
        16 => "66",
        _ => "65",
    };
    let head = TEXT.split_once("// ---- ").map_or("", |p| p.0).to_owned();
    let code = fill(
        &(head + &sections(TEXT, &["affine", "transposed"])),
        &[("PUT_8", &*eight), ("PUT_1", &*one), ("PUT_CELL", &*taken), ("CELL", cell(t)), ("PITCH", pitch)],
    );
    let entries = ["by_8", "by_1", "transposed"].map(Entry::Free).into();
    Ok(Body { code, entries, inputs: Some(vec![0]), ..Body::default() })
}

/// Where the result's elements lie in the source.
struct Walk {
    offset: u32,
    dims: Vec<usize>,
    /// May be negative, wrapped to 32 bits.
    strides: Vec<u32>,
}

/// How the generic kernel walks; nothing where it launches nothing.
fn walk(cx: &Cx<'_>) -> Result<Option<Walk>, BackendError> {
    let name = cx.op()?.name();
    let generic = FAMILIES.iter().flat_map(|f| f.iter()).find(|k| k.ops.contains(&name));
    let lost = || BackendError::Internal(format!("\"{name}\" does not say how it walks"));
    let Some(launch) = (generic.ok_or_else(lost)?.launch)(cx)?.pop() else { return Ok(None) };
    let found = kiln_codegen::shape::Walk::of(&launch).ok_or_else(lost)?;
    Ok(Some(Walk { offset: found.offset, dims: found.dims, strides: found.strides }))
}

/// Smaller dimensions are not worth a tile.
const LEAST_SIDE: usize = 16;
const SIDE: usize = 64;

fn affine(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let Some(walk) = walk(cx)? else { return Ok(Vec::new()) };
    let total: usize = walk.dims.iter().product();
    if total == 0 {
        return Ok(Vec::new());
    }
    let rows = cx.out_shape(0)?.last().is_some_and(|n| n.is_multiple_of(WIDTH)) || !cx.fused;
    if rows && walk.by_eights() {
        return walk.vectors(WIDTH);
    }
    match walk.tiles() {
        Some((p, q)) => walk.transposed(p, q),
        None => walk.vectors(1),
    }
}

impl Walk {
    /// Are runs of eight neighbours of the result neighbours in the source?
    fn by_eights(&self) -> bool {
        let Some((last, outer)) = self.strides.split_last() else { return false };
        let whole = |s: &u32| s.is_multiple_of(WIDTH as u32);
        *last == 1
            && self.dims.last().is_some_and(|n| n.is_multiple_of(WIDTH))
            && outer.iter().all(whole)
            && whole(&self.offset)
    }

    /// The dimension that lies densely in the source and the last one, if they are others and large.
    fn tiles(&self) -> Option<(usize, usize)> {
        let q = self.dims.len().checked_sub(1)?;
        let p = self.strides.iter().position(|&s| s == 1)?;
        let large = |d: usize| self.dims.get(d).is_some_and(|&n| n >= LEAST_SIDE);
        (p != q && large(p) && large(q)).then_some((p, q))
    }

    fn vectors(&self, width: usize) -> Result<Vec<Launch>, BackendError> {
        let total = self.dims.iter().product::<usize>() / width;
        let mut w = vec![self.offset, word(self.dims.len())?];
        for (i, (&n, &stride)) in self.dims.iter().zip(&self.strides).enumerate().rev() {
            let last = i + 1 == self.dims.len();
            let (n, stride) = if last { (n / width, stride * width as u32) } else { (n, stride) };
            w.extend(divisor(n, total)?);
            w.push(stride);
        }
        Ok(vec![Launch::map(usize::from(width == 1), w).on(Grid::Threads(total as u64))])
    }

    fn transposed(&self, p: usize, q: usize) -> Result<Vec<Launch>, BackendError> {
        let mut own = vec![1usize; self.dims.len()];
        for d in (1..self.dims.len()).rev() {
            own[d - 1] = own[d] * self.dims[d];
        }
        let tiles = [p, q].map(|d| self.dims[d].div_ceil(SIDE));
        let mut w =
            vec![self.offset, word(self.dims[p])?, word(self.dims[q])?, self.strides[q], word(own[p])?];
        w.extend([word(tiles[0])?, word(tiles[1])?]);
        let rest: Vec<usize> = (0..self.dims.len()).rev().filter(|d| *d != p && *d != q).collect();
        w.push(word(rest.len())?);
        let mut groups = tiles[0] * tiles[1];
        for d in rest {
            groups *= self.dims[d];
            w.extend(divisor(self.dims[d], usize::MAX)?);
            w.extend([self.strides[d], word(own[d])?]);
        }
        Ok(vec![Launch::map(2, w).on(Grid::Groups(groups as u64))])
    }
}

fn gather_source(site: &Site<'_>, tactic: &Tactic) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let index = if site.dtype(1) == Some(DType::I64) { "i64" } else { "i32" };
    let [eight, one] = puts(site, "from");
    let [at, place] = limits::types(tactic);
    let head = TEXT.split_once("// ---- ").map_or("", |p| p.0).to_owned();
    let code = fill(
        &(head + section(site.text("moves"), "wrap") + section(TEXT, "gather")),
        &[
            at,
            place,
            ("PUT_8", &*eight),
            ("PUT_1", &*one),
            ("CELL", cell(t)),
            ("IDX", index),
            ("GAP", zero(t)),
        ],
    );
    Ok(Body { code, entries: ["by_8", "by_1"].map(Entry::Free).into(), ..Body::default() })
}

fn gather(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, picks) = (cx.shape(0)?, cx.shape(1)?);
    let attrs = cx.op()?.attrs();
    let axis = normalize_axis(attrs.int("axis").map_err(op_error)?, x.len(), "axis").map_err(op_error)?;
    let batch = attrs.int("batch_dims").map_err(op_error)?.max(0) as usize;
    let total: usize = cx.out_shape(0)?.iter().product();
    let product = |d: &[usize]| d.iter().product::<usize>();
    let (Some(picked), Some(before)) = (picks.get(batch..), x.get(batch..axis)) else {
        return Err(BackendError::Internal("a gather whose batch is no part of it".into()));
    };
    let after = product(&x[axis + 1..]);
    let rows = cx.out_shape(0)?.last().is_some_and(|n| n.is_multiple_of(WIDTH)) || !cx.fused;
    let width = if rows && after.is_multiple_of(WIDTH) { WIDTH } else { 1 };
    let mut w = vec![word(x[axis])?];
    for n in [after / width, product(picked), product(before)] {
        w.extend(divisor(n, total)?);
    }
    Ok(vec![Launch::map(usize::from(width == 1), w).on(Grid::Threads((total / width) as u64))])
}

/// The most inputs of one launch.
const MOST: usize = 32;

fn concat_tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let count = site.anchor.map_or(0, |(_, n)| n.inputs.len());
    if count > MOST || input(site, 0).is_none() {
        return unsupported(format!("{count} inputs of one kernel"));
    }
    tactics(site, "concat.vectors")
}

fn concat_source(site: &Site<'_>) -> Result<Body, BackendError> {
    let count = site.anchor.map_or(0, |(_, n)| n.inputs.len());
    let mut branches = String::new();
    for k in 0..count {
        let [eight, one] = puts(site, "from").map(|s| s.replace("bx0", &format!("bx{k}")));
        branches += &format!(
            "if (k == {k}u) {{\n        if constexpr (V == 8u) {{\n            {eight}\n        }} else {{\n            \
             {one}\n        }}\n        return;\n    }}\n    "
        );
    }
    let head = TEXT.split_once("// ---- ").map_or("", |p| p.0).to_owned();
    let inputs = format!("{count}u");
    let pairs = [("BRANCHES", &*branches), ("INPUTS", &*inputs), ("CELL", cell(site.out_dtype(0)))];
    let code = fill(&(head + section(TEXT, "concat")), &pairs);
    Ok(Body { code, entries: ["by_8", "by_1"].map(Entry::Free).into(), ..Body::default() })
}

fn concat(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let out = cx.out_shape(0)?;
    let attrs = cx.op()?.attrs();
    let axis = normalize_axis(attrs.int("axis").map_err(op_error)?, out.len(), "axis").map_err(op_error)?;
    let total: usize = out.iter().product();
    let shapes = (0..cx.inputs.len()).map(|i| cx.shape(i)).collect::<Result<Vec<_>, _>>()?;
    let slices: Vec<usize> = shapes.iter().map(|x| x[axis..].iter().product()).collect();
    let rows = out.last().is_some_and(|n| n.is_multiple_of(WIDTH)) || !cx.fused;
    let width = if rows && slices.iter().all(|n| n.is_multiple_of(WIDTH)) { WIDTH } else { 1 };
    let mut w = vec![word(out[axis..].iter().product())?];
    let (mut block, mut at) = (0, 0);
    for (x, own) in shapes.iter().zip(&slices) {
        let threads = x.iter().product::<usize>() / width;
        w.extend([word(block)?, word(threads)?, word(at)?]);
        w.extend(divisor(own / width, total)?);
        block += threads.div_ceil(256);
        at += own;
    }
    Ok(vec![Launch::map(usize::from(width == 1), w).on(Grid::Groups(block as u64))])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn divisions_by_factors_are_exact() {
        let largest = (1u64 << 31) - 1;
        for d in (1..3000).chain([4095, 4096, 4097, 65_537, 1 << 30, (1 << 31) - 1]) {
            let [_, factor, shift] = divisor(d, 1 << 20).unwrap();
            let near = [0, 1, 2, 3].into_iter().flat_map(|k| {
                let edge = largest / d as u64 * d as u64;
                [
                    k,
                    d as u64 * 7 + k,
                    (d as u64 * 7).saturating_sub(k),
                    edge + k,
                    edge - k.min(edge),
                    largest - k,
                ]
            });
            for n in near.filter(|n| *n <= largest) {
                let q = (((n * u64::from(factor)) >> 32) + n) >> shift;
                assert_eq!(q, n / d as u64, "{n} / {d}");
            }
        }
        assert_eq!(divisor(5, 1 << 31).unwrap(), [5, 0, 32]);
    }

    #[test]
    fn dense_runs_go_by_eights_and_others_by_tiles() {
        let walk =
            |dims: &[usize], strides: &[u32]| Walk { offset: 0, dims: dims.into(), strides: strides.into() };
        assert!(walk(&[4, 24], &[48, 1]).by_eights());
        assert!(!walk(&[4, 24], &[50, 1]).by_eights());
        assert_eq!(walk(&[40, 30], &[1, 40]).tiles(), Some((0, 1)));
        assert_eq!(walk(&[40, 3], &[1, 40]).tiles(), None);
    }
}
