//! Names of the weights that layers hold, and the layers that weights belong to.

use crate::layer::LayerData;
use crate::{LayerId, Network};
use kiln_ir::WeightUse;
use std::collections::HashSet;
use std::sync::Arc;

/// Uses of named weights by the layers that are lowered.
pub(super) struct WeightUses {
    /// Names that the network's author gave.
    given: HashSet<Arc<str>>,
    found: Vec<WeightUse>,
}

impl WeightUses {
    pub(super) fn of(net: &Network) -> WeightUses {
        let held = net.layers.iter().flat_map(|d| d.weight_names.iter().map(|(_, n)| n.clone()));
        let tensors = (0..net.tensors.len() as u32).map(crate::TensorId);
        let named = tensors.filter_map(|t| net.weights(t)?.name.clone());
        WeightUses { given: held.chain(named).collect(), found: Vec::new() }
    }

    /// The name of weights that a layer holds: the one that was given, or `layer/role`. The latter gets a number where
    /// somebody gave it to other weights.
    pub(super) fn name(&self, d: &LayerData, name: &Arc<str>) -> Arc<str> {
        if d.weight_names.iter().any(|(_, n)| n == name) || !self.given.contains(name) {
            return name.clone();
        }
        let mut numbered = (2..).map(|n| Arc::from(format!("{name}.{n}")));
        numbered.find(|n| !self.given.contains(n)).unwrap_or_else(|| name.clone())
    }

    /// Adds the weights that a layer holds, and those that it is given as operands.
    pub(super) fn add(&mut self, net: &Network, l: LayerId) {
        let d = net.layer_data(l);
        let held = d.body.weight_uses.iter();
        let held: Vec<WeightUse> =
            held.map(|u| WeightUse { weight: self.name(d, &u.weight), ..u.clone() }).collect();
        let operand = |(i, t): (usize, &Option<crate::TensorId>)| {
            let weight = net.weights((*t)?)?.name.clone()?;
            Some(WeightUse { layer: d.name.as_str().into(), role: d.def.operand_role(i)?, weight })
        };
        self.found.extend(held.into_iter().chain(d.inputs.iter().enumerate().filter_map(operand)));
    }

    /// All uses, in the order of layers and roles.
    pub(super) fn finish(mut self) -> Vec<WeightUse> {
        self.found.sort();
        self.found.dedup();
        self.found
    }
}
