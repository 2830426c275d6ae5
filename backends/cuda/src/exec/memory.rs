//! Ranges of device memory.

use crate::driver::{Buffer, DriverError};
use kiln_backend::BackendError;
use kiln_gpu::native::SharedState;
use std::collections::HashMap;

/// A range of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub address: u64,
    pub size: u64,
}

/// Marks an address as that of a cell: no memory has addresses so high.
const CELL: u64 = 1 << 63;

impl Range {
    /// A range that is elsewhere in every iteration of a loop: at the address stored in the 8 bytes at this one.
    pub fn cell(address: u64, size: u64) -> Range {
        Range { address: address | CELL, size }
    }

    /// The address of its cell, if it has one.
    pub fn in_cell(&self) -> Option<u64> {
        (self.address & CELL != 0).then_some(self.address & !CELL)
    }
}

impl kiln_gpu::Range for Range {
    fn bytes(&self) -> u64 {
        self.size
    }

    fn part(&self, offset: u64, bytes: u64) -> Range {
        Range { address: self.address + offset, size: bytes }
    }

    fn same_start(&self, other: &Range) -> bool {
        self.address == other.address
    }
}

impl kiln_gpu::Buffer for Buffer {
    type Range = Range;

    fn bytes(&self) -> u64 {
        self.size()
    }

    fn range(&self, offset: u64, bytes: u64) -> Range {
        Range { address: self.address() + offset, size: bytes }
    }

    fn contains(&self, range: &Range) -> bool {
        (self.address()..self.address() + self.size()).contains(&range.address)
    }
}

/// Notes of planning. Launches whose kernels cannot read addresses from cells that are listed here are void.
#[derive(Default)]
pub struct PlanNotes {
    pub refused: Vec<u64>,
    /// States of native forms that serve all shapes and addresses, by step.
    pub states: HashMap<usize, SharedState>,
}

impl PlanNotes {
    /// The range, which must be where it is said to be.
    pub fn fixed(&mut self, range: Range) -> Range {
        self.refused.extend(range.in_cell());
        range
    }
}

/// Names the memory that could not be had.
pub fn naming<T>(what: &str, bytes: u64, r: Result<T, DriverError>) -> Result<T, BackendError> {
    r.map_err(|e| match BackendError::from(e) {
        BackendError::OutOfMemory { what: call, .. } => {
            BackendError::OutOfMemory { what: format!("{what} ({call})"), bytes }
        }
        e => e,
    })
}
