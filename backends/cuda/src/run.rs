//! The run-only form of the backend: it loads and runs plans, and builds none.

use crate::exec::CudaDevice;
use crate::target;
use kiln_backend::{Backend, BackendError, Device, Region, Tactic, Target};
use std::sync::Arc;

/// The CUDA backend without code generation, NVRTC and libraries. It runs plans whose launches are data, as they are where
/// shapes are fixed.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOnly;

impl RunOnly {
    /// The backend; the driver is looked for when it is needed.
    pub fn new() -> Result<RunOnly, BackendError> {
        Ok(RunOnly)
    }
}

fn refused<T>() -> Result<T, BackendError> {
    Err(BackendError::Unsupported(
        "this CUDA backend is run-only: it was built without the feature \"compile\" of kiln-backend-cuda, so that it loads and \
         runs plans, but builds none; build the plan with the backend that has the feature (the default), or on another machine"
            .into(),
    ))
}

impl Backend for RunOnly {
    fn name(&self) -> &str {
        "cuda"
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        Ok(target::found()?.into_iter().map(|(_, t)| t).collect())
    }

    fn supports(&self, _: &Region, _: &Target) -> Result<(), BackendError> {
        refused()
    }

    fn tactics(&self, _: &Region, _: &Target) -> Result<Vec<Tactic>, BackendError> {
        refused()
    }

    fn compile(&self, _: &Region, _: &Tactic, _: &Target) -> Result<Vec<u8>, BackendError> {
        refused()
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        let (gpu, own) = target::opened(target)?;
        Ok(Arc::new(CudaDevice::new(gpu, own, None)?))
    }
}
