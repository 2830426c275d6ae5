//! The network that users and importers write: layers, tensors, named weights, loops and conditionals, checked as
//! they are added.
//!
//! A [`Network`] has the vocabulary of TensorRT's network definition. Every `add_…` method infers types and
//! shapes at once and returns a [`Layer`], to read outputs from and to change. [`Network::lower`] returns the
//! structured [`Graph`] that passes work on.
//!
//! ```
//! use kiln_network::{ActivationKind, Network};
//! use kiln_ir::{DType, TensorType};
//! # fn main() -> Result<(), kiln_network::NetworkError> {
//! let mut net = Network::new("relu");
//! let x = net.add_input("x", TensorType::new(DType::F32, [2, 3]))?;
//! let y = net.add_activation(x, ActivationKind::Relu)?.output(0)?;
//! net.mark_output(y, "y")?;
//! assert_eq!(net.lower()?.nodes().count(), 1);
//! # Ok(())
//! # }
//! ```

mod body;
mod change;
mod debug;
mod defs;
mod error;
mod flow;
mod ids;
mod layer;
mod lower;
mod tensors;
#[cfg(test)]
mod tests;

pub use body::Body;
pub use defs::*;
pub use error::NetworkError;
pub use flow::*;
pub use ids::{IfId, LayerId, LoopId, TensorId};
pub use kiln_ir::WeightsRole;
pub use kiln_ir::graph::LoopOutputKind;
pub use layer::{AnyLayer, Layer, LayerDef};

use flow::Construct;
use kiln_ir::IrError;
use kiln_ir::attr::Attrs;
use kiln_ir::op::Op;
use layer::LayerData;
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use tensors::TensorData;

/// Names of tensors, layers and weights have at most this many bytes.
pub const MAX_NAME: usize = 4095;

/// Rule for the types of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Typing {
    /// The builder, among those that its flags and the layers' precisions allow.
    #[default]
    Weak,
    /// The network: only conversions change types.
    Strong,
}

/// A network definition. Every method checks at once; an error names the layer.
#[derive(Clone, Debug)]
pub struct Network {
    name: String,
    typing: Typing,
    implicit_batch: bool,
    tensors: Vec<TensorData>,
    by_name: HashMap<String, TensorId>,
    layers: Vec<LayerData>,
    layer_names: HashMap<String, LayerId>,
    inputs: Vec<TensorId>,
    outputs: Vec<TensorId>,
    shape_outputs: Vec<TensorId>,
    debug: Vec<TensorId>,
    constructs: Vec<Construct>,
}

impl Network {
    /// An empty network, weakly typed, with an explicit batch.
    pub fn new(name: &str) -> Network {
        Network {
            name: name.to_owned(),
            typing: Typing::Weak,
            implicit_batch: false,
            tensors: Vec::new(),
            by_name: HashMap::new(),
            layers: Vec::new(),
            layer_names: HashMap::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            shape_outputs: Vec::new(),
            debug: Vec::new(),
            constructs: Vec::new(),
        }
    }

    /// An empty network whose types are as written: only casts, quantize, dequantize and fill layers choose types.
    pub fn strongly_typed(name: &str) -> Network {
        Network { typing: Typing::Strong, ..Network::new(name) }
    }

    /// An empty network with an implicit batch, the deprecated mode: ranks and axes leave the batch out, all other
    /// dimensions are constant, and no layer mixes entries of the batch. It lowers to a leading dimension "batch".
    pub fn with_implicit_batch(name: &str) -> Network {
        Network { implicit_batch: true, ..Network::new(name) }
    }

    /// The network's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Renames the network.
    pub fn set_name(&mut self, name: &str) {
        self.name = name.to_owned();
    }

    /// Rule for the types of values.
    pub fn typing(&self) -> Typing {
        self.typing
    }

    /// Whether ranks and axes leave the batch out.
    pub fn has_implicit_batch(&self) -> bool {
        self.implicit_batch
    }

    /// Adds a layer of any operator of the graph. `name` may be empty; it is made unique otherwise. Outputs are named
    /// after it.
    pub fn add_layer(
        &mut self,
        name: &str,
        op: &str,
        attrs: Attrs,
        inputs: &[Option<TensorId>],
    ) -> Result<Vec<TensorId>, NetworkError> {
        let label = if name.is_empty() { op } else { name };
        let op = Op::new(op, attrs).map_err(|e| match e {
            IrError::Layer { op, source, .. } => IrError::layer(label, &op, source),
            e => e,
        })?;
        let id = self.add_def(name, Arc::new(Operator { op }), inputs)?;
        Ok(self.layer_data(id).outputs.clone())
    }

    /// A layer by its id.
    pub fn layer(&mut self, id: LayerId) -> Result<Layer<'_>, NetworkError> {
        self.try_layer(id)?;
        Ok(Layer::new(self, id))
    }

    /// A layer of a known kind, to change its parameters.
    pub fn layer_of<P: LayerDef>(&mut self, id: LayerId) -> Result<Layer<'_, P>, NetworkError> {
        self.params::<P>(id)?;
        Ok(Layer::new(self, id))
    }

    /// The layer of this name.
    pub fn find_layer(&self, name: &str) -> Option<LayerId> {
        self.layer_names.get(name).copied()
    }

    /// All layers, in the order in which they were added.
    pub fn layer_ids(&self) -> impl Iterator<Item = LayerId> + use<> {
        (0..self.layers.len() as u32).map(LayerId)
    }

    fn params<P: LayerDef>(&self, id: LayerId) -> Result<&P, NetworkError> {
        let d = self.try_layer(id)?;
        let def: &dyn Any = &*d.def;
        let wanted = || std::any::type_name::<P>().rsplit("::").next().unwrap_or_default().to_owned();
        def.downcast_ref::<P>().ok_or_else(|| NetworkError::Kind {
            layer: d.name.clone(),
            found: d.def.kind().into(),
            wanted: wanted(),
        })
    }

    fn try_layer(&self, id: LayerId) -> Result<&LayerData, NetworkError> {
        let none = || NetworkError::NoSuch(format!("layer number {}", id.0));
        self.layers.get(id.0 as usize).ok_or_else(none)
    }

    fn layer_data(&self, id: LayerId) -> &LayerData {
        &self.layers[id.0 as usize]
    }

    fn layer_data_mut(&mut self, id: LayerId) -> &mut LayerData {
        &mut self.layers[id.0 as usize]
    }
}

/// Refuses names that are empty or too long.
fn check_name(name: &str) -> Result<(), NetworkError> {
    if (1..=MAX_NAME).contains(&name.len()) {
        return Ok(());
    }
    Err(NetworkError::Name { start: name.chars().take(16).collect(), len: name.len(), max: MAX_NAME })
}
