//! Inputs and outputs of a network in other types and formats than its layers work with.
//!
//! The graph holds the way from one to the other as ordinary layers: casts, moves, padding. Their names start with "reformat".
//! Passes, formats and fusions of layers treat them as any others; what is left of them in a program of direct I/O is an error.

mod choice;
mod direct;
mod formats;
mod types;

pub use choice::{Attempt, search};
pub use direct::{count, is_reformat, left};
pub use formats::Candidates;
pub use types::convert;

use crate::BuildConfig;
use kiln_ir::format::REFORMAT;
use kiln_ir::{Attrs, Graph, IrError, Op, OpName, Packing, Tensor, ValueId};
use kiln_ops::reformat::Move;
use kiln_plan::Range;
use std::collections::BTreeMap;

/// Formats of inputs and outputs that are not linear, by name.
pub type Packings = BTreeMap<String, Packing>;

/// Writes layers of a border one behind the other.
struct Layers<'a> {
    g: &'a mut Graph,
    /// Position of the next layer in the order.
    at: usize,
    stem: String,
    count: usize,
}

impl Layers<'_> {
    fn new<'a>(g: &'a mut Graph, at: usize, tensor: &str) -> Layers<'a> {
        Layers { g, at, stem: format!("{REFORMAT}{tensor}"), count: 0 }
    }

    fn name(&mut self, what: &str) -> String {
        self.count += 1;
        self.g.unique_name(&format!("{}.{what}{}", self.stem, self.count))
    }

    fn add(&mut self, op: OpName, attrs: Attrs, inputs: &[Option<ValueId>]) -> Result<ValueId, IrError> {
        let name = self.name(&op);
        let out = self.g.insert_node(self.at, &name, Op::new(op, attrs)?, inputs)?;
        self.at += 1;
        out.first().copied().ok_or_else(|| IrError::Structure(format!("{op} has no output")))
    }

    fn constant(&mut self, t: Option<Tensor>) -> Result<Option<ValueId>, IrError> {
        let t = t.ok_or_else(|| IrError::Structure("a constant of a border could not be made".into()))?;
        let name = self.name("constant");
        Ok(Some(self.g.add_constant(&name, t)))
    }

    /// A tensor behind these layers.
    fn moves(&mut self, mut x: ValueId, way: Vec<Move>) -> Result<ValueId, IrError> {
        for step in way {
            let (op, more) = step.operator().map_err(|e| IrError::layer(&self.stem, "reformat", e))?;
            let mut inputs = vec![Some(x)];
            for t in more {
                inputs.push(self.constant(Some(t))?);
            }
            x = self.add(op.id(), op.attrs().clone(), &inputs)?;
        }
        Ok(x)
    }
}

/// Puts `inner`, which the first layers of the order made of input `x`, in the place of the input for all others. As an
/// output of the graph the input stays itself.
fn enter(g: &mut Graph, x: ValueId, inner: ValueId, outputs: Vec<ValueId>) {
    g.replace_uses(x, inner);
    g.outputs = outputs;
    // The first of the new layers still reads the input.
    if let Some(&first) = g.order().first()
        && let Some(node) = g.get_mut(first)
        && let Some(slot) = node.inputs.first_mut()
    {
        *slot = Some(x);
    }
    let name = g.unique_name(&format!("{REFORMAT}{}", g.value(x).name));
    g.value_mut(inner).name = name;
}

/// Makes `outer`, which new layers at the end made of output `y`, the output in its place, under its name.
fn leave(g: &mut Graph, y: ValueId, outer: ValueId) {
    let name = g.value(y).name.clone();
    let inner = g.unique_name(&format!("{REFORMAT}{name}"));
    g.value_mut(y).name = inner;
    g.value_mut(outer).name = name;
    g.outputs.iter_mut().filter(|v| **v == y).for_each(|v| *v = outer);
}

/// The range of a tensor counts for what stands in its place, too.
fn share_range(config: &mut BuildConfig, tensor: &str, inner: &str) {
    if let Some(&range) = config.ranges.get(tensor) {
        config.ranges.insert(inner.to_owned(), range);
    }
}

/// The profiles of a build with the shapes in memory.
pub fn in_memory(config: &mut BuildConfig, packings: &Packings) {
    for profile in &mut config.profiles {
        for (name, range) in &mut profile.shapes {
            let Some(packing) = packings.get(name) else { continue };
            let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
            let of = |dims: &[i64]| packing.physical(dims, number);
            *range = Range { min: of(&range.min), opt: of(&range.opt), max: of(&range.max) };
        }
    }
}
