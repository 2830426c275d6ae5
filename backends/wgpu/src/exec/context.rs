//! A run.

use super::device::Loaded;
use super::memory::{Memory, Range, write};
use super::plan::{Dispatch, Planner, bytes_of};
use super::record::{BindGroups, Stamps, bind, collect, encode, encode_copies, read_ranges};
use kiln_backend::flow::{self, Bodies, LoadedBodies};
use kiln_backend::{BackendError, Context, Counters, Shapes, StepTime};
use kiln_ir::{Tensor, ValueId};
use std::collections::HashMap;
use std::sync::Arc;

/// Runs a program on the queue of its device.
pub struct WgpuContext {
    loaded: Arc<Loaded>,
    memory: Memory,
    /// For each step that the host walks, contexts of its bodies.
    bodies: Vec<Option<Bodies>>,
    groups: BindGroups,
    /// Tensors that lie in the buffers of lasting inputs, with the numbers of these buffers.
    uploaded: HashMap<usize, (u64, Tensor)>,
    /// The dispatches of the last run with its inputs' shapes, if it needed no host in between.
    last: Option<Prepared>,
    outputs: Option<Pending>,
    shapes: Option<Arc<Shapes>>,
    stamps: Option<Stamps>,
    timing: bool,
    poison: Option<wgpu::Buffer>,
    pipelines: u64,
    counters: Counters,
}

struct Prepared {
    key: Vec<Key>,
    dispatches: Vec<Dispatch>,
    groups: Vec<wgpu::BindGroup>,
}

/// What the dispatches of a run depend on: each input's shape, and the contents of shape inputs.
#[derive(PartialEq)]
struct Key(Vec<usize>, Option<Tensor>);

enum Pending {
    Copied(Vec<(ValueId, usize)>),
    Taken(Vec<Tensor>),
}

impl WgpuContext {
    pub fn new(loaded: Arc<Loaded>) -> Result<WgpuContext, BackendError> {
        let memory = Memory::new(&loaded.gpu, &loaded.program)?;
        let poison = std::env::var_os("KILN_POISON").is_some_and(|v| v == "1");
        let poison = poison.then(|| poison_buffer(&loaded)).transpose()?;
        let bodies = loaded.bodies.iter().map(|b| b.as_ref().map(LoadedBodies::context).transpose());
        let bodies = bodies.collect::<Result<_, _>>()?;
        let pipelines = loaded.gpu.compilations();
        Ok(WgpuContext {
            loaded,
            memory,
            bodies,
            groups: BindGroups::default(),
            uploaded: HashMap::new(),
            last: None,
            outputs: None,
            shapes: None,
            stamps: None,
            timing: false,
            poison,
            pipelines,
            counters: Counters::default(),
        })
    }

    pub fn set_timing(&mut self, on: bool) {
        self.timing = on;
    }

    /// Runs the last dispatches again, without transfers, and waits.
    pub fn repeat(&mut self) -> Result<(), BackendError> {
        let mut encoder = self.encoder();
        if let Some(p) = &self.last {
            encode(&self.loaded, &mut encoder, &p.dispatches, &p.groups, self.stamps.as_ref());
        }
        self.submit(encoder, true)?;
        self.loaded.gpu.finish()
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.loaded.gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }

    fn submit(&self, mut encoder: wgpu::CommandEncoder, last: bool) -> Result<(), BackendError> {
        if let Some(s) = self.stamps.as_ref().filter(|_| last) {
            s.resolve(&mut encoder);
        }
        self.loaded.gpu.queue.submit([encoder.finish()]);
        self.loaded.gpu.check()
    }

    fn upload(&mut self, inputs: &[Tensor], shapes: &Shapes) -> Result<(), BackendError> {
        let loaded = self.loaded.clone();
        let graph = &loaded.program.graph;
        if inputs.len() != graph.inputs.len() {
            return Err(BackendError::InvalidArgument(format!(
                "the program has {} inputs, {} were given",
                graph.inputs.len(),
                inputs.len()
            )));
        }
        for (i, (&v, t)) in graph.inputs.iter().zip(inputs).enumerate() {
            let wanted = &shapes.fact(v).ty;
            if t.dtype() != wanted.dtype || wanted.static_dims().as_deref() != Some(t.shape()) {
                return Err(BackendError::InvalidArgument(format!(
                    "input \"{}\" is {}, the shapes were made for {wanted}",
                    graph.value(v).name,
                    t.ty()
                )));
            }
            let to = self.memory.input(&loaded.gpu, i, t.bytes().len() as u64)?;
            if loaded.lasting.get(i) != Some(&true) {
                write(&loaded.gpu, &to.buffer, 0, t.bytes())?;
                continue;
            }
            // Holding the tensor keeps its address from being another's.
            let place = |t: &Tensor| (t.bytes().as_ptr(), t.bytes().len());
            let there = self.uploaded.get(&i);
            if !there.is_some_and(|(id, old)| *id == to.id && place(old) == place(t)) {
                write(&loaded.gpu, &to.buffer, 0, t.bytes())?;
                self.uploaded.insert(i, (to.id, t.clone()));
            }
        }
        Ok(())
    }

    fn poison(&self) -> Result<(), BackendError> {
        let Some(from) = &self.poison else { return Ok(()) };
        let mut encoder = self.encoder();
        for b in self.memory.stale() {
            let mut at = 0;
            while at < b.size() {
                let n = from.size().min(b.size() - at);
                encoder.copy_buffer_to_buffer(from, 0, b, at, n);
                at += n;
            }
        }
        self.submit(encoder, false)
    }

    fn key(&self, inputs: &[Tensor]) -> Vec<Key> {
        let content = |i: usize, t: &Tensor| self.loaded.shape_inputs.contains(&i).then(|| t.clone());
        inputs.iter().enumerate().map(|(i, t)| Key(t.shape().to_vec(), content(i, t))).collect()
    }

    /// Plans and records all steps, stopping where the host has to know something from the device.
    fn run_steps(&mut self, shapes: &mut Shapes, key: Vec<Key>) -> Result<(), BackendError> {
        let loaded = self.loaded.clone();
        let program = &loaded.program;
        let mut waiting = Vec::new();
        let mut stopped = false;
        for (i, step) in program.steps.iter().enumerate() {
            shapes.update(program, step)?;
            if loaded.bodies.get(i).is_some_and(Option::is_some) {
                self.flush(&mut waiting)?;
                self.walk(shapes, i)?;
                stopped = true;
                continue;
            }
            let unknown = shapes.unknown_host_ports(program, step);
            if !unknown.is_empty() {
                self.flush(&mut waiting)?;
                self.fetch_contents(shapes, &unknown)?;
                shapes.update(program, step)?;
                stopped = true;
            }
            if loaded.steps[i].data_dependent || loaded.steps[i].assertion.is_some() {
                waiting.extend(self.plan(shapes, i, true)?);
                self.flush(&mut waiting)?;
                self.fetch_sizes(shapes, i)?;
                stopped = true;
            }
            stopped |= loaded.steps[i].random;
            waiting.extend(self.plan(shapes, i, false)?);
        }
        let groups = bind(&loaded, &mut self.memory, &mut self.groups, &waiting)?;
        let stamps = self.stamps.as_ref();
        let mut encoder = self.encoder();
        encode(&loaded, &mut encoder, &waiting, &groups, stamps);
        self.take_outputs(encoder, shapes)?;
        self.last = (!stopped).then_some(Prepared { key, dispatches: waiting, groups });
        Ok(())
    }

    /// Where steps tell of their faults, with its bytes, if any of them may.
    fn faults(&mut self) -> Result<Option<(Range, usize)>, BackendError> {
        let loaded = self.loaded.clone();
        let steps = &loaded.steps;
        if steps.iter().all(|s| s.faults.is_none()) {
            return Ok(None);
        }
        Ok(Some((self.memory.faults(&loaded.gpu, steps.len())?, steps.len() * 4)))
    }

    /// Walks a step of control flow: its inputs come to the host, its outputs go back.
    fn walk(&mut self, shapes: &mut Shapes, step: usize) -> Result<(), BackendError> {
        let loaded = self.loaded.clone();
        let graph = &loaded.program.graph;
        let lost =
            || BackendError::Internal(format!("step {step} of control flow lost its node or an input"));
        let node = loaded.program.steps.get(step).and_then(|s| flow::node(graph, s)).ok_or_else(lost)?;
        self.counters.host_syncs += 1;
        let mut known: HashMap<ValueId, Tensor> = HashMap::new();
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for v in &node.inputs {
            let v = v.ok_or_else(lost)?;
            let t = match (known.get(&v), graph.weight(v)) {
                (Some(t), _) => t.clone(),
                (None, Some(w)) => w.tensor.clone(),
                (None, None) => self.fetch(shapes, v)?,
            };
            known.insert(v, t.clone());
            inputs.push(t);
        }
        let facts: Vec<_> = node.outputs.iter().map(|&v| shapes.fact(v).clone()).collect();
        let bodies = self.bodies.get_mut(step).and_then(Option::as_mut).ok_or_else(lost)?;
        let outputs = bodies.walk(node, &inputs, &facts)?;
        for (&v, t) in node.outputs.iter().zip(&outputs) {
            match shapes.shape(v) {
                None => shapes.set_shape(v, t.shape()),
                Some(wanted) if wanted != t.shape() => {
                    let name = &graph.value(v).name;
                    return Err(BackendError::InvalidArgument(format!(
                        "\"{name}\" came out as {:?}; the shapes of the run say {wanted:?}",
                        t.shape()
                    )));
                }
                Some(_) => (),
            }
            let (to, _) = self.place(shapes, v)?;
            write(&loaded.gpu, &to.buffer, to.offset, t.bytes())?;
        }
        Ok(())
    }

    fn plan(&mut self, shapes: &Shapes, step: usize, counts: bool) -> Result<Vec<Dispatch>, BackendError> {
        Planner { loaded: &self.loaded, memory: &mut self.memory, shapes }.step(step, counts)
    }

    fn place(&mut self, shapes: &Shapes, v: ValueId) -> Result<(Range, usize), BackendError> {
        let bytes = bytes_of(&self.loaded, shapes, v)? as usize;
        let r = Planner { loaded: &self.loaded, memory: &mut self.memory, shapes }.place(v)?;
        Ok((r, bytes))
    }

    fn flush(&mut self, waiting: &mut Vec<Dispatch>) -> Result<(), BackendError> {
        let groups = bind(&self.loaded, &mut self.memory, &mut self.groups, waiting)?;
        let mut encoder = self.encoder();
        encode(&self.loaded, &mut encoder, waiting, &groups, self.stamps.as_ref());
        waiting.clear();
        self.submit(encoder, false)
    }

    fn fetch(&mut self, shapes: &Shapes, v: ValueId) -> Result<Tensor, BackendError> {
        let from = self.place(shapes, v)?;
        let loaded = self.loaded.clone();
        let bytes = read_ranges(&loaded.gpu, &mut self.memory, &[from])?.pop().unwrap_or_default();
        let ty = &shapes.fact(v).ty;
        tensor(ty, bytes)
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
        let from = self.memory.sizes(&loaded.gpu)?;
        let bytes = read_ranges(&loaded.gpu, &mut self.memory, &[(from, 64)])?.pop().unwrap_or_default();
        let mut sizes = bytes.as_chunks::<4>().0.iter().map(|c| u32::from_le_bytes(*c) as usize);
        if let Some(message) = &loaded.steps[step].assertion {
            return match sizes.next() {
                Some(0) => Ok(()),
                _ => Err(BackendError::Execution {
                    layer: loaded.program.steps[step].name.clone(),
                    message: format!("assertion failed: {message}"),
                }),
            };
        }
        shapes.set_sizes(&loaded.steps[step].results, sizes)
    }

    /// Records the copies of the outputs and submits.
    fn take_outputs(
        &mut self,
        mut encoder: wgpu::CommandEncoder,
        shapes: &Shapes,
    ) -> Result<(), BackendError> {
        let loaded = self.loaded.clone();
        let mut from = Vec::new();
        let mut pending = Vec::new();
        for &v in &loaded.program.graph.outputs {
            let (r, n) = self.place(shapes, v)?;
            from.push((r, n));
            pending.push((v, n));
        }
        if let Some(faults) = self.faults()? {
            from.push(faults);
        }
        encode_copies(&loaded.gpu, &mut self.memory, &mut encoder, &from)?;
        self.submit(encoder, true)?;
        self.outputs = Some(Pending::Copied(pending));
        Ok(())
    }
}

fn tensor(ty: &kiln_ir::TensorType, bytes: Vec<u8>) -> Result<Tensor, BackendError> {
    let shape = ty.static_dims().unwrap_or_default();
    Tensor::from_bytes(ty.dtype, &shape, bytes)
        .ok_or_else(|| BackendError::Internal(format!("too few bytes for {ty} came back")))
}

/// The error of the first step that told of a fault.
fn check_faults(loaded: &Loaded, words: &[u8]) -> Result<(), BackendError> {
    let steps = loaded.steps.iter().zip(&loaded.program.steps);
    let found = steps.zip(words.as_chunks::<4>().0).find(|(_, w)| **w != [0; 4]);
    found.map_or(Ok(()), |((step, planned), _)| {
        Err(BackendError::Execution {
            layer: planned.name.clone(),
            message: step.faults.unwrap_or("a fault").to_owned(),
        })
    })
}

fn poison_buffer(loaded: &Loaded) -> Result<wgpu::Buffer, BackendError> {
    const SIZE: usize = 1 << 20;
    let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let b = loaded.gpu.buffer("poison", SIZE as u64, usage)?;
    write(&loaded.gpu, &b, 0, &vec![0xff; SIZE])?;
    Ok(b)
}

impl Context for WgpuContext {
    fn enqueue(&mut self, inputs: &[Tensor], shapes: &Arc<Shapes>) -> Result<(), BackendError> {
        if let Some(Pending::Copied(_)) = self.outputs {
            self.loaded.gpu.finish()?;
        }
        self.outputs = None;
        self.upload(inputs, shapes)?;
        self.poison()?;
        if let Some((r, _)) = self.faults()? {
            let mut encoder = self.encoder();
            encoder.clear_buffer(&r.buffer, 0, None);
            self.submit(encoder, false)?;
        }
        if self.timing && self.stamps.is_none() {
            self.stamps = Some(Stamps::new(&self.loaded.gpu, self.loaded.steps.len())?);
        }
        let key = self.key(inputs);
        let loaded = self.loaded.clone();
        if let Some(p) = self.last.take().filter(|p| p.key == key) {
            let mut encoder = self.encoder();
            encode(&loaded, &mut encoder, &p.dispatches, &p.groups, self.stamps.as_ref());
            self.take_outputs(encoder, shapes)?;
            self.last = Some(p);
            self.shapes = Some(shapes.clone());
        } else {
            let mut known = (**shapes).clone();
            self.run_steps(&mut known, key)?;
            self.shapes = Some(Arc::new(known));
        }
        self.counters.runs += 1;
        Ok(())
    }

    fn outputs(&mut self) -> Result<Vec<Tensor>, BackendError> {
        let nothing = || BackendError::InvalidArgument("no run to take outputs of; enqueue first".into());
        let shapes = self.shapes.clone().ok_or_else(nothing)?;
        match self.outputs.take().ok_or_else(nothing)? {
            Pending::Taken(t) => {
                self.outputs = Some(Pending::Taken(t.clone()));
                Ok(t)
            }
            Pending::Copied(list) => {
                let loaded = self.loaded.clone();
                let faults = self.faults()?.map(|(_, n)| n);
                let lengths: Vec<usize> = list.iter().map(|(_, n)| *n).chain(faults).collect();
                let mut bytes = collect(&loaded.gpu, &mut self.memory, &lengths)?;
                if faults.is_some() {
                    check_faults(&loaded, &bytes.pop().unwrap_or_default())?;
                }
                let out = list.iter().zip(bytes).map(|((v, _), b)| tensor(&shapes.fact(*v).ty, b));
                let out: Vec<Tensor> = out.collect::<Result<_, _>>()?;
                self.outputs = Some(Pending::Taken(out.clone()));
                Ok(out)
            }
        }
    }

    fn observe(&mut self, value: ValueId) -> Result<Tensor, BackendError> {
        let shapes = self
            .shapes
            .clone()
            .ok_or_else(|| BackendError::InvalidArgument("no run to observe; enqueue first".into()))?;
        let loaded = self.loaded.clone();
        let graph = &loaded.program.graph;
        if graph.value_ids().all(|v| v != value) {
            return Err(BackendError::InvalidArgument(format!("{value:?} is no value of the program")));
        }
        let stored = loaded.steps.iter().any(|s| s.stored.iter().any(|(v, _)| *v == value));
        let given = graph.inputs.contains(&value) || graph.weight(value).is_some();
        if !stored && !given {
            return Err(BackendError::Unsupported(format!(
                "\"{}\" lives inside a kernel",
                graph.value(value).name
            )));
        }
        // The read-back buffer may still hold outputs of the run.
        self.outputs()?;
        self.fetch(&shapes, value)
    }

    fn set_observable(&mut self, on: bool) {
        if self.memory.separate != on {
            self.memory.separate = on;
            self.last = None;
        }
    }

    fn step_times(&mut self) -> Result<Vec<StepTime>, BackendError> {
        self.timing = true;
        let loaded = self.loaded.clone();
        if matches!(self.outputs, Some(Pending::Copied(_))) {
            self.outputs()?;
        }
        match &self.stamps {
            Some(s) => s.read(&loaded.gpu, &mut self.memory),
            None if loaded.gpu.timestamps => Ok(Vec::new()),
            None => Err(BackendError::Unsupported(format!("{} has no timestamps", loaded.gpu.target.device))),
        }
    }

    fn counters(&self) -> Counters {
        let made = self.loaded.gpu.compilations() - self.pipelines;
        let inside = self.bodies.iter().flatten().map(Bodies::counters);
        let (allocations, host_syncs) =
            inside.fold((0, 0), |(a, h), c| (a + c.allocations, h + c.host_syncs));
        Counters {
            allocations: self.memory.allocations + allocations,
            compilations: made,
            pipelines: made,
            host_syncs: self.counters.host_syncs + host_syncs,
            ..self.counters
        }
    }
}
