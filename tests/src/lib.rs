//! Tests that cross Kiln's crates, and what they share.

pub mod backends;
pub mod bless;
pub mod driver;
pub mod filetests;
pub mod gate;
pub mod lazy;
pub mod models;
pub mod mutants;
pub mod op_suite;
pub mod random;
pub mod suite;
pub mod topologies;
