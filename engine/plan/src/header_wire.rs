//! The header section: a CBOR map with integer keys, in the conventions of `kiln_ir::wire`.
//!
//! | map     | fields |
//! |---------|--------|
//! | header  | 0 name: text · 1 target: bytes (its own map) · 2 tensors: bytes (a graph whose inputs they are) · 3 \[1 if output + 2 if shape input\] · 4 profiles: \[profile\] · 5 plug-ins: \[requirement\] · 6 verbosity: 0 none, 1 names, 2 detailed · 7 refittable: bool · 8 bytes of memory of a context |
//! | profile | 0 shapes: \[range\] · 1 values: \[range\] |
//! | range   | 0 input: text · 1 min · 2 opt · 3 max: \[integer\] |
//! | requirement | 0 name: text · 1 version: text |
//!
//! In the graph of tensors their names have the prefix `i` or `o`, because an output may be called as an input is.

use crate::PlanError;
use crate::header::{PlanHeader, Requirement, Verbosity};
use crate::io::{IoMode, IoTensor};
use crate::profile::{Profile, Range};
use kiln_backend::Target;
use kiln_ir::wire::{WeightList, fields, list, need, refuse};
use kiln_ir::{Fact, Graph};
use minicbor::decode::{Decoder, Error};
use minicbor::encode::{Encoder, Error as EncodeError};
use std::collections::BTreeMap;
use std::convert::Infallible;

type Writer = Encoder<Vec<u8>>;
type Written = Result<(), EncodeError<Infallible>>;

fn payload(e: impl std::fmt::Display) -> PlanError {
    PlanError::Payload { section: "header", message: e.to_string() }
}

impl PlanHeader {
    /// The section's bytes.
    pub(crate) fn to_cbor(&self) -> Result<Vec<u8>, PlanError> {
        let target = self.target.to_cbor().map_err(payload)?;
        let mut tensors = Graph::new("");
        for t in &self.io {
            tensors.add_input(&prefixed(t), Fact::of(t.ty()));
        }
        let tensors = tensors.to_cbor(&mut WeightList::default()).map_err(payload)?;
        let mut e = Encoder::new(Vec::new());
        self.write(&mut e, &target, &tensors).map_err(payload)?;
        Ok(e.into_writer())
    }

    fn write(&self, e: &mut Writer, target: &[u8], tensors: &[u8]) -> Written {
        let PlanHeader { name, target: _, io, profiles, plugins, verbosity, refittable, context_memory } =
            self;
        e.map(9)?.u8(0)?.str(name)?.u8(1)?.bytes(target)?.u8(2)?.bytes(tensors)?;
        e.u8(3)?.array(io.len() as u64)?;
        for t in io {
            e.u8(u8::from(t.mode == IoMode::Output) + 2 * u8::from(t.is_shape_input))?;
        }
        e.u8(4)?.array(profiles.len() as u64)?;
        for p in profiles {
            write_ranges(e.map(2)?.u8(0)?, &p.shapes)?;
            write_ranges(e.u8(1)?, &p.values)?;
        }
        e.u8(5)?.array(plugins.len() as u64)?;
        for r in plugins {
            e.map(2)?.u8(0)?.str(&r.name)?.u8(1)?.str(&r.version)?;
        }
        e.u8(6)?.u8(*verbosity as u8)?.u8(7)?.bool(*refittable)?.u8(8)?.u64(*context_memory)?.ok()
    }

    /// The header of a section.
    pub(crate) fn from_cbor(bytes: &[u8]) -> Result<PlanHeader, PlanError> {
        let mut d = Decoder::new(bytes);
        let header = read(&mut d).map_err(payload)?;
        match bytes.len() - d.position() {
            0 => Ok(header),
            n => Err(payload(format!("{n} bytes follow its end"))),
        }
    }
}

fn prefixed(t: &IoTensor) -> String {
    let prefix = if t.mode == IoMode::Input { "i" } else { "o" };
    format!("{prefix}{}", t.name)
}

fn write_ranges(e: &mut Writer, ranges: &BTreeMap<String, Range>) -> Written {
    e.array(ranges.len() as u64)?;
    for (name, Range { min, opt, max }) in ranges {
        e.map(4)?.u8(0)?.str(name)?;
        for (key, v) in [(1, min), (2, opt), (3, max)] {
            e.u8(key)?.array(v.len() as u64)?;
            v.iter().try_for_each(|&x| e.i64(x)?.ok())?;
        }
    }
    Ok(())
}

fn read(d: &mut Decoder<'_>) -> Result<PlanHeader, Error> {
    let (mut name, mut target, mut tensors, mut flags) = (None, None, None, None);
    let (mut profiles, mut plugins, mut verbosity) = (None, None, None);
    let (mut refittable, mut memory) = (None, None);
    fields(d, "a plan's header", |d, key| {
        match key {
            0 => name = Some(d.str()?.to_owned()),
            1 => target = Some(Target::from_cbor(d.bytes()?).map_err(refuse)?),
            2 => tensors = Some(Graph::from_cbor(d.bytes()?, &WeightList::default()).map_err(refuse)?),
            3 => flags = Some(list(d, Decoder::u8)?),
            4 => profiles = Some(list(d, read_profile)?),
            5 => plugins = Some(list(d, read_requirement)?),
            6 => verbosity = Some(read_verbosity(d)?),
            7 => refittable = Some(d.bool()?),
            8 => memory = Some(d.u64()?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let tensors = need(tensors, "field 2 (tensors) of a plan's header")?;
    Ok(PlanHeader {
        name: need(name, "field 0 (name) of a plan's header")?,
        target: need(target, "field 1 (target) of a plan's header")?,
        io: io(&tensors, &need(flags, "field 3 (flags) of a plan's header")?)?,
        profiles: need(profiles, "field 4 (profiles) of a plan's header")?,
        plugins: need(plugins, "field 5 (plug-ins) of a plan's header")?,
        verbosity: need(verbosity, "field 6 (verbosity) of a plan's header")?,
        refittable: need(refittable, "field 7 (refittable) of a plan's header")?,
        context_memory: need(memory, "field 8 (memory) of a plan's header")?,
    })
}

fn io(tensors: &Graph, flags: &[u8]) -> Result<Vec<IoTensor>, Error> {
    if flags.len() != tensors.inputs.len() {
        return Err(refuse(format!("{} flags for {} tensors", flags.len(), tensors.inputs.len())));
    }
    tensors
        .inputs
        .iter()
        .zip(flags)
        .map(|(&v, &flag)| {
            let def = tensors.value(v);
            let mode = if flag & 1 == 0 { IoMode::Input } else { IoMode::Output };
            let prefix = if mode == IoMode::Input { 'i' } else { 'o' };
            let name =
                def.name.strip_prefix(prefix).ok_or_else(|| refuse(format!("tensor \"{}\"", def.name)))?;
            let ty = def.fact.ty.clone();
            Ok(IoTensor {
                name: name.into(),
                mode,
                dtype: ty.dtype,
                dims: ty.dims,
                is_shape_input: flag & 2 != 0,
            })
        })
        .collect()
}

fn read_profile(d: &mut Decoder<'_>) -> Result<Profile, Error> {
    let (mut shapes, mut values) = (BTreeMap::new(), BTreeMap::new());
    fields(d, "a profile", |d, key| {
        match key {
            0 => shapes.extend(list(d, read_range)?),
            1 => values.extend(list(d, read_range)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(Profile { shapes, values })
}

fn read_range(d: &mut Decoder<'_>) -> Result<(String, Range), Error> {
    let (mut name, mut min, mut opt, mut max) = (None, None, None, None);
    fields(d, "a range", |d, key| {
        match key {
            0 => name = Some(d.str()?.to_owned()),
            1 => min = Some(list(d, Decoder::i64)?),
            2 => opt = Some(list(d, Decoder::i64)?),
            3 => max = Some(list(d, Decoder::i64)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let range = Range {
        min: need(min, "field 1 (min) of a range")?,
        opt: need(opt, "field 2 (opt) of a range")?,
        max: need(max, "field 3 (max) of a range")?,
    };
    Ok((need(name, "field 0 (input) of a range")?, range))
}

fn read_requirement(d: &mut Decoder<'_>) -> Result<Requirement, Error> {
    let (mut name, mut version) = (None, None);
    fields(d, "a requirement", |d, key| {
        match key {
            0 => name = Some(d.str()?.to_owned()),
            1 => version = Some(d.str()?.to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(Requirement {
        name: need(name, "field 0 (name) of a requirement")?,
        version: need(version, "field 1 (version) of a requirement")?,
    })
}

fn read_verbosity(d: &mut Decoder<'_>) -> Result<Verbosity, Error> {
    match d.u8()? {
        0 => Ok(Verbosity::None),
        1 => Ok(Verbosity::Names),
        2 => Ok(Verbosity::Detailed),
        n => Err(refuse(format!("{n} is no verbosity"))),
    }
}
