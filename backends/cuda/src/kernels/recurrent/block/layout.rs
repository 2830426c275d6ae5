//! The layout of a recurrence's weights among the threads of one block.

use kiln_backend::BackendError;
use kiln_codegen::site::unsupported;

/// Registers of a thread at most.
const MOST_REGISTERS: usize = 255;
/// Registers of a scheduler for each of its lanes. A multiprocessor has four schedulers, and warps take turns among them.
const OF_SCHEDULER: usize = 512;
/// Threads of a block at most: more would have next to no registers.
const MOST_THREADS: usize = 512;
/// Weights of a thread up to which steps are short: products with the input of four of them are on their way, else of two.
const FEW: usize = 64;
/// Shared memory that the kernel declares itself, in bytes at most.
const FIXED_SHARED: usize = 8 << 10;

/// Lanes of a warp that share rows of weights.
#[derive(Debug)]
pub struct Plan {
    /// Lanes that share rows: four, or a multiple that is a power of two.
    pub lanes: usize,
    /// Units whose gates they share, or as many times four units of a plain network.
    pub quads: usize,
}

impl Plan {
    /// Registers of a thread for other things than weights.
    const fn others(&self) -> usize {
        36 + 12 * self.quads
    }
}

/// Division of the work; fours are those of neighbouring weights of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layout {
    pub threads: usize,
    /// Registers that a thread may have.
    registers: usize,
    /// Fours of the depth of a lane.
    fours: usize,
    /// Fours of weights of a thread.
    all: usize,
    /// Fours in registers; the others are in shared memory.
    held: usize,
}

impl Layout {
    /// The layout of so many hidden units by a plan.
    pub fn new(hidden: usize, gates: usize, plan: &Plan) -> Layout {
        let (rows, units) = if gates == 1 { (4, 4) } else { (gates, 1) };
        let groups = hidden.div_ceil(units).div_ceil(plan.quads);
        let threads = (groups * plan.lanes).next_multiple_of(32);
        let registers = (OF_SCHEDULER / threads.div_ceil(128) / 8 * 8).min(MOST_REGISTERS);
        let fours = hidden.div_ceil(4 * plan.lanes);
        let all = fours * plan.quads * rows;
        let held = (registers.saturating_sub(plan.others()) / 4).min(all);
        Layout { threads, registers, fours, all, held }
    }

    /// Bytes of weights in shared memory.
    pub fn shared(&self) -> usize {
        (self.all - self.held) * self.threads * 16
    }

    /// Refuses weights that find no room in so much shared memory, or too little in registers.
    pub fn check(&self, memory: usize) -> Result<(), BackendError> {
        if self.threads > MOST_THREADS {
            return unsupported(format!("{} threads of one block, {MOST_THREADS} are useful", self.threads));
        }
        // Weights in shared memory are read as slowly as four times as many are multiplied.
        if self.held * 4 < self.all * 3 {
            return unsupported(format!(
                "{} weights of each of {} threads of one block: too many for {} registers",
                4 * self.all,
                self.threads,
                self.registers
            ));
        }
        let needs = self.shared() + FIXED_SHARED;
        match needs > memory {
            true => unsupported(format!("{needs} bytes of shared memory for weights, there are {memory}")),
            false => Ok(()),
        }
    }

    /// Blocks that one multiprocessor has room for.
    pub fn beside(&self, plan: &Plan) -> usize {
        let registers = (4 * self.held + plan.others()).next_multiple_of(8);
        (4 * OF_SCHEDULER * 32 / (self.threads * registers).max(1)).clamp(1, 16)
    }

    /// Clocks of a step: those that a multiprocessor is busy, and those that pass for one block alone.
    pub fn clocks(&self, reset_first: bool) -> (f64, f64) {
        let warps = (self.threads / 32) as f64;
        let exchanges = if reset_first { 2.0 } else { 1.0 };
        // A multiprocessor makes four products of warps in a clock, and takes four for what a warp reads from shared memory.
        let products = warps * self.all as f64;
        let reads = 4.0 * warps * (exchanges * self.fours as f64 + (self.all - self.held) as f64);
        let busy = products.max(reads) + exchanges * 12.0 * warps;
        (busy, busy + 60.0 + 220.0 * exchanges)
    }

    /// Constants of the kernel.
    pub fn constants(&self, hidden: usize, gates: usize, plan: &Plan) -> [(&'static str, usize); 7] {
        [
            ("HIDDEN", hidden),
            ("GATES", gates),
            ("SPLIT", plan.lanes),
            ("QUADS", plan.quads),
            ("THREADS", self.threads),
            ("HELD", self.held),
            ("AHEAD", if 4 * self.all <= FEW { 4 } else { 2 }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::PLANS;
    use super::*;

    /// Weights that [`Layout`] leaves out would be wrong sums.
    #[test]
    fn layouts_cover_all_weights() {
        for (name, plan) in PLANS {
            for gates in [1, 3, 4] {
                for hidden in (1..=300).filter(|&h| Layout::new(h, gates, plan).check(227 << 10).is_ok()) {
                    let l = Layout::new(hidden, gates, plan);
                    let what = format!("{hidden} x {gates} by {name}: {l:?}");
                    let units = if gates == 1 { 4 } else { 1 };
                    let groups = l.threads / plan.lanes;
                    assert!(groups * plan.quads * units >= hidden, "{what}");
                    assert!(l.fours * plan.lanes * 4 >= hidden, "{what}");
                    assert!(l.held <= l.all && l.held * 4 + plan.others() <= l.registers + 3, "{what}");
                    assert!(l.threads.is_multiple_of(32) && l.registers * l.threads <= 64 << 10, "{what}");
                }
            }
        }
    }

    /// The usual sizes have a plan each, and those beyond registers have none.
    #[test]
    fn usual_sizes_have_room() {
        let any =
            |hidden, gates| PLANS.iter().any(|(_, p)| Layout::new(hidden, gates, p).check(227 << 10).is_ok());
        for hidden in [1, 16, 32, 64, 100, 128] {
            assert!([1, 3, 4].iter().all(|&gates| any(hidden, gates)), "{hidden}");
        }
        assert!(any(256, 1) && !any(160, 4) && !any(192, 3) && !any(512, 1));
    }
}
