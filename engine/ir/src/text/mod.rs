//! The text form of graphs, which parses back to an equal graph.
//!
//! ```text
//! graph "name" {                                           # `graph "name" strong {` if types are as written
//!   device ?k <= 4*n + 1                                   # bounds of device symbols
//!   input %x: f32[n,3]
//!   input %s: i64[2] = (n,@s.1)                            # contents as functions of symbols
//!   weight %c: i64[2] = [1, -1]                            # few elements: their values
//!   weight %w: f32[3,64] = ref 0x9ae16a3b2f90404f name "fc.w"  # many: a hash; `name` as refit knows it
//!   role "fc" kernel "fc.w"                                # the layer that the weight belongs to, for a refit
//!   range "y" [-6.0, 6.0]                                  # least and greatest value of a tensor, to quantize by
//!   debug "y"                                              # a tensor that runs can report
//!   weight %v: f32[64] = 0x0000803f… recipe ["b"] graph "fold" { … }
//!   %y: f32[n,64] = matmul(%x, %w) {trans_a=true}          # attributes that are not defaults
//!   %a: f32[n,5], %b: i64[n,5] = topk(%y, %c) @"layer" meta {precision=f16, outputs=[f32, _], text="note"}
//!   %z: f32[n] = if(%p, _) graph "then" { … } graph "else" { … }
//!   do assertion(%p) {message="positive"} @check           # a node without outputs
//!   %q: i64[2] is (n,64)  = shape(%y)                      # what is known of contents
//!   output %y, %z
//! }
//! ```
//!
//! A node is named like its first output unless `@` names it; `_` is an absent input. Names that are not plain words are
//! quoted. `#` starts a comment. Types of outputs may be left out: they are inferred then. Elements are a list, `0x` and
//! little-endian bytes, a `ref` to be looked up, or `seed 7`: random ones, for tests.

mod cursor;
mod lex;
mod parse;
mod print;
mod values;

use crate::error::IrError;
use crate::graph::{Graph, Source};
use crate::infer::Value;
use crate::tensor::Tensor;
use crate::ty::TensorType;
use std::collections::HashMap;

/// Tensors of at most so many elements print their values.
pub const INLINE_ELEMENTS: usize = 16;
/// The most elements that a `seed` may make.
pub const MAX_SEEDED: usize = 1 << 22;

/// A tensor that a text refers to.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorRef<'a> {
    /// The name of the value.
    pub name: &'a str,
    /// Type that the tensor must have.
    pub ty: &'a TensorType,
    /// Its [`hash`].
    pub hash: u64,
}

/// The number by which texts refer to a tensor: FNV-1a of its dtype's code, its dimensions (8 bytes each) and its bytes.
pub fn hash(t: &Tensor) -> u64 {
    let dims = t.shape().iter().flat_map(|&d| (d as u64).to_le_bytes());
    let bytes = std::iter::once(t.dtype().code()).chain(dims).chain(t.bytes().iter().copied());
    bytes.fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

impl Graph {
    /// The graph as text.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        print::graph(&mut out, self, 0);
        out.push('\n');
        out
    }

    /// The graph of a text that refers to no tensors. Errors name the line. Structure is checked (names, order, arities,
    /// attributes); types are as written where they are written: [`Graph::verify`] infers them again.
    pub fn from_text(text: &str) -> Result<Graph, IrError> {
        Graph::from_text_with(text, &|_| None)
    }

    /// As [`Graph::from_text`], with `lookup` to find the tensors that the text refers to.
    pub fn from_text_with(
        text: &str,
        lookup: &dyn Fn(&TensorRef<'_>) -> Option<Tensor>,
    ) -> Result<Graph, IrError> {
        parse::parse(text, lookup)
    }

    /// The tensors that [`Graph::to_text`] refers to, by hash.
    pub fn referred_tensors(&self) -> HashMap<u64, Tensor> {
        let mut found = HashMap::new();
        self.collect(&mut found);
        found
    }

    fn collect(&self, found: &mut HashMap<u64, Tensor>) {
        let mut add = |t: &Tensor| {
            if t.len() > INLINE_ELEMENTS {
                found.insert(hash(t), t.clone());
            }
        };
        for v in &self.values {
            match (&v.source, &v.fact.value) {
                (Source::Dead, _) => {}
                (Source::Weight(w), _) => add(&w.tensor),
                (_, Some(Value::Const(t))) => add(t),
                _ => {}
            }
        }
        let recipes = self.values.iter().filter_map(|v| match &v.source {
            Source::Weight(w) => w.recipe.as_ref().map(|r| &r.graph),
            _ => None,
        });
        let regions = self.nodes().flat_map(|(_, n)| &n.regions);
        recipes.chain(regions).for_each(|g| g.collect(found));
    }
}
