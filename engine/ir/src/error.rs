//! Errors of operators and graphs.

use crate::dtype::DType;
use thiserror::Error;

/// Error in the inputs or attributes of an operator. It names what was found and what was wanted; the layer's
/// name is added by [`IrError::Layer`].
#[derive(Clone, Debug, Error, PartialEq)]
pub enum OpError {
    /// Wrong number of inputs.
    #[error("has {found} inputs, wants {wanted}")]
    Arity {
        /// Inputs given.
        found: usize,
        /// Inputs allowed, in words.
        wanted: String,
    },
    /// A required input is absent.
    #[error("input {input} (\"{name}\") is missing")]
    MissingInput {
        /// Position of the input.
        input: usize,
        /// Name in the schema.
        name: String,
    },
    /// An input has a type that the operator does not take.
    #[error("input {input} is {found}, wants {wanted}; insert a cast")]
    DType {
        /// Position of the input.
        input: usize,
        /// Element type of the input.
        found: DType,
        /// The types allowed, in words.
        wanted: String,
    },
    /// A shape is not what the operator wants.
    #[error("input {input} has shape [{found}], wants {wanted}")]
    Shape {
        /// Position of the input.
        input: usize,
        /// Shape of the input, as text.
        found: String,
        /// Allowed shapes, in words.
        wanted: String,
    },
    /// Two shapes do not go together.
    #[error("shapes [{a}] and [{b}] do not fit: {wanted}")]
    Mismatch {
        /// One shape.
        a: String,
        /// Shape or type of the other operand.
        b: String,
        /// The rule they break.
        wanted: String,
    },
    /// The branches of a conditional yield tensors of different ranks, and only a run decides which is taken.
    #[error(
        "the branches give {when_true} if true and {when_false} if false, and no tensor has two ranks: give both the same \
         rank (reshape one of them, to dimensions of 1 for example), put what reads the result into the branches, or make \
         the condition a constant"
    )]
    BranchRanks {
        /// Shape or type from the true branch.
        when_true: String,
        /// Shape or type from the false branch.
        when_false: String,
    },
    /// An attribute is missing, of another type, or out of range.
    #[error("attribute \"{name}\" is {found}, wants {wanted}")]
    Attr {
        /// The attribute.
        name: String,
        /// Value of the attribute.
        found: String,
        /// Allowed values.
        wanted: String,
    },
    /// A value that must be known when the network is built (or before enqueue) is not.
    #[error("the value of input {input} (\"{name}\") must be {wanted}")]
    NeedsValue {
        /// Position of the input.
        input: usize,
        /// Name in the schema.
        name: String,
        /// Time at which it must be known: "known at build time".
        wanted: String,
    },
    /// An element of an index input is out of range.
    #[error("{op}: element {at} of input {input} (\"{name}\") is {found}, wants {least} to {greatest}")]
    Index {
        /// The operator.
        op: String,
        /// Position of the input.
        input: usize,
        /// Name in the schema.
        name: String,
        /// Position of the element, row-major.
        at: u64,
        /// The element.
        found: i64,
        /// The least value allowed.
        least: i64,
        /// The greatest value allowed.
        greatest: i64,
    },
    /// The contents of an input are not allowed (a negative size, a step of 0).
    #[error("{0}")]
    Value(String),
    /// Legal, but not implemented for this combination.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The memory budget does not have as much as is wanted.
    #[error(transparent)]
    Memory(#[from] crate::budget::Exceeded),
    /// A tensor would be larger than the address space.
    #[error("needs a tensor of {0}, more than can be allocated")]
    TooLarge(String),
}

/// Error in a network or a graph.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum IrError {
    /// A layer refuses its inputs or attributes.
    #[error("layer \"{layer}\" ({op}): {source}")]
    Layer {
        /// The layer's name.
        layer: String,
        /// Operator of the layer.
        op: String,
        /// Error of the operator.
        #[source]
        source: OpError,
    },
    /// Name that no operator has.
    #[error("there is no operator \"{0}\"")]
    UnknownOp(String),
    /// The structure of the network is wrong.
    #[error("{0}")]
    Structure(String),
    /// A value of another network, or none at all.
    #[error("\"{0}\" is not a tensor of this network")]
    UnknownTensor(String),
    /// A name is used twice.
    #[error("the name \"{0}\" is used twice; names of inputs, outputs and layers are unique")]
    DuplicateName(String),
    /// Text that does not parse.
    #[error("line {line}: {message}")]
    Parse {
        /// 1-based.
        line: usize,
        /// Text that was found, and what was wanted.
        message: String,
    },
    /// A stored payload that does not decode.
    #[error("payload: {0}")]
    Payload(String),
}

impl IrError {
    /// Puts the layer's name around an operator's complaint.
    pub fn layer(layer: &str, op: &str, source: OpError) -> IrError {
        IrError::Layer { layer: layer.to_owned(), op: op.to_owned(), source }
    }
}
