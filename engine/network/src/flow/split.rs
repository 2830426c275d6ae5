//! Writing what reads results of two ranks into both branches of their conditional.

use super::sides::Sides;
use crate::body::Body;
use crate::ids::IfId;
use crate::tensors::TensorSource;
use crate::{LayerDef, LayerId, Network, NetworkError, TensorId};
use kiln_ir::IrError;
use kiln_ir::error::OpError;
use kiln_ir::graph::{Graph, ValueId};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// A layer that was written elsewhere.
#[derive(Clone, Debug)]
struct Moved;

impl LayerDef for Moved {
    fn kind(&self) -> &'static str {
        "moved"
    }
    fn max_inputs(&self) -> usize {
        0
    }
    fn expand(&self, _: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        Ok(Vec::new())
    }
}

impl Network {
    /// The network without tensors of two ranks, if it has some.
    pub(crate) fn without_two_ranks(&self) -> Result<Option<Network>, NetworkError> {
        let mut net: Option<Network> = None;
        loop {
            let now = net.as_ref().unwrap_or(self);
            let live = |d: &&crate::tensors::TensorData| !matches!(d.source, TensorSource::Removed);
            let open = now.tensors.iter().filter(live).filter_map(|d| d.sides.as_ref());
            let Some(of) = open.filter(|s| s.is_open()).map(|s| s.of).min_by_key(|of| of.0) else {
                return Ok(net);
            };
            let mut next = net.take().unwrap_or_else(|| self.clone());
            next.split(of)?;
            net = Some(next);
        }
    }

    /// Writes the layers that read results of a conditional in two ranks into its branches.
    fn split(&mut self, of: IfId) -> Result<(), NetworkError> {
        for t in self.all_outputs().chain(self.debug.iter().copied()).collect::<Vec<_>>() {
            self.check_closed(t)?;
        }
        let moved = self.to_be_split(of)?;
        let mut maps = [HashMap::new(), HashMap::new()];
        for l in self.results(of) {
            let d = self.layer_data(l);
            for (map, from) in maps.iter_mut().zip(&d.inputs) {
                map.extend(d.outputs.first().copied().zip(*from));
            }
        }
        let mut inside = HashMap::new();
        for &l in &moved {
            for (map, word) in maps.iter_mut().zip(["true", "false"]) {
                self.copy_into(l, of, word, map, &mut inside)?;
            }
        }
        let all: HashSet<LayerId> = moved.iter().copied().collect();
        let outputs: Vec<TensorId> = moved.iter().flat_map(|&l| self.layer_data(l).outputs.clone()).collect();
        for t in outputs {
            self.redirect(t, of, &all, &maps)?;
        }
        let open = |l: &LayerId| self.layer_data(*l).outputs.iter().any(|&t| self.open(t).is_some());
        let results: Vec<LayerId> = self.results(of).into_iter().filter(open).collect();
        for l in results.into_iter().chain(moved) {
            self.vacate(l, of);
        }
        Ok(())
    }

    /// The layers to be written into the branches, each after those that it reads.
    fn to_be_split(&self, of: IfId) -> Result<Vec<LayerId>, NetworkError> {
        let follows = self.follows(of);
        let by_sides = |l: &LayerId| {
            let d = self.layer_data(*l);
            let own = |s: &Sides| s.of == of;
            d.def.boundary().is_none()
                && d.outputs.iter().any(|&t| self.tensor(t).sides.as_deref().is_some_and(own))
        };
        let mut stack: Vec<LayerId> = self.layer_ids().filter(by_sides).collect();
        let mut set = BTreeSet::new();
        while let Some(l) = stack.pop() {
            if !set.insert(l) {
                continue;
            }
            let d = self.layer_data(l);
            if d.def.boundary().is_some() || d.def.side_effect() {
                let text = "what is read together with a result of two ranks follows from it through this layer; make \
                            the ranks equal first";
                return Err(IrError::layer(&d.name, d.def.kind(), OpError::Unsupported(text.into())).into());
            }
            let from = d.inputs.iter().flatten().filter_map(|&t| self.producer(t));
            stack.extend(from.filter(|l| follows.contains(l)));
        }
        Ok(self.in_order(set))
    }

    /// Layers of a set, each after those that it reads.
    fn in_order(&self, mut left: BTreeSet<LayerId>) -> Vec<LayerId> {
        let mut order = Vec::with_capacity(left.len());
        let mut ready: BTreeSet<LayerId> = left.clone();
        while let Some(l) = ready.pop_first() {
            let waits = |t: &TensorId| self.producer(*t).is_some_and(|p| p != l && left.contains(&p));
            if !left.contains(&l) || self.layer_data(l).inputs.iter().flatten().any(waits) {
                continue;
            }
            left.remove(&l);
            order.push(l);
            for t in &self.layer_data(l).outputs {
                ready.extend(self.tensor(*t).readers.iter().filter(|r| left.contains(r)));
            }
        }
        order
    }

    /// Adds a copy of a layer to a branch.
    fn copy_into(
        &mut self,
        l: LayerId,
        of: IfId,
        word: &str,
        map: &mut HashMap<TensorId, TensorId>,
        inside: &mut HashMap<TensorId, TensorId>,
    ) -> Result<(), NetworkError> {
        let d = self.layer_data(l).clone();
        let mut inputs = Vec::with_capacity(d.inputs.len());
        for t in &d.inputs {
            inputs.push(match *t {
                Some(t) => Some(self.seen_inside(t, of, map, inside)?),
                None => None,
            });
        }
        let stem: String = d.name.chars().take(crate::MAX_NAME / 8).collect();
        let id = self.add_def(&format!("{stem}.{word}"), d.def.clone(), &inputs)?;
        let copy = self.layer_data_mut(id);
        (copy.meta, copy.weight_names) = (d.meta.clone(), d.weight_names.clone());
        self.reexpand(id)?;
        let outputs = self.layer_data(id).outputs.clone();
        map.extend(d.outputs.iter().copied().zip(outputs));
        Ok(())
    }

    /// A tensor as a layer of a branch reads it.
    fn seen_inside(
        &mut self,
        t: TensorId,
        of: IfId,
        map: &HashMap<TensorId, TensorId>,
        inside: &mut HashMap<TensorId, TensorId>,
    ) -> Result<TensorId, NetworkError> {
        if let Some(&own) = map.get(&t) {
            return Ok(own);
        }
        if self.fact(t).value.is_some() {
            return Ok(t);
        }
        if let Some(&own) = inside.get(&t) {
            return Ok(own);
        }
        let own = self.add_if_input(of, t)?.output(0)?;
        inside.insert(t, own);
        Ok(own)
    }

    /// Makes a result of the conditional stand for a tensor that others read.
    fn redirect(
        &mut self,
        t: TensorId,
        of: IfId,
        moved: &HashSet<LayerId>,
        maps: &[HashMap<TensorId, TensorId>; 2],
    ) -> Result<(), NetworkError> {
        let readers: Vec<LayerId> =
            self.tensor(t).readers.iter().copied().filter(|l| !moved.contains(l)).collect();
        let marked = self.all_outputs().chain(self.debug.iter().copied()).any(|o| o == t);
        // Copies may have been given the tensor as an input of the conditional.
        if readers.is_empty() && !marked {
            return Ok(());
        }
        let [Some(&on_true), Some(&on_false)] = maps.each_ref().map(|m| m.get(&t)) else {
            return Err(IrError::UnknownTensor(self.tensor_name(t).to_owned()).into());
        };
        let name = self.tensor_name(t).to_owned();
        let free = self.unique_tensor_name(&format!("{name}.moved"));
        self.rename_tensor(t, &free);
        let new = self.add_if_output(of, on_true, on_false)?.output(0)?;
        self.rename_tensor(new, &name);
        let data = self.tensor(t).clone();
        let own = &mut self.tensors[new.0 as usize];
        (own.boundary_type, own.range, own.formats) = (data.boundary_type, data.range, data.formats);
        for list in [&mut self.outputs, &mut self.shape_outputs, &mut self.debug] {
            list.iter_mut().filter(|o| **o == t).for_each(|o| *o = new);
        }
        for l in readers {
            let at = |(i, own): (usize, &Option<TensorId>)| (*own == Some(t)).then_some((i, new));
            let inputs: Vec<(usize, TensorId)> =
                self.layer_data(l).inputs.iter().enumerate().filter_map(at).collect();
            self.set_inputs(l, &inputs)?;
        }
        Ok(())
    }

    /// Leaves nothing of a layer but its place.
    fn vacate(&mut self, l: LayerId, of: IfId) {
        if let Some(c) = self.constructs.get_mut(of.0 as usize) {
            c.layers.retain(|&own| own != l);
        }
        let data = self.layer_data_mut(l);
        let (inputs, outputs) = (std::mem::take(&mut data.inputs), std::mem::take(&mut data.outputs));
        (data.def, data.body) = (Arc::new(Moved), Arc::new(Graph::new("moved")));
        data.weight_names.clear();
        for t in inputs.into_iter().flatten() {
            self.tensors[t.0 as usize].readers.remove(&l);
        }
        for t in outputs {
            let data = &mut self.tensors[t.0 as usize];
            data.source = TensorSource::Removed;
            let name = data.name.clone();
            self.by_name.remove(&name);
        }
    }
}
