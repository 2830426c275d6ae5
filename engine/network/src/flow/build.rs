//! Adding loops, conditionals and their boundary layers.

use super::{
    Boundary, Condition, Construct, IfInput, IfOutput, LoopIterator, LoopOutput, Recurrence, TripLimit,
    TripLimitKind,
};
use crate::ids::{ConstructId, IfId, LoopId};
use crate::{Layer, LayerDef, LayerId, Network, NetworkError, TensorId, check_name};
use kiln_ir::IrError;
use kiln_ir::dim::Dim;
use kiln_ir::graph::LoopOutputKind;
use kiln_ir::graph::extent;
use std::sync::Arc;

impl Network {
    fn add_construct(&mut self, conditional: bool) -> ConstructId {
        let id = self.constructs.len() as u32;
        let name = format!("{}.{id}", if conditional { "if" } else { "loop" });
        self.constructs.push(Construct { name, conditional, layers: Vec::new() });
        id
    }

    /// Adds a loop. Its iteration limits, iterators, recurrences and outputs are added next; everything that
    /// depends on an iterator or a recurrence is inside.
    pub fn add_loop(&mut self) -> Result<LoopId, NetworkError> {
        self.explicit_batch("loop")?;
        Ok(LoopId(self.add_construct(false)))
    }

    /// Adds a conditional. Its condition, inputs and outputs are added next; everything that an output needs and that
    /// depends on one of its inputs is computed only in the branch that is taken.
    pub fn add_if_conditional(&mut self) -> Result<IfId, NetworkError> {
        self.explicit_batch("conditional")?;
        Ok(IfId(self.add_construct(true)))
    }

    fn explicit_batch(&self, what: &str) -> Result<(), NetworkError> {
        if !self.implicit_batch {
            return Ok(());
        }
        let why = "control flow is refused".into();
        Err(NetworkError::ImplicitBatch { what: what.into(), why })
    }

    fn construct(&self, id: ConstructId, conditional: bool) -> Result<&Construct, NetworkError> {
        let none = || {
            NetworkError::NoSuch(format!("{} number {id}", if conditional { "conditional" } else { "loop" }))
        };
        self.constructs.get(id as usize).filter(|c| c.conditional == conditional).ok_or_else(none)
    }

    /// Names a loop, for messages and for the inspector.
    pub fn set_loop_name(&mut self, id: LoopId, name: &str) -> Result<(), NetworkError> {
        self.construct(id.0, false)?;
        self.name_construct(id.0, name)
    }

    /// Names a conditional, for messages and for the inspector.
    pub fn set_conditional_name(&mut self, id: IfId, name: &str) -> Result<(), NetworkError> {
        self.construct(id.0, true)?;
        self.name_construct(id.0, name)
    }

    fn name_construct(&mut self, id: ConstructId, name: &str) -> Result<(), NetworkError> {
        check_name(name)?;
        let taken = |(i, c): (usize, &Construct)| i != id as usize && c.name == name;
        if self.constructs.iter().enumerate().any(taken) {
            return Err(IrError::DuplicateName(name.to_owned()).into());
        }
        if let Some(c) = self.constructs.get_mut(id as usize) {
            c.name = name.to_owned();
        }
        Ok(())
    }

    /// A loop's name.
    pub fn loop_name(&self, id: LoopId) -> Result<&str, NetworkError> {
        Ok(&self.construct(id.0, false)?.name)
    }

    /// A conditional's name.
    pub fn conditional_name(&self, id: IfId) -> Result<&str, NetworkError> {
        Ok(&self.construct(id.0, true)?.name)
    }

    /// The boundary layers of a loop.
    pub fn loop_layers(&self, id: LoopId) -> Result<&[LayerId], NetworkError> {
        Ok(&self.construct(id.0, false)?.layers)
    }

    /// The boundary layers of a conditional.
    pub fn conditional_layers(&self, id: IfId) -> Result<&[LayerId], NetworkError> {
        Ok(&self.construct(id.0, true)?.layers)
    }

    fn add_boundary<P: LayerDef>(
        &mut self,
        of: ConstructId,
        def: P,
        inputs: &[TensorId],
    ) -> Result<Layer<'_, P>, NetworkError> {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        let id = self.add_def("", Arc::new(def), &inputs)?;
        if let Some(c) = self.constructs.get_mut(of as usize) {
            c.layers.push(id);
        }
        Ok(Layer::new(self, id))
    }

    /// The iteration limit of this kind.
    pub(super) fn limit(&self, of: ConstructId, kind: TripLimitKind) -> Option<LayerId> {
        let c = self.constructs.get(of as usize)?;
        c.layers.iter().copied().find(|&l| match self.layer_data(l).def.boundary() {
            Some(Boundary::TripLimit(t)) => t.kind == kind,
            _ => false,
        })
    }

    /// Limits the iterations of a loop by a count (a scalar of i32 or i64 from outside) or a condition (a scalar of bool).
    /// One of each kind at most.
    pub fn add_trip_limit(
        &mut self,
        of: LoopId,
        tensor: TensorId,
        kind: TripLimitKind,
    ) -> Result<Layer<'_, TripLimit>, NetworkError> {
        let construct = self.construct(of.0, false)?.label();
        if let Some(first) = self.limit(of.0, kind) {
            self.known(tensor)?;
            let (first, second) = (self.layer_data(first).name.clone(), self.tensor_name(tensor).to_owned());
            return Err(NetworkError::TwoLimits { construct, kind: kind.name().into(), first, second });
        }
        self.add_boundary(of.0, TripLimit { of, kind }, &[tensor])
    }

    /// Iterates over a tensor along an axis, from its end (counted by the iteration count) if `reverse`.
    pub fn add_iterator(
        &mut self,
        of: LoopId,
        tensor: TensorId,
        axis: usize,
        reverse: bool,
    ) -> Result<Layer<'_, LoopIterator>, NetworkError> {
        self.construct(of.0, false)?;
        self.add_boundary(of.0, LoopIterator { of, axis, reverse }, &[tensor])
    }

    /// Carries a value from iteration to iteration, `initial` in the first; the next is set by `set_input(1, …)`.
    pub fn add_recurrence(
        &mut self,
        of: LoopId,
        initial: TensorId,
    ) -> Result<Layer<'_, Recurrence>, NetworkError> {
        self.construct(of.0, false)?;
        self.add_boundary(of.0, Recurrence { of, varying: Vec::new() }, &[initial])
    }

    /// A result of a loop. For concatenations `axis` is where the new dimension goes, and its length is set by
    /// `set_input(1, …)` or [`Layer::set_exact_length`]; else `axis` means nothing.
    pub fn add_loop_output(
        &mut self,
        of: LoopId,
        tensor: TensorId,
        kind: LoopOutputKind,
        axis: usize,
    ) -> Result<Layer<'_, LoopOutput>, NetworkError> {
        self.construct(of.0, false)?;
        self.add_boundary(of.0, LoopOutput { of, kind, axis, exact: false, iterations: None }, &[tensor])
    }

    /// Sets the condition of a conditional, a scalar of bool. Once only.
    pub fn set_condition(
        &mut self,
        of: IfId,
        condition: TensorId,
    ) -> Result<Layer<'_, Condition>, NetworkError> {
        let construct = self.construct(of.0, true)?.label();
        if let Some(first) = self.condition(of.0) {
            let first = self.layer_data(first).name.clone();
            return Err(NetworkError::TwoConditions { construct, first });
        }
        let id = self.add_boundary(of.0, Condition { of }, &[condition])?.id();
        let outputs = self.constructs.get(of.0 as usize).map_or(Vec::new(), |c| c.layers.clone());
        for l in outputs {
            if matches!(self.layer_data(l).def.boundary(), Some(Boundary::IfOutput(_))) {
                let known = self.known_condition(of.0);
                self.redefine(l, Arc::new(IfOutput { of, known }))?;
            }
        }
        Ok(Layer::new(self, id))
    }

    pub(crate) fn condition(&self, of: ConstructId) -> Option<LayerId> {
        let c = self.constructs.get(of as usize)?;
        let is_condition =
            |l: &LayerId| matches!(self.layer_data(*l).def.boundary(), Some(Boundary::Condition(_)));
        c.layers.iter().copied().find(is_condition)
    }

    fn known_condition(&self, of: ConstructId) -> Option<i64> {
        let input = self.layer_data(self.condition(of)?).inputs.first().copied().flatten()?;
        self.fact(input).as_const()?.scalar_i64()
    }

    /// Passes a tensor on to the branches of a conditional.
    pub fn add_if_input(&mut self, of: IfId, tensor: TensorId) -> Result<Layer<'_, IfInput>, NetworkError> {
        self.construct(of.0, true)?;
        self.add_boundary(of.0, IfInput { of }, &[tensor])
    }

    /// A result of a conditional: what the true branch and what the false branch give. Both have the same element
    /// type; their dimensions may differ. Their ranks may differ, too ([`Network::branch_types`]): layers that read the result are
    /// computed in each branch until the ranks agree. Such a result is not an output of the network
    /// ([`kiln_ir::OpError::BranchRanks`]).
    pub fn add_if_output(
        &mut self,
        of: IfId,
        when_true: TensorId,
        when_false: TensorId,
    ) -> Result<Layer<'_, IfOutput>, NetworkError> {
        self.construct(of.0, true)?;
        let known = self.known_condition(of.0);
        self.add_boundary(of.0, IfOutput { of, known }, &[when_true, when_false])
    }
}

impl Layer<'_, Recurrence> {
    /// Lets iterations change the length of these axes (beyond TensorRT); it is then known on the device only.
    pub fn set_varying(self, axes: &[usize]) -> Result<Self, NetworkError> {
        self.change(|p| p.varying = axes.to_vec())
    }
}

impl Layer<'_, LoopIterator> {
    /// Iterates along another axis.
    pub fn set_axis(self, axis: usize) -> Result<Self, NetworkError> {
        self.change(|p| p.axis = axis)
    }

    /// Iterates from the end, or from the start.
    pub fn set_reverse(self, reverse: bool) -> Result<Self, NetworkError> {
        self.change(|p| p.reverse = reverse)
    }
}

impl Layer<'_, LoopOutput> {
    /// Puts the new dimension elsewhere.
    pub fn set_axis(self, axis: usize) -> Result<Self, NetworkError> {
        self.change(|p| p.axis = axis)
    }

    /// Makes the new dimension exactly as long as there are iterations (beyond TensorRT), instead of a given length. The
    /// iteration limits have to be there already.
    pub fn set_exact_length(mut self) -> Result<Self, NetworkError> {
        let of = self.params()?.of;
        let name = format!("{}.iterations", self.name());
        let iterations = self.network().iterations(of.0, name);
        self.change(|p| (p.exact, p.iterations) = (true, Some(iterations)))
    }
}

impl Network {
    /// The number of iterations of a loop as a dimension.
    fn iterations(&self, of: ConstructId, name: String) -> Dim {
        let count =
            self.limit(of, TripLimitKind::Count).and_then(|l| self.layer_data(l).inputs.first().copied());
        let asked = self.limit(of, TripLimitKind::While).is_some();
        match (count.flatten(), asked) {
            (Some(t), false) => extent(&name, self.fact(t)),
            (Some(t), true) => {
                let bound = extent(&format!("{name}.count"), self.fact(t));
                Dim::device(name, Some(bound))
            }
            (None, _) => Dim::device(name, None),
        }
    }
}
