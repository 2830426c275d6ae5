//! Adding layers and changing them: what depends on a change is inferred again, or nothing has changed.

use super::body::Body;
use super::error::NetworkError;
use super::flow::{Expanded, Sides, meet};
use super::ids::{LayerId, TensorId};
use super::layer::{LayerData, LayerDef};
use super::tensors::{BATCH, TensorSource, unique};
use super::{Network, Typing, check_name};
use kiln_ir::IrError;
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::graph::WeightsRole;
use kiln_ir::graph::{Graph, Meta, ValueId};
use kiln_ir::infer::Fact;
use kiln_ir::ty::{MAX_DIMS, TensorType};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// Parts that a change replaced, to restore them if something does not fit.
type Undo = Vec<Before>;
type Before = (LayerId, LayerData, Vec<(Fact, Option<Sides>)>);

impl Network {
    /// Adds a layer. `name` may be empty; it is made unique otherwise.
    pub(super) fn add_def(
        &mut self,
        name: &str,
        def: Arc<dyn LayerDef>,
        inputs: &[Option<TensorId>],
    ) -> Result<LayerId, NetworkError> {
        let stem = if name.is_empty() { def.kind() } else { name };
        check_name(stem)?;
        inputs.iter().flatten().try_for_each(|&t| self.known(t))?;
        let taken = |n: &str| {
            let other = |t: &TensorId| !matches!(self.tensor(*t).source, TensorSource::Layer(_));
            self.layer_names.contains_key(n) || self.by_name.get(n).is_some_and(other)
        };
        let name = unique(stem, taken);
        let inputs = inputs.to_vec();
        let (meta, weight_names) = (Meta::default(), Vec::new());
        let mut data =
            LayerData { name, def, inputs, outputs: Vec::new(), body: Arc::default(), meta, weight_names };
        let Expanded { body, outputs } = self.expand(&data)?;
        data.body = Arc::new(body);
        let id = LayerId(self.layers.len() as u32);
        let one = outputs.len() == 1;
        for (i, (fact, sides)) in outputs.into_iter().enumerate() {
            let name =
                if one { data.name.clone() } else { format!("{}.{}", data.name, data.def.output_name(i)) };
            let name = self.unique_tensor_name(&name);
            let t = self.push_tensor(name, fact, TensorSource::Layer(id));
            self.set_sides(t, sides);
            data.outputs.push(t);
        }
        self.layer_names.insert(data.name.clone(), id);
        let inputs = data.inputs.clone();
        self.layers.push(data);
        self.relink(id, &[], &inputs);
        Ok(id)
    }

    /// Keeps the lists of readers right when the inputs of a layer change.
    fn relink(&mut self, id: LayerId, old: &[Option<TensorId>], new: &[Option<TensorId>]) {
        for t in old.iter().flatten() {
            self.tensors[t.0 as usize].readers.remove(&id);
        }
        for t in new.iter().flatten() {
            self.tensors[t.0 as usize].readers.insert(id);
        }
    }

    /// The operators of a layer, and what is known of its outputs.
    fn expand(&self, data: &LayerData) -> Result<Expanded, NetworkError> {
        let wrap = |e: OpError| NetworkError::from(IrError::layer(&data.name, data.def.kind(), e));
        let facts: Vec<_> = data.inputs.iter().map(|t| t.map(|t| self.fact(t).clone())).collect();
        let Some(of) = self.split_by(data)? else {
            if let Some(sides) = self.result_of_two_ranks(data) {
                let outputs = vec![(sides.facts[0].clone(), Some(sides))];
                return Ok(Expanded { body: Graph::new(&data.name), outputs });
            }
            return Ok(Expanded::plain(self.expand_with(data, &facts)?));
        };
        let [on_true, on_false] = self.facts_by_side(data, of)?;
        let (body, other) = (self.expand_with(data, &on_true)?, self.expand_with(data, &on_false)?);
        if body.outputs.len() != other.outputs.len() {
            let found = (body.outputs.len(), other.outputs.len());
            let text =
                format!("it has {} outputs in the true branch and {} in the false one", found.0, found.1);
            return Err(wrap(OpError::Unsupported(text)));
        }
        let pairs = body.outputs.iter().zip(&other.outputs);
        let facts = pairs.map(|(&a, &b)| [body.value(a).fact.clone(), other.value(b).fact.clone()]);
        let outputs = facts.map(|f| meet(&data.name, of, f)).collect::<Result<_, _>>().map_err(wrap)?;
        Ok(Expanded { body, outputs })
    }

    /// The operators of a layer for inputs of which this is known.
    pub(super) fn expand_with(
        &self,
        data: &LayerData,
        facts: &[Option<Fact>],
    ) -> Result<Graph, NetworkError> {
        let wrap = |e: OpError| NetworkError::from(IrError::layer(&data.name, data.def.kind(), e));
        if data.inputs.len() > data.def.max_inputs() {
            let wanted = format!("at most {}", data.def.max_inputs());
            return Err(wrap(OpError::Arity { found: data.inputs.len(), wanted }));
        }
        if self.implicit_batch && !data.def.implicit_batch() {
            let why = format!("{} may mix entries of the batch and is refused", data.def.kind());
            return Err(NetworkError::ImplicitBatch { what: data.name.clone(), why });
        }
        let mut b = Body::new(&data.name, facts, &data.meta, &data.weight_names, self.implicit_batch);
        let outputs = data.def.expand(&mut b).map_err(wrap)?;
        let lost = |v: &&ValueId| self.implicit_batch && !leads_with_batch(b.ty(**v));
        if let Some(&v) = outputs.iter().find(lost) {
            let why = format!(
                "its result {} does not have the batch as its first dimension, which is refused",
                b.ty(v)
            );
            return Err(NetworkError::ImplicitBatch { what: data.name.clone(), why });
        }
        let limit = MAX_DIMS + b.lead();
        let deep = outputs.iter().find(|&&v| b.rank(v) > limit && data.def.limits_rank());
        if let Some(&v) = deep {
            let wanted = format!("at most {MAX_DIMS} dimensions");
            return Err(wrap(OpError::Value(format!("gives {}, wants {wanted}", b.ty(v)))));
        }
        Ok(b.finish(outputs))
    }

    /// Replaces the parameters of a layer.
    pub(super) fn redefine(&mut self, id: LayerId, def: Arc<dyn LayerDef>) -> Result<(), NetworkError> {
        self.with_undo(id, |d| d.def = def)
    }

    /// Expands a layer again, after its names or preferences changed.
    pub(super) fn reexpand(&mut self, id: LayerId) -> Result<(), NetworkError> {
        self.with_undo(id, |_| ())
    }

    /// Replaces an input of a layer.
    pub fn set_input(&mut self, id: LayerId, index: usize, tensor: TensorId) -> Result<(), NetworkError> {
        self.set_inputs(id, &[(index, tensor)])
    }

    /// Replaces several inputs of a layer at once, where one alone would not fit.
    pub fn set_inputs(&mut self, id: LayerId, inputs: &[(usize, TensorId)]) -> Result<(), NetworkError> {
        let def = self.try_layer(id)?.def.clone();
        self.redefine_with(id, def, inputs)
    }

    /// Replaces the parameters and the inputs of a layer at once.
    pub(super) fn redefine_with(
        &mut self,
        id: LayerId,
        def: Arc<dyn LayerDef>,
        inputs: &[(usize, TensorId)],
    ) -> Result<(), NetworkError> {
        inputs.iter().try_for_each(|&(index, tensor)| self.check_input(id, index, tensor))?;
        self.with_undo(id, |d| {
            d.def = def;
            for &(index, tensor) in inputs {
                if d.inputs.len() <= index {
                    d.inputs.resize(index + 1, None);
                }
                d.inputs[index] = Some(tensor);
            }
        })
    }

    fn check_input(&self, id: LayerId, index: usize, tensor: TensorId) -> Result<(), NetworkError> {
        self.known(tensor)?;
        let data = self.try_layer(id)?;
        // Layers of any number of inputs keep the number that they were added with.
        let count = match data.def.max_inputs() {
            usize::MAX => data.inputs.len(),
            n => n,
        };
        if index >= count {
            let (layer, kind) = (data.name.clone(), data.def.kind().to_owned());
            return Err(NetworkError::NoInput { layer, kind, index, count });
        }
        let back_edge = data.def.boundary().is_some_and(|b| b.is_back_edge(index));
        if !back_edge && self.depends(tensor, id) {
            let (layer, tensor) = (data.name.clone(), self.tensor(tensor).name.clone());
            return Err(NetworkError::Cycle { layer, input: index, tensor });
        }
        Ok(())
    }

    /// Whether a tensor depends on a layer other than through a back edge.
    fn depends(&self, tensor: TensorId, on: LayerId) -> bool {
        let outputs = &self.layer_data(on).outputs;
        if !outputs.contains(&tensor) && outputs.iter().all(|&t| self.tensor(t).readers.is_empty()) {
            return false;
        }
        let (mut stack, mut seen) = (vec![tensor], HashSet::new());
        while let Some(t) = stack.pop() {
            let Some(l) = self.producer(t) else { continue };
            if l == on {
                return true;
            }
            if seen.insert(l) {
                stack.extend(self.forward_inputs(l));
            }
        }
        false
    }

    /// The inputs of a layer that are not back edges.
    pub(super) fn forward_inputs(&self, l: LayerId) -> impl Iterator<Item = TensorId> + '_ {
        let d = self.layer_data(l);
        let boundary = d.def.boundary();
        let forward = move |i: usize| !boundary.as_ref().is_some_and(|b| b.is_back_edge(i));
        d.inputs.iter().enumerate().filter_map(move |(i, &t)| t.filter(|_| forward(i)))
    }

    /// Replaces what is known of an input and infers again all that depends on it.
    pub(super) fn replace_input(&mut self, input: TensorId, fact: Fact) -> Result<(), NetworkError> {
        let old = self.fact(input).clone();
        self.set_fact(input, fact);
        let dirty = self.readers(&[input]);
        let done = self.propagate(dirty, Vec::new());
        if done.is_err() {
            self.set_fact(input, old);
        }
        done
    }

    fn readers(&self, of: &[TensorId]) -> BTreeSet<LayerId> {
        of.iter().flat_map(|&t| &self.tensor(t).readers).copied().collect()
    }

    fn with_undo(&mut self, id: LayerId, change: impl FnOnce(&mut LayerData)) -> Result<(), NetworkError> {
        self.try_layer(id)?;
        let before = self.snapshot(id);
        let old = before.1.inputs.clone();
        change(self.layer_data_mut(id));
        let new = self.layer_data(id).inputs.clone();
        self.relink(id, &old, &new);
        let done = self.propagate(BTreeSet::from([id]), vec![before]);
        if done.is_err() {
            self.relink(id, &new, &old);
        }
        done
    }

    fn snapshot(&self, id: LayerId) -> Before {
        let d = self.layer_data(id);
        let known = |&t: &TensorId| (self.fact(t).clone(), self.tensor(t).sides.as_deref().cloned());
        (id, d.clone(), d.outputs.iter().map(known).collect())
    }

    fn set_sides(&mut self, t: TensorId, sides: Option<Sides>) {
        self.tensors[t.0 as usize].sides = sides.map(Box::new);
    }

    fn propagate(&mut self, dirty: BTreeSet<LayerId>, mut undo: Undo) -> Result<(), NetworkError> {
        let done = self.infer_all(dirty, &mut undo);
        if done.is_err() {
            for (id, data, facts) in undo.into_iter().rev() {
                for (&t, (fact, sides)) in data.outputs.iter().zip(facts) {
                    self.set_fact(t, fact);
                    self.set_sides(t, sides);
                }
                *self.layer_data_mut(id) = data;
            }
        }
        done
    }

    fn infer_all(&mut self, mut dirty: BTreeSet<LayerId>, undo: &mut Undo) -> Result<(), NetworkError> {
        while let Some(id) = dirty.pop_first() {
            let Expanded { body, outputs: found } = self.expand(self.layer_data(id))?;
            undo.push(self.snapshot(id));
            let outputs = self.layer_data(id).outputs.clone();
            if found.len() != outputs.len() {
                let name = &self.layer_data(id).name;
                let found = (outputs.len(), found.len());
                let text =
                    format!("layer \"{name}\" has {} outputs and can't change to {}", found.0, found.1);
                return Err(IrError::Structure(text).into());
            }
            let mut changed = Vec::new();
            for (&t, (fact, sides)) in outputs.iter().zip(found) {
                if fact != *self.fact(t) || sides.as_ref() != self.tensor(t).sides.as_deref() {
                    self.set_fact(t, fact);
                    self.set_sides(t, sides);
                    changed.push(t);
                }
            }
            self.layer_data_mut(id).body = Arc::new(body);
            if !changed.is_empty() {
                dirty.extend(self.readers(&changed));
            }
        }
        Ok(())
    }

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
        let taken = |d: &LayerData| d.weight_names.iter().any(|(_, n)| &**n == name);
        let same = data.weight_names.iter().any(|(r, n)| *r == role && &**n == name);
        if !same && (self.layers.iter().any(taken) || self.is_weights(name)) {
            return Err(IrError::DuplicateName(name.to_owned()).into());
        }
        let names = &mut self.layer_data_mut(layer).weight_names;
        names.retain(|(r, _)| *r != role);
        names.push((role, Arc::from(name)));
        self.reexpand(layer)
    }

    /// Forgets a name that [`Network::set_weights_name`] gave: a refit knows the weights as `layer/role` again.
    pub fn reset_weights_name(&mut self, layer: LayerId, role: WeightsRole) -> Result<(), NetworkError> {
        self.try_layer(layer)?;
        self.layer_data_mut(layer).weight_names.retain(|(r, _)| *r != role);
        self.reexpand(layer)
    }

    pub(super) fn rename_layer(&mut self, id: LayerId, name: &str) -> Result<(), NetworkError> {
        check_name(name)?;
        let data = self.try_layer(id)?;
        if data.name == name {
            return Ok(());
        }
        self.free(name)?;
        let (old, outputs) = (data.name.clone(), data.outputs.clone());
        self.layer_names.remove(&old);
        self.layer_names.insert(name.to_owned(), id);
        self.layer_data_mut(id).name = name.to_owned();
        for t in outputs {
            if self.outputs.contains(&t) {
                continue;
            }
            let rest = self.tensor(t).name.strip_prefix(old.as_str()).map(|rest| format!("{name}{rest}"));
            if let Some(new) = rest.filter(|n| !self.by_name.contains_key(n)) {
                self.rename_tensor(t, &new);
            }
        }
        self.reexpand(id)
    }

    /// Refuses type preferences in strongly typed networks.
    pub(super) fn weakly_typed(&self, what: &str) -> Result<(), NetworkError> {
        match self.typing {
            Typing::Weak => Ok(()),
            Typing::Strong => Err(NetworkError::StronglyTyped(what.to_owned())),
        }
    }

    pub(super) fn set_output_type(
        &mut self,
        id: LayerId,
        index: usize,
        dtype: Option<DType>,
    ) -> Result<(), NetworkError> {
        self.weakly_typed(&self.try_layer(id)?.name)?;
        self.with_undo(id, |d| {
            let types = &mut d.meta.output_types;
            if types.len() <= index {
                types.resize(index + 1, None);
            }
            types[index] = dtype;
            while types.last() == Some(&None) {
                types.pop();
            }
        })
    }
}

/// Whether the first dimension is the implicit batch, or 1 for all of its entries.
fn leads_with_batch(ty: &TensorType) -> bool {
    ty.dims.first().is_some_and(|d| d.is(1) || *d == Dim::host(BATCH))
}
