//! Shapes of one run.

use super::{array, decode, encode};
use crate::{BackendError, Program, Shapes};
use kiln_ir::wire::{fields, list, need, refuse};
use kiln_ir::{Fact, Source, ValueId};
use minicbor::data::Type;
use minicbor::decode::{Decoder, Error};

impl Shapes {
    /// The shapes as CBOR: a fact for every value in the order of `values`, which names the values of `program` in the
    /// order of its payload. Weights are left out: their facts are the program's.
    pub fn to_cbor(&self, program: &Program, values: &[ValueId]) -> Result<Vec<u8>, BackendError> {
        encode(|e| {
            array(e.map(1)?.u8(0)?, values, |e, &v| match program.graph.value(v).source {
                Source::Weight(_) => e.null()?.ok(),
                _ => e.encode(self.fact(v))?.ok(),
            })
        })
    }

    /// The shapes of a payload, for a program that came out of one.
    pub fn from_cbor(bytes: &[u8], program: &Program) -> Result<Shapes, BackendError> {
        decode(bytes, "shapes", |d| read(d, program))
    }
}

fn read(d: &mut Decoder<'_>, program: &Program) -> Result<Shapes, Error> {
    let mut facts: Option<Vec<Option<Fact>>> = None;
    fields(d, "shapes", |d, key| {
        match key {
            0 => facts = Some(list(d, read_fact)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let facts = need(facts, "field 0 (facts) of shapes")?;
    let values = program.graph.value_ids().count();
    if facts.len() != values {
        return Err(refuse(format!("shapes of {} values for a program of {values}", facts.len())));
    }
    let known = |v: ValueId| program.graph.value(v).fact.clone();
    let ids = program.graph.value_ids();
    Ok(Shapes::new(ids.zip(facts).map(|(v, f)| f.unwrap_or_else(|| known(v))).collect()))
}

fn read_fact(d: &mut Decoder<'_>) -> Result<Option<Fact>, Error> {
    if d.datatype()? == Type::Null {
        d.null()?;
        return Ok(None);
    }
    d.decode().map(Some)
}
