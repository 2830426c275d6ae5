//! The commands, one a file.

pub mod backends;
pub mod bench;
pub mod build;
pub mod cache;
pub mod compare;
pub mod host;
pub mod inspect;
pub mod plugin;
pub mod refit;
pub mod run;
