//! Reports of engines as pages.

pub mod data;
mod escape;
pub mod html;
mod layout;
mod lifetimes;
pub mod pair;
mod svg;
