//! The steps of a run: planned, launched, and stopped where the host has to know something from the device.

use super::context::{CudaContext, KEPT, Key, Prepared, tensor};
use super::extent::Extent;
use super::memory::Range;
use super::plan::{Planned, Planner};
use super::reasons;
use super::run::Batch;
use super::values::Value;
use kiln_backend::{BackendError, Shapes, assisted, flow, stop};
use kiln_ir::{Tensor, ValueId};
use std::sync::Arc;

impl CudaContext {
    /// Plans and launches all steps, stopping where the host has to know something from the device.
    pub(super) fn run_steps(&mut self, shapes: &mut Shapes, key: Vec<Key>) -> Result<(), BackendError> {
        let loaded = self.loaded.clone();
        let allocations = self.allocated();
        let last = self.last_read();
        let mut waiting = Vec::new();
        let mut stopped = false;
        self.whole = false;
        self.open.clear();
        for i in 0..loaded.program.steps.len() {
            self.run_step(shapes, i, &mut waiting, &mut stopped)?;
            waiting.extend(self.marks(last, i));
        }
        if stopped {
            if self.allocated() != allocations {
                // Memory of bodies may have moved, which launches of other shapes name.
                self.prepared.clear();
            }
            return self.flush(&mut waiting);
        }
        // Launches that were planned before a buffer grew name the old one: plan once more.
        if self.allocated() != allocations {
            waiting.clear();
            for i in 0..loaded.program.steps.len() {
                waiting.extend(match loaded.bodies.get(i).is_some_and(Option::is_some) {
                    true => self.on_device(shapes, i)?.unwrap_or_default(),
                    false => self.plan(shapes, i, false)?,
                });
                waiting.extend(self.marks(last, i));
            }
            self.prepared.clear();
        }
        self.prepare(key, waiting, shapes)
    }

    /// Plans one step; where the host has to know something first, launches what waits and finds it out.
    fn run_step(
        &mut self,
        shapes: &mut Shapes,
        i: usize,
        waiting: &mut Vec<Planned>,
        stopped: &mut bool,
    ) -> Result<(), BackendError> {
        let loaded = self.loaded.clone();
        let program = &loaded.program;
        let (Some(step), Some(kernel)) = (program.steps.get(i), loaded.steps.get(i)) else { return Ok(()) };
        stop::check(&step.name)?;
        shapes.update(program, step)?;
        if loaded.bodies.get(i).is_some_and(Option::is_some) {
            // Steps inside are timed where the host walks.
            let stays = !*stopped && !loaded.stops(shapes) && self.stamps.is_none();
            if !stays {
                self.note_host(i, if *stopped { reasons::BEHIND } else { reasons::BESIDE });
            }
            if let Some(planned) = stays.then(|| self.on_device(shapes, i)).transpose()?.flatten() {
                waiting.extend(planned);
                return Ok(());
            }
            self.flush(waiting)?;
            *stopped = true;
            return self.walk(shapes, i);
        }
        let unknown = shapes.unknown_host_ports(program, step);
        if !unknown.is_empty() {
            self.note_host(i, assisted::CONTENTS);
            self.flush(waiting)?;
            self.fetch_contents(shapes, &unknown)?;
            shapes.update(program, step)?;
            *stopped = true;
        }
        if let Some(message) = &kernel.assertion {
            shapes.check_assertion(program, step, message)?;
        }
        if let Some(why) = shapes.counted(program, step) {
            self.note_host(i, why);
            waiting.extend(self.plan(shapes, i, true)?);
            self.flush(waiting)?;
            self.fetch_sizes(shapes, i)?;
            *stopped = true;
        }
        *stopped |= kernel.random;
        waiting.extend(self.plan(shapes, i, false)?);
        Ok(())
    }

    /// Runs launches that need no host in between, and keeps them.
    fn prepare(&mut self, key: Vec<Key>, waiting: Vec<Planned>, shapes: &Shapes) -> Result<(), BackendError> {
        let (graph, further) = match self.prepared.len() < KEPT {
            true => (None, None),
            false => self.prepared.remove(0).batch.retire(),
        };
        self.spare = self.spare.take().or(graph);
        let batch = Batch::new(&self.stream, waiting, further, &mut self.memory.allocations)?;
        let mut batch = batch.of(&self.loaded.program);
        let like = |p: &Prepared| p.key.len() == key.len() && p.key.iter().zip(&key).all(|(a, b)| a.like(b));
        if self.prepared.iter().any(like) {
            // The same launches at other addresses: their kernels are loaded.
            batch.prove();
        }
        // Control flow is a graph from its first run on.
        self.run_graph(&mut batch)?;
        let (shapes, open) = (Arc::new(shapes.clone()), self.open.clone());
        self.prepared.push(Prepared { key, batch, shapes, open });
        self.whole = true;
        Ok(())
    }

    /// Walks a step of control flow: its inputs are read where they lie, its outputs are copied to their places.
    fn walk(&mut self, shapes: &mut Shapes, step: usize) -> Result<(), BackendError> {
        let loaded = self.loaded.clone();
        let graph = &loaded.program.graph;
        let (node, ids) = flow::walked(&loaded.program, step)?;
        let mut inputs = Vec::with_capacity(ids.len());
        for v in ids {
            let at = self.place(shapes, v)?.0;
            inputs.push(Value::lent(shapes.fact(v).ty.clone(), at, shapes.content(graph, v)));
        }
        let facts: Vec<_> = node.outputs.iter().map(|&v| shapes.fact(v).clone()).collect();
        if let Some(s) = &mut self.stamps {
            s.before(step, &self.stream)?;
        }
        let bodies = self.bodies.get_mut(step).and_then(Option::as_mut).ok_or_else(|| flow::lost(step))?;
        bodies.bodies.iter_mut().for_each(|b| b.context.forget_host());
        let name = &loaded.program.steps[step].name;
        let outputs = bodies.walk(node, &inputs, &facts).map_err(|e| e.inside(name))?;
        for (&v, out) in node.outputs.iter().zip(&outputs) {
            shapes.came_out(graph, v, &out.shape())?;
            let (to, n) = self.place(shapes, v)?;
            self.stream.copy(to.address, out.at.address, n)?;
        }
        match &mut self.stamps {
            Some(s) => s.close(&self.stream),
            None => Ok(()),
        }
    }

    pub(super) fn plan(
        &mut self,
        shapes: &Shapes,
        step: usize,
        counts: bool,
    ) -> Result<Vec<Planned>, BackendError> {
        Planner { loaded: &self.loaded, memory: &mut self.memory, shapes }.step(step, counts)
    }

    /// Where a value lies, and its bytes; at most so many where its size is open.
    pub(super) fn place(&mut self, shapes: &Shapes, v: ValueId) -> Result<(Range, usize), BackendError> {
        let open = self.open.get(v).filter(|_| shapes.shape(v).is_none()).map(Extent::bytes);
        let bytes = open.unwrap_or_else(|| shapes.bytes(&self.loaded.program, v))?;
        Ok((self.room(v, bytes)?, bytes as usize))
    }

    /// The memory of a value: for all that it may become.
    pub(super) fn capacity(&mut self, shapes: &Shapes, v: ValueId) -> Result<Range, BackendError> {
        match self.open.get(v).map(Extent::bytes).transpose()? {
            Some(bytes) => self.room(v, bytes),
            None => self.place(shapes, v).map(|p| p.0),
        }
    }

    /// The memory of a value of so many bytes.
    pub(super) fn room(&mut self, v: ValueId, bytes: u64) -> Result<Range, BackendError> {
        self.memory.place(&self.loaded.program, &self.loaded.weights, v, bytes)
    }

    fn flush(&mut self, waiting: &mut Vec<Planned>) -> Result<(), BackendError> {
        let waiting = std::mem::take(waiting);
        let batch = Batch::new(&self.stream, waiting, None, &mut self.memory.allocations)?;
        let mut batch = batch.of(&self.loaded.program);
        batch.run(&self.stream, self.stamps.as_mut())?;
        self.parts.push(batch);
        Ok(())
    }

    /// Copies ranges to the host now.
    fn read(&mut self, from: &[(Range, usize)]) -> Result<Vec<Vec<u8>>, BackendError> {
        self.start_reading(from)?;
        self.stream.synchronize()?;
        self.collect(&from.iter().map(|(_, n)| *n).collect::<Vec<_>>())
    }

    pub(super) fn start_reading(&mut self, from: &[(Range, usize)]) -> Result<(), BackendError> {
        let total = from.iter().map(|(_, n)| n.next_multiple_of(64)).sum();
        let to = self.memory.readback(total)?;
        let mut at = 0;
        for (r, n) in from {
            to.fetch(at, r.address, *n)?;
            at += n.next_multiple_of(64);
        }
        Ok(())
    }

    /// What lies in the read-back memory, after the device has written it.
    pub(super) fn collect(&mut self, lengths: &[usize]) -> Result<Vec<Vec<u8>>, BackendError> {
        let total = lengths.iter().map(|n| n.next_multiple_of(64)).sum();
        let from = self.memory.readback(total)?;
        let mut at = 0;
        let mut out = Vec::new();
        for &n in lengths {
            out.push(from.bytes(at, n).to_vec());
            at += n.next_multiple_of(64);
        }
        Ok(out)
    }

    pub(super) fn fetch(&mut self, shapes: &Shapes, v: ValueId) -> Result<Tensor, BackendError> {
        let from = self.place(shapes, v)?;
        let bytes = self.read(&[from])?.pop().unwrap_or_default();
        tensor(&shapes.fact(v).ty, bytes)
    }

    fn fetch_contents(&mut self, shapes: &mut Shapes, values: &[ValueId]) -> Result<(), BackendError> {
        self.counters.host_syncs += 1;
        for &v in values {
            let t = self.fetch(shapes, v)?;
            shapes.set_content(v, t);
        }
        Ok(())
    }

    /// Reads the sizes that a data-dependent step counted: of its unknown dimensions, output by output.
    fn fetch_sizes(&mut self, shapes: &mut Shapes, step: usize) -> Result<(), BackendError> {
        self.counters.host_syncs += 1;
        let loaded = self.loaded.clone();
        let from = self.memory.sizes()?;
        let bytes = self.read(&[(from, 64)])?.pop().unwrap_or_default();
        let (k, layer) = (&loaded.steps[step], &loaded.program.steps[step].name);
        shapes.set_counted(layer, k.assertion.as_deref(), &k.results, &bytes)
    }
}
