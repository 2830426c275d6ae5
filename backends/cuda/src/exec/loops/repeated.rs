//! Loops as nodes that repeat while a word says so, several iterations at a time where these are short.

use super::super::condition::DeviceCondition;
use super::super::fallback::OnDevice;
use super::super::flow::Flow;
use super::super::launch::Planned;
use super::super::memory::Range;
use super::super::moves::{Decision, Factor, Move};
use super::super::planning::Operand;
use super::cells::{Places, note_copied};
use super::iteration::{Iteration, Loop};
use crate::driver::{Command, Kind};

/// Offset of spare bytes in a loop's state.
const SPARE: u64 = 16;
/// Offset of the word that is not zero while the loop goes on.
const ALIVE: u64 = 12;
/// Commands of the body of a node that holds several iterations, and the greatest number of these.
const AT_ONCE: usize = 72;
const MOST_ITERATIONS: usize = 8;

impl Loop<'_> {
    /// A node that repeats while a word says so, several iterations at a time where they are short.
    pub(super) fn repeated(&self, flow: &mut Flow<'_>) -> OnDevice<Vec<Planned>> {
        let homes = self.homes(flow)?;
        let mut places = Places::new(self, flow)?;
        loop {
            flow.refused()?.clear();
            let planned = self.placed(flow, &homes, &places)?;
            let refused = std::mem::take(flow.refused()?);
            // What was planned names cells where addresses are wanted: once more, with copies of these slices.
            if !places.give_up(&refused) {
                return Ok(planned);
            }
        }
    }

    /// The node, for these places of slices.
    fn placed(&self, flow: &mut Flow<'_>, homes: &[Vec<Range>; 2], at: &Places) -> OnDevice<Vec<Planned>> {
        let (room, slots) = (self.room(flow, &at.elements)?, &at.stacks);
        let state = flow.state()?;
        let mut kept = Vec::new();
        let even = self.iteration(flow, &homes[0], &room, &homes[1], slots)?;
        let first = self.round(flow, even, (&room, slots), &mut kept)?;
        let (iterations, rounds, last) = match first.iterations_at_once() {
            1 => {
                let own: Vec<Range> = homes[0].clone();
                let one = self.in_place(flow, &own, &room, slots)?;
                (1, vec![self.round(flow, one, (&room, slots), &mut kept)?], own)
            }
            n => {
                let next = first.next.clone();
                let odd = self.iteration(flow, &next, &room, &homes[0], slots)?;
                (n, vec![first, self.round(flow, odd, (&room, slots), &mut kept)?], next)
            }
        };
        note_copied(rounds.iter().map(Round::copies).max().unwrap_or(0));
        let mut body = Vec::new();
        for k in 0..iterations {
            let Some(round) = rounds.get(k % 2).or(rounds.first()) else { break };
            body.extend(self.commands(flow, round, state, (k, iterations))?);
        }
        self.around(flow, [&homes[0], &last], self.brought(&room, slots), body, kept)
    }

    /// An iteration whose results are copied to the places of its inputs.
    fn in_place(
        &self,
        flow: &mut Flow<'_>,
        own: &[Range],
        room: &[Range],
        slots: &[Option<Range>],
    ) -> OnDevice<Iteration> {
        let nowhere = Range { address: 0, size: u64::MAX };
        let wanted = vec![nowhere; own.len()];
        let mut iteration = self.iteration(flow, own, room, &wanted, slots)?;
        let results = iteration.part.results.iter().zip(own);
        iteration.after = results.filter_map(|(g, to)| Move::whole(g.at.address, *to)).collect();
        iteration.next = own.to_vec();
        Ok(iteration)
    }

    /// The node between the launch that decides about the first iteration and the copies of results.
    fn around(
        &self,
        flow: &mut Flow<'_>,
        [own, other]: [&[Range]; 2],
        brought: Vec<Move>,
        body: Vec<Command>,
        kept: Vec<Box<dyn std::any::Any + Send>>,
    ) -> OnDevice<Vec<Planned>> {
        let mut moves: Vec<Move> = self.zeros().collect();
        moves.extend(self.initials().iter().zip(own).filter_map(|(g, to)| Move::whole(g.at.address, *to)));
        moves.extend(brought);
        let initials: Vec<Range> = self.initials().iter().map(|g| g.at).collect();
        let (asked, test) = self.condition(flow, &initials, true)?;
        let step = self.site.step;
        let mut out: Vec<_> = asked.into_iter().map(|p| Planned { step, ..p }).collect();
        let decision = Decision { start: true, test, ..self.decision(flow)? };
        let (first, ahead) = self.site.deciding(flow, &moves, &decision)?;
        out.extend(self.site.planned(first));
        out.extend(self.site.planned([flow.node(Kind::While, ahead, vec![body], kept)?]));
        let end = |&(i, out): &(usize, Range)| {
            let (own, other) = (own.get(i)?.address, other.get(i)?.address);
            let from_step = other.wrapping_sub(own) as i64;
            Some(Move { from_step, factor: Factor::Parity, ..Move::whole(own, out)? })
        };
        let ends: Vec<Move> = self.lasts.iter().filter_map(end).collect();
        let state = Decision { state: Some(flow.state()?), ..Decision::default() };
        out.extend(self.site.planned(self.site.moves(flow, &ends, &state)?));
        Ok(out)
    }

    /// The loop's decision, its condition left out.
    fn decision(&self, flow: &mut Flow<'_>) -> OnDevice<Decision> {
        let count = self.site.inputs.first().filter(|_| self.shape.count && self.iterations.is_none());
        Ok(Decision {
            state: Some(flow.state()?),
            of_loop: true,
            count: count.map(|g| (g.at.address, g.ty.dtype.bits() == 32)),
            most: self.iterations,
            stop: flow.queue.word.as_ref().map(|w| w.address()),
            ..Decision::default()
        })
    }

    /// The condition for carried values that lie there.
    fn condition(
        &self,
        flow: &mut Flow<'_>,
        carried: &[Range],
        folded: bool,
    ) -> OnDevice<(Vec<Planned>, Option<DeviceCondition>)> {
        if !self.shape.condition {
            return Ok((Vec::new(), None));
        }
        let mut given = self.carried(carried);
        let captures = self.shape.captures().end..self.site.inputs.len();
        given.extend(self.site.operands(captures).iter().map(Operand::lent));
        let (planned, test) = flow.condition(given, folded)?;
        Ok((planned, Some(test)))
    }

    /// An iteration in the body of a node: its commands, those of the condition after it, and its copies.
    fn round(
        &self,
        flow: &mut Flow<'_>,
        iteration: Iteration,
        (room, slots): (&[Range], &[Option<Range>]),
        kept: &mut Vec<Box<dyn std::any::Any + Send>>,
    ) -> OnDevice<Round> {
        let mut moves = iteration.after.clone();
        for (k, ((_, s), slot)) in self.stacks.iter().zip(slots).enumerate() {
            moves.extend(self.stacked(&iteration, k).filter(|_| slot.is_none()).map(|from| s.store(from)));
        }
        moves.extend(self.brought(room, slots));
        let found: Vec<Range> =
            iteration.part.results.iter().take(self.shape.carried).map(|g| g.at).collect();
        let (mut asked, mut test) = self.condition(flow, &found, true)?;
        // What is asked lies where the same launch copies something else.
        let over = |t: &DeviceCondition| t.reads().any(|at| moves.iter().any(|m| m.covers(at)));
        let mut late = false;
        if test.as_ref().is_some_and(over) {
            (asked, test) =
                self.condition(flow, &found, test.as_ref().is_some_and(DeviceCondition::is_flag))?;
            let spare = flow.state()? + SPARE;
            let at = test.as_ref().filter(|t| over(t)).and_then(|t| t.reads().next());
            if let Some(at) = at {
                moves.extend(Move::whole(at, Range { address: spare, size: 1 }));
                (test, late) = (Some(DeviceCondition::flag(spare)), true);
            }
        }
        let mut commands = flow.commands(iteration.part.planned, kept)?;
        commands.extend(flow.commands(asked, kept)?);
        Ok(Round { commands, moves, test, late, next: iteration.next })
    }

    /// The commands of the k-th iteration of a body.
    fn commands(
        &self,
        flow: &mut Flow<'_>,
        round: &Round,
        state: u64,
        (k, iterations): (usize, usize),
    ) -> OnDevice<Vec<Command>> {
        let Round { test, late, .. } = round;
        let own = self.decision(flow)?;
        let inner = k + 1 < iterations;
        let decision = Decision { next: true, inner, test: test.clone(), late: *late, ..own };
        let mut all = round.commands.clone();
        let (first, last) = self.site.deciding(flow, &round.moves, &decision)?;
        all.extend(first);
        all.push(Command::Kernel(last));
        // The first iteration is made in any case. Only the first kernel of an iteration may begin before what decides is done.
        let guarded = |(i, c): (usize, Command)| match c {
            Command::Kernel(l) if k > 0 => Command::Kernel(l.only_if(state + ALIVE, i > 0)),
            c => c,
        };
        Ok(all.into_iter().enumerate().map(guarded).collect())
    }
}

/// An iteration in the body of a node.
struct Round {
    commands: Vec<Command>,
    moves: Vec<Move>,
    test: Option<DeviceCondition>,
    /// The condition is read behind the copies.
    late: bool,
    next: Vec<Range>,
}

impl Round {
    /// Bytes that are copied after the iteration.
    fn copies(&self) -> u64 {
        self.moves.iter().map(Move::copies).sum()
    }

    /// Number of iterations in one body, an even number or one. Kernels of iterations that are not made do
    /// nothing, but are launched.
    fn iterations_at_once(&self) -> usize {
        let kernels = self.commands.iter().all(|c| matches!(c, Command::Kernel(_)));
        match AT_ONCE / (self.commands.len() + 1) {
            n if n >= 2 && kernels => n.min(MOST_ITERATIONS) / 2 * 2,
            _ => 1,
        }
    }
}
