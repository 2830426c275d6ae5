//! A run.

use super::device::Loaded;
use super::flow::Bodies;
use super::memory::{Memory, Range, write};
use super::pieces::Pieces;
use super::plan::{Dispatch, Planner};
use super::record::{BindGroups, Stamps, bind, collect, encode, encode_copies, read_ranges};
use kiln_backend::{BackendError, Context, Counters, HostStep, Shapes, StepTime, assisted, stop};
use kiln_codegen::checks::{RECORD_WORDS, recorded};
use kiln_ir::{Tensor, ValueId};
use std::sync::Arc;
use std::time::Instant;

/// Runs a program on the queue of its device.
pub struct WgpuContext {
    pub(super) loaded: Arc<Loaded>,
    pub(super) memory: Memory,
    /// For each step that the host walks, contexts of its bodies.
    pub(super) bodies: Vec<Option<Bodies>>,
    groups: BindGroups,
    /// The dispatches of the last run with its inputs' shapes, if it needed no host in between.
    last: Option<Prepared>,
    outputs: Option<Pending>,
    /// Whether work of a run may still be under way.
    unfinished: bool,
    shapes: Option<Arc<Shapes>>,
    pub(super) stamps: Option<Stamps>,
    pub(super) timing: bool,
    /// Where the last run waited for the host.
    pub(super) assisted: Vec<HostStep>,
    pub(super) poison: Option<wgpu::Buffer>,
    pipelines: u64,
    counters: Counters,
}

struct Prepared {
    key: Vec<Key>,
    dispatches: Vec<Dispatch>,
    groups: Vec<wgpu::BindGroup>,
    pieces: Pieces,
}

/// What the dispatches of a run depend on: each input's shape, and the contents of inputs that the host plans by.
#[derive(PartialEq)]
struct Key(Vec<usize>, Option<Tensor>);

enum Pending {
    /// Outputs with their bytes, then the words of the faults of these programs.
    Copied(Vec<(ValueId, usize)>, Vec<Arc<Loaded>>),
    Taken(Vec<Tensor>),
}

impl WgpuContext {
    pub fn new(loaded: Arc<Loaded>) -> Result<WgpuContext, BackendError> {
        let memory = Memory::new(&loaded.gpu, &loaded.program)?;
        let poison = std::env::var_os("KILN_POISON").is_some_and(|v| v == "1");
        let poison = poison.then(|| poison_buffer(&loaded)).transpose()?;
        let bodies = loaded.bodies.iter().map(|b| (!b.is_empty()).then(|| Bodies::new(b)).transpose());
        let bodies = bodies.collect::<Result<_, _>>()?;
        let pipelines = loaded.gpu.compilations();
        Ok(WgpuContext {
            loaded,
            memory,
            bodies,
            groups: BindGroups::default(),
            last: None,
            outputs: None,
            unfinished: false,
            shapes: None,
            stamps: None,
            timing: false,
            assisted: Vec::new(),
            poison,
            pipelines,
            counters: Counters::default(),
        })
    }

    pub fn set_timing(&mut self, on: bool) {
        self.timing = on;
        self.bodies.iter_mut().flatten().for_each(|b| b.set_timing(on));
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
        shapes.check_inputs(&loaded.program.graph, inputs)?;
        for (i, t) in inputs.iter().enumerate() {
            let to = self.memory.input(&loaded.gpu, i, t.bytes().len() as u64)?;
            write(&loaded.gpu, &to.buffer, 0, t.bytes())?;
        }
        Ok(())
    }

    /// Fills what nothing may read with NaN.
    pub(super) fn poison(&self, encoder: &mut wgpu::CommandEncoder) {
        let Some(from) = &self.poison else { return };
        for b in self.memory.stale() {
            let mut at = 0;
            while at < b.size() {
                let n = from.size().min(b.size() - at);
                encoder.copy_buffer_to_buffer(from, 0, b, at, n);
                at += n;
            }
        }
    }

    fn key(&self, inputs: &[Tensor]) -> Vec<Key> {
        let content = |i: usize, t: &Tensor| self.loaded.plans_by(i).then(|| t.clone());
        inputs.iter().enumerate().map(|(i, t)| Key(t.shape().to_vec(), content(i, t))).collect()
    }

    /// Plans all steps; where the host has to know something from the device, what was planned so far runs. Gives what is
    /// left to be run, and whether that is not all, or must be planned again for the next run.
    pub(super) fn plan_steps(&mut self, shapes: &mut Shapes) -> Result<(Vec<Dispatch>, bool), BackendError> {
        let loaded = self.loaded.clone();
        let program = &loaded.program;
        let mut waiting = Vec::new();
        let mut stopped = false;
        for (i, step) in program.steps.iter().enumerate() {
            stop::check(&step.name)?;
            shapes.update(program, step)?;
            if loaded.bodies.get(i).is_some_and(|b| !b.is_empty()) {
                self.flush(&mut waiting)?;
                self.walk(shapes, i)?;
                stopped = true;
                continue;
            }
            let unknown = shapes.unknown_host_ports(program, step);
            if !unknown.is_empty() {
                HostStep::add(&mut self.assisted, i, assisted::CONTENTS);
                self.flush(&mut waiting)?;
                self.fetch_contents(shapes, &unknown)?;
                shapes.update(program, step)?;
                stopped = true;
            }
            if let Some(message) = &loaded.steps[i].assertion {
                shapes.check_assertion(program, step, message)?;
            }
            if let Some(why) = shapes.counted(program, step) {
                HostStep::add(&mut self.assisted, i, why);
                waiting.extend(self.plan(shapes, i, true)?);
                self.flush(&mut waiting)?;
                self.fetch_sizes(shapes, i)?;
                stopped = true;
            }
            stopped |= loaded.steps[i].random;
            waiting.extend(self.plan(shapes, i, false)?);
        }
        Ok((waiting, stopped))
    }

    fn run_steps(&mut self, shapes: &mut Shapes, key: Vec<Key>) -> Result<(), BackendError> {
        let (waiting, stopped) = self.plan_steps(shapes)?;
        let groups = self.bind(&waiting)?;
        let mut pieces = Pieces::default();
        let encoder = self.record(&waiting, &groups, &mut pieces)?;
        self.take_outputs(encoder, shapes)?;
        self.last = (!stopped).then_some(Prepared { key, dispatches: waiting, groups, pieces });
        Ok(())
    }

    fn bind(&mut self, dispatches: &[Dispatch]) -> Result<Vec<wgpu::BindGroup>, BackendError> {
        let m = &mut self.memory;
        bind(&self.loaded, &mut m.args, &mut m.allocations, &mut self.groups, dispatches)
    }

    fn plan(&mut self, shapes: &Shapes, step: usize, counts: bool) -> Result<Vec<Dispatch>, BackendError> {
        Planner { loaded: &self.loaded, memory: &mut self.memory, shapes }.step(step, counts)
    }

    /// Where a value lies, and how many bytes it has.
    pub(super) fn place(&mut self, shapes: &Shapes, v: ValueId) -> Result<(Range, usize), BackendError> {
        let bytes = shapes.bytes(&self.loaded.program, v)? as usize;
        let r = Planner { loaded: &self.loaded, memory: &mut self.memory, shapes }.place(v)?;
        Ok((r, bytes))
    }

    /// Submits what was planned.
    pub(super) fn flush(&mut self, waiting: &mut Vec<Dispatch>) -> Result<(), BackendError> {
        let groups = self.bind(waiting)?;
        let encoder = self.record(waiting, &groups, &mut Pieces::default())?;
        waiting.clear();
        self.submit(encoder, false)
    }

    /// Records dispatches. Of a run that may be stopped only the last of them: those before are submitted in pieces, and the
    /// host waits for each piece before the last.
    fn record(
        &self,
        dispatches: &[Dispatch],
        groups: &[wgpu::BindGroup],
        pieces: &mut Pieces,
    ) -> Result<wgpu::CommandEncoder, BackendError> {
        let (loaded, stamps) = (&self.loaded, self.stamps.as_ref());
        let step = |d: &Dispatch| loaded.program.steps.get(d.step).map_or("", |s| s.name.as_str());
        let mut from = 0;
        // The times of a step are taken in one submission.
        while stop::possible() && stamps.is_none() {
            stop::check(dispatches.get(from).map_or("", step))?;
            let end = pieces.end(from, dispatches.len());
            if end == dispatches.len() {
                break;
            }
            let mut encoder = self.encoder();
            encode(loaded, &mut encoder, &dispatches[from..end], &groups[from..end], None);
            let start = Instant::now();
            self.submit(encoder, false)?;
            let layer = || dispatches.get(end - 1).map_or("", step);
            loaded.gpu.finish().map_err(|e| e.inside(layer()))?;
            pieces.took(from..end, start.elapsed());
            from = end;
        }
        let mut encoder = self.encoder();
        encode(loaded, &mut encoder, &dispatches[from..], &groups[from..], stamps);
        Ok(encoder)
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
        let (k, layer) = (&loaded.steps[step], &loaded.program.steps[step].name);
        shapes.set_counted(layer, k.assertion.as_deref(), &k.results, &bytes)
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
        let mut programs = Vec::new();
        for (r, loaded) in self.faults()? {
            from.push((r, loaded.steps.len() * RECORD_WORDS * 4));
            programs.push(loaded);
        }
        encode_copies(&loaded.gpu, &mut self.memory, &mut encoder, &from)?;
        self.submit(encoder, true)?;
        self.outputs = Some(Pending::Copied(pending, programs));
        Ok(())
    }
}

pub(super) fn tensor(ty: &kiln_ir::TensorType, bytes: Vec<u8>) -> Result<Tensor, BackendError> {
    let shape = ty.static_dims().unwrap_or_default();
    Tensor::from_bytes(ty.dtype, &shape, bytes)
        .ok_or_else(|| BackendError::Internal(format!("too few bytes for {ty} came back")))
}

/// The error of the first step that recorded an index out of range.
pub(super) fn check_faults(loaded: &Loaded, words: &[u8]) -> Result<(), BackendError> {
    let records = words.chunks(RECORD_WORDS * 4);
    loaded.steps.iter().zip(records).enumerate().try_for_each(|(i, (step, record))| {
        let anchor = step.anchor.and_then(|n| loaded.program.graph.get(n));
        recorded(record, anchor.map(|n| &n.op), step.layer(&loaded.program, i))
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
        // A run that was stopped, or whose outputs nobody took, may still be at work.
        if self.unfinished {
            self.loaded.gpu.finish()?;
        }
        (self.outputs, self.unfinished) = (None, true);
        self.upload(inputs, shapes)?;
        let mut encoder = self.encoder();
        self.poison(&mut encoder);
        for (r, _) in self.faults()? {
            encoder.clear_buffer(&r.buffer, 0, None);
        }
        self.submit(encoder, false)?;
        self.prepare_stamps()?;
        self.forget_inner_times();
        self.assisted.clear();
        let key = self.key(inputs);
        if let Some(mut p) = self.last.take().filter(|p| p.key == key) {
            let encoder = self.record(&p.dispatches, &p.groups, &mut p.pieces)?;
            self.take_outputs(encoder, shapes)?;
            self.last = Some(p);
            self.shapes = Some(shapes.clone());
        } else {
            let mut known = (**shapes).clone();
            known.set_inputs(&self.loaded.program.graph, inputs, |i| self.loaded.deciding.contains(&i));
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
            Pending::Copied(list, programs) => {
                let loaded = self.loaded.clone();
                let words = programs.iter().map(|p| p.steps.len() * RECORD_WORDS * 4);
                let lengths: Vec<usize> = list.iter().map(|(_, n)| *n).chain(words).collect();
                let mut bytes = collect(&loaded.gpu, &mut self.memory, &lengths)?;
                self.unfinished = false;
                let words = bytes.split_off(list.len());
                programs.iter().zip(&words).try_for_each(|(p, w)| check_faults(p, w))?;
                let out = list.iter().zip(bytes).map(|((v, _), b)| tensor(&shapes.fact(*v).ty, b));
                let out: Vec<Tensor> = out.collect::<Result<_, _>>()?;
                self.outputs = Some(Pending::Taken(out.clone()));
                Ok(out)
            }
        }
    }

    fn wait(&mut self) -> Result<(), BackendError> {
        self.outputs().map(drop)
    }

    fn observe(&mut self, value: ValueId) -> Result<Tensor, BackendError> {
        let shapes = self
            .shapes
            .clone()
            .ok_or_else(|| BackendError::InvalidArgument("no run to observe; enqueue first".into()))?;
        let loaded = self.loaded.clone();
        let stored = loaded.steps.iter().any(|s| s.stored.iter().any(|(v, _)| *v == value));
        loaded.program.observable(value, stored)?;
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

    fn host_steps(&mut self) -> Result<Vec<HostStep>, BackendError> {
        Ok(self.assisted.clone())
    }

    fn step_times(&mut self) -> Result<Vec<StepTime>, BackendError> {
        self.set_timing(true);
        if matches!(self.outputs, Some(Pending::Copied(..))) {
            self.outputs()?;
        }
        let mut own = self.own_times()?;
        for (step, b) in self.bodies.iter().enumerate() {
            let Some(inside) = b.as_ref().map(|b| b.times(step)).filter(|t| !t.is_empty()) else { continue };
            let direct = inside.iter().filter(|t| t.inside.len() == 1);
            own.push(StepTime::new(step, direct.map(|t| t.ns).sum()));
            own.extend(inside);
        }
        own.sort_by_key(|t| t.step);
        Ok(own)
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
