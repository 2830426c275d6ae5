//! Expected times of recurrences.

use super::plan::{RESIDENT, SIDE, directions, gates, hidden, narrow};
use crate::kernels::mma::Tile;
use kiln_backend::BackendError;
use kiln_codegen::site::Site;

/// Sizes of a recurrence; those that are not known are taken for middling ones.
pub struct Work {
    pub steps: usize,
    pub batch: usize,
    pub dirs: usize,
    /// Components of an input.
    depth: usize,
    /// Rows of the weights of a direction.
    lines: usize,
    narrow: bool,
    ghz: f64,
}

impl Work {
    /// The sizes of a site.
    pub fn of(site: &Site<'_>) -> Result<Work, BackendError> {
        let dims = site.anchor.and_then(|(_, n)| n.inputs.first().copied().flatten());
        let dims = dims.map(|v| site.graph.ty(v).dims.clone()).unwrap_or_default();
        let of = |i: usize| dims.get(i).and_then(|d| d.as_const()).map_or(32, |n| n.max(0) as usize);
        let op = site.op()?;
        let first = op.attrs().int("layout") == Ok(1);
        let (steps, batch) = if first { (of(1), of(0)) } else { (of(0), of(1)) };
        let ghz = site.target.numbers.get("clock_mhz").map_or(1.5, |&m| m as f64 / 1000.0).max(0.1);
        let (dirs, lines) = (directions(op.attrs()), gates(op.name()) * hidden(site)?);
        Ok(Work { steps, batch, dirs, depth: of(2), lines, narrow: narrow(site)?, ghz })
    }

    /// Nanoseconds of the input's product by this tile, and of steps that take so many clocks, `waves` blocks after each other.
    pub fn ns(&self, tile: &Tile, waves: usize, clocks: f64) -> f64 {
        let (m, n) = if self.narrow { (tile.m, tile.n) } else { (SIDE, SIDE) };
        let blocks = (self.steps * self.batch).div_ceil(m) * (self.dirs * self.lines).div_ceil(n);
        // A tile's clocks: by its area where a wave of them fills the device.
        let rate = match self.narrow {
            false => 80.0,
            true if n > 64 => 900.0,
            true => 450.0,
        };
        let each = 2.0 * (m * n * self.depth) as f64 / rate + 1500.0;
        let product = blocks.div_ceil(2 * RESIDENT) as f64 * each;
        4000.0 + (waves as f64 * self.steps as f64 * clocks + product) / self.ghz
    }
}
