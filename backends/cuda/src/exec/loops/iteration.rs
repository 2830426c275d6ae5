//! A loop of known sizes, and one iteration of it as commands.

use super::super::fallback::{OnDevice, on_host};
use super::super::flow::{Flow, Site};
use super::super::memory::Range;
use super::super::moves::Move;
use super::super::parts::Part;
use super::super::planning::{Input, Operand, split};
use super::super::reasons;
use super::slices::Slices;
use kiln_ir::{LoopOutputKind, LoopShape, Tensor};

/// A loop as far as it is known before its body is planned.
pub struct Loop<'a> {
    pub(super) site: &'a Site,
    pub(super) shape: &'a LoopShape,
    /// The number of iterations, or the greatest possible one, if the host knows it.
    pub(super) iterations: Option<i64>,
    /// Elements that each iteration reads, and values that it adds to outputs, by their numbers.
    pub(super) elements: Vec<Slices>,
    pub(super) stacks: Vec<(usize, Slices)>,
    /// Outputs that have parts which no iteration writes.
    pub(super) zeroed: Vec<Range>,
    /// Carried values that are outputs in the end.
    pub(super) lasts: Vec<(usize, Range)>,
}

/// The commands of an iteration, what has to be copied after it (stacked values left out), and where the next one finds carried
/// values.
pub struct Iteration {
    pub(super) part: Part,
    pub(super) after: Vec<Move>,
    pub(super) next: Vec<Range>,
}

impl<'a> Loop<'a> {
    pub fn new(site: &'a Site, s: &'a LoopShape) -> OnDevice<Loop<'a>> {
        let iterations = iterations(site, s);
        if iterations.is_none() && s.has_slices() {
            return on_host(reasons::ITERATIONS);
        }
        let n = iterations.unwrap_or(0);
        let (elements, stacks, zeroed, lasts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut l = Loop { site, shape: s, iterations, elements, stacks, zeroed, lasts };
        for (g, &(axis, reverse)) in site.operands(s.iterables()).iter().zip(&s.iterated) {
            if split(&g.ty, axis).is_some_and(|(_, length, _)| n > length as i64) {
                return on_host(reasons::MORE_ITERATIONS);
            }
            l.elements.push(Slices::new(g, axis, reverse, n)?);
        }
        l.outputs(n)?;
        Ok(l)
    }

    fn outputs(&mut self, n: i64) -> OnDevice<()> {
        let s = self.shape;
        for ((o, out), length) in s.outs.iter().zip(&self.site.outputs).zip(lengths(self.site, s)?) {
            if o.kind == LoopOutputKind::LastValue {
                self.lasts.push((o.index, out.at));
                continue;
            }
            let (most, exact) = (length.unwrap_or(n), !s.condition);
            let reverse = o.kind == LoopOutputKind::Reverse;
            if most < n || (!exact && reverse) {
                return on_host(reasons::STACKED_LENGTH);
            }
            if split(&out.ty, o.axis).is_none_or(|(_, length, _)| length as i64 != most) {
                return on_host(reasons::STACKED_SIZE);
            }
            // Without a length, the output ends with the last iteration, so that nothing after it needs zeros.
            if length.is_some() && (most > n || !exact) {
                self.zeroed.push(out.at);
            }
            self.stacks.push((o.index, Slices::new(out, o.axis, reverse, n)?));
        }
        Ok(())
    }

    pub(super) fn initials(&self) -> &[Operand] {
        self.site.operands(self.shape.initials())
    }

    /// Carried values that lie there, as inputs of a body.
    pub(super) fn carried(&self, at: &[Range]) -> Vec<Input> {
        let types = self.initials().iter().map(|g| &g.ty);
        at.iter().zip(types).map(|(at, ty)| (Some(*at), ty.clone(), None)).collect()
    }

    /// Plans one iteration: carried values and elements lie here, and new ones are wanted there.
    pub(super) fn iteration(
        &self,
        flow: &mut Flow<'_>,
        carried: &[Range],
        elements: &[Range],
        wanted: &[Range],
        slots: &[Option<Range>],
    ) -> OnDevice<Iteration> {
        let mut given = self.carried(carried);
        given.extend(elements.iter().zip(&self.elements).map(|(at, e)| (Some(*at), e.ty.clone(), None)));
        given.extend(self.site.operands(self.shape.captures()).iter().map(Operand::lent));
        // A carried value is still read while the iteration runs: its memory is not free for a result.
        let free = |r: &Range| !carried.iter().any(|c| c.address == r.address);
        let mut places: Vec<Option<Range>> = wanted.iter().map(|r| Some(*r).filter(free)).collect();
        for ((index, _), slot) in self.stacks.iter().zip(slots) {
            let at = self.shape.carried + index;
            places.resize(places.len().max(at + 1), None);
            places[at] = places[at].or(*slot);
        }
        let part = flow.part(0, given, &places)?;
        self.check(&part)?;
        let astray = self.astray(&part, slots);
        flow.refused()?.extend(astray);
        let (mut after, mut next) = (Vec::new(), Vec::new());
        for (j, (found, wanted)) in part.results.iter().zip(wanted).enumerate() {
            // A result that the body returns in the memory of its input is not copied.
            let stays = carried.get(j).is_some_and(|at| at.address == found.at.address);
            let at = if stays { found.at } else { *wanted };
            after.extend(Move::whole(found.at.address, at));
            next.push(at);
        }
        Ok(Iteration { part, after, next })
    }

    /// Carried values keep their types, and stacked ones fit.
    fn check(&self, part: &Part) -> OnDevice<()> {
        let of = |i: usize| part.results.get(i).map(|g| &g.ty);
        if self.initials().iter().enumerate().any(|(i, g)| of(i) != Some(&g.ty)) {
            return on_host(reasons::CARRIED_SIZE);
        }
        if self.stacks.iter().any(|(i, to)| of(self.shape.carried + i) != Some(&to.ty)) {
            return on_host(reasons::STACKED_SIZE);
        }
        Ok(())
    }

    /// Address of stacked value `k` after the iteration.
    pub(super) fn stacked(&self, iteration: &Iteration, k: usize) -> Option<u64> {
        let (index, _) = self.stacks.get(k)?;
        iteration.part.results.get(self.shape.carried + index).map(|g| g.at.address)
    }

    pub(super) fn zeros(&self) -> impl Iterator<Item = Move> + '_ {
        self.zeroed.iter().filter_map(|&to| Some(Move { from: None, ..Move::whole(u64::MAX, to)? }))
    }

    /// Memory of each element: a given place, or memory of the body.
    pub(super) fn room(&self, flow: &mut Flow<'_>, places: &[Option<Range>]) -> OnDevice<Vec<Range>> {
        let mut main = flow.body(0)?;
        let mut all = Vec::new();
        for (i, e) in self.elements.iter().enumerate() {
            if let Some(at) = places.get(i).copied().flatten() {
                all.push(at);
                continue;
            }
            main.lend_input(self.shape.carried + i, None);
            all.push(main.input(self.shape.carried + i, &e.ty)?);
        }
        Ok(all)
    }

    /// Memory of the body for carried values, and a second one.
    pub(super) fn homes(&self, flow: &mut Flow<'_>) -> OnDevice<[Vec<Range>; 2]> {
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for (i, g) in self.initials().iter().enumerate() {
            let mut main = flow.body(0)?;
            main.lend_input(i, None);
            let at = main.input(i, &g.ty)?;
            own.push(at);
            let same = main.overwrites(i);
            others.push(if same { at } else { flow.other(i, g.at.size)? });
        }
        Ok([own, others])
    }
}

/// The number of iterations, or the greatest possible one, if the host knows it.
pub(super) fn iterations(site: &Site, s: &LoopShape) -> Option<i64> {
    let count = site.inputs.first().filter(|_| s.count)?;
    count.content.as_ref().and_then(Tensor::scalar_i64).map(|n| n.max(0))
}

/// The length of each output that has one.
fn lengths(site: &Site, s: &LoopShape) -> OnDevice<Vec<Option<i64>>> {
    let mut given = s.lengths();
    let mut lengths = Vec::with_capacity(s.outs.len());
    for o in &s.outs {
        lengths.push(match o.length.then(|| given.next()).flatten() {
            None => None,
            Some(i) => {
                let content = site.inputs.get(i).and_then(|g| g.content.as_ref());
                match content.and_then(Tensor::scalar_i64).filter(|n| *n >= 0) {
                    Some(n) => Some(n),
                    None => return on_host(reasons::OUTPUT_LENGTH),
                }
            }
        });
    }
    Ok(lengths)
}
