//! The WGSL backend of Kiln, on wgpu.
//!
//! A kernel is WGSL text that depends on operators, element types and attributes but not on shapes: those travel as
//! words in an argument buffer, so that a new shape makes no pipeline. Kernels are listed by family in `kiln-codegen`, whose
//! [`dialect`] is WGSL, and in [`kernels`]; [`wgsl`] writes the module.

pub mod adapter;
mod backend;
mod dialect;
mod exec;
mod gpu;
mod halves;
mod kernels;
mod plugin;
mod wgsl;

pub use backend::{Wgpu, planned, text_of};

kiln_backend::export_backend!(Wgpu::new, "wgpu");
