//! Nesting of layers in loops and conditionals, from the flow of data.
//!
//! A tensor is inside of a loop if it depends on an iterator or a recurrence of that loop other than through
//! the loop's outputs. It is inside of a conditional if it depends on one of its inputs likewise. A construct
//! is inside of all constructs that hold inputs of its boundary layers.

use super::Boundary;
use crate::ids::{ConstructId, LoopId};
use crate::{LayerId, Network, NetworkError, TensorId};
use std::collections::BTreeSet;

type Set = BTreeSet<ConstructId>;

/// Nesting of every tensor and every construct.
#[derive(Debug)]
pub(crate) struct Scopes {
    tensors: Vec<Set>,
    parents: Vec<Set>,
}

impl Scopes {
    /// The least solution; terminates because sets only grow.
    pub(crate) fn of(net: &Network) -> Scopes {
        let mut s = Scopes {
            tensors: vec![Set::new(); net.tensors.len()],
            parents: vec![Set::new(); net.constructs.len()],
        };
        if net.constructs.is_empty() {
            return s;
        }
        while net.layer_ids().fold(false, |changed, l| s.visit(net, l) | changed) {}
        s
    }

    fn visit(&mut self, net: &Network, l: LayerId) -> bool {
        let d = net.layer_data(l);
        let mut inside: Set = Set::new();
        for t in d.inputs.iter().flatten() {
            inside.extend(&self.tensors[t.0 as usize]);
        }
        let mut changed = false;
        if let Some(b) = d.def.boundary() {
            let c = b.construct();
            inside.remove(&c);
            let parent = &mut self.parents[c as usize];
            let before = parent.len();
            parent.extend(&inside);
            changed = parent.len() > before;
            inside = parent.clone();
            if b.opens() {
                inside.insert(c);
            }
        }
        for t in &d.outputs {
            let own = &mut self.tensors[t.0 as usize];
            let before = own.len();
            own.extend(&inside);
            changed |= own.len() > before;
        }
        changed
    }

    /// The constructs that hold a tensor, outermost first.
    pub(crate) fn tensor(&self, t: TensorId) -> Vec<ConstructId> {
        self.chain(&self.tensors[t.0 as usize])
    }

    /// Whether a tensor is inside of a construct.
    pub(crate) fn is_inside(&self, t: TensorId, c: ConstructId) -> bool {
        self.tensors[t.0 as usize].contains(&c)
    }

    /// The constructs around a construct, outermost first.
    pub(crate) fn construct(&self, c: ConstructId) -> Vec<ConstructId> {
        self.chain(&self.parents[c as usize])
    }

    /// The constructs that hold a layer, outermost first; boundary layers are inside of their own.
    pub(crate) fn layer(&self, net: &Network, l: LayerId) -> Vec<ConstructId> {
        let d = net.layer_data(l);
        if let Some(b) = d.def.boundary() {
            let mut chain = self.construct(b.construct());
            chain.push(b.construct());
            return chain;
        }
        let inputs = d.inputs.iter().flatten().flat_map(|t| &self.tensors[t.0 as usize]);
        self.chain(&inputs.copied().collect())
    }

    fn chain(&self, set: &Set) -> Vec<ConstructId> {
        let mut v: Vec<_> = set.iter().copied().collect();
        v.sort_by_key(|&c| (self.parents[c as usize].len(), c));
        v
    }

    /// Refuses constructs that overlap: of any two that share a layer, one is nested in the other, and not
    /// both.
    pub(crate) fn check(&self, net: &Network) -> Result<(), NetworkError> {
        for l in net.layer_ids() {
            let d = net.layer_data(l);
            let mut around = self.layer(net, l);
            around.extend(d.outputs.iter().flat_map(|&t| self.tensor(t)));
            for (i, &a) in around.iter().enumerate() {
                for &b in around.iter().skip(i + 1).filter(|&&b| b != a) {
                    self.check_pair(net, a, b, &d.name)?;
                }
            }
        }
        Ok(())
    }

    fn check_pair(
        &self,
        net: &Network,
        a: ConstructId,
        b: ConstructId,
        layer: &str,
    ) -> Result<(), NetworkError> {
        let inside = |x: ConstructId, y: ConstructId| self.parents[x as usize].contains(&y);
        let why = match (inside(a, b), inside(b, a)) {
            (true, true) => "each uses values from inside of the other".to_owned(),
            (false, false) => format!("layer \"{layer}\" uses values from inside of both"),
            _ => return Ok(()),
        };
        let label = |c: ConstructId| net.constructs[c as usize].label();
        Err(NetworkError::NotNested { a: label(a), b: label(b), why })
    }
}

impl Network {
    /// Whether a tensor is inside of a loop, by the layers added so far.
    pub fn is_inside(&self, tensor: TensorId, of: LoopId) -> Result<bool, NetworkError> {
        self.known(tensor)?;
        self.loop_layers(of)?;
        Ok(Scopes::of(self).is_inside(tensor, of.0))
    }

    /// Refuses a tensor inside of a loop or conditional.
    pub(crate) fn check_exterior(&self, t: TensorId) -> Result<(), NetworkError> {
        if self.constructs.is_empty() {
            return Ok(());
        }
        match Scopes::of(self).tensor(t).last() {
            None => Ok(()),
            Some(&c) => {
                let construct = self.constructs[c as usize].label();
                Err(NetworkError::Interior { tensor: self.tensor_name(t).to_owned(), construct })
            }
        }
    }

    /// The boundary that a tensor comes from, if it does.
    pub(super) fn boundary_of(&self, t: TensorId) -> Option<Boundary> {
        self.layer_data(self.producer(t)?).def.boundary()
    }
}
