//! Tactics.

use super::{Written, decode, encode, target::read_named};
use crate::{BackendError, Tactic};
use kiln_ir::wire::{fields, need, refuse};
use minicbor::decode::{Decoder, Error};
use minicbor::encode::{Encoder, Write};

impl Tactic {
    /// The tactic as CBOR.
    pub fn to_cbor(&self) -> Result<Vec<u8>, BackendError> {
        encode(|e| write(e, self))
    }

    /// The tactic of a payload.
    pub fn from_cbor(bytes: &[u8]) -> Result<Tactic, BackendError> {
        decode(bytes, "a tactic", read)
    }
}

pub(super) fn write<W: Write>(e: &mut Encoder<W>, t: &Tactic) -> Written<W> {
    let Tactic { name, params, workspace, deterministic, source_hash, estimate_ns, leaves_unread, note } = t;
    let optional = [
        !params.is_empty(),
        *workspace != 0,
        !deterministic,
        !source_hash.is_empty(),
        estimate_ns.is_some(),
        *leaves_unread,
        !note.is_empty(),
    ];
    e.map(1 + optional.iter().filter(|x| **x).count() as u64)?.u8(0)?.str(name)?;
    if optional[0] {
        e.u8(1)?.map(params.len() as u64)?;
        params.iter().try_for_each(|(k, v)| e.str(k)?.i64(*v)?.ok())?;
    }
    if optional[1] {
        e.u8(2)?.u64(*workspace)?;
    }
    if optional[2] {
        e.u8(3)?.bool(false)?;
    }
    if optional[3] {
        e.u8(4)?.str(source_hash)?;
    }
    if let Some(ns) = estimate_ns {
        e.u8(5)?.f64(*ns)?;
    }
    if *leaves_unread {
        e.u8(6)?.bool(true)?;
    }
    match note.is_empty() {
        true => Ok(()),
        false => e.u8(7)?.str(note)?.ok(),
    }
}

pub(super) fn read(d: &mut Decoder<'_>) -> Result<Tactic, Error> {
    let mut name: Option<String> = None;
    let mut t = Tactic::plain("");
    fields(d, "a tactic", |d, key| {
        match key {
            0 => name = Some(d.str()?.to_owned()),
            1 => t.params = read_named(d, Decoder::i64)?,
            2 => t.workspace = d.u64()?,
            3 => t.deterministic = d.bool()?,
            4 => t.source_hash = d.str()?.to_owned(),
            5 => t.estimate_ns = Some(d.f64()?),
            6 => t.leaves_unread = d.bool()?,
            7 => t.note = d.str()?.to_owned(),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if let Some(ns) = t.estimate_ns.filter(|x| !x.is_finite() || *x < 0.0) {
        return Err(refuse(format!("an estimate of {ns} ns; wanted a finite time from 0 on")));
    }
    Ok(Tactic { name: need(name, "field 0 (name) of a tactic")?, ..t })
}
