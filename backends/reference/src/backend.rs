//! The backend object.

use crate::device::Processor;
use crate::tactic::check_tactic;
use kiln_backend::assisted::{HOST_IS_DEVICE, ORACLE};
use kiln_backend::{Backend, BackendError, Device, MemoryRules, Region, Tactic, Target, flow};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The oracle as a backend.
#[derive(Clone, Debug, Default)]
pub struct Reference;

impl Reference {
    /// The backend.
    pub fn new() -> Reference {
        Reference
    }

    /// The only target. Results depend on no property of the processor.
    pub fn target() -> Target {
        Target {
            backend: "reference".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            arch: std::env::consts::ARCH.into(),
            device: "oracle".into(),
            driver: String::new(),
            features: vec![HOST_IS_DEVICE.into()],
            numbers: BTreeMap::new(),
            memory: MemoryRules { alignment: 64, max_binding: u64::MAX, in_place: true, total: 0 },
            uuid: String::new(),
            traits: BTreeMap::new(),
        }
    }
}

impl Backend for Reference {
    fn name(&self) -> &str {
        "reference"
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        Ok(vec![Reference::target()])
    }

    /// The oracle runs whatever the verifier accepts.
    fn supports(&self, _: &Region, _: &Target) -> Result<(), BackendError> {
        Ok(())
    }

    fn tactics(&self, region: &Region, _: &Target) -> Result<Vec<Tactic>, BackendError> {
        Ok(vec![flow::tactic(region).unwrap_or_else(|| Tactic::plain(ORACLE))])
    }

    fn compile(&self, _: &Region, tactic: &Tactic, _: &Target) -> Result<Vec<u8>, BackendError> {
        check_tactic(&tactic.name)?;
        Ok(Vec::new())
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        let own = Reference::target();
        if target.backend != own.backend || target.arch != own.arch {
            return Err(BackendError::Incompatible(format!(
                "this is {} on {}, the target is {} on {}",
                own.backend, own.arch, target.backend, target.arch
            )));
        }
        Ok(Arc::new(Processor))
    }
}
