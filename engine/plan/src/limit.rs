//! Limits of a device that a plan keeps to: it is built for a part of the device.

use kiln_backend::Target;
use minicbor::{Decode, Encode};
use std::fmt;

/// The number of a target that says how many multiprocessors it has.
pub const SM_COUNT: &str = "sm_count";

/// The part of a device that a plan is built for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct DeviceLimit {
    /// Multiprocessors; none: all of them.
    #[n(0)]
    pub sms: Option<u64>,
    /// Bytes of memory for weights and the activations of one context; none: all of it.
    #[n(1)]
    pub memory: Option<u64>,
}

impl DeviceLimit {
    /// Whether the plan is for the whole device.
    pub fn is_none(&self) -> bool {
        *self == DeviceLimit::default()
    }

    /// Makes a target of its device smaller; numbers that it does not have stay unknown.
    pub fn apply(&self, target: &mut Target) {
        if let (Some(sms), Some(count)) = (self.sms, target.numbers.get_mut(SM_COUNT)) {
            *count = (*count).min(sms);
        }
        if let Some(memory) = self.memory {
            let total = &mut target.memory.total;
            *total = if *total == 0 { memory } else { memory.min(*total) };
        }
    }
}

/// The limits as `--limit` takes them: "sms=16,memory=1073741824".
impl fmt::Display for DeviceLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [("sms", self.sms), ("memory", self.memory)];
        let parts = parts.iter().filter_map(|(name, n)| Some(format!("{name}={}", (*n)?)));
        f.write_str(&parts.collect::<Vec<_>>().join(","))
    }
}
