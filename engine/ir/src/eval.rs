//! Running one operator on the oracle.

use crate::attr::Attrs;
use crate::budget::{self, Reservation};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::OpError;
use crate::infer::{Fact, InferCx, Value};
use crate::op::{Movement, Op};
use crate::tensor::{Elems, Tensor, volume};
use crate::ty::TensorType;
use crate::work::{Shapes, Work};

/// The operator, inputs and output types that a reference implementation works on.
pub struct EvalCx<'a> {
    /// The operator with its attributes.
    pub op: &'a Op,
    /// Inputs in schema order; absent ones are `None`.
    pub inputs: &'a [Option<Tensor>],
    outputs: &'a [TensorType],
}

impl<'a> EvalCx<'a> {
    /// The view of an operator whose output types inference found.
    pub fn new(op: &'a Op, inputs: &'a [Option<Tensor>], outputs: &'a [TensorType]) -> EvalCx<'a> {
        EvalCx { op, inputs, outputs }
    }

    /// The types that inference gave the outputs.
    pub fn out_types(&self) -> &'a [TensorType] {
        self.outputs
    }

    /// The attributes.
    pub fn attrs(&self) -> &'a Attrs {
        self.op.attrs()
    }

    /// Number of inputs, absent ones included.
    pub fn len(&self) -> usize {
        self.inputs.len()
    }

    /// None at all?
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// An input, if present.
    pub fn get(&self, i: usize) -> Option<&'a Tensor> {
        self.inputs.get(i)?.as_ref()
    }

    /// An input that must be present.
    pub fn input(&self, i: usize) -> Result<&'a Tensor, OpError> {
        self.get(i).ok_or_else(|| OpError::MissingInput {
            input: i,
            name: self.op.port(i).map_or(String::new(), |p| p.name.into()),
        })
    }

    /// The type that inference gave an output. Dimensions that depend on data are symbols still.
    pub fn out_ty(&self, i: usize) -> Result<&'a TensorType, OpError> {
        self.outputs.get(i).ok_or_else(|| OpError::Value(format!("output {i} does not exist")))
    }

    /// The element type of an output.
    pub fn out_dtype(&self, i: usize) -> Result<DType, OpError> {
        Ok(self.out_ty(i)?.dtype)
    }

    /// The shape of an output that does not depend on data, checked against the address space.
    pub fn out_shape(&self, i: usize) -> Result<Vec<usize>, OpError> {
        let ty = self.out_ty(i)?;
        let too_large = || OpError::TooLarge(ty.to_string());
        let shape = ty.static_dims().ok_or_else(|| OpError::Value(format!("the shape {ty} is not known")))?;
        let bytes = volume(&shape).and_then(|n| ty.dtype.bytes_for(n as u64)).ok_or_else(too_large)?;
        if bytes > isize::MAX as u64 { Err(too_large()) } else { Ok(shape) }
    }

    /// An output tensor from widened elements.
    pub fn make(&self, i: usize, shape: &[usize], elems: Elems) -> Result<Tensor, OpError> {
        let dtype = self.out_dtype(i)?;
        Tensor::from_elems(dtype, shape, &elems)
            .ok_or_else(|| OpError::Value(format!("wrong number of elements for {dtype}{shape:?}")))
    }
}

impl Op {
    /// Facts of the outputs from facts of the inputs. `scope` is the layer's name. Contents of small integer results
    /// are computed where all inputs are constants.
    pub fn infer(&self, inputs: &[Option<Fact>], scope: &str) -> Result<Vec<Fact>, OpError> {
        self.check_arity(&inputs.iter().map(Option::is_some).collect::<Vec<_>>())?;
        let mut facts = (self.def().infer)(&mut InferCx::new(self, inputs, scope))?;
        facts.iter().try_for_each(|f| check_sizes(&f.ty))?;
        self.check_known_indices(inputs)?;
        if facts.iter().any(|f| f.value.is_none()) && self.worth_folding(inputs, &facts) {
            let tensors: Vec<_> =
                inputs.iter().map(|f| f.as_ref().and_then(Fact::as_const).cloned()).collect();
            let types: Vec<_> = facts.iter().map(|f| f.ty.clone()).collect();
            let outs = self.run(&tensors, &types)?;
            for (f, t) in facts.iter_mut().zip(outs) {
                f.value = Some(Value::Const(t));
            }
        }
        Ok(facts)
    }

    fn worth_folding(&self, inputs: &[Option<Fact>], outputs: &[Fact]) -> bool {
        let small = |ty: &TensorType| ty.static_volume().is_some_and(|n| n <= crate::infer::MAX_CONTENT);
        let t = self.def().traits;
        !(t.random || t.side_effect || t.data_dependent)
            && inputs.iter().flatten().all(|f| f.as_const().is_some() && small(&f.ty))
            && outputs.iter().all(|f| small(&f.ty))
    }

    /// Runs the oracle: infers the output types from the inputs and their contents, then evaluates.
    pub fn eval(&self, inputs: &[Option<Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let facts: Vec<_> = inputs.iter().map(|t| t.clone().map(Fact::constant)).collect();
        self.check_arity(&facts.iter().map(Option::is_some).collect::<Vec<_>>())?;
        let types: Vec<_> =
            (self.def().infer)(&mut InferCx::new(self, &facts, ""))?.into_iter().map(|f| f.ty).collect();
        types.iter().try_for_each(check_sizes)?;
        let shapes: Vec<_> = inputs.iter().map(|t| t.as_ref().map(|t| t.shape().to_vec())).collect();
        self.check_indices(&shapes, |i| inputs.get(i).cloned().flatten())?;
        self.run(inputs, &types)
    }

    /// Evaluates. Results that are all empty are not computed: other dimensions of theirs may be any size.
    fn run(&self, inputs: &[Option<Tensor>], types: &[TensorType]) -> Result<Vec<Tensor>, OpError> {
        match self.empty_results(types) {
            Some(empty) => Ok(empty),
            None => {
                let _held = self.reserve(inputs, types)?;
                (self.def().eval)(&EvalCx { op: self, inputs, outputs: types })
            }
        }
    }

    /// The results, if they are known to have no elements and nothing else depends on the evaluation.
    pub fn empty_results(&self, types: &[TensorType]) -> Option<Vec<Tensor>> {
        let traits = self.def().traits;
        let pure = !traits.side_effect && !traits.data_dependent && !self.roles().control;
        let empty = |ty: &TensorType| {
            let shape = ty.static_dims().filter(|s| s.contains(&0))?;
            Tensor::from_bytes(ty.dtype, &shape, Vec::new())
        };
        if pure && !types.is_empty() { types.iter().map(empty).collect() } else { None }
    }

    /// The oracle's work for inputs of these types. Dimensions that are not numbers yet count as 1.
    pub fn work(&self, inputs: &[Option<&TensorType>], outputs: &[&TensorType]) -> Work {
        let shapes = Shapes::new(self.attrs(), inputs, outputs);
        Work { elements: shapes.elements(), beyond: self.def().traits.work.map_or(0, |rule| rule(&shapes)) }
    }

    /// Asks the memory budget for what the oracle takes while it evaluates: inputs and outputs as 64-bit numbers, and the
    /// outputs as they are stored. Outputs whose shapes depend on data are taken at their bounds, if they have any. Views
    /// share the memory of their input.
    fn reserve(&self, inputs: &[Option<Tensor>], outputs: &[TensorType]) -> Result<Reservation, OpError> {
        if matches!(self.movement(), Movement::Identity | Movement::Reshape) {
            return Ok(Reservation::of(0));
        }
        let wide = |n: u64| n.saturating_mul(8);
        let of_input = |t: &Tensor| wide(t.len() as u64);
        let of_output = |ty: &TensorType| {
            let bound = |d: &Dim| d.upper_bound()?.as_const().and_then(|n| u64::try_from(n).ok());
            let n = ty.dims.iter().map(bound).try_fold(1u64, |n, d| Some(n.saturating_mul(d?)));
            n.map_or(0, |n| wide(n).saturating_add(ty.dtype.bytes_for(n).unwrap_or(u64::MAX)))
        };
        let inputs = inputs.iter().flatten().map(of_input);
        let wanted = inputs.chain(outputs.iter().map(of_output)).fold(0u64, u64::saturating_add);
        Ok(budget::reserve(wanted)?)
    }
}

/// Refuses a result with a negative size, and a shape whose strides can't be computed, even if it has no elements.
pub(crate) fn check_sizes(ty: &TensorType) -> Result<(), OpError> {
    if let Some((axis, n)) = ty.negative_dim() {
        let why = format!("the result would be {ty}: size {n} of axis {axis}, wants 0 or more");
        return Err(OpError::Value(why));
    }
    match ty.static_dims() {
        Some(shape) if volume(&shape).is_none() => Err(OpError::TooLarge(ty.to_string())),
        _ => Ok(()),
    }
}
