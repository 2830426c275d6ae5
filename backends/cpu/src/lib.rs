//! The CPU backend of Kiln: vectorized kernels on a pool of threads of its own.
//!
//! Regions of layers that have kernels run by the tactic "fast". A layer that has none runs by the tactic "oracle", its operator's own
//! definition: reports and the inspector name it, and a strict build refuses it.

mod backend;
mod buffer;
mod context;
mod device;
mod fast;
mod host;
mod kernel;
mod tactics;
mod threads;
mod value;

pub use backend::Cpu;
pub use buffer::Options;
