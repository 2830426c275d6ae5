//! Times of steps.

use super::{Written, array, decode, encode, size};
use crate::{BackendError, StepTime};
use kiln_ir::wire::{fields, list, need};
use minicbor::decode::{Decoder, Error};
use minicbor::encode::{Encoder, Write};

/// Times of steps as an array.
pub fn step_times_to_cbor(times: &[StepTime]) -> Result<Vec<u8>, BackendError> {
    encode(|e| array(e, times, write))
}

fn write<W: Write>(e: &mut Encoder<W>, t: &StepTime) -> Written<W> {
    let optional = u64::from(!t.inside.is_empty()) + u64::from(t.runs != 1);
    e.map(2 + optional)?.u8(0)?.u64(t.step as u64)?.u8(1)?.f64(t.ns)?;
    if !t.inside.is_empty() {
        inside(e.u8(2)?, &t.inside)?;
    }
    if t.runs != 1 {
        e.u8(3)?.u64(t.runs)?;
    }
    Ok(())
}

/// Path of a step inside of another.
pub(super) fn inside<W: Write>(e: &mut Encoder<W>, path: &[(usize, usize)]) -> Written<W> {
    e.array(path.len() as u64 * 2)?;
    path.iter().try_for_each(|&(body, step)| e.u64(body as u64)?.u64(step as u64)?.ok())
}

pub(super) fn read_inside(d: &mut Decoder<'_>, of: &str) -> Result<Vec<(usize, usize)>, Error> {
    let numbers = list(d, size)?;
    match numbers.as_chunks::<2>() {
        (pairs, []) => Ok(pairs.iter().map(|&[body, step]| (body, step)).collect()),
        _ => Err(kiln_ir::wire::refuse(format!("field 2 (inside) of {of} is no list of pairs"))),
    }
}

/// Times of steps out of an array.
pub fn step_times_from_cbor(bytes: &[u8]) -> Result<Vec<StepTime>, BackendError> {
    decode(bytes, "times of steps", |d| list(d, read))
}

fn read(d: &mut Decoder<'_>) -> Result<StepTime, Error> {
    let (mut step, mut ns, mut inside, mut runs) = (None, None, Vec::new(), 1);
    fields(d, "a time of a step", |d, key| {
        match key {
            0 => step = Some(size(d)?),
            1 => ns = Some(d.f64()?),
            2 => inside = read_inside(d, "a time of a step")?,
            3 => runs = d.u64()?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(StepTime {
        step: need(step, "field 0 (step) of a time of a step")?,
        inside,
        runs,
        ns: need(ns, "field 1 (ns) of a time of a step")?,
    })
}
