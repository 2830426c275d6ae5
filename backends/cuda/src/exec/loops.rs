//! Loops of known sizes on the device: all trips one after the other where they are few, else the body of a node that goes
//! on as long as it is told. See [`super::branches`].

mod cells;
mod repeated;
mod slices;
mod unrolled;

pub use self::cells::copied_in_a_trip;
pub(crate) use self::unrolled::choices;

use self::slices::Slices;
use super::branches::{Given, Input, Site};
use super::context::CudaContext;
use super::extent::Extent;
use super::flow::{Bodies, split};
use super::memory::Range;
use super::moves::Move;
use super::parts::Part;
use super::plan::Planned;
use super::reasons;
use super::stop::{Made, host};
use super::values::bytes;
use kiln_backend::Shapes;
use kiln_ir::{Dim, LoopOutputKind, LoopShape, Node, Tensor, TensorType, ValueId};

/// A loop as far as it is known before its body is planned.
pub(super) struct Loop<'a> {
    site: &'a Site,
    shape: &'a LoopShape,
    /// The number of trips, or the most there may be, if the host knows it.
    trips: Option<i64>,
    /// What each trip takes from tensors, and adds to outputs: the values of these numbers.
    elements: Vec<Slices>,
    stacks: Vec<(usize, Slices)>,
    /// Outputs that have parts which no trip writes.
    zeroed: Vec<Range>,
    /// Carried values that are outputs in the end.
    lasts: Vec<(usize, Range)>,
}

/// A trip's commands; what has to be copied behind it, stacked values apart; where the next one finds carried values.
struct Trip {
    part: Part,
    after: Vec<Move>,
    next: Vec<Range>,
}

impl<'a> Loop<'a> {
    pub fn new(site: &'a Site, s: &'a LoopShape) -> Made<Loop<'a>> {
        let trips = trips(site, s);
        if trips.is_none() && s.has_slices() {
            return host(reasons::TRIPS);
        }
        let n = trips.unwrap_or(0);
        let (elements, stacks, zeroed, lasts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut l = Loop { site, shape: s, trips, elements, stacks, zeroed, lasts };
        for (g, &(axis, reverse)) in site.given(s.iterables()).iter().zip(&s.iterated) {
            if split(&g.ty, axis).is_some_and(|(_, length, _)| n > length as i64) {
                return host(reasons::MORE_TRIPS);
            }
            l.elements.push(Slices::new(g, axis, reverse, n)?);
        }
        l.outputs(n)?;
        Ok(l)
    }

    fn outputs(&mut self, n: i64) -> Made<()> {
        let s = self.shape;
        for ((o, out), length) in s.outs.iter().zip(&self.site.outputs).zip(lengths(self.site, s)?) {
            if o.kind == LoopOutputKind::LastValue {
                self.lasts.push((o.index, out.at));
                continue;
            }
            let (most, exact) = (length.unwrap_or(n), !s.condition);
            let reverse = o.kind == LoopOutputKind::Reverse;
            if most < n || (!exact && reverse) {
                return host(reasons::STACKED_LENGTH);
            }
            if split(&out.ty, o.axis).is_none_or(|(_, length, _)| length as i64 != most) {
                return host(reasons::STACKED_SIZE);
            }
            // Where no length is given, the output ends with the last trip that is made.
            if length.is_some() && (most > n || !exact) {
                self.zeroed.push(out.at);
            }
            self.stacks.push((o.index, Slices::new(out, o.axis, reverse, n)?));
        }
        Ok(())
    }

    fn initials(&self) -> &[Given] {
        self.site.given(self.shape.initials())
    }

    /// Carried values that lie there, as inputs of a body.
    fn carried(&self, at: &[Range]) -> Vec<Input> {
        let types = self.initials().iter().map(|g| &g.ty);
        at.iter().zip(types).map(|(at, ty)| (Some(*at), ty.clone(), None)).collect()
    }

    /// Plans one trip: carried values and elements lie here, and new ones are wanted there.
    fn trip(
        &self,
        bodies: &mut Bodies,
        carried: &[Range],
        elements: &[Range],
        wanted: &[Range],
        slots: &[Option<Range>],
    ) -> Made<Trip> {
        let mut given = self.carried(carried);
        given.extend(elements.iter().zip(&self.elements).map(|(at, e)| (Some(*at), e.ty.clone(), None)));
        given.extend(self.site.given(self.shape.captures()).iter().map(Given::lent));
        // What is still read is not overwritten.
        let free = |r: &Range| !carried.iter().any(|c| c.address == r.address);
        let mut places: Vec<Option<Range>> = wanted.iter().map(|r| Some(*r).filter(free)).collect();
        for ((index, _), slot) in self.stacks.iter().zip(slots) {
            let at = self.shape.carried + index;
            places.resize(places.len().max(at + 1), None);
            places[at] = places[at].or(*slot);
        }
        let part = bodies.part(0, given, &places)?;
        self.check(&part)?;
        let astray = self.astray(&part, slots);
        bodies.body(0)?.context.memory.refused.extend(astray);
        let (mut after, mut next) = (Vec::new(), Vec::new());
        for (j, (found, wanted)) in part.results.iter().zip(wanted).enumerate() {
            // What the body keeps in the memory of its input stays there.
            let stays = carried.get(j).is_some_and(|at| at.address == found.at.address);
            let at = if stays { found.at } else { *wanted };
            after.extend(Move::whole(found.at.address, at));
            next.push(at);
        }
        Ok(Trip { part, after, next })
    }

    /// Carried values keep their types, and stacked ones fit.
    fn check(&self, part: &Part) -> Made<()> {
        let of = |i: usize| part.results.get(i).map(|g| &g.ty);
        if self.initials().iter().enumerate().any(|(i, g)| of(i) != Some(&g.ty)) {
            return host(reasons::CARRIED_SIZE);
        }
        if self.stacks.iter().any(|(i, to)| of(self.shape.carried + i) != Some(&to.ty)) {
            return host(reasons::STACKED_SIZE);
        }
        Ok(())
    }

    /// Where stacked value `k` lies after the trip.
    fn stacked(&self, trip: &Trip, k: usize) -> Option<u64> {
        let (index, _) = self.stacks.get(k)?;
        trip.part.results.get(self.shape.carried + index).map(|g| g.at.address)
    }

    fn zeros(&self) -> impl Iterator<Item = Move> + '_ {
        self.zeroed.iter().filter_map(|&to| Some(Move { from: None, ..Move::whole(u64::MAX, to)? }))
    }

    /// Where each element lies: there, or in memory of the body.
    fn room(&self, bodies: &mut Bodies, places: &[Option<Range>]) -> Made<Vec<Range>> {
        let main = bodies.body(0)?;
        let mut all = Vec::new();
        for (i, e) in self.elements.iter().enumerate() {
            if let Some(at) = places.get(i).copied().flatten() {
                all.push(at);
                continue;
            }
            main.context.lend(self.shape.carried + i, None);
            all.push(main.input(self.shape.carried + i, &e.ty)?);
        }
        Ok(all)
    }

    /// Memory of the body for carried values, and a second one.
    fn homes(&self, bodies: &mut Bodies) -> Made<[Vec<Range>; 2]> {
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for (i, g) in self.initials().iter().enumerate() {
            let main = bodies.body(0)?;
            main.context.lend(i, None);
            let at = main.input(i, &g.ty)?;
            own.push(at);
            others.push(if main.overwrites(i) { at } else { bodies.other(i, g.at.size)? });
        }
        Ok([own, others])
    }

    pub fn planned(&self, bodies: &mut Bodies) -> Made<Vec<Planned>> {
        if let Some(n) = self.trips.filter(|_| !self.shape.condition)
            && let Some(all) = self.unrolled(bodies, n)?
        {
            return Ok(all);
        }
        self.repeated(bodies)
    }
}

/// The number of trips, or the most there may be, if the host knows it.
fn trips(site: &Site, s: &LoopShape) -> Option<i64> {
    let count = site.inputs.first().filter(|_| s.count)?;
    count.content.as_ref().and_then(Tensor::scalar_i64).map(|n| n.max(0))
}

impl CudaContext {
    /// Memory for the outputs of a loop: where a condition ends it, for as many trips as there may be.
    pub(super) fn loop_outputs(
        &mut self,
        shapes: &Shapes,
        node: &Node,
        site: &Site,
        s: &LoopShape,
        bodies: &mut Bodies,
    ) -> Made<Vec<Given>> {
        let mut all = Vec::with_capacity(node.outputs.len());
        for (&v, out) in node.outputs.iter().zip(&s.outs) {
            let stacked = out.kind == LoopOutputKind::Concatenate && s.condition && !out.length;
            all.push(match (shapes.shape(v), trips(site, s)) {
                (None, Some(n)) if stacked => self.stacked(&shapes.fact(v).ty, v, out.axis, n, bodies)?,
                (None, None) if out.kind != LoopOutputKind::LastValue && !out.length => {
                    return host(reasons::TRIPS);
                }
                _ => self.given(shapes, v)?,
            });
        }
        Ok(all)
    }

    /// Memory for values of so many trips at most.
    fn stacked(
        &mut self,
        ty: &TensorType,
        v: ValueId,
        axis: usize,
        trips: i64,
        bodies: &mut Bodies,
    ) -> Made<Given> {
        let mut ty = ty.clone();
        if let Some(d) = ty.dims.get_mut(axis) {
            *d = Dim::new(trips);
        }
        match (split(&ty, axis), bytes(&ty)) {
            // What lies in rows would have gaps behind each.
            (Some((1, ..)), Ok(most)) if most <= MOST_BOUND => {
                let extent = Extent::Trips { word: bodies.state()?, axis, most: ty.clone() };
                self.leave_open(v, extent, most)?;
                Ok(Given { at: self.room(v, most)?, ty, content: None })
            }
            (Some((1, ..)), Ok(_)) => host(reasons::BOUND),
            _ => host(reasons::STACKED_LENGTH),
        }
    }
}

/// Bytes that are allocated for trips which may not be made.
const MOST_BOUND: u64 = 256 << 20;

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
                    None => return host(reasons::OUTPUT_LENGTH),
                }
            }
        });
    }
    Ok(lengths)
}
