//! Assertions: a kernel counts what is false; the context reads the count and makes the error.

use crate::site::Cx;
use crate::{Body, Entry, Grid, Kernel, Launch};
use kiln_backend::BackendError;

/// The kernels.
pub const KERNELS: &[Kernel] =
    &[Kernel::alone("assertion", &["assertion"], |_, _| Ok(counting(1024)), launch)];

crate::params! {
    /// A count of truth values that are false.
    struct AssertionParams {
        /// Truth values.
        count: u32,
    }
}

/// The kernel as one block of `threads` threads.
pub fn counting(threads: u32) -> Body {
    let entry = Entry::blocks("count_false", threads).silent();
    Body { sizes: true, ..Body::of("generate/assertion", vec![entry]) }
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let params = AssertionParams { count: cx.shape(0)?.iter().product() };
    Ok(vec![Launch { counts: true, ..Launch::map(0, params.words()?).on(Grid::Groups(1)) }])
}
