//! The layout of a recurrence's work on the chip: rows of R and depth by warps, in registers, in shared memory.

use super::plan::{Plan, gates, hidden, narrow};
use kiln_backend::BackendError;
use kiln_codegen::site::{Site, unsupported};
use std::fmt::Write;

/// Warps of a block.
pub const WARPS: usize = 16;
/// Shared memory that the kernels declare themselves, in bytes at most.
const FIXED_SHARED: usize = 10 << 10;
/// Shared memory of a block where the target does not tell: what sm_80 has.
const LEAST_SHARED: u64 = 160 << 10;

/// Division of a block's work; the names are those of the kernel's constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layout {
    pub hidden: usize,
    pub gates: usize,
    pub units: usize,
    pub tiles_m: usize,
    pub tiles_k: usize,
    warps_of_rows: usize,
    k_split: usize,
    held_k: usize,
    shared_k: usize,
    pub columns: usize,
    at_once: usize,
    part_pitch: usize,
    pub state_bytes: usize,
    pub shared: usize,
}

impl Layout {
    /// A layout for a cluster of so many blocks with so much shared memory each; `narrow` elements go by tensor cores.
    pub fn new(hidden: usize, gates: usize, cluster: usize, narrow: bool, memory: usize) -> Layout {
        // Rows and units of one step of the products, bytes of one such piece of weights.
        let (rows_of, units_of, piece) = if narrow { (16, 16, 512) } else { (8, 128, 4096) };
        let units = units(hidden, cluster);
        let tiles = (units * gates).div_ceil(rows_of);
        let steps = (cluster * units).div_ceil(units_of);
        let tiles_m = tiles.div_ceil(WARPS);
        let warps_of_rows = tiles.div_ceil(tiles_m);
        let even = |n: usize| if narrow { n.next_multiple_of(2) } else { n };
        let k_split = (WARPS / warps_of_rows).min(steps.div_ceil(if narrow { 2 } else { 1 })).max(1);
        let tiles_k = even(steps.div_ceil(k_split));
        // Pieces of weights that the registers of a warp hold.
        let room = if narrow { 21usize.saturating_sub(3 * tiles_m) } else { 2 };
        let per_tile = room / tiles_m;
        let held_k = if narrow { per_tile / 2 * 2 } else { per_tile }.min(tiles_k);
        let part_pitch = tiles * rows_of + 4;
        let pitch = if narrow { k_split * tiles_k * 32 + 16 } else { k_split * tiles_k * 512 };
        let columns = most_columns(units, narrow);
        let state_bytes = columns * pitch;
        let fixed = 2 * state_bytes + k_split * columns * part_pitch * 4;
        let of_warps = WARPS * tiles_m * piece;
        let fits = memory.saturating_sub(fixed + FIXED_SHARED) / of_warps;
        let shared_k = (if narrow { fits / 2 * 2 } else { fits }).min(tiles_k - held_k);
        Layout {
            hidden,
            gates,
            units,
            tiles_m,
            tiles_k,
            warps_of_rows,
            k_split,
            held_k,
            shared_k,
            columns,
            at_once: (2 / tiles_m).max(1),
            part_pitch,
            state_bytes,
            shared: fixed + shared_k * of_warps,
        }
    }

    /// The layout of a site by a plan; refuses states that find no room.
    pub fn of(site: &Site<'_>, plan: &Plan) -> Result<Layout, BackendError> {
        let gates = gates(site.op()?.name());
        let memory = site.target.numbers.get("shared_memory").copied().unwrap_or(LEAST_SHARED) as usize;
        let l = Layout::new(hidden(site)?, gates, plan.cluster, narrow(site)?, memory);
        match l.shared + FIXED_SHARED > memory {
            true => {
                unsupported(format!("{} bytes of shared memory for the states, there are {memory}", l.shared))
            }
            false => Ok(l),
        }
    }

    /// Clocks of one step for so many sequences: products, weights that are read again, what becomes of the sums, the
    /// exchange.
    pub fn clocks(&self, plan: &Plan, columns: usize, narrow: bool) -> f64 {
        let pieces = self.warps_of_rows * self.k_split * self.tiles_m;
        let (piece, product, reading) = if narrow { (512.0, 2.4, 4.0) } else { (4096.0, 9.0, 32.0) };
        let times = columns.div_ceil(if narrow { 8 } else { self.at_once }) as f64;
        let count = |k: usize| (pieces * k) as f64;
        let again = count(self.tiles_k - self.held_k - self.shared_k) * piece / 14.0;
        let sums = count(self.tiles_k) * product * if narrow { times } else { columns as f64 };
        let pairs = (columns * self.units).div_ceil(WARPS * 32) as f64;
        let exchange = match plan.cluster {
            1 => 100.0,
            n if plan.grid => 2800.0 + (n * self.units * columns) as f64 / 16.0,
            _ => 450.0 + 50.0 * columns as f64,
        };
        sums + times * (count(self.shared_k) * reading + again) + 500.0 + 200.0 * pairs + exchange
    }

    /// Constants of the kernel.
    pub fn constants(&self, plan: &Plan) -> String {
        let numbers = [
            ("HIDDEN", self.hidden),
            ("GATES", self.gates),
            ("CLUSTER", plan.cluster),
            ("UNITS", self.units),
            ("COLUMNS", self.columns),
            ("TILES_M", self.tiles_m),
            ("TILES_K", self.tiles_k),
            ("WARPS_OF_ROWS", self.warps_of_rows),
            ("K_SPLIT", self.k_split),
            ("HELD_K", self.held_k),
            ("SHARED_K", self.shared_k),
            ("AT_ONCE", self.at_once),
            ("PART_PITCH", self.part_pitch),
            ("STATE_BYTES", self.state_bytes),
        ];
        numbers.iter().fold(String::new(), |mut s, (name, n)| {
            let _ = writeln!(s, "static constexpr u32 {name} = {n}u;");
            s
        })
    }
}

/// Hidden units of a block.
pub fn units(hidden: usize, cluster: usize) -> usize {
    hidden.div_ceil(cluster).next_multiple_of(if cluster == 1 { 16 } else { 8 })
}

/// Sequences of a cluster at most: columns of one or two instructions.
pub fn most_columns(units: usize, narrow: bool) -> usize {
    if narrow && units * 16 <= 2 * WARPS * 32 { 16 } else { 8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights that [`Layout`] leaves out or counts twice would be wrong sums.
    #[test]
    fn layouts_cover_all_weights() {
        for narrow in [true, false] {
            for gates in [1, 3, 4] {
                for cluster in [1, 2, 4, 8, 16, 32, 64, 128] {
                    for hidden in [1, 5, 64, 96, 128, 200, 512, 777, 1024, 1536] {
                        let l = Layout::new(hidden, gates, cluster, narrow, 227 << 10);
                        let (rows, depth) = if narrow { (16, 16) } else { (8, 128) };
                        let what = format!("{hidden} x {gates} by {cluster}, {narrow}: {l:?}");
                        assert!(l.units * cluster >= hidden && l.units.is_multiple_of(8), "{what}");
                        assert!(l.warps_of_rows * l.tiles_m * rows >= l.units * gates, "{what}");
                        assert!(l.k_split * l.tiles_k * depth >= l.units * cluster, "{what}");
                        assert!(l.warps_of_rows * l.k_split <= WARPS, "{what}");
                        assert!(l.held_k + l.shared_k <= l.tiles_k, "{what}");
                        assert!(l.part_pitch >= l.units * gates, "{what}");
                    }
                }
            }
        }
        let l = Layout::new(512, 4, 16, true, 227 << 10);
        assert_eq!((l.held_k, l.shared_k, l.tiles_k), (16, 0, 16));
    }
}
