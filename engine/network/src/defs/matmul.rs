//! Products of matrices: matrix multiply, fully connected, einsum.

use super::conv::Weights;
use crate::NetworkError;
use crate::body::bad;
use crate::layer::{layer_def, setters};
use crate::{Body, Layer, Network, TensorId, WeightsRole};
use kiln_ir::attr::Attrs;
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;
use kiln_ir::infer::differ;
use kiln_ir::tensor::Tensor;
use kiln_ops::matmul::MATMUL;
use kiln_ops::matmul::einsum::EINSUM;
use kiln_ops::pointwise::binary::ADD;
use kiln_ops::shape::squeeze::{SQUEEZE, UNSQUEEZE};

/// View of an input that a matrix multiplication reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatrixOp {
    /// Matrices as they are.
    None,
    /// Transposed matrices.
    Transpose,
    /// Vectors.
    Vector,
}

impl Network {
    /// The product of the last two dimensions (the last, for vectors); as many dimensions before them in both inputs,
    /// equal or 1.
    pub fn add_matrix_multiply(
        &mut self,
        a: TensorId,
        op_a: MatrixOp,
        b: TensorId,
        op_b: MatrixOp,
    ) -> Result<Layer<'_, MatrixMultiply>, NetworkError> {
        self.add_kind(MatrixMultiply { ops: [op_a, op_b] }, &[a, b])
    }

    /// The deprecated fully connected layer: the last three dimensions of the input, flattened, times the
    /// transpose of `kernel` [outputs, C·H·W], plus a bias of as many numbers. Its result is [.., outputs, 1,
    /// 1].
    pub fn add_fully_connected(
        &mut self,
        input: TensorId,
        outputs: i64,
        kernel: Tensor,
        bias: impl Into<Weights>,
    ) -> Result<Layer<'_, FullyConnected>, NetworkError> {
        let bias = bias.into().values();
        self.add_kind(FullyConnected { outputs, kernel, bias }, &[input])
    }

    /// Sums of products by an equation such as "ij,jk->ik", of lower-case letters and ellipses.
    pub fn add_einsum(
        &mut self,
        inputs: &[TensorId],
        equation: &str,
    ) -> Result<Layer<'_, Einsum>, NetworkError> {
        self.add_kind(Einsum { equation: equation.to_owned() }, inputs)
    }
}

/// See [`Network::add_matrix_multiply`].
#[derive(Clone, Debug)]
pub struct MatrixMultiply {
    pub ops: [MatrixOp; 2],
}

setters! { MatrixMultiply {
    /// Sets the views of both inputs.
    set_operations(ops: [MatrixOp; 2]) => ops = ops;
}}
layer_def!(MatrixMultiply, "matrix_multiply", 2, true);

impl MatrixMultiply {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        b.floats(0)?;
        b.same_dtype(0, 1)?;
        let mut batch = Vec::new();
        let mut operands = Vec::new();
        for (i, op) in self.ops.into_iter().enumerate() {
            let v = b.x(i)?;
            let own = if op == MatrixOp::Vector { 1 } else { 2 };
            b.check_rank(i, |r| r >= own, &format!("at least {own} dimensions"))?;
            let dims = b.dims(v);
            batch.push(dims[..dims.len() - own].to_vec());
            operands.push(matrix(b, v, op, i)?);
        }
        let fit = |(x, y): (&kiln_ir::Dim, &kiln_ir::Dim)| x.is(1) || y.is(1) || !differ(x, y);
        if batch[0].len() != batch[1].len() || !batch[0].iter().zip(&batch[1]).all(fit) {
            return Err(b.bad_shape(1, "as many dimensions before the matrix as input 0, equal or 1"));
        }
        let mut y = b.plain(MATMUL, &operands)?;
        for (i, op) in self.ops.into_iter().enumerate() {
            if op == MatrixOp::Vector {
                // The dimension that made the vector a matrix: the row of input 0, the column of input 1.
                let axis = b.ints(&[if i == 0 { -2 } else { -1 }])?;
                y = b.plain(SQUEEZE, &[y, axis])?;
            }
        }
        Ok(vec![y])
    }
}

fn matrix(b: &mut Body<'_>, v: ValueId, op: MatrixOp, i: usize) -> Result<ValueId, OpError> {
    let rank = b.rank(v);
    match op {
        MatrixOp::None => Ok(v),
        MatrixOp::Transpose => {
            let mut perm: Vec<usize> = (0..rank).collect();
            perm.swap(rank - 2, rank - 1);
            b.transpose(v, &perm)
        }
        MatrixOp::Vector => {
            let axis = b.ints(&[if i == 0 { -2 } else { -1 }])?;
            b.plain(UNSQUEEZE, &[v, axis])
        }
    }
}

/// See [`Network::add_fully_connected`].
#[derive(Clone, Debug)]
pub struct FullyConnected {
    pub outputs: i64,
    pub kernel: Tensor,
    pub bias: Option<Tensor>,
}

setters! { FullyConnected {
    /// Sets the number of outputs.
    set_nb_output_channels(outputs: i64) => outputs = outputs;
    /// Replaces the matrix.
    set_kernel_weights(kernel: Tensor) => kernel = kernel;
    /// Replaces the bias.
    set_bias_weights(bias: Option<Tensor>) => bias = bias;
}}
layer_def!(FullyConnected, "fully_connected", 1, true, [Kernel, Bias]);

impl FullyConnected {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let x = b.x(0)?;
        b.no_ints(0)?;
        b.check_rank(0, |r| r >= 3, "at least 3 dimensions")?;
        let dims = b.dims(x);
        let (before, last) = dims.split_at(dims.len() - 3);
        let size = last.iter().cloned().product::<kiln_ir::Dim>().as_const();
        let size = size.ok_or_else(|| b.bad_shape(0, "three constant dimensions at the end"))?;
        let reshaped = |t: &Tensor, shape: &[i64], what: &str| {
            let found = format!("{} numbers", t.len());
            let dims: Option<Vec<usize>> = shape.iter().map(|&d| usize::try_from(d).ok()).collect();
            dims.and_then(|d| t.reshaped(&d))
                .ok_or_else(|| bad(what, found, &format!("as many as {shape:?} holds")))
        };
        let w = reshaped(&self.kernel, &[self.outputs, size], "kernel weights")?;
        let w = b.weights(WeightsRole::Kernel, w);
        let bias = match &self.bias {
            Some(t) => Some(b.weights(WeightsRole::Bias, reshaped(t, &[self.outputs], "bias weights")?)),
            None => None,
        };
        let copied = before.len();
        let mut shape = vec![0; copied];
        shape.push(size);
        let flat = b.reshape(x, &shape)?;
        let w = b.transpose(w, &[1, 0])?;
        let mut y = b.plain(MATMUL, &[flat, w])?;
        if let Some(bias) = bias {
            y = b.plain(ADD, &[y, bias])?;
        }
        let mut shape = vec![0; copied];
        shape.extend([self.outputs, 1, 1]);
        Ok(vec![b.reshape(y, &shape)?])
    }
}

/// See [`Network::add_einsum`].
#[derive(Clone, Debug)]
pub struct Einsum {
    pub equation: String,
}

setters! { Einsum {
    /// Replaces the equation.
    set_equation(equation: &str) => equation = equation.to_owned();
}}
layer_def!(Einsum, "einsum", usize::MAX, true);

impl Einsum {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        if let Some(c) = self.equation.chars().find(|c| c.is_ascii_uppercase()) {
            return Err(bad(
                "equation",
                format!("\"{}\" with '{c}'", self.equation),
                "lower-case letters only",
            ));
        }
        (0..b.len()).try_for_each(|i| b.floats(i).map(drop))?;
        let all = b.all()?;
        if b.lead() > 0 {
            return self.by_entry(b, &all);
        }
        Ok(vec![b.op(EINSUM, Attrs::new().with("equation", self.equation.clone()), &all)?])
    }
}

/// The label of an implicit batch; those of users are lower-case.
const BATCH: char = 'B';

impl Einsum {
    /// The sum for each entry of an implicit batch. Inputs that are the same for all entries go without its label.
    fn by_entry(&self, b: &mut Body<'_>, all: &[ValueId]) -> Result<Vec<ValueId>, OpError> {
        let equation: String = self.equation.split_whitespace().collect();
        let (left, right) = match equation.split_once("->") {
            Some((left, right)) => (left, right.to_owned()),
            None => (equation.as_str(), implied(&equation)),
        };
        let (mut terms, mut inputs, mut varies) = (Vec::new(), Vec::new(), false);
        for (i, term) in left.split(',').enumerate() {
            let Some(&v) = all.get(i) else {
                return Err(bad(
                    "equation",
                    format!("\"{equation}\""),
                    &format!("labels of {} inputs", all.len()),
                ));
            };
            if b.dims(v).first().is_some_and(|d| d.is(1)) {
                let first = b.ints(&[0])?;
                inputs.push(b.plain(SQUEEZE, &[v, first])?);
                terms.push(term.to_owned());
            } else {
                inputs.push(v);
                terms.push(format!("{BATCH}{term}"));
                varies = true;
            }
        }
        let lead = if varies { BATCH.to_string() } else { String::new() };
        let own = format!("{}->{lead}{right}", terms.join(","));
        let y = b.op(EINSUM, Attrs::new().with("equation", own), &inputs)?;
        if varies {
            return Ok(vec![y]);
        }
        let first = b.ints(&[0])?;
        Ok(vec![b.plain(UNSQUEEZE, &[y, first])?])
    }
}

/// The output's labels where the equation has none: the ellipsis, then letters that occur once, sorted.
fn implied(left: &str) -> String {
    let letters = left.chars().filter(char::is_ascii_lowercase);
    let once = letters.filter(|&c| left.matches(c).count() == 1).collect::<std::collections::BTreeSet<_>>();
    let ellipsis = if left.contains("...") { "..." } else { "" };
    ellipsis.chars().chain(once).collect()
}
