//! What planning control flow for the device ends with.

use crate::driver::DriverError;
use kiln_backend::BackendError;
use kiln_backend::assisted::Reason;
use kiln_ir::IrError;

/// Why the host walks a step, or what went wrong.
pub(super) enum Stop {
    Host(Reason),
    Failed(BackendError),
}

macro_rules! failures {
    ($($error:ty),*) => {
        $(impl From<$error> for Stop {
            fn from(e: $error) -> Stop {
                Stop::Failed(e.into())
            }
        })*
    };
}

failures!(BackendError, DriverError, IrError);

pub(super) type Made<T> = Result<T, Stop>;

pub(super) fn host<T>(why: Reason) -> Made<T> {
    Err(Stop::Host(why))
}
