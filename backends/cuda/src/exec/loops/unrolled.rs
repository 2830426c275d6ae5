//! Loops of few trips: one after the other, without a node.

use super::super::branches::Made;
use super::super::flow::Bodies;
use super::super::memory::Range;
use super::super::moves::{Decision, Move, Trips};
use super::super::plan::Planned;
use super::Loop;
use super::slices::at_trip;

/// Commands that an unrolled loop may come to.
const UNROLLED: usize = 320;

impl Loop<'_> {
    /// All trips one after the other, each where its values lie; none where that comes to too many commands.
    pub(super) fn unrolled(&self, bodies: &mut Bodies, n: i64) -> Made<Option<Vec<Planned>>> {
        if n > UNROLLED as i64 {
            return Ok(None);
        }
        let (homes, room) = (self.homes(bodies)?, self.room(bodies)?);
        let mut moves: Vec<Move> = self.zeros().collect();
        let mut at = Vec::new();
        for (i, (g, own)) in self.initials().iter().zip(&homes[0]).enumerate() {
            // Values around the loop stay as they are.
            let copied = bodies.body(0)?.overwrites(i);
            moves.extend(Move::whole(g.at.address, *own).filter(|_| copied));
            at.push(if copied { *own } else { g.at });
        }
        let mut out = Vec::new();
        for trip in 0..n {
            let elements = self.elements.iter().zip(&room);
            let elements: Vec<Range> = elements.map(|(e, room)| e.place(trip).unwrap_or(*room)).collect();
            for (e, to) in self.elements.iter().zip(&elements).filter(|(e, _)| e.place(trip).is_none()) {
                moves.push(at_trip(&e.load(to.address, Trips::Made), trip));
            }
            let last = trip + 1 == n;
            let slots: Vec<_> = self.stacks.iter().map(|s| s.1.place(trip)).collect();
            let wanted = self.wanted(bodies, &at, &homes, &slots, last)?;
            let made = self.trip(bodies, &at, &elements, &wanted, &slots)?;
            out.extend(self.site.planned(self.site.moves(bodies, &moves, &Decision::default())?));
            moves = made.after.clone();
            for (k, (_, s)) in self.stacks.iter().enumerate() {
                let from = self.stacked(&made, k).filter(|&from| from != s.address(trip));
                moves.extend(from.map(|from| at_trip(&s.store(from), trip)));
            }
            let step = self.site.step;
            out.extend(made.part.planned.into_iter().map(|p| Planned { step, ..p }));
            if out.len() as i64 * n > (trip + 1) * UNROLLED as i64 {
                return Ok(None);
            }
            at = made.next;
        }
        let end = |&(i, out): &(usize, Range)| at.get(i).and_then(|from| Move::whole(from.address, out));
        let ends: Vec<Move> = self.lasts.iter().filter_map(end).collect();
        out.extend(self.site.planned(self.site.moves(bodies, &moves, &Decision::default())?));
        out.extend(self.site.planned(self.site.moves(bodies, &ends, &Decision::default())?));
        Ok(Some(out))
    }

    /// Where the carried values of the next trip go: into outputs at once, else where those of this one don't lie.
    fn wanted(
        &self,
        bodies: &mut Bodies,
        at: &[Range],
        homes: &[Vec<Range>; 2],
        slots: &[Option<Range>],
        last: bool,
    ) -> Made<Vec<Range>> {
        let outputs = bodies.body(0)?.loaded.program.graph.outputs.clone();
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
