//! Regions.

use super::{array, decode, encode};
use crate::{BackendError, Region};
use kiln_ir::ValueId;
use kiln_ir::wire::{WeightSink, WeightSource, decode_graph, encode_graph, fields, list, need, refuse};
use minicbor::decode::{Decoder, Error};
use minicbor::encode::Error as EncodeError;

impl Region {
    /// The region as CBOR; large tensors go to `sink`.
    pub fn to_cbor(&self, sink: &mut dyn WeightSink) -> Result<Vec<u8>, BackendError> {
        let Region { graph, inputs, outputs } = self;
        encode(|e| {
            encode_graph(e.map(3)?.u8(0)?, graph, sink).map_err(EncodeError::message)?;
            array(e.u8(1)?, inputs, |e, v| e.u32(v.0)?.ok())?;
            array(e.u8(2)?, outputs, |e, v| e.u32(v.0)?.ok())
        })
    }

    /// The region of a payload.
    pub fn from_cbor(bytes: &[u8], source: &dyn WeightSource) -> Result<Region, BackendError> {
        decode(bytes, "a region", |d| read(d, source))
    }
}

fn read(d: &mut Decoder<'_>, source: &dyn WeightSource) -> Result<Region, Error> {
    let (mut graph, mut inputs, mut outputs) = (None, None, None);
    fields(d, "a region", |d, key| {
        match key {
            0 => graph = Some(decode_graph(d, source).map_err(refuse)?),
            1 => inputs = Some(values(d)?),
            2 => outputs = Some(values(d)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let graph = need(graph, "field 0 (graph) of a region")?;
    let inputs = need(inputs, "field 1 (inputs) of a region")?;
    let outputs = need(outputs, "field 2 (outputs) of a region")?;
    let (ins, outs) = (graph.inputs.len(), graph.outputs.len());
    if inputs.len() != ins || outputs.len() != outs {
        let (i, o) = (inputs.len(), outputs.len());
        return Err(refuse(format!("a region of {ins} inputs and {outs} outputs names {i} and {o} values")));
    }
    Ok(Region { graph, inputs, outputs })
}

fn values(d: &mut Decoder<'_>) -> Result<Vec<ValueId>, Error> {
    list(d, |d| d.u32().map(ValueId))
}
