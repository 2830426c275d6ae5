//! Element types, attributes and operators.

use super::io::{fields, list, more, need, refuse};
use crate::attr::{Attr, Attrs};
use crate::dtype::DType;
use crate::op::Op;
use minicbor::decode::{Decoder, Error};
use minicbor::encode::{Encoder, Error as EncodeError, Write};

type Written<W> = Result<(), EncodeError<<W as Write>::Error>>;

pub(super) fn read_dtype(d: &mut Decoder<'_>) -> Result<DType, Error> {
    let code = d.u64()?;
    let known = u8::try_from(code).ok().and_then(DType::from_code);
    known.ok_or_else(|| refuse(format!("{code} is the code of no element type known here")))
}

fn write_attr<W: Write>(e: &mut Encoder<W>, a: &Attr) -> Written<W> {
    e.map(1)?;
    match a {
        Attr::Int(x) => e.u8(0)?.i64(*x)?.ok(),
        Attr::Float(x) => e.u8(1)?.f64(*x)?.ok(),
        Attr::Bool(x) => e.u8(2)?.bool(*x)?.ok(),
        Attr::Str(x) => e.u8(3)?.str(x)?.ok(),
        Attr::Ints(v) => {
            e.u8(4)?.array(v.len() as u64)?;
            v.iter().try_for_each(|x| e.i64(*x)?.ok())
        }
        Attr::Floats(v) => {
            e.u8(5)?.array(v.len() as u64)?;
            v.iter().try_for_each(|x| e.f64(*x)?.ok())
        }
        Attr::Strs(v) => {
            e.u8(6)?.array(v.len() as u64)?;
            v.iter().try_for_each(|x| e.str(x)?.ok())
        }
        Attr::DType(x) => e.u8(7)?.u8(x.code())?.ok(),
        Attr::Bytes(x) => e.u8(8)?.bytes(x)?.ok(),
    }
}

fn read_attr(d: &mut Decoder<'_>) -> Result<Attr, Error> {
    let mut found = None;
    fields(d, "an attribute", |d, key| {
        if found.is_some() {
            return Err(refuse("an attribute has one kind, this one has two"));
        }
        found = Some(match key {
            0 => Attr::Int(d.i64()?),
            1 => Attr::Float(d.f64()?),
            2 => Attr::Bool(d.bool()?),
            3 => Attr::Str(d.str()?.to_owned()),
            4 => Attr::Ints(list(d, Decoder::i64)?),
            5 => Attr::Floats(list(d, Decoder::f64)?),
            6 => Attr::Strs(list(d, |d| Ok(d.str()?.to_owned()))?),
            7 => Attr::DType(read_dtype(d)?),
            8 => Attr::Bytes(d.bytes()?.to_vec()),
            _ => return Err(refuse(format!("{key} is the code of no kind of attribute known here"))),
        });
        Ok(true)
    })?;
    need(found, "the kind of an attribute")
}

pub(super) fn write_attrs<W: Write>(e: &mut Encoder<W>, attrs: &Attrs) -> Written<W> {
    e.map(attrs.len() as u64)?;
    for (name, a) in attrs.iter() {
        e.str(name)?;
        write_attr(e, a)?;
    }
    Ok(())
}

pub(super) fn read_attrs(d: &mut Decoder<'_>) -> Result<Attrs, Error> {
    let mut attrs = Attrs::new();
    let mut left = d.map()?;
    while more(d, &mut left)? {
        let name = d.str()?;
        if attrs.get(name).is_some() {
            return Err(refuse(format!("attribute \"{name}\" is given twice")).at(d.position()));
        }
        attrs.set(name, read_attr(d)?);
    }
    Ok(attrs)
}

pub(super) fn write<W: Write>(e: &mut Encoder<W>, op: &Op) -> Written<W> {
    e.map(2)?.u8(0)?.str(op.name())?.u8(1)?;
    write_attrs(e, op.attrs())
}

pub(super) fn read(d: &mut Decoder<'_>) -> Result<Op, Error> {
    let (mut name, mut attrs) = (None, None);
    fields(d, "an op", |d, key| {
        match key {
            0 => name = Some(d.str()?),
            1 => attrs = Some(read_attrs(d)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let attrs = need(attrs, "field 1 (attributes) of an op")?;
    Op::new(need(name, "field 0 (name) of an op")?, attrs).map_err(refuse)
}

macro_rules! codec {
    ($t:ty, $write:path, $read:path) => {
        impl<C> minicbor::Encode<C> for $t {
            fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Written<W> {
                $write(e, self)
            }
        }
        impl<'b, C> minicbor::Decode<'b, C> for $t {
            fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<$t, Error> {
                $read(d)
            }
        }
    };
}

fn write_dtype<W: Write>(e: &mut Encoder<W>, t: &DType) -> Written<W> {
    e.u8(t.code())?.ok()
}

codec!(DType, write_dtype, read_dtype);
codec!(Attr, write_attr, read_attr);
codec!(Attrs, write_attrs, read_attrs);
codec!(Op, write, read);
