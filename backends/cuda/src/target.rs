//! Devices as targets: those that the driver finds, and those that are known by name.

use crate::driver::{Attribute, DriverError, Gpu, devices};
use kiln_backend::assisted::DEVICE_FLOW;
use kiln_backend::{
    BackendError, MAX_STREAMS, MemoryRules, SPARSE_WEIGHTS, Tactic, Target, flow::SLICES, offer_feature,
    sm_number, source_feature,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

const KNOWN: &str = include_str!("devices.toml");

/// Alignment of tensors: that of the driver's allocations, and enough for every vector load.
const ALIGNMENT: u64 = 256;

/// The number that says how many multiprocessors there are.
const SM_COUNT: &str = "sm_count";

/// Libraries of the vendor that offer tactics. The names of their tactics begin with that of the library and a dot.
pub const LIBRARIES: [&str; 2] = ["cublaslt", "cudnn"];

/// The library that runs a tactic; none of the backend's own kernels.
pub fn library(tactic: &Tactic) -> Option<&'static str> {
    let of = |name: &&str| tactic.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
    LIBRARIES.into_iter().find(of)
}

/// A device by its numbers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Numbers {
    device: String,
    arch: String,
    sm_count: u64,
    /// MHz.
    clock: u64,
    /// GB/s.
    bandwidth: u64,
    /// MiB.
    memory: u64,
    /// KiB of one block.
    shared: u64,
    /// KiB.
    l2: u64,
}

impl Numbers {
    fn target(self, driver: String) -> Target {
        let mut features = vec![
            "f16",
            "i64",
            "timestamps",
            "bf16",
            "tf32",
            "weights_along_depth",
            "patches_as_rows",
            "aligned_rows",
            SPARSE_WEIGHTS,
            SLICES,
            DEVICE_FLOW,
        ];
        if capability(&self.arch) >= 89 {
            features.push("f8");
        }
        if self.arch == "sm_90a" {
            features.extend(["gated_products", "halves_along_depth"]);
        }
        let mut features: Vec<String> = features.into_iter().map(str::to_owned).collect();
        features.extend(LIBRARIES.map(offer_feature));
        features.sort_unstable();
        let numbers = BTreeMap::from([
            ("bandwidth_gbs".to_owned(), self.bandwidth),
            ("clock_mhz".to_owned(), self.clock),
            ("l2_bytes".to_owned(), self.l2 << 10),
            ("shared_memory".to_owned(), self.shared << 10),
            (SM_COUNT.to_owned(), self.sm_count),
            ("workgroup_threads".to_owned(), 1024),
        ]);
        Target {
            backend: "cuda".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            arch: self.arch,
            device: self.device,
            driver,
            features,
            numbers,
            memory: MemoryRules {
                alignment: ALIGNMENT,
                max_binding: u64::MAX,
                in_place: true,
                total: self.memory << 20,
            },
            uuid: String::new(),
            traits: BTreeMap::from([("parallel_streams".to_owned(), (MAX_STREAMS - 1) as u64)]),
        }
    }
}

/// The compute capability of an architecture: 90 of "sm_90a"; 0 if it is none.
pub fn capability(arch: &str) -> u32 {
    sm_number(arch).unwrap_or(0)
}

/// The architecture that kernels are compiled for: Hopper's with its own instructions.
fn architecture(major: u64, minor: u64) -> String {
    let own = if (major, minor) == (9, 0) { "a" } else { "" };
    format!("sm_{}{own}", major * 10 + minor)
}

/// Targets of all devices here, by ordinal. Devices before sm_80 are left out.
pub fn found() -> Result<Vec<(usize, Target)>, BackendError> {
    let mut out = Vec::new();
    use Attribute::*;
    for (ordinal, d) in devices()?.into_iter().enumerate() {
        let one = || -> Result<Target, DriverError> {
            let a = |what| d.attribute(what);
            let version = d.driver_version()?;
            let numbers = Numbers {
                device: d.name()?,
                arch: architecture(
                    a(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                    a(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
                ),
                sm_count: a(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
                clock: a(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)? / 1000,
                // Two transfers a clock.
                bandwidth: a(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?
                    * 2
                    * (a(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)? / 8)
                    / 1_000_000,
                memory: d.memory()? >> 20,
                shared: a(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? >> 10,
                l2: a(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? >> 10,
            };
            let traits = BTreeMap::from([
                (
                    "shared_memory_per_sm".to_owned(),
                    a(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
                ),
                ("texture_alignment".to_owned(), a(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)?),
                ("integrated".to_owned(), a(CU_DEVICE_ATTRIBUTE_INTEGRATED)?),
            ]);
            let mut target = numbers.target(format!("CUDA {}.{}", version / 1000, version % 1000 / 10));
            target.traits.extend(traits);
            Ok(Target { uuid: d.uuid()?, ..target })
        };
        let t = one()?;
        if capability(&t.arch) >= 80 {
            out.push((ordinal, t));
        }
    }
    if out.is_empty() {
        return Err(BackendError::Unsupported("the NVIDIA driver finds no device of sm_80 or later".into()));
    }
    Ok(out)
}

/// Whether this device is the one that a target describes, or describes for later architectures as well. The target may leave out
/// features and multiprocessors, which then go unused.
pub fn permits(device: &Target, target: &Target) -> bool {
    let later = device.ampere_plus().filter(|later| later.arch == target.arch);
    let device = later.as_ref().unwrap_or(device);
    let mut fewer = Target { features: target.features.clone(), ..device.clone() };
    if let (Some(part), Some(all)) = (target.numbers.get(SM_COUNT), fewer.numbers.get_mut(SM_COUNT)) {
        *all = (*all).min(*part);
    }
    let has = |f: &String| device.has(f) || LIBRARIES.iter().any(|n| *f == source_feature(n));
    target.features.iter().all(has) && target.is_device(&fewer)
}

/// Opens the device here that a target describes, with its own target.
pub fn opened(target: &Target) -> Result<(Arc<Gpu>, Target), BackendError> {
    let found = found()?.into_iter().find(|(_, t)| permits(t, target));
    let here = match found {
        Some((ordinal, own)) => devices()?.into_iter().nth(ordinal).map(|d| (d, own)),
        None => None,
    };
    let (device, own) = here.ok_or_else(|| {
        BackendError::Incompatible(format!(
            "no device here is the target {} ({})",
            target.device, target.arch
        ))
    })?;
    let mut own = own;
    // A target with fewer multiprocessors is a part of the device.
    if let (Some(part), Some(all)) = (target.numbers.get(SM_COUNT), own.numbers.get_mut(SM_COUNT)) {
        *all = (*all).min(*part);
    }
    Ok((device.open()?, own))
}

/// Names of the devices that are known without a driver, sorted.
pub fn names() -> Result<Vec<String>, BackendError> {
    Ok(table()?.into_keys().collect())
}

/// The target of a known device.
pub fn known(name: &str) -> Result<Target, BackendError> {
    let mut all = table()?;
    match all.remove(name) {
        Some(n) => Ok(n.target(String::new())),
        None => Err(BackendError::InvalidArgument(format!(
            "no GPU called \"{name}\" is known; there are {}",
            all.into_keys().collect::<Vec<_>>().join(", ")
        ))),
    }
}

fn table() -> Result<BTreeMap<String, Numbers>, BackendError> {
    toml::from_str(KNOWN).map_err(|e| BackendError::Internal(format!("devices.toml: {e}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn known_devices_have_an_architecture_that_kernels_are_for() {
        for n in names().unwrap() {
            let t = known(&n).unwrap();
            assert!(capability(&t.arch) >= 80, "{n}: {}", t.arch);
            assert_eq!(t.has("f8"), capability(&t.arch) >= 89, "{n}");
            assert!(t.memory.total > 16 << 30, "{n}");
        }
        assert!(matches!(known("voodoo2"), Err(BackendError::InvalidArgument(m)) if m.contains("h200")));
    }

    /// Code for Ampere and later asks for nothing that an A100 lacks, whatever device it was built on.
    #[test]
    fn targets_for_ampere_and_later_have_features_of_all() {
        let least = known("a100").unwrap();
        for n in names().unwrap() {
            let later = known(&n).unwrap().ampere_plus().unwrap();
            let more: Vec<&String> = later.features.iter().filter(|f| !least.has(f)).collect();
            assert!(more.is_empty(), "{n}: {more:?}");
        }
    }

    #[test]
    fn a_target_may_leave_out_features() {
        let device = known("h200").unwrap();
        let mut fewer = device.clone();
        fewer.features.retain(|f| f != "tf32");
        assert!(permits(&device, &fewer) && permits(&device, &device));
        assert!(!permits(&fewer, &device));
        assert!(!permits(&known("h100").unwrap(), &fewer));
        let (one, other) = (
            || Target { uuid: "GPU-1".into(), ..device.clone() },
            Target { uuid: "GPU-2".into(), ..device.clone() },
        );
        let later = device.ampere_plus().unwrap();
        assert!(
            permits(&device, &later) && !permits(&known("a100").unwrap(), &later),
            "another device by name"
        );
        assert!(permits(&one(), &one()) && permits(&one(), &fewer) && !permits(&one(), &other));
    }

    #[test]
    fn architectures_are_named_as_the_compiler_does() {
        assert_eq!((architecture(9, 0), architecture(8, 6)), ("sm_90a".into(), "sm_86".into()));
        assert_eq!((capability("sm_90a"), capability("sm_120"), capability("gfx9")), (90, 120, 0));
    }
}
