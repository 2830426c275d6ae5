//! Slices that the kernels of a node's body use in place. Their addresses change with the iteration, so
//! kernels read them from cells. The kernel that decides about the iteration writes these.

use super::super::fallback::OnDevice;
use super::super::flow::Flow;
use super::super::memory::Range;
use super::super::moves::{CELL_BYTES, Factor, Move};
use super::super::parts::Part;
use super::iteration::Loop;
use std::cell::Cell;

/// Places of elements and of stacked values for the kernels of an iteration; `None`: the body's own.
pub(super) struct Places {
    pub elements: Vec<Option<Range>>,
    pub stacks: Vec<Option<Range>>,
}

thread_local! {
    static COPIED: Cell<u64> = const { Cell::new(0) };
}

/// Bytes that the loop copies in an iteration, beside the work of its body. The loop is the one that this
/// thread last planned as a node of a graph.
pub fn copied_an_iteration() -> u64 {
    COPIED.get()
}

/// Notes it.
pub(super) fn note_copied(bytes: u64) {
    tracing::debug!("an iteration copies {bytes} bytes");
    COPIED.set(bytes);
}

impl Places {
    /// Cells for all slices that kernels can use in place.
    pub fn new(l: &Loop, flow: &mut Flow<'_>) -> OnDevice<Places> {
        let at = flow.cells(l.elements.len() + l.stacks.len())?;
        let cell = |k: usize| at + k as u64 * CELL_BYTES;
        let elements = l.elements.iter().enumerate().map(|(k, e)| e.in_cell(cell(k))).collect();
        let stacks = l.stacks.iter().enumerate();
        let stacks = stacks.map(|(k, (_, s))| s.in_cell(cell(l.elements.len() + k))).collect();
        Ok(Places { elements, stacks })
    }

    /// Excludes these cells. Returns whether one of them was in use.
    pub fn give_up(&mut self, refused: &[u64]) -> bool {
        let mut found = false;
        for place in self.elements.iter_mut().chain(&mut self.stacks) {
            if place.and_then(|r| r.in_cell()).is_some_and(|cell| refused.contains(&cell)) {
                (*place, found) = (None, true);
            }
        }
        found
    }
}

impl Loop<'_> {
    /// Cells that a planned iteration does not use as such: a kernel's result is stored elsewhere, or a
    /// result is stored there that must not be.
    pub(super) fn astray(&self, part: &Part, slots: &[Option<Range>]) -> Vec<u64> {
        let mut all = Vec::new();
        let at = |i: usize| part.results.get(i).map(|g| g.at);
        all.extend((0..self.shape.carried).filter_map(|i| at(i)?.in_cell()));
        for ((index, _), slot) in self.stacks.iter().zip(slots) {
            let (found, wanted) = (at(self.shape.carried + index), slot.filter(|s| s.in_cell().is_some()));
            if found.map(|r| r.address) != wanted.map(|r| r.address) {
                all.extend(found.into_iter().chain(wanted).filter_map(|r| r.in_cell()));
            }
        }
        all
    }

    /// Copies for the next iteration: its elements, or their addresses, and the addresses of its stacked values.
    pub(super) fn brought(&self, elements: &[Range], slots: &[Option<Range>]) -> Vec<Move> {
        let of_element = self.elements.iter().zip(elements).map(|(e, to)| match to.in_cell() {
            Some(cell) => e.tell(cell),
            None => e.load(to.address, Factor::Next),
        });
        let cells = self.stacks.iter().zip(slots);
        let of_stack = cells.filter_map(|(s, slot)| Some(s.1.tell(slot.as_ref()?.in_cell()?)));
        of_element.chain(of_stack).collect()
    }
}
