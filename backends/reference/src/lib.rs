//! The reference backend of Kiln: the oracle, slow and exact.
//!
//! Evaluates every layer by its operator's own definition, in f64 where it computes with floats, on one thread. Other backends are
//! compared with it. Nothing is fused, chosen or timed here: for runs that are to be fast there is the backend `cpu`.

mod backend;
mod context;
mod device;
mod tactic;

pub use backend::Reference;
