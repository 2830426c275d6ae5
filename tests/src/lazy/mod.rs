//! Control flow by its definition: tensors inside of loops are lazy sequences.
//!
//! [`Spec`] interprets a *network*, before any lowering: it knows neither regions nor captures nor an order of layers.
//! [`programs`] draws random networks of nested loops and conditionals, and [`coverage`] counts what they try.

pub mod coverage;
mod describe;
pub mod families;
mod grow;
pub mod programs;
mod spec;

pub use describe::text;
pub use spec::Spec;
