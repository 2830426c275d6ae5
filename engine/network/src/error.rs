//! Errors of a network as a whole; errors of one layer's inputs are an [`OpError`](kiln_ir::OpError).

use kiln_ir::{ErrorCode, IrError};
use thiserror::Error;

/// A rule of the network definition that is broken. Every variant names the layers or tensors that break it.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum NetworkError {
    /// An operator, a graph or a name is wrong.
    #[error(transparent)]
    Ir(#[from] IrError),
    /// A layer has no such output.
    #[error("layer \"{layer}\" has {count} outputs, none with index {index}")]
    NoOutput {
        /// The layer.
        layer: String,
        /// The index asked for.
        index: usize,
        /// Number of outputs.
        count: usize,
    },
    /// A layer takes no such input.
    #[error("layer \"{layer}\" ({kind}) takes {count} inputs, none with index {index}")]
    NoInput {
        /// The layer.
        layer: String,
        /// Kind of the layer.
        kind: String,
        /// The index asked for.
        index: usize,
        /// Number of inputs that it takes.
        count: usize,
    },
    /// A layer is asked for parameters of another kind of layer.
    #[error("layer \"{layer}\" is of kind {found}, not {wanted}")]
    Kind {
        /// The layer.
        layer: String,
        /// Kind of the layer.
        found: String,
        /// Kind that was asked for.
        wanted: String,
    },
    /// Name of a layer, loop or conditional that the network does not have.
    #[error("there is no {0} in this network")]
    NoSuch(String),
    /// A tensor would depend on itself.
    #[error(
        "input {input} of layer \"{layer}\" would close a cycle: \"{tensor}\" depends on that layer; only the second \
         input of a recurrence may do so"
    )]
    Cycle {
        /// The layer.
        layer: String,
        /// Index of the input.
        input: usize,
        /// The tensor given.
        tensor: String,
    },
    /// A name that is empty or too long.
    #[error("the name \"{start}…\" has {len} bytes; wants 1 to {max}")]
    Name {
        /// Beginning of the name.
        start: String,
        /// Length in bytes.
        len: usize,
        /// The longest allowed.
        max: usize,
    },
    /// A network input is marked as output.
    #[error("\"{0}\" is an input of the network and can't be its output; add an identity layer")]
    InputAsOutput(String),
    /// A tensor is not an output.
    #[error("\"{0}\" is not marked as an output of the network")]
    NotMarked(String),
    /// A tensor is made an output for shapes that the host does not know before a run.
    #[error(
        "\"{tensor}\" ({found}) can't be an output for shapes: wants integers of at most one dimension that follow from \
         the shapes of inputs"
    )]
    NotForShapes {
        /// The tensor.
        tensor: String,
        /// Type of the tensor.
        found: String,
    },
    /// A tensor that something reads or writes is removed.
    #[error("\"{tensor}\" can't be removed: {user} uses it")]
    InUse {
        /// The tensor.
        tensor: String,
        /// Name of the user.
        user: String,
    },
    /// A layer has no weights in this role.
    #[error("layer \"{layer}\" has no weights in the role {role}")]
    NoWeights {
        /// The layer.
        layer: String,
        /// The role.
        role: String,
    },
    /// Type preferences in a strongly typed network.
    #[error("\"{0}\" can't be given a type: the network is strongly typed; add a cast layer")]
    StronglyTyped(String),
    /// A range whose ends are not finite or not in order.
    #[error("tensor \"{tensor}\": the range [{min}, {max}] needs finite ends, the least one first")]
    DynamicRange {
        /// The tensor.
        tensor: String,
        /// Its first end.
        min: f32,
        /// Its second end.
        max: f32,
    },
    /// Formats that a tensor cannot have.
    #[error("tensor \"{tensor}\": {why}")]
    Formats {
        /// The tensor.
        tensor: String,
        /// Reason, and what to do.
        why: String,
    },
    /// A type for a tensor that has another.
    #[error(
        "\"{tensor}\" is {found}, and only inputs and outputs can be given another type ({wanted}); add a cast"
    )]
    TensorType {
        /// The tensor.
        tensor: String,
        /// Type of the tensor.
        found: String,
        /// The type asked for.
        wanted: String,
    },
    /// A static parameter after the dynamic one.
    #[error("layer \"{layer}\": {what} comes from a tensor and can't become a constant again")]
    Irreversible {
        /// The layer.
        layer: String,
        /// The parameter.
        what: String,
    },
    /// Feature that networks with an implicit batch lack.
    #[error("\"{what}\": {why} in a network with an implicit batch; make the batch explicit")]
    ImplicitBatch {
        /// The layer or tensor.
        what: String,
        /// Use that does not allow an implicit batch.
        why: String,
    },
    /// A tensor inside of a loop or conditional is made an output.
    #[error(
        "\"{tensor}\" lies inside of {construct} and can't be an output; give it out through an output layer"
    )]
    Interior {
        /// The tensor.
        tensor: String,
        /// The innermost construct.
        construct: String,
    },
    /// Two limits of one kind.
    #[error("{construct} has two iteration limits of kind {kind}: \"{first}\" and \"{second}\"")]
    TwoLimits {
        /// The loop.
        construct: String,
        /// Count or while.
        kind: String,
        /// The first.
        first: String,
        /// The second.
        second: String,
    },
    /// A loop without limit.
    #[error("{0} has no iteration limit; add one")]
    NoLimit(String),
    /// Operand that must be known before a loop starts, but is computed inside.
    #[error(
        "input {input} of \"{layer}\" must come from outside of {construct}, but \"{tensor}\" lies inside"
    )]
    FromInside {
        /// The boundary layer.
        layer: String,
        /// Index of the input.
        input: usize,
        /// The loop or conditional.
        construct: String,
        /// The tensor.
        tensor: String,
    },
    /// Operand that must be computed in a loop, but is computed outside.
    #[error(
        "input {input} of \"{layer}\" must be computed inside of {construct}, but \"{tensor}\" lies outside"
    )]
    FromOutside {
        /// The boundary layer.
        layer: String,
        /// Index of the input.
        input: usize,
        /// The loop.
        construct: String,
        /// The tensor.
        tensor: String,
    },
    /// A while condition computed from what it may not depend on.
    #[error(
        "the condition \"{layer}\" of {construct} depends on \"{on}\" ({kind}); it may use recurrences only"
    )]
    ConditionFrom {
        /// The iteration limit.
        layer: String,
        /// The loop.
        construct: String,
        /// The layer that it depends on.
        on: String,
        /// Kind of the layer that makes it.
        kind: String,
    },
    /// A reversed iterator in a loop without count.
    #[error("iterator \"{layer}\" is reversed, but {construct} has no count to start from")]
    ReverseWithoutCount {
        /// The iterator.
        layer: String,
        /// The loop.
        construct: String,
    },
    /// More iterations than elements.
    #[error("{construct} makes {iterations} iterations, but iterator \"{layer}\" has {extent} elements")]
    BeyondExtent {
        /// The loop.
        construct: String,
        /// The iterator.
        layer: String,
        /// The iteration count.
        iterations: i64,
        /// The length of the axis.
        extent: i64,
    },
    /// A concatenated output that is too short.
    #[error("{construct} makes {iterations} iterations, but its output \"{layer}\" has length {length}")]
    TooShort {
        /// The loop.
        construct: String,
        /// The loop output.
        layer: String,
        /// The iteration count.
        iterations: i64,
        /// The length given.
        length: i64,
    },
    /// A last value of something else than a recurrence.
    #[error(
        "\"{layer}\" gives out a last value, so its input must be a recurrence of {construct}; \"{tensor}\" is none"
    )]
    NotRecurrence {
        /// The loop output.
        layer: String,
        /// The loop.
        construct: String,
        /// Tensor that is its input.
        tensor: String,
    },
    /// An input of a boundary layer was never set.
    #[error("input {input} ({what}) of \"{layer}\" was never set")]
    Unset {
        /// The boundary layer.
        layer: String,
        /// Index of the input.
        input: usize,
        /// Meaning of the input.
        what: String,
    },
    /// Constructs that overlap.
    #[error("{a} and {b} are not nested cleanly: {why}")]
    NotNested {
        /// One.
        a: String,
        /// Label of the other construct.
        b: String,
        /// Layers that show it.
        why: String,
    },
    /// A construct that depends on its own result.
    #[error("{0} depends on its own output")]
    SelfDependent(String),
    /// A conditional without condition.
    #[error("{0} has no condition")]
    NoCondition(String),
    /// A conditional with a second condition.
    #[error("{construct} has a condition already: \"{first}\"")]
    TwoConditions {
        /// The conditional.
        construct: String,
        /// The condition layer that it has.
        first: String,
    },
    /// A conditional without outputs.
    #[error("{0} has no output; add one, or leave the conditional out")]
    NoOutputs(String),
    /// A layer that both branches need.
    #[error("layer \"{layer}\" belongs to both branches of {construct}; compute it before the conditional")]
    BothBranches {
        /// The layer.
        layer: String,
        /// The conditional.
        construct: String,
    },
}

impl NetworkError {
    /// Class of the error: networks that are not legal are [`ErrorCode::InvalidConfig`], those that ask for a layer or tensor that
    /// is not there [`ErrorCode::InvalidArgument`].
    pub fn code(&self) -> ErrorCode {
        match self {
            NetworkError::Ir(e) => e.code(),
            NetworkError::NoOutput { .. }
            | NetworkError::NoInput { .. }
            | NetworkError::Kind { .. }
            | NetworkError::NoSuch(_)
            | NetworkError::Name { .. }
            | NetworkError::NotMarked(_)
            | NetworkError::NoWeights { .. } => ErrorCode::InvalidArgument,
            NetworkError::InUse { .. } => ErrorCode::InvalidState,
            _ => ErrorCode::InvalidConfig,
        }
    }
}
