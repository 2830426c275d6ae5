//! Tensors out of nothing: evenly spaced or random.

use crate::NetworkError;
use crate::body::bad;
use crate::layer::{layer_def, setters};
use crate::{Body, Layer, Network, TensorId};
use kiln_ir::attr::Attrs;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;
use kiln_ir::tensor::Tensor;
use kiln_ops::cast::IDENTITY;
use kiln_ops::generate::RANGE;
use kiln_ops::generate::random::RANDOM;
use kiln_ops::pointwise::binary::{ADD, MUL, SUB};
use kiln_ops::slice::SLICE;

/// Contents of a fill layer's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FillOp {
    /// α + Σ βᵢ·indexᵢ.
    Linspace,
    /// Uniform from α to β.
    RandomUniform,
    /// Normal with mean α and standard deviation β.
    RandomNormal,
}

/// A parameter, exact for both kinds of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FillValue {
    /// A float.
    Float(f64),
    /// An integer.
    Int(i64),
}

impl From<f64> for FillValue {
    fn from(x: f64) -> FillValue {
        FillValue::Float(x)
    }
}

impl From<i64> for FillValue {
    fn from(x: i64) -> FillValue {
        FillValue::Int(x)
    }
}

/// See [`Network::add_fill`].
#[derive(Clone, Debug)]
pub struct Fill {
    pub dims: Vec<i64>,
    pub op: FillOp,
    pub to: DType,
    pub alpha: FillValue,
    pub beta: FillValue,
    pub seed: i64,
}

impl Network {
    /// A tensor of type `to`: evenly spaced (α 0 and β 1 at first; i32, i64 or f32) or random (uniform from 0 to 1, or
    /// normal with mean 0 and deviation 1, at first; a float type). Tensors for the dimensions, α (a scalar) and β (a
    /// scalar; one number for each axis if evenly spaced) are inputs 0 to 2; α and β go together, by `set_inputs`.
    pub fn add_fill(&mut self, dims: &[i64], op: FillOp, to: DType) -> Result<Layer<'_, Fill>, NetworkError> {
        let (alpha, beta) = (FillValue::Float(0.0), FillValue::Float(1.0));
        self.add_kind(Fill { dims: dims.to_vec(), op, to, alpha, beta, seed: 0 }, &[])
    }
}

impl Network {
    /// As [`Network::add_fill`], with tensors for α and β.
    pub fn add_fill_by(
        &mut self,
        dims: &[i64],
        op: FillOp,
        to: DType,
        alpha: TensorId,
        beta: TensorId,
    ) -> Result<Layer<'_, Fill>, NetworkError> {
        let (a, z) = (FillValue::Float(0.0), FillValue::Float(1.0));
        let def = Fill { dims: dims.to_vec(), op, to, alpha: a, beta: z, seed: 0 };
        self.add_kind_opt(def, &[None, Some(alpha), Some(beta)])
    }
}

setters! { Fill {
    /// The dimensions.
    set_dimensions(dims: &[i64]) => dims = dims.to_vec();
    /// Sets the contents.
    set_operation(op: FillOp) => op = op;
    /// The type.
    set_to_type(to: DType) => to = to;
    /// α, exactly.
    set_alpha(alpha: FillValue) => alpha = alpha;
    /// β, exactly.
    set_beta(beta: FillValue) => beta = beta;
    /// Sets the seed. Each seed other than 0 yields the same numbers in every run (beyond TensorRT).
    set_seed(seed: i64) => seed = seed;
}}
layer_def!(Fill, "fill", 3, false);

impl Fill {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        if b.has(1) != b.has(2) {
            return Err(OpError::Value("alpha and beta are both numbers or both tensors".into()));
        }
        let shape = match b.opt(0) {
            Some(v) => {
                b.check_dtype(0, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64")?;
                b.check_rank(0, |r| r == 1, "one dimension")?;
                b.cast(v, DType::I64)?
            }
            None => match self.dims.iter().find(|&&d| d < 0) {
                Some(d) => return Err(bad("dimensions", d, "0 or more")),
                None => b.ints(&self.dims)?,
            },
        };
        match self.op {
            FillOp::Linspace => self.linspace(b, shape),
            _ => self.random(b, shape),
        }
    }

    fn constant(&self, b: &mut Body<'_>, v: FillValue) -> Result<ValueId, OpError> {
        match (v, self.to) {
            (FillValue::Int(n), DType::I64) => {
                Ok(b.constant(Tensor::i64(&[], &[n]).ok_or_else(|| OpError::TooLarge("i64".into()))?))
            }
            (FillValue::Int(n), to) => b.number(to, n as f64),
            (FillValue::Float(x), to) => b.number(to, x),
        }
    }

    fn param(&self, b: &mut Body<'_>, i: usize, v: FillValue, rank: usize) -> Result<ValueId, OpError> {
        let Some(t) = b.opt(i) else { return self.constant(b, v) };
        b.check_dtype(i, |d| d == self.to, &format!("{}, as the output is", self.to))?;
        b.check_rank(i, |r| r == rank, &format!("{rank} dimensions"))?;
        Ok(t)
    }

    fn linspace(&self, b: &mut Body<'_>, shape: ValueId) -> Result<Vec<ValueId>, OpError> {
        if !matches!(self.to, DType::I32 | DType::I64 | DType::F32) {
            return Err(bad("to_type", self.to, "i32, i64 or f32 for evenly spaced numbers"));
        }
        let rank = b.dims(shape)[0].as_const().and_then(|n| usize::try_from(n).ok());
        let rank = rank.ok_or_else(|| b.bad_shape(0, "a constant number of dimensions"))?;
        let dynamic = b.has(1);
        if !dynamic && rank != 1 {
            return Err(bad(
                "dimensions",
                format!("{rank} of them"),
                "one, unless alpha and beta are tensors",
            ));
        }
        let mut y = self.param(b, 1, self.alpha, 0)?;
        let beta = self.param(b, 2, self.beta, 1)?;
        let beta = if dynamic { beta } else { b.reshape(beta, &[1])? };
        for axis in 0..rank {
            let (at, end) = (b.ints(&[axis as i64])?, b.ints(&[axis as i64 + 1])?);
            let (n, step) = (b.plain(SLICE, &[shape, at, end])?, b.plain(SLICE, &[beta, at, end])?);
            let (zero, one, n) = (b.int(0)?, b.int(1)?, b.reshape(n, &[])?);
            let index = b.plain(RANGE, &[zero, n, one])?;
            let index = b.cast(index, self.to)?;
            let along = b.plain(MUL, &[index, step])?;
            let mut column = vec![1; rank];
            column[axis] = -1;
            let along = match rank {
                1 => along,
                _ => b.reshape(along, &column)?,
            };
            y = b.plain(ADD, &[y, along])?;
        }
        if rank == 0 {
            y = b.plain(IDENTITY, &[y])?;
        }
        Ok(vec![y])
    }

    fn random(&self, b: &mut Body<'_>, shape: ValueId) -> Result<Vec<ValueId>, OpError> {
        if !self.to.is_float() {
            return Err(bad("to_type", self.to, "a float type for random numbers"));
        }
        let number = |v: FillValue| match v {
            FillValue::Float(x) => x,
            FillValue::Int(n) => n as f64,
        };
        let uniform = self.op == FillOp::RandomUniform;
        let dynamic = b.has(1);
        let (from, to) = if dynamic { (0.0, 1.0) } else { (number(self.alpha), number(self.beta)) };
        let attrs = Attrs::new()
            .with("dist", if uniform { "uniform" } else { "normal" })
            .with("a", from)
            .with("b", to)
            .with("seed", self.seed)
            .with("to", self.to);
        let y = b.op(RANDOM, attrs, &[shape])?;
        if !dynamic {
            return Ok(vec![y]);
        }
        let (alpha, beta) = (self.param(b, 1, self.alpha, 0)?, self.param(b, 2, self.beta, 0)?);
        let width = if uniform { b.plain(SUB, &[beta, alpha])? } else { beta };
        let y = b.plain(MUL, &[y, width])?;
        Ok(vec![b.plain(ADD, &[y, alpha])?])
    }
}
