//! Execution contexts.

mod callbacks;
mod class;
mod core;
mod run;

pub use class::ExecutionContext;
pub use core::Core;
pub use run::run;
