//! Tests of graphs that need operators, which are defined one crate above `kiln-ir`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]

mod compact;
mod control;
mod eval;
mod names;
mod ranges;
mod text;
mod wire;
mod work;
