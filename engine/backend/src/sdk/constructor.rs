//! The function of a library that makes its backend, kept from `init` on.

use crate::{Backend, BackendError};
use std::sync::OnceLock;

/// Makes the backend of a library, or says why it cannot.
pub type Constructor = fn() -> Result<Box<dyn Backend>, BackendError>;

static CONSTRUCTOR: OnceLock<Constructor> = OnceLock::new();

/// Keeps the constructor; an error if there is one already, as `init` is called once.
pub(super) fn set(constructor: Constructor) -> Result<(), BackendError> {
    let twice = || BackendError::InvalidArgument("init is called a second time".into());
    CONSTRUCTOR.set(constructor).map_err(|_| twice())
}

/// The backend that the constructor makes.
pub fn create_with() -> Result<Box<dyn Backend>, BackendError> {
    match CONSTRUCTOR.get() {
        Some(make) => make(),
        None => Err(BackendError::InvalidArgument("init has not been called".into())),
    }
}
