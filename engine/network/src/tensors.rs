//! Tensors of a network: inputs, constants, outputs, their names and marks.

use super::error::NetworkError;
use super::flow::Sides;
use super::ids::{LayerId, TensorId};
use super::{Network, check_name};
use kiln_ir::IrError;
use kiln_ir::attr::Attrs;
use kiln_ir::dim::{Dim, DimKind};
use kiln_ir::dtype::DType;
use kiln_ir::format::{Formats, TensorFormat};
use kiln_ir::graph::Weight;
use kiln_ir::graph::first_free;
use kiln_ir::infer::Fact;
use kiln_ir::tensor::Tensor;
use kiln_ir::ty::TensorType;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The name of the leading dimension in networks with an implicit batch.
pub(super) const BATCH: &str = "batch";

/// Data of a tensor in the network.
#[derive(Clone, Debug)]
pub(super) struct TensorData {
    pub(super) name: String,
    pub(super) fact: Fact,
    /// The type without the implicit batch.
    pub(super) shown: TensorType,
    pub(super) source: TensorSource,
    /// The type that an output of the network must have, if it was set.
    pub(super) boundary_type: Option<DType>,
    /// The least and the greatest value, if they were set.
    pub(super) range: Option<[f32; 2]>,
    /// The formats that an input or output may have, if they were set.
    pub(super) formats: Option<Formats>,
    /// Facts in each branch of a conditional, where layers that follow from its result are inferred for both.
    pub(super) sides: Option<Box<Sides>>,
    /// The layers that read it.
    pub(super) readers: BTreeSet<LayerId>,
}

#[derive(Clone, Debug)]
pub(super) enum TensorSource {
    Input,
    Weight(Weight),
    Layer(LayerId),
    Removed,
}

/// Names dimensions of -1, each for itself.
fn name_unknown(input: &str, dims: &mut [Dim]) {
    for (axis, d) in dims.iter_mut().enumerate().filter(|(_, d)| d.as_const() == Some(-1)) {
        *d = Dim::host(format!("{input}.{axis}"));
    }
}

impl Network {
    /// Adds an input. Unknown dimensions are [`kiln_ir::Dim::host`] symbols: equal names are equal at run time. A dimension of -1 is
    /// unknown, too, and equal to no other; [`Network::set_dimension_name`] names it.
    pub fn add_input(&mut self, name: &str, mut ty: TensorType) -> Result<TensorId, NetworkError> {
        check_name(name)?;
        name_unknown(name, &mut ty.dims);
        if let Some((axis, n)) = ty.negative_dim() {
            let why = format!("input \"{name}\" is {ty}: size {n} of axis {axis}, wants 0 or more");
            return Err(IrError::Structure(why).into());
        }
        let ty = self.with_batch(name, ty)?;
        self.free(name)?;
        let id = self.push_tensor(name.to_owned(), input_fact(name, ty), TensorSource::Input);
        self.inputs.push(id);
        Ok(id)
    }

    fn with_batch(&self, name: &str, mut ty: TensorType) -> Result<TensorType, NetworkError> {
        if self.implicit_batch {
            if ty.static_dims().is_none() {
                let why = "has an unknown dimension, which is refused".into();
                return Err(NetworkError::ImplicitBatch { what: name.into(), why });
            }
            ty.dims.insert(0, Dim::host(BATCH));
        }
        Ok(ty)
    }

    /// Adds a constant; a name makes it refittable.
    pub fn add_weights(&mut self, name: Option<&str>, tensor: Tensor) -> Result<TensorId, NetworkError> {
        let label = match name {
            Some(n) => {
                check_name(n)?;
                n.to_owned()
            }
            None => self.unique_tensor_name("constant"),
        };
        self.free(&label)?;
        let tensor = self.batched(tensor);
        let fact = Fact::constant(tensor.clone());
        let weight = Weight { tensor, name: name.map(Arc::from), recipe: None };
        Ok(self.push_tensor(label, fact, TensorSource::Weight(weight)))
    }

    /// A constant with a leading 1 where the batch is implicit.
    pub(super) fn batched(&self, tensor: Tensor) -> Tensor {
        if !self.implicit_batch {
            return tensor;
        }
        let shape: Vec<usize> = std::iter::once(1).chain(tensor.shape().iter().copied()).collect();
        tensor.reshaped(&shape).unwrap_or(tensor)
    }

    pub(super) fn push_tensor(&mut self, name: String, fact: Fact, source: TensorSource) -> TensorId {
        let id = TensorId(self.tensors.len() as u32);
        self.by_name.insert(name.clone(), id);
        let shown = self.shown(&fact.ty);
        let readers = BTreeSet::new();
        self.tensors.push(TensorData {
            name,
            fact,
            shown,
            source,
            boundary_type: None,
            range: None,
            formats: None,
            sides: None,
            readers,
        });
        id
    }

    fn shown(&self, ty: &TensorType) -> TensorType {
        let lead = usize::from(self.implicit_batch).min(ty.rank());
        TensorType { dtype: ty.dtype, dims: ty.dims[lead..].to_vec() }
    }

    pub(super) fn set_fact(&mut self, t: TensorId, fact: Fact) {
        let shown = self.shown(&fact.ty);
        let data = &mut self.tensors[t.0 as usize];
        (data.fact, data.shown) = (fact, shown);
    }

    pub(super) fn tensor(&self, t: TensorId) -> &TensorData {
        &self.tensors[t.0 as usize]
    }

    /// Refuses ids of another network.
    pub(super) fn known(&self, t: TensorId) -> Result<(), NetworkError> {
        match self.tensors.get(t.0 as usize).map(|d| &d.source) {
            None | Some(TensorSource::Removed) => Err(IrError::UnknownTensor(format!("{t:?}")).into()),
            Some(_) => Ok(()),
        }
    }

    /// The layer that makes a tensor; none for inputs and constants.
    pub fn producer(&self, t: TensorId) -> Option<LayerId> {
        match self.tensor(t).source {
            TensorSource::Layer(l) => Some(l),
            _ => None,
        }
    }

    /// Facts of a tensor: type, dimensions, and contents where they are followed. The implicit batch, if
    /// there is one, is dimension 0.
    pub fn fact(&self, tensor: TensorId) -> &Fact {
        &self.tensor(tensor).fact
    }

    /// A tensor's type, the implicit batch left out.
    pub fn ty(&self, tensor: TensorId) -> &TensorType {
        &self.tensor(tensor).shown
    }

    /// A tensor's name.
    pub fn tensor_name(&self, tensor: TensorId) -> &str {
        &self.tensor(tensor).name
    }

    /// The tensor of this name.
    pub fn find(&self, name: &str) -> Option<TensorId> {
        self.by_name.get(name).copied()
    }

    /// The constant that a tensor is, if it is one that [`Network::add_weights`] made.
    pub fn weights(&self, tensor: TensorId) -> Option<&Weight> {
        match &self.tensor(tensor).source {
            TensorSource::Weight(w) => Some(w),
            _ => None,
        }
    }

    pub(super) fn is_weights(&self, name: &str) -> bool {
        self.find(name).and_then(|t| self.weights(t)).is_some_and(|w| w.name.is_some())
    }

    /// The inputs, in order.
    pub fn inputs(&self) -> &[TensorId] {
        &self.inputs
    }

    /// The outputs, in order.
    pub fn outputs(&self) -> &[TensorId] {
        &self.outputs
    }

    /// Names dimensions of an input (`None`: it keeps the number or name that it has). Dimensions of equal
    /// names are equal at run time; everything that depends on the input is inferred again.
    pub fn set_dimension_name(
        &mut self,
        input: TensorId,
        axis: usize,
        name: &str,
    ) -> Result<(), NetworkError> {
        self.known(input)?;
        check_name(name)?;
        let mut fact = self.fact(input).clone();
        let lead = usize::from(self.implicit_batch);
        let rank = fact.ty.rank() - lead.min(fact.ty.rank());
        let data = self.tensor(input);
        let unknown = fact.ty.dims.get(axis + lead).is_some_and(|d| d.as_const().is_none());
        if axis >= rank || !unknown || !matches!(data.source, TensorSource::Input) {
            let what = format!("unknown dimension {axis} of an input \"{}\"", data.name);
            return Err(NetworkError::NoSuch(what));
        }
        fact.ty.dims[axis + lead] = Dim::host(name);
        self.replace_input(input, fact)
    }

    /// Replaces the dimensions of an input, the implicit batch left out; everything that depends on it is
    /// inferred again. A dimension of -1 is unknown.
    pub fn set_dimensions(&mut self, input: TensorId, dims: impl Into<Vec<Dim>>) -> Result<(), NetworkError> {
        self.known(input)?;
        let data = self.tensor(input);
        if !matches!(data.source, TensorSource::Input) {
            return Err(NetworkError::NoSuch(format!("input \"{}\"", data.name)));
        }
        let (name, dtype) = (data.name.clone(), data.fact.ty.dtype);
        let lead = data.fact.ty.dims.first().cloned().filter(|_| self.implicit_batch);
        let mut dims = dims.into();
        name_unknown(&name, &mut dims);
        let mut ty = self.with_batch(&name, TensorType { dtype, dims })?;
        if let (Some(lead), Some(d)) = (lead, ty.dims.first_mut()) {
            *d = lead;
        }
        self.replace_input(input, input_fact(&name, ty))
    }

    /// Makes an input the same for all entries of an implicit batch, or not.
    pub fn set_broadcast_across_batch(
        &mut self,
        input: TensorId,
        broadcast: bool,
    ) -> Result<(), NetworkError> {
        self.known(input)?;
        let data = self.tensor(input);
        if !self.implicit_batch || !matches!(data.source, TensorSource::Input) {
            return Err(NetworkError::NoSuch(format!("input \"{}\" with an implicit batch", data.name)));
        }
        let mut fact = data.fact.clone();
        if let Some(d) = fact.ty.dims.first_mut() {
            *d = if broadcast { 1.into() } else { Dim::host(BATCH) };
        }
        self.replace_input(input, fact)
    }

    /// Makes a tensor an output of the network under this name (empty: the name that it has). It is renamed, or, where
    /// it has to keep its name (a constant, an output already), an identity layer is added. Inputs and tensors inside
    /// of loops and conditionals are refused.
    pub fn mark_output(&mut self, tensor: TensorId, name: &str) -> Result<(), NetworkError> {
        self.known(tensor)?;
        let data = self.tensor(tensor);
        if matches!(data.source, TensorSource::Input) {
            return Err(NetworkError::InputAsOutput(data.name.clone()));
        }
        self.mark_any_output(tensor, name)
    }

    /// As [`Network::mark_output`], but an input may be an output too, as in ONNX.
    pub fn mark_any_output(&mut self, tensor: TensorId, name: &str) -> Result<(), NetworkError> {
        self.known(tensor)?;
        self.check_closed(tensor)?;
        let name = if name.is_empty() { self.tensor(tensor).name.clone() } else { name.to_owned() };
        check_name(&name)?;
        if self.outputs.iter().any(|&t| self.tensor(t).name == name) {
            return Err(IrError::DuplicateName(name).into());
        }
        self.check_exterior(tensor)?;
        let tensor = self.output_tensor(tensor, &name)?;
        self.outputs.push(tensor);
        Ok(())
    }

    fn output_tensor(&mut self, tensor: TensorId, name: &str) -> Result<TensorId, NetworkError> {
        let made = self.producer(tensor);
        if self.tensor(tensor).name == name {
            return Ok(tensor);
        }
        // A tensor may take the name of the layer that makes it, but of no other.
        let own = made.is_some_and(|l| self.layer_data(l).name == name);
        if self.by_name.contains_key(name) || (self.layer_names.contains_key(name) && !own) {
            return Err(IrError::DuplicateName(name.to_owned()).into());
        }
        if made.is_some() && !self.outputs.contains(&tensor) {
            self.rename_tensor(tensor, name);
            return Ok(tensor);
        }
        let made = self.add_layer(name, "identity", Attrs::new(), &[Some(tensor)])?;
        made.first().copied().ok_or_else(|| IrError::UnknownTensor(name.to_owned()).into())
    }

    /// Takes an output back.
    pub fn unmark_output(&mut self, tensor: TensorId) -> Result<(), NetworkError> {
        self.known(tensor)?;
        let at = self.outputs.iter().position(|&t| t == tensor);
        let at = at.ok_or_else(|| NetworkError::NotMarked(self.tensor(tensor).name.clone()))?;
        self.outputs.remove(at);
        Ok(())
    }

    /// Makes a tensor an output whose elements the host knows before a run: they follow from the shapes of the inputs
    /// and the contents of shape inputs. At most one dimension, an integer type; refused if something needs the device.
    /// It is an output of the graph too, behind those that [`Network::mark_output`] made.
    pub fn mark_output_for_shapes(&mut self, tensor: TensorId) -> Result<(), NetworkError> {
        self.known(tensor)?;
        let data = self.tensor(tensor);
        if matches!(data.source, TensorSource::Input) {
            return Err(NetworkError::InputAsOutput(data.name.clone()));
        }
        if self.shape_outputs.contains(&tensor) {
            return Err(IrError::DuplicateName(data.name.clone()).into());
        }
        self.check_exterior(tensor)?;
        self.check_closed(tensor)?;
        let fact = &data.fact;
        let on_host = |d: &Dim| d.kind() <= DimKind::Host;
        let small = data.shown.rank() <= 1 && fact.ty.dtype.is_int();
        if !small || !fact.as_dims().is_some_and(|v| v.iter().all(on_host)) {
            let (tensor, found) = (data.name.clone(), data.shown.to_string());
            return Err(NetworkError::NotForShapes { tensor, found });
        }
        self.shape_outputs.push(tensor);
        Ok(())
    }

    /// Undoes [`Network::mark_output_for_shapes`]. Returns whether the tensor was marked.
    pub fn unmark_output_for_shapes(&mut self, tensor: TensorId) -> bool {
        let before = self.shape_outputs.len();
        self.shape_outputs.retain(|&t| t != tensor);
        self.shape_outputs.len() < before
    }

    /// The outputs whose elements the host knows before a run.
    pub fn outputs_for_shapes(&self) -> &[TensorId] {
        &self.shape_outputs
    }

    /// All outputs of the graph: those for shapes that are not among the others come last.
    pub(super) fn all_outputs(&self) -> impl Iterator<Item = TensorId> + '_ {
        let more = self.shape_outputs.iter().filter(|t| !self.outputs.contains(t));
        self.outputs.iter().chain(more).copied()
    }

    /// Removes an input or a constant that nothing reads.
    pub fn remove_tensor(&mut self, tensor: TensorId) -> Result<(), NetworkError> {
        self.known(tensor)?;
        let in_use = |user: String| NetworkError::InUse { tensor: self.tensor(tensor).name.clone(), user };
        let layer = self.producer(tensor).or_else(|| self.tensor(tensor).readers.first().copied());
        let user = match layer {
            Some(l) => Some(format!("layer \"{}\"", self.layer_data(l).name)),
            None if self.all_outputs().any(|t| t == tensor) => Some("the list of outputs".into()),
            None => None,
        };
        if let Some(user) = user {
            return Err(in_use(user));
        }
        self.inputs.retain(|&t| t != tensor);
        self.debug.retain(|&t| t != tensor);
        let data = &mut self.tensors[tensor.0 as usize];
        data.source = TensorSource::Removed;
        self.by_name.remove(&data.name);
        Ok(())
    }

    /// Renames a tensor; the name must be free.
    pub fn set_tensor_name(&mut self, tensor: TensorId, name: &str) -> Result<(), NetworkError> {
        self.known(tensor)?;
        check_name(name)?;
        if self.tensor(tensor).name != name {
            self.free(name)?;
            self.rename_tensor(tensor, name);
        }
        Ok(())
    }

    pub(super) fn rename_tensor(&mut self, tensor: TensorId, name: &str) {
        let old = std::mem::replace(&mut self.tensors[tensor.0 as usize].name, name.to_owned());
        self.by_name.remove(&old);
        self.by_name.insert(name.to_owned(), tensor);
    }

    /// Sets the type of an input, or the type that an output of the network has at the boundary: a cast is
    /// added where it differs. Other tensors have the type that their layer computes.
    pub fn set_tensor_type(&mut self, tensor: TensorId, dtype: DType) -> Result<(), NetworkError> {
        self.known(tensor)?;
        let data = self.tensor(tensor);
        if matches!(data.source, TensorSource::Input) {
            let ty = data.fact.ty.with_dtype(dtype);
            return self.replace_input(tensor, input_fact(&data.name.clone(), ty));
        }
        if self.outputs.contains(&tensor) {
            self.weakly_typed(&data.name.clone())?;
            self.tensors[tensor.0 as usize].boundary_type = Some(dtype);
            return Ok(());
        }
        if data.fact.ty.dtype == dtype {
            return Ok(());
        }
        let (tensor, found) = (data.name.clone(), data.fact.ty.dtype.to_string());
        Err(NetworkError::TensorType { tensor, found, wanted: dtype.to_string() })
    }

    /// Sets the least and the greatest value of a tensor. Builds that permit i8 quantize it by its greatest absolute value, and cut off
    /// what is beyond. The ends are finite, the least one first.
    pub fn set_dynamic_range(&mut self, tensor: TensorId, min: f32, max: f32) -> Result<(), NetworkError> {
        self.known(tensor)?;
        if !(min.is_finite() && max.is_finite() && min <= max) {
            let tensor = self.tensor(tensor).name.clone();
            return Err(NetworkError::DynamicRange { tensor, min, max });
        }
        self.tensors[tensor.0 as usize].range = Some([min, max]);
        Ok(())
    }

    /// The range set by [`Network::set_dynamic_range`].
    pub fn dynamic_range(&self, tensor: TensorId) -> Option<[f32; 2]> {
        self.tensors.get(tensor.0 as usize)?.range
    }

    /// Forgets the range set by [`Network::set_dynamic_range`].
    pub fn reset_dynamic_range(&mut self, tensor: TensorId) -> Result<(), NetworkError> {
        self.known(tensor)?;
        self.tensors[tensor.0 as usize].range = None;
        Ok(())
    }

    /// Sets the formats that an input or an output of the network may have at the boundary; a build takes the fastest of those
    /// that its type and dimensions permit. Dimensions stay those of the linear format. By default that one only.
    pub fn set_allowed_formats(
        &mut self,
        tensor: TensorId,
        formats: impl Into<Formats>,
    ) -> Result<(), NetworkError> {
        self.known(tensor)?;
        let (formats, data) = (formats.into(), self.tensor(tensor));
        let border = matches!(data.source, TensorSource::Input) || self.outputs.contains(&tensor);
        let why = match (border, formats.is_empty()) {
            (false, _) => "only inputs and outputs of the network have formats; mark it as an output first",
            (true, true) => "no format is allowed; give one or more",
            (true, false) => {
                self.tensors[tensor.0 as usize].formats = Some(formats);
                return Ok(());
            }
        };
        Err(NetworkError::Formats { tensor: data.name.clone(), why: why.into() })
    }

    /// The formats that [`Network::set_allowed_formats`] set; the linear one by default.
    pub fn allowed_formats(&self, tensor: TensorId) -> Formats {
        let set = self.tensors.get(tensor.0 as usize).and_then(|d| d.formats);
        set.unwrap_or(TensorFormat::Linear.into())
    }

    /// Whether this is the name of an input, a constant, a layer or another tensor.
    pub fn is_taken(&self, name: &str) -> bool {
        self.layer_names.contains_key(name) || self.by_name.contains_key(name)
    }

    pub(super) fn free(&self, name: &str) -> Result<(), NetworkError> {
        if self.is_taken(name) { Err(IrError::DuplicateName(name.to_owned()).into()) } else { Ok(()) }
    }

    /// `name`, or `name.2`, `name.3`… if a tensor has it already.
    pub(super) fn unique_tensor_name(&self, name: &str) -> String {
        unique(name, |n| self.by_name.contains_key(n))
    }
}

/// `name`, or `name.2`, `name.3`… if it is taken.
pub(super) fn unique(name: &str, taken: impl Fn(&str) -> bool) -> String {
    if !taken(name) {
        return name.to_owned();
    }
    format!("{name}.{}", first_free(|i| taken(&format!("{name}.{i}"))))
}

/// The fact of a network input: the elements of a small integer tensor of static shape are symbols, so that it can
/// serve as a shape input.
pub(super) fn input_fact(name: &str, ty: TensorType) -> Fact {
    let small = ty.rank() <= 1 && ty.dtype.is_int() && ty.static_volume().is_some_and(|n| n <= 64);
    match ty.static_volume() {
        Some(n) if small => {
            let dims = (0..n).map(|i| Dim::content(format!("{name}[{i}]"))).collect();
            Fact::contents(ty, dims)
        }
        _ => Fact::of(ty),
    }
}
