//! The threads of a warp: registers, and which of them are where.

use crate::instruction::{Address, Register, Source};
use crate::types::{LANES, Lanes};

/// State of threads that go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Runs,
    /// Other threads of the warp must come here first.
    Gathers,
    /// At a barrier of the block, until its number of rounds is another.
    Waits {
        barrier: usize,
        round: u64,
    },
    /// At the barrier of the cluster.
    WaitsForCluster,
}

/// Threads of a warp at one instruction.
#[derive(Clone, Copy, Debug)]
pub struct Fragment {
    pub at: usize,
    pub threads: u32,
    pub state: State,
}

/// A warp.
#[derive(Default)]
pub struct Warp {
    pub number: usize,
    pub registers: Vec<Lanes>,
    pub local: Vec<u8>,
    pub local_bytes: u64,
    pub fragments: Vec<Fragment>,
    /// Threads that have not ended.
    pub alive: u32,
    /// Rounds of the cluster's barrier that each thread has come to.
    pub cluster_rounds: [u64; LANES],
    /// The place where the warp spent its last turn, if it spent it in one loop.
    pub passed: Option<u32>,
}

impl Warp {
    /// The values of an operand.
    pub fn read<'a>(&'a self, s: &'a Source) -> &'a Lanes {
        match s {
            Source::Register(r) => &self.registers[*r],
            Source::Constant(c) => c,
        }
    }

    /// The value of an operand in one thread.
    pub fn value(&self, s: &Source, lane: usize) -> u64 {
        self.read(s)[lane]
    }

    /// The address that an operand is in one thread.
    pub fn address(&self, at: &Address, lane: usize) -> u64 {
        self.value(&at.base, lane).wrapping_add(at.offset as u64)
    }

    /// Writes a register in some threads.
    pub fn write(&mut self, d: Register, values: &Lanes, threads: u32) {
        let to = &mut self.registers[d];
        if threads == u32::MAX {
            *to = *values;
            return;
        }
        for (i, v) in values.iter().enumerate() {
            if threads >> i & 1 == 1 {
                to[i] = *v;
            }
        }
    }

    /// Writes a register in one thread.
    pub fn set(&mut self, d: Register, lane: usize, value: u64) {
        self.registers[d][lane] = value;
    }
}

/// The threads of a mask.
pub fn lanes(threads: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |i| threads >> i & 1 == 1)
}
