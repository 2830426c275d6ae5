//! The memory plan: offsets of values in the arena, by lifetimes, for the largest shapes of all profiles.

use kiln_backend::{MemoryPlan, MemoryRules, Order, Place, is_view_op};
use kiln_ir::{Graph, NodeId, Source, ValueId};
use std::collections::HashMap;

/// A step as the planner sees it.
#[derive(Clone, Debug)]
pub struct StepUse {
    /// Nodes of the step.
    pub nodes: Vec<NodeId>,
    /// Scratch memory it wants, in bytes.
    pub workspace: u64,
    /// Whether it does not write results that nobody reads.
    pub leaves_unread: bool,
}

/// A value with its lifetime: indices of the steps that define it and that read it last.
struct Live {
    values: Vec<ValueId>,
    size: u64,
    from: usize,
    to: usize,
}

/// Plans the memory of a program. `sizes` are the bytes of all values at their largest; `None` where no bound is known. Values of steps
/// that run at the same time, as `streams` permits it, share no memory.
pub fn plan(
    g: &Graph,
    steps: &[StepUse],
    sizes: &[Option<u64>],
    rules: &MemoryRules,
    streams: &[u32],
) -> MemoryPlan {
    let mut places = vec![Place::None; g.value_ids().count()];
    for (i, v) in g.inputs.iter().enumerate() {
        places[v.0 as usize] = Place::Input(i as u32);
    }
    for v in g.value_ids() {
        if matches!(g.value(v).source, Source::Weight(_)) {
            places[v.0 as usize] = Place::Weight;
        }
    }
    let nodes: Vec<&[NodeId]> = steps.iter().map(|s| s.nodes.as_slice()).collect();
    let beside = Order::of_steps(g, &nodes, streams).map(|order| Beside::new(g, &nodes, order));
    let mut lives = lifetimes(g, steps, sizes, rules, &mut places, beside.as_ref());
    if let Some(beside) = &beside {
        lives.iter_mut().for_each(|l| beside.extend(l));
    }
    let arena = assign(lives, rules.alignment.max(1), &mut places);
    let scratch = round_up(arena, rules.alignment.max(1));
    let workspace = steps.iter().map(|s| s.workspace).max().unwrap_or(0);
    MemoryPlan { places, arena: scratch + workspace, scratch }
}

/// Lifetimes of the values at the borders of steps. Values without a bound get [`Place::Dynamic`].
fn lifetimes(
    g: &Graph,
    steps: &[StepUse],
    sizes: &[Option<u64>],
    rules: &MemoryRules,
    places: &mut [Place],
    beside: Option<&Beside>,
) -> Vec<Live> {
    let borders = Borders::of(g, steps);
    let mut lives: Vec<Live> = Vec::new();
    let mut group: HashMap<ValueId, usize> = HashMap::new();
    for (s, step) in steps.iter().enumerate() {
        for v in borders.defined(g, step, s) {
            if let Some(input) = input_viewed(g, step, v, places) {
                places[v.0 as usize] = input;
                continue;
            }
            let Some(size) = sizes.get(v.0 as usize).copied().flatten() else {
                places[v.0 as usize] = Place::Dynamic;
                continue;
            };
            let to = borders.last.get(&v).copied().unwrap_or(s);
            let heir = shareable(g, step, s, v, &borders, rules).and_then(|x| group.get(&x).copied());
            let free = |l: &usize| beside.is_none_or(|b| b.is_done(&lives[*l], s));
            match heir.filter(|&l| lives[l].size == size && lives[l].to == s).filter(free) {
                Some(l) => {
                    lives[l].values.push(v);
                    lives[l].to = to;
                    group.insert(v, l);
                }
                None => {
                    group.insert(v, lives.len());
                    lives.push(Live { values: vec![v], size, from: s, to });
                }
            }
        }
    }
    lives
}

/// Steps that touch each value, and which of them may run at the same time as others.
struct Beside {
    order: Order,
    steps: HashMap<ValueId, Vec<usize>>,
}

impl Beside {
    fn new(g: &Graph, nodes: &[&[NodeId]], order: Order) -> Beside {
        let mut steps: HashMap<ValueId, Vec<usize>> = HashMap::new();
        for (s, nodes) in nodes.iter().enumerate() {
            let nodes = nodes.iter().filter_map(|&n| g.get(n));
            let touched = nodes.flat_map(|n| n.inputs.iter().flatten().chain(&n.outputs));
            touched.for_each(|&v| steps.entry(v).or_default().push(s));
        }
        Beside { order, steps }
    }

    fn touch<'a>(&'a self, live: &'a Live) -> impl Iterator<Item = usize> + 'a {
        live.values.iter().filter_map(|v| self.steps.get(v)).flatten().copied()
    }

    /// Whether all steps that touch a value are done when a step starts that reads it.
    fn is_done(&self, live: &Live, step: usize) -> bool {
        self.touch(live).all(|s| s == step || self.order.is_before(s, step))
    }

    /// Lets a value live as long as steps run that may run beside one that touches it.
    fn extend(&self, live: &mut Live) {
        let all = self.touch(live).map(|s| self.order.beside(s));
        let (from, to) = all.fold((live.from, live.to), |(a, b), (x, y)| (a.min(x), b.max(y)));
        (live.from, live.to) = (from, to);
    }
}

/// Values that cross the borders of steps, and the last step that reads each.
struct Borders {
    step_of: HashMap<NodeId, usize>,
    last: HashMap<ValueId, usize>,
}

impl Borders {
    fn of(g: &Graph, steps: &[StepUse]) -> Borders {
        let step_of: HashMap<NodeId, usize> =
            steps.iter().enumerate().flat_map(|(s, st)| st.nodes.iter().map(move |&n| (n, s))).collect();
        let mut last = HashMap::new();
        for (id, node) in g.nodes() {
            let s = step_of.get(&id).copied().unwrap_or(0);
            for v in node.inputs.iter().flatten() {
                let own = g.producer(*v).and_then(|(p, _)| step_of.get(&p)) == Some(&s);
                if !own {
                    let at = last.entry(*v).or_insert(s);
                    *at = s.max(*at);
                }
            }
        }
        // Debug tensors are written by their step, and their memory is free behind it.
        for v in g.kept() {
            let at = g.producer(v).and_then(|(n, _)| step_of.get(&n));
            last.entry(v).or_insert(at.copied().unwrap_or(0));
        }
        for v in &g.outputs {
            last.insert(*v, steps.len());
        }
        Borders { step_of, last }
    }

    /// Values that a step defines for others, and unread outputs that it writes anyway, unless its tactic
    /// leaves them alone.
    fn defined(&self, g: &Graph, step: &StepUse, s: usize) -> Vec<ValueId> {
        let uses_inside =
            |v: &ValueId| step.nodes.iter().filter_map(|&n| g.get(n)).any(|n| n.inputs.contains(&Some(*v)));
        step.nodes
            .iter()
            .filter_map(|&n| g.get(n))
            .flat_map(|n| n.outputs.iter().copied())
            .filter(|v| self.last.contains_key(v) || !step.leaves_unread && !uses_inside(v))
            .filter(|v| g.producer(*v).and_then(|(p, _)| self.step_of.get(&p)) == Some(&s))
            .collect()
    }
}

/// The input in whose memory an output of a step may lie: the one that it must alias, or, for copies without change
/// and pointwise kernels, one of the same shape and width that dies here.
fn shareable(
    g: &Graph,
    step: &StepUse,
    s: usize,
    v: ValueId,
    b: &Borders,
    rules: &MemoryRules,
) -> Option<ValueId> {
    let (_, producer) = g.producer(v)?;
    if let Some(&(i, _)) =
        producer.op.def().traits.must_alias.iter().find(|(_, o)| producer.outputs.get(*o) == Some(&v))
    {
        return producer.inputs.get(i).copied().flatten();
    }
    let nodes: Vec<_> = step.nodes.iter().filter_map(|&n| g.get(n)).collect();
    let dies = |x: &ValueId| b.last.get(x) == Some(&s) && g.producer(*x).is_some();
    if let [only] = nodes[..]
        && is_view_op(&only.op)
    {
        return only.inputs[0].filter(dies);
    }
    if !rules.in_place || !nodes.iter().all(|n| n.op.is_pointwise()) {
        return None;
    }
    let ty = g.ty(v);
    let fits = |x: &ValueId| g.ty(*x).dims == ty.dims && g.ty(*x).dtype.bits() == ty.dtype.bits();
    nodes.iter().flat_map(|n| n.inputs.iter().flatten().copied()).find(|x| dies(x) && fits(x))
}

/// Place of the network's input that `v` is a view of. Outputs of the network have memory of their own.
fn input_viewed(g: &Graph, step: &StepUse, v: ValueId, places: &[Place]) -> Option<Place> {
    let [only] = step.nodes[..] else { return None };
    let node = g.get(only).filter(|n| is_view_op(&n.op) && !g.outputs.contains(&v))?;
    let from = node.inputs.first().copied().flatten()?;
    Some(places[from.0 as usize]).filter(|p| matches!(p, Place::Input(_)))
}

/// Greatest first, each at the lowest offset that is free over its whole life. Returns the bytes used.
fn assign(mut lives: Vec<Live>, alignment: u64, places: &mut [Place]) -> u64 {
    lives.sort_by_key(|l| (std::cmp::Reverse(l.size), l.from, l.values[0]));
    let mut placed = Timeline::new(lives.iter().map(|l| l.to + 1).max().unwrap_or(0));
    let mut end = 0;
    for l in lives {
        let mut busy = placed.during(l.from, l.to);
        busy.sort_unstable();
        let mut offset = 0;
        for (o, s) in busy {
            if offset + l.size <= o {
                break;
            }
            offset = offset.max(round_up(o + s, alignment));
        }
        placed.add(l.from, l.to, (offset, l.size));
        end = end.max(offset + l.size);
        l.values.iter().for_each(|v| places[v.0 as usize] = Place::Arena { offset, size: l.size });
    }
    end
}

/// Ranges of memory by the steps in which they are taken: a tree over steps, each range at the fewest nodes that cover its
/// life.
struct Timeline {
    /// Leaves of the tree, a power of two.
    width: usize,
    /// Ranges kept at each node; the root is 1.
    own: Vec<Vec<(u64, u64)>>,
    /// Whether a node or one below it keeps any.
    any: Vec<bool>,
}

impl Timeline {
    fn new(steps: usize) -> Timeline {
        let width = steps.max(1).next_power_of_two();
        Timeline { width, own: vec![Vec::new(); 2 * width], any: vec![false; 2 * width] }
    }

    fn add(&mut self, from: usize, to: usize, range: (u64, u64)) {
        let (mut low, mut high) = (from + self.width, to + self.width + 1);
        while low < high {
            for node in
                [(low % 2 == 1).then_some(low), (high % 2 == 1).then(|| high - 1)].into_iter().flatten()
            {
                self.own[node].push(range);
                let mut up = node;
                while up > 0 && !self.any[up] {
                    self.any[up] = true;
                    up /= 2;
                }
            }
            (low, high) = (low.div_ceil(2), high / 2);
        }
    }

    /// Ranges taken in any of these steps; one may be named twice.
    fn during(&self, from: usize, to: usize) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let mut open = vec![(1, 0, self.width - 1)];
        while let Some((node, first, last)) = open.pop() {
            if last < from || to < first || !self.any[node] {
                continue;
            }
            found.extend_from_slice(&self.own[node]);
            if first < last {
                let middle = first + (last - first) / 2;
                open.extend([(2 * node, first, middle), (2 * node + 1, middle + 1, last)]);
            }
        }
        found
    }
}

fn round_up(x: u64, to: u64) -> u64 {
    x.div_ceil(to) * to
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::Graph;

    const ATTENTION: &str =
        "graph \"g\" { input %q: f32[1,2,8,4] input %k: f32[1,2,16,4] input %v: f32[1,2,16,4]
        %y, %key, %value, %qk = attention(%q, %k, %v) %z = exp(%y) output %z }";

    /// Places of the attention's results, and the size of the arena.
    fn planned(leaves_unread: bool) -> (Vec<Place>, u64) {
        let g = Graph::from_text(ATTENTION).expect("a graph");
        let step = |(n, _)| StepUse { nodes: vec![n], workspace: 0, leaves_unread };
        let steps: Vec<StepUse> = g.nodes().map(step).collect();
        let size = |v| Some(g.ty(v).static_volume().unwrap_or(0) as u64 * 4);
        let sizes: Vec<Option<u64>> = g.value_ids().map(size).collect();
        let rules = MemoryRules { alignment: 256, max_binding: u64::MAX, in_place: false, total: 0 };
        let m = plan(&g, &steps, &sizes, &rules, &[]);
        let place = |name: &str| m.places[g.find(name).expect("a value").0 as usize];
        (["y", "key", "value", "qk"].map(place).into(), m.arena)
    }

    #[test]
    fn a_timeline_finds_what_overlaps() {
        let mut rng = kiln_ir::problem::Rng::new(3);
        for steps in [1, 7, 16, 33] {
            let mut t = Timeline::new(steps);
            let mut all: Vec<(usize, usize, u64)> = Vec::new();
            for id in 0..40 {
                let mut at = || rng.int(0, steps as i64 - 1) as usize;
                let (a, b) = (at(), at());
                let (from, to) = (a.min(b), a.max(b));
                let mut found: Vec<u64> = t.during(from, to).into_iter().map(|r| r.0).collect();
                found.sort_unstable();
                found.dedup();
                let overlaps = |l: &&(usize, usize, u64)| l.0 <= to && from <= l.1;
                let wanted: Vec<u64> = all.iter().filter(overlaps).map(|l| l.2).collect();
                assert_eq!(found, wanted, "{from}..={to} of {steps}");
                t.add(from, to, (id, 1));
                all.push((from, to, id));
            }
        }
    }

    #[test]
    fn results_that_nobody_reads_get_memory_only_where_they_are_written() {
        let (written, all) = planned(false);
        assert!(written.iter().all(|p| matches!(p, Place::Arena { .. })), "{written:?}");
        let (left, few) = planned(true);
        assert!(matches!(left[0], Place::Arena { size: 256, .. }), "{left:?}");
        assert_eq!(left[1..], [Place::None; 3]);
        // y and z; beside them keys and values of 512 bytes, scores of 1024.
        assert_eq!((all, few), (2304, 512));
    }

    #[test]
    fn values_of_steps_that_run_at_the_same_time_share_no_memory() {
        let text =
            "graph \"g\" { input %x: f32[64] %a = exp(%x) %b = neg(%a) %c = exp(%b) %d = neg(%a) %e = exp(%d)
            %y = add(%c, %e) output %y }";
        let g = Graph::from_text(text).expect("a graph");
        let step = |(n, _)| StepUse { nodes: vec![n], workspace: 0, leaves_unread: false };
        let steps: Vec<StepUse> = g.nodes().map(step).collect();
        let sizes = vec![Some(256); g.value_ids().count()];
        let rules = MemoryRules { alignment: 256, max_binding: u64::MAX, in_place: true, total: 0 };
        let places = |streams: &[u32]| {
            let m = plan(&g, &steps, &sizes, &rules, streams);
            let place = |name: &str| match m.places[g.find(name).expect("a value").0 as usize] {
                Place::Arena { offset, .. } => offset / 256,
                place => panic!("{place:?}"),
            };
            ["a", "b", "c", "d", "e", "y"].map(place)
        };
        // In one stream the second branch reads what the first one has left, and may write over it.
        assert_eq!(places(&[]), [0, 1, 1, 0, 0, 1]);
        let [a, b, c, d, e, y] = places(&[0, 0, 0, 1, 1, 0]);
        assert!([a, b, c].iter().all(|p| ![d, e].contains(p)), "{a} {b} {c} beside {d} {e}");
        assert_eq!((b, y), (c, c), "what is done may still be written over");
    }
}
