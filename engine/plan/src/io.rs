//! Inputs and outputs of an engine, by name.

use kiln_backend::{Program, shape_inputs};
use kiln_ir::ty::dims_text;
use kiln_ir::{DType, Dim, Graph, TensorType, ValueId};

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
    /// Dimensions; those that a run determines are symbols.
    pub dims: Vec<Dim>,
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
    IoTensor { name: def.name.clone(), mode, dtype, dims, is_shape_input }
}
