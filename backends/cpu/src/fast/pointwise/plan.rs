//! Choice of the pointwise nodes of a step that become one expression.

use crate::fast::nibbles::widened;
use kiln_ir::expr::{Builder, Expr};
use kiln_ir::graph::Uses;
use kiln_ir::{Attrs, DType, Graph, Node, NodeId, OpError, ValueId};
use std::collections::{HashMap, HashSet};

/// A group of nodes with one result.
#[derive(Clone, Debug)]
pub(crate) struct Fused {
    /// The node of the result.
    pub(crate) root: NodeId,
    /// Expression of `inputs` that it computes.
    pub(crate) expr: Expr,
    /// Values read, each once.
    pub(crate) inputs: Vec<ValueId>,
}

/// Longer expressions are not made.
const MAX_INSTS: usize = 256;

/// The groups of a step's nodes by their last node, and the nodes that live inside a group.
pub(crate) fn plan(g: &Graph, nodes: &[NodeId], uses: &Uses) -> (HashMap<NodeId, Fused>, HashSet<NodeId>) {
    let mut groups: HashMap<NodeId, Fused> = HashMap::new();
    let mut inside = HashSet::new();
    for &id in nodes {
        let Some(node) = g.get(id) else { continue };
        let Some(own) = expression(g, node) else { continue };
        let present: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
        // Producers in this step whose only reader this node is, of the same shape, can be computed here.
        let inner: Vec<Option<&Fused>> = present
            .iter()
            .map(|v| {
                let (from, _) = g.producer(*v)?;
                let only = uses.of_value(*v).iter().all(|(reader, _)| *reader == id);
                let same = g.ty(*v).dims == g.ty(*node.outputs.first()?).dims;
                let free = only && same && !uses.is_output(*v);
                groups.get(&from).filter(|_| free)
            })
            .collect();
        let fused = join(id, &own, &present, &inner).unwrap_or_else(|| Fused {
            root: id,
            expr: own,
            inputs: present.clone(),
        });
        let taken: Vec<NodeId> = inner.iter().flatten().map(|f| f.root).collect();
        if fused.inputs != present {
            for n in taken {
                inside.insert(n);
                groups.remove(&n);
            }
        }
        groups.insert(id, fused);
    }
    (groups, inside)
}

/// Whether a node has an expression that lanes evaluate.
pub(crate) fn covers(g: &Graph, node: &Node) -> bool {
    expression(g, node).is_some()
}

/// The expression of a node, if it has one over types that lanes hold and no input is absent in between.
fn expression(g: &Graph, node: &Node) -> Option<Expr> {
    let make: fn(&Attrs, &[DType]) -> Result<Expr, OpError> = node.op.def().expr?;
    let given = node.inputs.iter().rposition(Option::is_some)? + 1;
    let types: Vec<DType> =
        node.inputs.get(..given)?.iter().map(|v| v.map(|v| g.ty(v).dtype)).collect::<Option<_>>()?;
    make(node.op.attrs(), &types).ok().map(widened)
}

/// One expression for a node and the groups that give its inputs; `None` if it would be too long.
fn join(root: NodeId, own: &Expr, present: &[ValueId], inner: &[Option<&Fused>]) -> Option<Fused> {
    let mut inputs: Vec<ValueId> = Vec::new();
    let mut types: Vec<DType> = Vec::new();
    let mut add = |v: ValueId, t: DType| {
        if !inputs.contains(&v) {
            inputs.push(v);
            types.push(t);
        }
    };
    let mut length = own.insts.len();
    for (i, v) in present.iter().enumerate() {
        match inner.get(i).copied().flatten() {
            Some(f) => {
                length += f.expr.insts.len();
                f.inputs.iter().zip(&f.expr.inputs).for_each(|(v, t)| add(*v, *t));
            }
            None => add(*v, *own.inputs.get(i)?),
        }
    }
    if length > MAX_INSTS {
        return None;
    }
    let mut b = Builder::new(&types);
    let registers: Vec<_> = (0..inputs.len()).map(|i| b.input(i)).collect();
    let at = |v: &ValueId| Some(registers[inputs.iter().position(|x| x == v)?]);
    let mut args = Vec::new();
    for (i, v) in present.iter().enumerate() {
        args.push(match inner.get(i).copied().flatten() {
            Some(f) => {
                let from: Option<Vec<_>> = f.inputs.iter().map(at).collect();
                b.inline(&f.expr, &from?)
            }
            None => at(v)?,
        });
    }
    let result = b.inline(own, &args);
    let expr = b.finish(result, own.result_type());
    Some(Fused { root, expr, inputs })
}
