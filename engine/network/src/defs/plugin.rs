//! Plug-in layers.

use crate::NetworkError;
use crate::body::bad;
use crate::{Body, Layer, LayerDef, Network, TensorId};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;
use kiln_ir::ty::TensorType;
use kiln_ops::plugin::PLUGIN;
use kiln_ops::plugin::encode_outputs;

/// Description of a plug-in layer; the plug-in itself is found by name when the network is built.
#[derive(Clone, Debug, Default)]
pub struct PluginSpec {
    /// Namespace of the name; may be empty.
    pub namespace: String,
    /// The plug-in's name.
    pub name: String,
    /// Version of the plug-in.
    pub version: String,
    /// Serialized fields, which only the plug-in reads.
    pub fields: Vec<u8>,
    /// Types of its outputs. Dimensions are expressions over those of the inputs, [`kiln_ops::plugin::input_dim`],
    /// and over device symbols for sizes that it computes.
    pub outputs: Vec<TensorType>,
    /// The combinations of formats that it takes, each those of inputs and outputs separated by commas; at most 100.
    pub formats: Vec<String>,
    /// Pairs of an input and the output that is the same memory.
    pub aliases: Vec<(usize, usize)>,
}

/// See [`Network::add_plugin`].
#[derive(Clone, Debug)]
pub struct Plugin {
    spec: PluginSpec,
}

/// Names of plug-ins, their namespaces and versions have at most this many bytes.
const MAX_NAME: usize = 1023;
/// Plug-ins take at most this many combinations of formats.
const MAX_FORMATS: usize = 100;

impl Network {
    /// A layer that a plug-in implements.
    pub fn add_plugin(
        &mut self,
        inputs: &[TensorId],
        spec: PluginSpec,
    ) -> Result<Layer<'_, Plugin>, NetworkError> {
        self.add_kind(Plugin { spec }, inputs)
    }
}

impl Layer<'_, Plugin> {
    /// Replaces the serialized fields.
    pub fn set_fields(self, fields: Vec<u8>) -> Result<Self, NetworkError> {
        self.change(|p| p.spec.fields = fields)
    }
}

impl Plugin {
    /// Description of the plug-in layer.
    pub fn spec(&self) -> &PluginSpec {
        &self.spec
    }
}

impl LayerDef for Plugin {
    fn kind(&self) -> &'static str {
        "plugin"
    }
    fn max_inputs(&self) -> usize {
        usize::MAX
    }
    fn side_effect(&self) -> bool {
        !self.spec.aliases.is_empty()
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let s = &self.spec;
        for (what, text) in [("namespace", &s.namespace), ("name", &s.name), ("version", &s.version)] {
            if text.len() > MAX_NAME {
                return Err(bad(what, format!("{} bytes long", text.len()), &format!("at most {MAX_NAME}")));
            }
        }
        if s.name.is_empty() {
            return Err(bad("name", "empty", "the name of a plug-in"));
        }
        if s.formats.len() > MAX_FORMATS {
            return Err(bad("formats", s.formats.len(), &format!("at most {MAX_FORMATS} combinations")));
        }
        let pairs = s.aliases.iter().flat_map(|&(i, o)| [i as i64, o as i64]).collect::<Vec<_>>();
        let attrs = Attrs::new()
            .with("namespace", s.namespace.as_str())
            .with("plugin", s.name.as_str())
            .with("version", s.version.as_str())
            .with("fields", Attr::Bytes(s.fields.clone()))
            .with("outputs", Attr::Bytes(encode_outputs(&s.outputs)))
            .with("formats", s.formats.clone())
            .with("aliases", pairs);
        let inputs: Vec<_> = b.all()?.into_iter().map(Some).collect();
        b.ops(PLUGIN, attrs, &inputs)
    }
}
