//! Evaluates layers whose inputs are all constants, with the bits of the oracle, and records the recipe of what was
//! made from named weights. What takes too much work stays in the graph, with a note ([`super::folding`]).

use super::{Pass, PassCx, bytes, pure};
use crate::BuildError;
use kiln_ir::stop::{self, Stop};
use kiln_ir::{DType, Graph, IrError, Node, NodeId, Recipe, Source, Tensor, TensorType, ValueId, Weight};
use kiln_ops::cast::CAST;
use kiln_ops::quantize::DEQUANTIZE;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The pass.
pub const PASS: Pass = Pass { name: "fold-constants", run };

/// Greatest size in bytes of a stored result that has more than twice the elements of its operands. Greater ones are
/// computed faster than read.
const GROWN: u64 = 1 << 20;

/// The pass that leaves codes of weights as they are, which patterns look for; the other pass evaluates what they leave.
pub const BUT_CODES: Pass = Pass { name: "fold-weights", run: run_but_codes };

fn run(g: &mut Graph, cx: &PassCx<'_>) -> Result<usize, BuildError> {
    fold_all(g, cx, |_, _| true)
}

fn run_but_codes(g: &mut Graph, cx: &PassCx<'_>) -> Result<usize, BuildError> {
    fold_all(g, cx, |g, node| !widens_codes(g, node))
}

/// Whether it widens a tensor of at most 8 bits: a dequantization, or a cast to i32.
pub(super) fn widens_codes(g: &Graph, node: &Node) -> bool {
    let narrow =
        |t: &TensorType| t.rank() > 0 && !matches!(t.dtype, DType::I32 | DType::Bool) && t.dtype.bits() <= 8;
    let codes = node.inputs.first().copied().flatten().map(|v| g.ty(v));
    let widens = node.op.is(CAST) && node.op.attrs().dtype("to").is_ok_and(|t| t == DType::I32);
    (node.op.is(DEQUANTIZE) || widens) && codes.is_some_and(narrow)
}

fn fold_all(
    g: &mut Graph,
    cx: &PassCx<'_>,
    wanted: impl Fn(&Graph, &Node) -> bool,
) -> Result<usize, BuildError> {
    if !cx.config.fold {
        return Ok(0);
    }
    let mut gone = HashSet::new();
    let mut readers: HashMap<ValueId, usize> = g.uses().read().map(|(v, u)| (v, u.len())).collect();
    for id in g.order().to_vec() {
        let Some(node) = g.get(id) else { continue };
        if !foldable(g, node, cx.config.fold_limit.min(cx.evaluated)) || !wanted(g, node) {
            continue;
        }
        if !cx.work.folding.allows(g, node) {
            cx.work.folding.leave(g, node);
            continue;
        }
        if stop::state() == Stop::Now {
            return Err(BuildError::Cancelled);
        }
        cx.work.folding.spend(g, node);
        cx.work.folding.done(node);
        let weights = stop::catch(|| fold(g, node)).map_err(|_| BuildError::Cancelled)??;
        let inputs: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
        replace(g, id, weights);
        gone.insert(id);
        for v in inputs {
            let left = readers.entry(v).or_default();
            *left = left.saturating_sub(1);
            if *left == 0 {
                forget(g, v);
            }
        }
    }
    g.remove_nodes(&gone);
    Ok(gone.len())
}

/// Frees the memory of a constant that no layer reads any more.
fn forget(g: &mut Graph, v: ValueId) {
    if g.weight(v).is_some_and(|w| w.name.is_none()) && !g.outputs.contains(&v) {
        let def = g.value_mut(v);
        def.fact.value = None;
        def.source = Source::Dead;
    }
}

/// The layers that this pass will evaluate, in the build itself where this is a trial.
pub fn constant_layers(g: &Graph, cx: &PassCx<'_>) -> HashSet<NodeId> {
    let mut all = HashSet::new();
    for (id, node) in g.nodes() {
        let made = |v: ValueId| g.producer(v).is_some_and(|(p, _)| all.contains(&p));
        if cx.config.fold
            && pure(node)
            && node.inputs.iter().flatten().all(|&v| g.weight(v).is_some() || made(v))
            && node.outputs.iter().all(|&v| bytes(g, v).is_some_and(|b| b <= cx.config.fold_limit))
            && cx.work.folding.allows(g, node)
        {
            all.insert(id);
        }
    }
    all
}

fn foldable(g: &Graph, node: &Node, limit: u64) -> bool {
    let t = node.op.def().traits;
    let given: usize =
        node.inputs.iter().flatten().filter_map(|v| g.weight(*v)).map(|w| w.tensor.len()).sum();
    let small = |v: &ValueId| {
        let ty = g.ty(*v);
        let size = ty.static_volume().and_then(|n| Some((n, ty.dtype.bytes_for(n as u64)?)));
        t.data_dependent
            || size.is_some_and(|(n, b)| b <= limit && (n <= given.saturating_mul(2) || b <= GROWN))
    };
    pure(node)
        && node.inputs.iter().flatten().all(|v| g.weight(*v).is_some())
        && node.outputs.iter().all(small)
}

fn fold(g: &Graph, node: &Node) -> Result<Vec<Weight>, BuildError> {
    let inputs: Vec<Option<Tensor>> =
        node.inputs.iter().map(|v| v.and_then(|v| g.weight(v)).map(|w| w.tensor.clone())).collect();
    let outs =
        kiln_recipes::layer(&node.op, &inputs).map_err(|e| IrError::layer(&node.name, node.op.name(), e))?;
    outs.into_iter()
        .enumerate()
        .map(|(i, tensor)| Ok(Weight { tensor, name: None, recipe: recipe(g, node, i)?.map(Arc::new) }))
        .collect()
}

/// The computation of output `i` from named weights; `None` if no named weight is behind it.
fn recipe(g: &Graph, node: &Node, i: usize) -> Result<Option<Recipe>, IrError> {
    let named = |v: &ValueId| g.weight(*v).is_some_and(|w| w.name.is_some() || w.recipe.is_some());
    if !node.inputs.iter().flatten().any(named) {
        return Ok(None);
    }
    let mut writer = Writer::new(g, HashSet::new());
    if let Some(r) = writer.write(node, i)? {
        return Ok(Some(r));
    }
    // Contents decide on shapes: of such weights the recipe holds what they are now, and they can't be replaced.
    let host = kiln_backend::shape_inputs(&writer.recipe.graph);
    let fixed = host.into_iter().filter_map(|k| writer.recipe.sources.get(k).cloned()).collect();
    Writer::new(g, fixed).write(node, i)
}

/// Writes the recipe of one constant of `g`.
struct Writer<'a> {
    g: &'a Graph,
    recipe: Recipe,
    /// Named weights that become constants of the recipe.
    fixed: HashSet<Arc<str>>,
}

impl<'a> Writer<'a> {
    fn new(g: &'a Graph, fixed: HashSet<Arc<str>>) -> Writer<'a> {
        Writer { g, recipe: Recipe { graph: Graph::new("recipe"), sources: Vec::new() }, fixed }
    }

    /// Output `i` of the node; `None` if its rule refuses what is known of the sources.
    fn write(&mut self, node: &Node, i: usize) -> Result<Option<Recipe>, IrError> {
        let mut inputs = Vec::new();
        for v in &node.inputs {
            inputs.push(v.map(|v| self.include(v)).transpose()?);
        }
        let graph = &mut self.recipe.graph;
        let name = format!("n{}", graph.order().len());
        let Ok(outs) = graph.add_node(&name, node.op.clone(), &inputs) else { return Ok(None) };
        graph.outputs = vec![outs[i]];
        Ok(Some(self.recipe.clone()))
    }

    /// The value of the recipe's graph that stands for a constant of `g`.
    fn include(&mut self, v: ValueId) -> Result<ValueId, IrError> {
        let Some(w) = self.g.weight(v) else {
            return Err(IrError::UnknownTensor(self.g.value(v).name.clone()));
        };
        match (&w.name, &w.recipe) {
            (Some(name), _) if self.fixed.contains(name) => Ok(self.constant(&w.tensor)),
            (Some(name), _) => Ok(self.source(name, w.tensor.ty())),
            (None, Some(inner)) => self.splice(inner),
            (None, None) => Ok(self.constant(&w.tensor)),
        }
    }

    fn constant(&mut self, t: &Tensor) -> ValueId {
        let name = format!("c{}", self.recipe.graph.value_ids().count());
        self.recipe.graph.add_constant(&name, t.clone())
    }

    fn source(&mut self, name: &Arc<str>, ty: TensorType) -> ValueId {
        let r = &mut self.recipe;
        if let Some(i) = r.sources.iter().position(|s| s == name) {
            return r.graph.inputs[i];
        }
        r.sources.push(name.clone());
        r.graph.add_input(name, kiln_ir::Fact::of(ty))
    }

    /// The present elements of a named weight.
    fn named(&self, name: &Arc<str>) -> Result<Tensor, IrError> {
        let mut all = self.g.value_ids().filter_map(|v| self.g.weight(v));
        let found = all.find(|w| w.name.as_ref() == Some(name));
        found.map(|w| w.tensor.clone()).ok_or_else(|| IrError::UnknownTensor(name.to_string()))
    }

    /// Copies an inner recipe in, sharing sources; returns the value of its result.
    fn splice(&mut self, inner: &Recipe) -> Result<ValueId, IrError> {
        let mut map = HashMap::new();
        for (&v, name) in inner.graph.inputs.iter().zip(&inner.sources) {
            let at = match self.fixed.contains(name) {
                true => {
                    let now = self.named(name)?;
                    self.constant(&now)
                }
                false => self.source(name, inner.graph.ty(v).clone()),
            };
            map.insert(v, at);
        }
        for v in inner.graph.value_ids() {
            if let Source::Weight(w) = &inner.graph.value(v).source {
                map.insert(v, self.constant(&w.tensor));
            }
        }
        for (_, n) in inner.graph.nodes() {
            let ins: Vec<_> = n.inputs.iter().map(|v| v.and_then(|v| map.get(&v).copied())).collect();
            let name = format!("n{}", self.recipe.graph.order().len());
            let outs = self.recipe.graph.add_node(&name, n.op.clone(), &ins)?;
            map.extend(n.outputs.iter().copied().zip(outs));
        }
        let result = inner.graph.outputs.first().and_then(|v| map.get(v)).copied();
        result.ok_or_else(|| IrError::Structure("a recipe has no result".into()))
    }
}

/// Puts constants in the place of a node's outputs. The node is still to be removed.
fn replace(g: &mut Graph, id: NodeId, weights: Vec<Weight>) {
    let Some(outputs) = g.get(id).map(|n| n.outputs.clone()) else { return };
    for (v, w) in outputs.into_iter().zip(weights) {
        let def = g.value_mut(v);
        def.fact = kiln_ir::Fact::constant(w.tensor.clone());
        def.source = Source::Weight(w);
    }
}
