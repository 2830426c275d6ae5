//! Loading of steps by what the backend is built with: code generation, and calls of vendors' libraries.

use crate::dialect::CUDA;
use crate::driver::Gpu;
use crate::exec::{HostCode, Library};
use crate::frame::lanes;
use crate::vendor;
use kiln_backend::launch::{KernelOperands, PlanLaunches};
use kiln_backend::{BackendError, CompiledKernel, Region, Step, Target};
use kiln_codegen::planner::{HostPlanner, operands};
use kiln_codegen::site::Site;
use std::sync::Arc;

/// The families of kernels, and the libraries.
pub struct Families;

/// Elements of each stored output that one thread of a map computes.
pub fn all_lanes(site: &Site<'_>) -> Vec<u32> {
    site.stored().into_iter().map(|t| lanes(t, site.anchor.is_some())).collect()
}

impl HostCode for Families {
    fn operands(&self, region: &Region, target: &Target) -> Result<KernelOperands, BackendError> {
        let site = Site::of(&region.graph, target, &CUDA)?;
        operands(&site, all_lanes(&site))
    }

    fn planner(
        &self,
        stored: &CompiledKernel,
        region: &Region,
        step: &Step,
        target: &Target,
    ) -> Result<Box<dyn PlanLaunches>, BackendError> {
        let site = Site::of(&region.graph, target, &CUDA)?;
        Ok(Box::new(HostPlanner::stored(stored, &step.tactic.name, &site)?))
    }

    fn library(
        &self,
        region: &Region,
        step: &Step,
        target: &Target,
        gpu: &Arc<Gpu>,
    ) -> Result<Arc<dyn Library>, BackendError> {
        let site = Site::of(&region.graph, target, &CUDA)?;
        vendor::load(&site, &step.tactic, step.blob.as_slice(), gpu)
    }
}
