//! The CBOR form of what crosses the C ABI and is stored in plans and caches, beside graphs, which are `kiln_ir::wire`'s.
//!
//! The conventions are those of `kiln_ir::wire`: maps with integer keys, canonical bytes, unknown fields skipped,
//! anything else that is unknown or missing refused by name. `engine/abi/PAYLOADS.md` documents every field. Structures derive
//! their form; the module `field` has what derived code leaves open.

mod blobs;
mod program;
mod shapes;
mod stores;
mod views;

pub use blobs::BlobList;
pub use views::TensorViews;

use crate::{BackendError, HostStep, Region, StepTime, Tactic, Target};
use kiln_ir::wire::{WeightSink, WeightSource, check_keys};
use minicbor::decode::{Decode, Decoder};
use minicbor::encode::Encode;
use stores::{Reading, Writing};

/// Tactics as an array.
pub fn tactics_to_cbor(tactics: &[Tactic]) -> Result<Vec<u8>, BackendError> {
    encode(tactics, &mut ())
}

/// Tactics out of an array.
pub fn tactics_from_cbor(bytes: &[u8]) -> Result<Vec<Tactic>, BackendError> {
    decode(bytes, "tactics", &mut ())
}

/// Targets as an array.
pub fn targets_to_cbor(targets: &[Target]) -> Result<Vec<u8>, BackendError> {
    encode(targets, &mut ())
}

/// Targets out of an array.
pub fn targets_from_cbor(bytes: &[u8]) -> Result<Vec<Target>, BackendError> {
    decode(bytes, "targets", &mut ())
}

/// Times of steps as an array.
pub fn step_times_to_cbor(times: &[StepTime]) -> Result<Vec<u8>, BackendError> {
    encode(times, &mut ())
}

/// Times of steps out of an array.
pub fn step_times_from_cbor(bytes: &[u8]) -> Result<Vec<StepTime>, BackendError> {
    decode(bytes, "times of steps", &mut ())
}

/// Steps that need the host as an array.
pub fn host_steps_to_cbor(steps: &[HostStep]) -> Result<Vec<u8>, BackendError> {
    encode(steps, &mut ())
}

/// Steps that need the host out of an array.
pub fn host_steps_from_cbor(bytes: &[u8]) -> Result<Vec<HostStep>, BackendError> {
    decode(bytes, "steps that need the host", &mut ())
}

/// Samples of a timing as an array of floats.
pub fn samples_to_cbor(ns: &[f64]) -> Result<Vec<u8>, BackendError> {
    encode(ns, &mut ())
}

/// Samples of a timing; refused unless each is finite and not negative.
pub fn samples_from_cbor(bytes: &[u8]) -> Result<Vec<f64>, BackendError> {
    let ns: Vec<f64> = decode(bytes, "samples", &mut ())?;
    match ns.iter().position(|x| !x.is_finite() || *x < 0.0) {
        Some(i) => {
            Err(BackendError::Internal(format!("sample {i} is {} ns; wanted a finite time from 0 on", ns[i])))
        }
        None => Ok(ns),
    }
}

impl Target {
    /// The target as CBOR.
    pub fn to_cbor(&self) -> Result<Vec<u8>, BackendError> {
        encode(self, &mut ())
    }

    /// The target of a payload.
    pub fn from_cbor(bytes: &[u8]) -> Result<Target, BackendError> {
        decode(bytes, "a target", &mut ())
    }
}

impl Tactic {
    /// The tactic as CBOR.
    pub fn to_cbor(&self) -> Result<Vec<u8>, BackendError> {
        encode(self, &mut ())
    }

    /// The tactic of a payload.
    pub fn from_cbor(bytes: &[u8]) -> Result<Tactic, BackendError> {
        decode(bytes, "a tactic", &mut ())
    }
}

impl Region {
    /// The region as CBOR; large tensors go to `sink`.
    pub fn to_cbor(&self, sink: &mut dyn WeightSink) -> Result<Vec<u8>, BackendError> {
        encode(self, &mut Writing::new(sink, &mut BlobList::default()))
    }

    /// The region of a payload.
    pub fn from_cbor(bytes: &[u8], source: &dyn WeightSource) -> Result<Region, BackendError> {
        let region: Region = decode(bytes, "a region", &mut Reading::new(source, &BlobList::default()))?;
        let wanted = (region.graph.inputs.len(), region.graph.outputs.len());
        let found = (region.inputs.len(), region.outputs.len());
        if found != wanted {
            return Err(BackendError::Incompatible(format!(
                "payload of a region: {} inputs and {} outputs, but {} and {} values outside",
                wanted.0, wanted.1, found.0, found.1
            )));
        }
        Ok(region)
    }
}

/// Bytes of one payload.
fn encode<C, T: Encode<C> + ?Sized>(x: &T, ctx: &mut C) -> Result<Vec<u8>, BackendError> {
    minicbor::to_vec_with(x, ctx).map_err(|e| BackendError::Internal(format!("payload: {e}")))
}

/// Reads one payload, which must end where its bytes end.
fn decode<'b, C, T: Decode<'b, C>>(bytes: &'b [u8], what: &str, ctx: &mut C) -> Result<T, BackendError> {
    let refused = |why: String| BackendError::Incompatible(format!("payload of {what}: {why}"));
    check_keys(bytes).map_err(|e| refused(e.to_string()))?;
    let mut d = Decoder::new(bytes);
    let x = d.decode_with(ctx).map_err(|e| refused(e.to_string()))?;
    match bytes.len() - d.position() {
        0 => Ok(x),
        n => Err(refused(format!("{n} bytes follow its end"))),
    }
}

#[cfg(test)]
mod tests;
