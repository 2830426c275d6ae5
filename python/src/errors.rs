//! Exceptions of Python for errors of Kiln, each with its causes.

use kiln::report::BuildError;
use kiln::{ErrorCode, RuntimeError};
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use std::error::Error as StdError;

create_exception!(kiln, Error, PyException, "An error of Kiln.");
create_exception!(kiln, InternalError, Error, "A defect of Kiln, of a backend or of a plug-in.");
create_exception!(
    kiln,
    InvalidArgument,
    Error,
    "An argument that is not allowed: a name, a type, a shape, a file."
);
create_exception!(kiln, InvalidConfig, Error, "A network or a setting of a build that is not allowed.");
create_exception!(kiln, FailedAllocation, Error, "Memory that could not be had.");
create_exception!(kiln, FailedInitialization, Error, "A device, library or backend that could not be used.");
create_exception!(kiln, FailedExecution, Error, "A device that failed in a run.");
create_exception!(kiln, FailedComputation, Error, "Contents of tensors that a layer cannot compute with.");
create_exception!(kiln, InvalidState, Error, "A call that is not allowed at this time.");
create_exception!(
    kiln,
    UnsupportedState,
    Error,
    "A legal wish that a device, backend or version does not meet."
);
create_exception!(kiln, ContextInUse, InvalidState, "Another thread uses the object at this moment.");
create_exception!(kiln, Cancelled, Error, "A run or a build that was stopped on request.");
create_exception!(kiln, TimedOut, Error, "A run that was stopped at its limit.");

/// Adds the exceptions to the module, with the number of each class.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    let all = [
        ("Error", py.get_type::<Error>(), ErrorCode::Unspecified),
        ("InternalError", py.get_type::<InternalError>(), ErrorCode::Internal),
        ("InvalidArgument", py.get_type::<InvalidArgument>(), ErrorCode::InvalidArgument),
        ("InvalidConfig", py.get_type::<InvalidConfig>(), ErrorCode::InvalidConfig),
        ("FailedAllocation", py.get_type::<FailedAllocation>(), ErrorCode::FailedAllocation),
        ("FailedInitialization", py.get_type::<FailedInitialization>(), ErrorCode::FailedInitialization),
        ("FailedExecution", py.get_type::<FailedExecution>(), ErrorCode::FailedExecution),
        ("FailedComputation", py.get_type::<FailedComputation>(), ErrorCode::FailedComputation),
        ("InvalidState", py.get_type::<InvalidState>(), ErrorCode::InvalidState),
        ("UnsupportedState", py.get_type::<UnsupportedState>(), ErrorCode::UnsupportedState),
        ("ContextInUse", py.get_type::<ContextInUse>(), ErrorCode::InvalidState),
        ("Cancelled", py.get_type::<Cancelled>(), ErrorCode::Unspecified),
        ("TimedOut", py.get_type::<TimedOut>(), ErrorCode::Unspecified),
    ];
    for (name, class, code) in all {
        class.setattr("code", code.number())?;
        m.add(name, class)?;
    }
    Ok(())
}

fn of_code(code: ErrorCode, text: String) -> PyErr {
    match code {
        ErrorCode::Internal => InternalError::new_err(text),
        ErrorCode::InvalidArgument => InvalidArgument::new_err(text),
        ErrorCode::InvalidConfig => InvalidConfig::new_err(text),
        ErrorCode::FailedAllocation => FailedAllocation::new_err(text),
        ErrorCode::FailedInitialization => FailedInitialization::new_err(text),
        ErrorCode::FailedExecution => FailedExecution::new_err(text),
        ErrorCode::FailedComputation => FailedComputation::new_err(text),
        ErrorCode::InvalidState => InvalidState::new_err(text),
        ErrorCode::UnsupportedState => UnsupportedState::new_err(text),
        ErrorCode::Success | ErrorCode::Unspecified => Error::new_err(text),
    }
}

/// The text of an error with those of its causes, as far as it does not hold them.
fn text(e: &(dyn StdError + 'static)) -> String {
    let mut text = e.to_string();
    let mut next = e.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}

/// An error that becomes an exception.
pub trait Raise: StdError + 'static {
    /// The exception without its causes.
    fn exception(&self, text: String) -> PyErr;

    /// The exception with its causes.
    fn raise(&self, py: Python<'_>) -> PyErr
    where
        Self: Sized,
    {
        let e = self.exception(text(self));
        let mut causes = Vec::new();
        let mut next = self.source();
        while let Some(cause) = next {
            causes.push(Error::new_err(text(cause)));
            next = cause.source();
        }
        let mut inner = None;
        while let Some(cause) = causes.pop() {
            cause.set_cause(py, inner);
            inner = Some(cause);
        }
        e.set_cause(py, inner);
        e
    }
}

impl Raise for kiln::Error {
    fn exception(&self, text: String) -> PyErr {
        match self {
            kiln::Error::Runtime(e) => e.exception(text),
            kiln::Error::Build { source: BuildError::Cancelled, .. } => Cancelled::new_err(text),
            other => of_code(other.code(), text),
        }
    }
}

impl Raise for RuntimeError {
    fn exception(&self, text: String) -> PyErr {
        match self {
            RuntimeError::Cancelled { .. } => Cancelled::new_err(text),
            RuntimeError::TimedOut { .. } => TimedOut::new_err(text),
            other => of_code(other.code(), text),
        }
    }
}

impl Raise for kiln::PlanError {
    fn exception(&self, text: String) -> PyErr {
        of_code(self.code(), text)
    }
}

impl Raise for kiln::plugin::PluginError {
    fn exception(&self, text: String) -> PyErr {
        FailedInitialization::new_err(text)
    }
}

/// The exception for an object that another thread uses.
pub fn in_use(what: &str) -> PyErr {
    ContextInUse::new_err(format!(
        "{what} is in use by another thread; give each thread its own, or wait until the other call is done"
    ))
}

/// The exception for an argument that is not allowed.
pub fn argument(text: impl Into<String>) -> PyErr {
    InvalidArgument::new_err(text.into())
}

/// An error of a call that handles tensors of other libraries, too.
pub enum Failed {
    /// An error of the runtime.
    Runtime(RuntimeError),
    /// An exception.
    Python(PyErr),
}

impl From<RuntimeError> for Failed {
    fn from(e: RuntimeError) -> Failed {
        Failed::Runtime(e)
    }
}

impl From<PyErr> for Failed {
    fn from(e: PyErr) -> Failed {
        Failed::Python(e)
    }
}

/// Errors that become exceptions.
pub trait IntoException {
    /// The exception.
    fn into_exception(self, py: Python<'_>) -> PyErr;
}

impl<E: Raise> IntoException for E {
    fn into_exception(self, py: Python<'_>) -> PyErr {
        self.raise(py)
    }
}

impl IntoException for Failed {
    fn into_exception(self, py: Python<'_>) -> PyErr {
        match self {
            Failed::Runtime(e) => e.raise(py),
            Failed::Python(e) => e,
        }
    }
}
