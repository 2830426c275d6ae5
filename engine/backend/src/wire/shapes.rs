//! Shapes of one run.

use super::{decode, encode};
use crate::field::is_zero;
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
    /// The case of the program.
    #[cbor(n(1), skip_if = "is_zero")]
    case: u64,
}

impl Shapes {
    /// The shapes as CBOR: a fact for every value in the order of `values`, which names the values of `program` in the
    /// order of its payload. Weights are left out: their facts are the program's.
    pub fn to_cbor(&self, program: &Program, values: &[ValueId]) -> Result<Vec<u8>, BackendError> {
        let is_weight = |v: ValueId| matches!(program.graph.value(v).source, Source::Weight(_));
        let facts = values.iter().map(|&v| (!is_weight(v)).then(|| Cow::Borrowed(self.fact(v))));
        encode(&StoredShapes { facts: facts.collect(), case: self.case().into() }, &mut ())
    }

    /// The shapes of a payload, for a program that came out of one.
    pub fn from_cbor(bytes: &[u8], program: &Program) -> Result<Shapes, BackendError> {
        let StoredShapes { facts, case } = decode(bytes, "shapes", &mut ())?;
        let values = program.graph.value_ids().count();
        if facts.len() != values {
            return Err(BackendError::Incompatible(format!(
                "payload of shapes: {} values for a program of {values}",
                facts.len()
            )));
        }
        let known = |v: ValueId| program.graph.value(v).fact.clone();
        let ids = program.graph.value_ids();
        let facts = ids.zip(facts).map(|(v, f)| f.map_or_else(|| known(v), Cow::into_owned)).collect();
        // A case that the program does not have is one without alternatives.
        Ok(Shapes::new(facts).in_case(u32::try_from(case).unwrap_or(u32::MAX)))
    }
}
