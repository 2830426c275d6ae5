//! Targets: what a plan is built for.

use crate::field;
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;
use std::ops::Not;

/// A serializable description of one device and of the backend that drives it. Tactics and compilation need a target
/// only, never the device.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Target {
    /// Name of the backend: "cpu", "wgpu", "cuda".
    #[n(0)]
    pub backend: String,
    /// Version of the backend; plans and cached timings of another one are not used.
    #[n(1)]
    pub version: String,
    /// Instruction set or architecture: "x86_64", "vulkan", "sm_90a". Another one refuses a plan.
    #[n(2)]
    pub arch: String,
    /// Name of the device as its driver reports it.
    #[n(3)]
    pub device: String,
    /// Driver and its version. Recorded, not part of the fingerprint.
    #[cbor(n(4), skip_if = "String::is_empty")]
    pub driver: String,
    /// Features that kernels may use, sorted: "f16", "i64", "subgroup".
    #[cbor(n(5), with = "field::sorted", has_nil)]
    pub features: Vec<String>,
    /// Numbers that kernels are chosen by: "shared_memory", "sm_count", "l2_bytes". A difference is a warning.
    #[cbor(n(6), skip_if = "BTreeMap::is_empty")]
    pub numbers: BTreeMap<String, u64>,
    /// Rules of the memory planner.
    #[n(7)]
    pub memory: MemoryRules,
}

/// The feature of a target whose backend multiplies by packed 2:4 sparse weights faster than by dense ones. Builds leave it out
/// unless they are told to use such weights.
pub const SPARSE_WEIGHTS: &str = "sparse_weights";

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct MemoryRules {
    /// Alignment of tensors in the arena, in bytes; a power of two.
    #[cbor(n(0), decode_with = "field::power_of_two")]
    pub alignment: u64,
    /// The largest range that one kernel argument may span, in bytes.
    #[n(1)]
    pub max_binding: u64,
    /// Whether an output may lie in the memory of an input that nobody reads afterwards.
    #[cbor(n(2), skip_if = "Not::not")]
    pub in_place: bool,
    /// Bytes of device memory; 0 if unknown.
    #[cbor(n(3), skip_if = "field::is_zero")]
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
