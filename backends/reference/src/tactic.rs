//! Tactics that plans may name.

use kiln_backend::assisted::ORACLE;
use kiln_backend::{BackendError, flow};

/// The tactic of earlier versions of this backend that ran layers by fast paths. Plans that name it run on the oracle.
const FORMER: &str = "fast";

/// Refuses a tactic that this build does not have.
pub(crate) fn check_tactic(name: &str) -> Result<(), BackendError> {
    match name {
        ORACLE | FORMER | flow::INTERPRETED => Ok(()),
        other => Err(BackendError::Incompatible(format!(
            "the reference backend has no tactic \"{other}\"; build the plan again"
        ))),
    }
}
