//! Numeric classes of errors, and recorders that collect errors of several objects.

use crate::{IrError, OpError};
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Class of an error, with the numbers of TensorRT's `ErrorCode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
pub enum ErrorCode {
    /// No error.
    Success = 0,
    /// An error of no other class, such as a run that was cancelled.
    Unspecified = 1,
    /// A defect of Kiln, of a backend or of a plug-in.
    Internal = 2,
    /// An argument that is not allowed: a name, a type, a shape, a file.
    InvalidArgument = 3,
    /// A network or a setting of a build that is not allowed.
    InvalidConfig = 4,
    /// Memory that could not be had.
    FailedAllocation = 5,
    /// A device, library or backend that could not be used.
    FailedInitialization = 6,
    /// A device that failed in a run.
    FailedExecution = 7,
    /// Contents of tensors that a layer cannot compute with.
    FailedComputation = 8,
    /// A call that is not allowed at this time.
    InvalidState = 9,
    /// A legal wish that this device, backend or version does not meet.
    UnsupportedState = 10,
}

impl ErrorCode {
    /// The number.
    pub fn number(self) -> i32 {
        self as i32
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({})", self, self.number())
    }
}

impl OpError {
    /// Class of the error.
    pub fn code(&self) -> ErrorCode {
        match self {
            OpError::Arity { .. }
            | OpError::MissingInput { .. }
            | OpError::DType { .. }
            | OpError::Shape { .. }
            | OpError::Mismatch { .. }
            | OpError::Attr { .. }
            | OpError::NeedsValue { .. } => ErrorCode::InvalidConfig,
            OpError::BranchRanks { .. } | OpError::Unsupported(_) => ErrorCode::UnsupportedState,
            OpError::Index { .. } | OpError::Value(_) => ErrorCode::FailedComputation,
            OpError::Memory(_) | OpError::TooLarge(_) => ErrorCode::FailedAllocation,
        }
    }
}

impl IrError {
    /// Class of the error.
    pub fn code(&self) -> ErrorCode {
        match self {
            IrError::Layer { source, .. } => source.code(),
            IrError::UnknownOp(_) | IrError::Structure(_) => ErrorCode::InvalidConfig,
            IrError::UnknownTensor(_)
            | IrError::DuplicateName(_)
            | IrError::Parse { .. }
            | IrError::Payload(_) => ErrorCode::InvalidArgument,
        }
    }
}

/// Receives the errors of engines, contexts and builds that share it, beside the callers to which they are returned.
pub trait ErrorRecorder: Send + Sync {
    /// Takes an error; called by any thread. The description has the causes, too.
    fn report(&self, code: ErrorCode, description: &str);
}

/// The description of an error with its causes.
pub fn describe(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut next = e.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = cause.source();
    }
    text
}

/// A recorder that keeps the first errors, up to its capacity.
///
/// ```
/// use kiln_ir::{ErrorCode, ErrorLog, ErrorRecorder};
///
/// let log = ErrorLog::new(1);
/// log.report(ErrorCode::InvalidArgument, "no such input");
/// log.report(ErrorCode::FailedAllocation, "out of memory");
/// assert_eq!((log.len(), log.has_overflowed()), (1, true));
/// assert_eq!(log.get(0), Some((ErrorCode::InvalidArgument, "no such input".to_owned())));
/// log.clear();
/// assert!(log.is_empty() && !log.has_overflowed());
/// ```
#[derive(Debug)]
pub struct ErrorLog {
    capacity: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    errors: Vec<(ErrorCode, String)>,
    overflowed: bool,
}

impl ErrorLog {
    /// A recorder of at most so many errors.
    pub fn new(capacity: usize) -> ErrorLog {
        ErrorLog { capacity, kept: Mutex::default() }
    }

    fn with<T>(&self, f: impl FnOnce(&mut Kept) -> T) -> T {
        f(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Number of errors that are kept.
    pub fn len(&self) -> usize {
        self.with(|k| k.errors.len())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An error by its number, the first one first.
    pub fn get(&self, index: usize) -> Option<(ErrorCode, String)> {
        self.with(|k| k.errors.get(index).cloned())
    }

    /// Whether errors were lost because there was no room.
    pub fn has_overflowed(&self) -> bool {
        self.with(|k| k.overflowed)
    }

    /// Forgets all errors.
    pub fn clear(&self) {
        self.with(|k| *k = Kept::default());
    }
}

impl ErrorRecorder for ErrorLog {
    fn report(&self, code: ErrorCode, description: &str) {
        self.with(|k| match k.errors.len() < self.capacity {
            true => k.errors.push((code, description.to_owned())),
            false => k.overflowed = true,
        });
    }
}
