//! Buffers of a context, and where values lie in them.

use crate::driver::{Buffer, Pinned, Stream};
use kiln_backend::{BackendError, Place, Program};
use kiln_codegen::checks::RECORD_WORDS;
use kiln_ir::ValueId;
use std::collections::HashMap;
use std::sync::Arc;

/// Weights go up in pieces of this size.
const PIECE: usize = 32 << 20;

/// A range of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub address: u64,
    pub size: u64,
}

/// Marks an address as that of a cell: no memory lies so high.
const CELL: u64 = 1 << 63;

impl Range {
    /// A range that lies elsewhere in every trip of a loop: where the 8 bytes at this address tell.
    pub fn cell(address: u64, size: u64) -> Range {
        Range { address: address | CELL, size }
    }

    /// The address of its cell, if it has one.
    pub fn in_cell(&self) -> Option<u64> {
        (self.address & CELL != 0).then_some(self.address & !CELL)
    }
}

/// Names the memory that could not be had.
pub fn naming<T>(
    what: &str,
    bytes: u64,
    r: Result<T, crate::driver::DriverError>,
) -> Result<T, BackendError> {
    r.map_err(|e| match BackendError::from(e) {
        BackendError::OutOfMemory { what: call, .. } => {
            BackendError::OutOfMemory { what: format!("{what} ({call})"), bytes }
        }
        e => e,
    })
}

/// The weights of a program on the device, in one buffer.
pub struct Weights {
    at: HashMap<ValueId, Range>,
    _buffer: Option<Buffer>,
}

impl Weights {
    pub fn upload(stream: &Arc<Stream>, program: &Program, alignment: u64) -> Result<Weights, BackendError> {
        let mut total = 0u64;
        let mut parts = Vec::new();
        for (v, t) in program.weights() {
            parts.push((v, t, total));
            total += (t.bytes().len() as u64).max(1).next_multiple_of(alignment);
        }
        if parts.is_empty() {
            return Ok(Weights { at: HashMap::new(), _buffer: None });
        }
        let buffer = naming("weights", total, Buffer::new(stream, total))?;
        let mut staging =
            naming("staging memory", PIECE as u64, Pinned::new(stream, PIECE.min(total as usize)))?;
        let mut at = HashMap::new();
        for (v, t, offset) in parts {
            let address = buffer.address() + offset;
            for (k, piece) in t.bytes().chunks(staging.size()).enumerate() {
                stream.synchronize()?;
                staging.send(0, piece, address + (k * staging.size()) as u64)?;
            }
            at.insert(v, Range { address, size: t.bytes().len() as u64 });
        }
        stream.synchronize()?;
        Ok(Weights { at, _buffer: Some(buffer) })
    }
}

/// The buffers of one context. All grow and never shrink.
pub struct Memory {
    stream: Arc<Stream>,
    arena: Option<Buffer>,
    inputs: Vec<Option<Buffer>>,
    /// Inputs that lie in the memory of others.
    lent: Vec<Option<Range>>,
    own: HashMap<ValueId, Buffer>,
    scratch: Option<Buffer>,
    sizes: Option<Buffer>,
    /// For each step, a record of an index out of range; where kernels check any.
    records: Option<Buffer>,
    staging: Option<Pinned>,
    readback: Option<Pinned>,
    /// Buffers that larger ones have replaced, which launches of the present run may still name.
    retired: Vec<Buffer>,
    /// Every value computed by a node has a buffer of its own.
    pub separate: bool,
    pub allocations: u64,
    pub bound: Lent,
    /// Cells of ranges that must not lie elsewhere from trip to trip, as was found when launches were planned: these are void.
    pub refused: Vec<u64>,
}

/// Memory of the caller's: of inputs, and of outputs by their values.
#[derive(Clone, Default)]
pub struct Lent {
    pub inputs: HashMap<usize, Range>,
    pub outputs: HashMap<ValueId, Range>,
}

impl Lent {
    /// A range, if it has enough bytes.
    fn holding(range: &Range, what: &str, size: u64) -> Result<Range, BackendError> {
        if range.size < size {
            return Err(BackendError::InvalidArgument(format!(
                "{what} has {size} bytes, the memory bound to it {}; bind more",
                range.size
            )));
        }
        Ok(Range { size, ..*range })
    }
}

impl Memory {
    pub fn new(stream: &Arc<Stream>, program: &Program) -> Result<Memory, BackendError> {
        let mut m = Memory {
            stream: stream.clone(),
            arena: None,
            inputs: Vec::new(),
            lent: vec![None; program.graph.inputs.len()],
            own: HashMap::new(),
            scratch: None,
            sizes: None,
            records: None,
            staging: None,
            readback: None,
            retired: Vec::new(),
            separate: false,
            allocations: 0,
            bound: Lent::default(),
            refused: Vec::new(),
        };
        m.inputs.resize_with(program.graph.inputs.len(), || None);
        if program.memory.arena > 0 {
            let bytes = program.memory.arena;
            m.arena = Some(naming("the arena", bytes, Buffer::new(stream, bytes))?);
            m.allocations += 1;
        }
        Ok(m)
    }

    fn grow(&mut self, what: &str, old: Option<Buffer>, size: u64) -> Result<Buffer, BackendError> {
        match old {
            Some(b) if b.size() >= size => return Ok(b),
            old => self.retired.extend(old),
        }
        self.allocations += 1;
        naming(what, size, Buffer::new(&self.stream, size))
    }

    /// The memory of an input, of at least `size` bytes.
    pub fn input(&mut self, i: usize, size: u64) -> Result<Range, BackendError> {
        if let Some(range) = self.bound.inputs.get(&i) {
            return Lent::holding(range, &format!("input {i}"), size);
        }
        if let Some(r) = self.lent.get(i).copied().flatten() {
            return Ok(Range { size, ..r });
        }
        let Some(slot) = self.inputs.get_mut(i) else {
            return Err(BackendError::Internal(format!("no input {i}")));
        };
        let old = slot.take();
        let b = self.grow("an input", old, size)?;
        let r = Range { address: b.address(), size };
        self.inputs[i] = Some(b);
        Ok(r)
    }

    /// Lets an input lie there, or again in memory of its own.
    pub fn lend(&mut self, i: usize, at: Option<Range>) {
        if let Some(place) = self.lent.get_mut(i) {
            *place = at;
        }
    }

    /// Lets an output lie there, or again where it was planned.
    pub fn lend_output(&mut self, v: ValueId, at: Option<Range>) {
        match at {
            Some(r) => self.bound.outputs.insert(v, r),
            None => self.bound.outputs.remove(&v),
        };
    }

    /// The range, which must lie where it is said to.
    pub fn fixed(&mut self, range: Range) -> Range {
        self.refused.extend(range.in_cell());
        range
    }

    pub fn scratch(&mut self, size: u64) -> Result<Range, BackendError> {
        let old = self.scratch.take();
        let b = self.grow("scratch memory", old, size)?;
        let r = Range { address: b.address(), size };
        self.scratch = Some(b);
        Ok(r)
    }

    /// Where kernels tell sizes: 16 words.
    pub fn sizes(&mut self) -> Result<Range, BackendError> {
        let old = self.sizes.take();
        let b = self.grow("sizes", old, 64)?;
        let r = Range { address: b.address(), size: 64 };
        self.sizes = Some(b);
        Ok(r)
    }

    /// Makes records for so many steps, none of them set.
    pub fn make_records(&mut self, steps: usize) -> Result<(), BackendError> {
        let bytes = (steps * RECORD_WORDS * 4) as u64;
        let buffer = naming("records of the steps", bytes, Buffer::new(&self.stream, bytes))?;
        buffer.fill(0, &self.stream)?;
        self.allocations += 1;
        self.records = Some(buffer);
        Ok(())
    }

    /// All records, if there are any.
    pub fn records(&self) -> Option<Range> {
        self.records.as_ref().map(|b| Range { address: b.address(), size: b.size() })
    }

    /// The record of a step.
    pub fn record(&self, step: usize) -> Result<Range, BackendError> {
        let size = (RECORD_WORDS * 4) as u64;
        let all = self.records().filter(|r| (step as u64 + 1) * size <= r.size);
        let all = all.ok_or_else(|| BackendError::Internal(format!("step {step} has no record")))?;
        Ok(Range { address: all.address + step as u64 * size, size })
    }

    /// Resets all records, in the order of the stream.
    pub fn clear_records(&self) -> Result<(), BackendError> {
        Ok(self.records.as_ref().map_or(Ok(()), |b| b.fill(0, &self.stream))?)
    }

    /// Page-locked memory of another context of the same stream, for what goes up.
    pub fn give_staging(&mut self, staging: Option<Pinned>) {
        self.staging = staging;
    }

    /// Gives the page-locked memory for what goes up away; nothing is under way.
    pub fn take_staging(&mut self) -> Option<Pinned> {
        self.staging.take()
    }

    /// Page-locked memory for what goes up; the last transfer from it is done.
    pub fn staging(&mut self, size: usize) -> Result<&mut Pinned, BackendError> {
        Self::pinned(&self.stream, &mut self.staging, &mut self.allocations, size)
    }

    /// Page-locked memory for what comes back.
    pub fn readback(&mut self, size: usize) -> Result<&mut Pinned, BackendError> {
        Self::pinned(&self.stream, &mut self.readback, &mut self.allocations, size)
    }

    fn pinned<'a>(
        stream: &Arc<Stream>,
        slot: &'a mut Option<Pinned>,
        count: &mut u64,
        size: usize,
    ) -> Result<&'a mut Pinned, BackendError> {
        if slot.as_ref().is_none_or(|p| p.size() < size) {
            *slot = None;
            *count += 1;
            *slot = Some(naming("page-locked memory", size as u64, Pinned::new(stream, size))?);
        }
        slot.as_mut().ok_or_else(|| BackendError::Internal("no page-locked memory".into()))
    }

    /// Where a value of `bytes` bytes lies. Values without a planned place get a buffer of their own.
    pub fn place(
        &mut self,
        program: &Program,
        weights: &Weights,
        v: ValueId,
        bytes: u64,
    ) -> Result<Range, BackendError> {
        if let Some(r) = weights.at.get(&v) {
            return Ok(*r);
        }
        if let Some(i) = program.graph.inputs.iter().position(|&i| i == v) {
            return self.input(i, bytes);
        }
        if let Some(range) = self.bound.outputs.get(&v) {
            return Lent::holding(range, &format!("output \"{}\"", program.graph.value(v).name), bytes);
        }
        let planned = program.memory.places.get(v.0 as usize);
        if let (Some(&Place::Input(i)), false) = (planned, self.separate) {
            return self.input(i as usize, bytes);
        }
        if let (Some(&Place::Arena { offset, size }), Some(arena), false) =
            (planned, &self.arena, self.separate)
        {
            let end = offset.checked_add(size).filter(|end| *end <= arena.size());
            if bytes > size || end.is_none() {
                return Err(BackendError::InvalidArgument(format!(
                    "\"{}\" has {bytes} bytes, {size} were planned; the shapes are outside the profile",
                    program.graph.value(v).name
                )));
            }
            return Ok(Range { address: arena.address() + offset, size: bytes });
        }
        let old = self.own.remove(&v);
        let b = self.grow(&format!("tensor \"{}\"", program.graph.value(v).name), old, bytes)?;
        let r = Range { address: b.address(), size: bytes };
        self.own.insert(v, b);
        Ok(r)
    }

    /// Forgets memory of these buffers that was bound as if it were the caller's: the buffers go.
    pub fn unbind_own(&mut self) {
        let inputs = self.inputs.iter().flatten();
        let all = inputs.chain(self.own.values()).chain(&self.arena).chain(&self.scratch);
        let own: Vec<_> = all.map(|b| b.address()..b.address() + b.size()).collect();
        let others = |r: &Range| !own.iter().any(|o| o.contains(&r.address));
        self.bound.inputs.retain(|_, r| others(r));
        self.bound.outputs.retain(|_, r| others(r));
    }

    /// Where an input that was given lies.
    pub fn given_input(&self, i: usize) -> Option<Range> {
        let own = || self.inputs.get(i)?.as_ref().map(|b| Range { address: b.address(), size: b.size() });
        self.bound.inputs.get(&i).copied().or_else(own)
    }

    /// Gives back what the last run alone could name; it is done.
    pub fn settle(&mut self) {
        self.retired.clear();
    }

    /// Gives back all but the arena.
    pub fn release(&mut self) {
        self.unbind_own();
        self.retired.clear();
        self.own.clear();
        self.inputs.fill_with(|| None);
        (self.scratch, self.sizes, self.staging, self.readback) = (None, None, None, None);
    }

    /// Overwrites what nothing may read any more.
    pub fn poison(&self) -> Result<(), BackendError> {
        for b in self.arena.iter().chain(self.own.values()).chain(&self.scratch) {
            b.fill(0xff, &self.stream)?;
        }
        Ok(())
    }
}
