//! A check in a process of its own, which a library may end: by a fault, or by an exception that leaves one of its functions.

use crate::failure::Failure;
use std::process::{Command, ExitStatus};

/// Set in the process that the library may end.
const INSIDE: &str = "KILN_PLUGIN_CHECK_INSIDE";

/// Variables by which GPU backends put guards around the memory of kernels, and fill it with NaN in front of each run.
const WATCHED: [(&str, &str); 2] = [("KILN_GUARD", "1"), ("KILN_POISON", "1")];

/// Runs this command once more in a process of its own, and returns how that ended; none where this is that process, or where the
/// command is not run by its own program.
pub fn run() -> Result<Option<ExitStatus>, Failure> {
    let program = std::env::current_exe().ok();
    let program = program.filter(|p| p.file_stem().is_some_and(|s| s == "kiln"));
    let (Some(program), None) = (program, std::env::var_os(INSIDE)) else { return Ok(None) };
    let status =
        Command::new(&program).args(std::env::args_os().skip(1)).env(INSIDE, "1").envs(WATCHED).status();
    status.map(Some).map_err(|source| Failure::File { path: program, source })
}

/// The failure of a process that did not end by itself; none of one that did.
pub fn ended(status: ExitStatus) -> Option<Failure> {
    let how = match (status.code(), signal(status)) {
        (Some(_), _) => return None,
        (None, Some(n)) => format!("signal {n}"),
        (None, None) => "no status".to_owned(),
    };
    Some(Failure::Mismatch(format!(
        "the library ended the process ({how}): a fault, or an exception that left one of its functions; catch all exceptions in \
         each function of its tables, and look at the fault with a debugger"
    )))
}

#[cfg(unix)]
fn signal(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal(_: ExitStatus) -> Option<i32> {
    None
}
