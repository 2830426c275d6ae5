//! Results of conditionals whose branches yield different ranks.
//!
//! No tensor has two ranks. So what reads such a result is inferred once for each branch, until the ranks agree; from there on
//! one tensor stands for both. [`super::split`] writes these layers into both branches when the network is lowered.

use super::Boundary;
use crate::ids::IfId;
use crate::layer::LayerData;
use crate::{LayerId, Network, NetworkError, TensorId};
use kiln_ir::graph::{Graph, join};
use kiln_ir::infer::Fact;
use kiln_ir::ty::TensorType;
use kiln_ir::{IrError, OpError};
use std::collections::{HashMap, HashSet};

/// Facts of a tensor in the true and in the false branch of a conditional.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sides {
    pub(crate) of: IfId,
    pub(crate) facts: [Fact; 2],
}

impl Sides {
    /// Whether no one tensor stands for both.
    pub(crate) fn is_open(&self) -> bool {
        let [a, b] = &self.facts;
        a.ty.rank() != b.ty.rank() || a.ty.dtype != b.ty.dtype
    }
}

/// Operators of a layer, what is known of each output, and its facts by branch where it is written into both.
pub(crate) struct Expanded {
    pub(crate) body: Graph,
    pub(crate) outputs: Vec<(Fact, Option<Sides>)>,
}

impl Expanded {
    /// A layer as it is.
    pub(crate) fn plain(body: Graph) -> Expanded {
        let outputs = body.outputs.iter().map(|&v| (body.value(v).fact.clone(), None)).collect();
        Expanded { body, outputs }
    }
}

impl Network {
    /// The types of a tensor in the true and in the false branch, if it has another rank in each: a result of a conditional, or what
    /// follows from it. Such a tensor can be read, but is not an output of the network.
    pub fn branch_types(&self, tensor: TensorId) -> Option<[&TensorType; 2]> {
        let sides = self.tensors.get(tensor.0 as usize)?.sides.as_deref()?;
        let [a, b] = &sides.facts;
        sides.is_open().then_some([&a.ty, &b.ty])
    }

    /// The conditional of a tensor of two ranks.
    pub(crate) fn open(&self, t: TensorId) -> Option<IfId> {
        self.tensor(t).sides.as_ref().filter(|s| s.is_open()).map(|s| s.of)
    }

    /// Refuses a tensor of two ranks.
    pub(crate) fn check_closed(&self, t: TensorId) -> Result<(), NetworkError> {
        match self.branch_types(t) {
            Some([a, b]) => {
                let source = OpError::BranchRanks { when_true: a.to_string(), when_false: b.to_string() };
                Err(IrError::layer(self.tensor_name(t), "if_output", source).into())
            }
            None => Ok(()),
        }
    }

    /// A result of a conditional whose branches yield different ranks, if a layer is one.
    pub(crate) fn result_of_two_ranks(&self, data: &LayerData) -> Option<Sides> {
        let Some(Boundary::IfOutput(result)) = data.def.boundary() else { return None };
        let [Some(a), Some(b)] = data.inputs[..] else { return None };
        let facts = [self.fact(a).clone(), self.fact(b).clone()];
        let same = facts[0].ty.dtype == facts[1].ty.dtype;
        if result.known.is_some() || !same || facts[0].ty.rank() == facts[1].ty.rank() {
            return None;
        }
        Some(Sides { of: result.of, facts })
    }

    /// The conditional whose result a layer reads in two ranks; `None` if it reads none.
    pub(crate) fn split_by(&self, data: &LayerData) -> Result<Option<IfId>, NetworkError> {
        let mut open = data.inputs.iter().flatten().filter_map(|&t| Some((t, self.open(t)?)));
        let Some((first, of)) = open.next() else { return Ok(None) };
        let refuse = |why: &str| {
            let types = self.branch_types(first).map_or(String::new(), |[a, b]| format!(" ({a} or {b})"));
            let text =
                format!("\"{}\" has another rank in each branch{types}: {why}", self.tensor_name(first));
            Err(IrError::layer(&data.name, data.def.kind(), OpError::Unsupported(text)).into())
        };
        if open.any(|(_, other)| other != of) {
            return refuse("it can't be read together with the result of another such conditional");
        }
        if data.def.boundary().is_some() || data.def.side_effect() {
            return refuse(
                "it can't enter or leave a loop or another conditional, nor be asserted or written to; make the ranks equal first",
            );
        }
        Ok(Some(of))
    }

    /// Facts of the inputs of a layer in each branch of a conditional.
    pub(crate) fn facts_by_side(
        &self,
        data: &LayerData,
        of: IfId,
    ) -> Result<[Vec<Option<Fact>>; 2], NetworkError> {
        let follows = self.follows(of);
        let mut both = [Vec::new(), Vec::new()];
        for (side, facts) in both.iter_mut().enumerate() {
            let mut known = HashMap::new();
            for t in &data.inputs {
                let fact = t.map(|t| self.side_fact(t, of, side, &follows, &mut known)).transpose()?;
                facts.push(fact);
            }
        }
        Ok(both)
    }

    /// The layers that depend on a result of a conditional, the results themselves left out.
    pub(crate) fn follows(&self, of: IfId) -> HashSet<LayerId> {
        let results = self.results(of);
        let outputs = |l: &LayerId| self.layer_data(*l).outputs.clone();
        let mut stack: Vec<TensorId> = results.iter().flat_map(outputs).collect();
        let mut seen = HashSet::new();
        while let Some(t) = stack.pop() {
            for &l in &self.tensor(t).readers {
                if !results.contains(&l) && seen.insert(l) {
                    stack.extend(outputs(&l));
                }
            }
        }
        seen
    }

    /// The layers that are results of a conditional.
    pub(crate) fn results(&self, of: IfId) -> Vec<LayerId> {
        let layers = self.constructs.get(of.0 as usize).map_or(&[][..], |c| &c.layers);
        let result = |l: &LayerId| matches!(self.layer_data(*l).def.boundary(), Some(Boundary::IfOutput(_)));
        layers.iter().copied().filter(result).collect()
    }

    /// Facts of a tensor in one branch.
    fn side_fact(
        &self,
        wanted: TensorId,
        of: IfId,
        side: usize,
        follows: &HashSet<LayerId>,
        known: &mut HashMap<TensorId, Fact>,
    ) -> Result<Fact, NetworkError> {
        let mut stack = vec![wanted];
        while let Some(&t) = stack.last() {
            if known.contains_key(&t) {
                stack.pop();
                continue;
            }
            if let Some(fact) = self.fact_at_once(t, of, side, follows) {
                known.insert(t, fact);
                continue;
            }
            let Some(l) = self.producer(t) else { continue };
            let data = self.layer_data(l);
            let missing: Vec<TensorId> =
                data.inputs.iter().flatten().copied().filter(|t| !known.contains_key(t)).collect();
            if !missing.is_empty() {
                stack.extend(missing);
                continue;
            }
            let facts: Vec<Option<Fact>> =
                data.inputs.iter().map(|t| t.and_then(|t| known.get(&t).cloned())).collect();
            let body = self.expand_with(data, &facts)?;
            for (&t, &v) in data.outputs.iter().zip(&body.outputs) {
                known.insert(t, body.value(v).fact.clone());
            }
        }
        Ok(known.remove(&wanted).unwrap_or_else(|| self.fact(wanted).clone()))
    }

    /// Facts of a tensor in one branch, if that needs no inference.
    fn fact_at_once(&self, t: TensorId, of: IfId, side: usize, follows: &HashSet<LayerId>) -> Option<Fact> {
        if let Some(s) = self.tensor(t).sides.as_ref().filter(|s| s.of == of) {
            return Some(s.facts[side].clone());
        }
        let Some(l) = self.producer(t) else { return Some(self.fact(t).clone()) };
        let data = self.layer_data(l);
        match data.def.boundary() {
            Some(Boundary::IfOutput(r)) if r.of == of => {
                let from = data.inputs.get(side).copied().flatten()?;
                Some(self.fact(from).clone())
            }
            None if follows.contains(&l) => None,
            _ => Some(self.fact(t).clone()),
        }
    }
}

/// One output of a layer that is written into both branches.
pub(crate) fn meet(layer: &str, of: IfId, facts: [Fact; 2]) -> Result<(Fact, Option<Sides>), OpError> {
    let sides = Sides { of, facts };
    let fact = match sides.is_open() {
        true => sides.facts[0].clone(),
        false => join(layer, None, &sides.facts[0], &sides.facts[1])?,
    };
    Ok((fact, Some(sides)))
}
