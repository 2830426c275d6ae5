//! The CBOR form of messages that cross the C ABI or are stored in plans and caches. Graphs are
//! `kiln_ir::wire`'s.
//!
//! The conventions are those of `kiln_ir::wire`: maps with integer keys, canonical bytes, unknown fields skipped,
//! anything else that is unknown or missing refused by name. `engine/abi/PAYLOADS.md` documents every field.

mod assisted;
mod blobs;
mod program;
mod region;
mod shapes;
mod tactic;
mod target;
mod times;
mod views;

pub use assisted::{host_steps_from_cbor, host_steps_to_cbor};
pub use blobs::BlobList;
pub use times::{step_times_from_cbor, step_times_to_cbor};
pub use views::TensorViews;

use crate::{BackendError, Tactic, Target};
use kiln_ir::wire::list;
use minicbor::decode::{Decoder, Error};
use minicbor::encode::{Encoder, Error as EncodeError, Write};
use std::convert::Infallible;

type Written<W> = Result<(), EncodeError<<W as Write>::Error>>;

/// Tactics as an array.
pub fn tactics_to_cbor(tactics: &[Tactic]) -> Result<Vec<u8>, BackendError> {
    encode(|e| array(e, tactics, tactic::write))
}

/// Tactics out of an array.
pub fn tactics_from_cbor(bytes: &[u8]) -> Result<Vec<Tactic>, BackendError> {
    decode(bytes, "tactics", |d| list(d, tactic::read))
}

/// Targets as an array.
pub fn targets_to_cbor(targets: &[Target]) -> Result<Vec<u8>, BackendError> {
    encode(|e| array(e, targets, target::write))
}

/// Targets out of an array.
pub fn targets_from_cbor(bytes: &[u8]) -> Result<Vec<Target>, BackendError> {
    decode(bytes, "targets", |d| list(d, target::read))
}

/// Samples of a timing as an array of floats.
pub fn samples_to_cbor(ns: &[f64]) -> Result<Vec<u8>, BackendError> {
    encode(|e| array(e, ns, |e, &x| e.f64(x)?.ok()))
}

/// Samples of a timing; refused unless each is finite and not negative.
pub fn samples_from_cbor(bytes: &[u8]) -> Result<Vec<f64>, BackendError> {
    let ns = decode(bytes, "samples", |d| list(d, Decoder::f64))?;
    match ns.iter().position(|x| !x.is_finite() || *x < 0.0) {
        Some(i) => {
            Err(BackendError::Internal(format!("sample {i} is {} ns; wanted a finite time from 0 on", ns[i])))
        }
        None => Ok(ns),
    }
}

fn array<W: Write, T>(
    e: &mut Encoder<W>,
    items: &[T],
    mut write: impl FnMut(&mut Encoder<W>, &T) -> Written<W>,
) -> Written<W> {
    e.array(items.len() as u64)?;
    items.iter().try_for_each(|x| write(e, x))
}

fn size(d: &mut Decoder<'_>) -> Result<usize, Error> {
    usize::try_from(d.u64()?).map_err(kiln_ir::wire::refuse)
}

/// Bytes of one payload.
fn encode(
    f: impl FnOnce(&mut Encoder<Vec<u8>>) -> Result<(), EncodeError<Infallible>>,
) -> Result<Vec<u8>, BackendError> {
    let mut e = Encoder::new(Vec::new());
    f(&mut e).map_err(|e| BackendError::Internal(format!("payload: {e}")))?;
    Ok(e.into_writer())
}

/// Reads one payload, which must end where its bytes end.
fn decode<'b, T>(
    bytes: &'b [u8],
    what: &str,
    f: impl FnOnce(&mut Decoder<'b>) -> Result<T, Error>,
) -> Result<T, BackendError> {
    let mut d = Decoder::new(bytes);
    let x = f(&mut d).map_err(|e| BackendError::Incompatible(format!("payload of {what}: {e}")))?;
    match bytes.len() - d.position() {
        0 => Ok(x),
        n => Err(BackendError::Incompatible(format!("payload of {what}: {n} bytes follow its end"))),
    }
}

#[cfg(test)]
mod tests;
