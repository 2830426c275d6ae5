//! Errors of a plan file.

use kiln_ir::ErrorCode;
use thiserror::Error;

/// An error of reading or writing a plan file.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum PlanError {
    /// The file could not be read or written.
    #[error("{path}: {message}")]
    Io {
        /// The file.
        path: String,
        /// Message of the operating system.
        message: String,
    },
    /// File that does not begin as a plan does.
    #[error(
        "this is no Kiln plan: it begins with {found}, wants \"KILNPLAN\"; give the file that `kiln build` wrote"
    )]
    Magic {
        /// The first bytes.
        found: String,
    },
    /// Plan of a format that this build does not read.
    #[error(
        "plan format {found}; this build reads {least} to {greatest}: build the plan again, or use a newer Kiln"
    )]
    Version {
        /// The file's.
        found: u32,
        /// The oldest that this build reads.
        least: u32,
        /// The newest.
        greatest: u32,
    },
    /// The file ends too early.
    #[error("the plan is cut off: {what} wants bytes up to {wanted}, the file has {found}; copy it again")]
    Truncated {
        /// Name of the part that is cut off.
        what: String,
        /// End of the part, in bytes from the start of the file.
        wanted: u64,
        /// Size of the file.
        found: u64,
    },
    /// A hash differs.
    #[error("the plan is damaged: {what} does not have the hash on record; copy it again")]
    Hash {
        /// Name of the part that was hashed.
        what: String,
    },
    /// A plan that was built cannot be loaded.
    #[error(
        "internal error: the plan that was built cannot be loaded, and is not written: {0}; please report the model"
    )]
    Unloadable(Box<PlanError>),
    /// The layout is illegal.
    #[error("the plan is malformed: {0}")]
    Layout(String),
    /// A section that must be there is not.
    #[error("the plan has no {0} section")]
    MissingSection(&'static str),
    /// A plug-in library that no layer of the plan comes from, or that is missing.
    #[error(
        "the plan holds no layer of a plug-in library with the hash {digest}; give the file that its layers were built with"
    )]
    Library {
        /// BLAKE3 hash of the library, in hexadecimal.
        digest: String,
    },
    /// A section does not decode.
    #[error("{section} section: {message}")]
    Payload {
        /// The section.
        section: &'static str,
        /// Description of the defect.
        message: String,
    },
    /// The program breaks a rule.
    #[error("the plan's program is illegal: {0}")]
    Program(String),
}

impl PlanError {
    /// Class of the error.
    pub fn code(&self) -> ErrorCode {
        match self {
            PlanError::Io { .. }
            | PlanError::Magic { .. }
            | PlanError::Truncated { .. }
            | PlanError::Hash { .. }
            | PlanError::Layout(_)
            | PlanError::Library { .. }
            | PlanError::MissingSection(_)
            | PlanError::Payload { .. }
            | PlanError::Program(_) => ErrorCode::InvalidArgument,
            PlanError::Version { .. } => ErrorCode::UnsupportedState,
            PlanError::Unloadable(_) => ErrorCode::Internal,
        }
    }
}

/// An optimization profile that is illegal, or does not fit the network.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct ProfileError(pub String);
