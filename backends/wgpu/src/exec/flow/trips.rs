//! The trips of a loop.

use super::cut::Cut;
use super::stack::Kept;
use super::{Bodies, Body, Value, bytes_of, lost};
use crate::exec::context::WgpuContext;
use crate::exec::memory::{Growing, Memory, Range};
use kiln_backend::flow::{check_kept, lengths, named};
use kiln_backend::{BackendError, Shapes, stop};
use kiln_ir::{Fact, LoopOut, LoopOutputKind, LoopShape, Node};

/// What a loop keeps between trips, and its buffers.
#[derive(Default)]
pub struct State {
    /// Two buffers for each carried value.
    carried: Vec<[Option<Growing>; 2]>,
    /// A buffer for an element of each iterated tensor, and one for all its elements.
    elements: Vec<(Option<Growing>, Option<Growing>)>,
    kept: Vec<Kept>,
    pub allocations: u64,
}

impl State {
    fn fit(&mut self, s: &LoopShape) {
        self.carried.resize_with(s.carried, || [None, None]);
        self.elements.resize_with(s.iterated.len(), || (None, None));
        self.kept.resize_with(s.scans(), Kept::default);
        self.kept.iter_mut().for_each(Kept::clear);
    }
}

/// One run of a loop.
struct Run<'a> {
    node: &'a Node,
    shape: LoopShape,
    inputs: &'a [Value],
    count: Option<i64>,
    cuts: Vec<Cut>,
    /// What the body captures, shape inputs known.
    captures: Vec<Value>,
}

impl Bodies {
    pub(super) fn trips(
        &mut self,
        outer: &mut WgpuContext,
        shapes: &mut Shapes,
        node: &Node,
        inputs: &[Value],
    ) -> Result<(), BackendError> {
        let s = node.loop_shape(inputs.len())?;
        let count = match s.count {
            true => Some(self.number(&inputs[0])?.max(0)),
            false => None,
        };
        let lengths = lengths(node, &s, count, |i| self.number(&inputs[i]))?;
        self.state.fit(&s);
        self.pieces.submitted();
        let mut cuts = Vec::with_capacity(s.iterated.len());
        for (i, (v, &along)) in inputs[s.iterables()].iter().zip(&s.iterated).enumerate() {
            let room = &mut self.state.elements[i].1;
            cuts.push(Cut::new(&mut self.recorder, &mut self.pieces, room, v, along)?);
        }
        let captures = inputs[s.captures()].to_vec();
        let mut run = Run { node, shape: s, inputs, count, cuts, captures };
        let (carried, trips) = self.go(&mut run)?;
        let outputs: Vec<Fact> = node.outputs.iter().map(|&v| shapes.fact(v).clone()).collect();
        let known = match trips {
            0 => self.without_a_trip(&run, &outputs)?,
            _ => None,
        };
        let known = known.unwrap_or(outputs);
        for ((o, length), (&v, fact)) in
            run.shape.outs.iter().zip(lengths).zip(node.outputs.iter().zip(&known))
        {
            self.give(outer, shapes, (o, length), (v, fact), &carried).map_err(|e| named(node, e))?;
        }
        Ok(())
    }

    /// Makes the trips; the carried values after the last one, and how many there were.
    fn go(&mut self, run: &mut Run<'_>) -> Result<(Vec<Value>, i64), BackendError> {
        let mut carried = run.inputs[run.shape.initials()].to_vec();
        let first = size(&carried)?;
        let (mut trip, mut kept) = (0i64, 0u64);
        while run.count.is_none_or(|n| trip < n) && self.goes_on(run, &carried)? {
            stop::check("")?;
            let State { elements, allocations, .. } = &mut self.state;
            let mut given = carried.clone();
            for (cut, room) in run.cuts.iter().zip(elements) {
                let element = cut.element(&mut self.recorder, &mut room.0, allocations, trip, run.count);
                given.push(element.map_err(|e| named(run.node, e))?);
            }
            given.extend_from_slice(&run.captures);
            let mut outs = self.trip(run, &mut given, (trip & 1) as usize)?;
            let values = outs.split_off(run.shape.carried);
            let State { kept: slots, allocations, .. } = &mut self.state;
            for (slot, v) in slots.iter_mut().zip(&values) {
                let pushed = slot.push(&mut self.recorder, allocations, v, run.count);
                kept = kept.saturating_add(pushed.map_err(|e| named(run.node, e))?);
            }
            carried = self.carry(run, outs, (trip & 1) as usize)?;
            trip += 1;
            let grown = size(&carried)?.saturating_sub(first);
            check_kept(run.node, trip, kept.saturating_add(grown))?;
            self.recorder.relieve()?;
        }
        Ok((carried, trip))
    }

    /// One run of the body; the next carried values are written into this half of their buffers, where that can be.
    fn trip(
        &mut self,
        run: &mut Run<'_>,
        given: &mut [Value],
        half: usize,
    ) -> Result<Vec<Value>, BackendError> {
        let Bodies { list, recorder, state, host_syncs, .. } = self;
        let body = list.first_mut().ok_or_else(|| lost(run.node, "body"))?;
        body.know(recorder, given, host_syncs)?;
        let first = given.len() - run.captures.len();
        run.captures.clone_from_slice(&given[first..]);
        let shapes = body.shapes(given)?;
        let mut to = Vec::with_capacity(run.shape.carried + run.shape.scans());
        for (i, room) in state.carried.iter_mut().enumerate() {
            let known = body.writes(&shapes, i).is_some();
            let v = body.context.loaded.program.graph.outputs.get(i).filter(|_| known);
            to.push(match v {
                Some(&v) => {
                    let bytes = bytes_of(&shapes.fact(v).ty)? as u64;
                    Some(half_of(body, room, half, bytes, &mut state.allocations)?)
                }
                None => None,
            });
        }
        to.resize(run.shape.carried + run.shape.scans(), None);
        let outs = body.run(recorder, given, &to, &shapes)?;
        match outs.len() == to.len() {
            true => Ok(outs),
            false => Err(lost(run.node, "results of a trip")),
        }
    }

    /// The carried values of the next trip, where the next trip does not overwrite them.
    fn carry(&mut self, run: &Run<'_>, outs: Vec<Value>, half: usize) -> Result<Vec<Value>, BackendError> {
        let Bodies { list, recorder, state, .. } = self;
        let body = list.first_mut().ok_or_else(|| lost(run.node, "body"))?;
        let lasting = |at: &Range| run.inputs.iter().any(|v| v.at.same_start(at));
        let mut next = Vec::with_capacity(outs.len());
        for (out, room) in outs.into_iter().zip(&mut state.carried) {
            let written = room[half].as_ref().is_some_and(|b| b.id == out.at.id);
            next.push(if lasting(&out.at) || written {
                out
            } else {
                let bytes = out.bytes()?;
                let to = half_of(body, room, half, bytes as u64, &mut state.allocations)?;
                recorder.copy(&out.at, &to, bytes)?;
                Value { at: to, ..out }
            });
        }
        Ok(next)
    }

    fn goes_on(&mut self, run: &Run<'_>, carried: &[Value]) -> Result<bool, BackendError> {
        if !run.shape.condition {
            return Ok(true);
        }
        let mut given = carried.to_vec();
        given.extend_from_slice(&run.inputs[run.shape.captures().end..]);
        let Bodies { list, recorder, host_syncs, .. } = self;
        let body = list.get_mut(1).ok_or_else(|| lost(run.node, "condition"))?;
        body.know(recorder, &mut given, host_syncs)?;
        let shapes = body.shapes(&given)?;
        let asked = body.run(recorder, &given, &[None], &shapes)?;
        Ok(self.number(asked.first().ok_or_else(|| lost(run.node, "condition"))?)? != 0)
    }

    /// Facts of the outputs that follow from what the inputs are, if they are needed.
    fn without_a_trip(&mut self, run: &Run<'_>, outputs: &[Fact]) -> Result<Option<Vec<Fact>>, BackendError> {
        let stacks =
            |(o, f): (&LoopOut, &Fact)| o.kind != LoopOutputKind::LastValue && f.ty.static_dims().is_none();
        if !run.shape.outs.iter().zip(outputs).any(stacks) {
            return Ok(None);
        }
        let mut facts = Vec::with_capacity(run.inputs.len());
        for v in run.inputs {
            let small = v.ty.static_volume().is_some_and(|n| n <= kiln_ir::infer::MAX_CONTENT);
            facts.push(Some(match (&v.known, small) {
                (Some(t), _) => Fact::constant(t.clone()),
                (None, true) => Fact::constant(self.fetch(v)?),
                (None, false) => Fact::of(v.ty.clone()),
            }));
        }
        Ok(Some(run.node.infer(&facts)?))
    }

    /// Puts one output of the loop where it belongs.
    fn give(
        &mut self,
        outer: &mut WgpuContext,
        shapes: &mut Shapes,
        (o, length): (&LoopOut, Option<usize>),
        (v, fact): (kiln_ir::ValueId, &Fact),
        carried: &[Value],
    ) -> Result<(), BackendError> {
        let Bodies { recorder, state, pieces, .. } = self;
        let missing = || BackendError::Internal(format!("a loop has no value {} to give", o.index));
        if o.kind == LoopOutputKind::LastValue {
            let last = carried.get(o.index).ok_or_else(missing)?;
            let to = outer.place_as(shapes, v, &last.ty.static_dims().unwrap_or_default())?;
            return recorder.copy(&last.at, &to, last.bytes()?);
        }
        let kept = state.kept.get(o.index).ok_or_else(missing)?;
        let ty = kept.result(o.axis, length, &fact.ty)?;
        let to = outer.place_as(shapes, v, &ty.static_dims().unwrap_or_default())?;
        kept.stack(recorder, pieces, (o.kind, o.axis), &ty, &to)
    }
}

/// One half of the buffers of a carried value, of at least so many bytes.
fn half_of(
    body: &Body,
    room: &mut [Option<Growing>; 2],
    half: usize,
    bytes: u64,
    allocations: &mut u64,
) -> Result<Range, BackendError> {
    Ok(Memory::tensor(&body.context.loaded.gpu, &mut room[half], allocations, bytes)?.cut(bytes))
}

/// Bytes of all values.
fn size(values: &[Value]) -> Result<u64, BackendError> {
    values.iter().try_fold(0u64, |n, v| Ok(n.saturating_add(v.bytes()? as u64)))
}
