//! Header of a plan, readable without loading it.

use crate::io::{IoMode, IoTensor};
use crate::limit::DeviceLimit;
use crate::profile::Profile;
use kiln_backend::Target;
use minicbor::{Decode, Encode};
use std::ops::Not;

/// Detail in which a plan describes its layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
#[repr(u8)]
pub enum Verbosity {
    /// No layers: they are numbers.
    #[n(0)]
    None = 0,
    /// Names of layers.
    #[default]
    #[n(1)]
    Names = 1,
    /// Names, operators, tactics, types, shapes and memory.
    #[n(2)]
    Detailed = 2,
}

/// A backend or plug-in library that a plan needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(map)]
pub struct Requirement {
    /// Name of the plug-in.
    #[n(0)]
    pub name: String,
    /// The version that the plan was built with.
    #[n(1)]
    pub version: String,
    /// BLAKE3 hash of the library, in hexadecimal; empty where it is not known.
    #[cbor(n(2), skip_if = "String::is_empty")]
    pub digest: String,
    /// Layers of the plan that it defines.
    #[cbor(n(3), skip_if = "Vec::is_empty")]
    pub layers: Vec<String>,
    /// Whether runs call it; else its layers are expressions and compiled kernels, which the plan holds.
    #[cbor(n(4), skip_if = "Not::not")]
    pub called: bool,
    /// Bytes of the library, if the plan holds it; else 0.
    #[cbor(n(5), skip_if = "is_zero")]
    pub embedded: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A weight that a stripped plan leaves out: a refit supplies it before the first run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(map)]
pub struct AbsentWeight {
    /// Name of the weight.
    #[n(0)]
    pub name: String,
    /// BLAKE3 of the bytes that it had when the plan was built.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub hash: [u8; 32],
}

/// Header of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanHeader {
    /// The network's name.
    pub name: String,
    /// The device that it was built for.
    pub target: Target,
    /// Inputs, then outputs.
    pub io: Vec<IoTensor>,
    /// The shapes that it was built for.
    pub profiles: Vec<Profile>,
    /// Plug-in libraries that its layers come from, by name.
    pub plugins: Vec<Requirement>,
    /// Detail in which the plan describes its layers.
    pub verbosity: Verbosity,
    /// Whether named weights may be replaced.
    pub refittable: bool,
    /// Whether they may be replaced by the same elements only: contents may have decided the structure.
    pub identical: bool,
    /// Whether other versions of the backend run it: it holds all launches of its kernels.
    pub version_compatible: bool,
    /// Weights that the plan leaves out, by name; empty unless it is stripped.
    pub absent: Vec<AbsentWeight>,
    /// The part of the device that it was built for.
    pub limit: DeviceLimit,
    /// Bytes of activations that one context wants.
    pub context_memory: u64,
}

impl PlanHeader {
    /// Inputs in order.
    pub fn inputs(&self) -> impl Iterator<Item = &IoTensor> {
        self.io.iter().filter(|t| t.mode == IoMode::Input)
    }

    /// Outputs in order.
    pub fn outputs(&self) -> impl Iterator<Item = &IoTensor> {
        self.io.iter().filter(|t| t.mode == IoMode::Output)
    }
}
