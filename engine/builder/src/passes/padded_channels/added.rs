//! Contents of added channels: one number for all elements of a value, which must be finite, as weights of zero do not hide
//! infinity or NaN.

use super::anchors;
use super::anchors::Pads;
use super::set::Set;
use kiln_ir::{DType, Elems, Graph, Node, NodeId, Tensor, ValueId};
use kiln_ops::pool::POOL;
use std::collections::{BTreeMap, HashMap};

/// Numbers in added channels, by value.
pub struct Added(HashMap<ValueId, Tensor>);

impl Added {
    /// Numbers that the constants of layers in a set get in added channels, or the first layer that makes no finite number of them.
    pub fn of(g: &Graph, set: &Set) -> Result<BTreeMap<NodeId, Pads>, NodeId> {
        let mut known = Added(HashMap::new());
        let mut pads = BTreeMap::new();
        for &id in g.order().iter().filter(|id| set.through.contains_key(id)) {
            let Some(node) = g.get(id) else { return Err(id) };
            pads.insert(id, known.layer(g, node, set).ok_or(id)?);
        }
        Ok(pads)
    }

    /// The number that a value holds there: zero if no layer of the set made it.
    fn get(&self, g: &Graph, v: ValueId) -> Option<Tensor> {
        self.0.get(&v).cloned().or_else(|| number(g.ty(v).dtype, 0))
    }

    /// Works out a layer's result. The constants that get more channels get zeros there, or ones where zeros do not do.
    fn layer(&mut self, g: &Graph, node: &Node, set: &Set) -> Option<Pads> {
        let y = *node.outputs.first()?;
        if !node.op.is_pointwise() {
            // Sums and windows of zeros are zeros; the greatest of equal numbers is that number.
            let x = self.get(g, *anchors::images(g, node).first()?)?;
            let greatest = node.op.is(POOL) && node.op.attrs().str("op") == Ok("max");
            let kept = greatest || x.scalar_f64() == Some(0.0);
            self.0.insert(y, if greatest { x } else { number(g.ty(y).dtype, 0)? });
            return kept.then(Pads::new);
        }
        [0, 1].into_iter().find_map(|one| {
            let mut pads = Pads::new();
            let mut inputs = Vec::with_capacity(node.inputs.len());
            for (i, v) in node.inputs.iter().enumerate() {
                let Some(v) = *v else {
                    inputs.push(None);
                    continue;
                };
                let weight = g.weight(v).filter(|w| w.tensor.len() == 1);
                let number = match (set.values.contains_key(&v), weight) {
                    (true, _) => self.get(g, v)?,
                    (false, Some(w)) => w.tensor.reshaped(&[])?,
                    (false, None) => {
                        let pad = number(g.ty(v).dtype, one)?;
                        pads.insert(i, pad.clone());
                        pad
                    }
                };
                inputs.push(Some(number));
            }
            let made = node.op.eval(&inputs).ok()?.into_iter().next()?;
            if !made.scalar_f64().is_none_or(f64::is_finite) {
                return None;
            }
            self.0.insert(y, made);
            Some(pads)
        })
    }
}

fn number(dtype: DType, n: i64) -> Option<Tensor> {
    let elems = if dtype.is_float() { Elems::F(vec![n as f64]) } else { Elems::I(vec![n]) };
    Tensor::from_elems(dtype, &[], &elems)
}
