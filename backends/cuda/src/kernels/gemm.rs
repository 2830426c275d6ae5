//! Matrix products on tensor cores.

use kiln_backend::{BackendError, Tactic};
use kiln_families::matmul::geometry;
use kiln_families::site::{Cx, Site, unsupported};
use kiln_families::template::{fill, sections};
use kiln_families::{Body, Entry, Grid, Kernel, Launch};
use kiln_ir::DType;

const TEXT: &str = include_str!("../../../../kernels/gemm/mma.cuh");

/// Static shared memory of a block.
const SHARED: usize = 48 << 10;

/// What a block computes: rows, columns, depth of a step, and its warps.
struct Tile {
    name: &'static str,
    m: usize,
    n: usize,
    k: usize,
    warps: (usize, usize),
}

/// The tiles, the largest first.
const TILES: [Tile; 3] = [
    Tile { name: "matmul.mma_128x128", m: 128, n: 128, k: 32, warps: (2, 4) },
    Tile { name: "matmul.mma_64x64", m: 64, n: 64, k: 32, warps: (2, 2) },
    Tile { name: "matmul.mma_32x64", m: 32, n: 64, k: 64, warps: (1, 4) },
];

pub const KERNELS: &[Kernel] = &[mma::<0>(), mma::<1>(), mma::<2>()];

const fn mma<const T: usize>() -> Kernel {
    Kernel {
        name: TILES[T].name,
        ops: &["matmul"],
        epilogue: true,
        tactics: |site| tactics(site, &TILES[T]),
        source: |site, _| source(site, &TILES[T]),
        launch: |cx| launch(cx, &TILES[T]),
    }
}

impl Tile {
    /// Buffers that tiles go through: as many as fit, four at most.
    fn stages(&self) -> usize {
        let one = 2 * (self.m * (self.k + 8) + self.k * (self.n + 8));
        (SHARED / one).clamp(2, 4)
    }
}

/// The type of both operands, as the instruction calls it.
fn operands(site: &Site<'_>) -> Option<&'static str> {
    match (site.dtype(0)?, site.dtype(1)?) {
        (DType::F16, DType::F16) => Some("f16"),
        (DType::BF16, DType::BF16) => Some("bf16"),
        _ => None,
    }
}

fn tactics(site: &Site<'_>, tile: &Tile) -> Result<Vec<Tactic>, BackendError> {
    if operands(site).is_none() {
        return unsupported("tensor cores for other operands than two of f16 or two of bf16");
    }
    Ok(vec![Tactic::plain(tile.name)])
}

fn source(site: &Site<'_>, tile: &Tile) -> Result<Body, BackendError> {
    let Some(of) = operands(site) else { return unsupported("tensor cores for other types") };
    let threads = (tile.warps.0 * tile.warps.1 * 32).to_string();
    let numbers = [tile.m, tile.n, tile.k, tile.warps.0, tile.warps.1, tile.stages()].map(|n| n.to_string());
    let [m, n, k, wm, wn, stages] = &numbers;
    let pairs = [
        ("BM", &**m),
        ("BN", n),
        ("BK", k),
        ("WARPS_M", wm),
        ("WARPS_N", wn),
        ("STAGES", stages),
        ("THREADS_OF_BLOCK", &threads),
        ("MMA_TYPE", of),
    ];
    let code = fill(&sections(TEXT, &["shared", "entry"]), &pairs);
    Ok(Body { code, entries: vec![Entry::Free("gemm")], ..Body::default() })
}

fn launch(cx: &Cx<'_>, tile: &Tile) -> Result<Vec<Launch>, BackendError> {
    let (words, blocks) = geometry(cx, tile.m, tile.n)?;
    Ok(vec![Launch::map(0, words).on(Grid::Groups(blocks))])
}
