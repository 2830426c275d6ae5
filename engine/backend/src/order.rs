//! Steps that may run side by side: what each of them comes behind.

use crate::Program;
use kiln_ir::{Graph, Node, NodeId};
use kiln_ops::plugin::PLUGIN;
use std::collections::HashMap;

/// The most streams of a program, the main one included.
pub const MAX_STREAMS: usize = 16;

/// The order of the steps of a program that uses several streams. Steps of one stream run one behind the other. A step comes behind
/// those whose results it reads, on whatever streams. Steps that write in place, layers of plug-ins and control flow run alone: behind
/// all steps in front of them, and before all others.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// Stream of each step.
    streams: Vec<usize>,
    /// For each step and stream one more than the last step of the stream that it comes behind; 0 for none.
    behind: Vec<Vec<usize>>,
    /// Steps of each stream.
    members: Vec<Vec<usize>>,
    /// The last step that runs alone.
    alone: Option<usize>,
    /// Number of streams that steps may be put into.
    most: usize,
}

impl Order {
    /// An empty order of at most so many streams, 1 to [`MAX_STREAMS`].
    pub fn new(most: usize) -> Order {
        let most = most.clamp(1, MAX_STREAMS);
        Order { members: vec![Vec::new(); most], most, ..Order::default() }
    }

    /// The order of a program; none where all its steps are in one stream.
    pub fn of(program: &Program) -> Option<Order> {
        let steps: Vec<&[NodeId]> = program.steps.iter().map(|s| s.nodes.as_slice()).collect();
        Order::of_steps(&program.graph, &steps, &program.streams)
    }

    /// The order of steps of these nodes in these streams; none where all are in one stream.
    pub fn of_steps(graph: &Graph, steps: &[&[NodeId]], streams: &[u32]) -> Option<Order> {
        let most = streams.iter().max().map_or(0, |&s| s as usize) + 1;
        if !(2..=MAX_STREAMS).contains(&most) || streams.len() != steps.len() {
            return None;
        }
        let sources = Sources::of(steps);
        let mut order = Order::new(most);
        for (s, &stream) in streams.iter().enumerate() {
            let (needs, alone) = sources.needs(graph, steps, s);
            order.push(&needs, alone, stream as usize);
        }
        Some(order)
    }

    /// Steps that a next one, which reads results of these, would come behind: by stream, its own stream aside.
    fn behind(&self, needs: &[usize], alone: bool) -> Vec<usize> {
        let mut behind = vec![0; self.most];
        let last = self.members.iter().filter_map(|m| m.last());
        let all = needs.iter().chain(&self.alone).chain(last.filter(|_| alone));
        all.for_each(|&s| self.join(&mut behind, s));
        behind
    }

    fn join(&self, behind: &mut [usize], step: usize) {
        for (b, &other) in behind.iter_mut().zip(&self.behind[step]) {
            *b = other.max(*b);
        }
        let own = &mut behind[self.streams[step]];
        *own = (step + 1).max(*own);
    }

    /// Adds a step to a stream.
    pub fn push(&mut self, needs: &[usize], alone: bool, stream: usize) {
        let (step, stream) = (self.streams.len(), stream.min(self.most - 1));
        let mut behind = self.behind(needs, alone);
        if let Some(&before) = self.members[stream].last() {
            self.join(&mut behind, before);
        }
        self.behind.push(behind);
        self.streams.push(stream);
        self.members[stream].push(step);
        self.alone = if alone { Some(step) } else { self.alone };
    }

    /// The stream for a next step: one with nothing beside the step in it, best that of a step whose results it reads. If all have
    /// something, that of the last such step.
    pub fn choose(&self, needs: &[usize], alone: bool) -> usize {
        if alone {
            return 0;
        }
        let behind = self.behind(needs, false);
        let last = |stream: usize| self.members[stream].last().map_or(0, |s| s + 1);
        let free = |s: &usize| behind[*s] >= last(*s);
        let goes_on = |s: &usize| needs.iter().any(|n| n + 1 == last(*s));
        let all = 0..self.most;
        let chosen = all.clone().find(|s| free(s) && goes_on(s)).or_else(|| all.clone().find(free));
        chosen.or_else(|| needs.iter().max().map(|&n| self.streams[n])).unwrap_or(0)
    }

    /// Number of streams.
    pub fn streams(&self) -> usize {
        self.most
    }

    /// The stream of a step.
    pub fn stream(&self, step: usize) -> usize {
        self.streams.get(step).copied().unwrap_or(0)
    }

    /// The streams of all steps; none where all are in the main one.
    pub fn into_streams(self) -> Vec<u32> {
        match self.streams.iter().any(|&s| s > 0) {
            true => self.streams.into_iter().map(|s| s as u32).collect(),
            false => Vec::new(),
        }
    }

    /// The last step of each stream that a step comes behind.
    pub fn waits(&self, step: usize) -> impl Iterator<Item = usize> {
        self.behind.get(step).into_iter().flatten().filter_map(|&s| s.checked_sub(1))
    }

    /// Whether step `a` is done before step `b` starts.
    pub fn is_before(&self, a: usize, b: usize) -> bool {
        self.behind.get(b).is_some_and(|all| all.get(self.stream(a)).is_some_and(|&s| s > a))
    }

    /// The first and the last step that may run at the time of a step, the step itself included.
    pub fn beside(&self, step: usize) -> (usize, usize) {
        let own = self.stream(step);
        let Some(behind) = self.behind.get(step) else { return (step, step) };
        let (mut first, mut last) = (step, step);
        for (stream, members) in self.members.iter().enumerate().filter(|(s, _)| *s != own) {
            let from = members.partition_point(|&s| s < behind[stream]);
            first = members.get(from).map_or(first, |&s| s.min(first));
            let until = members.partition_point(|&s| self.behind[s][own] <= step);
            last = until.checked_sub(1).map_or(last, |at| members[at].max(last));
        }
        (first, last)
    }
}

/// The step of every node.
pub struct Sources(HashMap<NodeId, usize>);

impl Sources {
    /// The step of every node of these steps.
    pub fn of(steps: &[&[NodeId]]) -> Sources {
        let each = steps.iter().enumerate();
        Sources(each.flat_map(|(s, nodes)| nodes.iter().map(move |&n| (n, s))).collect())
    }

    /// The steps whose results a step reads, and whether it runs alone.
    pub fn needs(&self, graph: &Graph, steps: &[&[NodeId]], step: usize) -> (Vec<usize>, bool) {
        let nodes = || steps.get(step).copied().unwrap_or_default().iter().filter_map(|&n| graph.get(n));
        let read = nodes().flat_map(|n| n.inputs.iter().flatten());
        let from = read.filter_map(|&v| self.0.get(&graph.producer(v)?.0).copied());
        let mut needs: Vec<usize> = from.filter(|&s| s < step).collect();
        needs.sort_unstable();
        needs.dedup();
        (needs, nodes().any(runs_alone))
    }
}

fn runs_alone(node: &Node) -> bool {
    !node.regions.is_empty() || !node.op.def().traits.must_alias.is_empty() || node.op.is(PLUGIN)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test panics")]
mod tests {
    use super::*;
    use kiln_ir::problem::Rng;

    /// An order of random steps, each of which reads results of up to three others, and what each comes behind by definition.
    fn random(rng: &mut Rng, steps: usize, most: usize) -> (Order, Vec<Vec<bool>>) {
        let mut order = Order::new(most);
        let mut before: Vec<Vec<bool>> = Vec::new();
        let mut alone = Vec::new();
        for s in 0..steps {
            let count = rng.int(0, 3).min(s as i64);
            let needs: Vec<usize> = (0..count).map(|_| rng.int(0, s as i64 - 1) as usize).collect();
            let own = rng.int(0, 9) == 0;
            let stream = match rng.int(0, 2) {
                0 => rng.int(0, most as i64 - 1) as usize,
                _ => order.choose(&needs, own),
            };
            order.push(&needs, own, stream);
            alone.push(own);
            let mut row = vec![false; steps];
            for t in 0..s {
                let direct = needs.contains(&t) || order.stream(t) == stream || alone[t] || own;
                if direct {
                    row[t] = true;
                    (0..t).filter(|&u| before[t][u]).for_each(|u| row[u] = true);
                }
            }
            before.push(row);
        }
        (order, before)
    }

    #[test]
    fn steps_come_behind_what_they_read_and_what_is_in_their_stream() {
        let mut rng = Rng::new(5);
        for most in [1, 2, 3, 7] {
            for _ in 0..20 {
                let (order, before) = random(&mut rng, 24, most);
                for (b, row) in before.iter().enumerate() {
                    for (a, &wanted) in row.iter().enumerate() {
                        assert_eq!(order.is_before(a, b), wanted, "{a} before {b} of {order:?}");
                    }
                    let beside = |t: &usize| *t != b && !row[*t] && !before[*t][b];
                    let all = (0..24).filter(beside).chain([b]);
                    let wanted = (all.clone().min().unwrap(), all.max().unwrap());
                    assert_eq!(order.beside(b), wanted, "beside {b} of {order:?}");
                }
            }
        }
    }

    #[test]
    fn branches_get_streams_of_their_own_up_to_the_limit() {
        // One step, three branches of two steps, and a step that reads all.
        let needs: [&[usize]; 8] = [&[], &[0], &[1], &[0], &[3], &[0], &[5], &[2, 4, 6]];
        let streams = |most| {
            let mut order = Order::new(most);
            needs.iter().for_each(|n| order.push(n, false, order.choose(n, false)));
            order.into_streams()
        };
        assert_eq!(streams(1), []);
        assert_eq!(streams(2), [0, 0, 0, 1, 1, 0, 0, 0]);
        assert_eq!(streams(4), [0, 0, 0, 1, 1, 2, 2, 0]);
    }
}
