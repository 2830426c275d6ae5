//! Loops of known sizes on the device: all trips one after the other where they are few, else the body of a node that goes
//! on as long as it is told. See [`super::branches`].

use super::asked::Test;
use super::branches::{Given, Input, Made, Part, Site, Stop, host};
use super::flow::{Bodies, split};
use super::memory::Range;
use super::moves::{Decision, Move, Trips};
use super::plan::Planned;
use crate::driver::{Command, Kind};
use kiln_ir::{LoopOutputKind, LoopShape, Tensor, TensorType};

/// Where a loop's state has bytes to spare.
const SPARE: u64 = 16;
/// Where it tells whether the loop goes on.
const ALIVE: u64 = 12;
/// Commands that an unrolled loop may come to.
const UNROLLED: usize = 320;
/// Commands of the body of a node, in which several trips may follow each other, and how many trips at most.
const AT_ONCE: usize = 36;
const MOST_TRIPS: usize = 8;
/// Kernels load 16 bytes at once.
const ALIGNMENT: u64 = 16;

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

/// The elements of a tensor along an axis, in the order of the trips.
struct Slices {
    ty: TensorType,
    at: u64,
    step: i64,
    pitch: u64,
    rows: u32,
    width: u32,
}

impl Slices {
    fn new(whole: &Given, axis: usize, reverse: bool, trips: i64) -> Made<Slices> {
        let mut ty = whole.ty.clone();
        let Some((rows, length, inner)) = split(&ty, axis) else { return host("elements share bytes") };
        ty.dims.remove(axis);
        let step = inner as i64;
        let start = if reverse { (trips - 1).max(0) * step } else { 0 };
        let small = |n: usize| u32::try_from(n).map_err(|_| Stop::Host("rows of 4 GiB and more"));
        Ok(Slices {
            ty,
            at: whole.at.address.wrapping_add_signed(start),
            step: if reverse { -step } else { step },
            pitch: (length * inner) as u64,
            rows: small(rows)?,
            width: small(inner)?,
        })
    }

    fn address(&self, trip: i64) -> u64 {
        self.at.wrapping_add_signed(self.step * trip)
    }

    /// One of them, if a kernel can use it where it lies.
    fn place(&self, trip: i64) -> Option<Range> {
        let at = self.address(trip);
        let fits = self.rows == 1 && at.is_multiple_of(ALIGNMENT);
        fits.then_some(Range { address: at, size: u64::from(self.width) })
    }

    /// Copies to or from memory where they lie together.
    fn load(&self, to: u64, trips: Trips) -> Move {
        let (width, rows) = (self.width, self.rows);
        let (from_step, to_step, to_pitch) = (self.step, 0, u64::from(width));
        Move {
            from: Some(self.at),
            to,
            from_step,
            to_step,
            from_pitch: self.pitch,
            to_pitch,
            rows,
            width,
            trips,
        }
    }

    fn store(&self, from: u64) -> Move {
        let (width, rows) = (self.width, self.rows);
        let (from_step, to_step, from_pitch) = (0, self.step, u64::from(width));
        let (to, to_pitch, trips) = (self.at, self.pitch, Trips::Made);
        Move { from: Some(from), to, from_step, to_step, from_pitch, to_pitch, rows, width, trips }
    }
}

/// The same move in a trip that is known.
fn at_trip(m: &Move, trip: i64) -> Move {
    let shift = |at: u64, step: i64| at.wrapping_add_signed(step * trip);
    let (from, to) = (m.from.map(|at| shift(at, m.from_step)), shift(m.to, m.to_step));
    Move { from, to, from_step: 0, to_step: 0, trips: Trips::Made, ..*m }
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

    /// All trips one after the other, each where its values lie; none where that comes to too many commands.
    fn unrolled(&self, bodies: &mut Bodies, n: i64) -> Made<Option<Vec<Planned>>> {
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

    /// A node that goes on as long as it is told, several trips at a time where they are short.
    fn repeated(&self, bodies: &mut Bodies) -> Made<Vec<Planned>> {
        let (homes, room) = (self.homes(bodies)?, self.room(bodies)?);
        let none: Vec<_> = self.stacks.iter().map(|_| None).collect();
        let state = bodies.state()?;
        let mut kept = Vec::new();
        let even = self.trip(bodies, &homes[0], &room, &homes[1], &none)?;
        let first = self.round(bodies, even, &room, &mut kept)?;
        let (trips, rounds, last) = match first.trips_at_once() {
            1 => {
                let own: Vec<Range> = homes[0].clone();
                let one = self.in_place(bodies, &own, &room)?;
                (1, vec![self.round(bodies, one, &room, &mut kept)?], own)
            }
            n => {
                let next = first.next.clone();
                let odd = self.trip(bodies, &next, &room, &homes[0], &none)?;
                (n, vec![first, self.round(bodies, odd, &room, &mut kept)?], next)
            }
        };
        let mut body = Vec::new();
        for k in 0..trips {
            let Some(round) = rounds.get(k % 2).or(rounds.first()) else { break };
            body.extend(self.commands(bodies, round, state, (k, trips))?);
        }
        self.around(bodies, &homes[0], &last, &room, body, kept)
    }

    /// A trip whose results are copied to where its inputs lie.
    fn in_place(&self, bodies: &mut Bodies, own: &[Range], room: &[Range]) -> Made<Trip> {
        let nowhere = Range { address: 0, size: u64::MAX };
        let wanted = vec![nowhere; own.len()];
        let mut trip = self.trip(bodies, own, room, &wanted, &vec![None; self.stacks.len()])?;
        let results = trip.part.results.iter().zip(own);
        trip.after = results.filter_map(|(g, to)| Move::whole(g.at.address, *to)).collect();
        trip.next = own.to_vec();
        Ok(trip)
    }

    /// What decides whether there are trips at all, the node, and what follows.
    fn around(
        &self,
        bodies: &mut Bodies,
        own: &[Range],
        other: &[Range],
        room: &[Range],
        body: Vec<Command>,
        kept: Vec<Box<dyn std::any::Any + Send>>,
    ) -> Made<Vec<Planned>> {
        let mut moves: Vec<Move> = self.zeros().collect();
        moves.extend(self.initials().iter().zip(own).filter_map(|(g, to)| Move::whole(g.at.address, *to)));
        moves.extend(self.elements.iter().zip(room).map(|(e, to)| e.load(to.address, Trips::Next)));
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
        let types = self.initials().iter().map(|g| &g.ty);
        let mut given: Vec<Input> =
            carried.iter().zip(types).map(|(at, ty)| (Some(*at), ty.clone(), None)).collect();
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
        room: &[Range],
        kept: &mut Vec<Box<dyn std::any::Any + Send>>,
    ) -> Made<Round> {
        let mut moves = trip.after.clone();
        for (k, (_, s)) in self.stacks.iter().enumerate() {
            moves.extend(self.stacked(&trip, k).map(|from| s.store(from)));
        }
        moves.extend(self.elements.iter().zip(room).map(|(e, to)| e.load(to.address, Trips::Next)));
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
