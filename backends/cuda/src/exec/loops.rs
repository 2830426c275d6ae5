//! Loops of known sizes on the device: all trips one after the other where they are few, else the body of a node that goes
//! on as long as it is told. See [`super::branches`].

mod repeated;
mod slices;
mod unrolled;

use self::slices::Slices;
use super::branches::{Given, Input, Made, Part, Site, host};
use super::flow::{Bodies, split};
use super::memory::Range;
use super::moves::Move;
use super::plan::Planned;
use kiln_ir::{LoopOutputKind, LoopShape, Tensor};

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
        let trips = match (s.count, site.inputs.first()) {
            (true, Some(g)) => g.content.as_ref().and_then(Tensor::scalar_i64).map(|n| n.max(0)),
            _ => None,
        };
        if trips.is_none() && (!s.iterated.is_empty() || s.scans() > 0) {
            return host(
                "the number of trips, which bounds what is read or stacked, is known on the device only",
            );
        }
        let n = trips.unwrap_or(0);
        let (elements, stacks, zeroed, lasts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut l = Loop { site, shape: s, trips, elements, stacks, zeroed, lasts };
        for (g, &(axis, reverse)) in site.given(s.iterables()).iter().zip(&s.iterated) {
            if split(&g.ty, axis).is_some_and(|(_, length, _)| n > length as i64) {
                return host("there are more trips than elements");
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
            if most < n || (!exact && (length.is_none() || reverse)) {
                return host("the length of what is stacked is known on the device only");
            }
            if split(&out.ty, o.axis).is_none_or(|(_, length, _)| length as i64 != most) {
                return host("what is stacked has another size");
            }
            if most > n || !exact {
                self.zeroed.push(out.at);
            }
            self.stacks.push((o.index, Slices::new(out, o.axis, reverse, n)?));
        }
        Ok(())
    }

    fn initials(&self) -> &[Given] {
        self.site.given(self.shape.initials())
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
        let types = self.initials().iter().map(|g| &g.ty);
        let mut given: Vec<Input> =
            carried.iter().zip(types).map(|(at, ty)| (Some(*at), ty.clone(), None)).collect();
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
            return host("a carried value changes its size");
        }
        if self.stacks.iter().any(|(i, to)| of(self.shape.carried + i) != Some(&to.ty)) {
            return host("what is stacked has another size");
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

    /// Memory of the body for an element.
    fn room(&self, bodies: &mut Bodies) -> Made<Vec<Range>> {
        let main = bodies.body(0)?;
        let mut all = Vec::new();
        for (i, e) in self.elements.iter().enumerate() {
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
