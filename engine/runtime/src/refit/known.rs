//! The named weights of a program, and the layers that they belong to.

use super::structure;
use crate::RuntimeError;
use crate::error::listed;
use crate::weights::{refused, weights};
use kiln_backend::{Program, ranged_tensor};
use kiln_ir::{DType, WeightUse, WeightsRole};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A weight that has a name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedWeight {
    /// The name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Reason why it can't be replaced; `None` if it can.
    pub fixed: Option<String>,
    /// Layers of the network that it belongs to, with its role in each.
    pub uses: Vec<(String, WeightsRole)>,
}

/// Named weights of a program, and sources of its recipes. Dynamic ranges have functions of their own.
pub(super) struct Known {
    pub(super) all: BTreeMap<Arc<str>, NamedWeight>,
    uses: Vec<WeightUse>,
}

impl Known {
    pub(super) fn of(p: &Program) -> Known {
        let mut all = BTreeMap::new();
        let fixed = structure::fixed(p);
        let mut add = |name: &Arc<str>, dtype, shape: &[usize]| {
            if ranged_tensor(name).is_some() {
                return;
            }
            all.entry(name.clone()).or_insert_with(|| NamedWeight {
                name: name.to_string(),
                dtype,
                shape: shape.to_vec(),
                fixed: fixed.get(name).cloned(),
                uses: Vec::new(),
            });
        };
        for (_, w) in weights(p) {
            if let Some(name) = &w.name {
                add(name, w.tensor.dtype(), w.tensor.shape());
            }
            let Some(recipe) = &w.recipe else { continue };
            for (name, &v) in recipe.sources.iter().zip(&recipe.graph.inputs) {
                let ty = recipe.graph.ty(v);
                add(name, ty.dtype, &ty.static_dims().unwrap_or_default());
            }
        }
        let mut uses = p.graph.weight_uses.clone();
        uses.retain(|u| all.contains_key(&u.weight));
        for u in &uses {
            if let Some(w) = all.get_mut(&u.weight) {
                w.uses.push((u.layer.to_string(), u.role));
            }
        }
        // Weights that no layer holds are constants of their own.
        for (name, w) in all.iter_mut().filter(|(_, w)| w.uses.is_empty()) {
            w.uses.push((name.to_string(), WeightsRole::Constant));
            uses.push(WeightUse { layer: name.clone(), role: WeightsRole::Constant, weight: name.clone() });
        }
        uses.sort();
        Known { all, uses }
    }

    /// The weight of this name.
    pub(super) fn named(&self, name: &str) -> Result<(&Arc<str>, &NamedWeight), RuntimeError> {
        self.all.get_key_value(name).ok_or_else(|| {
            let known: Vec<&str> = self.all.keys().map(|n| &**n).collect();
            refused(format!("there is no weight \"{name}\"; there are {}", listed(&known)))
        })
    }

    /// The weight of a layer in a role.
    pub(super) fn role(&self, layer: &str, role: WeightsRole) -> Result<&Arc<str>, RuntimeError> {
        let own: Vec<&WeightUse> = self.uses.iter().filter(|u| &*u.layer == layer).collect();
        let Some(first) = own.first() else {
            let mut layers: Vec<&str> = self.uses.iter().map(|u| &*u.layer).collect();
            layers.dedup();
            let known = listed(&layers);
            return Err(refused(format!("there is no layer \"{layer}\" with weights; there are {known}")));
        };
        let several = || own.iter().any(|u| u.weight != first.weight);
        let found = match role {
            WeightsRole::Any if several() => None,
            WeightsRole::Any => Some(*first),
            role => own.iter().find(|u| u.role == role).copied(),
        };
        found.map(|u| &u.weight).ok_or_else(|| {
            let roles: Vec<String> = own.iter().map(|u| u.role.to_string()).collect();
            let which = if role == WeightsRole::Any { "a single role" } else { role.name() };
            refused(format!("layer \"{layer}\" has no weights of {which}; it has {}", roles.join(", ")))
        })
    }

    /// A layer and role for each of these weights.
    pub(super) fn roles_of(&self, names: &[String]) -> Vec<(String, WeightsRole)> {
        names.iter().filter_map(|n| self.all.get(n.as_str())?.uses.first().cloned()).collect()
    }

    /// All layers and roles by which weights can be replaced.
    pub(super) fn roles(&self) -> Vec<(String, WeightsRole)> {
        let open = |u: &&WeightUse| self.all.get(&u.weight).is_some_and(|w| w.fixed.is_none());
        self.uses.iter().filter(open).map(|u| (u.layer.to_string(), u.role)).collect()
    }
}
