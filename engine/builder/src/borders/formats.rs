//! Formats of inputs and outputs: which a tensor may have, and the layers between its shape in memory and its dimensions.

use super::{Layers, Packings, enter, leave, share_range};
use crate::{BuildConfig, BuildError};
use kiln_ir::{Dim, Fact, Formats, Graph, IrError, Packing, TensorFormat, TensorType, ValueId};
use kiln_ops::reformat;
use kiln_plan::graph_io;
use std::collections::BTreeMap;

/// Formats that each input or output may have, by name; of those that are not here the linear one.
#[derive(Clone, Debug, Default)]
pub struct Candidates(BTreeMap<String, Vec<Packing>>);

impl Candidates {
    /// The formats that settings and network allow, for the types and dimensions of the graph.
    pub fn new(g: &Graph, config: &BuildConfig) -> Result<Candidates, BuildError> {
        let mut all = g.allowed_formats.clone();
        all.extend(config.io.iter().filter_map(|(name, spec)| Some((name.clone(), spec.formats?))));
        let mut found = BTreeMap::new();
        for t in graph_io(g) {
            let Some(&formats) = all.get(&t.name) else { continue };
            let usable = usable(&t.name, &t.ty(), t.is_shape_input, formats)?;
            found.insert(t.name, usable);
        }
        Ok(Candidates(found))
    }

    /// The first format of each tensor.
    pub fn first(&self) -> Packings {
        let first = |(name, all): (&String, &Vec<Packing>)| Some((name.clone(), *all.first()?));
        self.0.iter().filter_map(first).collect()
    }

    /// Tensors with several formats, and all but their first one.
    pub fn alternatives(&self) -> impl Iterator<Item = (&str, &[Packing])> {
        self.0
            .iter()
            .filter_map(|(name, all)| Some((name.as_str(), all.get(1..)?)))
            .filter(|a| !a.1.is_empty())
    }
}

/// The formats of a set that a tensor can have; an error with the reasons if there is none.
fn usable(
    tensor: &str,
    ty: &TensorType,
    is_shape: bool,
    formats: Formats,
) -> Result<Vec<Packing>, BuildError> {
    let refused = |why: String| BuildError::Format { tensor: tensor.into(), ty: ty.to_string(), why };
    let (mut usable, mut reasons) = (Vec::new(), Vec::new());
    for format in formats.iter() {
        match Packing::new(format, ty.dtype, &ty.dims) {
            Ok(_) if is_shape && format != TensorFormat::Linear => {
                reasons
                    .push("the host reads its elements to compute shapes: only the linear format".to_owned());
            }
            Ok(packing) => usable.push(packing),
            Err(e) => reasons.push(e.to_string()),
        }
    }
    match (usable.is_empty(), reasons.is_empty()) {
        (true, true) => Err(refused("no format is allowed; give one or more".into())),
        (true, false) => Err(refused(reasons.join("; "))),
        _ => Ok(usable),
    }
}

/// Brings inputs and outputs into their formats. Returns those that are not linear.
pub fn apply(g: &mut Graph, config: &mut BuildConfig, chosen: &Packings) -> Result<Packings, IrError> {
    let set: Packings =
        chosen.iter().filter(|(_, p)| !p.is_linear()).map(|(name, p)| (name.clone(), *p)).collect();
    for (name, &packing) in &set {
        let named = |g: &Graph, of: &[ValueId]| of.iter().copied().find(|&v| g.value(v).name == *name);
        if let Some(x) = named(g, &g.inputs) {
            input(g, config, x, packing)?;
        }
        // An input that is an output as well has its format by now.
        if let Some(y) = named(g, &g.outputs).filter(|y| !g.inputs.contains(y)) {
            output(g, config, y, packing)?;
        }
    }
    Ok(set)
}

/// Makes the input physical, with layers behind it that return the tensor.
fn input(g: &mut Graph, config: &mut BuildConfig, x: ValueId, p: Packing) -> Result<(), IrError> {
    let ty = g.ty(x).clone();
    let (name, outputs) = (g.value(x).name.clone(), g.outputs.clone());
    let number = |n: u64| Dim::new(i64::try_from(n).unwrap_or(i64::MAX));
    let physical = TensorType { dtype: ty.dtype, dims: p.physical(&ty.dims, number) };
    g.value_mut(x).fact = Fact::of(physical);
    let v = Layers::new(g, 0, &name).moves(x, reformat::unpack(p, &ty.dims))?;
    g.value_mut(v).fact = Fact::of(ty);
    enter(g, x, v, outputs);
    share_range(config, &name, &g.value(v).name);
    Ok(())
}

/// Adds layers behind the output that return its shape in memory.
fn output(g: &mut Graph, config: &mut BuildConfig, y: ValueId, p: Packing) -> Result<(), IrError> {
    let ty = g.ty(y).clone();
    let name = g.value(y).name.clone();
    let end = g.order().len();
    let v = Layers::new(g, end, &name).moves(y, reformat::pack(p, &ty.dims))?;
    leave(g, y, v);
    share_range(config, &name, &g.value(y).name);
    Ok(())
}
