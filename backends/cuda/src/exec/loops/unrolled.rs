//! Unrolled loops of few iterations, without a node. The greatest number of their commands is a parameter of
//! the step.

use super::super::fallback::OnDevice;
use super::super::flow::Flow;
use super::super::launch::Planned;
use super::super::memory::Range;
use super::super::moves::{Decision, Factor, Move};
use super::iteration::Loop;
use super::slices::at_iteration;
use kiln_backend::{Tactic, flow};

/// Commands of an unrolled loop at most, where nothing is timed. Each saves the 2 to 3 µs of an iteration,
/// and takes its part of the time and memory of a graph.
pub const USUAL: i64 = 320;
/// Upper limit of that parameter, the commands in bodies of nodes included.
pub const MOST: i64 = 4096;

/// Number of commands of a loop at most, by its tactic.
fn limit(tactic: &Tactic) -> i64 {
    tactic.params.get(flow::UNROLLED).copied().unwrap_or(USUAL).clamp(0, MOST)
}

impl Loop<'_> {
    /// All iterations one after the other, each with the places of its values; none where that is more
    /// commands than the step may have.
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
        for iteration in 0..n {
            let elements = self.elements.iter().zip(&room);
            let elements: Vec<Range> =
                elements.map(|(e, room)| e.place(iteration).unwrap_or(*room)).collect();
            for (e, to) in self.elements.iter().zip(&elements).filter(|(e, _)| e.place(iteration).is_none()) {
                moves.push(at_iteration(&e.load(to.address, Factor::Made), iteration));
            }
            let last = iteration + 1 == n;
            let slots: Vec<_> = self.stacks.iter().map(|s| s.1.place(iteration)).collect();
            let wanted = self.wanted(flow, &at, &homes, &slots, last)?;
            let made = self.iteration(flow, &at, &elements, &wanted, &slots)?;
            let mut made_of = self.site.planned(self.site.moves(flow, &moves, &Decision::default())?);
            moves = made.after.clone();
            for (k, (_, s)) in self.stacks.iter().enumerate() {
                let from = self.stacked(&made, k).filter(|&from| from != s.address(iteration));
                moves.extend(from.map(|from| at_iteration(&s.store(from), iteration)));
            }
            let step = self.site.step;
            made_of.extend(made.part.planned.into_iter().map(|p| Planned { step, ..p }));
            size += made_of.iter().map(|p| p.launch.size()).sum::<usize>() as i64;
            out.extend(made_of);
            if out.len() as i64 * n > (iteration + 1) * most || size * n > (iteration + 1) * MOST {
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
