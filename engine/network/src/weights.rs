//! Weights that layers hold, and their names.

use super::error::NetworkError;
use super::{LayerId, Network};
use kiln_ir::IrError;
use std::fmt;
use std::sync::Arc;

/// What weights are to the layer that holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WeightsRole {
    /// The kernel of a convolution or the matrix of a fully connected layer.
    Kernel,
    /// The bias.
    Bias,
    /// The shift of a scale layer.
    Shift,
    /// The scale of a scale layer.
    Scale,
    /// The power of a scale layer.
    Power,
    /// The elements of a constant layer.
    Constant,
}

impl fmt::Display for WeightsRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WeightsRole::Kernel => "kernel",
            WeightsRole::Bias => "bias",
            WeightsRole::Shift => "shift",
            WeightsRole::Scale => "scale",
            WeightsRole::Power => "power",
            WeightsRole::Constant => "constant",
        })
    }
}

impl Network {
    /// Names weights that a layer holds, so that they can be refitted by that name. Names are unique.
    pub fn set_weights_name(
        &mut self,
        layer: LayerId,
        role: WeightsRole,
        name: &str,
    ) -> Result<(), NetworkError> {
        let data = self.try_layer(layer)?;
        if !data.def.weights().contains(&role) {
            let none = NetworkError::NoWeights { layer: data.name.clone(), role: role.to_string() };
            return Err(none);
        }
        super::check_name(name)?;
        let taken = |d: &super::layer::LayerData| d.weight_names.iter().any(|(_, n)| &**n == name);
        let same = data.weight_names.iter().any(|(r, n)| *r == role && &**n == name);
        if !same && (self.layers.iter().any(taken) || self.is_weights(name)) {
            return Err(IrError::DuplicateName(name.to_owned()).into());
        }
        let names = &mut self.layer_data_mut(layer).weight_names;
        names.retain(|(r, _)| *r != role);
        names.push((role, Arc::from(name)));
        self.reexpand(layer)
    }
}
