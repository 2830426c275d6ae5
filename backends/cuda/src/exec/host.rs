//! Code of the host that the run-only form of the backend lacks: planning of launches that are not data, and calls of libraries.

use crate::driver::{Call, Gpu};
use kiln_backend::launch::{KernelOperands, PlanLaunches};
use kiln_backend::{BackendError, CompiledKernel, Region, Step, Target};
use std::sync::Arc;

/// Loads steps by code generation and by vendors' libraries.
pub trait HostCode: Sync {
    /// The operands of a step that a library runs.
    fn operands(&self, region: &Region, target: &Target) -> Result<KernelOperands, BackendError>;

    /// Plans the launches of a step. Refuses kernels that another build of the backend compiled.
    fn planner(
        &self,
        stored: &CompiledKernel,
        region: &Region,
        step: &Step,
        target: &Target,
    ) -> Result<Box<dyn PlanLaunches>, BackendError>;

    /// The call of a library that runs a step.
    fn library(
        &self,
        region: &Region,
        step: &Step,
        target: &Target,
        gpu: &Arc<Gpu>,
    ) -> Result<Arc<dyn Library>, BackendError>;
}

/// A step that a library runs.
pub trait Library: Send + Sync {
    /// Bytes of scratch memory.
    fn workspace(&self) -> u64;

    /// A call with these addresses.
    fn prepare(&self, places: &Places) -> Result<Arc<dyn Call>, BackendError>;
}

/// Addresses of a step's tensors.
#[cfg_attr(not(feature = "compile"), allow(dead_code, reason = "only calls of libraries read them"))]
pub struct Places {
    /// The anchor's inputs.
    pub inputs: Vec<Option<u64>>,
    /// Further operands of the pointwise operators.
    pub extras: Vec<u64>,
    /// The result.
    pub output: u64,
    /// Scratch memory of [`Library::workspace`] bytes.
    pub scratch: u64,
}
