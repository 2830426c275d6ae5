//! Programs, steps and memory plans.

use super::{BlobList, Written, array, decode, encode, size, tactic};
use crate::{BackendError, MemoryPlan, Place, Program, Step};
use kiln_ir::wire::{
    MAX_NESTING, WeightSink, WeightSource, decode_graph, encode_graph, fields, list, need, refuse,
};
use kiln_ir::{Bytes, NodeId, ValueId};
use minicbor::decode::{Decoder, Error};
use minicbor::encode::{Encoder, Error as EncodeError, Write};
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
        encode(|e| write(e, &p, weights, blobs))
    }

    /// The program of a payload. Every node is in one step, and there is a place for every value, or for none.
    pub fn from_cbor(
        bytes: &[u8],
        weights: &dyn WeightSource,
        blobs: &BlobList,
    ) -> Result<Program, BackendError> {
        decode(bytes, "a program", |d| read(d, weights, blobs, 0))
    }
}

fn write(
    e: &mut Encoder<Vec<u8>>,
    p: &Program,
    weights: &mut dyn WeightSink,
    blobs: &mut BlobList,
) -> Written<Vec<u8>> {
    encode_graph(e.map(3)?.u8(0)?, &p.graph, weights).map_err(EncodeError::message)?;
    array(e.u8(1)?, &p.steps, |e, s| write_step(e, s, weights, blobs))?;
    write_memory(e.u8(2)?, &p.memory)
}

fn write_step(
    e: &mut Encoder<Vec<u8>>,
    s: &Step,
    weights: &mut dyn WeightSink,
    blobs: &mut BlobList,
) -> Written<Vec<u8>> {
    let Step { name, nodes, tactic, blob, bodies } = s;
    let (has_blob, has_bodies) = (!blob.as_slice().is_empty(), !bodies.is_empty());
    e.map(3 + u64::from(has_blob) + u64::from(has_bodies))?.u8(0)?.str(name)?;
    array(e.u8(1)?, nodes, |e, n| e.u32(n.0)?.ok())?;
    tactic::write(e.u8(2)?, tactic)?;
    if has_blob {
        e.u8(3)?.u64(blobs.put(blob))?;
    }
    if has_bodies {
        array(e.u8(4)?, bodies, |e, p| write(e, p, weights, blobs))?;
    }
    Ok(())
}

fn write_memory<W: Write>(e: &mut Encoder<W>, m: &MemoryPlan) -> Written<W> {
    let MemoryPlan { places, arena, scratch } = m;
    array(e.map(3)?.u8(0)?, places, |e, p| match *p {
        Place::None => e.map(1)?.u8(0)?.u8(0)?.ok(),
        Place::Input(i) => e.map(2)?.u8(0)?.u8(1)?.u8(1)?.u32(i)?.ok(),
        Place::Weight => e.map(1)?.u8(0)?.u8(2)?.ok(),
        Place::Arena { offset, size } => e.map(3)?.u8(0)?.u8(3)?.u8(1)?.u64(offset)?.u8(2)?.u64(size)?.ok(),
        Place::Dynamic => e.map(1)?.u8(0)?.u8(4)?.ok(),
    })?;
    e.u8(1)?.u64(*arena)?.u8(2)?.u64(*scratch)?.ok()
}

fn read(
    d: &mut Decoder<'_>,
    weights: &dyn WeightSource,
    blobs: &BlobList,
    depth: usize,
) -> Result<Program, Error> {
    if depth > MAX_NESTING {
        return Err(refuse(format!("programs nest deeper than {MAX_NESTING}")).at(d.position()));
    }
    let (mut graph, mut steps, mut memory) = (None, None, None);
    fields(d, "a program", |d, key| {
        match key {
            0 => graph = Some(decode_graph(d, weights).map_err(refuse)?),
            1 => steps = Some(list(d, |d| read_step(d, weights, blobs, depth))?),
            2 => memory = Some(read_memory(d)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let program = Program {
        graph: need(graph, "field 0 (graph) of a program")?,
        steps: need(steps, "field 1 (steps) of a program")?,
        memory: need(memory, "field 2 (memory) of a program")?,
    };
    check(&program)?;
    Ok(program)
}

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
    }
    let inputs = p.graph.inputs.len();
    match p.memory.places.iter().find(|x| matches!(x, Place::Input(i) if *i as usize >= inputs)) {
        Some(x) => Err(refuse(format!("a value lies at {x:?}, of {inputs} inputs"))),
        None => Ok(()),
    }
}

fn read_step(
    d: &mut Decoder<'_>,
    weights: &dyn WeightSource,
    blobs: &BlobList,
    depth: usize,
) -> Result<Step, Error> {
    let (mut name, mut nodes, mut tactic, mut bodies) = (None, None, None, Vec::new());
    let mut blob = Bytes::from(Vec::new());
    fields(d, "a step", |d, key| {
        match key {
            0 => name = Some(d.str()?.to_owned()),
            1 => nodes = Some(list(d, |d| d.u32().map(NodeId))?),
            2 => tactic = Some(tactic::read(d)?),
            3 => blob = blobs.get(d.u64()?).map_err(refuse)?,
            4 => bodies = list(d, |d| read(d, weights, blobs, depth + 1))?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(Step {
        name: need(name, "field 0 (name) of a step")?,
        nodes: need(nodes, "field 1 (nodes) of a step")?,
        tactic: need(tactic, "field 2 (tactic) of a step")?,
        blob,
        bodies,
    })
}

fn read_memory(d: &mut Decoder<'_>) -> Result<MemoryPlan, Error> {
    let (mut places, mut arena, mut scratch) = (None, None, None);
    fields(d, "a memory plan", |d, key| {
        match key {
            0 => places = Some(list(d, read_place)?),
            1 => arena = Some(d.u64()?),
            2 => scratch = Some(d.u64()?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(MemoryPlan {
        places: need(places, "field 0 (places) of a memory plan")?,
        arena: need(arena, "field 1 (arena) of a memory plan")?,
        scratch: need(scratch, "field 2 (scratch) of a memory plan")?,
    })
}

fn read_place(d: &mut Decoder<'_>) -> Result<Place, Error> {
    let (mut kind, mut at, mut len) = (None, None, None);
    fields(d, "a place", |d, key| {
        match key {
            0 => kind = Some(size(d)?),
            1 => at = Some(d.u64()?),
            2 => len = Some(d.u64()?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(match need(kind, "field 0 (kind) of a place")? {
        0 => Place::None,
        1 => {
            Place::Input(u32::try_from(need(at, "field 1 (position) of an input's place")?).map_err(refuse)?)
        }
        2 => Place::Weight,
        3 => Place::Arena {
            offset: need(at, "field 1 (offset) of a place in the arena")?,
            size: need(len, "field 2 (size) of a place in the arena")?,
        },
        4 => Place::Dynamic,
        n => return Err(refuse(format!("{n} is no kind of place"))),
    })
}
