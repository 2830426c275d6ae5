//! Reasons why a node could not be converted, and the list of all such nodes of a model.

use std::fmt;

use kiln_network::NetworkError;

use super::OnnxError;

/// Reason why one node could not be converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Operator that no handler knows, and no plug-in that is loaded.
    #[error("no conversion is known for this operator; if a plug-in defines it, name its library (--plugin)")]
    UnknownOperator,
    /// A later operator set defines the operator first.
    #[error("the operator is defined from operator set {first} on")]
    NotYetDefined {
        /// The first operator set that has it.
        first: i64,
    },
    /// The operator set has the operator no more.
    #[error("the operator was removed in operator set {since}: export the model with its successor")]
    Removed {
        /// The operator set that removed it.
        since: i64,
    },
    /// The version in force is none that the importer implements.
    #[error(
        "version {since} of the operator is not known, only {known:?}: export the model for one of these"
    )]
    UnknownVersion {
        /// The version in force.
        since: i64,
        /// The versions that are implemented.
        known: Vec<i64>,
    },
    /// An attribute that the version in force does not have.
    #[error("attribute '{attribute}' does not exist in version {since} of the operator")]
    UnknownAttribute {
        /// Name of the attribute.
        attribute: String,
        /// The version in force.
        since: i64,
    },
    /// An attribute that the conversion would ignore.
    #[error("attribute '{attribute}' is not implemented: the result would not depend on it")]
    IgnoredAttribute {
        /// Name of the attribute.
        attribute: String,
    },
    /// More inputs or outputs than the version in force has.
    #[error("{found} {what}, where version {since} of the operator has {most} at most")]
    TooMany {
        /// `inputs` or `outputs`.
        what: &'static str,
        /// Number that the node names.
        found: usize,
        /// Greatest number allowed.
        most: usize,
        /// The version in force.
        since: i64,
    },
    /// An input that the version in force requires.
    #[error("input {index} ({input}) is missing, which version {since} of the operator requires")]
    MissingInput {
        /// Position of the input.
        index: usize,
        /// Name of the input in the operator's documentation.
        input: &'static str,
        /// The version in force.
        since: i64,
    },
    /// An input of a type that the version in force does not allow.
    #[error(
        "input {index} ({input}) is {found}, where version {since} of the operator wants one of {wanted}"
    )]
    InputType {
        /// Position of the input.
        index: usize,
        /// Name of the input in the operator's documentation.
        input: &'static str,
        /// Type of the input in the network.
        found: kiln_ir::DType,
        /// The types that are allowed, by their ONNX names.
        wanted: String,
        /// The version in force.
        since: i64,
    },
    /// An input of a rank that the operator does not have.
    #[error("input {index} ({input}) is {found}: the operator wants {wanted} dimensions")]
    InputRank {
        /// Position of the input.
        index: usize,
        /// Name of the input in the operator's documentation.
        input: &'static str,
        /// Type of the input in the network.
        found: kiln_ir::TensorType,
        /// The ranks that are allowed.
        wanted: String,
    },
    /// A value whose declared type is not the one that its node makes.
    #[error(
        "'{value}' is {found}, where the model declares {declared}: correct the declaration or the node that makes it"
    )]
    DeclaredType {
        /// The value.
        value: String,
        /// Type of the value in the network.
        found: kiln_ir::TensorType,
        /// Declared type of the value.
        declared: String,
    },
    /// Sizes that the operator does not allow together.
    #[error("{0}")]
    Sizes(String),
    /// Nodes in its branch were refused, and are listed.
    #[error("its branch holds nodes that cannot be converted")]
    Branch,
    /// Legal ONNX that is not converted.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The network refuses the layer.
    #[error("{0}")]
    Network(#[from] NetworkError),
    /// The node contradicts its own schema.
    #[error("{0}")]
    Model(Box<OnnxError>),
}

impl From<OnnxError> for Refusal {
    fn from(error: OnnxError) -> Self {
        Refusal::Model(Box::new(error))
    }
}

/// A refusal in words, for what is legal but not converted.
pub(crate) fn unsupported<T>(reason: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Unsupported(reason.into()))
}

/// A node that could not be converted.
#[derive(Debug)]
pub struct RefusedNode {
    /// Name of the node, or for a nameless node its operator and first output.
    pub node: String,
    /// The operator.
    pub op: String,
    /// The operator's domain; "" is the standard one.
    pub domain: String,
    /// The version of the operator set that the node is written against.
    pub opset: i64,
    /// Reason of the refusal.
    pub reason: Refusal,
}

impl fmt::Display for RefusedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, op, domain, opset, reason } = self;
        let dot = if domain.is_empty() { "" } else { "." };
        write!(f, "node '{node}' ({domain}{dot}{op}, version {opset}): {reason}")
    }
}

/// Every node of a model that could not be converted, nodes behind them left out.
#[derive(Debug)]
pub struct RefusedNodes(pub Vec<RefusedNode>);

impl fmt::Display for RefusedNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of the model's nodes cannot be converted:", self.0.len())?;
        self.0.iter().try_for_each(|node| write!(f, "\n  {node}"))
    }
}
