//! Adding layers and changing them: what depends on a change is inferred again, or nothing has changed.

use super::body::Body;
use super::error::NetworkError;
use super::ids::{LayerId, TensorId};
use super::layer::{LayerData, LayerDef};
use super::tensors::{TensorSource, unique};
use super::{Network, Typing, check_name};
use kiln_ir::IrError;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::graph::WeightsRole;
use kiln_ir::graph::{Graph, Meta};
use kiln_ir::infer::Fact;
use kiln_ir::ty::MAX_DIMS;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// Parts that a change replaced, to restore them if something does not fit.
type Undo = Vec<(LayerId, LayerData, Vec<Fact>)>;

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
        data.body = Arc::new(self.expand(&data)?);
        let id = LayerId(self.layers.len() as u32);
        for (i, &v) in data.body.outputs.iter().enumerate() {
            let one = data.body.outputs.len() == 1;
            let name =
                if one { data.name.clone() } else { format!("{}.{}", data.name, data.def.output_name(i)) };
            let fact = data.body.value(v).fact.clone();
            let name = self.unique_tensor_name(&name);
            data.outputs.push(self.push_tensor(name, fact, TensorSource::Layer(id)));
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

    fn expand(&self, data: &LayerData) -> Result<Graph, NetworkError> {
        let wrap = |e: OpError| NetworkError::from(IrError::layer(&data.name, data.def.kind(), e));
        if data.inputs.len() > data.def.max_inputs() {
            let wanted = format!("at most {}", data.def.max_inputs());
            return Err(wrap(OpError::Arity { found: data.inputs.len(), wanted }));
        }
        if self.implicit_batch && !data.def.implicit_batch() {
            let why = format!("{} may mix entries of the batch and is refused", data.def.kind());
            return Err(NetworkError::ImplicitBatch { what: data.name.clone(), why });
        }
        let facts: Vec<_> = data.inputs.iter().map(|t| t.map(|t| self.fact(t).clone())).collect();
        let mut b = Body::new(&data.name, &facts, &data.meta, &data.weight_names, self.implicit_batch);
        let outputs = data.def.expand(&mut b).map_err(wrap)?;
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

    fn snapshot(&self, id: LayerId) -> (LayerId, LayerData, Vec<Fact>) {
        let d = self.layer_data(id);
        (id, d.clone(), d.outputs.iter().map(|&t| self.fact(t).clone()).collect())
    }

    fn propagate(&mut self, dirty: BTreeSet<LayerId>, mut undo: Undo) -> Result<(), NetworkError> {
        let done = self.infer_all(dirty, &mut undo);
        if done.is_err() {
            for (id, data, facts) in undo.into_iter().rev() {
                data.outputs.iter().zip(facts).for_each(|(&t, f)| self.set_fact(t, f));
                *self.layer_data_mut(id) = data;
            }
        }
        done
    }

    fn infer_all(&mut self, mut dirty: BTreeSet<LayerId>, undo: &mut Undo) -> Result<(), NetworkError> {
        while let Some(id) = dirty.pop_first() {
            let body = self.expand(self.layer_data(id))?;
            undo.push(self.snapshot(id));
            let outputs = self.layer_data(id).outputs.clone();
            if body.outputs.len() != outputs.len() {
                let name = &self.layer_data(id).name;
                let found = (outputs.len(), body.outputs.len());
                let text =
                    format!("layer \"{name}\" has {} outputs and can't change to {}", found.0, found.1);
                return Err(IrError::Structure(text).into());
            }
            let mut changed = Vec::new();
            for (&t, &v) in outputs.iter().zip(&body.outputs) {
                let fact = &body.value(v).fact;
                if fact != self.fact(t) {
                    self.set_fact(t, fact.clone());
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
