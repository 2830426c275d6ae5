//! Weights that are streamed: kept on the host, and copied to the device before the steps that read them.

use crate::{BackendError, Program, is_view_op};
use kiln_ir::{Graph, ValueId};
use std::collections::{BTreeMap, HashSet};

/// Bytes that every weight takes at least: devices bind no empty range.
const LEAST: u64 = 16;

/// A weight that may be streamed.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    value: ValueId,
    bytes: u64,
    /// First and last step that reads it.
    steps: (usize, usize),
}

/// Place of a streamed weight in the memory for such weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Offset in bytes.
    pub offset: u64,
    /// Size in bytes, aligned.
    pub size: u64,
}

/// Weights of a program that are streamed, and where and when.
///
/// Slots overlap where no step between the first and the last reader of one weight reads the other. Work of a run is in the order of its
/// steps: a weight may be copied once the last step that reads its slot has been started.
#[derive(Clone, Debug, Default)]
pub struct StreamPlan {
    /// Place of each streamed weight.
    pub slots: BTreeMap<ValueId, Slot>,
    /// Weights to copy before each step.
    pub before: Vec<Vec<ValueId>>,
    /// Size of the memory for streamed weights.
    pub bytes: u64,
    /// Bytes of the weights that stay on the device.
    pub resident: u64,
}

impl StreamPlan {
    /// The plan that keeps as many weights on the device as `budget` bytes permit, the memory for streamed ones included; `None` if
    /// all fit. The largest weights stay first, as they decide the size of that memory. Where it costs few more bytes to be copied, a
    /// weight has its memory a step early: it is copied while the kernels in front of its reader run.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] with the least budget, if this one is smaller.
    pub fn new(program: &Program, alignment: u64, budget: u64) -> Result<Option<StreamPlan>, BackendError> {
        let weights = Weights::of(program, alignment);
        if weights.fixed + weights.streamable() <= budget {
            return Ok(None);
        }
        if weights.least() > budget {
            return Err(BackendError::InvalidArgument(format!(
                "the weights want at least {} bytes on the device, of which {} cannot be streamed; the budget is {budget}",
                weights.least(),
                weights.fixed
            )));
        }
        let late = weights.fitting(budget, false);
        let early = (weights.plan(0, true).total() <= budget).then(|| weights.fitting(budget, true));
        let copied = |plan: &StreamPlan| plan.slots.values().map(|s| s.size).sum::<u64>();
        let cheap = |plan: &StreamPlan| copied(plan) <= copied(&late) / 3 * 4;
        Ok(Some(early.filter(cheap).unwrap_or(late)))
    }

    /// For each weight, the steps that read other weights in its memory before it is copied there. `readers` are the steps that read each
    /// weight, in order.
    pub fn blockers(&self, readers: &BTreeMap<ValueId, Vec<usize>>) -> BTreeMap<ValueId, Vec<usize>> {
        let first = |v: &ValueId| readers.get(v).and_then(|steps| steps.first());
        let one = |(v, slot): (&ValueId, &Slot)| {
            let overlaps = |o: &Slot| o.offset < slot.offset + slot.size && slot.offset < o.offset + o.size;
            let before = |o: &ValueId| first(o) < first(v);
            let others = self.slots.iter().filter(|(o, s)| *o != v && overlaps(s) && before(o));
            let mut steps: Vec<usize> =
                others.flat_map(|(o, _)| readers.get(o).into_iter().flatten()).copied().collect();
            steps.sort_unstable();
            steps.dedup();
            (*v, steps)
        };
        self.slots.iter().map(one).collect()
    }

    /// The steps that read each streamed weight.
    pub fn readers(&self, program: &Program) -> BTreeMap<ValueId, Vec<usize>> {
        let mut all: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
        for (s, step) in program.steps.iter().enumerate() {
            let nodes = step.nodes.iter().filter_map(|&n| program.graph.get(n));
            for v in nodes.flat_map(|n| n.inputs.iter().flatten()).filter(|v| self.slots.contains_key(v)) {
                let steps = all.entry(*v).or_default();
                if steps.last() != Some(&s) {
                    steps.push(s);
                }
            }
        }
        all
    }

    /// Bytes of a program's weights that can be streamed.
    pub fn streamable(program: &Program, alignment: u64) -> u64 {
        Weights::of(program, alignment).streamable()
    }

    /// The least budget of a program, in bytes.
    pub fn least(program: &Program, alignment: u64) -> u64 {
        Weights::of(program, alignment).least()
    }

    /// Bytes on the device.
    pub fn total(&self) -> u64 {
        self.resident + self.bytes
    }
}

/// The weights of a program.
struct Weights {
    /// Weights that may be streamed, the largest first.
    candidates: Vec<Candidate>,
    /// Bytes of the others.
    fixed: u64,
    steps: usize,
}

impl Weights {
    fn of(program: &Program, alignment: u64) -> Weights {
        let graph = &program.graph;
        let held = held(graph);
        let mut read: BTreeMap<ValueId, (usize, usize)> = BTreeMap::new();
        for (i, step) in program.steps.iter().enumerate() {
            let nodes = step.nodes.iter().filter_map(|&n| graph.get(n));
            for v in nodes.flat_map(|n| n.inputs.iter().flatten()) {
                read.entry(*v).or_insert((i, i)).1 = i;
            }
        }
        let mut all = Weights { candidates: Vec::new(), fixed: 0, steps: program.steps.len() };
        for (value, tensor) in program.weights() {
            let bytes = (tensor.shared_bytes().len() as u64).max(LEAST).next_multiple_of(alignment.max(1));
            match read.get(&value).filter(|_| !held.contains(&value)) {
                Some(&steps) => all.candidates.push(Candidate { value, bytes, steps }),
                None => all.fixed += bytes,
            }
        }
        all.candidates.sort_by_key(|c| (std::cmp::Reverse(c.bytes), c.steps));
        all
    }

    fn streamable(&self) -> u64 {
        self.candidates.iter().map(|c| c.bytes).sum()
    }

    fn least(&self) -> u64 {
        self.plan(0, false).total()
    }

    /// The plan with the most weights on the device that fit. More weights that stay rarely need less memory.
    fn fitting(&self, budget: u64, early: bool) -> StreamPlan {
        let (mut fits, mut too_many) = (0, self.candidates.len());
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            match self.plan(middle, early).total() <= budget {
                true => fits = middle,
                false => too_many = middle,
            }
        }
        self.plan(fits, early)
    }

    /// The plan with so many of the largest weights on the device. `early`: the others have their memory from the step before that reads
    /// streamed weights.
    fn plan(&self, kept: usize, early: bool) -> StreamPlan {
        let (resident, streamed) = self.candidates.split_at(kept);
        let mut streamed = streamed.to_vec();
        streamed.sort_by_key(|c| (c.steps, std::cmp::Reverse(c.bytes)));
        let mut plan = StreamPlan {
            before: vec![Vec::new(); self.steps],
            resident: self.fixed + resident.iter().map(|c| c.bytes).sum::<u64>(),
            ..StreamPlan::default()
        };
        // Slots in use by offset, with the last step that reads each.
        let mut live: BTreeMap<u64, (Slot, usize)> = BTreeMap::new();
        let (mut step, mut before) = (0, 0);
        for c in streamed {
            if c.steps.0 != step {
                (step, before) = (c.steps.0, step);
            }
            let from = if early { before } else { step };
            live.retain(|_, (_, last)| *last >= from);
            let mut offset = 0;
            for (slot, _) in live.values() {
                if offset + c.bytes <= slot.offset {
                    break;
                }
                offset = offset.max(slot.offset + slot.size);
            }
            let slot = Slot { offset, size: c.bytes };
            live.insert(offset, (slot, c.steps.1));
            plan.bytes = plan.bytes.max(offset + c.bytes);
            plan.slots.insert(c.value, slot);
            plan.before[c.steps.0].push(c.value);
        }
        plan
    }
}

/// Weights that are read outside of the steps that name them: by the caller, through views, or by control flow.
fn held(graph: &Graph) -> HashSet<ValueId> {
    let mut held: HashSet<ValueId> = graph.kept().collect();
    for (_, node) in graph.nodes() {
        if is_view_op(&node.op) || !node.regions.is_empty() {
            held.extend(node.inputs.iter().flatten());
        }
    }
    held
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use crate::Tactic;

    /// A chain of steps with weights of 1, 4, 2 and 3 KiB; the first is read again at the end.
    fn chain() -> Program {
        let mut text = String::from("graph \"g\" { input %x: f32[256] ");
        for (name, n) in [("a", 1), ("b", 4), ("c", 2), ("d", 3)] {
            let all = vec!["1"; 256 * n].join(", ");
            text += &format!("weight %{name}: f32[{n},256] = [{all}] ");
        }
        text += "%p = add(%x, %a) %q = add(%p, %b) %r = add(%q, %q) %s = mul(%x, %c) %t = mul(%x, %d) %u = add(%x, %a) \
                 output %r output %s output %t output %u }";
        let tactic = Tactic::plain("test");
        Program::step_per_node(Graph::from_text(&text).unwrap(), &tactic)
    }

    #[test]
    fn slots_overlap_only_where_no_step_reads_both() {
        let program = chain();
        let plan = StreamPlan::new(&program, 256, 5 << 10).unwrap().unwrap();
        // The first weight stays in its slot throughout, beside the largest of the others.
        assert_eq!((plan.bytes, plan.resident, plan.slots.len()), (5 << 10, 0, 4));
        let named = |name: &str| program.graph.find(name).unwrap();
        let at = |name: &str| plan.slots[&named(name)].offset;
        assert_eq!([at("a"), at("b"), at("c"), at("d")], [0, 1024, 1024, 1024]);
        let before: Vec<usize> = plan.before.iter().map(Vec::len).collect();
        assert_eq!(before, [1, 1, 0, 1, 1, 0]);
    }

    #[test]
    fn weights_have_their_memory_a_step_early_where_that_is_cheap() {
        let mut text = String::from("graph \"g\" { input %x: f32[256] ");
        let names = ["a", "b", "c", "d"];
        for name in names {
            text += &format!("weight %{name}: f32[256] = [{}] ", vec!["1"; 256].join(", "));
        }
        let steps = ["x", "p", "q", "r"].iter().zip(["p", "q", "r", "s"]).zip(names);
        steps.for_each(|((from, to), w)| text += &format!("%{to} = add(%{from}, %{w}) "));
        let program = Program::step_per_node(
            Graph::from_text(&(text + "output %s }")).unwrap(),
            &Tactic::plain("test"),
        );
        let plan = StreamPlan::new(&program, 256, 2 << 10).unwrap().unwrap();
        let at = |name: &str| plan.slots[&program.graph.find(name).unwrap()].offset;
        assert_eq!(names.map(at), [0, 1024, 0, 1024], "two slots in turn");
        let readers = plan.readers(&program);
        let behind = |name: &str| plan.blockers(&readers)[&program.graph.find(name).unwrap()].clone();
        assert_eq!(names.map(behind), [vec![], vec![], vec![0], vec![1]]);
        let least = StreamPlan::new(&program, 256, 1 << 10).unwrap().unwrap();
        assert_eq!((least.bytes, least.slots.len()), (1 << 10, 4), "without room for that, one slot");
    }

    #[test]
    fn budgets_keep_what_fits_and_too_small_ones_are_refused() {
        let program = chain();
        assert_eq!(StreamPlan::streamable(&program, 256), 10 << 10);
        assert_eq!(StreamPlan::least(&program, 256), 5 << 10);
        assert!(StreamPlan::new(&program, 256, 10 << 10).unwrap().is_none(), "all fit");
        for budget in [5u64 << 10, 7 << 10, 8 << 10, 9 << 10] {
            let plan = StreamPlan::new(&program, 256, budget).unwrap().unwrap();
            assert!(plan.total() <= budget && plan.slots.len() < 5, "{budget}: {plan:?}");
        }
        let wide = StreamPlan::new(&program, 256, 8 << 10).unwrap().unwrap();
        assert_eq!(wide.resident, 4 << 10, "the largest weight stays");
        let e = StreamPlan::new(&program, 256, 4 << 10).unwrap_err().to_string();
        assert!(e.contains("at least 5120 bytes") && e.contains("4096"), "{e}");
    }
}
