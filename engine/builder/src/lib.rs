//! Networks into plans: passes, regions, tactics, timing cache, memory plan.

mod ahead;
mod bodies;
mod build;
pub mod cache;
mod config;
mod error;
mod host;
mod inputs;
mod largest;
mod memory;
pub mod passes;
mod points;
mod refit;
pub mod regions;
mod requests;
mod search;
mod tuner;

pub use ahead::Spent;
pub use build::{Builder, Built, StepReport};
pub use config::{BuildConfig, Constraints, LayerTypes, Narrowing, Progress};
pub use error::BuildError;
pub use passes::PassCx;
pub use refit::Refit;
pub use search::Considered;
