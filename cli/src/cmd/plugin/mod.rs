//! `kiln plugin`: libraries of custom layers.

mod apart;
mod check;
mod draw;
mod list;
mod new;

use crate::failure::Failure;
use crate::print::Printer;

/// List, check and start libraries of custom layers
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(list::Args),
    Check(check::Args),
    New(new::Args),
}

/// Runs the command.
pub fn run(args: &Args, out: &Printer) -> Result<(), Failure> {
    match &args.command {
        Command::List(args) => list::run(args, out),
        Command::Check(args) => check::run(args, out),
        Command::New(args) => new::run(args, out),
    }
}
