//! Functions of one, two and three elements: unary, elementwise, select, parametric ReLU.

use crate::NetworkError;
use crate::layer::setters;
use crate::{Body, Layer, LayerDef, Network, TensorId};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;
use kiln_ir::infer::differ;
use kiln_ir::ty::dims_text;
use kiln_ops::pointwise::clip::PRELU;
use kiln_ops::pointwise::select::SELECT;

impl Network {
    /// A function of every element without parameters.
    pub fn add_unary(&mut self, input: TensorId, op: UnaryOp) -> Result<Layer<'_, Unary>, NetworkError> {
        self.add_kind(Unary { op }, &[input])
    }

    /// A function of two tensors of the same rank, element by element; dimensions of length 1 are stretched.
    pub fn add_elementwise(
        &mut self,
        a: TensorId,
        b: TensorId,
        op: ElementwiseOp,
    ) -> Result<Layer<'_, Elementwise>, NetworkError> {
        self.add_kind(Elementwise { op }, &[a, b])
    }

    /// `then` where `condition` is true, `otherwise` elsewhere; all of the same rank, stretched where length 1.
    pub fn add_select(
        &mut self,
        condition: TensorId,
        then: TensorId,
        otherwise: TensorId,
    ) -> Result<Layer<'_, Select>, NetworkError> {
        self.add_kind(Select, &[condition, then, otherwise])
    }

    /// x where x is positive, slope·x elsewhere; the slope is stretched to x.
    pub fn add_parametric_relu(
        &mut self,
        input: TensorId,
        slope: TensorId,
    ) -> Result<Layer<'_, ParametricRelu>, NetworkError> {
        self.add_kind(ParametricRelu, &[input, slope])
    }
}

/// Functions of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    Exp,
    Log,
    Sqrt,
    Recip,
    Abs,
    Neg,
    Sin,
    Cos,
    Tan,
    Sinh,
    Cosh,
    Asin,
    Acos,
    Atan,
    Asinh,
    Acosh,
    Atanh,
    Ceil,
    Floor,
    Erf,
    Not,
    Sign,
    Round,
    IsInf,
    IsNan,
}

/// See [`Network::add_unary`].
#[derive(Clone, Debug)]
pub struct Unary {
    pub op: UnaryOp,
}

setters! { Unary {
    /// Replaces the function.
    set_operation(op: UnaryOp) => op = op;
}}

impl Unary {
    /// The function.
    pub fn operation(&self) -> UnaryOp {
        self.op
    }
}

impl LayerDef for Unary {
    fn kind(&self) -> &'static str {
        "unary"
    }
    fn implicit_batch(&self) -> bool {
        true
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        match self.op {
            UnaryOp::Not => b.check_dtype(0, |d| d == DType::Bool, "bool")?,
            UnaryOp::Sign | UnaryOp::Abs | UnaryOp::Neg => {
                b.check_dtype(0, |d| !matches!(d, DType::Bool | DType::U8), "a signed type")?
            }
            _ => b.floats(0)?,
        };
        let name = format!("{:?}", self.op).to_lowercase();
        let x = b.x(0)?;
        Ok(vec![b.plain(&name, &[x])?])
    }
}

/// Functions of two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementwiseOp {
    Sum,
    Prod,
    Max,
    Min,
    Sub,
    Div,
    Pow,
    FloorDiv,
    And,
    Or,
    Xor,
    Equal,
    Greater,
    Less,
}

impl ElementwiseOp {
    fn name(self) -> &'static str {
        use ElementwiseOp as E;
        match self {
            E::Sum => "add",
            E::Prod => "mul",
            E::Max => "max",
            E::Min => "min",
            E::Sub => "sub",
            E::Div => "div",
            E::Pow => "pow",
            E::FloorDiv => "floor_div",
            E::And => "and",
            E::Or => "or",
            E::Xor => "xor",
            E::Equal => "equal",
            E::Greater => "greater",
            E::Less => "less",
        }
    }
}

/// See [`Network::add_elementwise`].
#[derive(Clone, Debug)]
pub struct Elementwise {
    pub op: ElementwiseOp,
}

setters! { Elementwise {
    /// Replaces the function.
    set_operation(op: ElementwiseOp) => op = op;
}}

/// Refuses inputs of different ranks, and dimensions that are neither equal nor 1.
pub(super) fn same_rank(b: &Body<'_>, inputs: &[usize]) -> Result<(), OpError> {
    let mut first: Option<Vec<Dim>> = None;
    for &i in inputs {
        let dims = b.dims(b.x(i)?);
        let Some(a) = first.clone() else {
            first = Some(dims);
            continue;
        };
        let stretch = |x: &Dim, y: &Dim| x.is(1) || y.is(1) || !differ(x, y);
        if a.len() != dims.len() || !a.iter().zip(&dims).all(|(x, y)| stretch(x, y)) {
            let wanted = "the same rank, and dimensions that are equal or 1".into();
            return Err(OpError::Mismatch { a: dims_text(&a), b: dims_text(&dims), wanted });
        }
        first = Some(a.into_iter().zip(dims).map(|(x, y)| if x.is(1) { y } else { x }).collect());
    }
    Ok(())
}

impl LayerDef for Elementwise {
    fn kind(&self) -> &'static str {
        "elementwise"
    }
    fn max_inputs(&self) -> usize {
        2
    }
    fn implicit_batch(&self) -> bool {
        true
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let (x, y) = (b.x(0)?, b.x(1)?);
        match self.op {
            ElementwiseOp::And | ElementwiseOp::Or | ElementwiseOp::Xor => {
                b.check_dtype(0, |d| d == DType::Bool, "bool")?
            }
            _ => b.check_dtype(0, |d| d != DType::Bool, "a number")?,
        };
        b.same_dtype(0, 1)?;
        same_rank(b, &[0, 1])?;
        Ok(vec![b.plain(self.op.name(), &[x, y])?])
    }
}

/// See [`Network::add_select`].
#[derive(Clone, Debug)]
pub struct Select;

impl LayerDef for Select {
    fn kind(&self) -> &'static str {
        "select"
    }
    fn max_inputs(&self) -> usize {
        3
    }
    fn implicit_batch(&self) -> bool {
        true
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        b.check_dtype(0, |d| d == DType::Bool, "bool")?;
        b.same_dtype(1, 2)?;
        same_rank(b, &[0, 1, 2])?;
        let all = b.all()?;
        Ok(vec![b.plain(SELECT, &all)?])
    }
}

/// See [`Network::add_parametric_relu`].
#[derive(Clone, Debug)]
pub struct ParametricRelu;

impl LayerDef for ParametricRelu {
    fn kind(&self) -> &'static str {
        "parametric_relu"
    }
    fn max_inputs(&self) -> usize {
        2
    }
    fn implicit_batch(&self) -> bool {
        true
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        b.floats(0)?;
        b.same_dtype(0, 1)?;
        same_rank(b, &[0, 1])?;
        let all = b.all()?;
        Ok(vec![b.plain(PRELU, &all)?])
    }
}
