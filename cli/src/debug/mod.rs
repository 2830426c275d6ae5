//! Searches for the part of a model that fails.

pub mod checker;
pub mod extract;
pub mod rank;
