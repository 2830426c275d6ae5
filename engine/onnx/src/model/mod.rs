//! The checked view of a model.

mod calls;
mod convert;
mod functions;
mod graph;
mod names;
mod opset;
mod order;
mod read_attribute;
mod scope;
mod sparse;
mod value;
mod verify;

pub use graph::{Attribute, FromAttribute, Graph, Node};
pub use opset::{MAX_OPSET, Opsets};
pub use sparse::SparseTensor;
pub use value::{Dim, ValueInfo, ValueType};

use std::path::Path;

use crate::error::OnnxError;
use crate::load::ModelFile;

/// The oldest and newest editions of the file format that are read: up to that of onnx 1.23.
pub const IR_VERSIONS: std::ops::RangeInclusive<i64> = 1..=14;

/// Before this edition models did not say which operator set they use: it is the first.
const FIRST_IR_WITH_OPSETS: i64 = 3;

/// A checked model. Calls of the model's own functions are replaced by their nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The edition of the file format.
    pub ir_version: i64,
    /// The operator sets that the main graph is written against. A node from a function may have another: see
    /// [`Node::opset`].
    pub opsets: Opsets,
    /// The exporter and its version.
    pub producer: (String, String),
    /// Free entries of the exporter, in the order of the file.
    pub metadata: Vec<(String, String)>,
    /// The main graph. It captures nothing.
    pub graph: Graph,
}

impl Model {
    /// Opens and checks a file, as [`ModelFile::open`] documents.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OnnxError> {
        Self::check(&ModelFile::open(path)?)
    }

    /// Checks a decoded file. Tensors share its bytes and may outlive it.
    pub fn check(file: &ModelFile) -> Result<Self, OnnxError> {
        let proto = file.proto();
        check_ir_version(file)?;
        let mut opsets = Opsets::read(&proto.opset_import)?;
        if proto.opset_import.is_empty() && proto.ir_version < FIRST_IR_WITH_OPSETS {
            opsets = Opsets::first();
        }
        let main = proto.graph.as_ref().ok_or(OnnxError::MissingGraph)?;
        let graph = convert::main_graph(file, main, &opsets)?;
        let entries = proto.metadata_props.iter();
        Ok(Self {
            ir_version: proto.ir_version,
            opsets,
            producer: (proto.producer_name.clone(), proto.producer_version.clone()),
            metadata: entries.map(|entry| (entry.key.clone(), entry.value.clone())).collect(),
            graph,
        })
    }
}

fn check_ir_version(file: &ModelFile) -> Result<(), OnnxError> {
    let found = file.proto().ir_version;
    if IR_VERSIONS.contains(&found) {
        return Ok(());
    }
    if found == 0 && file.proto().graph.is_none() {
        return Err(OnnxError::NotOnnx { reason: "it has neither an IR version nor a graph".into() });
    }
    Err(OnnxError::UnsupportedIrVersion { found, min: *IR_VERSIONS.start(), max: *IR_VERSIONS.end() })
}
