//! Refit: new weights for an engine, all or nothing, while its contexts run.

mod recipes;
mod structure;

pub use recipes::{RecipeReport, verify_recipes};

use crate::RuntimeError;
use crate::engine::{Engine, Shared};
use kiln_backend::Program;
use kiln_ir::{DType, Fact, Recipe, Source, Tensor, ValueId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

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
}

/// Collects new weights for an engine and puts them in.
pub struct Refitter {
    engine: Arc<Shared>,
    weights: BTreeMap<Arc<str>, NamedWeight>,
    set: BTreeMap<Arc<str>, Tensor>,
}

impl Engine {
    /// A refitter; refused if the plan was built without refit.
    pub fn refitter(&self) -> Result<Refitter, RuntimeError> {
        if !self.shared.told.refittable {
            return Err(refused(
                "the plan was built without refit; build it again with refit enabled".into(),
            ));
        }
        let weights = named_weights(&self.program());
        Ok(Refitter { engine: self.shared.clone(), weights, set: BTreeMap::new() })
    }
}

fn refused(message: String) -> RuntimeError {
    RuntimeError::Refit(message)
}

/// All named weights of a program and the sources of its recipes.
fn named_weights(p: &Program) -> BTreeMap<Arc<str>, NamedWeight> {
    let mut out = BTreeMap::new();
    let fixed = structure::fixed(p);
    let mut add = |name: &Arc<str>, dtype, shape: &[usize]| {
        out.entry(name.clone()).or_insert_with(|| NamedWeight {
            name: name.to_string(),
            dtype,
            shape: shape.to_vec(),
            fixed: fixed.get(name).cloned(),
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
    out
}

/// All constants of a program.
fn weights(p: &Program) -> impl Iterator<Item = (ValueId, &kiln_ir::Weight)> {
    p.graph.value_ids().filter_map(|v| Some((v, p.graph.weight(v)?)))
}

/// Elements of the named weights that the program holds.
fn held(p: &Program) -> BTreeMap<Arc<str>, Tensor> {
    weights(p).filter_map(|(_, w)| Some((w.name.clone()?, w.tensor.clone()))).collect()
}

impl Refitter {
    /// All named weights, in the order of names.
    pub fn weights(&self) -> impl Iterator<Item = &NamedWeight> {
        self.weights.values()
    }

    /// Sets new elements of the type and shape of the old. Nothing changes before [`Refitter::refit`].
    pub fn set(&mut self, name: &str, tensor: Tensor) -> Result<(), RuntimeError> {
        let Some((key, w)) = self.weights.get_key_value(name) else {
            let known: Vec<&str> = self.weights.keys().map(|n| n.as_ref()).take(10).collect();
            return Err(refused(format!("there is no weight \"{name}\"; there are {}", known.join(", "))));
        };
        if let Some(why) = &w.fixed {
            return Err(refused(format!("weight \"{name}\" can't be replaced: {why}")));
        }
        if tensor.dtype() != w.dtype || tensor.shape() != w.shape {
            let (d, s) = (w.dtype, &w.shape);
            return Err(refused(format!("weight \"{name}\" is {d}{s:?}, was given {}", tensor.ty())));
        }
        self.set.insert(key.clone(), tensor);
        Ok(())
    }

    /// Takes back what was set.
    pub fn unset(&mut self, name: &str) -> bool {
        self.set.remove(name).is_some()
    }

    /// Weights that must be set as well: sources of derived weights that are made of what was set, and that the engine
    /// does not hold. Setting exactly these makes nothing else missing.
    pub fn get_missing(&self) -> Vec<String> {
        let program = &self.engine.current().program;
        let held = held(program);
        let mut known: BTreeSet<Arc<str>> = self.set.keys().cloned().collect();
        let mut missing = BTreeSet::new();
        let recipes: Vec<&Arc<Recipe>> = weights(program).filter_map(|(_, w)| w.recipe.as_ref()).collect();
        loop {
            let touched = recipes.iter().filter(|r| r.sources.iter().any(|s| known.contains(s)));
            let new: Vec<Arc<str>> = touched
                .flat_map(|r| &r.sources)
                .filter(|s| !known.contains(*s) && !held.contains_key(*s))
                .cloned()
                .collect();
            if new.is_empty() {
                return missing.into_iter().map(|s: Arc<str>| s.to_string()).collect();
            }
            known.extend(new.iter().cloned());
            missing.extend(new);
        }
    }

    /// Replaces the weights, with all weights that are computed from them: loads them beside the old ones and
    /// lets the next runs use them. Runs that have begun finish with the old weights. After an error the
    /// engine is unchanged and the weights that were set stay set.
    pub fn refit(&mut self) -> Result<(), RuntimeError> {
        let lock = self.engine.refitting.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = self.get_missing();
        if !missing.is_empty() {
            return Err(refused(format!("also set {}", missing.join(", "))));
        }
        let old = self.engine.current().program.clone();
        let mut program = (*old).clone();
        let mut sources = held(&program);
        sources.extend(self.set.clone());
        for v in program.graph.value_ids() {
            let Some(tensor) = self.renewed(&old, v, &sources)? else { continue };
            let def = program.graph.value_mut(v);
            def.fact = Fact::constant(tensor.clone());
            if let Source::Weight(w) = &mut def.source {
                w.tensor = tensor;
            }
        }
        program.graph.refresh()?;
        let changed = program.graph.value_ids().find(|&v| program.graph.ty(v) != old.graph.ty(v));
        if let Some(v) = changed {
            let (is, was) = (program.graph.ty(v), old.graph.ty(v));
            return Err(refused(format!("\"{}\" would become {is}, is {was}", old.graph.value(v).name)));
        }
        self.engine.swap(program)?;
        drop(lock);
        self.set.clear();
        Ok(())
    }

    /// The new elements of a constant; `None` if it stays.
    fn renewed(
        &self,
        p: &Program,
        v: ValueId,
        sources: &BTreeMap<Arc<str>, Tensor>,
    ) -> Result<Option<Tensor>, RuntimeError> {
        let Some(w) = p.graph.weight(v) else { return Ok(None) };
        let tensor = match (&w.name, &w.recipe) {
            (Some(name), _) if self.set.contains_key(name) => self.set.get(name).cloned(),
            (_, Some(r)) if r.sources.iter().any(|s| self.set.contains_key(s)) => {
                Some(recipes::evaluate(r, sources, &p.graph.value(v).name)?)
            }
            _ => return Ok(None),
        };
        match tensor {
            Some(t) if t.ty() != w.tensor.ty() => {
                let (name, was) = (&p.graph.value(v).name, w.tensor.ty());
                Err(refused(format!("derived weight \"{name}\" would become {}, is {was}", t.ty())))
            }
            t => Ok(t),
        }
    }
}
