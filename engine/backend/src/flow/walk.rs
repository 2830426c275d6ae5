//! The walk through a loop's iterations, or into a branch.

use crate::{BackendError, stop};
use kiln_ir::op::LOOP;
use kiln_ir::{Fact, Graph, LoopOut, LoopOutputKind, LoopShape, Node, TensorType, budget};

/// Executor of bodies, which keeps values between them.
pub trait Machine {
    /// A tensor, wherever it is stored. Clones are the same tensor.
    type Value: Clone;
    /// A tensor that a loop reads element by element.
    type Elements;
    /// The values that iterations have added to a stacked output so far.
    type Stack;

    /// Runs the body of a region.
    fn run(&mut self, body: usize, inputs: Vec<Self::Value>) -> Result<Vec<Self::Value>, BackendError>;

    /// The number in a tensor of one element; of a truth value, 0 or 1. Waits for the device.
    fn number(&mut self, v: &Self::Value) -> Result<i64, BackendError>;

    /// Size of a value in bytes.
    fn bytes(&self, v: &Self::Value) -> u64;

    /// Facts of the tensor: its type, and its elements where they are few. A loop without iterations asks for
    /// it if the shapes of the run don't decide its results. `None` where that is not worth a wait.
    fn fact(&mut self, _v: &Self::Value) -> Result<Option<Fact>, BackendError> {
        Ok(None)
    }

    /// Prepares a tensor to be read element by element along an axis.
    fn elements(&mut self, v: &Self::Value, axis: usize) -> Result<Self::Elements, BackendError>;

    /// Element `at`, without the axis; refused where there is none. It is read in one iteration only.
    fn element(&mut self, all: &mut Self::Elements, at: i64) -> Result<Self::Value, BackendError>;

    /// A stacked output without a value, of a loop that makes `count` iterations at most, if that is known.
    fn stack(&mut self, count: Option<i64>) -> Self::Stack;

    /// Adds the value of an iteration.
    fn push(&mut self, all: &mut Self::Stack, v: Self::Value) -> Result<(), BackendError>;

    /// The values of all iterations along a new axis: see [`kiln_ir::stack`].
    fn stacked(
        &mut self,
        all: &Self::Stack,
        kind: LoopOutputKind,
        axis: usize,
        length: Option<usize>,
        empty: &TensorType,
    ) -> Result<Self::Value, BackendError>;
}

/// Bytes that a stacked value takes beside its elements.
const LIST_ENTRY: u64 = 192;

/// Refuses a loop whose stacked outputs and growing carried values take more bytes than the memory limit
/// after so many iterations. So a loop that never ends does not take all memory. Empty values count, too. The
/// limit holds for devices as well; initial values do not count.
fn check_kept(node: &Node, iterations: i64, lists: usize, bytes: u64) -> Result<(), BackendError> {
    let limit = budget::limit();
    let entries = (iterations as u64).saturating_mul(lists as u64);
    let bytes = bytes.saturating_add(entries.saturating_mul(LIST_ENTRY));
    if bytes <= limit {
        return Ok(());
    }
    let what = format!(
        "what loop \"{}\" made in {iterations} iterations, with a memory limit of {limit} bytes (--memory-limit),",
        node.name
    );
    Err(BackendError::OutOfMemory { what, bytes })
}

/// The length of each output that has one, `number` being the number in an input of the node; refused where the count
/// alone says that it is too short.
fn lengths(
    node: &Node,
    shape: &LoopShape,
    count: Option<i64>,
    mut number: impl FnMut(usize) -> Result<i64, BackendError>,
) -> Result<Vec<Option<usize>>, BackendError> {
    let refuse = |why: String| BackendError::Execution { layer: node.name.clone(), message: why };
    let mut given = shape.lengths();
    let mut of = |o: &LoopOut| {
        let Some(i) = o.length.then(|| given.next()).flatten() else { return Ok(None) };
        let n = number(i)?;
        let length = usize::try_from(n).map_err(|_| refuse(format!("a loop output has length {n}")))?;
        match count.filter(|&c| !shape.condition && c > n) {
            Some(made) => Err(refuse(format!(
                "a loop output has length {n}, but there are {made} iterations; make it longer"
            ))),
            None => Ok(Some(length)),
        }
    };
    shape.outs.iter().map(&mut of).collect()
}

/// Whether a loop stacks outputs without elements alone, by a body that nothing else comes of: its iterations need not run.
/// `outputs` are facts of its outputs.
pub fn stacks_nothing(node: &Node, outputs: &[Fact]) -> bool {
    let stacks = |shape: LoopShape| shape.outs.iter().all(|o| o.kind != LoopOutputKind::LastValue);
    let empty = |f: &Fact| f.ty.static_dims().is_some_and(|d| d.contains(&0));
    let looping =
        node.op.is(LOOP) && node.loop_shape(node.inputs.len()).is_ok_and(|s| !s.condition && stacks(s));
    looping && !outputs.is_empty() && outputs.iter().all(empty) && node.regions.iter().all(is_pure)
}

fn is_pure(body: &Graph) -> bool {
    let pure = |n: &Node| !n.op.def().traits.side_effect && n.regions.iter().all(is_pure);
    body.nodes().all(|(_, n)| pure(n))
}

/// Runs a `loop` or an `if` on a machine. `outputs` are the facts of its outputs, for what is stacked without an iteration.
pub fn walk<M: Machine>(
    node: &Node,
    inputs: &[M::Value],
    outputs: &[Fact],
    machine: &mut M,
) -> Result<Vec<M::Value>, BackendError> {
    if let Some([on_true, on_false]) = node.branches(inputs.len())? {
        let condition = inputs.first().ok_or_else(|| lost(node, "condition"))?;
        return match machine.number(condition)? {
            0 => machine.run(1, inputs[on_false].to_vec()),
            _ => machine.run(0, inputs[on_true].to_vec()),
        };
    }
    Loop { node, shape: node.loop_shape(inputs.len())?, inputs, machine }.run(outputs)
}

/// The error of a machine, with the layer's name.
fn named(node: &Node, e: BackendError) -> BackendError {
    match e {
        BackendError::InvalidArgument(message) => {
            BackendError::Execution { layer: node.name.clone(), message }
        }
        e => e,
    }
}

fn lost(node: &Node, what: &str) -> BackendError {
    BackendError::InvalidArgument(format!("layer \"{}\" ({}) lacks its {what}", node.name, node.op.name()))
}

struct Loop<'a, M: Machine> {
    node: &'a Node,
    shape: LoopShape,
    inputs: &'a [M::Value],
    machine: &'a mut M,
}

impl<M: Machine> Loop<'_, M> {
    fn run(&mut self, outputs: &[Fact]) -> Result<Vec<M::Value>, BackendError> {
        let s = self.shape.clone();
        let count = match s.count {
            true => Some(self.machine.number(&self.inputs[0])?.max(0)),
            false => None,
        };
        let (inputs, machine) = (self.inputs, &mut *self.machine);
        let lengths = lengths(self.node, &s, count, |i| machine.number(&inputs[i]))?;
        if stacks_nothing(self.node, outputs) {
            let stacked = s.outs.iter().zip(outputs).map(|(o, fact)| {
                let length = fact.ty.static_dims().and_then(|d| d.get(o.axis).copied());
                let none = machine.stack(count);
                machine.stacked(&none, o.kind, o.axis, length, &fact.ty).map_err(|e| named(self.node, e))
            });
            return stacked.collect();
        }
        let mut elements = Vec::with_capacity(s.iterated.len());
        for (v, &(axis, _)) in inputs[s.iterables()].iter().zip(&s.iterated) {
            elements.push(machine.elements(v, axis).map_err(|e| named(self.node, e))?);
        }
        let mut scans: Vec<M::Stack> = (0..s.scans()).map(|_| machine.stack(count)).collect();
        let mut carried = self.inputs[s.initials()].to_vec();
        let first = self.size(&carried);
        let (mut iteration, mut kept) = (0, 0u64);
        while count.is_none_or(|n| iteration < n) && self.goes_on(&carried)? {
            stop::check("")?;
            let mut ins = carried;
            for (all, &(_, reverse)) in elements.iter_mut().zip(&s.iterated) {
                let at = if reverse { count.unwrap_or(0) - 1 - iteration } else { iteration };
                ins.push(self.machine.element(all, at).map_err(|e| named(self.node, e))?);
            }
            ins.extend_from_slice(&self.inputs[s.captures()]);
            let mut outs = self.machine.run(0, ins)?;
            if outs.len() != s.carried + s.scans() {
                return Err(lost(self.node, "results of an iteration"));
            }
            let values = outs.split_off(s.carried);
            carried = outs;
            kept = values.iter().fold(kept, |n, v| n.saturating_add(self.machine.bytes(v)));
            let grown = self.size(&carried).saturating_sub(first);
            iteration += 1;
            check_kept(self.node, iteration, s.scans(), kept.saturating_add(grown))?;
            for (all, v) in scans.iter_mut().zip(values) {
                self.machine.push(all, v).map_err(|e| named(self.node, e))?;
            }
        }
        let stacks =
            |(o, f): (&LoopOut, &Fact)| o.kind != LoopOutputKind::LastValue && f.ty.static_dims().is_none();
        let known = match iteration == 0 && s.outs.iter().zip(outputs).any(stacks) {
            true => self.without_an_iteration()?,
            false => None,
        };
        let mut results = Vec::with_capacity(s.outs.len());
        for ((o, length), fact) in s.outs.iter().zip(lengths).zip(known.as_deref().unwrap_or(outputs)) {
            results.push(match o.kind {
                LoopOutputKind::LastValue => carried[o.index].clone(),
                kind => {
                    let all = self.machine.stacked(&scans[o.index], kind, o.axis, length, &fact.ty);
                    all.map_err(|e| named(self.node, e))?
                }
            });
        }
        Ok(results)
    }

    fn size(&self, values: &[M::Value]) -> u64 {
        values.iter().fold(0, |n, v| n.saturating_add(self.machine.bytes(v)))
    }

    /// Facts of the outputs that follow from what the inputs are.
    fn without_an_iteration(&mut self) -> Result<Option<Vec<Fact>>, BackendError> {
        let mut facts = Vec::with_capacity(self.inputs.len());
        for v in self.inputs {
            match self.machine.fact(v)? {
                Some(fact) => facts.push(Some(fact)),
                None => return Ok(None),
            }
        }
        Ok(Some(self.node.infer(&facts)?))
    }

    fn goes_on(&mut self, carried: &[M::Value]) -> Result<bool, BackendError> {
        if !self.shape.condition {
            return Ok(true);
        }
        let mut ins = carried.to_vec();
        ins.extend_from_slice(&self.inputs[self.shape.captures().end..]);
        let asked = self.machine.run(1, ins)?;
        Ok(self.machine.number(asked.first().ok_or_else(|| lost(self.node, "condition"))?)? != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterations_that_keep_nothing_take_no_memory() {
        let g = Graph::from_text("graph \"g\" { input %x: f32[2] %y = neg(%x) output %y }").unwrap();
        let (_, node) = g.nodes().next().unwrap();
        assert!(check_kept(node, i64::MAX, 0, 0).is_ok());
        assert!(check_kept(node, i64::MAX, 1, 0).is_err());
        assert!(check_kept(node, 1, 1, u64::MAX).is_err());
    }
}
