//! Faults of one node.

/// Fault of a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeFault {
    /// Node without an operator.
    #[error("has no op_type")]
    NoOperator,
    /// Node whose operator set is not imported.
    #[error("operator set '{domain}' is not imported by the {by}")]
    NoOpset {
        /// The operator set.
        domain: String,
        /// `model`, or the function the node is part of.
        by: String,
    },
    /// Two attributes of one name.
    #[error("attribute '{0}' is given twice")]
    DuplicateAttribute(String),
    /// An attribute without a name.
    #[error("attribute {0} has no name")]
    UnnamedAttribute(usize),
    /// A required attribute that is not there.
    #[error("attribute '{attribute}' is missing: wanted {wanted}")]
    MissingAttribute {
        /// Name of the attribute.
        attribute: String,
        /// Type of the attribute.
        wanted: &'static str,
    },
    /// An attribute of another type.
    #[error("attribute '{attribute}' is {found}: wanted {wanted}")]
    AttributeType {
        /// Name of the attribute.
        attribute: String,
        /// The type it has.
        found: &'static str,
        /// The type wanted.
        wanted: &'static str,
    },
    /// An attribute whose value cannot be read.
    #[error("attribute '{attribute}' {reason}")]
    BadAttribute {
        /// Name of the attribute.
        attribute: String,
        /// Defect of the attribute.
        reason: String,
    },
    /// A reference to an attribute of the function, outside any function or undeclared.
    #[error("attribute '{attribute}' refers to '{target}', which is not an attribute of {function}")]
    UnknownReference {
        /// The attribute.
        attribute: String,
        /// Name that it refers to.
        target: String,
        /// The function, or `a function: the node is part of none`.
        function: String,
    },
    /// A required input that is not there.
    #[error("input {index} ({input}) is missing")]
    MissingInput {
        /// The name of the input in the operator's documentation.
        input: &'static str,
        /// Position of the input.
        index: usize,
    },
    /// A required output that is not there.
    #[error("output {index} ({output}) is missing")]
    MissingOutput {
        /// The name of the output in the operator's documentation.
        output: &'static str,
        /// Position of the output.
        index: usize,
    },
    /// A call with more arguments than the function has.
    #[error("passes {found} {what} to function '{function}', which has {wanted}")]
    CallArity {
        /// The function.
        function: String,
        /// `inputs` or `outputs`.
        what: &'static str,
        /// Number in the call.
        found: usize,
        /// Number in the function.
        wanted: usize,
    },
    /// A function that does not define its own output.
    #[error("function '{function}' does not define its output '{output}'")]
    FunctionOutput {
        /// The function.
        function: String,
        /// The output.
        output: String,
    },
    /// A function body that reads a name which is none of its inputs or values.
    #[error("function '{function}' reads '{input}', which it does not define")]
    FunctionInput {
        /// The function.
        function: String,
        /// The name.
        input: String,
    },
    /// Two definitions of one name in a function.
    #[error("function '{function}' defines '{name}' twice")]
    FunctionDuplicate {
        /// The function.
        function: String,
        /// The name.
        name: String,
    },
}
