//! Layers of plug-ins.

use crate::{Body, Layer, LayerDef, Network, NetworkError, TensorId};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::error::{IrError, OpError};
use kiln_ir::graph::ValueId;
use kiln_ops::plugin::layer_op;
use kiln_ops::plugin::packings::Packings;
use kiln_ops::plugin::record::{LayerName, LayerRecord};
use kiln_ops::plugin::registry;
use kiln_ops::reformat::{self, Move};
use std::sync::Arc;

/// Name and fields of a plug-in layer. Its library must be loaded when the layer is added.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PluginSpec {
    /// Namespace of the name; may be empty.
    pub namespace: String,
    /// Name of the layer.
    pub name: String,
    /// Version of the layer; `None`: the newest that is loaded.
    pub version: Option<String>,
    /// Fields that differ from their defaults.
    pub fields: Attrs,
}

impl PluginSpec {
    /// The newest version of a layer, with the defaults of its fields.
    pub fn new(namespace: &str, name: &str) -> PluginSpec {
        PluginSpec { namespace: namespace.into(), name: name.into(), ..PluginSpec::default() }
    }

    /// This version of it.
    pub fn version(self, version: &str) -> PluginSpec {
        PluginSpec { version: Some(version.into()), ..self }
    }

    /// With a field.
    pub fn field(mut self, name: &str, value: impl Into<Attr>) -> PluginSpec {
        self.fields.set(name, value);
        self
    }

    /// The loaded layer of this name, or what to install.
    pub fn find(&self) -> Result<Arc<LayerRecord>, OpError> {
        registry::find(&self.namespace, &self.name, self.version.as_deref()).ok_or_else(|| {
            let version = self.version.clone().unwrap_or_else(|| "any".into());
            registry::missing(
                &LayerName { space: self.namespace.clone(), name: self.name.clone(), version },
                "",
            )
        })
    }
}

/// See [`Network::add_plugin`].
#[derive(Clone, Debug)]
pub struct Plugin {
    pub record: Arc<LayerRecord>,
    pub fields: Attrs,
}

impl Network {
    /// A layer that a plug-in defines. Types and shapes of outputs follow from its definition.
    pub fn add_plugin(
        &mut self,
        inputs: &[TensorId],
        spec: PluginSpec,
    ) -> Result<Layer<'_, Plugin>, NetworkError> {
        self.add_named_plugin("", inputs, spec)
    }

    /// As [`Network::add_plugin`], with a name for the layer, which is made unique.
    pub fn add_named_plugin(
        &mut self,
        name: &str,
        inputs: &[TensorId],
        spec: PluginSpec,
    ) -> Result<Layer<'_, Plugin>, NetworkError> {
        let label = if name.is_empty() { &spec.name } else { name };
        let record = spec.find().map_err(|e| IrError::layer(label, "plugin", e))?;
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        let id = self.add_def(name, Arc::new(Plugin { record, fields: spec.fields }), &inputs)?;
        Ok(Layer::new(self, id))
    }
}

impl Layer<'_, Plugin> {
    /// Replaces the fields.
    pub fn set_fields(self, fields: Attrs) -> Result<Self, NetworkError> {
        self.change(|p| p.fields = fields)
    }
}

impl Plugin {
    /// Definition of the layer.
    pub fn record(&self) -> &LayerRecord {
        &self.record
    }

    /// Fields that differ from their defaults.
    pub fn fields(&self) -> &Attrs {
        &self.fields
    }
}

impl LayerDef for Plugin {
    fn kind(&self) -> &'static str {
        "plugin"
    }

    fn max_inputs(&self) -> usize {
        usize::MAX
    }

    /// The library sees the batch as the first dimension; its results must lead with it, too.
    fn implicit_batch(&self) -> bool {
        true
    }

    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let inputs = b.all()?;
        let types: Vec<_> = inputs.iter().map(|&v| b.ty(v).clone()).collect();
        let op = layer_op(&self.record, &self.fields, &types)?;
        let packings = Packings::of_attrs(op.attrs())?;
        let mut packed = Vec::with_capacity(inputs.len());
        for (i, (v, ty)) in inputs.into_iter().zip(&types).enumerate() {
            packed.push(Some(moved(b, v, reformat::pack(packings.input(i), &ty.dims))?));
        }
        let made = b.operator(op, &packed)?;
        let outputs = made.into_iter().enumerate().map(|(j, v)| {
            let p = packings.output(j);
            let dims = Packings::dims(p, &b.dims(v))?;
            moved(b, v, reformat::unpack(p, &dims))
        });
        outputs.collect()
    }
}

/// A value behind these layers.
fn moved(b: &mut Body<'_>, mut v: ValueId, way: Vec<Move>) -> Result<ValueId, OpError> {
    for step in way {
        let (op, more) = step.operator()?;
        let more = more.into_iter().map(|t| Some(b.constant(t)));
        let inputs: Vec<_> = std::iter::once(Some(v)).chain(more).collect();
        let made = b.operator(op, &inputs)?;
        v = made.first().copied().ok_or_else(|| OpError::Value("a move without a result".into()))?;
    }
    Ok(v)
}
