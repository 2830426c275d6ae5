//! Schedule of a program's steps: operations in order, with the last use of every value.

use crate::fast::{self, RunCx};
use crate::tactics::FAST;
use crate::value::Val;
use kiln_backend::{BackendError, Program, Step, Tactic};
use kiln_ir::expr::Expr;
use kiln_ir::graph::Uses;
use kiln_ir::{Graph, IrError, Node, NodeId, Tensor, TensorType, ValueId};
use std::collections::HashSet;

/// Operations of all steps.
pub(crate) struct Schedule {
    /// Operations of each step of the program.
    pub(crate) steps: Vec<Vec<Operation>>,
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
    Path(fast::Path, usize),
    /// Part of a group of pointwise nodes.
    Fused(Box<Expr>),
}

impl Schedule {
    /// Takes a program apart; an error where its steps name nodes that do not exist.
    pub(crate) fn new(program: &Program) -> Result<Schedule, BackendError> {
        let mut steps = Vec::with_capacity(program.steps.len());
        let uses = program.graph.uses();
        for step in &program.steps {
            steps.push(operations(&program.graph, step, &uses)?);
        }
        mark_last_uses(&program.graph, &mut steps);
        Ok(Schedule { border: program.border(), steps })
    }
}

fn operations(graph: &Graph, step: &Step, uses: &Uses) -> Result<Vec<Operation>, BackendError> {
    let fast = step.tactic.name == FAST;
    let depth = fast.then(|| depth(&step.tactic));
    let (mut groups, inside) =
        if fast { fast::pointwise::plan(graph, &step.nodes, uses) } else { Default::default() };
    let mut operations = Vec::with_capacity(step.nodes.len());
    for &id in step.nodes.iter().filter(|n| !inside.contains(n)) {
        let node = node(graph, id)?;
        operations.push(match groups.remove(&id) {
            Some(f) => Operation::fused(f, node),
            None => Operation::single(id, graph, node, depth),
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
    fn single(id: NodeId, graph: &Graph, node: &Node, depth: Option<usize>) -> Operation {
        let path = fast::of(graph, node).map(|k| k.run).zip(depth);
        Operation {
            node: id,
            work: path.map_or(Work::Oracle, |(path, depth)| Work::Path(path, depth)),
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
            Work::Path(path, depth) => {
                check_indices(node, &args)?;
                if let Some(empty) = node.op.empty_results(&cx.types(node)) {
                    return Ok(empty.into_iter().map(Val::Shared).collect());
                }
                if let Some(outs) = fast::run(*path, node, &mut args, cx, *depth)? {
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
