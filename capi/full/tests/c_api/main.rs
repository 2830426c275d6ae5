//! The C API from C and C++: the page's commands, the examples on each backend, attacks, threads, memory.
//!
//! Tests take the libraries that `cargo build --workspace --lib` made beside the test's executable. `KILN_VALGRIND=1` runs the C
//! programs under valgrind.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

mod data;
mod install;
mod layout;
mod programs;
mod symbols;
