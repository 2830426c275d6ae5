//! Streams of the commands of a run: those of the program's steps, and one for the copies of weights.

use crate::driver::Lanes;
use kiln_backend::{Order, Program, StreamPlan};
use kiln_ir::ValueId;
use std::collections::{BTreeMap, HashMap};

/// For each stream one more than its last command that is done; 0 for none.
type Clock = Vec<usize>;

/// Kinds of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Computes.
    Work,
    /// Copies a weight.
    Copy(ValueId),
    /// Marks an event behind all that is in front of it.
    Mark,
}

/// The streams of commands that belong to these steps, in order; none where all are in one.
pub fn of(
    program: &Program,
    streamed: Option<&StreamPlan>,
    commands: &[Kind],
    steps: &[usize],
) -> Option<Lanes> {
    let order = Order::of(program);
    let copies = commands.iter().any(|c| matches!(c, Kind::Copy(_)));
    if order.is_none() && !copies {
        return None;
    }
    let own = order.as_ref().map_or(1, Order::streams);
    let readers = streamed.map(|p| p.readers(program)).unwrap_or_default();
    let blockers = streamed.map(|p| p.blockers(&readers)).unwrap_or_default();
    let mut reads: HashMap<usize, Vec<ValueId>> = HashMap::new();
    readers.iter().for_each(|(v, all)| all.iter().for_each(|&s| reads.entry(s).or_default().push(*v)));
    let mut build = Build::new(own + usize::from(copies));
    let mut done: Vec<Clock> = Vec::with_capacity(program.steps.len());
    let mut copied: BTreeMap<ValueId, Clock> = BTreeMap::new();
    let mut next = 0;
    for s in 0..program.steps.len() {
        let count = steps[next.min(steps.len())..].iter().take_while(|&&step| step == s).count();
        let all = next..next + count;
        next = all.end;
        for c in all.clone() {
            let Some(Kind::Copy(weight)) = commands.get(c) else { continue };
            let mut clock = build.clock();
            blockers.get(weight).into_iter().flatten().for_each(|&b| join(&mut clock, &done[b]));
            build.put(c, own, &mut clock);
            copied.insert(*weight, clock);
        }
        let mut clock = build.clock();
        match &order {
            Some(order) => order.waits(s).for_each(|b| join(&mut clock, &done[b])),
            None => done.last().into_iter().for_each(|b| join(&mut clock, b)),
        }
        let weights = reads.get(&s).into_iter().flatten().filter_map(|v| copied.get(v));
        weights.for_each(|w| join(&mut clock, w));
        let lane = order.as_ref().map_or(0, |o| o.stream(s));
        for c in all {
            match commands.get(c) {
                Some(Kind::Copy(_)) | None => {}
                Some(Kind::Mark) => build.put(c, 0, &mut build.tails.clone()),
                Some(Kind::Work) => build.put(c, lane, &mut clock),
            }
        }
        done.push(clock);
    }
    Some(build.end())
}

fn join(clock: &mut Clock, other: &Clock) {
    clock.iter_mut().zip(other).for_each(|(a, &b)| *a = b.max(*a));
}

/// Lanes so far.
struct Build {
    lanes: Lanes,
    /// The last command of each stream.
    tails: Clock,
    /// Commands that the next one of each stream comes behind.
    known: Vec<Clock>,
    /// Commands with their stream and what they wait for.
    put: BTreeMap<usize, (usize, Vec<usize>)>,
}

impl Build {
    fn new(count: usize) -> Build {
        let (lanes, tails) = (Lanes { count, ..Lanes::default() }, vec![0; count]);
        Build { lanes, tails, known: vec![vec![0; count]; count], put: BTreeMap::new() }
    }

    fn clock(&self) -> Clock {
        vec![0; self.lanes.count]
    }

    /// Puts a command into a stream, behind what the clock says; the clock then says that the command is done, too.
    fn put(&mut self, command: usize, lane: usize, clock: &mut Clock) {
        let known = &mut self.known[lane];
        let others = (0..self.lanes.count).filter(|&l| l != lane && clock[l] > known[l]);
        let waits = others.map(|l| clock[l] - 1).collect();
        join(known, clock);
        known[lane] = command + 1;
        clock.clone_from(known);
        self.tails[lane] = command + 1;
        self.put.insert(command, (lane, waits));
    }

    fn end(self) -> Lanes {
        let Build { mut lanes, tails, known, put } = self;
        for (lane, waits) in put.into_values() {
            lanes.of.push(lane);
            lanes.waits.push(waits);
        }
        let open = (1..lanes.count).filter(|&l| tails[l] > known[0][l]);
        lanes.ends = open.map(|l| tails[l] - 1).collect();
        lanes
    }
}

#[cfg(test)]
#[path = "lanes_tests.rs"]
mod tests;
