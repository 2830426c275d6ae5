//! Targets: what a plan is built for.

use crate::field;
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;
use std::fmt;
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
    /// Identity of the device among equal ones: the UUID of CUDA, the PCI address of other GPUs; empty where there is none. Not part
    /// of the fingerprint, and not stored in plans.
    #[cbor(n(8), skip_if = "String::is_empty")]
    pub uuid: String,
    /// Numbers that choose no kernel: "shared_memory_per_sm", "texture_alignment", "integrated" (1 or 0). Not part of the
    /// fingerprint; a difference from the device of the build is a warning.
    #[cbor(n(9), skip_if = "BTreeMap::is_empty")]
    pub traits: BTreeMap<String, u64>,
}

/// A device of a backend: by its position, best first, or by its UUID. Text is a UUID (or the first characters of one) unless it
/// is a number.
///
/// ```
/// use kiln_backend::DeviceChoice;
/// assert_eq!(DeviceChoice::from("1"), DeviceChoice::from(1));
/// assert_eq!(DeviceChoice::from("GPU-6f1b").to_string(), "GPU-6f1b");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// Position in the list of the backend's devices.
    Ordinal(usize),
    /// First characters of the UUID, enough to name one device.
    Uuid(String),
}

impl Default for DeviceChoice {
    fn default() -> DeviceChoice {
        DeviceChoice::Ordinal(0)
    }
}

impl From<usize> for DeviceChoice {
    fn from(ordinal: usize) -> DeviceChoice {
        DeviceChoice::Ordinal(ordinal)
    }
}

impl From<&str> for DeviceChoice {
    fn from(text: &str) -> DeviceChoice {
        text.parse().map_or_else(|_| DeviceChoice::Uuid(text.to_owned()), DeviceChoice::Ordinal)
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Ordinal(n) => write!(f, "{n}"),
            DeviceChoice::Uuid(text) => f.write_str(text),
        }
    }
}

impl DeviceChoice {
    /// The position of the device that it names among these; `None` if there is none, or a UUID names several.
    pub fn find(&self, devices: &[Target]) -> Option<usize> {
        match self {
            DeviceChoice::Ordinal(n) => (*n < devices.len()).then_some(*n),
            DeviceChoice::Uuid(text) => {
                let named = |t: &Target| !text.is_empty() && t.uuid.starts_with(text.as_str());
                let mut found = devices.iter().enumerate().filter(|(_, t)| named(t)).map(|(i, _)| i);
                found.next().filter(|_| found.next().is_none())
            }
        }
    }
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

/// The compute capability from which on code is made for all later devices.
const AMPERE: u32 = 80;
/// Features of NVIDIA GPUs that not all from Ampere on have.
const AFTER_AMPERE: [&str; 3] = ["f8", "gated_products", "halves_along_depth"];
/// Shared memory of a block on the devices of sm_86, sm_89 and sm_120, in bytes: the least from sm_80 on.
const AMPERE_SHARED_MEMORY: u64 = 99 << 10;

/// The compute capability of an NVIDIA architecture: 90 of "sm_90a"; `None` of others.
pub fn sm_number(arch: &str) -> Option<u32> {
    let digits = arch.strip_prefix("sm_")?;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
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

    /// The target of code for every NVIDIA GPU from Ampere (sm_80) on, as far as this one goes; `None` for other devices. Its
    /// architecture is "sm_80+", it has no features that later architectures added, and the least shared memory of all of them.
    pub fn ampere_plus(&self) -> Option<Target> {
        sm_number(&self.arch).filter(|n| *n >= AMPERE)?;
        let mut target = Target { arch: format!("sm_{AMPERE}+"), ..self.clone() };
        target.features.retain(|f| !AFTER_AMPERE.contains(&f.as_str()));
        if let Some(bytes) = target.numbers.get_mut("shared_memory") {
            *bytes = (*bytes).min(AMPERE_SHARED_MEMORY);
        }
        Some(target)
    }

    /// Whether this device runs code of an architecture: its own, or "sm_80+" of it and later ones.
    pub fn runs_code_for(&self, arch: &str) -> bool {
        let least = arch.strip_suffix('+').and_then(sm_number);
        self.arch == arch || least.is_some_and(|least| sm_number(&self.arch).is_some_and(|own| own >= least))
    }

    /// The target without the identity of one device, as plans store it.
    pub fn of_any_device(self) -> Target {
        Target { uuid: String::new(), ..self }
    }

    /// Whether a device is the one that this target describes: an equal one, or the very one if the target names it.
    pub fn is_device(&self, device: &Target) -> bool {
        self.fingerprint() == device.fingerprint() && (self.uuid.is_empty() || self.uuid == device.uuid)
    }

    /// Whether the target has this feature.
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|f| f == feature)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn device(uuid: &str) -> Target {
        Target {
            backend: "test".into(),
            version: "1".into(),
            arch: "a".into(),
            device: "d".into(),
            driver: String::new(),
            features: Vec::new(),
            numbers: BTreeMap::new(),
            memory: MemoryRules { alignment: 16, max_binding: 1 << 20, in_place: true, total: 0 },
            uuid: uuid.into(),
            traits: BTreeMap::new(),
        }
    }

    #[test]
    fn code_for_ampere_and_later_runs_on_later_devices() {
        let gpu = |arch: &str, shared: u64| Target {
            arch: arch.into(),
            features: vec!["bf16".into(), "f8".into()],
            numbers: BTreeMap::from([("shared_memory".into(), shared)]),
            ..device("")
        };
        let made = gpu("sm_90a", 227 << 10).ampere_plus().unwrap();
        assert_eq!((made.arch.as_str(), made.numbers["shared_memory"]), ("sm_80+", 99 << 10));
        assert_eq!(made.features, ["bf16"]);
        for (arch, runs) in [("sm_80", true), ("sm_120", true), ("sm_75", false), ("x86_64", false)] {
            assert_eq!(gpu(arch, 0).runs_code_for(&made.arch), runs, "{arch}");
            assert_eq!(gpu(arch, 0).ampere_plus().is_some(), runs, "{arch}");
        }
        assert!(gpu("sm_90a", 0).runs_code_for("sm_90a") && !gpu("sm_90a", 0).runs_code_for("sm_90"));
    }

    #[test]
    fn equal_devices_are_told_apart_by_their_uuid() {
        let both = [device("GPU-aa11"), device("GPU-aa22")];
        assert_eq!(both[0].fingerprint(), both[1].fingerprint());
        let find = |text: &str| DeviceChoice::from(text).find(&both);
        assert_eq!((find("1"), find("2"), find("GPU-aa2"), find("GPU-aa")), (Some(1), None, Some(1), None));
        assert_eq!((find(""), find("GPU-b"), DeviceChoice::default().find(&both)), (None, None, Some(0)));
        let any = both[0].clone().of_any_device();
        assert!(any.is_device(&both[0]) && any.is_device(&both[1]));
        assert!(both[1].is_device(&both[1]) && !both[1].is_device(&both[0]));
        let bytes = minicbor::to_vec(&both[1]).unwrap();
        assert_eq!(minicbor::decode::<Target>(&bytes).unwrap(), both[1]);
    }
}
