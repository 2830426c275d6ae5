//! Shape arithmetic that also works where dimensions are not known yet.

use kiln_ir::Attrs;
use kiln_network::TensorId;

use super::cx::Cx;
use crate::error::Refusal;

impl Cx<'_> {
    /// The tensor in a constant shape; 0 is a size, −1 what is left.
    pub(crate) fn reshape(&mut self, x: TensorId, shape: &[i64]) -> Result<TensorId, Refusal> {
        let shape = self.i64s(shape)?;
        self.reshape_to(x, shape)
    }

    /// The tensor in the shape that a tensor holds; 0 is a size, −1 what is left.
    pub(crate) fn reshape_to(&mut self, x: TensorId, shape: TensorId) -> Result<TensorId, Refusal> {
        self.layer("reshape", Attrs::new().with("allow_zero", true), &[Some(x), Some(shape)])
    }

    /// The tensor with dimensions of 1 at these places of the result.
    pub(crate) fn unsqueeze(&mut self, x: TensorId, axes: &[i64]) -> Result<TensorId, Refusal> {
        let axes = self.i64s(axes)?;
        self.bin("unsqueeze", x, axes)
    }

    /// The tensor without the dimensions of 1 at these places.
    pub(crate) fn squeeze(&mut self, x: TensorId, axes: &[i64]) -> Result<TensorId, Refusal> {
        let axes = self.i64s(axes)?;
        self.bin("squeeze", x, axes)
    }

    /// The tensor with its dimensions in another order.
    pub(crate) fn transpose(&mut self, x: TensorId, perm: Vec<i64>) -> Result<TensorId, Refusal> {
        self.layer("transpose", Attrs::new().with("perm", perm), &[Some(x)])
    }

    /// The dimensions of a tensor as a 1-D i64 tensor.
    pub(crate) fn shape(&mut self, x: TensorId) -> Result<TensorId, Refusal> {
        self.un("shape", x)
    }

    /// Some dimensions of a tensor as a 1-D i64 tensor: a constant where they are known.
    pub(crate) fn dims(&mut self, x: TensorId, range: std::ops::Range<usize>) -> Result<TensorId, Refusal> {
        let known: Option<Vec<i64>> = range.clone().map(|i| self.dim(x, i)?.as_const()).collect();
        if let Some(known) = known {
            return self.i64s(&known);
        }
        let (start, end) = (range.start as i64, range.end as i64);
        self.layer("shape", Attrs::new().with("start", start).with("end", end), &[Some(x)])
    }

    /// The product of some dimensions, if they are known.
    fn known_volume(&self, x: TensorId, range: std::ops::Range<usize>) -> Option<i64> {
        let dim = |axis| self.dim(x, axis)?.as_const();
        range.map(dim).try_fold(1i64, |product, dim| product.checked_mul(dim?))
    }

    /// The product of some dimensions as a 1-D i64 tensor of one element.
    fn volume(&mut self, x: TensorId, range: std::ops::Range<usize>) -> Result<TensorId, Refusal> {
        if let Some(known) = self.known_volume(x, range.clone()) {
            return self.i64s(&[known]);
        }
        let mut product = self.dims(x, range.start..range.start + 1)?;
        for axis in range.skip(1) {
            let dim = self.dims(x, axis..axis + 1)?;
            product = self.bin("mul", product, dim)?;
        }
        Ok(product)
    }

    /// Tensors one behind the other along an axis.
    pub(crate) fn concat(&mut self, parts: &[TensorId], axis: i64) -> Result<TensorId, Refusal> {
        if let [only] = parts {
            return Ok(*only);
        }
        let parts: Vec<_> = parts.iter().copied().map(Some).collect();
        self.layer("concat", Attrs::new().with("axis", axis), &parts)
    }

    /// `x[start..end]` along one axis.
    pub(crate) fn slice(
        &mut self,
        x: TensorId,
        axis: i64,
        start: i64,
        end: i64,
    ) -> Result<TensorId, Refusal> {
        let (start, end) = (self.i64s(&[start])?, self.i64s(&[end])?);
        self.slice_to(x, axis, start, end)
    }

    /// `x[start..end]` along one axis, the bounds 1-D tensors of one element.
    pub(crate) fn slice_to(
        &mut self,
        x: TensorId,
        axis: i64,
        start: TensorId,
        end: TensorId,
    ) -> Result<TensorId, Refusal> {
        let axes = self.i64s(&[axis])?;
        self.layer("slice", Attrs::new(), &[Some(x), Some(start), Some(end), Some(axes)])
    }

    /// The matrix of the dimensions before an axis by those from it on.
    pub(crate) fn flatten(&mut self, x: TensorId, axis: usize) -> Result<TensorId, Refusal> {
        let rank = self.rank(x);
        match (self.known_volume(x, 0..axis), self.known_volume(x, axis..rank)) {
            (Some(rows), Some(cols)) => self.reshape(x, &[rows, cols]),
            (None, Some(cols)) if cols > 0 => self.reshape(x, &[-1, cols]),
            (Some(rows), None) if rows > 0 => self.reshape(x, &[rows, -1]),
            _ => {
                let (rows, cols) = (self.volume(x, 0..axis)?, self.volume(x, axis..rank)?);
                let shape = self.join(&[rows, cols])?;
                self.reshape_to(x, shape)
            }
        }
    }

    /// 1-D i64 tensors one behind the other: a constant where all are known.
    pub(crate) fn join(&mut self, parts: &[TensorId]) -> Result<TensorId, Refusal> {
        let known: Option<Vec<_>> = parts.iter().map(|p| self.ints_of(*p)).collect();
        match known {
            Some(known) => self.i64s(&known.concat()),
            None => self.concat(parts, 0),
        }
    }

    /// The tensor in the shape of another of the same volume.
    pub(crate) fn reshape_like(&mut self, x: TensorId, like: TensorId) -> Result<TensorId, Refusal> {
        let shape = self.shape(like)?;
        self.reshape_to(x, shape)
    }

    /// A vector along one axis of a tensor of this rank, so that it broadcasts; others pass unchanged.
    pub(crate) fn along(&mut self, v: TensorId, axis: usize, rank: usize) -> Result<TensorId, Refusal> {
        if self.rank(v) != 1 || rank <= 1 {
            return Ok(v);
        }
        let axes: Vec<i64> = (0..rank as i64).filter(|&i| i != axis as i64).collect();
        self.unsqueeze(v, &axes)
    }

    /// A tensor of one element as a scalar.
    pub(crate) fn as_scalar(&mut self, x: TensorId) -> Result<TensorId, Refusal> {
        if self.rank(x) == 0 { Ok(x) } else { self.reshape(x, &[]) }
    }
}
