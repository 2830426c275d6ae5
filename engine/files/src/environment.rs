//! Environment variables that choose code or files.

use std::ffi::OsString;

/// The value of a variable that names a library, a plug-in folder or a cache; `None` if it is unset or empty, or if the
/// process runs with more rights than its caller (`AT_SECURE`: set-user-id, set-group-id or file capabilities), whose
/// environment then must not choose the code that runs.
pub fn trusted(name: &str) -> Option<OsString> {
    if is_privileged() {
        return None;
    }
    std::env::var_os(name).filter(|v| !v.is_empty())
}

/// Whether the process runs with more rights than its caller.
#[cfg(target_os = "linux")]
pub fn is_privileged() -> bool {
    // SAFETY: reads a word that the kernel passed to the process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Whether the process runs with more rights than its caller.
#[cfg(all(unix, not(target_os = "linux")))]
pub fn is_privileged() -> bool {
    // SAFETY: these functions read ids of the process.
    unsafe { libc::getuid() != libc::geteuid() || libc::getgid() != libc::getegid() }
}

/// Whether the process runs with more rights than its caller.
#[cfg(not(unix))]
pub fn is_privileged() -> bool {
    false
}
