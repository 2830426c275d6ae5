//! Programs, and places of values.

use super::{BlobList, Reading, Writing, decode, encode};
use crate::by_case::check_cases;
use crate::order::MAX_STREAMS;
use crate::{BackendError, Place, Program};
use kiln_ir::wire::{WeightSink, WeightSource, refuse};
use kiln_ir::{NodeId, ValueId};
use minicbor::decode::{Decoder, Error};
use minicbor::encode::{Encoder, Error as EncodeError, Write};
use minicbor::{Decode, Encode};
use std::collections::HashMap;

impl Program {
    /// Numbers values and nodes anew as [`kiln_ir::Graph::compact`] does, which is how payloads name them. Returns the
    /// new ids of values by old id; dead values have none.
    pub fn compact(&mut self) -> Result<Vec<Option<ValueId>>, BackendError> {
        let order = self.graph.order().iter().enumerate();
        let new: HashMap<NodeId, NodeId> = order.map(|(i, &n)| (n, NodeId(i as u32))).collect();
        let map = self.graph.compact()?;
        for step in &mut self.steps {
            step.bodies.iter_mut().try_for_each(|b| b.compact().map(drop))?;
            for n in &mut step.nodes {
                *n = *new.get(n).ok_or_else(|| {
                    BackendError::InvalidArgument(format!("step \"{}\" runs {n:?}, no node", step.name))
                })?;
            }
        }
        if !self.memory.places.is_empty() {
            let mut places = vec![Place::None; map.iter().flatten().count()];
            for (old, new) in map.iter().enumerate() {
                if let (Some(place), Some(new)) = (self.memory.places.get(old), new) {
                    places[new.0 as usize] = *place;
                }
            }
            self.memory.places = places;
        }
        Ok(map)
    }

    /// The program as CBOR, its values and nodes numbered as [`Program::compact`] does. Large tensors go to `weights`,
    /// blobs to `blobs`.
    pub fn to_cbor(
        &self,
        weights: &mut dyn WeightSink,
        blobs: &mut BlobList,
    ) -> Result<Vec<u8>, BackendError> {
        let mut p = self.clone();
        p.compact()?;
        encode(&p, &mut Writing::new(weights, blobs))
    }

    /// The program of a payload. Every node is in one step, and there is a place for every value, or for none.
    pub fn from_cbor(
        bytes: &[u8],
        weights: &dyn WeightSource,
        blobs: &BlobList,
    ) -> Result<Program, BackendError> {
        let p: Program = decode(bytes, "a program", &mut Reading::new(weights, blobs))?;
        check(&p).map_err(|e| BackendError::Incompatible(format!("payload of a program: {e}")))?;
        Ok(p)
    }
}

/// Refuses a program that contradicts itself, or that has such bodies.
fn check(p: &Program) -> Result<(), Error> {
    let mut seen = vec![false; p.graph.order().len()];
    for step in &p.steps {
        for n in &step.nodes {
            match seen.get_mut(n.0 as usize) {
                Some(seen) if !*seen => *seen = true,
                Some(_) => return Err(refuse(format!("step \"{}\" runs node {} again", step.name, n.0))),
                None => return Err(refuse(format!("step \"{}\" runs node {}, of none", step.name, n.0))),
            }
        }
    }
    if let Some(n) = seen.iter().position(|x| !x) {
        return Err(refuse(format!("node {n} is in no step")));
    }
    let (values, places) = (p.graph.value_ids().count(), p.memory.places.len());
    if places != 0 && places != values {
        return Err(refuse(format!("a memory plan of {places} places for {values} values")));
    }
    for step in p.steps.iter().filter(|s| !s.bodies.is_empty()) {
        let node = crate::flow::node(&p.graph, step)
            .ok_or_else(|| refuse(format!("step \"{}\" has bodies, and no node for them", step.name)))?;
        step.check_bodies(node).map_err(refuse)?;
        step.bodies.iter().try_for_each(check)?;
    }
    check_cases(p).map_err(refuse)?;
    let (steps, streams) = (p.steps.len(), p.streams.len());
    if streams != 0 && (streams != steps || p.streams.iter().any(|&s| s as usize >= MAX_STREAMS)) {
        return Err(refuse(format!(
            "{streams} streams for {steps} steps, wanted one below {MAX_STREAMS} for each"
        )));
    }
    let inputs = p.graph.inputs.len();
    match p.memory.places.iter().find(|x| matches!(x, Place::Input(i) if *i as usize >= inputs)) {
        Some(x) => Err(refuse(format!("a value lies at {x:?}, of {inputs} inputs"))),
        None => Ok(()),
    }
}

/// A place as it is stored: `at` is a position or an offset, by its kind.
#[derive(Encode, Decode)]
#[cbor(map)]
struct StoredPlace {
    #[n(0)]
    kind: u64,
    #[n(1)]
    at: Option<u64>,
    #[n(2)]
    size: Option<u64>,
}

impl<C> Encode<C> for Place {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, ctx: &mut C) -> Result<(), EncodeError<W::Error>> {
        let (kind, at, size) = match *self {
            Place::None => (0, None, None),
            Place::Input(i) => (1, Some(i.into()), None),
            Place::Weight => (2, None, None),
            Place::Arena { offset, size } => (3, Some(offset), Some(size)),
            Place::Dynamic => (4, None, None),
        };
        StoredPlace { kind, at, size }.encode(e, ctx)
    }
}

impl<'b, C> Decode<'b, C> for Place {
    fn decode(d: &mut Decoder<'b>, ctx: &mut C) -> Result<Place, Error> {
        let StoredPlace { kind, at, size } = StoredPlace::decode(d, ctx)?;
        Ok(match (kind, at, size) {
            (0, ..) => Place::None,
            (1, Some(at), _) => Place::Input(u32::try_from(at).map_err(refuse)?),
            (2, ..) => Place::Weight,
            (3, Some(offset), Some(size)) => Place::Arena { offset, size },
            (4, ..) => Place::Dynamic,
            (1 | 3, ..) => return Err(refuse("a place lacks field 1 (position) or 2 (size)")),
            (n, ..) => return Err(refuse(format!("{n} is no kind of place"))),
        })
    }
}
