//! Runs CUDA kernels on the host: an interpreter of PTX for tests on machines without a GPU.
//!
//! NVRTC compiles a kernel to PTX, as for a device. Each instruction is executed for the threads of a warp, one warp after the other.
//! Tensor cores, copies by the tensor memory accelerator, clusters and barriers in shared memory are there. Accesses outside of live
//! memory, misaligned ones and threads that wait for ever are errors that name the instruction.
//!
//! Copies that a device makes aside are made at once, so that a kernel which does not wait for one is not found. A warp's turns are
//! drawn from `KILN_EMULATOR_SEED`: a missing barrier shows in some of them.
//!
//! `tests/fake_driver` calls [`interface`]; `scripts/emulate.sh` runs tests by it.

pub mod addresses;
pub mod arithmetic;
pub mod convert;
pub mod copies;
pub mod decode;
pub mod float;
pub mod instruction;
pub mod interface;
pub mod launch;
pub mod matrix;
pub mod memory;
pub mod module;
pub mod names;
pub mod perform;
pub mod text;
pub mod types;
pub mod warp;
