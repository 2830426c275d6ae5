//! Control flow: the host decides, values stay on the device between the bodies.

use super::context::CudaContext;
use super::device::Loaded;
use super::memory::Range;
use super::values::{Ferry, Pool, Value, bytes};
use crate::driver::{Buffer, Event, Rows, Stream, Word};
use kiln_backend::flow::{Machine, Pace, walk};
use kiln_backend::{BackendError, Counters, Shapes, StepTime, stop};
use kiln_ir::{Fact, LoopOutputKind, Node, Tensor, TensorType};
use std::sync::Arc;

/// The most bytes that are planned for one stacked output on the device.
const MAX_PARTS: u64 = 1 << 36;

/// Contexts of the bodies of one step, all in the stream of the context around them.
pub struct Bodies {
    pub(super) bodies: Vec<Body>,
    pub(super) stream: Arc<Stream>,
    /// Of steps that stay on the device: where trips are counted, and where values go that others overwrite.
    pub(super) state: Option<Buffer>,
    pub(super) stage: Option<Buffer>,
    /// Where it is told where the slices of a trip lie.
    pub(super) cells: Option<Buffer>,
    /// Where carried values lie after every other trip.
    pub(super) others: Vec<Buffer>,
    /// Buffers that larger ones have replaced.
    pub(super) retired: Vec<Buffer>,
    pub(super) own_allocations: u64,
    /// What loops on the device read to know whether they are to stop.
    pub(super) word: Option<Arc<Word>>,
    pace: Pace<Event>,
    pool: Arc<Pool>,
    ferry: Ferry,
}

pub(super) struct Body {
    pub(super) loaded: Arc<Loaded>,
    pub(super) context: CudaContext,
    /// The shapes of the last run with what they were made for.
    last: Option<(Vec<(TensorType, Option<Tensor>)>, Arc<Shapes>)>,
    /// Times of its steps since they were forgotten, if they are taken.
    pub(super) times: Vec<StepTime>,
}

impl Bodies {
    pub fn new(
        bodies: &[Arc<Loaded>],
        stream: &Arc<Stream>,
        word: &Option<Arc<Word>>,
    ) -> Result<Bodies, BackendError> {
        let one = |loaded: &Arc<Loaded>| {
            let context = CudaContext::on(loaded.clone(), stream.clone(), word.clone())?;
            Ok(Body { loaded: loaded.clone(), context, last: None, times: Vec::new() })
        };
        Ok(Bodies {
            bodies: bodies.iter().map(one).collect::<Result<_, BackendError>>()?,
            stream: stream.clone(),
            state: None,
            stage: None,
            cells: None,
            others: Vec::new(),
            retired: Vec::new(),
            own_allocations: 0,
            word: word.clone(),
            pace: Pace::default(),
            pool: Pool::new(stream),
            ferry: Ferry::new(stream),
        })
    }

    /// Runs the node of the step.
    pub fn walk(
        &mut self,
        node: &Node,
        inputs: &[Value],
        outputs: &[Fact],
    ) -> Result<Vec<Value>, BackendError> {
        self.pace.restart();
        walk(node, inputs, outputs, self)
    }

    /// Waits now and then for what bodies have put into the stream, where the run may be stopped.
    fn keep_pace(&mut self) -> Result<(), BackendError> {
        if !stop::possible() || !self.pace.is_due(1) {
            return Ok(());
        }
        let mark = Event::new(&self.stream.gpu, false)?;
        mark.record(&self.stream)?;
        self.pace.passed(mark, |before| Ok(before.wait()?))
    }

    /// Gives back what the last run alone could name; it is done.
    pub fn settle(&mut self) {
        self.retired.clear();
        self.bodies.iter_mut().for_each(|b| b.context.settle());
    }

    /// What was done for the bodies, their runs left out.
    pub fn counters(&self) -> Counters {
        use kiln_backend::Context;
        let own = Counters {
            allocations: self.pool.made() + self.ferry.allocations + self.own_allocations,
            host_syncs: self.ferry.waits,
            ..Counters::default()
        };
        self.bodies.iter().map(|b| b.context.counters()).fold(own, |a, c| Counters {
            runs: 0,
            allocations: a.allocations + c.allocations,
            compilations: a.compilations + c.compilations,
            pipelines: a.pipelines + c.pipelines,
            host_syncs: a.host_syncs + c.host_syncs,
        })
    }

    fn through_host(
        &mut self,
        values: &[&Value],
        f: impl FnOnce(&[Tensor]) -> Result<Tensor, kiln_ir::OpError>,
    ) -> Result<Value, BackendError> {
        let all = values.iter().map(|v| self.ferry.fetch(v)).collect::<Result<Vec<_>, _>>()?;
        let made = f(&all).map_err(|e| BackendError::InvalidArgument(e.to_string()))?;
        self.ferry.send(&self.pool, made)
    }
}

impl Body {
    fn shapes(&mut self, inputs: &[Value], ferry: &mut Ferry) -> Result<Arc<Shapes>, BackendError> {
        let mut key = Vec::with_capacity(inputs.len());
        for (i, v) in inputs.iter().enumerate() {
            let content = self.loaded.shape_inputs.contains(&i).then(|| ferry.fetch(v)).transpose()?;
            key.push((v.ty.clone(), content));
        }
        if let Some((made_for, shapes)) = &self.last
            && *made_for == key
        {
            return Ok(shapes.clone());
        }
        let facts: Vec<Fact> = key
            .iter()
            .map(|(ty, content)| match content {
                Some(t) => Fact::constant(t.clone()),
                None => Fact::of(ty.clone()),
            })
            .collect();
        let shapes = Arc::new(Shapes::new(self.loaded.program.graph.infer_from(&facts)?));
        self.last = Some((key, shapes.clone()));
        Ok(shapes)
    }

    fn run(
        &mut self,
        inputs: &[Value],
        pool: &Arc<Pool>,
        ferry: &mut Ferry,
    ) -> Result<Vec<Value>, BackendError> {
        let shapes = self.shapes(inputs, ferry)?;
        let contents: Vec<Option<Tensor>> = match &self.last {
            Some((key, _)) => key.iter().map(|(_, t)| t.clone()).collect(),
            None => Vec::new(),
        };
        let outputs = self.context.run_here(inputs, contents, &shapes, pool)?;
        if let Some(s) = &self.context.stamps {
            StepTime::add(&mut self.times, s.read()?);
        }
        Ok(outputs)
    }
}

/// Rows before the axis, its length, bytes of what lies behind it; none where elements share bytes.
pub(super) fn split(ty: &TensorType, axis: usize) -> Option<(usize, usize, usize)> {
    let shape = ty.static_dims()?;
    let bits = ty.dtype.bits() as usize;
    let (before, rest) = shape.split_at_checked(axis)?;
    let (&length, after) = rest.split_first()?;
    let inner = after.iter().product::<usize>() * bits / 8;
    bits.is_multiple_of(8).then(|| (before.iter().product(), length, inner))
}

impl Machine for Bodies {
    type Value = Value;

    fn run(&mut self, body: usize, inputs: Vec<Value>) -> Result<Vec<Value>, BackendError> {
        let body = self.bodies.get_mut(body).ok_or_else(|| {
            BackendError::InvalidArgument(format!("an interpreted step has no body {body}"))
        })?;
        let outputs = body.run(&inputs, &self.pool, &mut self.ferry)?;
        self.keep_pace()?;
        Ok(outputs)
    }

    fn number(&mut self, v: &Value) -> Result<i64, BackendError> {
        let one = v.ty.static_volume() == Some(1);
        let t = one.then(|| self.ferry.fetch(v)).transpose()?;
        t.and_then(|t| t.scalar_i64()).ok_or_else(|| {
            BackendError::InvalidArgument(format!("{} decides on control flow, wants one element", v.ty))
        })
    }

    fn bytes(&self, v: &Value) -> u64 {
        v.at.size
    }

    fn fact(&mut self, v: &Value) -> Result<Option<Fact>, BackendError> {
        let small = v.ty.static_volume().is_some_and(|n| n <= kiln_ir::infer::MAX_CONTENT);
        Ok(Some(if small { Fact::constant(self.ferry.fetch(v)?) } else { Fact::of(v.ty.clone()) }))
    }

    fn element(&mut self, v: &Value, axis: usize, at: i64) -> Result<Value, BackendError> {
        let parts = split(&v.ty, axis);
        let inside = |n: usize| usize::try_from(at).ok().filter(|&i| i < n);
        let Some(((rows, length, inner), i)) = parts.and_then(|p| Some((p, inside(p.1)?))) else {
            return self.through_host(&[v], |t| match t {
                [t] => kiln_ir::element(t, axis, at),
                _ => Err(kiln_ir::OpError::Value("no tensor to iterate over".into())),
            });
        };
        let mut ty = v.ty.clone();
        ty.dims.remove(axis);
        let from = v.at.address + (i * inner) as u64;
        if rows == 1 {
            return Ok(v.part(ty, Range { address: from, size: inner as u64 }));
        }
        let picked = self.pool.take(ty)?;
        let rows = Rows { width: inner, height: rows, from_pitch: length * inner, to_pitch: inner };
        self.stream.copy_rows(picked.at.address, from, rows)?;
        Ok(picked)
    }

    fn stack(
        &mut self,
        kind: LoopOutputKind,
        axis: usize,
        values: &[Value],
        length: Option<usize>,
        empty: &TensorType,
    ) -> Result<Value, BackendError> {
        let trips = values.len();
        let n = length.unwrap_or(trips);
        let plain = |first: &Value| {
            let mut ty = first.ty.clone();
            let fits = n >= trips && axis <= ty.dims.len() && values.iter().all(|v| v.ty == first.ty);
            fits.then(|| ty.dims.insert(axis, (n as i64).into()))?;
            let parts = split(&ty, axis)?;
            (bytes(&ty).ok()? <= MAX_PARTS).then_some((ty, parts))
        };
        let Some((ty, (rows, _, inner))) = values.first().and_then(plain) else {
            let all: Vec<&Value> = values.iter().collect();
            return self.through_host(&all, |all| kiln_ir::stack(kind, axis, all, length, empty));
        };
        let all = self.pool.take(ty)?;
        if n > trips {
            self.stream.fill(all.at.address, 0, all.at.size as usize)?;
        }
        for (trip, v) in values.iter().enumerate() {
            let place = if kind == LoopOutputKind::Reverse { trips - 1 - trip } else { trip };
            let to = all.at.address + (place * inner) as u64;
            let rows = Rows { width: inner, height: rows, from_pitch: inner, to_pitch: n * inner };
            match rows.height {
                1 => self.stream.copy(to, v.at.address, inner)?,
                _ => self.stream.copy_rows(to, v.at.address, rows)?,
            }
        }
        Ok(all)
    }
}
