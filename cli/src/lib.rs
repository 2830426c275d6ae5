//! The `kiln` command: builds, runs, measures, inspects and compares engines.
//!
//! Exit codes: 0 for success, 1 for bad input or a mismatch, 2 for wrong usage. 128 + N stands for an end by
//! signal N (130 for an interrupt from the keyboard, 143 for a termination).
//!
//! The command is a library with one function, so that the program `kiln` and the Python package run the same code.

mod arrays;
mod bench;
mod calibrate;
mod cmd;
mod debug;
mod diff;
mod element_type;
mod failure;
mod given;
mod io_formats;
mod load;
mod options;
mod print;
mod progress;
mod query;
mod report;
mod session;
mod signals;
mod subject;
mod terminal;
mod trace;
mod trtexec;

use clap::{Parser, Subcommand};
use std::ffi::OsString;

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "kiln",
    version,
    about = "Compiles neural networks into engines and runs them",
    propagate_version = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Say more of what is done, on stderr: -v notes, -vv details
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Print JSON for programs instead of tables for people
    #[arg(long, global = true)]
    json: bool,
    /// The most host memory that tensors may take: 800000000, 512M, 1.5G; the variable KILN_MEMORY_LIMIT sets it for
    /// plug-ins, too [default: 80 % of what is available]
    #[arg(long, global = true, value_name = "BYTES", value_parser = kiln_ir::budget::parse)]
    memory_limit: Option<u64>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Build(cmd::build::Args),
    Run(cmd::run::Args),
    Bench(cmd::bench::Args),
    Inspect(cmd::inspect::Args),
    Report(Box<cmd::report::Args>),
    Refit(cmd::refit::Args),
    Compare(cmd::compare::Args),
    Check(cmd::check::Args),
    Debug(cmd::debug::Args),
    Backends(cmd::backends::Args),
    Cache(cmd::cache::Args),
    Plugin(cmd::plugin::Args),
    /// Build and measure with the flags of TensorRT's tool: kiln trtexec --help
    #[command(disable_help_flag = true)]
    Trtexec(cmd::Words),
}

/// Runs the command with these arguments, of which the first is the program's name, and returns its exit code.
///
/// The process belongs to the command: it handles signals and logging from here on, so that this is called once.
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    let args: Vec<OsString> = args.into_iter().collect();
    if let Some(words) = cmd::words_of("trtexec", &args) {
        return trtexec::run(&words);
    }
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => {
            // Help and errors of usage; where there is nowhere to write them, the code stands for them.
            drop(e.print());
            return u8::try_from(e.exit_code()).unwrap_or(2);
        }
    };
    log(cli.verbose);
    signals::install();
    if let Some(bytes) = cli.memory_limit {
        kiln_ir::budget::set_limit(bytes);
    }
    let out = print::Printer::new(cli.json);
    let result = match &cli.command {
        Command::Build(args) => cmd::build::run(args, &out),
        Command::Run(args) => cmd::run::run(args, &out),
        Command::Bench(args) => cmd::bench::run(args, &out),
        Command::Inspect(args) => cmd::inspect::run(args, &out),
        Command::Report(args) => cmd::report::run(args, &out),
        Command::Refit(args) => cmd::refit::run(args, &out),
        Command::Compare(args) => cmd::compare::run(args, &out),
        Command::Check(args) => cmd::check::run(args, &out),
        Command::Debug(args) => cmd::debug::run(args, &out),
        Command::Backends(args) => cmd::backends::run(args, &out),
        Command::Cache(args) => cmd::cache::run(args, &out),
        Command::Plugin(args) => cmd::plugin::run(args, &out),
        Command::Trtexec(words) => return trtexec::run(&words.words),
    };
    match result {
        Ok(()) => 0,
        Err(e) => {
            failure::report(&e);
            signals::received().map_or(1, signals::exit_code)
        }
    }
}

/// Warnings and worse go to stderr, more with `-v`.
fn log(verbose: u8) {
    let level = match verbose {
        0 => tracing::Level::WARN,
        1 => tracing::Level::INFO,
        _ => tracing::Level::DEBUG,
    };
    let done = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .without_time()
        .with_target(false)
        .try_init();
    // A second subscriber cannot be: this is the only call.
    drop(done);
}
