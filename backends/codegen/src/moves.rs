//! The axis of operators along one.

use crate::site::Cx;
use kiln_backend::BackendError;

/// The attribute "axis" as a position.
pub fn axis(cx: &Cx<'_>, rank: usize) -> Result<usize, BackendError> {
    cx.axis(rank)
}
