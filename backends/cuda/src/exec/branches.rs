//! Control flow on the device: steps of loops and conditionals as nodes of a graph, where all sizes are known before the
//! run. Everything else the host walks ([`super::flow`]).

use super::context::CudaContext;
use super::flow::{Bodies, Body, split};
use super::memory::Range;
use super::moves::{Decision, Move, clash, commands, launches};
use super::plan::Planned;
use super::run::Batch;
use crate::driver::{Branch, Buffer, Command, DriverError, Kind, Launch, Module, Stream};
use kiln_backend::{BackendError, Shapes, flow};
use kiln_ir::{Fact, IrError, LoopOutputKind, LoopShape, Tensor, TensorType};
use std::any::Any;
use std::sync::Arc;

/// Why the host walks a step, or what went wrong.
enum Stop {
    Host(&'static str),
    Failed(BackendError),
}

macro_rules! failures {
    ($($error:ty),*) => {
        $(impl From<$error> for Stop {
            fn from(e: $error) -> Stop {
                Stop::Failed(e.into())
            }
        })*
    };
}

failures!(BackendError, DriverError, IrError);

type Made<T> = Result<T, Stop>;

fn host<T>(why: &'static str) -> Made<T> {
    Err(Stop::Host(why))
}

/// A tensor that bodies read: where it lies, its type, and its elements if the host knows them.
#[derive(Clone)]
struct Given {
    at: Range,
    ty: TensorType,
    content: Option<Tensor>,
}

/// What all parts of a step need.
struct Site {
    step: usize,
    inputs: Vec<Given>,
    outputs: Vec<Given>,
    module: Arc<Module>,
}

/// Unused bytes behind a loop's state.
const SPARE: u64 = 12;
/// Commands that an unrolled loop may come to.
const UNROLLED: usize = 160;

impl CudaContext {
    /// The commands of a step of control flow, if the host is not needed in it.
    pub(super) fn on_device(
        &mut self,
        shapes: &Shapes,
        step: usize,
    ) -> Result<Option<Vec<Planned>>, BackendError> {
        match self.branches(shapes, step) {
            Ok(planned) => Ok(Some(planned)),
            Err(Stop::Failed(e)) => Err(e),
            Err(Stop::Host(why)) => {
                let name = self.loaded.program.steps.get(step).map_or("", |s| s.name.as_str());
                tracing::debug!("\"{name}\" is walked by the host: {why}");
                Ok(None)
            }
        }
    }

    fn branches(&mut self, shapes: &Shapes, step: usize) -> Made<Vec<Planned>> {
        let loaded = self.loaded.clone();
        let Some(module) = loaded.moves.clone() else { return host("the driver has no conditional nodes") };
        let graph = &loaded.program.graph;
        let lost = || BackendError::Internal(format!("step {step} of control flow lost its node"));
        let node = loaded.program.steps.get(step).and_then(|s| flow::node(graph, s)).ok_or_else(lost)?;
        let mut given = |v: kiln_ir::ValueId| {
            if shapes.shape(v).is_none() {
                return host("a size is not known before the run");
            }
            let weight = graph.weight(v).map(|w| w.tensor.clone());
            let content = weight.or_else(|| shapes.fact(v).as_const().cloned());
            Ok(Given { at: self.place(shapes, v)?.0, ty: shapes.fact(v).ty.clone(), content })
        };
        let inputs = node.inputs.iter().map(|v| given(v.ok_or_else(lost)?)).collect::<Made<_>>()?;
        let outputs = node.outputs.iter().map(|&v| given(v)).collect::<Made<_>>()?;
        let site = Site { step, inputs, outputs, module };
        let bodies = self.bodies.get_mut(step).and_then(Option::as_mut).ok_or_else(lost)?;
        match node.branches(site.inputs.len())? {
            Some(captures) => bodies.conditional(&site, captures),
            None => bodies.repeated(&site, &node.loop_shape(site.inputs.len())?),
        }
    }

    /// The commands of all steps, if the host is needed in none.
    fn all_steps(&mut self, shapes: &mut Shapes) -> Made<Vec<Planned>> {
        let loaded = self.loaded.clone();
        let mut all = Vec::new();
        for (i, step) in loaded.program.steps.iter().enumerate() {
            shapes.update(&loaded.program, step)?;
            if loaded.bodies.get(i).is_some_and(Option::is_some) {
                all.extend(self.branches(shapes, i)?);
                continue;
            }
            let k = loaded.steps.get(i).filter(|k| !k.data_dependent && k.assertion.is_none() && !k.random);
            if k.is_none() || !shapes.ready(&loaded.program, step) {
                return host("a layer inside gives sizes, checks or draws, or wants to know contents");
            }
            all.extend(self.plan(shapes, i, false)?);
        }
        Ok(all)
    }
}

impl Site {
    fn planned(&self, commands: impl IntoIterator<Item = Command>) -> Vec<Planned> {
        let one = |launch| Planned { step: self.step, launch, further: Vec::new() };
        commands.into_iter().map(one).collect()
    }

    /// Moves that read before others write, through `stage` where they must.
    fn moves(&self, bodies: &mut Bodies, all: &[Move], decision: Decision) -> Made<Vec<Command>> {
        if !clash(all) {
            return Ok(commands(&self.module, all, decision));
        }
        let size = |m: &Move| (u64::from(m.rows) * u64::from(m.width)).next_multiple_of(256);
        let mut at = bodies.stage(all.iter().map(size).sum())?;
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for m in all {
            let width = u64::from(m.width);
            first.push(Move { to: at, to_step: 0, to_pitch: width, ..*m });
            second.push(Move { from: Some(at), from_step: 0, from_pitch: width, ..*m });
            at += size(m);
        }
        let mut out =
            commands(&self.module, &first, Decision { state: decision.state, ..Decision::default() });
        out.extend(commands(&self.module, &second, decision));
        Ok(out)
    }

    fn only(&self, decision: Decision) -> Made<Launch> {
        let one = launches(&self.module, &[], decision).pop();
        Ok(one.ok_or_else(|| BackendError::Internal("no kernel that decides".into()))?)
    }
}

/// A body's commands and results.
struct Part {
    planned: Vec<Planned>,
    results: Vec<Given>,
}

impl Body {
    /// Plans the body for inputs that lie where they are lent, or in memory of its own (`None`).
    fn part(&mut self, inputs: Vec<(Option<Range>, TensorType, Option<Tensor>)>) -> Made<Part> {
        let loaded = self.loaded.clone();
        let graph = &loaded.program.graph;
        let mut facts = Vec::with_capacity(inputs.len());
        for (i, (lent, ty, content)) in inputs.into_iter().enumerate() {
            self.context.lend(i, lent);
            facts.push(match content.filter(|_| loaded.shape_inputs.contains(&i)) {
                Some(t) => Fact::constant(t),
                None => Fact::of(ty),
            });
        }
        let mut shapes = Shapes::new(graph.infer_from(&facts)?);
        let planned = self.context.all_steps(&mut shapes)?;
        let mut results = Vec::new();
        for &v in &graph.outputs {
            if shapes.shape(v).is_none() {
                return host("a size inside is not known before the run");
            }
            let at = self.context.place(&shapes, v)?.0;
            results.push(Given { at, ty: shapes.fact(v).ty.clone(), content: None });
        }
        Ok(Part { planned, results })
    }

    /// Where an input lies.
    fn input(&mut self, i: usize, ty: &TensorType) -> Made<Range> {
        Ok(self.context.memory.input(i, super::values::bytes(ty)?)?)
    }
}

impl Bodies {
    fn part(&mut self, body: usize, inputs: Vec<(Option<Range>, TensorType, Option<Tensor>)>) -> Made<Part> {
        let lost = || BackendError::InvalidArgument(format!("an interpreted step has no body {body}"));
        self.bodies.get_mut(body).ok_or_else(lost)?.part(inputs)
    }

    /// Memory for values on their way.
    fn stage(&mut self, bytes: u64) -> Made<u64> {
        if self.stage.as_ref().is_none_or(|b| b.size() < bytes) {
            self.own_allocations += 1;
            let old = self.stage.replace(Buffer::new(&self.stream, bytes)?);
            self.retired.extend(old);
        }
        Ok(self.stage.as_ref().map_or(0, Buffer::address))
    }

    /// Where a loop counts its trips.
    fn state(&mut self) -> Made<u64> {
        if self.state.is_none() {
            self.own_allocations += 1;
            let b = Buffer::new(&self.stream, 16)?;
            b.fill(0, &self.stream)?;
            self.state = Some(b);
        }
        Ok(self.state.as_ref().map_or(0, Buffer::address))
    }

    /// The commands of a body, and the memory that they name.
    fn body(&mut self, planned: Vec<Planned>, kept: &mut Vec<Box<dyn Any + Send>>) -> Made<Vec<Command>> {
        let (commands, memory) =
            Batch::new(&self.stream, planned, None, &mut self.own_allocations)?.into_parts();
        kept.extend(memory.map(|m| Box::new(m) as Box<dyn Any + Send>));
        Ok(commands)
    }

    fn node(
        &self,
        kind: Kind,
        ahead: Launch,
        bodies: Vec<Vec<Command>>,
        again: Option<Launch>,
        kept: Vec<Box<dyn Any + Send>>,
    ) -> Made<Command> {
        let recorder = Stream::new(&self.stream.gpu)?;
        match Branch::new(recorder, kind, ahead, bodies, again, kept) {
            Some(b) => Ok(Command::Branch(Arc::new(b))),
            None => host("the driver has no conditional nodes"),
        }
    }

    /// What the condition of a loop computes for these carried values, and where it lies.
    fn asked(&mut self, site: &Site, s: &LoopShape, carried: &[Given]) -> Made<(Vec<Planned>, u64)> {
        let captures = inputs(site, s.captures().end..site.inputs.len());
        let of_loop = carried.iter().map(|g| (Some(g.at), g.ty.clone(), None));
        let captured = captures.iter().map(|g| (Some(g.at), g.ty.clone(), g.content.clone()));
        let part = self.part(1, of_loop.chain(captured).collect())?;
        let flag = part.results.first().ok_or_else(|| BackendError::Internal("no condition".into()))?;
        Ok((part.planned, flag.at.address))
    }

    fn conditional(&mut self, site: &Site, captures: [std::ops::Range<usize>; 2]) -> Made<Vec<Planned>> {
        let Some(condition) = site.inputs.first() else { return host("no condition") };
        let (mut bodies, mut kept) = (Vec::new(), Vec::new());
        for (i, range) in captures.into_iter().enumerate() {
            let inputs = site.inputs.get(range).unwrap_or_default();
            let lent = inputs.iter().map(|g| (Some(g.at), g.ty.clone(), g.content.clone())).collect();
            let part = self.part(i, lent)?;
            let mut moves = Vec::new();
            for (from, to) in part.results.iter().zip(&site.outputs) {
                if from.ty != to.ty {
                    return host("the sizes of a branch are known on the device only");
                }
                moves.extend(Move::whole(from.at.address, to.at));
            }
            let mut commands = self.body(part.planned, &mut kept)?;
            commands.extend(site.moves(self, &moves, Decision::default())?);
            bodies.push(commands);
        }
        let ahead = site.only(Decision { flag: Some(condition.at.address), ..Decision::default() })?;
        Ok(site.planned([self.node(Kind::If, ahead, bodies, None, kept)?]))
    }

    fn repeated(&mut self, site: &Site, shape: &LoopShape) -> Made<Vec<Planned>> {
        let plan = Plan::new(self, site, shape)?;
        match plan.trips {
            Some(n) if !shape.condition && n as usize * (plan.body.planned.len() + 2) <= UNROLLED => {
                plan.unrolled(self, site, n)
            }
            _ => plan.repeated(self, site, shape),
        }
    }
}

/// A loop, planned.
struct Plan {
    /// The number of trips, or the most there may be, if the host knows it.
    trips: Option<i64>,
    /// Before the first trip.
    first: Vec<Move>,
    /// Before each one: elements of iterated tensors.
    before: Vec<Move>,
    body: Part,
    /// After each one: carried values, and what is stacked.
    after: Vec<Move>,
    /// What the condition computes, and where it lies: before the first trip, and of a trip's results.
    condition: Option<[(Vec<Planned>, u64); 2]>,
    /// After the last.
    last: Vec<Move>,
}

impl Plan {
    fn new(bodies: &mut Bodies, site: &Site, s: &LoopShape) -> Made<Plan> {
        let trips = match (s.count, site.inputs.first()) {
            (true, Some(g)) => g.content.as_ref().and_then(Tensor::scalar_i64).map(|n| n.max(0)),
            _ => None,
        };
        let lengths = lengths(site, s)?;
        if trips.is_none() && (!s.iterated.is_empty() || s.scans() > 0) {
            return host(
                "the number of trips, which bounds what is read or stacked, is known on the device only",
            );
        }
        let (initials, captures) = (inputs(site, s.initials()), inputs(site, s.captures()));
        let main = bodies
            .bodies
            .first_mut()
            .ok_or_else(|| BackendError::Internal("a loop without a body".into()))?;
        let mut own = Vec::new();
        for (i, g) in initials.iter().enumerate() {
            main.context.lend(i, None);
            own.push(main.input(i, &g.ty)?);
        }
        let first = initials.iter().zip(&own).filter_map(|(g, to)| Move::whole(g.at.address, *to)).collect();
        let mut given: Vec<_> = initials.iter().map(|g| (None, g.ty.clone(), None)).collect();
        let mut before = Vec::new();
        for ((g, &(axis, reverse)), i) in inputs(site, s.iterables()).iter().zip(&s.iterated).zip(own.len()..)
        {
            let mut ty = g.ty.clone();
            let Some((rows, length, inner)) = split(&ty, axis) else { return host("elements share bytes") };
            let n = trips.unwrap_or(0);
            if n > length as i64 {
                return host("there are more trips than elements");
            }
            ty.dims.remove(axis);
            main.context.lend(i, None);
            let to = main.input(i, &ty)?;
            let start = if reverse { (n - 1).max(0) as u64 * inner as u64 } else { 0 };
            before.push(Move {
                from: Some(g.at.address + start),
                to: to.address,
                from_step: if reverse { -(inner as i64) } else { inner as i64 },
                to_step: 0,
                from_pitch: (length * inner) as u64,
                to_pitch: inner as u64,
                rows: small(rows)?,
                width: small(inner)?,
            });
            given.push((None, ty, None));
        }
        given.extend(captures.iter().map(|g| (Some(g.at), g.ty.clone(), g.content.clone())));
        let body = main.part(given)?;
        let (carried, stacked) = body.results.split_at(s.carried.min(body.results.len()));
        if carried.iter().zip(&initials).any(|(a, b)| a.ty != b.ty) || carried.len() != initials.len() {
            return host("a carried value changes its size");
        }
        let mut after: Vec<Move> =
            carried.iter().zip(&own).filter_map(|(g, to)| Move::whole(g.at.address, *to)).collect();
        let (mut first, mut last): (Vec<Move>, _) = (first, Vec::new());
        for ((o, out), length) in s.outs.iter().zip(&site.outputs).zip(lengths) {
            if o.kind == LoopOutputKind::LastValue {
                last.extend(own.get(o.index).and_then(|from| Move::whole(from.address, out.at)));
                continue;
            }
            let Some(value) = stacked.get(o.index) else { return host("a result that is not there") };
            let n = trips.unwrap_or(0);
            let (most, exact) = (length.unwrap_or(n), !s.condition);
            let reverse = o.kind == LoopOutputKind::Reverse;
            if most < n || (!exact && (length.is_none() || reverse)) {
                return host("the length of what is stacked is known on the device only");
            }
            let mut wanted = value.ty.clone();
            if o.axis > wanted.dims.len() {
                return host("an axis that is not there");
            }
            wanted.dims.insert(o.axis, most.into());
            let Some((rows, _, inner)) = split(&wanted, o.axis).filter(|_| wanted == out.ty) else {
                return host("what is stacked has another size");
            };
            if most > n || !exact {
                let zeros = Move::whole(u64::MAX, out.at);
                first.extend(zeros.map(|m| Move { from: None, ..m }));
            }
            let start = if reverse { (n - 1).max(0) as u64 * inner as u64 } else { 0 };
            after.push(Move {
                from: Some(value.at.address),
                to: out.at.address + start,
                from_step: 0,
                to_step: if reverse { -(inner as i64) } else { inner as i64 },
                from_pitch: inner as u64,
                to_pitch: (most as usize * inner) as u64,
                rows: small(rows)?,
                width: small(inner)?,
            });
        }
        let condition = match s.condition {
            true => {
                let carried = carried.to_vec();
                Some([bodies.asked(site, s, &initials)?, bodies.asked(site, s, &carried)?])
            }
            false => None,
        };
        Ok(Plan { trips, first, before, body, after, condition, last })
    }

    /// All trips one after the other.
    fn unrolled(self, bodies: &mut Bodies, site: &Site, n: i64) -> Made<Vec<Planned>> {
        let none = Decision::default();
        let mut out = site.planned(site.moves(bodies, &self.first, none)?);
        for trip in 0..n {
            let shifted = |all: &[Move]| all.iter().map(|m| at_trip(m, trip)).collect::<Vec<_>>();
            out.extend(site.planned(site.moves(bodies, &shifted(&self.before), none)?));
            out.extend(self.body.planned.iter().cloned().map(|p| Planned { step: site.step, ..p }));
            out.extend(site.planned(site.moves(bodies, &shifted(&self.after), none)?));
        }
        out.extend(site.planned(site.moves(bodies, &self.last, none)?));
        Ok(out)
    }

    /// A node that goes on as long as it is told.
    fn repeated(self, bodies: &mut Bodies, site: &Site, s: &LoopShape) -> Made<Vec<Planned>> {
        let mut kept = Vec::new();
        let state = Some(bodies.state()?);
        let narrow = |g: &Given| g.ty.dtype.bits() == 32;
        let count = site.inputs.first().filter(|_| s.count && self.trips.is_none());
        let [(asked, flag), (asked_again, flag_again)] = match self.condition {
            Some([(first, at), (again, after)]) => [(first, Some(at)), (again, Some(after))],
            None => [(Vec::new(), None), (Vec::new(), None)],
        };
        let decision = Decision {
            state,
            of_loop: true,
            count: count.map(|g| (g.at.address, narrow(g))),
            most: self.trips,
            flag,
            ..Decision::default()
        };
        let trip = Decision { state, ..Decision::default() };
        let mut out: Vec<_> = asked.into_iter().map(|p| Planned { step: site.step, ..p }).collect();
        out.extend(site.planned(site.moves(bodies, &self.first, Decision::default())?));
        let ahead = site.only(Decision { start: true, ..decision })?;
        let mut body = site.moves(bodies, &self.before, trip)?;
        body.extend(bodies.body(self.body.planned, &mut kept)?);
        body.extend(bodies.body(asked_again, &mut kept)?);
        // One launch carries the values over, and decides.
        let (mut after, mut flag_again) = (self.after, flag_again);
        if let (Some(at), Some(spare)) = (flag_again, state.map(|s| s + SPARE))
            && after.iter().any(|m| m.covers(at))
        {
            after.extend(Move::whole(at, Range { address: spare, size: 1 }));
            flag_again = Some(spare);
        }
        let mut moves = site.moves(bodies, &after, Decision { next: true, flag: flag_again, ..decision })?;
        let Some(Command::Kernel(again)) = moves.pop() else { return host("no kernel that decides") };
        body.extend(moves);
        out.extend(site.planned([bodies.node(Kind::While, ahead, vec![body], Some(again), kept)?]));
        out.extend(site.planned(site.moves(bodies, &self.last, Decision::default())?));
        Ok(out)
    }
}

fn inputs(site: &Site, range: std::ops::Range<usize>) -> Vec<Given> {
    site.inputs.get(range).unwrap_or_default().to_vec()
}

fn small(n: usize) -> Made<u32> {
    u32::try_from(n).map_err(|_| Stop::Host("rows of 4 GiB and more"))
}

fn at_trip(m: &Move, trip: i64) -> Move {
    let shift = |at: u64, step: i64| at.wrapping_add_signed(step * trip);
    let from = m.from.map(|at| shift(at, m.from_step));
    Move { from, to: shift(m.to, m.to_step), from_step: 0, to_step: 0, ..*m }
}

/// The length of each output that has one.
fn lengths(site: &Site, s: &LoopShape) -> Made<Vec<Option<i64>>> {
    let mut given = s.lengths();
    let mut lengths = Vec::with_capacity(s.outs.len());
    for o in &s.outs {
        lengths.push(match o.length.then(|| given.next()).flatten() {
            None => None,
            Some(i) => {
                let content = site.inputs.get(i).and_then(|g| g.content.as_ref());
                match content.and_then(Tensor::scalar_i64).filter(|n| *n >= 0) {
                    Some(n) => Some(n),
                    None => return host("the length of an output is known on the device only"),
                }
            }
        });
    }
    Ok(lengths)
}
