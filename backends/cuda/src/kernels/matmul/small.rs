//! Products of many small matrices by `mma.sync`: a warp, or a few, for each.

use super::across;
use crate::kernels::constants::structure;
use crate::kernels::cost::{Device, LAUNCH_NS};
use crate::kernels::mma::Kind;
use crate::kernels::shape::{input, moving, output, traffic};
use crate::tiles;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::matmul::product;
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::{Body, Entry, Grid, Launch};

pub mod table;

kiln_codegen::params! {
    /// Products of small matrices, whose sizes are constants.
    struct SmallMatmulParams {
        /// Number of products.
        products: u32,
        /// Dimensions of the batch.
        batch: [u32],
        /// Elements from one to the next of each dimension of the batch in A.
        a_batch: [u32],
        /// Elements from one to the next of each dimension of the batch in B.
        b_batch: [u32],
    }
}

/// The longest side of a result.
const MOST_SIDE: usize = 128;
/// The most sums of a thread.
const MOST_SUMS: usize = 96;
/// The fewest products for which blocks of several are offered.
const LEAST_PRODUCTS: usize = 32;
/// The most bytes that a block shares, so that a multiprocessor has room for two.
const MOST_BYTES: usize = 112 << 10;

/// Matrices of a block, and warps that share the rows and the columns of each.
#[derive(Debug)]
pub struct Row {
    pub matrices: usize,
    pub warps: (usize, usize),
}

/// Sizes of a product, and the kind of its operands.
struct Sizes {
    m: usize,
    n: usize,
    k: usize,
    across: (bool, bool),
    kind: Kind,
}

impl Sizes {
    /// The sizes of a site's product; refuses those that are not known to be small.
    fn of(site: &Site<'_>, kind: Kind) -> Result<Sizes, BackendError> {
        let across = across(site)?;
        let matrix = |i: usize| {
            let ty = input(site, i).filter(|t| t.rank() > 1)?;
            let [.., r, c] = &ty.dims[..] else { return None };
            let size = |d: &kiln_ir::Dim| usize::try_from(d.as_const()?).ok().filter(|n| *n > 0);
            Some((size(r)?, size(c)?))
        };
        let (Some(a), Some(b)) = (matrix(0), matrix(1)) else {
            return unsupported("small products of vectors, or of matrices of unknown size");
        };
        let (m, k) = if across.0 { (a.1, a.0) } else { a };
        let n = if across.1 { b.1 } else { b.0 };
        if m.max(n) > MOST_SIDE {
            return unsupported(format!("small products of {m} x {n} results"));
        }
        let products = output(site, 0).and_then(|y| y.static_volume()).map(|v| v / (m * n));
        if products.is_some_and(|p| p < LEAST_PRODUCTS) {
            return unsupported(format!("fewer than {LEAST_PRODUCTS} small products"));
        }
        Ok(Sizes { m, n, k, across, kind })
    }

    /// Bytes of shared memory that a matrix takes, as `matmul/small.cuh` lays it out.
    fn room(&self, side: usize, across: bool) -> usize {
        let (lines, length) = if across { (self.k, side) } else { (side, self.k) };
        let bytes = length * self.kind.size;
        match bytes.is_multiple_of(16) {
            true => lines * ((bytes / 16) | 1) * 16,
            false => (lines * bytes).next_multiple_of(16) + 16,
        }
    }
}

impl Row {
    /// The row as one of the list of all; sides of tiles are those of the operands.
    pub fn listed(&self, tactic: &'static str) -> tiles::Tile {
        tiles::Tile {
            tactic,
            rows: MOST_SIDE,
            columns: MOST_SIDE,
            threads: self.threads(),
            stages: Some(1),
            stage_bytes: None,
            split: 1,
            beside: None,
        }
    }

    fn warps(&self) -> usize {
        self.warps.0 * self.warps.1
    }

    /// Threads of a block.
    fn threads(&self) -> usize {
        self.matrices * self.warps() * 32
    }

    /// Tiles of 16 rows and of 8 columns of a warp.
    fn tiles(&self, s: &Sizes) -> (usize, usize) {
        (s.m.div_ceil(16).div_ceil(self.warps.0), s.n.div_ceil(8).div_ceil(self.warps.1))
    }

    /// Shared memory of a block in bytes: the operands, then the sums.
    fn shared(&self, s: &Sizes) -> usize {
        let operands = s.room(s.m, s.across.0) + s.room(s.n, s.across.1);
        self.matrices * operands.max(s.m * s.n * 4)
    }

    /// The nanoseconds that so many products, which move these bytes, are expected to take.
    fn estimate(&self, site: &Site<'_>, s: &Sizes) -> Option<f64> {
        /// Clocks of a block from its first copy to its last store.
        const BLOCK_CLOCKS: f64 = 4500.0;
        /// Clocks of a multiprocessor for an instruction of a warp.
        const INSTRUCTION: f64 = 0.4;
        let device = Device::of(site.target);
        let products = output(site, 0)?.static_volume()? as f64 / (s.m * s.n) as f64;
        let (mi, nj) = self.tiles(s);
        let depth = s.k as f64;
        let steps = (depth * s.kind.size as f64 / 32.0).ceil();
        // Fragments whose elements are read one by one take several times as many.
        let reads = |whole: bool| if whole { 1.5 } else { 12.0 };
        let whole = |side: usize, across: bool| {
            let length = if across { side } else { s.k };
            (length * s.kind.size).is_multiple_of(16) && (!across || s.kind.size == 2)
        };
        let of_step = mi as f64 * reads(whole(s.m, s.across.0))
            + nj as f64 / 2.0 * reads(whole(s.n, s.across.1))
            + (mi * nj) as f64 * 2.0;
        let results = (s.m * s.n) as f64;
        let copies = (results + ((s.m + s.n) as f64) * depth) * s.kind.size as f64 / 512.0;
        let each = self.warps() as f64 * (steps * of_step + 60.0) + copies * 12.0 + results / 32.0 * 8.0;
        let busy = products / device.sm_count * each * INSTRUCTION;
        let room =
            (200.0 * 1024.0 / self.shared(s) as f64).min(2048.0 / self.threads() as f64).floor().max(1.0);
        let waves = (products / self.matrices as f64 / device.sm_count / room).ceil();
        let compute = LAUNCH_NS + busy.max(waves * BLOCK_CLOCKS) / device.ghz;
        Some(compute.max(moving(site.target, traffic(site)?, 1.3)))
    }
}

/// Whether a kernel of the table takes a side result.
pub const fn side_results(_: &Row) -> bool {
    false
}

/// The tactic of a row of the table.
pub fn tactics(site: &Site<'_>, name: &str, row: &Row) -> Result<Vec<Tactic>, BackendError> {
    let sizes = Sizes::of(site, Kind::of(site)?)?;
    let (mi, nj) = row.tiles(&sizes);
    if mi * nj * 4 > MOST_SUMS || 16 * row.warps.0 >= sizes.m + 16 || 8 * row.warps.1 >= sizes.n + 8 {
        return unsupported(format!("{} x {} results for {} warps", sizes.m, sizes.n, row.warps()));
    }
    let (needs, has) = (row.shared(&sizes), site.target.numbers.get("shared_memory"));
    if needs > MOST_BYTES || has.is_some_and(|&has| has < needs as u64) {
        return unsupported(format!("{needs} bytes of shared memory for {} small products", row.matrices));
    }
    Ok(vec![Tactic { estimate_ns: row.estimate(site, &sizes), ..Tactic::plain(name) }])
}

/// Returns the body: kernel files, constants and the entry point.
pub fn source(site: &Site<'_>, row: &Row) -> Result<Body, BackendError> {
    let s = Sizes::of(site, Kind::of_types(site)?)?;
    let numbers = [
        ("MATRICES", row.matrices),
        ("WARPS_M", row.warps.0),
        ("WARPS_N", row.warps.1),
        ("M", s.m),
        ("N", s.n),
        ("DEPTH", s.k),
    ];
    let flags = [("ACROSS_A", s.across.0), ("ACROSS_B", s.across.1)];
    let mma = format!("    typedef {} Mma;\n", s.kind.instruction());
    let entries = vec![Entry::blocks("small", row.threads() as u32)];
    let body = Body { shared: row.shared(&s) as u32, ..Body::of("matmul/small", entries) };
    Ok(body.with(structure("Small", &numbers, &flags, &mma)))
}

/// The launch of several products a block.
pub fn launch(cx: &Cx<'_>, row: &Row) -> Result<Vec<Launch>, BackendError> {
    let p = product(cx)?;
    let params = SmallMatmulParams {
        products: p.batch,
        batch: p.params.batch,
        a_batch: p.params.a_batch,
        b_batch: p.params.b_batch,
    };
    Ok(vec![Launch::map(0, params.words()?).on(Grid::Groups(p.batch.div_ceil(row.matrices) as u64))])
}
