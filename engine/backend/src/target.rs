//! Targets: what a plan is built for.

use std::collections::BTreeMap;

/// A serializable description of one device and of the backend that drives it. Tactics and compilation need a target
/// only, never the device.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Name of the backend: "reference", "wgpu", "cuda".
    pub backend: String,
    /// Version of the backend; plans and cached timings of another one are not used.
    pub version: String,
    /// Instruction set or architecture: "x86_64", "vulkan", "sm_90a". Another one refuses a plan.
    pub arch: String,
    /// Name of the device as its driver reports it.
    pub device: String,
    /// Driver and its version. Recorded, not part of the fingerprint.
    pub driver: String,
    /// Features that kernels may use, sorted: "f16", "i64", "subgroup".
    pub features: Vec<String>,
    /// Numbers that kernels are chosen by: "shared_memory", "sm_count", "l2_bytes". A difference is a warning.
    pub numbers: BTreeMap<String, u64>,
    /// Rules of the memory planner.
    pub memory: MemoryRules,
}

/// The feature of a target whose backend can take tactics from a library, if asked: a "tactic source".
pub fn offer_feature(source: &str) -> String {
    format!("offers.{source}")
}

/// The feature of a target that takes tactics from a library. Those who build set it where the target offers it; a device
/// has no such feature of its own.
pub fn source_feature(source: &str) -> String {
    format!("source.{source}")
}

/// Rules of the memory planner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRules {
    /// Alignment of tensors in the arena, in bytes; a power of two.
    pub alignment: u64,
    /// The largest range that one kernel argument may span, in bytes.
    pub max_binding: u64,
    /// Whether an output may lie in the memory of an input that nobody reads afterwards.
    pub in_place: bool,
    /// Bytes of device memory; 0 if unknown.
    pub total: u64,
}

impl Target {
    /// Name of the target in timing-cache keys and plans: backend, version, architecture, device, features
    /// and memory rules, but not the driver.
    pub fn fingerprint(&self) -> String {
        let mut h = blake3::Hasher::new();
        let mut put = |s: &str| {
            h.update(&(s.len() as u64).to_le_bytes());
            h.update(s.as_bytes());
        };
        for s in [&self.backend, &self.version, &self.arch, &self.device] {
            put(s);
        }
        self.features.iter().for_each(|f| put(f));
        for (k, v) in &self.numbers {
            put(k);
            put(&v.to_string());
        }
        let MemoryRules { alignment, max_binding, in_place, total: _ } = self.memory;
        put(&format!("{alignment} {max_binding} {in_place}"));
        h.finalize().to_hex()[..32].to_owned()
    }

    /// Whether the target has this feature.
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|f| f == feature)
    }
}
