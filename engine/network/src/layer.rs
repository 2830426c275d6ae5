//! Layers: what a definition has to say, what the network keeps of each, and the handle that changes it.

use super::Network;
use super::body::Body;
use super::error::NetworkError;
use super::flow::Boundary;
use super::ids::{LayerId, TensorId};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::graph::WeightsRole;
use kiln_ir::graph::{Graph, Meta, ValueId};
use std::any::Any;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

/// A kind of layer with its parameters: how it is made of operators of the graph.
pub trait LayerDef: Any + Debug + Send + Sync {
    /// The kind's name, snake case.
    fn kind(&self) -> &'static str;
    /// Checks inputs and parameters, writes the operators and returns the outputs.
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError>;
    /// Greatest number of inputs.
    fn max_inputs(&self) -> usize {
        1
    }
    /// The boundary of control flow that it is, if it is one.
    fn boundary(&self) -> Option<Boundary> {
        None
    }
    /// The name of an output, to be put behind the layer's name.
    fn output_name(&self, index: usize) -> String {
        index.to_string()
    }
    /// Whether it can leave an implicit batch alone.
    fn implicit_batch(&self) -> bool {
        false
    }
    /// Whether it must stay though nobody reads its outputs.
    fn side_effect(&self) -> bool {
        false
    }
    /// The weights that it holds.
    fn weights(&self) -> &'static [WeightsRole] {
        &[]
    }
    /// The role of weights that are given as an input instead of being held.
    fn operand_role(&self, _input: usize) -> Option<WeightsRole> {
        None
    }
    /// Whether the rank of its outputs is limited, as it is for all layers but operators of the graph.
    fn limits_rank(&self) -> bool {
        true
    }
}

/// Data of a layer in the network.
#[derive(Clone, Debug)]
pub(super) struct LayerData {
    pub(super) name: String,
    pub(super) def: Arc<dyn LayerDef>,
    pub(super) inputs: Vec<Option<TensorId>>,
    pub(super) outputs: Vec<TensorId>,
    /// Operators of the layer; the graph's inputs are the layer's inputs that are present, in order.
    pub(super) body: Arc<Graph>,
    pub(super) meta: Meta,
    pub(super) weight_names: Vec<(WeightsRole, Arc<str>)>,
}

/// Any kind of layer, for handles whose kind nobody asked for.
#[derive(Clone, Copy, Debug)]
pub struct AnyLayer;

/// A layer, to look at and to change. Setters check at once: what does not fit is an error that names the layer, and
/// the network stays as it was.
#[derive(Debug)]
pub struct Layer<'n, P = AnyLayer> {
    net: &'n mut Network,
    id: LayerId,
    kind: PhantomData<fn() -> P>,
}

impl<'n, P> Layer<'n, P> {
    pub(super) fn new(net: &'n mut Network, id: LayerId) -> Layer<'n, P> {
        Layer { net, id, kind: PhantomData }
    }

    fn data(&self) -> &LayerData {
        self.net.layer_data(self.id)
    }

    /// Id of the layer, which stays valid.
    pub fn id(&self) -> LayerId {
        self.id
    }

    /// Name of the layer.
    pub fn name(&self) -> &str {
        &self.data().name
    }

    /// Kind of the layer.
    pub fn kind(&self) -> &'static str {
        self.data().def.kind()
    }

    /// One of its outputs.
    pub fn output(&self, index: usize) -> Result<TensorId, NetworkError> {
        let d = self.data();
        let none = || NetworkError::NoOutput { layer: d.name.clone(), index, count: d.outputs.len() };
        d.outputs.get(index).copied().ok_or_else(none)
    }

    /// All its outputs.
    pub fn outputs(&self) -> &[TensorId] {
        &self.data().outputs
    }

    /// All its inputs.
    pub fn inputs(&self) -> &[Option<TensorId>] {
        &self.data().inputs
    }

    /// Renames the layer; the name must be free. Outputs that are named after it are renamed too.
    pub fn set_name(self, name: &str) -> Result<Self, NetworkError> {
        self.net.rename_layer(self.id, name)?;
        Ok(self)
    }

    /// Replaces an input. `index` may be one that the layer takes but has not yet.
    pub fn set_input(self, index: usize, tensor: TensorId) -> Result<Self, NetworkError> {
        self.net.set_input(self.id, index, tensor)?;
        Ok(self)
    }

    /// Replaces several inputs at once, where one alone would not fit.
    pub fn set_inputs(self, inputs: &[(usize, TensorId)]) -> Result<Self, NetworkError> {
        self.net.set_inputs(self.id, inputs)?;
        Ok(self)
    }

    /// The type that it should compute in: a preference, or a constraint if the builder is told so. Weak typing only.
    pub fn set_precision(self, dtype: DType) -> Result<Self, NetworkError> {
        self.net.weakly_typed(self.name())?;
        self.net.layer_data_mut(self.id).meta.precision = Some(dtype);
        Ok(self)
    }

    /// The type set by [`Layer::set_precision`].
    pub fn precision(&self) -> Option<DType> {
        self.data().meta.precision
    }

    /// Forgets the type set by [`Layer::set_precision`].
    pub fn reset_precision(self) -> Self {
        self.net.layer_data_mut(self.id).meta.precision = None;
        self
    }

    /// The type that an output should have: a preference, or a constraint if the builder is told so. Weak typing only.
    pub fn set_output_type(self, index: usize, dtype: DType) -> Result<Self, NetworkError> {
        self.output(index)?;
        self.net.set_output_type(self.id, index, Some(dtype))?;
        Ok(self)
    }

    /// The type set by [`Layer::set_output_type`].
    pub fn output_type(&self, index: usize) -> Option<DType> {
        self.data().meta.output_types.get(index).copied().flatten()
    }

    /// Forgets the type set by [`Layer::set_output_type`].
    pub fn reset_output_type(self, index: usize) -> Result<Self, NetworkError> {
        self.output(index)?;
        self.net.set_output_type(self.id, index, None)?;
        Ok(self)
    }

    /// Free text that the inspector shows.
    pub fn set_metadata(self, text: &str) -> Self {
        self.net.layer_data_mut(self.id).meta.metadata = text.to_owned();
        self
    }

    /// The text set by [`Layer::set_metadata`].
    pub fn metadata(&self) -> &str {
        &self.data().meta.metadata
    }

    /// Names weights that the layer holds, so that they can be refitted by that name.
    pub fn set_weights_name(self, role: WeightsRole, name: &str) -> Result<Self, NetworkError> {
        self.net.set_weights_name(self.id, role, name)?;
        Ok(self)
    }

    /// Forgets the name set by [`Layer::set_weights_name`]: a refit knows the weights as `layer/role` again.
    pub fn reset_weights_name(self, role: WeightsRole) -> Result<Self, NetworkError> {
        self.net.reset_weights_name(self.id, role)?;
        Ok(self)
    }

    pub(super) fn network(&mut self) -> &mut Network {
        self.net
    }
}

impl<P: LayerDef + Clone> Layer<'_, P> {
    /// Parameters of the layer.
    pub fn params(&self) -> Result<&P, NetworkError> {
        self.net.params::<P>(self.id)
    }

    /// Changes its parameters and infers again all that depends on it; on an error nothing has changed.
    pub fn change(self, f: impl FnOnce(&mut P)) -> Result<Self, NetworkError> {
        let mut params = self.params()?.clone();
        f(&mut params);
        self.net.redefine(self.id, Arc::new(params))?;
        Ok(self)
    }

    /// Changes its parameters and inputs at once, where one alone would not fit; on an error nothing has changed.
    pub fn change_with(
        self,
        inputs: &[(usize, TensorId)],
        f: impl FnOnce(&mut P),
    ) -> Result<Self, NetworkError> {
        let mut params = self.params()?.clone();
        f(&mut params);
        self.net.redefine_with(self.id, Arc::new(params), inputs)?;
        Ok(self)
    }
}

/// Setters of parameters, one a line: `name(argument: Type) => field = value;`.
macro_rules! setters {
    ($kind:ty { $($(#[$doc:meta])* $name:ident($arg:ident: $t:ty) => $($field:ident).+ = $value:expr;)* }) => {
        impl crate::Layer<'_, $kind> {
            $($(#[$doc])*
            pub fn $name(self, $arg: $t) -> Result<Self, crate::NetworkError> {
                self.change(|p| p.$($field).+ = $value)
            })*
        }
    };
}
pub(super) use setters;

/// [`LayerDef`] by an inherent method `write`: the kind's name, the most inputs, whether it leaves an implicit batch
/// alone, and its weights.
macro_rules! layer_def {
    ($t:ty, $kind:literal, $inputs:expr, $batch:expr) => {
        crate::layer::layer_def!($t, $kind, $inputs, $batch, []);
    };
    ($t:ty, $kind:literal, $inputs:expr, $batch:expr, [$($role:ident),*]) => {
        impl crate::LayerDef for $t {
            fn kind(&self) -> &'static str {
                $kind
            }
            fn max_inputs(&self) -> usize {
                $inputs
            }
            fn implicit_batch(&self) -> bool {
                $batch
            }
            fn weights(&self) -> &'static [crate::WeightsRole] {
                &[$(crate::WeightsRole::$role),*]
            }
            fn expand(
                &self,
                b: &mut crate::Body<'_>,
            ) -> Result<Vec<kiln_ir::graph::ValueId>, kiln_ir::error::OpError> {
                self.write(b)
            }
        }
    };
}
pub(super) use layer_def;
