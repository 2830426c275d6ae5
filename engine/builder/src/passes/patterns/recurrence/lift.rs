//! Layers of a body that depend on elements alone, computed for all elements at once.

use super::{Class, Found, Walk};
use crate::passes::patterns::Writer;
use crate::passes::patterns::view::input;
use kiln_ir::{Node, ValueId};
use kiln_ops::gather::GATHER;
use kiln_ops::matmul::MATMUL;

impl Walk {
    /// A value by what it is made of, written if it has to be.
    pub(super) fn class(&mut self, w: &mut Writer<'_>, v: ValueId) -> Found<Class> {
        if let Some(known) = self.known.get(&v) {
            return Ok(*known);
        }
        // A value that depends on itself depends on a state.
        self.known.insert(v, None);
        let made = self.make(w, v)?;
        self.known.insert(v, made);
        Ok(made)
    }

    fn make(&mut self, w: &mut Writer<'_>, v: ValueId) -> Found<Class> {
        if let Some(weight) = self.body.weight(v) {
            let name = w.g.unique_name(&self.body.value(v).name);
            return Ok(Some(Class::Fixed(w.g.add_weight(&name, weight.clone()))));
        }
        let node = take!(self.producer(v)).clone();
        if !node.regions.is_empty()
            || !node.op.def().traits.must_alias.is_empty()
            || node.op.def().traits.random
        {
            return Ok(None);
        }
        let (mut given, mut varies) = (Vec::new(), false);
        for (i, x) in node.inputs.iter().enumerate() {
            let Some(x) = x else {
                given.push(None);
                continue;
            };
            let class = take!(self.class(w, *x)?);
            given.push(Some(match class {
                Class::Fixed(x) => x,
                Class::Each(all) => {
                    if !self.follows(&node, i, *x, v) {
                        return Ok(None);
                    }
                    varies = true;
                    all
                }
            }));
        }
        let y = w.node(node.op.id(), node.op.attrs().clone(), &given)?;
        Ok(Some(if varies { Class::Each(y) } else { Class::Fixed(y) }))
    }

    /// Whether input `i` of a layer may get a further first dimension, so that its result gets it, too.
    fn follows(&self, node: &Node, i: usize, x: ValueId, y: ValueId) -> bool {
        let rank = |v: ValueId| self.body.ty(v).rank();
        let attrs = node.op.attrs();
        match node.op.id() {
            _ if node.op.is_pointwise() => rank(x) == rank(y),
            MATMUL => {
                let matrix = input(node, 1).is_some_and(|m| rank(m) == 2 && self.fixed(m));
                i == 0 && rank(x) >= 2 && matrix && attrs.bool("trans_a") == Ok(false)
            }
            GATHER => i == 1 && attrs.int("axis") == Ok(0) && attrs.int("batch_dims") == Ok(0),
            _ => false,
        }
    }

    fn fixed(&self, v: ValueId) -> bool {
        matches!(self.known.get(&v), Some(Some(Class::Fixed(_)))) || self.body.weight(v).is_some()
    }
}
