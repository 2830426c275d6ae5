//! Memory that a step of control flow needs beside its values.

use super::flow::Bodies;
use super::memory::Range;
use super::moves::CELL_BYTES;
use super::stop::Made;
use crate::driver::Buffer;

impl Bodies {
    /// Memory for values on their way.
    pub(super) fn stage(&mut self, bytes: u64) -> Made<u64> {
        if self.stage.as_ref().is_none_or(|b| b.size() < bytes) {
            self.own_allocations += 1;
            let old = self.stage.replace(Buffer::new(&self.stream, bytes)?);
            self.retired.extend(old);
        }
        Ok(self.stage.as_ref().map_or(0, Buffer::address))
    }

    /// Where carried value `i` lies after every other trip.
    pub(super) fn other(&mut self, i: usize, bytes: u64) -> Made<Range> {
        while self.others.len() <= i || self.others.get(i).is_some_and(|b| b.size() < bytes) {
            self.own_allocations += 1;
            let new = Buffer::new(&self.stream, if self.others.len() < i { 16 } else { bytes.max(1) })?;
            match self.others.get_mut(i) {
                Some(b) => self.retired.push(std::mem::replace(b, new)),
                None => self.others.push(new),
            }
        }
        let address = self.others.get(i).map_or(0, Buffer::address);
        Ok(Range { address, size: bytes })
    }

    /// Memory for so many cells.
    pub(super) fn cells(&mut self, count: usize) -> Made<u64> {
        let bytes = count.max(1) as u64 * CELL_BYTES;
        if self.cells.as_ref().is_none_or(|b| b.size() < bytes) {
            self.own_allocations += 1;
            let old = self.cells.replace(Buffer::new(&self.stream, bytes)?);
            self.retired.extend(old);
        }
        Ok(self.cells.as_ref().map_or(0, Buffer::address))
    }

    /// Where a loop counts its trips, and 16 bytes behind that to spare.
    pub(super) fn state(&mut self) -> Made<u64> {
        if self.state.is_none() {
            self.own_allocations += 1;
            let b = Buffer::new(&self.stream, 32)?;
            b.fill(0, &self.stream)?;
            self.state = Some(b);
        }
        Ok(self.state.as_ref().map_or(0, Buffer::address))
    }
}
