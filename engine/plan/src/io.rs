//! Inputs and outputs of an engine, by name.

use kiln_backend::{Program, shape_inputs};
use kiln_ir::ty::dims_text;
use kiln_ir::{DType, Dim, Graph, Packing, TensorFormat, TensorType, ValueId};

/// Whether a tensor goes in or comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMode {
    /// Given by the caller.
    Input,
    /// Given to the caller.
    Output,
}

/// An input or output of an engine.
#[derive(Clone, Debug, PartialEq)]
pub struct IoTensor {
    /// Unique among inputs and among outputs.
    pub name: String,
    /// Input or output.
    pub mode: IoMode,
    /// Element type.
    pub dtype: DType,
    /// Dimensions, in the order of the linear format; those that a run determines are symbols.
    pub dims: Vec<Dim>,
    /// Order of its elements in memory.
    pub packing: Packing,
    /// Whether its elements are read on the host, to compute shapes.
    pub is_shape_input: bool,
}

impl IoTensor {
    /// Dimensions as text: `n,3,224,224`.
    pub fn dims_text(&self) -> String {
        dims_text(&self.dims)
    }

    /// Dimensions as TensorRT prints them: -1 where a run determines them.
    pub fn dims_or_minus_one(&self) -> Vec<i64> {
        self.dims.iter().map(|d| d.as_const().unwrap_or(-1)).collect()
    }

    /// Format of its elements in memory.
    pub fn format(&self) -> TensorFormat {
        self.packing.format
    }

    /// Type and format in words, as TensorRT's inspector prints them.
    pub fn format_description(&self) -> String {
        self.format().describe(self.dtype)
    }

    /// The dimension whose neighbours share a vector; `None` where elements of the format are scalars.
    pub fn vectorized_dim(&self) -> Option<usize> {
        self.format().vectorized_dim(self.dims.len())
    }

    /// Scalars of a vector; `None` where elements of the format are scalars.
    pub fn components_per_element(&self) -> Option<usize> {
        self.format().is_vectorized().then(|| self.format().width())
    }

    /// Bytes of one scalar of a vector; `None` where elements of the format are scalars.
    pub fn bytes_per_component(&self) -> Option<usize> {
        self.format().is_vectorized().then(|| self.dtype.bits() as usize / 8)
    }

    /// Distance in memory between neighbours along each dimension, in elements of the format: vectors, or scalars. `None` for
    /// shapes of another rank.
    pub fn strides(&self, shape: &[usize]) -> Option<Vec<usize>> {
        (shape.len() == self.dims.len()).then(|| self.packing.strides(shape))
    }

    /// Bytes of memory of this tensor with these dimensions, vectors filled up; `None` for shapes of another rank, and on
    /// overflow.
    pub fn bytes(&self, shape: &[usize]) -> Option<u64> {
        (shape.len() == self.dims.len()).then(|| self.packing.bytes(self.dtype, shape)).flatten()
    }

    /// Type and dimensions.
    pub fn ty(&self) -> TensorType {
        TensorType { dtype: self.dtype, dims: self.dims.clone() }
    }
}

/// Inputs, then outputs, of a program.
pub fn io_tensors(program: &Program) -> Vec<IoTensor> {
    graph_io(&program.graph)
}

/// Inputs, then outputs, of a graph.
pub fn graph_io(g: &Graph) -> Vec<IoTensor> {
    let shape_inputs = shape_inputs(g);
    let inputs =
        g.inputs.iter().enumerate().map(|(i, &v)| tensor(g, v, IoMode::Input, shape_inputs.contains(&i)));
    let outputs = g.outputs.iter().map(|&v| tensor(g, v, IoMode::Output, false));
    inputs.chain(outputs).collect()
}

fn tensor(g: &Graph, v: ValueId, mode: IoMode, is_shape_input: bool) -> IoTensor {
    let def = g.value(v);
    let TensorType { dtype, dims } = def.fact.ty.clone();
    let packing = g.packings.get(&def.name).copied().unwrap_or_default();
    let number = |n: u64| Dim::new(i64::try_from(n).unwrap_or(i64::MAX));
    let dims = packing.logical(&dims, number).unwrap_or(dims);
    IoTensor { name: def.name.clone(), mode, dtype, dims, packing, is_shape_input }
}
