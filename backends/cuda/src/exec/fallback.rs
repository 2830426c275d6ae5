//! Why control flow is not planned for the device.

use crate::driver::DriverError;
use kiln_backend::BackendError;
use kiln_backend::assisted::Reason;
use kiln_ir::IrError;

/// The host walks a step, or planning failed.
pub enum Fallback {
    Host(Reason),
    Failed(BackendError),
}

macro_rules! failures {
    ($($error:ty),*) => {
        $(impl From<$error> for Fallback {
            fn from(e: $error) -> Fallback {
                Fallback::Failed(e.into())
            }
        })*
    };
}

failures!(BackendError, DriverError, IrError);

pub type OnDevice<T> = Result<T, Fallback>;

pub fn on_host<T>(why: Reason) -> OnDevice<T> {
    Err(Fallback::Host(why))
}
