//! Constants, copies, conversions, shapes, assertions.

use crate::NetworkError;
use crate::body::bad;
use crate::layer::setters;
use crate::{Body, Layer, LayerDef, Network, TensorId, WeightsRole};
use kiln_ir::attr::Attrs;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;
use kiln_ir::tensor::Tensor;
use kiln_ops::cast::{CAST, IDENTITY};
use kiln_ops::generate::ASSERTION;

impl Network {
    /// A constant. Truth values and u8 are refused; cast from i32 instead.
    pub fn add_constant(&mut self, weights: Tensor) -> Result<Layer<'_, Constant>, NetworkError> {
        self.add_kind(Constant { weights }, &[])
    }

    /// A copy. In weakly typed networks an output type turns it into a conversion.
    pub fn add_identity(&mut self, input: TensorId) -> Result<Layer<'_, Identity>, NetworkError> {
        self.add_kind(Identity, &[input])
    }

    /// A conversion to another element type.
    pub fn add_cast(&mut self, input: TensorId, to: DType) -> Result<Layer<'_, Cast>, NetworkError> {
        self.add_kind(Cast { to }, &[input])
    }

    /// The dimensions of a tensor as a 1-D tensor of i64.
    pub fn add_shape(&mut self, input: TensorId) -> Result<Layer<'_, Shape>, NetworkError> {
        self.add_kind(Shape, &[input])
    }

    /// Fails the run, with this message, unless all elements are true; what is false now is refused at once.
    pub fn add_assertion(
        &mut self,
        condition: TensorId,
        message: &str,
    ) -> Result<Layer<'_, Assertion>, NetworkError> {
        self.add_kind(Assertion { message: message.into() }, &[condition])
    }
}

/// See [`Network::add_constant`].
#[derive(Clone, Debug)]
pub struct Constant {
    pub weights: Tensor,
}

setters! { Constant {
    /// Replaces the elements, perhaps by ones in another shape.
    set_weights(weights: Tensor) => weights = weights;
}}

impl LayerDef for Constant {
    fn kind(&self) -> &'static str {
        "constant"
    }
    fn max_inputs(&self) -> usize {
        0
    }
    fn weights(&self) -> &'static [WeightsRole] {
        &[WeightsRole::Constant]
    }
    fn implicit_batch(&self) -> bool {
        true
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let found = self.weights.dtype();
        if matches!(found, DType::Bool | DType::U8) {
            let wanted = "another type than bool and u8; make it i32 and add a cast";
            return Err(bad("weights", found, wanted));
        }
        let mut shape = self.weights.shape().to_vec();
        (0..b.lead()).for_each(|_| shape.insert(0, 1));
        let misfit = || OpError::Value(format!("{shape:?} does not hold the weights"));
        let t = self.weights.reshaped(&shape).ok_or_else(misfit)?;
        Ok(vec![b.weights(WeightsRole::Constant, t)])
    }
}

/// See [`Network::add_identity`].
#[derive(Clone, Debug)]
pub struct Identity;

impl LayerDef for Identity {
    fn kind(&self) -> &'static str {
        "identity"
    }
    fn implicit_batch(&self) -> bool {
        true
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let x = b.x(0)?;
        match b.output_type(0) {
            Some(to) if to != b.dtype(x) => Ok(vec![b.cast(x, to)?]),
            _ => Ok(vec![b.plain(IDENTITY, &[x])?]),
        }
    }
}

/// See [`Network::add_cast`].
#[derive(Clone, Debug)]
pub struct Cast {
    pub to: DType,
}

setters! { Cast {
    /// Converts to another type.
    set_to_type(to: DType) => to = to;
}}

impl LayerDef for Cast {
    fn kind(&self) -> &'static str {
        "cast"
    }
    fn implicit_batch(&self) -> bool {
        true
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let x = b.x(0)?;
        Ok(vec![b.op(CAST, Attrs::new().with("to", self.to), &[x])?])
    }
}

/// See [`Network::add_shape`].
#[derive(Clone, Debug)]
pub struct Shape;

impl LayerDef for Shape {
    fn kind(&self) -> &'static str {
        "shape"
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let x = b.x(0)?;
        Ok(vec![b.shape(x)?])
    }
}

/// See [`Network::add_assertion`].
#[derive(Clone, Debug)]
pub struct Assertion {
    pub message: String,
}

setters! { Assertion {
    /// Replaces the message.
    set_message(message: &str) => message = message.to_owned();
}}

impl LayerDef for Assertion {
    fn kind(&self) -> &'static str {
        "assertion"
    }
    fn side_effect(&self) -> bool {
        true
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        b.check_dtype(0, |d| d == DType::Bool, "bool")?;
        b.check_rank(0, |r| r <= 1, "at most one dimension")?;
        let x = b.x(0)?;
        if b.fact(x).as_const().is_some_and(|t| t.to_i64().contains(&0)) {
            return Err(OpError::Value(format!("the assertion is false already: {}", self.message)));
        }
        b.ops(ASSERTION, Attrs::new().with("message", self.message.clone()), &[Some(x)])
    }
}
