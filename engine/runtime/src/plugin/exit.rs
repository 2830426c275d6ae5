//! Ends libraries when the process ends, the last one first.

use super::library::Plugin;
use std::sync::{Arc, Mutex};

static STARTED: Mutex<Vec<Arc<Plugin>>> = Mutex::new(Vec::new());

/// Notes that a library was started. Registered with the system once for each library, and after its own destructors, so
/// that it runs before them.
pub(super) fn started(plugin: Arc<Plugin>) {
    if let Ok(mut all) = STARTED.lock() {
        all.push(plugin);
    }
    // SAFETY: the handler is a function without arguments that does not unwind.
    #[cfg(unix)]
    unsafe {
        libc::atexit(end_last);
    }
}

#[cfg(unix)]
extern "C" fn end_last() {
    // A thread that holds the lock while the process ends will never give it back.
    let plugin = STARTED.try_lock().ok().and_then(|mut all| all.pop());
    if let Some(plugin) = plugin {
        plugin.end();
    }
}
