//! The oracle of control flow: iterations one by one, and the branch that is taken.

use super::super::Node;
use super::pieces::{element, stack, too_short};
use super::{LoopOut, LoopOutputKind, LoopShape, infer};
use crate::budget;
use crate::error::{IrError, OpError};
use crate::infer::Fact;
use crate::op::IF;
use crate::tensor::Tensor;
use crate::ty::TensorType;

/// Iterations between two questions about the memory of lists.
const LISTED: i64 = 1024;
/// Bytes that a stacked value takes beside its elements.
const LIST_ENTRY: u64 = 192;

impl Node {
    /// Runs the node on the oracle, regions included.
    pub fn eval(&self, inputs: &[Option<Tensor>]) -> Result<Vec<Tensor>, IrError> {
        let wrap = |e| IrError::layer(&self.name, self.op.name(), e);
        if !self.op.roles().control {
            return self.op.eval(inputs).map_err(wrap);
        }
        let missing = || wrap(OpError::MissingInput { input: 0, name: "inputs".into() });
        let ins = inputs.iter().cloned().collect::<Option<Vec<Tensor>>>().ok_or_else(missing)?;
        let types: Vec<TensorType> = ins.iter().map(Tensor::ty).collect();
        let types: Vec<&TensorType> = types.iter().collect();
        if self.op.is(IF) {
            let captures = infer::check_if(&self.op, &self.regions, &types).map_err(wrap)?;
            let taken = usize::from(truth(&ins[0]).map_err(wrap)? == 0);
            return self.regions[taken].eval(&ins[captures[taken].clone()]);
        }
        let shape = infer::check_loop(&self.op, &self.regions, &types).map_err(wrap)?;
        Factor { node: self, shape, ins: &ins }.run()
    }
}

fn truth(t: &Tensor) -> Result<i64, OpError> {
    t.scalar_i64()
        .ok_or_else(|| OpError::Value(format!("a condition of shape {:?}, wants one element", t.shape())))
}

/// One run of a loop.
struct Factor<'a> {
    node: &'a Node,
    shape: LoopShape,
    ins: &'a [Tensor],
}

impl Factor<'_> {
    fn run(&self) -> Result<Vec<Tensor>, IrError> {
        let wrap = |e| IrError::layer(&self.node.name, "loop", e);
        let s = &self.shape;
        let count = match s.count {
            true => Some(truth(&self.ins[0]).map_err(wrap)?.max(0)),
            false => None,
        };
        let lengths = self.lengths(count).map_err(wrap)?;
        let mut carried = self.ins[s.initials()].to_vec();
        let mut scans: Vec<Vec<Tensor>> = vec![Vec::new(); s.scans()];
        let mut iteration = 0i64;
        let mut lists = Vec::new();
        while count.is_none_or(|n| iteration < n) && self.goes_on(&carried)? {
            let mut ins = carried;
            for (t, &(axis, reverse)) in self.ins[s.iterables()].iter().zip(&s.iterated) {
                let at = if reverse { count.unwrap_or(0) - 1 - iteration } else { iteration };
                ins.push(element(t, axis, at).map_err(wrap)?);
            }
            ins.extend_from_slice(&self.ins[s.captures()]);
            let mut outs = self.node.regions[0].eval(&ins)?;
            let values = outs.split_off(s.carried);
            carried = outs;
            scans.iter_mut().zip(values).for_each(|(kept, v)| kept.push(v));
            // The elements that are stacked count by themselves; empty ones take memory, too.
            if iteration % LISTED == 0 {
                let bytes = s.scans() as u64 * LISTED as u64 * LIST_ENTRY;
                lists.push(budget::reserve(bytes).map_err(|e| wrap(e.into()))?);
            }
            iteration += 1;
        }
        let types = if iteration == 0 { self.types() } else { Vec::new() };
        let unknown =
            || OpError::Value("makes no iteration, and the type of what it stacks is not known".into());
        let outs = s.outs.iter().zip(lengths).enumerate().map(|(i, (o, length))| match o.kind {
            LoopOutputKind::LastValue => Ok(carried[o.index].clone()),
            kind => {
                let empty = scans[o.index].first().map(Tensor::ty).or_else(|| types.get(i).cloned());
                stack(kind, o.axis, &scans[o.index], length, &empty.ok_or_else(unknown)?)
            }
        });
        outs.collect::<Result<_, _>>().map_err(wrap)
    }

    /// The types of the outputs, as far as they are known without an iteration.
    fn types(&self) -> Vec<TensorType> {
        let facts: Vec<_> = self.ins.iter().map(|t| Some(Fact::constant(t.clone()))).collect();
        let inferred = infer::infer(&self.node.name, &self.node.op, &self.node.regions, &facts);
        inferred.map_or(Vec::new(), |i| i.outputs.into_iter().map(|f| f.ty).collect())
    }

    fn goes_on(&self, carried: &[Tensor]) -> Result<bool, IrError> {
        let Some(condition) = self.node.regions.get(1) else { return Ok(true) };
        let mut ins = carried.to_vec();
        ins.extend_from_slice(&self.ins[self.shape.captures().end..]);
        let asked = condition.eval(&ins)?;
        let wrap = |e| IrError::layer(&self.node.name, "loop", e);
        let missing = || wrap(OpError::Value("the condition gives nothing".into()));
        Ok(truth(asked.first().ok_or_else(missing)?).map_err(wrap)? != 0)
    }

    /// The length of each output, if it has one; refused where the count is known to be greater.
    fn lengths(&self, count: Option<i64>) -> Result<Vec<Option<usize>>, OpError> {
        let mut given = self.shape.lengths();
        let mut of = |o: &LoopOut| {
            let Some(i) = o.length.then(|| given.next()).flatten() else { return Ok(None) };
            let n = truth(&self.ins[i])?;
            let n =
                usize::try_from(n).map_err(|_| OpError::Value(format!("a loop output has length {n}")))?;
            match count.filter(|&c| !self.shape.condition && c as u64 > n as u64) {
                Some(c) => Err(too_short(n, c as usize)),
                None => Ok(Some(n)),
            }
        };
        self.shape.outs.iter().map(&mut of).collect()
    }
}
