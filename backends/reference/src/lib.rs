//! The CPU reference backend of Kiln: oracle and embedded default.
//!
//! Every region has the tactic "oracle", which evaluates node by node with the reference implementations of
//! `kiln-ir`; where there is a blocked, threaded path it has the tactic "fast", too.

mod backend;
mod buffer;
mod context;
mod cost;
mod device;
mod fast;
mod kernel;
mod value;

pub use backend::{Options, Reference};
