//! Replaces what patterns of plug-in layers describe by these layers, where the build asks for it.

use super::patterns::View;
use super::plugin_formats::moved;
use super::writer::Writer;
use super::{Pass, PassCx};
use crate::{BuildError, Refit};
use kiln_ir::{Attr, Attrs, Graph, IrError, NodeId, OpError, TensorType, ValueId};
use kiln_ops::plugin::packings::Packings;
use kiln_ops::plugin::pattern::{Arg, Pattern, PatternNode};
use kiln_ops::plugin::record::LayerRecord;
use kiln_ops::plugin::{self, registry};
use kiln_ops::pointwise::binary::{ADD, MAX, MIN, MUL};
use kiln_ops::reformat;

/// The pass.
pub const PASS: Pass = Pass { name: "plugin-layers", run };

fn run(g: &mut Graph, cx: &PassCx<'_>) -> Result<usize, BuildError> {
    let wanted = &cx.config.replace_by_plugins;
    if wanted.is_empty() {
        return Ok(0);
    }
    let (mut changes, layers) = (0, registry::all());
    for name in wanted {
        let found: Vec<_> = layers.iter().filter(|r| is_named(r, name) && !r.patterns.is_empty()).collect();
        if found.is_empty() {
            let known = list(layers.iter().filter(|r| !r.patterns.is_empty()).map(|r| of(r)));
            return Err(BuildError::NoPattern { name: name.clone(), known });
        }
        for (record, pattern) in found.into_iter().flat_map(|r| r.patterns.iter().map(move |p| (r, p))) {
            // A site may hold another one: the last ones first.
            for root in g.order().to_vec().into_iter().rev() {
                changes += usize::from(replace(g, cx, root, record, pattern)?);
            }
        }
    }
    Ok(changes)
}

fn of(r: &LayerRecord) -> String {
    if r.name.space.is_empty() { r.name.name.clone() } else { format!("{}::{}", r.name.space, r.name.name) }
}

fn list(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// Whether a layer has this name, with or without its namespace.
fn is_named(r: &LayerRecord, name: &str) -> bool {
    r.name.name == name || of(r) == name
}

/// Values, nodes and fields that a pattern has found so far.
#[derive(Clone, Default)]
struct Found {
    inputs: Vec<Option<ValueId>>,
    nodes: Vec<Option<NodeId>>,
    fields: Attrs,
}

/// A search at one place.
struct Site<'a> {
    view: View<'a>,
    pattern: &'a Pattern,
    /// Whether weights with names keep their contents.
    fixed: bool,
}

impl Site<'_> {
    fn value(&self, arg: &Arg, v: ValueId, mut f: Found) -> Option<Found> {
        match arg {
            Arg::Input(i) => {
                let at = f.inputs.get_mut(*i)?;
                (at.replace(v).unwrap_or(v) == v).then_some(f)
            }
            Arg::Node(k) => {
                let (id, _) = self.view.g.producer(v)?;
                self.node(*k, id, f)
            }
            Arg::Field(name) => bind(f, name, Attr::Float(self.scalar(v)?)),
            Arg::Number(n) => {
                let x = self.scalar(v)?;
                (x == *n || x == f64::from(*n as f32)).then_some(f)
            }
        }
    }

    /// The element of a constant that no refit replaces.
    fn scalar(&self, v: ValueId) -> Option<f64> {
        let named = self.view.g.weight(v).is_some_and(|w| w.name.is_some());
        self.view.scalar(v).filter(|_| self.fixed || !named)
    }

    fn node(&self, k: usize, id: NodeId, mut f: Found) -> Option<Found> {
        let (wanted, node) = (self.pattern.nodes.get(k)?, self.view.g.get(id)?);
        if let Some(known) = f.nodes.get(k).copied().flatten() {
            return (known == id).then_some(f);
        }
        let args: Option<Vec<ValueId>> = node.inputs.iter().copied().collect();
        let args = args.filter(|a| a.len() == wanted.args.len() && node.outputs.len() == 1)?;
        if node.op.id() != wanted.op.id() || !node.regions.is_empty() {
            return None;
        }
        f = attributes(wanted, node.op.attrs(), f)?;
        *f.nodes.get_mut(k)? = Some(id);
        let straight = self.args(&wanted.args, &args, f.clone());
        let symmetric = [ADD, MUL, MAX, MIN].iter().any(|&op| node.op.is(op));
        straight.or_else(|| {
            let swapped: Vec<ValueId> = args.iter().rev().copied().collect();
            if symmetric { self.args(&wanted.args, &swapped, f) } else { None }
        })
    }

    fn args(&self, wanted: &[Arg], values: &[ValueId], f: Found) -> Option<Found> {
        wanted.iter().zip(values).try_fold(f, |f, (a, v)| self.value(a, *v, f))
    }
}

/// Fields of the attributes of an operator; none where others than the pattern's are set.
fn attributes(wanted: &PatternNode, attrs: &Attrs, mut f: Found) -> Option<Found> {
    for (name, value) in attrs.iter() {
        f = match wanted.bound.iter().find(|b| b.0 == name) {
            Some((_, field)) => bind(f, field, value.clone())?,
            None if wanted.op.attrs().get(name) == Some(value) => f,
            None => return None,
        };
    }
    Some(f)
}

fn bind(mut f: Found, field: &str, value: Attr) -> Option<Found> {
    if let Some(known) = f.fields.get(field) {
        return (*known == value).then_some(f);
    }
    f.fields.set(field, value);
    Some(f)
}

/// Replaces what ends at a node, if it is what the pattern describes and the layer takes it.
fn replace(
    g: &mut Graph,
    cx: &PassCx<'_>,
    root: NodeId,
    record: &LayerRecord,
    pattern: &Pattern,
) -> Result<bool, BuildError> {
    let fixed = matches!(cx.config.refit, Refit::Off | Refit::Identical);
    let site = Site { view: View::new(g), pattern, fixed };
    let last = pattern.nodes.len().saturating_sub(1);
    let empty = Found {
        inputs: vec![None; pattern.inputs],
        nodes: vec![None; pattern.nodes.len()],
        ..Found::default()
    };
    let Some(f) = site.node(last, root, empty) else { return Ok(false) };
    let nodes: Vec<NodeId> = f.nodes.iter().copied().flatten().collect();
    let inputs: Vec<ValueId> = f.inputs.iter().copied().flatten().collect();
    if inputs.len() != pattern.inputs || !site.view.closed(&nodes, root) {
        return Ok(false);
    }
    let types: Vec<TensorType> = inputs.iter().map(|&v| g.ty(v).clone()).collect();
    // The layer may refuse types or fields: then the operators stay.
    let Ok(op) = plugin::layer_op(record, &f.fields, &types) else { return Ok(false) };
    let Some(old) = g.get(root).and_then(|n| n.outputs.first().copied()) else { return Ok(false) };
    let wanted = g.ty(old).clone();
    let wrong = |e: OpError| BuildError::Graph(IrError::layer(&record.name.name, "plugin", e));
    let packings = Packings::of_attrs(op.attrs()).map_err(wrong)?;
    let mut w = Writer::before(g, root);
    let mut packed = Vec::with_capacity(inputs.len());
    for (i, (v, ty)) in inputs.into_iter().zip(&types).enumerate() {
        packed.push(Some(moved(&mut w, v, reformat::pack(packings.input(i), &ty.dims))?));
    }
    let new = w.node(op.id(), op.attrs().clone(), &packed)?;
    let dims = Packings::dims(packings.output(0), &w.g.ty(new).dims.clone()).map_err(wrong)?;
    let new = moved(&mut w, new, reformat::unpack(packings.output(0), &dims))?;
    let replaced = *w.g.ty(new) == wanted && w.replace(root, new);
    g.remove_dead();
    Ok(replaced)
}
