//! Settings that builders were given.

use kiln::calibration::Algorithm;
use kiln::{BuildOptions, ErrorRecorder, Tensor};
use kiln_c_core::error::Fail;
use kiln_c_core::handle::{self, Exclusive};
use kiln_c_core::options::Choice;
use std::sync::Arc;

/// Options of builds.
pub struct kiln_builder_t {
    pub(crate) cell: Exclusive<Wishes>,
}

/// Settings of a builder.
#[derive(Clone, Default)]
pub struct Wishes {
    pub(crate) options: BuildOptions,
    pub(crate) choice: Choice,
    pub(crate) progress: Option<Arc<Tell>>,
    pub(crate) calibration: Option<Arc<Calibration>>,
    pub(crate) recorder: Option<Arc<dyn ErrorRecorder>>,
}

/// Changes what a builder was told.
///
/// # Safety
/// The pointer is NULL, or of a builder that lives as long as the call.
pub(crate) unsafe fn change(
    builder: *mut kiln_builder_t,
    f: impl FnOnce(&mut Wishes) -> Result<(), Fail>,
) -> Result<(), Fail> {
    // SAFETY: as the caller vouches.
    let b = unsafe { handle::shared(builder, "builder") }?;
    f(&mut *b.cell.enter()?)
}

/// Takes the phase of a build, its steps that are done, and all its steps; whether the build goes on.
pub(crate) type Tell = dyn Fn(&str, usize, usize) -> bool + Send + Sync;

/// Inputs of a run by name.
pub(crate) type Batch = Vec<(String, Tensor)>;

/// Calibration by batches of the caller.
pub(crate) struct Calibration {
    pub(crate) algorithm: Algorithm,
    /// The next batch; `None` behind the last one.
    pub(crate) next: Box<dyn Fn() -> Result<Option<Batch>, Fail> + Send + Sync>,
}
