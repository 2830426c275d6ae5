//! The commands, one a file.

pub mod backends;
pub mod bench;
pub mod build;
pub mod cache;
pub mod check;
pub mod compare;
pub mod debug;
pub mod host;
pub mod inspect;
pub mod plugin;
pub mod refit;
pub mod report;
pub mod run;

use std::ffi::OsString;

/// Words of a command that reads them itself.
#[derive(Debug, clap::Args)]
pub struct Words {
    /// Flags with their values
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    pub words: Vec<String>,
}

/// The words behind the name of a command, if it is the first word: it reads even those that all commands have.
pub fn words_of(command: &str, args: &[OsString]) -> Option<Vec<String>> {
    let mut args = args.iter().skip(1);
    args.next().filter(|a| *a == command)?;
    Some(args.map(|a| a.to_string_lossy().into_owned()).collect())
}
