//! Data types, dimensions, operator records and graphs of Kiln.
//!
//! [`op::OpDef`] is the heart: one static record per operator with schema, shape and type rule, reference
//! implementation and test problems. Everything else (importers, passes, backends, tests) reads these records. The
//! records themselves are in the crate `kiln-ops`, which registers them in [`op::FAMILIES`].

pub mod attr;
mod axis;
pub mod budget;
pub mod dim;
pub mod dtype;
mod elements;
pub mod error;
mod error_code;
pub mod eval;
pub mod expr;
mod fact;
pub mod float;
pub mod format;
pub mod graph;
mod indices;
pub mod infer;
pub mod op;
mod op_name;
pub mod problem;
pub mod range;
mod roles;
pub mod stop;
pub mod tensor;
pub mod text;
pub mod ty;
pub mod wire;
pub mod work;

pub use attr::{Attr, Attrs};
pub use dim::{Bindings, Dim, DimKind};
pub use dtype::DType;
pub use elements::{Element, ElementError};
pub use error::{IrError, OpError};
pub use error_code::{ErrorCode, ErrorLog, ErrorRecorder, describe};
pub use fact::{Fact, Value};
pub use format::{FormatError, Formats, Packing, TensorFormat};
pub use graph::{
    Graph, LoopOut, LoopOutputKind, LoopShape, Node, NodeId, Recipe, Source, ValueId, Weight, WeightUse,
    WeightsRole, element, stack,
};
pub use op::{Op, OpDef, OpName};
pub use range::IndexRange;
pub use tensor::{Bytes, BytesId, Elems, Tensor, WeakBytes};
pub use ty::TensorType;
