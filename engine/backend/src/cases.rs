//! Cases of a program, and kernels for some of them.

use crate::field;
use crate::stores::Stores;
use crate::tactic::Tactic;
use kiln_ir::Bytes;
use minicbor::{Decode, Encode};

/// Runs of one profile whose inputs have up to so many elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Case {
    /// Number of the profile.
    #[n(0)]
    pub profile: u32,
    /// The most elements of all inputs together; none: any number.
    #[n(1)]
    pub elements: Option<u64>,
}

impl Case {
    /// The case in words.
    pub fn describe(&self) -> String {
        match self.elements {
            Some(n) => format!("profile {} up to {n} elements", self.profile),
            None => format!("profile {}", self.profile),
        }
    }
}

/// A kernel of a step for some cases of the program, in the place of the step's own.
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(map, context_bound = "Stores")]
pub struct Alternative {
    /// The tactic.
    #[n(0)]
    pub tactic: Tactic,
    /// Compiled form of the step by this tactic.
    #[cbor(n(1), with = "field::blob", has_nil)]
    pub blob: Bytes,
    /// Positions of its cases in [`Program::cases`].
    #[n(2)]
    pub cases: Vec<u32>,
}
