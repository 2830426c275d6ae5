//! Operators that read their inputs through moves: each problem's inputs are parts of larger tensors whose dimensions are in
//! reverse order, and slice, transpose and operator are one region.

use super::problems;
use super::run::Subject;
use kiln_backend::compare::Expectation;
use kiln_ir::op::Movement;
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::{Attrs, Fact, Graph, IrError, Op, Tensor, ValueId};
use std::collections::BTreeMap;

/// Result of [`Subject::views`].
#[derive(Debug, Default)]
pub struct Views {
    /// Runs that agree with the oracle, by tactic.
    pub passed: BTreeMap<String, usize>,
    /// Operators whose region is refused.
    pub refused: BTreeMap<&'static str, usize>,
    /// Failures.
    pub failed: Vec<String>,
}

impl Subject {
    /// Runs one of `every` problems of the operators that `pick` names (all where it is `None`) behind moves, by every tactic.
    pub fn views(&self, pick: Option<&str>, every: usize) -> Views {
        let mut found = Views::default();
        let picked = |name: &str| pick.is_none_or(|p| p.split(',').any(|o| o == name));
        for p in problems().iter().filter(|p| picked(p.op.name())).step_by(every.max(1)) {
            let traits = p.op.def().traits;
            if traits.random || traits.side_effect || p.op.is_pointwise() || p.op.movement() != Movement::None
            {
                continue;
            }
            if let Err(why) = self.behind_moves(p, &mut found) {
                found.failed.push(format!("{} {}: {why}", p.op.name(), p.label));
            }
        }
        found
    }

    /// All inputs that have dimensions behind moves, or only the first one where that is refused.
    fn behind_moves(&self, p: &Problem, found: &mut Views) -> Result<(), String> {
        let movable = |i: &usize| {
            let given = p.inputs[*i].as_ref().is_some_and(|t| !t.shape().is_empty());
            given && !p.op.port(*i).is_some_and(|port| port.host)
        };
        let all: Vec<usize> = (0..p.inputs.len()).filter(movable).collect();
        let first: Vec<usize> = all.iter().copied().take(1).collect();
        let expected = Expectation::new(&p.op, &p.inputs, self.latitude)?;
        for moved in [all, first] {
            if moved.is_empty() {
                return Ok(());
            }
            let (graph, inputs) = moved_network(p, &moved).map_err(|e| e.to_string())?;
            let refused =
                self.by_every_tactic(graph, &inputs, &mut found.passed, |runs| expected.check(&runs.run()?))?;
            if refused.is_none() {
                return Ok(());
            }
        }
        *found.refused.entry(p.op.name()).or_default() += 1;
        Ok(())
    }
}

/// The problem with moves in front of these inputs, and tensors to run it with.
fn moved_network(p: &Problem, moved: &[usize]) -> Result<(Graph, Vec<Tensor>), IrError> {
    let mut g = Graph::new("views");
    let mut rng = Rng::new(p.inputs.len() as u64);
    let (mut given, mut ins) = (Vec::new(), Vec::new());
    for (i, t) in p.inputs.iter().enumerate() {
        let Some(t) = t else {
            ins.push(None);
            continue;
        };
        let host = p.op.port(i).is_some_and(|port| port.host);
        ins.push(Some(match (host, moved.contains(&i)) {
            (true, _) => g.add_constant(&format!("c{i}"), t.clone()),
            (false, false) => {
                given.push(t.clone());
                g.add_input(&format!("x{i}"), Fact::of(t.ty()))
            }
            (false, true) => {
                let (v, source) = part(&mut g, i, t, &mut rng)?;
                given.push(source);
                v
            }
        }));
    }
    g.outputs = g.add_node("y", p.op.clone(), &ins)?.clone();
    Ok((g, given))
}

/// Adds an input that holds a tensor as a part, with its dimensions in reverse order, and the moves that give the tensor.
fn part(g: &mut Graph, i: usize, t: &Tensor, rng: &mut Rng) -> Result<(ValueId, Tensor), IrError> {
    let reverse = Op::new("transpose", Attrs::new())?;
    let eval = |op: &Op, inputs: &[Tensor]| -> Result<Tensor, IrError> {
        let inputs: Vec<Option<Tensor>> = inputs.iter().cloned().map(Some).collect();
        let mut out = op.eval(&inputs).map_err(|e| IrError::layer("part", op.name(), e))?;
        Ok(out.swap_remove(0))
    };
    let turned = eval(&reverse, std::slice::from_ref(t))?;
    let axis = i % turned.shape().len();
    let around = |n: usize, rng: &mut Rng| {
        let mut shape = turned.shape().to_vec();
        shape[axis] = n;
        rng.tensor(t.dtype(), &shape)
    };
    let concat = Op::new("concat", Attrs::new().with("axis", axis as i64))?;
    let source = eval(&concat, &[around(1, rng), turned.clone(), around(2, rng)])?;
    let x = g.add_input(&format!("x{i}"), Fact::of(source.ty()));
    let bound = |g: &mut Graph, name: &str, n: usize| {
        let t = Tensor::from_elems(kiln_ir::DType::I64, &[1], &kiln_ir::Elems::I(vec![n as i64]));
        t.map(|t| g.add_constant(&format!("{name}{i}"), t)).ok_or(IrError::Structure("a bound".into()))
    };
    let (from, to) = (bound(g, "from", 1)?, bound(g, "to", 1 + turned.shape()[axis])?);
    let along = bound(g, "along", axis)?;
    let cut = g.add(&format!("cut{i}"), Op::new("slice", Attrs::new())?, &[x, from, to, along])?;
    let back = g.add(&format!("back{i}"), reverse, &[cut])?;
    Ok((back, source))
}
