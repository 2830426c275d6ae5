//! Conversion of a checked model to a network.
//!
//! Every node is handed to the handler of its operator ([`crate::ops`]), which writes layers through [`Cx`]. A node
//! that fails does not end the import: the nodes behind it are left out, all others are still tried, and one error
//! lists every node that failed.

mod attrs;
mod build;
mod consts;
mod cx;
mod declared;
mod dtype;
mod flow;
pub(crate) mod grids;
mod held;
mod importer;
mod inputs;
mod nodes;
mod on_grid;
mod options;
mod plugin;
mod sequence;
mod shapes;
mod split;

pub(crate) use crate::error::unsupported;
pub use crate::error::{Refusal, RefusedNode, RefusedNodes};
pub(crate) use cx::{Cx, Outs};
pub(crate) use dtype::{dtype_of_number, held, range};
pub(crate) use held::named_type;
pub use options::{ImportOptions, Imported, Report};

use std::path::Path;

use crate::error::OnnxError;
use crate::model::Model;
use importer::Importer;

/// Converts a model. The network's inputs, outputs and weights are named as in the model, and layers as its nodes.
///
/// Initializers and `Constant` nodes become named weights. A named dimension of an input becomes the host symbol of
/// that name; an unknown one of input `x` at position `i` the symbol `x.d<i>`.
pub fn import(model: &Model, options: &ImportOptions) -> Result<Imported, OnnxError> {
    let mut importer = Importer::new(&model.graph, declared::overridden(&model.graph, options));
    importer.inputs(&model.graph, options)?;
    importer.weights(&model.graph);
    importer.nodes(&model.graph);
    importer.finish(&model.graph)
}

/// Opens a file and converts it.
pub fn parse_file(path: impl AsRef<Path>, options: &ImportOptions) -> Result<Imported, OnnxError> {
    import(&Model::open(path)?, options)
}
