//! The program `kiln`: the command of [`kiln_cli`], and nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(kiln_cli::run(std::env::args_os()))
}
