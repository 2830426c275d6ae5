//! Steps at which a run waits for the host.

use super::times::{inside, read_inside};
use super::{Written, array, decode, encode, size};
use crate::{BackendError, HostStep};
use kiln_ir::wire::{fields, list, need};
use minicbor::decode::{Decoder, Error};
use minicbor::encode::{Encoder, Write};

/// Steps that need the host as an array.
pub fn host_steps_to_cbor(steps: &[HostStep]) -> Result<Vec<u8>, BackendError> {
    encode(|e| array(e, steps, write))
}

fn write<W: Write>(e: &mut Encoder<W>, s: &HostStep) -> Written<W> {
    let optional = u64::from(!s.inside.is_empty()) + u64::from(!s.advice.is_empty());
    e.map(2 + optional)?.u8(0)?.u64(s.step as u64)?.u8(1)?.str(&s.why)?;
    if !s.inside.is_empty() {
        inside(e.u8(2)?, &s.inside)?;
    }
    if !s.advice.is_empty() {
        e.u8(3)?.str(&s.advice)?;
    }
    Ok(())
}

/// Steps that need the host out of an array.
pub fn host_steps_from_cbor(bytes: &[u8]) -> Result<Vec<HostStep>, BackendError> {
    decode(bytes, "steps that need the host", |d| list(d, read))
}

fn read(d: &mut Decoder<'_>) -> Result<HostStep, Error> {
    let (mut step, mut why, mut inside, mut advice) = (None, None, Vec::new(), String::new());
    fields(d, "a step that needs the host", |d, key| {
        match key {
            0 => step = Some(size(d)?),
            1 => why = Some(d.str()?.to_owned()),
            2 => inside = read_inside(d, "a step that needs the host")?,
            3 => advice = d.str()?.to_owned(),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(HostStep {
        step: need(step, "field 0 (step) of a step that needs the host")?,
        why: need(why, "field 1 (why) of a step that needs the host")?,
        inside,
        advice,
    })
}
