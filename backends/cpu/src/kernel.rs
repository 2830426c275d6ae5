//! Schedule of a program's steps: operations in order, with the last use of every value.

use crate::fast::form::Form;
use crate::fast::kept::Kept;
use crate::fast::panels;
use crate::fast::pointwise::Made;
use crate::fast::pointwise::tail::Tail;
use crate::fast::{self, RunCx, Types};
use crate::tactics::FAST;
use crate::value::Val;
use kiln_backend::{BackendError, Program, Step, Tactic};
use kiln_ir::graph::Uses;
use kiln_ir::{
    Bytes, BytesId, DType, Graph, IrError, Node, NodeId, Source, Tensor, TensorType, Value, ValueId,
    WeakBytes,
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Operations of all steps.
pub(crate) struct Schedule {
    /// Operations of each step, by case of the program.
    cases: Vec<Vec<Vec<Operation>>>,
    /// Values that lie between steps and can be observed.
    pub(crate) border: HashSet<ValueId>,
}

/// One thing to do.
pub(crate) struct Operation {
    /// The node; of a group of nodes, the last.
    pub(crate) node: NodeId,
    /// Implementation.
    work: Work,
    /// Values read.
    pub(crate) inputs: Vec<Option<ValueId>>,
    /// Whether this is the last use of each input.
    pub(crate) last: Vec<bool>,
    /// Values defined.
    pub(crate) outputs: Vec<ValueId>,
    /// Whether nobody reads each output.
    pub(crate) unused: Vec<bool>,
    /// Pointwise nodes after its own; their inputs are behind those of the node.
    tail: Option<Last>,
}

/// Implementation of an operation.
enum Work {
    /// The reference implementation.
    Oracle,
    /// A fast path, where it covers the case.
    Path(fast::Path, usize, Option<Kept>),
    /// Part of a group of pointwise nodes.
    Fused(Box<Made>),
}

/// Pointwise nodes that an operation computes after its own.
struct Last {
    made: Box<Made>,
    /// The node of the result.
    node: NodeId,
    /// Place of the operation's own result among the inputs.
    own: usize,
}

impl Schedule {
    /// Takes a program apart; an error where its steps name nodes that do not exist. `fixed` says that inputs are the same in every run.
    pub(crate) fn new(program: &Program, fixed: bool) -> Result<Schedule, BackendError> {
        let uses = program.graph.uses();
        let varies = program.steps.iter().any(|s| !s.alternatives.is_empty());
        let mut cases = Vec::new();
        for case in 0..if varies { program.cases.len() as u32 } else { 1 } {
            let steps = program.steps.iter().map(|s| operations(&program.graph, s, (case, fixed), &uses));
            let mut steps = steps.collect::<Result<Vec<_>, _>>()?;
            mark_last_uses(&program.graph, &mut steps);
            cases.push(steps);
        }
        Ok(Schedule { border: program.border(), cases })
    }

    /// Packs the weights that operations read as panels only, and drops their elements: the program's weights are then made of the panels
    /// where somebody reads them. Returns these weights.
    pub(crate) fn pack(&mut self, program: &mut Program) -> Result<HashSet<ValueId>, BackendError> {
        let graph = &program.graph;
        let mut others: HashSet<ValueId> = graph.outputs.iter().copied().collect();
        let mut readers: HashMap<ValueId, Vec<(&mut Option<Kept>, Form)>> = HashMap::new();
        for op in self.cases.iter_mut().flatten().flatten() {
            let form = fast::form_of_weights(&Types::new(graph, node(graph, op.node)?));
            let kept = match &mut op.work {
                Work::Path(_, _, kept @ Some(_)) => Some(kept),
                _ => None,
            };
            let own = kept.zip(form).zip(op.inputs.get(1).copied().flatten());
            let at = own.is_some().then_some(1);
            others
                .extend(op.inputs.iter().enumerate().filter(|(i, _)| Some(*i) != at).filter_map(|(_, v)| *v));
            if let Some((reader, v)) = own {
                readers.entry(v).or_default().push(reader);
            }
        }
        let mut made = HashSet::new();
        // New bytes by the old ones: equal weights share both.
        let mut made_of: BTreeMap<(BytesId, Form), (WeakBytes, Bytes)> = BTreeMap::new();
        readers.retain(|v, _| !others.contains(v));
        for (v, readers) in readers {
            let graph = &mut program.graph;
            let Some(weight) = graph.weight(v).map(|w| w.tensor.clone()) else { continue };
            if weight.dtype() != DType::F32 || readers.iter().any(|(_, f)| f.len() != weight.len()) {
                continue;
            }
            let (id, mut source) = (weight.shared_bytes().id(), None);
            for (kept, form) in readers {
                let bytes =
                    made_of.get(&(id, form)).map_or_else(|| weight.shared_bytes(), |(_, b)| b.clone());
                let panels = match panels::of_bytes(&bytes, form) {
                    Some(known) => known,
                    // Elements that are not aligned are left to the first run.
                    None => match weight.view::<f32>() {
                        Some(data) => form.pack(data)?,
                        None => break,
                    },
                };
                *kept = Some(Kept::whole(&panels));
                source = Some((form, panels));
            }
            let Some((form, panels)) = source else { continue };
            if panels::of_bytes(&weight.shared_bytes(), form).is_none() {
                let old = weight.shared_bytes().downgrade();
                let (_, bytes) = made_of.entry((id, form)).or_insert_with(|| (old, form.bytes(panels)));
                let tensor = Tensor::from_bytes(DType::F32, weight.shape(), bytes.clone());
                drop(weight);
                let wrong = || BackendError::Internal(format!("{v:?} has another size"));
                replace(graph, v, tensor.ok_or_else(wrong)?);
            }
            made.insert(v);
        }
        Ok(made)
    }

    /// Operations of a step in a case.
    pub(crate) fn step(&self, index: usize, case: u32) -> &[Operation] {
        let steps = self.cases.get(case as usize).or(self.cases.first());
        steps.and_then(|s| s.get(index)).map_or(&[], Vec::as_slice)
    }
}

fn operations(
    graph: &Graph,
    step: &Step,
    (case, fixed): (u32, bool),
    uses: &Uses,
) -> Result<Vec<Operation>, BackendError> {
    let tactic = step.tactic_in(case);
    let fast = tactic.name == FAST;
    let depth = fast.then(|| depth(tactic));
    let (mut groups, inside) =
        if fast { fast::pointwise::plan(graph, &step.nodes, uses) } else { Default::default() };
    let mut operations = Vec::with_capacity(step.nodes.len());
    for &id in step.nodes.iter().filter(|n| !inside.contains(n)) {
        let node = node(graph, id)?;
        operations.push(match groups.remove(&id) {
            Some(f) => Operation::fused(f, node),
            None => Operation::single(id, graph, node, (depth, fixed)),
        });
    }
    Ok(with_tails(graph, operations, (&step.nodes, uses)))
}

/// Joins operations of one result with the pointwise ones that alone read them.
fn with_tails(graph: &Graph, all: Vec<Operation>, (nodes, uses): (&[NodeId], &Uses)) -> Vec<Operation> {
    let mut readers: HashMap<ValueId, usize> = HashMap::new();
    for v in all.iter().flat_map(|o| o.inputs.iter().flatten()) {
        *readers.entry(*v).or_default() += 1;
    }
    let alone = |v: &ValueId| {
        let inside = uses.of_value(*v).iter().all(|(reader, _)| nodes.contains(reader));
        inside && !uses.is_output(*v) && readers.get(v) == Some(&1)
    };
    let mut joined: Vec<Operation> = Vec::with_capacity(all.len());
    for op in all {
        let place = joined.iter().position(|before| before.leads_to(&op, graph) && alone(&before.outputs[0]));
        // Its other operands are there before the operation that it joins runs.
        let ready = |at: usize| {
            let later = joined[at..].iter().flat_map(|o| &o.outputs);
            let own = joined[at].outputs[0];
            later.filter(|&&v| v != own).all(|v| !op.inputs.contains(&Some(*v)))
        };
        match (place.filter(|&at| ready(at)), op.work) {
            (Some(at), Work::Fused(made)) => {
                let before = &mut joined[at];
                let own = op.inputs.iter().position(|v| *v == Some(before.outputs[0])).unwrap_or_default();
                before
                    .inputs
                    .extend(op.inputs.iter().enumerate().filter(|(i, _)| *i != own).map(|(_, v)| *v));
                before.last = vec![false; before.inputs.len()];
                before.outputs = op.outputs;
                before.unused = op.unused;
                before.tail = Some(Last { made, node: op.node, own });
            }
            (_, work) => joined.push(Operation { work, ..op }),
        }
    }
    joined
}

/// Replaces the storage of a weight by another one of the same elements.
fn replace(graph: &mut Graph, v: ValueId, tensor: Tensor) {
    let value = graph.value_mut(v);
    if let Some(Value::Const(known)) = &mut value.fact.value {
        *known = tensor.clone();
    }
    if let Source::Weight(w) = &mut value.source {
        w.tensor = tensor;
    }
}

/// The depth of blocks that a tactic asks for.
fn depth(tactic: &Tactic) -> usize {
    tactic.params.get("depth").and_then(|&d| usize::try_from(d).ok()).unwrap_or(fast::gemm::DEPTH)
}

pub(crate) fn node(graph: &Graph, id: NodeId) -> Result<&Node, BackendError> {
    graph.get(id).ok_or_else(|| BackendError::InvalidArgument(format!("{id:?} is no node of the program")))
}

impl Operation {
    /// Operation of one node: a path with blocks of this depth, or the oracle.
    fn single(id: NodeId, graph: &Graph, node: &Node, (depth, fixed): (Option<usize>, bool)) -> Operation {
        let path = fast::of(graph, node).map(|k| k.run).zip(depth);
        let weight = |v: ValueId| match graph.value(v).source {
            Source::Weight(_) => true,
            Source::Input => fixed,
            _ => false,
        };
        let kept = node.inputs.get(1).copied().flatten().is_some_and(weight).then(Kept::default);
        Operation {
            node: id,
            work: path.map_or(Work::Oracle, |(path, depth)| Work::Path(path, depth, kept)),
            inputs: node.inputs.clone(),
            last: vec![false; node.inputs.len()],
            outputs: node.outputs.clone(),
            unused: vec![false; node.outputs.len()],
            tail: None,
        }
    }

    fn fused(f: fast::pointwise::Fused, node: &Node) -> Operation {
        Operation {
            node: f.root,
            work: Work::Fused(Box::new(Made::new(f.expr))),
            last: vec![false; f.inputs.len()],
            inputs: f.inputs.into_iter().map(Some).collect(),
            outputs: node.outputs.clone(),
            unused: vec![false; node.outputs.len()],
            tail: None,
        }
    }

    /// Whether another operation is pointwise, of elements of whole bytes, and reads the only result of this one, which has its shape.
    fn leads_to(&self, other: &Operation, graph: &Graph) -> bool {
        let ([own], [to], Work::Path(..), Work::Fused(_), None) =
            (&self.outputs[..], &other.outputs[..], &self.work, &other.work, &self.tail)
        else {
            return false;
        };
        let (a, b) = (graph.ty(*own), graph.ty(*to));
        let whole = other.inputs.iter().flatten().chain([to]).all(|v| graph.ty(*v).dtype.bits() >= 8);
        other.inputs.contains(&Some(*own))
            && whole
            && a.dims == b.dims
            && [DType::F32, DType::I32].contains(&a.dtype)
    }

    /// Runs it. Errors name the layer.
    pub(crate) fn run(&self, cx: &RunCx<'_>, mut args: Vec<Option<Val>>) -> Result<Vec<Val>, BackendError> {
        let node = node(cx.graph, self.node)?;
        match &self.work {
            Work::Fused(expr) => return Ok(vec![fast::pointwise::run(expr, node, args, cx)?]),
            Work::Path(path, depth, kept) => {
                let mut rest = args.split_off(node.inputs.len().min(args.len()));
                check_indices(node, &args)?;
                if let Some(empty) = node.op.empty_results(&cx.types(node)) {
                    return self.finish(empty.into_iter().map(Val::Shared).collect(), rest, cx);
                }
                let shape = self.outputs.first().and_then(|v| cx.shapes.shape(*v));
                let tail = self.tail.as_ref().zip(shape);
                if let Some((last, _)) = &tail {
                    rest.insert(last.own, None);
                }
                let tail = tail.map(|(last, shape)| Tail::new(&last.made, &rest, &shape));
                let how = (*depth, kept.as_ref(), tail.as_ref(), self.unused.as_slice());
                let done = fast::run(*path, node, &mut args, cx, how)?;
                drop(tail);
                let outs = match done {
                    Some((outs, true)) => return Ok(outs),
                    Some((outs, false)) => outs,
                    None => {
                        cx.fell_back.set(true);
                        oracle(node, &args)?
                    }
                };
                return self.finish(outs, rest, cx);
            }
            Work::Oracle => {}
        }
        oracle(node, &args)
    }

    /// Computes the tail, if there is one, of results that its kernel left without it.
    fn finish(
        &self,
        mut outs: Vec<Val>,
        mut rest: Vec<Option<Val>>,
        cx: &RunCx<'_>,
    ) -> Result<Vec<Val>, BackendError> {
        let Some(last) = &self.tail else { return Ok(outs) };
        match rest.get_mut(last.own) {
            Some(own @ None) => *own = outs.pop(),
            // Shapes were not known.
            _ => rest.insert(last.own.min(rest.len()), outs.pop()),
        }
        Ok(vec![fast::pointwise::run(&last.made, node(cx.graph, last.node)?, rest, cx)?])
    }
}

impl RunCx<'_> {
    /// The types of a node's results as far as they are known.
    fn types(&self, node: &Node) -> Vec<TensorType> {
        node.outputs.iter().map(|&v| self.shapes.fact(v).ty.clone()).collect()
    }
}

/// Refuses index inputs that hold something out of range. The oracle does so by itself.
fn check_indices(node: &Node, args: &[Option<Val>]) -> Result<(), BackendError> {
    if node.op.def().ranges.is_none() {
        return Ok(());
    }
    let dims = |v: &Val| v.shape().iter().map(|&n| n as i64).collect::<Vec<_>>();
    let dims: Vec<_> = args.iter().map(|v| v.as_ref().map(dims)).collect();
    let checked = node.op.index_ranges(&dims).and_then(|ranges| {
        for range in ranges {
            let Some(v) = args.get(range.input).and_then(Option::as_ref) else { continue };
            if !fast::indices::all_inside(&range, v)
                && let Ok(t) = v.tensor()
            {
                range.check(node.op.def(), &t)?;
            }
        }
        Ok(())
    });
    Ok(checked.map_err(|e| IrError::layer(&node.name, node.op.name(), e))?)
}

/// Evaluates a node with its reference implementation.
fn oracle(node: &Node, args: &[Option<Val>]) -> Result<Vec<Val>, BackendError> {
    let ins: Vec<Option<Tensor>> =
        args.iter().map(|v| v.as_ref().map(Val::tensor).transpose()).collect::<Result<_, _>>()?;
    Ok(node.eval(&ins)?.into_iter().map(Val::shared).collect())
}

fn mark_last_uses(graph: &Graph, steps: &mut [Vec<Operation>]) {
    let mut later: HashSet<ValueId> = graph.outputs.iter().copied().collect();
    for op in steps.iter_mut().flatten().rev() {
        for (v, unused) in op.outputs.iter().zip(&mut op.unused) {
            *unused = !later.contains(v);
        }
        for (v, last) in op.inputs.iter().zip(&mut op.last).rev() {
            if let Some(v) = v {
                *last = later.insert(*v);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::{Attrs, Fact, Op};

    /// Operations of one step with a product, a function of it, and, if asked for, the product among the results.
    fn count(marked: bool) -> usize {
        let mut g = Graph::new("step");
        let ty = |dims: [i64; 2]| Fact::of(TensorType::new(DType::F32, dims));
        let (a, b) = (g.add_input("a", ty([3, 4])), g.add_input("b", ty([4, 5])));
        let op = |name: &str| Op::new(name, Attrs::new()).unwrap();
        let product = g.add_node("product", op("matmul"), &[Some(a), Some(b)]).unwrap()[0];
        let relu = g.add_node("relu", op("relu"), &[Some(product)]).unwrap()[0];
        g.outputs = if marked { vec![relu, product] } else { vec![relu] };
        let tactic = Tactic::plain(FAST);
        let mut program = Program::step_per_node(g.clone(), &tactic);
        program.steps = vec![Step::new("all", g.order().to_vec(), tactic, Bytes::from(Vec::new()))];
        Schedule::new(&program, false).unwrap().step(0, 0).len()
    }

    /// Whether each weight of a program is dropped: those of a product, of one that an output is made of, and of a sum.
    #[test]
    fn weights_that_are_read_as_panels_only_are_dropped() {
        let weights = |second: &str| {
            let text = format!(
                "graph \"g\" {{ input %x: f32[5,3] weight %w: f32[3,2] = [1,2,3,4,5,6] %y = matmul(%x, %w) {second} output %y }}"
            );
            let mut program = Program::step_per_node(Graph::from_text(&text).unwrap(), &Tactic::plain(FAST));
            let before: Vec<_> = program.weights().map(|(_, t)| t.to_f64()).collect();
            let storage: Vec<_> = program.weights().map(|(_, t)| t.shared_bytes().downgrade()).collect();
            let made = Schedule::new(&program, false).unwrap().pack(&mut program).unwrap().len();
            let gone = storage.iter().filter(|w| w.upgrade().is_none()).count();
            assert_eq!(gone, made, "the elements of packed weights are dropped");
            let after: Vec<_> = program.weights().map(|(_, t)| t.to_f64()).collect();
            assert_eq!(before, after);
            made
        };
        assert_eq!(weights(""), 1);
        assert_eq!(weights("%z = matmul(%x, %w) output %z"), 1);
        assert_eq!(weights("output %w"), 0);
        assert_eq!(weights("%z = relu(%w) output %z"), 0);
    }

    #[test]
    fn kernels_take_the_pointwise_layers_that_alone_read_them() {
        assert_eq!([count(false), count(true)], [1, 2]);
    }
}
