//! Merges transposes that follow each other, and turns those that only move dimensions of 1 into reshapes.
//!
//! Transposes that cancel become one that moves nothing, which `canonicalize` removes.

use super::{Pass, PassCx};
use crate::BuildError;
use kiln_ir::infer::normalize_axis;
use kiln_ir::{Attr, Attrs, Dim, Graph, IrError, Node, NodeId, Op, Tensor, ValueId};
use kiln_ops::shape::RESHAPE;
use kiln_ops::transpose::TRANSPOSE;

/// The pass.
pub const PASS: Pass = Pass { name: "merge-transposes", run };

fn run(g: &mut Graph, _: &PassCx<'_>) -> Result<usize, BuildError> {
    let mut changes = 0;
    for id in g.order().to_vec() {
        if g.get(id).is_none_or(|n| !n.op.is(TRANSPOSE)) {
            continue;
        }
        changes += usize::from(merge(g, id)?);
        changes += usize::from(flatten(g, id)?);
    }
    Ok(changes + g.remove_dead())
}

/// Input of a transpose, and its permutation.
fn read(g: &Graph, node: &Node) -> Option<(ValueId, Vec<usize>)> {
    let x = node.inputs.first().copied().flatten().filter(|_| node.op.is(TRANSPOSE))?;
    Some((x, order(node.op.attrs(), g.ty(x).rank())?))
}

/// Axis of a transpose's input for each axis of its output.
pub(super) fn order(attrs: &Attrs, rank: usize) -> Option<Vec<usize>> {
    match attrs.ints("perm").ok()? {
        [] => Some((0..rank).rev().collect()),
        perm => perm.iter().map(|&p| normalize_axis(p, rank, "perm").ok()).collect(),
    }
}

/// Reads what a transpose before it reads.
fn merge(g: &mut Graph, id: NodeId) -> Result<bool, IrError> {
    let both = |g: &Graph| {
        let (x, outer) = read(g, g.get(id)?)?;
        let (source, inner) = read(g, g.producer(x)?.1)?;
        Some((source, outer.iter().map(|&p| inner[p] as i64).collect::<Vec<_>>()))
    };
    let Some((source, perm)) = both(g) else { return Ok(false) };
    let op = Op::new(TRANSPOSE, Attrs::new().with("perm", perm))?;
    if let Some(node) = g.get_mut(id) {
        node.op = op;
        node.inputs = vec![Some(source)];
    }
    Ok(true)
}

/// Makes a reshape of a transpose that keeps the order of all dimensions but those of 1.
fn flatten(g: &mut Graph, id: NodeId) -> Result<bool, IrError> {
    let Some((x, perm)) = g.get(id).and_then(|n| read(g, n)) else { return Ok(false) };
    let dims = g.ty(x).dims.clone();
    let moved: Vec<usize> = perm.iter().copied().filter(|&p| !dims[p].is(1)).collect();
    if perm.is_sorted() || !moved.is_sorted() {
        return Ok(false);
    }
    let to: Vec<Dim> = perm.iter().map(|&p| dims[p].clone()).collect();
    let Some(to) = sizes(&dims, &to) else { return Ok(false) };
    let shape = Tensor::i64(&[to.len()], &to)
        .ok_or_else(|| IrError::Structure("a shape could not be made".into()))?;
    let op = Op::new(RESHAPE, Attrs::new().with("allow_zero", Attr::Bool(false)))?;
    let name = g.unique_name(&format!("{}.shape", g.get(id).map_or("", |n| n.name.as_str())));
    let shape = g.add_constant(&name, shape);
    if let Some(node) = g.get_mut(id) {
        node.op = op;
        node.inputs = vec![Some(x), Some(shape)];
    }
    Ok(true)
}

/// The second input of a reshape: numbers, and 0 for an unknown dimension that stays in its place.
fn sizes(from: &[Dim], to: &[Dim]) -> Option<Vec<i64>> {
    let size = |(i, d): (usize, &Dim)| match d.as_const() {
        None if from.get(i) == Some(d) => Some(0),
        n => n.filter(|&n| n > 0),
    };
    to.iter().enumerate().map(size).collect()
}
