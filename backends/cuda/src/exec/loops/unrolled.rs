//! Loops of few trips: one after the other, without a node. How many commands that may come to is a parameter of the step.

use super::super::fallback::OnDevice;
use super::super::flow::Flow;
use super::super::launch::Planned;
use super::super::memory::Range;
use super::super::moves::{Decision, Move, Trips};
use super::iteration::Loop;
use super::slices::at_trip;
use kiln_backend::{Tactic, flow};

/// Commands that an unrolled loop may come to where nothing is timed: each saves the 2 to 3 µs of a trip, and takes its part of
/// the time and memory of a graph.
pub const USUAL: i64 = 320;
/// Upper limit of that parameter, the commands in bodies of nodes included.
pub const MOST: i64 = 4096;

/// How many commands a loop may come to that is run by this tactic.
fn limit(tactic: &Tactic) -> i64 {
    tactic.params.get(flow::UNROLLED).copied().unwrap_or(USUAL).clamp(0, MOST)
}

impl Loop<'_> {
    /// All trips one after the other, each where its values lie; none where that comes to more commands
    /// than the step may.
    pub(super) fn unrolled(&self, flow: &mut Flow<'_>, n: i64) -> OnDevice<Option<Vec<Planned>>> {
        let most = limit(&self.site.tactic);
        if n > most {
            return Ok(None);
        }
        let (homes, room) = (self.homes(flow)?, self.room(flow, &[])?);
        let mut moves: Vec<Move> = self.zeros().collect();
        let mut at = Vec::new();
        for (i, (g, own)) in self.initials().iter().zip(&homes[0]).enumerate() {
            // Values around the loop stay as they are.
            let copied = flow.body(0)?.overwrites(i);
            moves.extend(Move::whole(g.at.address, *own).filter(|_| copied));
            at.push(if copied { *own } else { g.at });
        }
        let (mut out, mut size) = (Vec::new(), 0i64);
        for trip in 0..n {
            let elements = self.elements.iter().zip(&room);
            let elements: Vec<Range> = elements.map(|(e, room)| e.place(trip).unwrap_or(*room)).collect();
            for (e, to) in self.elements.iter().zip(&elements).filter(|(e, _)| e.place(trip).is_none()) {
                moves.push(at_trip(&e.load(to.address, Trips::Made), trip));
            }
            let last = trip + 1 == n;
            let slots: Vec<_> = self.stacks.iter().map(|s| s.1.place(trip)).collect();
            let wanted = self.wanted(flow, &at, &homes, &slots, last)?;
            let made = self.iteration(flow, &at, &elements, &wanted, &slots)?;
            let mut made_of = self.site.planned(self.site.moves(flow, &moves, &Decision::default())?);
            moves = made.after.clone();
            for (k, (_, s)) in self.stacks.iter().enumerate() {
                let from = self.stacked(&made, k).filter(|&from| from != s.address(trip));
                moves.extend(from.map(|from| at_trip(&s.store(from), trip)));
            }
            let step = self.site.step;
            made_of.extend(made.part.planned.into_iter().map(|p| Planned { step, ..p }));
            size += made_of.iter().map(|p| p.launch.size()).sum::<usize>() as i64;
            out.extend(made_of);
            if out.len() as i64 * n > (trip + 1) * most || size * n > (trip + 1) * MOST {
                return Ok(None);
            }
            at = made.next;
        }
        let end = |&(i, out): &(usize, Range)| at.get(i).and_then(|from| Move::whole(from.address, out));
        let ends: Vec<Move> = self.lasts.iter().filter_map(end).collect();
        out.extend(self.site.planned(self.site.moves(flow, &moves, &Decision::default())?));
        out.extend(self.site.planned(self.site.moves(flow, &ends, &Decision::default())?));
        Ok(Some(out))
    }

    /// Places of the next carried values: outputs after the last iteration, else memory that this one does not use.
    fn wanted(
        &self,
        flow: &mut Flow<'_>,
        at: &[Range],
        homes: &[Vec<Range>; 2],
        slots: &[Option<Range>],
        last: bool,
    ) -> OnDevice<Vec<Range>> {
        let outputs = flow.body(0)?.body.run.loaded.program.graph.outputs.clone();
        let mut all = Vec::new();
        for (j, (now, (own, other))) in at.iter().zip(homes[0].iter().zip(&homes[1])).enumerate() {
            let stacked = self.stacks.iter().zip(slots).find_map(|((index, _), slot)| {
                let same =
                    outputs.get(j).is_some() && outputs.get(j) == outputs.get(self.shape.carried + index);
                slot.filter(|_| same)
            });
            let end = self.lasts.iter().find(|l| last && l.0 == j).map(|l| l.1);
            let free = if now.address == own.address { *other } else { *own };
            all.push(stacked.or(end).unwrap_or(free));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_sets_the_limit_within_bounds() {
        let plain = Tactic::plain(flow::INTERPRETED);
        let of = |n| limit(&plain.clone().with(flow::UNROLLED, n));
        assert_eq!((limit(&plain), of(0), of(40), of(i64::MAX), of(-3)), (USUAL, 0, 40, MOST, 0));
    }
}
