//! The CBOR form (RFC 8949) of graphs and their parts: what programs, regions, plans and cache keys are made of.
//!
//! Structure is maps with integer field keys; attributes are keyed by their names. Writers use definite lengths,
//! shortest integers, ascending keys and f64 floats, and values are numbered as [`Graph::compact`] numbers them: equal
//! graphs give equal bytes. Readers skip fields that they do not know and take fields in any order; an unknown
//! operator, attribute, element type or kind, and a missing field, are refusals that name it. Fields are required
//! unless marked `?`; an absent `?` field is not written.
//!
//! | map       | fields |
//! |-----------|--------|
//! | graph     | 0 name: text · 1 inputs: \[value\] · 2 weights: \[weight\] · 3 nodes: \[node\], in execution order · 4 outputs: \[number of a value\] · 5? whether types are as written: bool · 6? uses of weights: \[use\] · 7? ranges by tensor: {text: \[float, float\]} · 8? tensors for debugging: \[text\] · 9? formats that inputs and outputs may have: {text: bits by code} · 10? formats that they have: {text: packing} |
//! | packing   | 0 format: code of [`crate::TensorFormat::code`] · 1 channels, 0 of formats without vectors |
//! | use       | 0 name of a layer: text · 1 role: 0 kernel, 1 bias, 2 shift, 3 scale, 4 constant, 6 power · 2 name of a weight: text |
//! | value     | 0 name: text · 1 fact |
//! | weight    | 0 name of the value: text · 1 tensor · 2? name to refit by: text · 3? recipe |
//! | recipe    | 0 graph · 1 names of source weights, one per input: \[text\] |
//! | node      | 0 name: text · 1 op · 2 inputs: \[number of a value, or null if absent\] · 3 outputs: \[value\] · 4? regions: \[graph\] · 5? meta |
//! | meta      | 0? precision: dtype · 1? types of outputs: \[dtype or null\] · 2? text |
//! | op        | 0 name: text · 1 attributes: {text: attribute} |
//! | attribute | one of: 0 integer · 1 float · 2 bool · 3 text · 4 \[integer\] · 5 \[float\] · 6 \[text\] · 7 dtype · 8 bytes |
//! | fact      | 0 type · 1? contents: tensor · 2? contents: \[dim\] |
//! | type      | 0 dtype · 1 dims: \[dim\] |
//! | tensor    | 0 dtype · 1 dims: \[integer\] · 2? bytes, little-endian, row-major · 3? index in the weight store; one of both |
//! | dim       | an integer; or a map 0 terms: \[term\], their sum |
//! | term      | 0 coefficient: integer · 1 factors: \[atom\] |
//! | atom      | a symbol: 0 name: text · 1 origin: 0 host, 1 content of a shape input, 2 device · 2? bound: dim; or an operation: 3 code: 1 floordiv, 2 ceildiv, 3 mod, 4 max, 5 min · 4 left: dim · 5 right: dim |
//! | dtype     | an integer: the code of [`crate::DType::code`] |
//!
//! Values are numbered from 0: inputs in order, then weights in order, then the outputs of nodes in order; a node reads
//! only smaller numbers. Graphs nest at most [`MAX_NESTING`] deep, dims [`MAX_DIM_NESTING`].

mod dim;
mod graph;
mod io;
mod op;
mod tensor;

use crate::error::IrError;
use crate::graph::Graph;
use crate::tensor::{Bytes, Tensor};
pub use io::{check_keys, refuse};
use minicbor::encode::{Error as EncodeError, Write};
use minicbor::{Decoder, Encoder};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The deepest nesting of regions and recipes that is read.
pub const MAX_NESTING: usize = 32;
/// The deepest nesting of operations and bounds in a dimension that is read.
pub const MAX_DIM_NESTING: usize = 64;
/// Tensors of up to so many bytes lie in the payload; larger ones go to the [`WeightSink`].
pub const INLINE_BYTES: usize = 64;

/// Takes the large tensors of a graph that is being written.
pub trait WeightSink {
    /// Stores a tensor and says under which index. `name` is the one by which it can be refitted, if it has one.
    fn put(&mut self, tensor: &Tensor, name: Option<&str>) -> Result<u64, IrError>;
}

/// Reads the weights that a [`WeightSink`] stored.
pub trait WeightSource {
    /// The bytes at an index; an error if there are none. The reader checks their number against the tensor's type.
    fn get(&self, index: u64) -> Result<Bytes, IrError>;
}

/// A weight store in memory; tensors of equal bytes are stored once.
#[derive(Clone, Debug, Default)]
pub struct WeightList {
    tensors: Vec<Tensor>,
    by_hash: HashMap<u64, Vec<u64>>,
}

impl WeightList {
    /// The tensors in the order of their indices.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }
}

impl WeightSink for WeightList {
    fn put(&mut self, tensor: &Tensor, _: Option<&str>) -> Result<u64, IrError> {
        let mut hasher = DefaultHasher::new();
        tensor.bytes().hash(&mut hasher);
        let same = self.by_hash.entry(hasher.finish()).or_default();
        if let Some(&i) = same.iter().find(|&&i| self.tensors[i as usize].bytes() == tensor.bytes()) {
            return Ok(i);
        }
        let next = self.tensors.len() as u64;
        same.push(next);
        self.tensors.push(tensor.clone());
        Ok(next)
    }
}

impl WeightSource for WeightList {
    fn get(&self, index: u64) -> Result<Bytes, IrError> {
        let t = usize::try_from(index).ok().and_then(|i| self.tensors.get(i));
        t.map(Tensor::shared_bytes).ok_or_else(|| {
            IrError::Payload(format!("weight {index} does not exist; the store has {}", self.tensors.len()))
        })
    }
}

/// Shared text as a CBOR string.
pub(crate) mod arc_str {
    use super::{Decoder, EncodeError, Encoder, Write};
    use std::sync::Arc;

    /// Writes the text.
    pub(crate) fn encode<C, W: Write>(
        text: &Arc<str>,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        e.str(text)?.ok()
    }

    /// Reads the text.
    pub(crate) fn decode<'b, C>(d: &mut Decoder<'b>, _: &mut C) -> Result<Arc<str>, minicbor::decode::Error> {
        d.str().map(Arc::from)
    }
}

impl Graph {
    /// The graph as CBOR. Tensors over [`INLINE_BYTES`] go to `sink`. Refused if a node reads a value that is not
    /// defined before it.
    pub fn to_cbor(&self, sink: &mut dyn WeightSink) -> Result<Vec<u8>, IrError> {
        let mut e = Encoder::new(Vec::new());
        graph::encode(&mut e, self, sink).map_err(|e| IrError::Payload(e.to_string()))?;
        Ok(e.into_writer())
    }

    /// The graph of a payload, which must end where the graph ends. Structure is checked (every value is defined once,
    /// before it is read, arities and attributes fit the schemas); types are as recorded: [`Graph::verify`] infers
    /// them again.
    pub fn from_cbor(bytes: &[u8], source: &dyn WeightSource) -> Result<Graph, IrError> {
        check_keys(bytes).map_err(|e| IrError::Payload(e.to_string()))?;
        let mut d = Decoder::new(bytes);
        let g = decode_graph(&mut d, source)?;
        if d.position() != bytes.len() {
            let left = bytes.len() - d.position();
            return Err(IrError::Payload(format!("{left} bytes follow the graph; it must be all there is")));
        }
        Ok(g)
    }
}

/// Writes a graph as one item of a larger payload.
pub fn encode_graph<W: Write>(
    e: &mut Encoder<W>,
    g: &Graph,
    sink: &mut dyn WeightSink,
) -> Result<(), EncodeError<W::Error>> {
    graph::encode(e, g, sink)
}

/// Reads a graph that is one item of a larger payload.
pub fn decode_graph(d: &mut Decoder<'_>, source: &dyn WeightSource) -> Result<Graph, IrError> {
    graph::decode(d, source, 0).map_err(|e| IrError::Payload(e.to_string()))
}
