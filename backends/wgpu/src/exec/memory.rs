//! Buffers of a context, and where values lie in them.

use crate::adapter::ALIGNMENT;
use crate::gpu::Gpu;
use kiln_backend::{BackendError, Place, Program};
use kiln_codegen::checks::RECORD_WORDS;
use kiln_ir::ValueId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

const TENSOR: wgpu::BufferUsages =
    wgpu::BufferUsages::STORAGE.union(wgpu::BufferUsages::COPY_SRC).union(wgpu::BufferUsages::COPY_DST);

/// Weights are packed into buffers of this size at most, unless one is larger.
const CHUNK: u64 = 256 << 20;

/// Uploads go in pieces of this size, so that staging memory stays bounded.
const PIECE: usize = 32 << 20;

/// A buffer that grows and never shrinks, with a number that changes when it is another one.
pub struct Growing {
    pub buffer: wgpu::Buffer,
    pub id: u64,
}

fn fresh_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Growing {
    pub fn new(gpu: &Gpu, what: &str, size: u64, usage: wgpu::BufferUsages) -> Result<Growing, BackendError> {
        Ok(Growing { buffer: gpu.buffer(what, size, usage)?, id: fresh_id() })
    }
}

/// A range of a buffer.
#[derive(Clone)]
pub struct Range {
    pub buffer: wgpu::Buffer,
    pub id: u64,
    pub offset: u64,
    /// Whole words.
    pub size: u64,
}

impl Range {
    /// Part of a buffer.
    pub fn of(g: &Growing, offset: u64, size: u64) -> Range {
        Range { buffer: g.buffer.clone(), id: g.id, offset, size }
    }

    /// Have both bytes in common?
    pub fn overlaps(&self, o: &Range) -> bool {
        self.id == o.id && self.offset < o.offset + o.size && o.offset < self.offset + self.size
    }

    fn whole(g: &Growing) -> Range {
        Range { buffer: g.buffer.clone(), id: g.id, offset: 0, size: g.buffer.size() }
    }

    /// The first bytes of it, in whole words of 16 bytes.
    pub fn cut(self, bytes: u64) -> Range {
        Range { size: bytes.max(16).next_multiple_of(16).min(self.size), ..self }
    }

    /// Piece `p` of a tensor that is bound in pieces of `bytes` bytes. One that a smaller tensor does not have is its end.
    pub fn piece(self, p: u64, bytes: u64) -> Range {
        let from = (p * bytes).min(self.size.saturating_sub(16) / bytes * bytes);
        Range { offset: self.offset + from, size: (self.size - from).min(bytes), ..self }
    }

    /// Do both start at the same byte of the same buffer?
    pub fn same_start(&self, o: &Range) -> bool {
        (self.id, self.offset) == (o.id, o.offset)
    }
}

/// The weights of a program on the device.
pub struct Weights {
    at: HashMap<ValueId, Range>,
}

impl Weights {
    pub fn upload(gpu: &Gpu, program: &Program) -> Result<Weights, BackendError> {
        let padded = |n: usize| (n as u64).max(16).next_multiple_of(ALIGNMENT);
        let mut chunks: Vec<(u64, Vec<(ValueId, u64, &[u8])>)> = Vec::new();
        for (v, t) in program.weights() {
            let size = padded(t.bytes().len());
            match chunks.last_mut().filter(|c| c.0 + size <= CHUNK) {
                Some(c) => {
                    c.1.push((v, c.0, t.bytes()));
                    c.0 += size;
                }
                None => chunks.push((size, vec![(v, 0, t.bytes())])),
            }
        }
        let mut at = HashMap::new();
        for (size, parts) in chunks {
            let g = Growing::new(gpu, "weights", size, TENSOR)?;
            for (v, offset, bytes) in parts {
                write(gpu, &g.buffer, offset, bytes)?;
                let size = (bytes.len() as u64).max(16).next_multiple_of(16);
                at.insert(v, Range { buffer: g.buffer.clone(), id: g.id, offset, size });
            }
        }
        Ok(Weights { at })
    }
}

/// Writes bytes; the last word is filled up with zeros.
pub fn write(gpu: &Gpu, buffer: &wgpu::Buffer, offset: u64, bytes: &[u8]) -> Result<(), BackendError> {
    gpu.uploads.fetch_add(1, Ordering::Relaxed);
    let whole = bytes.len() / 4 * 4;
    let pieces = bytes[..whole].chunks(PIECE);
    let many = pieces.len() > 1;
    for (i, piece) in pieces.enumerate() {
        gpu.queue.write_buffer(buffer, offset + (i * PIECE) as u64, piece);
        if many {
            gpu.queue.submit([]);
        }
    }
    if whole < bytes.len() {
        let mut last = [0; 4];
        last[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
        gpu.queue.write_buffer(buffer, offset + whole as u64, &last);
    }
    gpu.check()
}

/// The buffers of one context.
pub struct Memory {
    arena: Option<Growing>,
    inputs: Vec<Option<Growing>>,
    own: HashMap<ValueId, Growing>,
    pub args: Option<Growing>,
    pub scratch: Option<Growing>,
    pub sizes: Option<Growing>,
    faults: Option<Growing>,
    pub readback: Option<Growing>,
    /// Inputs that lie in buffers of others.
    pub bound: HashMap<usize, Range>,
    /// Values that are written elsewhere than planned.
    pub redirected: HashMap<ValueId, Range>,
    /// Every value computed by a node has a buffer of its own.
    pub separate: bool,
    pub allocations: u64,
}

impl Memory {
    pub fn new(gpu: &Gpu, program: &Program) -> Result<Memory, BackendError> {
        let mut m = Memory {
            arena: None,
            inputs: Vec::new(),
            own: HashMap::new(),
            args: None,
            scratch: None,
            sizes: None,
            faults: None,
            readback: None,
            bound: HashMap::new(),
            redirected: HashMap::new(),
            separate: false,
            allocations: 0,
        };
        m.inputs.resize_with(program.graph.inputs.len(), || None);
        if program.memory.arena > 0 {
            // Room behind the last value, which may be empty: nothing of size 0 can be bound.
            m.arena =
                Some(Growing::new(gpu, "arena", program.memory.arena.saturating_add(ALIGNMENT), TENSOR)?);
            m.allocations += 1;
        }
        Ok(m)
    }

    /// A buffer of at least `size` bytes: what is in the slot, or a new one.
    pub fn grow(
        gpu: &Gpu,
        slot: &mut Option<Growing>,
        count: &mut u64,
        what: &str,
        size: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<Range, BackendError> {
        if let Some(g) = slot.as_ref().filter(|g| g.buffer.size() >= size) {
            return Ok(Range::whole(g));
        }
        // Give the old one back before taking more.
        *slot = None;
        *count += 1;
        let g = Growing::new(gpu, what, size, usage)?;
        let r = Range::whole(&g);
        *slot = Some(g);
        Ok(r)
    }

    /// The buffer of an input, of at least `size` bytes.
    pub fn input(&mut self, gpu: &Gpu, i: usize, size: u64) -> Result<Range, BackendError> {
        if let Some(r) = self.bound.get(&i) {
            return Ok(r.clone().cut(size));
        }
        let slot = self.inputs.get_mut(i).ok_or_else(|| BackendError::Internal(format!("no input {i}")))?;
        Ok(Self::grow(gpu, slot, &mut self.allocations, "an input", size, TENSOR)?.cut(size))
    }

    /// A buffer for tensors or arguments of at least `size` bytes.
    pub fn tensor(
        gpu: &Gpu,
        slot: &mut Option<Growing>,
        count: &mut u64,
        size: u64,
    ) -> Result<Range, BackendError> {
        Self::grow(gpu, slot, count, "a tensor", size, TENSOR)
    }

    pub fn scratch(&mut self, gpu: &Gpu, size: u64) -> Result<Range, BackendError> {
        let whole =
            Self::grow(gpu, &mut self.scratch, &mut self.allocations, "scratch memory", size, TENSOR)?;
        Ok(whole.cut(size))
    }

    pub fn sizes(&mut self, gpu: &Gpu) -> Result<Range, BackendError> {
        Self::grow(gpu, &mut self.sizes, &mut self.allocations, "sizes", 64, TENSOR)
    }

    /// A record of an index out of range for every step.
    pub fn faults(&mut self, gpu: &Gpu, steps: usize) -> Result<Range, BackendError> {
        let size = (steps * RECORD_WORDS * 4) as u64;
        Self::grow(gpu, &mut self.faults, &mut self.allocations, "faults", size, TENSOR)
    }

    pub fn readback(&mut self, gpu: &Gpu, size: u64) -> Result<Range, BackendError> {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        Self::grow(gpu, &mut self.readback, &mut self.allocations, "read-back", size, usage)
    }

    /// Where a value of `bytes` bytes lies. Values without a planned place get a buffer of their own.
    pub fn place(
        &mut self,
        gpu: &Gpu,
        program: &Program,
        weights: &Weights,
        v: ValueId,
        bytes: u64,
    ) -> Result<Range, BackendError> {
        if let Some(r) = self.redirected.get(&v) {
            return Ok(r.clone().cut(bytes));
        }
        if let Some(r) = weights.at.get(&v) {
            return Ok(r.clone());
        }
        if let Some(i) = program.graph.inputs.iter().position(|&i| i == v) {
            return self.input(gpu, i, bytes);
        }
        let planned = program.memory.places.get(v.0 as usize);
        if let (Some(&Place::Input(i)), false) = (planned, self.separate) {
            return self.input(gpu, i as usize, bytes);
        }
        if let (Some(&Place::Arena { offset, size }), Some(arena), false) =
            (planned, &self.arena, self.separate)
        {
            if bytes > size {
                return Err(BackendError::InvalidArgument(format!(
                    "\"{}\" has {bytes} bytes, {size} were planned; the shapes are outside the profile",
                    program.graph.value(v).name
                )));
            }
            let end = arena.buffer.size();
            let size = bytes.max(16).next_multiple_of(16).min(end.saturating_sub(offset));
            return Ok(Range { buffer: arena.buffer.clone(), id: arena.id, offset, size });
        }
        let mut slot = self.own.remove(&v);
        let r = Self::grow(gpu, &mut slot, &mut self.allocations, "a tensor", bytes, TENSOR)
            .map(|r| r.cut(bytes));
        self.own.extend(slot.map(|g| (v, g)));
        r
    }

    /// All buffers whose old contents nothing may read.
    pub fn stale(&self) -> impl Iterator<Item = &wgpu::Buffer> {
        self.arena.iter().chain(self.own.values()).chain(&self.scratch).map(|g| &g.buffer)
    }
}
