//! Products by weights that stay codes: words of codes for few rows, tiles for many, one thread an element else.

use super::super::tile::{direct_tactic, tile_body, tile_of, tile_tactics};
use super::tile_launches;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::long::continued;
use kiln_codegen::matmul::codes::{factor, few_launch, few_source, few_tactics};
use kiln_codegen::matmul::{naive, product};
use kiln_codegen::rows::RowTile;
use kiln_codegen::site::Site;
use kiln_codegen::{Kernel, Views};

/// Threads that share the codes of four outputs: lanes of a vector in software have no memory of their own to meet in.
const SHARERS: [usize; 2] = [64, 1];

pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "matmul_codes.few",
        ops: &["matmul_codes"],
        epilogue: true,
        views: Views::Whole,
        side_results: false,
        tactics: few,
        source: few_source,
        launch: few_launch,
    },
    Kernel {
        name: "matmul_codes.tiled",
        ops: &["matmul_codes"],
        epilogue: true,
        views: Views::Framed,
        side_results: false,
        tactics: |site| tile_tactics(site, "matmul_codes.tiled"),
        source: |site, t| {
            let tile = tile_of(t)?;
            let rows = RowTile { rows: tile.m, columns: tile.n, chunk: 4 };
            let body = tile_body(site, "matmul/tiled", "matmul_tiled", tile);
            Ok(body.with(rows.constants(site) + &factor(site)?))
        },
        launch: |cx| tile_launches(cx, &product(cx)?),
    },
    Kernel {
        name: "matmul_codes.naive",
        ops: &["matmul_codes"],
        epilogue: true,
        views: Views::Framed,
        side_results: false,
        tactics: |site| direct_tactic(site, "matmul_codes.naive"),
        source: |site, _| naive(site),
        launch: |cx| {
            let p = product(cx)?;
            continued(cx, p.params.words()?, p.k, 1)
        },
    },
];

fn few(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let mut sharers = SHARERS;
    if site.target.has("software") {
        sharers.reverse();
    }
    few_tactics(site, &sharers)
}
