//! Tensors and facts. As parts of a graph, large tensors go to a weight store; alone they carry their bytes.

use super::io::{fields, list, need, refuse};
use super::{INLINE_BYTES, WeightSink, WeightSource, dim, op};
use crate::dim::Dim;
use crate::infer::{Fact, Value};
use crate::tensor::{Bytes, Tensor};
use minicbor::decode::{Decoder, Error};
use minicbor::encode::{Encoder, Error as EncodeError, Write};

type Written<W> = Result<(), EncodeError<<W as Write>::Error>>;

/// Writes a tensor; one that is large goes to `sink`, if there is one, under the weight's `name`.
pub(super) fn write<W: Write>(
    e: &mut Encoder<W>,
    t: &Tensor,
    sink: Option<&mut dyn WeightSink>,
    name: Option<&str>,
) -> Written<W> {
    e.map(3)?.u8(0)?.u8(t.dtype().code())?.u8(1)?.array(t.shape().len() as u64)?;
    t.shape().iter().try_for_each(|&n| e.u64(n as u64)?.ok())?;
    match sink {
        Some(sink) if t.bytes().len() > INLINE_BYTES => {
            let index = sink.put(t, name).map_err(EncodeError::message)?;
            e.u8(3)?.u64(index)?.ok()
        }
        _ => e.u8(2)?.bytes(t.bytes())?.ok(),
    }
}

/// Reads a tensor. `source` yields the bytes of those that are stored apart.
pub(super) fn read(d: &mut Decoder<'_>, source: Option<&dyn WeightSource>) -> Result<Tensor, Error> {
    let (mut dtype, mut shape, mut bytes) = (None, None, None::<Bytes>);
    let mut once = |b: Bytes| match bytes.replace(b) {
        None => Ok(()),
        Some(_) => Err(refuse("a tensor has bytes and an index; one is wanted")),
    };
    fields(d, "a tensor", |d, key| {
        match key {
            0 => dtype = Some(op::read_dtype(d)?),
            1 => shape = Some(list(d, |d| usize::try_from(d.u64()?).map_err(refuse))?),
            2 => once(d.bytes()?.to_vec().into())?,
            3 => once(stored(d.u64()?, source)?)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let dtype = need(dtype, "field 0 (dtype) of a tensor")?;
    let shape = need(shape, "field 1 (dims) of a tensor")?;
    let bytes = need(bytes, "field 2 (bytes) or 3 (index) of a tensor")?;
    let found = bytes.as_slice().len();
    Tensor::from_bytes(dtype, &shape, bytes)
        .ok_or_else(|| refuse(format!("{found} bytes are not those of a tensor {dtype}{shape:?}")))
}

fn stored(index: u64, source: Option<&dyn WeightSource>) -> Result<Bytes, Error> {
    let source =
        source.ok_or_else(|| refuse(format!("weight {index}: no weight store goes with this payload")))?;
    source.get(index).map_err(refuse)
}

pub(super) fn write_fact<W: Write>(
    e: &mut Encoder<W>,
    f: &Fact,
    sink: Option<&mut dyn WeightSink>,
) -> Written<W> {
    e.map(1 + u64::from(f.value.is_some()))?.u8(0)?;
    dim::write_type(e, &f.ty)?;
    match &f.value {
        None => Ok(()),
        Some(Value::Const(t)) => {
            e.u8(1)?;
            write(e, t, sink, None)
        }
        Some(Value::Dims(v)) => {
            e.u8(2)?.array(v.len() as u64)?;
            v.iter().try_for_each(|x| dim::write(e, x))
        }
    }
}

pub(super) fn read_fact(d: &mut Decoder<'_>, source: Option<&dyn WeightSource>) -> Result<Fact, Error> {
    let (mut ty, mut constant, mut dims) = (None, None, None::<Vec<Dim>>);
    fields(d, "a fact", |d, key| {
        match key {
            0 => ty = Some(dim::read_type(d)?),
            1 => constant = Some(read(d, source)?),
            2 => dims = Some(list(d, |d| dim::read(d, 0))?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let ty = need(ty, "field 0 (type) of a fact")?;
    let value = match (constant, dims) {
        (Some(t), None) if t.ty() == ty => Some(Value::Const(t)),
        (Some(t), None) => {
            return Err(refuse(format!("the contents of a fact are {}, its type is {ty}", t.ty())));
        }
        (None, Some(v)) if ty.static_volume().is_none_or(|n| n == v.len()) => Some(Value::Dims(v)),
        (None, Some(v)) => {
            return Err(refuse(format!("a fact of type {ty} has {} elements as contents", v.len())));
        }
        (None, None) => None,
        (Some(_), Some(_)) => return Err(refuse("a fact has two contents; one at most is wanted")),
    };
    Ok(Fact { ty, value })
}

impl<C> minicbor::Encode<C> for Tensor {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Written<W> {
        write(e, self, None, None)
    }
}

impl<'b, C> minicbor::Decode<'b, C> for Tensor {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Tensor, Error> {
        read(d, None)
    }
}

impl<C> minicbor::Encode<C> for Fact {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Written<W> {
        write_fact(e, self, None)
    }
}

impl<'b, C> minicbor::Decode<'b, C> for Fact {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Fact, Error> {
        read_fact(d, None)
    }
}
