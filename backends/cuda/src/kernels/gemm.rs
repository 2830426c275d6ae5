//! Matrix products on tensor cores.

use super::cost;
use super::mma::{Kind, TILES, Tile};
use crate::tiles;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::matmul::geometry;
use kiln_codegen::site::{Cx, Site, op_error};
use kiln_codegen::template::sections;
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, word};

const TEXT: &str = include_str!("../../../../kernels/mma/gemm.cuh");

/// A tile, and how many blocks share its depth.
struct Plan {
    name: &'static str,
    tile: usize,
    split: usize,
}

const fn plan(name: &'static str, tile: usize, split: usize) -> Plan {
    Plan { name, tile, split }
}

const PLANS: [Plan; 15] = [
    plan("matmul.mma_256x128", 0, 1),
    plan("matmul.mma_128x256", 8, 1),
    plan("matmul.mma_128x128", 1, 1),
    plan("matmul.mma_128x128_w8", 2, 1),
    plan("matmul.mma_128x64", 3, 1),
    plan("matmul.mma_64x128", 4, 1),
    plan("matmul.mma_64x64", 5, 1),
    plan("matmul.mma_32x64", 6, 1),
    plan("matmul.mma_16x128", 7, 1),
    plan("matmul.mma_64x64_split2", 5, 2),
    plan("matmul.mma_64x64_split4", 5, 4),
    plan("matmul.mma_32x64_split4", 6, 4),
    plan("matmul.mma_32x64_split8", 6, 8),
    plan("matmul.mma_16x128_split4", 7, 4),
    plan("matmul.mma_16x128_split12", 7, 12),
];

pub const KERNELS: &[Kernel] = kernels_of!(mma[0 1 2 3 4 5 6 7 8 9 10 11 12 13 14]);
const _: () = assert!(KERNELS.len() == PLANS.len());

const fn mma<const P: usize>() -> Kernel {
    Kernel {
        name: PLANS[P].name,
        ops: &["matmul"],
        epilogue: true,
        tactics: |site| tactics(site, &PLANS[P]),
        source: |site, _| source(site, &PLANS[P]),
        launch: |cx| launch(cx, &PLANS[P]),
    }
}

/// The table as a list.
pub fn tiles() -> Vec<tiles::Tile> {
    PLANS.iter().map(|p| p.tile().listed(p.name, p.split)).collect()
}

impl Plan {
    fn tile(&self) -> &'static Tile {
        &TILES[self.tile]
    }
}

/// Do A and B lie across the depth? A vector lies along it.
pub fn across(site: &Site<'_>) -> Result<(bool, bool), BackendError> {
    let attrs = site.op()?.attrs();
    let trans = |name| attrs.bool(name).map_err(op_error);
    let matrix = |i| site.rank(i).is_some_and(|r| r > 1);
    Ok((matrix(0) && trans("trans_a")?, matrix(1) && !trans("trans_b")?))
}

/// Are lines of both operands known to be whole vectors of 16 bytes?
fn whole(site: &Site<'_>) -> bool {
    let one = |i: usize| {
        let ty = site.anchor.and_then(|(_, n)| Some(site.graph.ty((*n.inputs.get(i)?)?)))?;
        let line = ty.dims.last().filter(|_| ty.rank() > 1)?.as_const()?;
        Some(line.checked_mul(i64::from(ty.dtype.bits()))? % 128 == 0)
    };
    one(0) == Some(true) && one(1) == Some(true)
}

fn tactics(site: &Site<'_>, plan: &Plan) -> Result<Vec<Tactic>, BackendError> {
    let kind = Kind::of(site)?;
    plan.tile().check(site, kind, across(site)?)?;
    let estimate_ns = cost::Product::of(site).map(|p| p.by_mma(site.target, plan.tile(), kind, plan.split));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(plan.name) }])
}

fn source(site: &Site<'_>, plan: &Plan) -> Result<Body, BackendError> {
    let (kind, across) = (Kind::of_types(site)?, across(site)?);
    let split = format!("{}u", plan.split);
    let alone = plan.split == 1;
    let text = sections(TEXT, &["gemm", if alone { "whole" } else { "split" }]);
    let cell = |i| site.dtype(i).map_or("u8", crate::frame::cell);
    let vectors = if whole(site) { "true" } else { "false" };
    let pairs = [("SPLIT", &*split), ("CELL_A", cell(0)), ("CELL_B", cell(1)), ("WHOLE", vectors)];
    let code = plan.tile().source(kind, across, &text, &pairs);
    let shared = plan.tile().shared(kind, across) as u32;
    let mut entries = vec![Entry::Free("gemm")];
    entries.extend((!alone).then_some(Entry::Map(0)));
    Ok(Body { code, entries, shared, scratch: !alone, ..Body::default() })
}

fn launch(cx: &Cx<'_>, plan: &Plan) -> Result<Vec<Launch>, BackendError> {
    let (mut words, blocks) = geometry(cx, plan.tile().m, plan.tile().n)?;
    let sums: usize = cx.out_shape(0)?.iter().product();
    words.push(word(sums)?);
    let gemm = Launch::map(0, words.clone()).on(Grid::Groups(blocks * plan.split as u64));
    if plan.split == 1 {
        return Ok(vec![gemm]);
    }
    let bytes = (plan.split * sums * 4) as u64;
    Ok(vec![gemm.scratch(bytes), Launch::map(1, words).scratch(bytes)])
}
