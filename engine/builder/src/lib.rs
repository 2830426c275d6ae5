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
mod record;
mod refit;
pub mod regions;
mod report;
mod requests;
mod search;
mod selection;
mod tuner;

pub use ahead::Spent;
pub use build::{Builder, Built};
pub use config::{BuildConfig, Constraints, LayerTypes, Narrowing, Progress};
pub use error::BuildError;
pub use passes::PassCx;
pub use record::{TacticChoice, TacticRecord};
pub use refit::Refit;
pub use report::{StepReport, TensorFormat};
pub use search::Considered;
pub use selection::{Algorithm, AlgorithmSelector, LayerContext, Selector, TacticRule};
