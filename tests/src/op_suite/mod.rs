//! The op suite: every operator's problems on every backend and by every tactic, against the oracle.
//!
//! A problem runs through the contract of backends as a program whose memory is poisoned and watched (see [`guard`]).
//! Every refusal of a backend must be on its list of refusals (see [`refusals`]), and nothing else may be.

#[cfg(test)]
mod faulty;
mod guard;
mod indices;
mod matrix;
#[cfg(test)]
mod mutations;
mod parts;
mod problems;
mod random;
mod refusals;
mod region;
mod run;
mod side;
mod sizes;
mod table;
mod views;

pub use indices::Indices;
pub use matrix::matrix;
pub use problems::{UNTESTED, dtype_of, problems};
pub use refusals::{Refusal, listed};
pub use run::{Mode, Subject};
pub use side::Sides;
pub use sizes::{Sizes, device_sizes};
pub use table::{Row, Table};
pub use views::Views;
