//! Small constants.

use kiln_ir::{DType, Elems, Tensor};
use kiln_network::TensorId;

use super::cx::Cx;
use crate::error::{Refusal, unsupported};

/// Constants of at most this many bytes are shared between layers.
const SHARED: usize = 256;

impl Cx<'_> {
    /// A constant without a name.
    pub(crate) fn constant(&mut self, tensor: Tensor) -> Result<TensorId, Refusal> {
        let small = tensor.bytes().len() <= SHARED;
        let key =
            (tensor.dtype(), tensor.shape().to_vec(), if small { tensor.bytes().to_vec() } else { vec![] });
        if let Some(known) = self.importer.small.get(&key).filter(|_| small) {
            return Ok(*known);
        }
        let id = self.importer.net.add_weights(None, tensor)?;
        if small {
            self.importer.small.insert(key, id);
        }
        Ok(id)
    }

    /// A named weight: what a `Constant` node is.
    pub(crate) fn named_weight(&mut self, name: &str, tensor: Tensor) -> Result<TensorId, Refusal> {
        self.importer.named_weight(name, tensor)
    }

    /// A constant of these elements.
    pub(crate) fn elems(&mut self, dtype: DType, shape: &[usize], elems: Elems) -> Result<TensorId, Refusal> {
        match Tensor::from_elems(dtype, shape, &elems) {
            Some(tensor) => self.constant(tensor),
            None => unsupported(format!("a constant {dtype} of shape {shape:?}")),
        }
    }

    /// A 1-D i64 constant.
    pub(crate) fn i64s(&mut self, values: &[i64]) -> Result<TensorId, Refusal> {
        self.elems(DType::I64, &[values.len()], Elems::I(values.to_vec()))
    }

    /// A rank-0 i64 constant.
    pub(crate) fn i64(&mut self, value: i64) -> Result<TensorId, Refusal> {
        self.elems(DType::I64, &[], Elems::I(vec![value]))
    }

    /// A rank-0 number, rounded to the type.
    pub(crate) fn num(&mut self, dtype: DType, value: f64) -> Result<TensorId, Refusal> {
        let elems = if dtype.is_float() { Elems::F(vec![value]) } else { Elems::I(vec![value as i64]) };
        self.elems(dtype, &[], elems)
    }

    /// A rank-0 number of the type of `x`.
    pub(crate) fn num_like(&mut self, x: TensorId, value: f64) -> Result<TensorId, Refusal> {
        self.num(self.dtype(x), value)
    }
}
