//! Shapes of one run.

use super::{decode, encode};
use crate::{BackendError, Program, Shapes};
use kiln_ir::{Fact, Source, ValueId};
use minicbor::{Decode, Encode};
use std::borrow::Cow;

/// Shapes as they are stored.
#[derive(Encode, Decode)]
#[cbor(map)]
struct StoredShapes<'f> {
    /// For each value its fact; none of weights, whose facts are the program's.
    #[n(0)]
    facts: Vec<Option<Cow<'f, Fact>>>,
}

impl Shapes {
    /// The shapes as CBOR: a fact for every value in the order of `values`, which names the values of `program` in the
    /// order of its payload. Weights are left out: their facts are the program's.
    pub fn to_cbor(&self, program: &Program, values: &[ValueId]) -> Result<Vec<u8>, BackendError> {
        let is_weight = |v: ValueId| matches!(program.graph.value(v).source, Source::Weight(_));
        let facts = values.iter().map(|&v| (!is_weight(v)).then(|| Cow::Borrowed(self.fact(v))));
        encode(&StoredShapes { facts: facts.collect() }, &mut ())
    }

    /// The shapes of a payload, for a program that came out of one.
    pub fn from_cbor(bytes: &[u8], program: &Program) -> Result<Shapes, BackendError> {
        let StoredShapes { facts } = decode(bytes, "shapes", &mut ())?;
        let values = program.graph.value_ids().count();
        if facts.len() != values {
            return Err(BackendError::Incompatible(format!(
                "payload of shapes: {} values for a program of {values}",
                facts.len()
            )));
        }
        let known = |v: ValueId| program.graph.value(v).fact.clone();
        let ids = program.graph.value_ids();
        Ok(Shapes::new(ids.zip(facts).map(|(v, f)| f.map_or_else(|| known(v), Cow::into_owned)).collect()))
    }
}
