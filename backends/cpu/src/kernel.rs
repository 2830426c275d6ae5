//! Schedule of a program's steps: operations in order, with the last use of every value.

use crate::fast::kept::Kept;
use crate::fast::{self, RunCx};
use crate::tactics::FAST;
use crate::value::Val;
use kiln_backend::{BackendError, Program, Step, Tactic};
use kiln_ir::expr::Expr;
use kiln_ir::graph::Uses;
use kiln_ir::{Graph, IrError, Node, NodeId, Source, Tensor, TensorType, ValueId};
use std::collections::HashSet;

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
}

/// Implementation of an operation.
enum Work {
    /// The reference implementation.
    Oracle,
    /// A fast path, where it covers the case.
    Path(fast::Path, usize, Option<Kept>),
    /// Part of a group of pointwise nodes.
    Fused(Box<Expr>),
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
    Ok(operations)
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
        }
    }

    fn fused(f: fast::pointwise::Fused, node: &Node) -> Operation {
        Operation {
            node: f.root,
            work: Work::Fused(Box::new(f.expr)),
            last: vec![false; f.inputs.len()],
            inputs: f.inputs.into_iter().map(Some).collect(),
            outputs: node.outputs.clone(),
            unused: vec![false; node.outputs.len()],
        }
    }

    /// Runs it. Errors name the layer.
    pub(crate) fn run(&self, cx: &RunCx<'_>, mut args: Vec<Option<Val>>) -> Result<Vec<Val>, BackendError> {
        let node = node(cx.graph, self.node)?;
        match &self.work {
            Work::Fused(expr) => return Ok(vec![fast::pointwise::run(expr, node, args, cx)?]),
            Work::Path(path, depth, kept) => {
                check_indices(node, &args)?;
                if let Some(empty) = node.op.empty_results(&cx.types(node)) {
                    return Ok(empty.into_iter().map(Val::Shared).collect());
                }
                if let Some(outs) = fast::run(*path, node, &mut args, cx, (*depth, kept.as_ref()))? {
                    return Ok(outs);
                }
                cx.fell_back.set(true);
            }
            Work::Oracle => {}
        }
        oracle(node, &args)
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
    let shapes: Vec<_> = args.iter().map(|v| v.as_ref().map(|v| v.shape().to_vec())).collect();
    let tensor = |i: usize| args.get(i)?.as_ref()?.tensor().ok();
    let checked = node.op.check_indices(&shapes, tensor);
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
