//! Loops as nodes that go on as long as they are told, several trips at a time where these are short.

use super::super::asked::Test;
use super::super::branches::Given;
use super::super::flow::Bodies;
use super::super::memory::Range;
use super::super::moves::{Decision, Move, Trips};
use super::super::plan::Planned;
use super::super::stop::Made;
use super::cells::{Places, note_copied};
use super::{Loop, Trip};
use crate::driver::{Command, Kind};

/// Where a loop's state has bytes to spare.
const SPARE: u64 = 16;
/// Where it tells whether the loop goes on.
const ALIVE: u64 = 12;
/// Commands of the body of a node, in which several trips may follow each other, and how many trips at most.
const AT_ONCE: usize = 72;
const MOST_TRIPS: usize = 8;

impl Loop<'_> {
    /// A node that goes on as long as it is told, several trips at a time where they are short.
    pub(super) fn repeated(&self, bodies: &mut Bodies) -> Made<Vec<Planned>> {
        let homes = self.homes(bodies)?;
        let mut places = Places::new(self, bodies)?;
        loop {
            bodies.body(0)?.context.memory.refused.clear();
            let planned = self.placed(bodies, &homes, &places)?;
            let refused = std::mem::take(&mut bodies.body(0)?.context.memory.refused);
            // What was planned names cells where addresses are wanted: once more, with copies of these slices.
            if !places.give_up(&refused) {
                return Ok(planned);
            }
        }
    }

    /// The same, where slices have these places.
    fn placed(&self, bodies: &mut Bodies, homes: &[Vec<Range>; 2], at: &Places) -> Made<Vec<Planned>> {
        let (room, slots) = (self.room(bodies, &at.elements)?, &at.stacks);
        let state = bodies.state()?;
        let mut kept = Vec::new();
        let even = self.trip(bodies, &homes[0], &room, &homes[1], slots)?;
        let first = self.round(bodies, even, (&room, slots), &mut kept)?;
        let (trips, rounds, last) = match first.trips_at_once() {
            1 => {
                let own: Vec<Range> = homes[0].clone();
                let one = self.in_place(bodies, &own, &room, slots)?;
                (1, vec![self.round(bodies, one, (&room, slots), &mut kept)?], own)
            }
            n => {
                let next = first.next.clone();
                let odd = self.trip(bodies, &next, &room, &homes[0], slots)?;
                (n, vec![first, self.round(bodies, odd, (&room, slots), &mut kept)?], next)
            }
        };
        note_copied(rounds.iter().map(Round::copies).max().unwrap_or(0));
        let mut body = Vec::new();
        for k in 0..trips {
            let Some(round) = rounds.get(k % 2).or(rounds.first()) else { break };
            body.extend(self.commands(bodies, round, state, (k, trips))?);
        }
        self.around(bodies, [&homes[0], &last], self.brought(&room, slots), body, kept)
    }

    /// A trip whose results are copied to where its inputs lie.
    fn in_place(
        &self,
        bodies: &mut Bodies,
        own: &[Range],
        room: &[Range],
        slots: &[Option<Range>],
    ) -> Made<Trip> {
        let nowhere = Range { address: 0, size: u64::MAX };
        let wanted = vec![nowhere; own.len()];
        let mut trip = self.trip(bodies, own, room, &wanted, slots)?;
        let results = trip.part.results.iter().zip(own);
        trip.after = results.filter_map(|(g, to)| Move::whole(g.at.address, *to)).collect();
        trip.next = own.to_vec();
        Ok(trip)
    }

    /// What decides whether there are trips at all, the node, and what follows.
    fn around(
        &self,
        bodies: &mut Bodies,
        [own, other]: [&[Range]; 2],
        brought: Vec<Move>,
        body: Vec<Command>,
        kept: Vec<Box<dyn std::any::Any + Send>>,
    ) -> Made<Vec<Planned>> {
        let mut moves: Vec<Move> = self.zeros().collect();
        moves.extend(self.initials().iter().zip(own).filter_map(|(g, to)| Move::whole(g.at.address, *to)));
        moves.extend(brought);
        let initials: Vec<Range> = self.initials().iter().map(|g| g.at).collect();
        let (asked, test) = self.condition(bodies, &initials, true)?;
        let step = self.site.step;
        let mut out: Vec<_> = asked.into_iter().map(|p| Planned { step, ..p }).collect();
        let decision = Decision { start: true, test, ..self.decision(bodies)? };
        let (first, ahead) = self.site.deciding(bodies, &moves, &decision)?;
        out.extend(self.site.planned(first));
        out.extend(self.site.planned([bodies.node(Kind::While, ahead, vec![body], kept)?]));
        let end = |&(i, out): &(usize, Range)| {
            let (own, other) = (own.get(i)?.address, other.get(i)?.address);
            let from_step = other.wrapping_sub(own) as i64;
            Some(Move { from_step, trips: Trips::Parity, ..Move::whole(own, out)? })
        };
        let ends: Vec<Move> = self.lasts.iter().filter_map(end).collect();
        let state = Decision { state: Some(bodies.state()?), ..Decision::default() };
        out.extend(self.site.planned(self.site.moves(bodies, &ends, &state)?));
        Ok(out)
    }

    /// The loop's decision, its condition left out.
    fn decision(&self, bodies: &mut Bodies) -> Made<Decision> {
        let count = self.site.inputs.first().filter(|_| self.shape.count && self.trips.is_none());
        Ok(Decision {
            state: Some(bodies.state()?),
            of_loop: true,
            count: count.map(|g| (g.at.address, g.ty.dtype.bits() == 32)),
            most: self.trips,
            stop: bodies.word.as_ref().map(|w| w.address()),
            ..Decision::default()
        })
    }

    /// The condition for carried values that lie there.
    fn condition(
        &self,
        bodies: &mut Bodies,
        carried: &[Range],
        folded: bool,
    ) -> Made<(Vec<Planned>, Option<Test>)> {
        if !self.shape.condition {
            return Ok((Vec::new(), None));
        }
        let mut given = self.carried(carried);
        let captures = self.shape.captures().end..self.site.inputs.len();
        given.extend(self.site.given(captures).iter().map(Given::lent));
        let (planned, test) = bodies.asked(given, folded)?;
        Ok((planned, Some(test)))
    }

    /// A trip in the body of a node: its commands, those of the condition behind it, and what is copied.
    fn round(
        &self,
        bodies: &mut Bodies,
        trip: Trip,
        (room, slots): (&[Range], &[Option<Range>]),
        kept: &mut Vec<Box<dyn std::any::Any + Send>>,
    ) -> Made<Round> {
        let mut moves = trip.after.clone();
        for (k, ((_, s), slot)) in self.stacks.iter().zip(slots).enumerate() {
            moves.extend(self.stacked(&trip, k).filter(|_| slot.is_none()).map(|from| s.store(from)));
        }
        moves.extend(self.brought(room, slots));
        let found: Vec<Range> = trip.part.results.iter().take(self.shape.carried).map(|g| g.at).collect();
        let (mut asked, mut test) = self.condition(bodies, &found, true)?;
        // What is asked lies where the same launch copies something else.
        let over = |t: &Test| t.reads().any(|at| moves.iter().any(|m| m.covers(at)));
        let mut late = false;
        if test.as_ref().is_some_and(over) {
            (asked, test) = self.condition(bodies, &found, test.as_ref().is_some_and(Test::is_flag))?;
            let spare = bodies.state()? + SPARE;
            let at = test.as_ref().filter(|t| over(t)).and_then(|t| t.reads().next());
            if let Some(at) = at {
                moves.extend(Move::whole(at, Range { address: spare, size: 1 }));
                (test, late) = (Some(Test::flag(spare)), true);
            }
        }
        let mut commands = bodies.commands(trip.part.planned, kept)?;
        commands.extend(bodies.commands(asked, kept)?);
        Ok(Round { commands, moves, test, late, next: trip.next })
    }

    /// The commands of the k-th of the trips of a body.
    fn commands(
        &self,
        bodies: &mut Bodies,
        round: &Round,
        state: u64,
        (k, trips): (usize, usize),
    ) -> Made<Vec<Command>> {
        let Round { test, late, .. } = round;
        let own = self.decision(bodies)?;
        let inner = k + 1 < trips;
        let decision = Decision { next: true, inner, test: test.clone(), late: *late, ..own };
        let mut all = round.commands.clone();
        let (first, last) = self.site.deciding(bodies, &round.moves, &decision)?;
        all.extend(first);
        all.push(Command::Kernel(last));
        // The first trip is made in any case. Only the first kernel of a trip may begin before what decides is done.
        let guarded = |(i, c): (usize, Command)| match c {
            Command::Kernel(l) if k > 0 => Command::Kernel(l.only_if(state + ALIVE, i > 0)),
            c => c,
        };
        Ok(all.into_iter().enumerate().map(guarded).collect())
    }
}

/// A trip in the body of a node.
struct Round {
    commands: Vec<Command>,
    moves: Vec<Move>,
    test: Option<Test>,
    /// The condition is read behind the copies.
    late: bool,
    next: Vec<Range>,
}

impl Round {
    /// Bytes that are copied behind the trip.
    fn copies(&self) -> u64 {
        self.moves.iter().map(Move::copies).sum()
    }

    /// How many trips may follow each other in one body, an even number or one: kernels of trips that are not made do
    /// nothing, but are launched.
    fn trips_at_once(&self) -> usize {
        let kernels = self.commands.iter().all(|c| matches!(c, Command::Kernel(_)));
        match AT_ONCE / (self.commands.len() + 1) {
            n if n >= 2 && kernels => n.min(MOST_TRIPS) / 2 * 2,
            _ => 1,
        }
    }
}
