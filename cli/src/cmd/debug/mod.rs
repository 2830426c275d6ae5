//! `kiln debug`: the part of a model that fails, the layers that a tolerance needs wide, and the errors of all.

pub mod accuracy;
mod precision;
pub mod prepared;
mod reduce;

use crate::failure::Failure;
use crate::print::Printer;

/// Find the part of a model that fails
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Reduce(reduce::Args),
    Precision(Box<precision::Args>),
    Accuracy(Box<accuracy::Args>),
}

/// Runs the command.
pub fn run(args: &Args, out: &Printer) -> Result<(), Failure> {
    match &args.command {
        Command::Reduce(args) => reduce::run(args, out),
        Command::Precision(args) => precision::run(args, out),
        Command::Accuracy(args) => accuracy::run(args, out),
    }
}
