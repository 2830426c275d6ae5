//! Ends libraries when the process ends, the last one first.

use std::sync::Mutex;

/// Ends a library.
type End = Box<dyn FnOnce() + Send>;

static STARTED: Mutex<Vec<End>> = Mutex::new(Vec::new());

/// Notes that a library was started, and how it is ended. Registered with the system once for each library, and after its own destructors, so
/// that it runs before them.
pub(super) fn started(end: End) {
    if let Ok(mut all) = STARTED.lock() {
        all.push(end);
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
    let end = STARTED.try_lock().ok().and_then(|mut all| all.pop());
    if let Some(end) = end {
        end();
    }
}
