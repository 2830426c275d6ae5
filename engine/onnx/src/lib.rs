//! ONNX models into Kiln networks.
//!
//! Reading goes in two steps. [`ModelFile`] maps a file, refuses what is damaged or hostile and decodes the rest.
//! [`Model`] is the checked view that importers work on: operator sets resolved, functions inlined, every graph in
//! single static assignment form and in topological order, tensors extracted without copies.
//!
//! ```no_run
//! let model = kiln_onnx::Model::open("resnet.onnx")?;
//! for node in &model.graph.nodes {
//!     println!("{} (version {}) reads {:?}", node.op, node.opset, node.inputs);
//! }
//! # Ok::<(), kiln_onnx::OnnxError>(())
//! ```
//!
//! [`import`] converts a model into a network, [`parse_file`] opens and converts a file. What cannot be converted is
//! told in one error that lists every such node; [`ops::supported`] lists the operators.
//!
//! ```no_run
//! let done = kiln_onnx::parse_file("resnet.onnx", &kiln_onnx::ImportOptions::default())?;
//! println!("{} layers", done.network.layer_ids().count());
//! # Ok::<(), kiln_onnx::OnnxError>(())
//! ```

pub mod convert;
pub mod error;
mod load;
pub mod model;
pub mod ops;
mod schema;
mod tensor;

pub use convert::{ImportOptions, Imported, Report, import, parse_file};
pub use error::OnnxError;
pub use load::ModelFile;
pub use model::{Attribute, Dim, Graph, Model, Node, SparseTensor, ValueInfo, ValueType};
pub use tensor::{DataType, TensorData};

/// The messages of the ONNX schema as they lie in a file, unchecked.
pub mod proto {
    pub use crate::generated::*;
}

#[rustfmt::skip]
#[allow(clippy::all, reason = "generated code")]
mod generated;
