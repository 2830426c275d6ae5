//! Writing the operators of one layer.

use kiln_ir::attr::Attrs;
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::{IrError, OpError};
use kiln_ir::graph::{Graph, Meta, ValueId, Weight, WeightUse, WeightsRole};
use kiln_ir::infer::Fact;
use kiln_ir::op::Op;
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;
use kiln_ops::cast::CAST;
use kiln_ops::shape::{RESHAPE, SHAPE};
use kiln_ops::transpose::TRANSPOSE;
use std::sync::Arc;

/// The operators of one layer as they are written: a graph whose inputs are the layer's.
pub struct Body<'a> {
    graph: Graph,
    inputs: Vec<Option<ValueId>>,
    layer: &'a str,
    meta: &'a Meta,
    weight_names: &'a [(WeightsRole, Arc<str>)],
    implicit_batch: bool,
}

impl<'a> Body<'a> {
    pub(super) fn new(
        layer: &'a str,
        inputs: &[Option<Fact>],
        meta: &'a Meta,
        weight_names: &'a [(WeightsRole, Arc<str>)],
        implicit_batch: bool,
    ) -> Body<'a> {
        let mut graph = Graph::new(layer);
        let mut add = |(i, f): (usize, &Option<Fact>)| {
            f.as_ref().map(|f| graph.add_input(&format!("{layer}/in{i}"), f.clone()))
        };
        let inputs = inputs.iter().enumerate().map(&mut add).collect();
        Body { graph, inputs, layer, meta, weight_names, implicit_batch }
    }

    pub(super) fn finish(mut self, outputs: Vec<ValueId>) -> Graph {
        self.graph.outputs = outputs;
        self.graph
    }

    /// The layer's name.
    pub fn layer(&self) -> &str {
        self.layer
    }

    /// 1 if dimension 0 of every tensor is a batch that the layer's axes don't count, else 0.
    pub fn lead(&self) -> usize {
        usize::from(self.implicit_batch)
    }

    /// Whether the input is present.
    pub fn has(&self, i: usize) -> bool {
        self.inputs.get(i).is_some_and(Option::is_some)
    }

    /// Number of inputs, absent ones included.
    pub fn len(&self) -> usize {
        self.inputs.len()
    }

    /// None at all?
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// An input that must be present.
    pub fn x(&self, i: usize) -> Result<ValueId, OpError> {
        let missing = || OpError::MissingInput { input: i, name: format!("input {i}") };
        self.inputs.get(i).copied().flatten().ok_or_else(missing)
    }

    /// An input that may be absent.
    pub fn opt(&self, i: usize) -> Option<ValueId> {
        self.inputs.get(i).copied().flatten()
    }

    /// All inputs, which must all be present.
    pub fn all(&self) -> Result<Vec<ValueId>, OpError> {
        (0..self.inputs.len()).map(|i| self.x(i)).collect()
    }

    /// Type, dimensions and contents of a value, as far as they are known.
    pub fn fact(&self, v: ValueId) -> &Fact {
        &self.graph.value(v).fact
    }

    /// A value's type.
    pub fn ty(&self, v: ValueId) -> &TensorType {
        self.graph.ty(v)
    }

    /// A value's element type.
    pub fn dtype(&self, v: ValueId) -> DType {
        self.ty(v).dtype
    }

    /// A value's dimensions.
    pub fn dims(&self, v: ValueId) -> Vec<Dim> {
        self.ty(v).dims.clone()
    }

    /// A value's rank, the implicit batch included.
    pub fn rank(&self, v: ValueId) -> usize {
        self.ty(v).rank()
    }

    /// The type that the user wants for an output.
    pub fn output_type(&self, i: usize) -> Option<DType> {
        self.meta.output_types.get(i).copied().flatten()
    }

    /// An operator with all its outputs.
    pub fn ops(
        &mut self,
        op: impl AsRef<str>,
        attrs: Attrs,
        inputs: &[Option<ValueId>],
    ) -> Result<Vec<ValueId>, OpError> {
        let last = inputs.iter().rposition(Option::is_some).map_or(0, |i| i + 1);
        self.operator(Op::new(op, attrs).map_err(plain)?, &inputs[..last])
    }

    /// An operator that is there already, with all its outputs.
    pub fn operator(&mut self, op: Op, inputs: &[Option<ValueId>]) -> Result<Vec<ValueId>, OpError> {
        let n = self.graph.order().len();
        let name = if n == 0 { self.layer.to_owned() } else { format!("{}/{}.{n}", self.layer, op.name()) };
        self.graph.add_node(&name, op, inputs).map_err(plain)
    }

    /// An operator of required inputs, and its first output.
    pub fn op(&mut self, op: impl AsRef<str>, attrs: Attrs, inputs: &[ValueId]) -> Result<ValueId, OpError> {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        let op = op.as_ref();
        let outs = self.ops(op, attrs, &inputs)?;
        outs.first().copied().ok_or_else(|| OpError::Value(format!("{op} has no output")))
    }

    /// An operator without attributes.
    pub fn plain(&mut self, op: impl AsRef<str>, inputs: &[ValueId]) -> Result<ValueId, OpError> {
        self.op(op, Attrs::new(), inputs)
    }

    /// A conversion, unless the value has that type.
    pub fn cast(&mut self, v: ValueId, to: DType) -> Result<ValueId, OpError> {
        if self.dtype(v) == to {
            return Ok(v);
        }
        self.op(CAST, Attrs::new().with("to", to), &[v])
    }

    /// Weights of the layer. A refit knows them by the name that the user gave them, or as `layer/role`.
    pub fn weights(&mut self, role: WeightsRole, tensor: Tensor) -> ValueId {
        let label = format!("{}/{role}", self.layer);
        let given = self.weight_names.iter().find(|(r, _)| *r == role).map(|(_, n)| n.clone());
        let name = given.unwrap_or_else(|| Arc::from(label.as_str()));
        self.graph.weight_uses.push(WeightUse { layer: self.layer.into(), role, weight: name.clone() });
        self.graph.add_weight(&label, Weight { tensor, name: Some(name), recipe: None })
    }

    /// A constant.
    pub fn constant(&mut self, tensor: Tensor) -> ValueId {
        let label = self.graph.unique_name(&format!("{}/constant", self.layer));
        self.graph.add_constant(&label, tensor)
    }

    /// A 1-D constant of integers.
    pub fn ints(&mut self, v: &[i64]) -> Result<ValueId, OpError> {
        let t = Tensor::i64(&[v.len()], v);
        Ok(self.constant(t.ok_or_else(|| OpError::TooLarge(format!("i64[{}]", v.len())))?))
    }

    /// A scalar integer.
    pub fn int(&mut self, n: i64) -> Result<ValueId, OpError> {
        self.number(DType::I64, n as f64)
    }

    /// A scalar of any type.
    pub fn number(&mut self, dtype: DType, n: f64) -> Result<ValueId, OpError> {
        let t = match dtype {
            DType::I64 => Tensor::i64(&[], &[n as i64]),
            _ => Tensor::from_elems(dtype, &[], &Elems::F(vec![n])),
        };
        Ok(self.constant(t.ok_or_else(|| OpError::Value(format!("{n} as {dtype}")))?))
    }

    /// The value in a shape given by numbers; 0 copies a dimension, one -1 takes what is left.
    pub fn reshape(&mut self, v: ValueId, shape: &[i64]) -> Result<ValueId, OpError> {
        let shape = self.ints(shape)?;
        self.plain(RESHAPE, &[v, shape])
    }

    /// The value with its axes in another order.
    pub fn transpose(&mut self, v: ValueId, perm: &[usize]) -> Result<ValueId, OpError> {
        let perm: Vec<i64> = perm.iter().map(|&a| a as i64).collect();
        self.op(TRANSPOSE, Attrs::new().with("perm", perm), &[v])
    }

    /// The dimensions as a 1-D tensor of i64.
    pub fn shape(&mut self, v: ValueId) -> Result<ValueId, OpError> {
        self.plain(SHAPE, &[v])
    }

    /// One dimension as a 1-D tensor of one i64.
    pub fn dim(&mut self, v: ValueId, axis: usize) -> Result<ValueId, OpError> {
        let attrs = Attrs::new().with("start", axis as i64).with("end", axis as i64 + 1);
        self.op(SHAPE, attrs, &[v])
    }

    /// An output that no operator of the layer makes: control flow does.
    pub fn outside(&mut self, name: &str, fact: Fact) -> ValueId {
        self.graph.add_input(name, fact)
    }

    /// Refuses an input of another type.
    pub fn check_dtype(&self, i: usize, ok: impl Fn(DType) -> bool, wanted: &str) -> Result<DType, OpError> {
        let found = self.dtype(self.x(i)?);
        if ok(found) {
            return Ok(found);
        }
        Err(OpError::DType { input: i, found, wanted: wanted.into() })
    }

    /// Refuses integers, which many layers can't compute in.
    pub fn no_ints(&self, i: usize) -> Result<DType, OpError> {
        self.check_dtype(i, |d| d.is_float() || d == DType::I8, "a float type or i8")
    }

    /// Refuses all but floats.
    pub fn floats(&self, i: usize) -> Result<DType, OpError> {
        self.check_dtype(i, DType::is_float, "a float type")
    }

    /// Refuses two inputs of different types.
    pub fn same_dtype(&self, i: usize, j: usize) -> Result<DType, OpError> {
        let a = self.dtype(self.x(i)?);
        self.check_dtype(j, |d| d == a, &format!("{a}, as input {i} is"))
    }

    /// Refuses an input of another rank (not counting the implicit batch).
    pub fn check_rank(&self, i: usize, ok: impl Fn(usize) -> bool, wanted: &str) -> Result<usize, OpError> {
        let rank = self.rank(self.x(i)?).saturating_sub(self.lead());
        if ok(rank) {
            return Ok(rank);
        }
        Err(self.bad_shape(i, wanted))
    }

    /// The error for an input of the wrong shape.
    pub fn bad_shape(&self, i: usize, wanted: &str) -> OpError {
        let found = self.opt(i).map_or(String::new(), |v| kiln_ir::ty::dims_text(&self.ty(v).dims));
        OpError::Shape { input: i, found, wanted: wanted.into() }
    }

    /// An axis of a layer as an axis of the graph's tensors; negative ones count from the end.
    pub fn axis(&self, name: &str, axis: i64, rank: usize) -> Result<usize, OpError> {
        let own = rank.saturating_sub(self.lead());
        Ok(kiln_ir::infer::normalize_axis(axis, own, name)? + self.lead())
    }

    /// The axes of a bit mask, bit i standing for axis i.
    pub fn mask(&self, name: &str, mask: u32, rank: usize) -> Result<Vec<usize>, OpError> {
        let own = rank.saturating_sub(self.lead());
        if mask == 0 || (own < 32 && mask >> own != 0) {
            return Err(bad(name, format!("{mask:#b}"), &format!("at least one of the lowest {own} bits")));
        }
        Ok((0..own).filter(|i| mask >> i & 1 == 1).map(|i| i + self.lead()).collect())
    }

    /// The elements of an integer input that must be constant.
    pub fn need_ints(&self, i: usize, what: &str) -> Result<Vec<i64>, OpError> {
        let v = self.x(i)?;
        let needs = || OpError::NeedsValue {
            input: i,
            name: what.into(),
            wanted: "known when the network is built; make it a constant".into(),
        };
        self.fact(v).as_const().map(Tensor::to_i64).ok_or_else(needs)
    }
}

/// Error of an operator, without the name that the layer's replaces.
fn plain(e: IrError) -> OpError {
    match e {
        IrError::Layer { source, .. } => source,
        IrError::UnknownOp(op) => OpError::Unsupported(format!("there is no operator \"{op}\"")),
        other => OpError::Value(other.to_string()),
    }
}

/// The error for a parameter with a bad value.
pub(super) fn bad(name: &str, found: impl ToString, wanted: &str) -> OpError {
    OpError::Attr { name: name.into(), found: found.to_string(), wanted: wanted.into() }
}
