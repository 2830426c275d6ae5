//! The buffers of a run, and where its values are stored.

use crate::checks::RECORD_WORDS;
use crate::device::{Buffer, Device, Queue, Range};
use crate::guards::{Held, Pattern};
use crate::weights::Weights;
use kiln_backend::{BackendError, Place, Program};
use kiln_ir::ValueId;
use std::collections::HashMap;

/// Bytes of a step's record of an index out of range.
pub const RECORD_BYTES: usize = RECORD_WORDS * 4;
/// Bytes of the sizes that a data-dependent kernel reports.
pub const SIZES_BYTES: usize = 64;

/// Memory that is not the run's own: of inputs by position, and of outputs by value.
#[derive(Clone, Debug)]
pub struct Bound<R> {
    /// Memory of inputs by position.
    pub inputs: HashMap<usize, R>,
    /// Memory of outputs by value.
    pub outputs: HashMap<ValueId, R>,
}

impl<R> Default for Bound<R> {
    fn default() -> Bound<R> {
        Bound { inputs: HashMap::new(), outputs: HashMap::new() }
    }
}

/// The first bytes of bound memory, if it has so many.
fn holding<R: Range>(range: &R, what: impl FnOnce() -> String, bytes: u64) -> Result<R, BackendError> {
    if range.bytes() < bytes {
        return Err(BackendError::InvalidArgument(format!(
            "{} has {bytes} bytes, the memory bound to it {}; bind more",
            what(),
            range.bytes()
        )));
    }
    Ok(range.part(0, bytes))
}

/// Memory of the values that have a planned place.
enum Arena<D: Device> {
    /// A buffer of the run's own; none where no value has a planned place.
    Own(Option<D::Buffer>),
    /// Memory of the caller's, once it is set.
    Outside(Option<D::Range>),
}

impl<D: Device> Arena<D> {
    /// Its length, if there is any memory.
    fn bytes(&self) -> Option<u64> {
        match self {
            Arena::Own(buffer) => buffer.as_ref().map(Buffer::bytes),
            Arena::Outside(range) => range.as_ref().map(Range::bytes),
        }
    }

    /// A part of it.
    fn range(&self, offset: u64, bytes: u64) -> Option<D::Range> {
        match self {
            Arena::Own(buffer) => buffer.as_ref().map(|b| b.range(offset, bytes)),
            Arena::Outside(range) => range.as_ref().map(|r| r.part(offset, bytes)),
        }
    }
}

/// The error of a run whose context was given no arena.
fn no_memory(program: &Program) -> BackendError {
    BackendError::InvalidArgument(format!(
        "the context was created without memory and none is set; set {} bytes before it runs",
        program.memory.arena
    ))
}

/// The buffers of one run. All grow and never shrink.
pub struct Memory<D: Device> {
    arena: Arena<D>,
    inputs: Vec<Option<Held<D>>>,
    own: HashMap<ValueId, Held<D>>,
    /// Scratch memory by stream of the program.
    scratch: Vec<Option<Held<D>>>,
    /// Slots of streamed weights.
    streamed: Option<Held<D>>,
    sizes: Option<Held<D>>,
    /// The source that guards around buffers are filled from, where there are guards.
    pattern: Option<Pattern<D>>,
    records: Option<D::Buffer>,
    /// Replaced buffers that launches of the present run may still name.
    retired: Vec<D::Buffer>,
    /// Whether a graph of the caller's may name buffers: replaced ones stay as long as the run.
    pub recorded: bool,
    /// Number of buffers of inputs that were made.
    pub input_buffers: u64,
    /// Whether every value that a node computes has a buffer of its own.
    pub separate: bool,
    /// Memory of others.
    pub bound: Bound<D::Range>,
    /// Notes of the device.
    pub notes: D::Notes,
}

/// The value whose memory the node of `v` changes instead of making new one, as the plan has it. Kernels that write a part of a tensor
/// need the parts that others have written. So this holds where values have buffers of their own, too.
fn changed_in_place(program: &Program, v: ValueId) -> Option<ValueId> {
    let (_, node) = program.graph.producer(v)?;
    let &(i, _) = node.op.def().traits.must_alias.iter().find(|(_, o)| node.outputs.get(*o) == Some(&v))?;
    let from = (*node.inputs.get(i)?)?;
    let place = |v: ValueId| program.memory.places.get(v.0 as usize);
    (place(from) == place(v) && matches!(place(v), Some(Place::Arena { .. }))).then_some(from)
}

impl<D: Device> Memory<D> {
    /// The arena of a program unless it is the caller's, and records for its steps where kernels check indices.
    pub fn new(
        queue: &mut D::Queue,
        program: &Program,
        records: bool,
        own_arena: bool,
    ) -> Result<Memory<D>, BackendError> {
        let mut inputs = Vec::new();
        inputs.resize_with(program.graph.inputs.len(), || None);
        let arena = match program.memory.arena {
            _ if !own_arena => Arena::Outside(None),
            0 => Arena::Own(None),
            bytes => Arena::Own(Some(queue.allocate("the arena", bytes.saturating_add(D::ARENA_TAIL))?)),
        };
        let mut memory = Memory {
            arena,
            inputs,
            own: HashMap::new(),
            scratch: Vec::new(),
            streamed: None,
            sizes: None,
            pattern: Pattern::asked(queue)?,
            records: None,
            retired: Vec::new(),
            recorded: false,
            input_buffers: 0,
            separate: false,
            bound: Bound::default(),
            notes: D::Notes::default(),
        };
        if records {
            let bytes = (program.steps.len() * RECORD_BYTES) as u64;
            memory.records = Some(queue.allocate("records of the steps", bytes)?);
            memory.clear_records(queue)?;
        }
        Ok(memory)
    }

    /// The buffer, or one of at least `bytes` bytes in its place.
    fn grown(
        queue: &mut D::Queue,
        (retired, pattern): (&mut Vec<D::Buffer>, Option<&Pattern<D>>),
        old: Option<Held<D>>,
        bytes: u64,
        what: impl FnOnce() -> String,
    ) -> Result<Held<D>, BackendError> {
        match old {
            Some(b) if b.bytes() >= bytes => return Ok(b),
            old if D::KEEPS_REPLACED => retired.extend(old.map(Held::into_buffer)),
            // Given back before more is taken.
            old => drop(old),
        }
        Held::new(queue, pattern, bytes, what())
    }

    /// The memory of an input, of at least `bytes` bytes.
    pub fn input(&mut self, queue: &mut D::Queue, i: usize, bytes: u64) -> Result<D::Range, BackendError> {
        if let Some(range) = self.bound.inputs.get(&i) {
            return holding(range, || format!("input {i}"), bytes);
        }
        let lost = || BackendError::Internal(format!("no input {i}"));
        let slot = self.inputs.get_mut(i).ok_or_else(lost)?;
        if slot.as_ref().is_none_or(|b| b.bytes() < bytes) {
            self.input_buffers += 1;
        }
        let buffer =
            Self::grown(queue, (&mut self.retired, self.pattern.as_ref()), slot.take(), bytes, || {
                format!("input {i}")
            })?;
        let range = buffer.range(bytes);
        *slot = Some(buffer);
        Ok(range)
    }

    /// The memory of an input that was given: bound or of the run's own.
    pub fn given_input(&self, i: usize) -> Option<D::Range> {
        let own = || self.inputs.get(i)?.as_ref().map(|b| b.range(b.bytes()));
        self.bound.inputs.get(&i).cloned().or_else(own)
    }

    /// Scratch memory of a launch of a step in this stream of the program.
    pub fn scratch(
        &mut self,
        queue: &mut D::Queue,
        stream: usize,
        bytes: u64,
    ) -> Result<D::Range, BackendError> {
        if self.scratch.len() <= stream {
            self.scratch.resize_with(stream + 1, || None);
        }
        let (what, slot) = (|| "scratch memory".to_owned(), &mut self.scratch[stream]);
        let buffer =
            Self::grown(queue, (&mut self.retired, self.pattern.as_ref()), slot.take(), bytes, what)?;
        Ok(slot.insert(buffer).range(bytes))
    }

    /// Memory in which kernels report sizes: 16 words.
    pub fn sizes(&mut self, queue: &mut D::Queue) -> Result<D::Range, BackendError> {
        let bytes = SIZES_BYTES as u64;
        let buffer =
            Self::grown(queue, (&mut self.retired, self.pattern.as_ref()), self.sizes.take(), bytes, || {
                "sizes".to_owned()
            })?;
        Ok(self.sizes.insert(buffer).range(bytes))
    }

    /// The records of all steps, where kernels check indices.
    pub fn records(&self) -> Option<D::Range> {
        self.records.as_ref().map(|b| b.range(0, b.bytes()))
    }

    /// The record of a step.
    pub fn record(&self, step: usize) -> Result<D::Range, BackendError> {
        let (at, bytes) = ((step * RECORD_BYTES) as u64, RECORD_BYTES as u64);
        let all = self.records.as_ref().filter(|b| at + bytes <= b.bytes());
        let all = all.ok_or_else(|| BackendError::Internal(format!("step {step} has no record")))?;
        Ok(all.range(at, bytes))
    }

    /// Resets all records.
    pub fn clear_records(&self, queue: &mut D::Queue) -> Result<(), BackendError> {
        match &self.records {
            Some(b) => queue.clear(&b.range(0, b.bytes()), 0, b.bytes()),
            None => Ok(()),
        }
    }

    /// The memory of a value of `bytes` bytes. Values without a planned place get a buffer of their own.
    pub fn place(
        &mut self,
        queue: &mut D::Queue,
        program: &Program,
        weights: &Weights<D>,
        v: ValueId,
        bytes: u64,
    ) -> Result<D::Range, BackendError> {
        if let Some(r) = weights.range(v) {
            return Ok(r.clone());
        }
        if let Some((plan, slot)) = weights.streamed.as_ref().and_then(|p| Some((p, p.slots.get(&v)?))) {
            let what = || "streamed weights".to_owned();
            let buffer = Self::grown(
                queue,
                (&mut self.retired, self.pattern.as_ref()),
                self.streamed.take(),
                plan.bytes,
                what,
            )?;
            return Ok(self.streamed.insert(buffer).range(plan.bytes).part(slot.offset, bytes));
        }
        if let Some(i) = program.graph.inputs.iter().position(|&i| i == v) {
            return self.input(queue, i, bytes);
        }
        let name = || &program.graph.value(v).name;
        if let Some(range) = self.bound.outputs.get(&v) {
            return holding(range, || format!("output \"{}\"", name()), bytes);
        }
        let planned =
            program.memory.places.get(v.0 as usize).filter(|_| !self.separate && self.pattern.is_none());
        match (planned, &self.arena) {
            (Some(&Place::Input(i)), _) => return self.input(queue, i as usize, bytes),
            (Some(&Place::Arena { offset, size }), arena @ (Arena::Own(Some(_)) | Arena::Outside(_))) => {
                let room = arena.bytes().ok_or_else(|| no_memory(program))?;
                if bytes > size {
                    return Err(BackendError::InvalidArgument(format!(
                        "\"{}\" has {bytes} bytes, {size} were planned; the shapes are outside the profile",
                        name()
                    )));
                }
                let end = offset.saturating_add(bytes);
                if end > room {
                    return Err(BackendError::InvalidArgument(format!(
                        "the memory of the context has {room} bytes, and \"{}\" ends at byte {end} at these shapes; set more: {} bytes \
                         are enough for any shapes",
                        name(),
                        program.memory.arena
                    )));
                }
                return arena.range(offset, bytes).ok_or_else(|| no_memory(program));
            }
            _ => {}
        }
        if let Some(from) = changed_in_place(program, v) {
            return self.place(queue, program, weights, from, bytes);
        }
        let what = || format!("tensor \"{}\"", name());
        let buffer =
            Self::grown(queue, (&mut self.retired, self.pattern.as_ref()), self.own.remove(&v), bytes, what)?;
        let range = buffer.range(bytes);
        self.own.insert(v, buffer);
        Ok(range)
    }

    /// The run's own buffers whose contents count only within a run.
    fn temporary(&self) -> impl Iterator<Item = &D::Buffer> {
        let arena = match &self.arena {
            Arena::Own(buffer) => buffer.as_ref(),
            Arena::Outside(_) => None,
        };
        arena.into_iter().chain(self.own.values().chain(self.scratch.iter().flatten()).map(Held::buffer))
    }

    /// Whether the arena is the run's own.
    pub fn owns_arena(&self) -> bool {
        matches!(self.arena, Arena::Own(_))
    }

    /// Takes the arena of another run, if it is the caller's.
    pub fn share_arena(&mut self, other: &Memory<D>) {
        if let Arena::Outside(range) = &other.arena {
            self.arena = Arena::Outside(range.clone());
        }
    }

    /// Sets memory of the caller's as the arena; none takes it away. Runs fail for which it is too small.
    pub fn set_arena(&mut self, range: Option<D::Range>) -> Result<(), BackendError> {
        match &mut self.arena {
            Arena::Own(_) => Err(BackendError::Unsupported(
                "the context has memory of its own; create one without memory to set it".into(),
            )),
            Arena::Outside(memory) => {
                *memory = range;
                Ok(())
            }
        }
    }

    /// Whether a range is part of the run's own buffers.
    pub fn is_own(&self, range: &D::Range) -> bool {
        let inputs = self.inputs.iter().flatten().map(Held::buffer);
        inputs.chain(self.temporary()).any(|b| b.contains(range))
    }

    /// Forgets bound memory that is part of the run's own buffers: they go.
    pub fn unbind_own(&mut self) {
        let mut bound = std::mem::take(&mut self.bound);
        bound.inputs.retain(|_, r| !self.is_own(r));
        bound.outputs.retain(|_, r| !self.is_own(r));
        self.bound = bound;
    }

    /// Overwrites what nothing may read any more.
    pub fn poison(&self, queue: &mut D::Queue) -> Result<(), BackendError> {
        self.temporary().try_for_each(|b| queue.poison(b))?;
        self.fill_guards(queue)
    }

    /// Every buffer that has guards, if there are any.
    fn held(&self) -> impl Iterator<Item = &Held<D>> {
        let inputs = self.inputs.iter().flatten();
        let scratch = self.scratch.iter().flatten();
        inputs.chain(self.own.values()).chain(scratch).chain(&self.streamed).chain(&self.sizes)
    }

    fn fill_guards(&self, queue: &mut D::Queue) -> Result<(), BackendError> {
        let Some(pattern) = &self.pattern else { return Ok(()) };
        self.held().try_for_each(|h| h.fill(queue, pattern))
    }

    /// The error of a kernel that wrote to a guard, which is written anew.
    pub fn check_guards(&self, queue: &mut D::Queue) -> Result<(), BackendError> {
        if self.pattern.is_none() {
            return Ok(());
        }
        let found = Held::check(queue, self.held());
        if found.is_err() {
            self.fill_guards(queue)?;
            queue.wait()?;
        }
        found
    }

    /// Frees replaced buffers: the run that could name them is done.
    pub fn settle(&mut self) {
        if !self.recorded {
            self.retired.clear();
        }
    }

    /// Frees everything but the arena and the records.
    pub fn release(&mut self) {
        if self.recorded {
            return;
        }
        self.unbind_own();
        self.retired.clear();
        self.own.clear();
        self.inputs.fill_with(|| None);
        self.scratch.clear();
        (self.sizes, self.streamed) = (None, None);
    }
}
