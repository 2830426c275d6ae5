//! Targets.

use super::{Written, array, decode, encode};
use crate::{BackendError, MemoryRules, Target};
use kiln_ir::wire::{fields, list, need, refuse};
use minicbor::decode::{Decoder, Error};
use minicbor::encode::{Encoder, Write};
use std::collections::BTreeMap;

impl Target {
    /// The target as CBOR.
    pub fn to_cbor(&self) -> Result<Vec<u8>, BackendError> {
        encode(|e| write(e, self))
    }

    /// The target of a payload.
    pub fn from_cbor(bytes: &[u8]) -> Result<Target, BackendError> {
        decode(bytes, "a target", read)
    }
}

pub(super) fn write<W: Write>(e: &mut Encoder<W>, t: &Target) -> Written<W> {
    let Target { backend, version, arch, device, driver, features, numbers, memory } = t;
    let optional = [!driver.is_empty(), !features.is_empty(), !numbers.is_empty()];
    e.map(5 + optional.iter().filter(|x| **x).count() as u64)?;
    for (key, text) in [backend, version, arch, device].into_iter().enumerate() {
        e.u8(key as u8)?.str(text)?;
    }
    if optional[0] {
        e.u8(4)?.str(driver)?;
    }
    if optional[1] {
        array(e.u8(5)?, features, |e, f| e.str(f)?.ok())?;
    }
    if optional[2] {
        e.u8(6)?.map(numbers.len() as u64)?;
        numbers.iter().try_for_each(|(k, v)| e.str(k)?.u64(*v)?.ok())?;
    }
    write_rules(e.u8(7)?, memory)
}

fn write_rules<W: Write>(e: &mut Encoder<W>, m: &MemoryRules) -> Written<W> {
    let MemoryRules { alignment, max_binding, in_place, total } = *m;
    e.map(2 + u64::from(in_place) + u64::from(total != 0))?.u8(0)?.u64(alignment)?.u8(1)?.u64(max_binding)?;
    if in_place {
        e.u8(2)?.bool(true)?;
    }
    if total != 0 {
        e.u8(3)?.u64(total)?;
    }
    Ok(())
}

pub(super) fn read(d: &mut Decoder<'_>) -> Result<Target, Error> {
    let mut texts: [Option<String>; 5] = Default::default();
    let (mut features, mut numbers, mut memory) = (Vec::new(), BTreeMap::new(), None);
    fields(d, "a target", |d, key| {
        match key {
            0..=4 => texts[key as usize] = Some(d.str()?.to_owned()),
            5 => features = list(d, |d| Ok(d.str()?.to_owned()))?,
            6 => numbers = read_named(d, Decoder::u64)?,
            7 => memory = Some(read_rules(d)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    features.sort();
    let [backend, version, arch, device, driver] = texts;
    Ok(Target {
        backend: need(backend, "field 0 (backend) of a target")?,
        version: need(version, "field 1 (version) of a target")?,
        arch: need(arch, "field 2 (arch) of a target")?,
        device: need(device, "field 3 (device) of a target")?,
        driver: driver.unwrap_or_default(),
        features,
        numbers,
        memory: need(memory, "field 7 (memory) of a target")?,
    })
}

fn read_rules(d: &mut Decoder<'_>) -> Result<MemoryRules, Error> {
    let (mut alignment, mut max_binding, mut in_place, mut total) = (None, None, false, 0);
    fields(d, "memory rules", |d, key| {
        match key {
            0 => alignment = Some(d.u64()?),
            1 => max_binding = Some(d.u64()?),
            2 => in_place = d.bool()?,
            3 => total = d.u64()?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let alignment: u64 = need(alignment, "field 0 (alignment) of memory rules")?;
    if !alignment.is_power_of_two() {
        return Err(refuse(format!("an alignment of {alignment} bytes is no power of two")));
    }
    let max_binding = need(max_binding, "field 1 (largest binding) of memory rules")?;
    Ok(MemoryRules { alignment, max_binding, in_place, total })
}

/// A map from names; a name given twice is refused.
pub(super) fn read_named<'b, T>(
    d: &mut Decoder<'b>,
    mut f: impl FnMut(&mut Decoder<'b>) -> Result<T, Error>,
) -> Result<BTreeMap<String, T>, Error> {
    let mut out = BTreeMap::new();
    for _ in 0..d.map()?.ok_or_else(|| refuse("a map from names has a definite length"))? {
        let name = d.str()?;
        if out.insert(name.to_owned(), f(d)?).is_some() {
            return Err(refuse(format!("\"{name}\" is given twice")));
        }
    }
    Ok(out)
}
