//! Native forms of plug-in layers in contexts.

use kiln_ops::plugin::native::NativeRun;
use std::sync::{Arc, Mutex};

/// A native form in a context.
pub struct NativeState {
    /// None before it is attached.
    pub run: Option<Box<dyn NativeRun>>,
    /// Whether a call failed: it is not used again.
    pub failed: bool,
}

/// A state that calls share; used by one at a time.
pub type SharedState = Arc<Mutex<NativeState>>;
