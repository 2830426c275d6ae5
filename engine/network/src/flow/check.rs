//! The rules of loops and conditionals that only the whole network can show.

use super::{Boundary, LoopIterator, LoopOutput, Scopes, TripLimitKind};
use crate::ids::ConstructId;
use crate::layer::LayerData;
use crate::{LayerId, Network, NetworkError, TensorId};
use kiln_ir::graph::LoopOutputKind;
use std::collections::HashSet;

impl Network {
    /// Checks every rule of control flow; returns the nesting of layers.
    pub(crate) fn check_flow(&self) -> Result<Scopes, NetworkError> {
        let scopes = Scopes::of(self);
        scopes.check(self)?;
        for c in 0..self.constructs.len() as u32 {
            if self.constructs[c as usize].conditional {
                self.check_conditional(c)?;
            } else {
                Checker { net: self, scopes: &scopes, c }.check()?;
            }
        }
        let mut named = self.all_outputs().chain(self.debug.iter().copied());
        let inside = named.find(|&t| !scopes.tensor(t).is_empty());
        inside.map_or(Ok(()), |t| self.check_exterior(t))?;
        Ok(scopes)
    }

    fn check_conditional(&self, c: ConstructId) -> Result<(), NetworkError> {
        let construct = &self.constructs[c as usize];
        if self.condition(c).is_none() {
            return Err(NetworkError::NoCondition(construct.label()));
        }
        let gives = |&l: &LayerId| matches!(self.layer_data(l).def.boundary(), Some(Boundary::IfOutput(_)));
        if !construct.layers.iter().any(gives) {
            return Err(NetworkError::NoOutputs(construct.label()));
        }
        Ok(())
    }
}

struct Checker<'a> {
    net: &'a Network,
    scopes: &'a Scopes,
    c: ConstructId,
}

impl Checker<'_> {
    fn label(&self) -> String {
        self.net.constructs[self.c as usize].label()
    }

    fn check(&self) -> Result<(), NetworkError> {
        let limits = [TripLimitKind::Count, TripLimitKind::While];
        if limits.iter().all(|&k| self.net.limit(self.c, k).is_none()) {
            return Err(NetworkError::NoLimit(self.label()));
        }
        for &l in &self.net.constructs[self.c as usize].layers {
            let d = self.net.layer_data(l);
            match d.def.boundary() {
                Some(Boundary::TripLimit(t)) if t.kind == TripLimitKind::Count => self.outside(d, 0)?,
                Some(Boundary::TripLimit(_)) => self.condition(d)?,
                Some(Boundary::Iterator(i)) => self.iterator(d, &i)?,
                Some(Boundary::Recurrence(_)) => {
                    self.outside(d, 0)?;
                    self.set(d, 1, "the next value")?;
                }
                Some(Boundary::LoopOutput(o)) => self.output(d, &o)?,
                _ => (),
            }
        }
        Ok(())
    }

    fn set(&self, d: &LayerData, input: usize, what: &str) -> Result<TensorId, NetworkError> {
        let unset = || NetworkError::Unset { layer: d.name.clone(), input, what: what.into() };
        d.inputs.get(input).copied().flatten().ok_or_else(unset)
    }

    fn names(&self, d: &LayerData, t: TensorId) -> (String, String, String) {
        (d.name.clone(), self.label(), self.net.tensor_name(t).to_owned())
    }

    /// Refuses an input that is inside of the loop.
    fn outside(&self, d: &LayerData, input: usize) -> Result<(), NetworkError> {
        let t = self.set(d, input, "a value from outside")?;
        if !self.scopes.is_inside(t, self.c) {
            return Ok(());
        }
        let (layer, construct, tensor) = self.names(d, t);
        Err(NetworkError::FromInside { layer, input, construct, tensor })
    }

    /// The condition may not depend on iterators of the loop nor on results of loops inside of it.
    fn condition(&self, d: &LayerData) -> Result<(), NetworkError> {
        let mut stack = vec![self.set(d, 0, "the condition")?];
        let mut seen = HashSet::new();
        while let Some(t) = stack.pop() {
            if !self.scopes.is_inside(t, self.c) || !seen.insert(t) {
                continue;
            }
            let Some(l) = self.net.producer(t) else { continue };
            let on = self.net.layer_data(l);
            match on.def.boundary() {
                Some(Boundary::Iterator(_) | Boundary::LoopOutput(_) | Boundary::TripLimit(_)) => {
                    let (layer, construct) = (d.name.clone(), self.label());
                    let (on, kind) = (on.name.clone(), on.def.kind().to_owned());
                    return Err(NetworkError::ConditionFrom { layer, construct, on, kind });
                }
                Some(Boundary::Recurrence(_)) => (),
                _ => stack.extend(on.inputs.iter().flatten()),
            }
        }
        Ok(())
    }

    /// The iteration count, if it is known when the network is built and nothing else ends the loop.
    fn iterations(&self) -> Option<i64> {
        if self.net.limit(self.c, TripLimitKind::While).is_some() {
            return None;
        }
        let l = self.net.limit(self.c, TripLimitKind::Count)?;
        self.scalar(self.net.layer_data(l).inputs.first().copied().flatten()?)
    }

    fn scalar(&self, t: TensorId) -> Option<i64> {
        self.net.fact(t).as_const()?.scalar_i64()
    }

    fn iterator(&self, d: &LayerData, i: &LoopIterator) -> Result<(), NetworkError> {
        self.outside(d, 0)?;
        if i.reverse && self.net.limit(self.c, TripLimitKind::Count).is_none() {
            let (layer, construct) = (d.name.clone(), self.label());
            return Err(NetworkError::ReverseWithoutCount { layer, construct });
        }
        let t = self.set(d, 0, "the tensor")?;
        let extent = self.net.fact(t).ty.dims.get(i.axis).and_then(|d| d.as_const());
        match (self.iterations(), extent) {
            (Some(iterations), Some(extent)) if iterations > extent => {
                let (layer, construct) = (d.name.clone(), self.label());
                Err(NetworkError::BeyondExtent { construct, layer, iterations, extent })
            }
            _ => Ok(()),
        }
    }

    fn output(&self, d: &LayerData, o: &LoopOutput) -> Result<(), NetworkError> {
        let t = self.set(d, 0, "the value")?;
        if o.kind_given(d.inputs.len()) == LoopOutputKind::LastValue {
            return self.last_value(d, t);
        }
        if !self.scopes.is_inside(t, self.c) {
            let (layer, construct, tensor) = self.names(d, t);
            return Err(NetworkError::FromOutside { layer, input: 0, construct, tensor });
        }
        if o.exact && d.inputs.len() < 2 {
            return Ok(());
        }
        let length = self.set(d, 1, "the length of the new dimension")?;
        self.outside(d, 1)?;
        match (self.iterations(), self.scalar(length)) {
            (Some(iterations), Some(length)) if iterations > length => {
                let (layer, construct) = (d.name.clone(), self.label());
                Err(NetworkError::TooShort { construct, layer, iterations, length })
            }
            _ => Ok(()),
        }
    }

    fn last_value(&self, d: &LayerData, t: TensorId) -> Result<(), NetworkError> {
        match self.net.boundary_of(t) {
            Some(b @ Boundary::Recurrence(_)) if b.construct() == self.c => Ok(()),
            _ => {
                let (layer, construct, tensor) = self.names(d, t);
                Err(NetworkError::NotRecurrence { layer, construct, tensor })
            }
        }
    }
}
