//! The CPU reference backend of Kiln: oracle and embedded default.
//!
//! Every region has the tactic "oracle", which evaluates node by node with the reference implementations of
//! `kiln-ir`; where there is a blocked, threaded path it has the tactic "fast", too.

mod backend;
mod buffer;
mod context;
mod device;
mod fast;
mod kernel;
mod tactics;
mod value;

pub use backend::Reference;
pub use buffer::Options;
