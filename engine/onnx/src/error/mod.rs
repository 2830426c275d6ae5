//! Errors of a model. Every error names what was found, what was wanted and, where it helps, what to do.

mod external;
mod node;
mod refusal;
mod tensor;

pub use external::ExternalFault;
pub use node::NodeFault;
pub(crate) use refusal::unsupported;
pub use refusal::{Refusal, RefusedNode, RefusedNodes};
pub use tensor::TensorFault;

use std::path::PathBuf;

/// Advice for files that are not models.
pub(crate) const NOT_ONNX_HINT: &str =
    "a model is a protobuf file written by an ONNX exporter, neither its text form nor a pointer to it";

/// Reason why a model was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// A file cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The bytes are something else than an ONNX model or tensor.
    #[error("not an ONNX file: {reason}; {NOT_ONNX_HINT}")]
    NotOnnx {
        /// Sign that it is not a model.
        reason: String,
    },
    /// The file ends inside a field.
    #[error(
        "the file is truncated: {message} at byte {offset} goes {missing} bytes past its end; fetch the file again"
    )]
    Truncated {
        /// The message that the field belongs to, as `GraphProto`.
        message: &'static str,
        /// Start of the field in the file, in bytes.
        offset: usize,
        /// Number of bytes that are missing there.
        missing: u64,
    },
    /// The encoding is damaged.
    #[error("the file is damaged: {reason}")]
    Malformed {
        /// Defect and its place.
        reason: String,
    },
    /// The decoded file would take far more memory than any sensible model of its size.
    #[error(
        "{what} would take {wanted} bytes of memory, more than the {limit} allowed for a file of this size"
    )]
    TooLarge {
        /// Part that takes the memory.
        what: &'static str,
        /// An estimate of it.
        wanted: u64,
        /// The bound, which follows from the size of the file.
        limit: u64,
    },
    /// Messages, subgraphs or functions nested too deep.
    #[error("{what} are nested more than {limit} deep")]
    NestingTooDeep {
        /// Kind of the nested part.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
    /// The file is of an unknown edition of the format.
    #[error("IR version {found} is not supported: wanted {min} to {max}")]
    UnsupportedIrVersion {
        /// The version of the file.
        found: i64,
        /// The oldest version read.
        min: i64,
        /// The newest version read.
        max: i64,
    },
    /// The model imports a version of the standard operators that is unknown.
    #[error(
        "version {found} of operator set '{domain}' is not supported: wanted 1 to {max}; convert the model with onnx.version_converter"
    )]
    UnsupportedOpset {
        /// The operator set; the standard one is `ai.onnx`.
        domain: String,
        /// The version that the model imports.
        found: i64,
        /// The newest version read.
        max: i64,
    },
    /// An operator set is imported in two versions.
    #[error("operator set '{domain}' is imported in versions {first} and {second}: wanted one")]
    DuplicateOpset {
        /// The operator set.
        domain: String,
        /// One version.
        first: i64,
        /// Second version.
        second: i64,
    },
    /// The model holds no graph.
    #[error("the model has no graph")]
    MissingGraph,
    /// A tensor contradicts itself or is of a type that cannot be read.
    #[error("tensor '{tensor}': {fault}")]
    BadTensor {
        /// The tensor's name, or how it was reached.
        tensor: String,
        /// Fault of the tensor.
        fault: TensorFault,
    },
    /// A tensor's data in another file is refused or missing.
    #[error("tensor '{tensor}': external data '{location}' {fault}")]
    External {
        /// The tensor.
        tensor: String,
        /// Path in the model.
        location: String,
        /// Reason why it cannot be used.
        fault: ExternalFault,
    },
    /// A declared type cannot be read.
    #[error("the declared type of '{value}' {reason}")]
    BadType {
        /// The value it is declared for.
        value: String,
        /// Defect of the type.
        reason: String,
    },
    /// Two definitions of one name in one scope.
    #[error(
        "graph '{graph}': '{name}' is defined twice, by {first} and by {second}; a value has one definition"
    )]
    DuplicateName {
        /// The graph.
        graph: String,
        /// The name.
        name: String,
        /// First definition, as `input 'x'` or `node 'conv1'`.
        first: String,
        /// Second definition.
        second: String,
    },
    /// An initializer, input or output without a name.
    #[error("graph '{graph}': {what} {index} has no name")]
    Unnamed {
        /// The graph.
        graph: String,
        /// `initializer`, `input` or `output`.
        what: &'static str,
        /// Position in the list.
        index: usize,
    },
    /// A node reads a value that nothing defines.
    #[error("graph '{graph}': node '{node}' reads '{input}', which no input, initializer or node defines")]
    UndefinedInput {
        /// The graph.
        graph: String,
        /// The node.
        node: String,
        /// The name it reads.
        input: String,
    },
    /// A graph output that nothing in this very graph defines.
    #[error(
        "graph '{graph}': nothing in it defines its output '{output}'; pass outer values through an Identity node"
    )]
    UndefinedOutput {
        /// The graph.
        graph: String,
        /// The output.
        output: String,
    },
    /// Nodes that need each other's results.
    #[error("graph '{graph}' has a cycle: {}", nodes.join(" → "))]
    Cycle {
        /// The graph.
        graph: String,
        /// The nodes around one cycle, the first repeated at the end.
        nodes: Vec<String>,
    },
    /// Functions that call each other without end.
    #[error("functions call each other in a cycle: {}", functions.join(" → "))]
    FunctionCycle {
        /// The functions around the cycle, the first repeated at the end.
        functions: Vec<String>,
    },
    /// Two functions of one domain, name and overload.
    #[error("function '{function}' is defined twice")]
    DuplicateFunction {
        /// The function.
        function: String,
    },
    /// A node that contradicts itself or what it calls.
    #[error("node '{node}' ({op}): {fault}")]
    BadNode {
        /// The node.
        node: String,
        /// Operator of the node.
        op: String,
        /// Fault of the node.
        fault: NodeFault,
    },
    /// An input that no network can have.
    #[error("input '{input}' {reason}")]
    BadInput {
        /// The input.
        input: String,
        /// Defect of the input.
        reason: String,
    },
    /// An output that the network cannot give.
    #[error("output '{output}' {reason}")]
    BadOutput {
        /// The output.
        output: String,
        /// Defect of the output.
        reason: String,
    },
    /// Nodes that cannot be converted, all of them.
    #[error("{0}")]
    Refused(RefusedNodes),
}
