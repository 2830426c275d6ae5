//! Operators that store their results as parts of larger tensors: operator and `insert_slice` are one region.

use super::problems;
use super::run::Subject;
use kiln_backend::compare::Expectation;
use kiln_ir::problem::Problem;
use kiln_ir::{Attrs, Fact, Graph, IrError, Op, Tensor};
use kiln_ops::slice::insert::{INSERT_SLICE, Placed};
use std::collections::BTreeMap;

/// Result of [`Subject::parts`].
#[derive(Debug, Default)]
pub struct Parts {
    /// Runs that agree with the oracle, by tactic.
    pub passed: BTreeMap<String, usize>,
    /// Operators whose region is refused.
    pub refused: BTreeMap<&'static str, usize>,
    /// Failures.
    pub failed: Vec<String>,
}

/// A problem whose result is a part.
struct Stored {
    graph: Graph,
    inputs: Vec<Tensor>,
    placed: Placed,
}

impl Subject {
    /// Runs one of `every` problems of the operators that `pick` names (all where it is `None`) by every tactic. Results
    /// lie in the middle of larger tensors.
    pub fn parts(&self, pick: Option<&str>, every: usize) -> Parts {
        let mut found = Parts::default();
        let picked = |name: &str| pick.is_none_or(|p| p.split(',').any(|o| o == name));
        for (number, p) in problems().iter().filter(|p| picked(p.op.name())).enumerate().step_by(every.max(1))
        {
            let traits = p.op.def().traits;
            if traits.random || traits.side_effect || traits.data_dependent || !traits.must_alias.is_empty() {
                continue;
            }
            if let Err(why) = self.as_part(p, number, &mut found) {
                found.failed.push(format!("{} {}: {why}", p.op.name(), p.label));
            }
        }
        found
    }

    fn as_part(&self, p: &Problem, number: usize, found: &mut Parts) -> Result<(), String> {
        let Some(Stored { graph, inputs, placed }) = stored(p, number).map_err(|e| e.to_string())? else {
            return Ok(());
        };
        let expected = Expectation::new(&p.op, &p.inputs, self.latitude)?;
        let shape = p.op.eval(&p.inputs).map_err(|e| e.to_string())?[0].shape().to_vec();
        let refused = self.by_every_tactic(graph, &inputs, &mut found.passed, |runs| {
            let whole = runs.run()?.swap_remove(0);
            let (part, rest) = cut(&whole, &shape, placed).ok_or("a part that can't be cut out")?;
            expected.check(&[part])?;
            // Memory that nobody wrote is all zeros or all ones, as poison is.
            let touched = rest.iter().any(|&b| b != 0 && b != 0xff);
            if touched && self.backend.name() != "cpu" {
                return Err("elements around the part were written".to_owned());
            }
            Ok(())
        })?;
        if refused.is_some() {
            *found.refused.entry(p.op.name()).or_default() += 1;
        }
        Ok(())
    }
}

/// The problem with an `insert_slice` behind it, and tensors to run it with; none of problems whose results can't be a part.
fn stored(p: &Problem, number: usize) -> Result<Option<Stored>, IrError> {
    let mut g = Graph::new("parts");
    let (mut inputs, mut ins) = (Vec::new(), Vec::new());
    for (i, t) in p.inputs.iter().enumerate() {
        ins.push(t.as_ref().map(|t| match p.op.port(i).is_some_and(|port| port.host) {
            true => g.add_constant(&format!("c{i}"), t.clone()),
            false => {
                inputs.push(t.clone());
                g.add_input(&format!("x{i}"), Fact::of(t.ty()))
            }
        }));
    }
    let y = match g.add_node("y", p.op.clone(), &ins)?[..] {
        [y] => y,
        _ => return Ok(None),
    };
    let Some(shape) = g.ty(y).static_dims().filter(|d| !d.is_empty() && !d.contains(&0)) else {
        return Ok(None);
    };
    if g.ty(y).dtype.bits() < 8 {
        return Ok(None);
    }
    // Around the part lie eight slices or a few, so that rows start at multiples of 16 bytes or not.
    let (axis, around) = (number % shape.len(), if number.is_multiple_of(3) { [8, 8] } else { [1, 2] });
    let size = shape[axis] + around[0] + around[1];
    let attrs = Attrs::new().with("axis", axis as i64).with("start", around[0] as i64);
    let attrs = attrs.with("size", size as i64).with("unset", true);
    let mut whole = shape.clone();
    whole[axis] = size;
    let place = |e| IrError::layer("part", INSERT_SLICE.as_str(), e);
    let placed = Placed::of(&attrs, &shape, &whole).map_err(place)?;
    g.outputs = g.add_node("whole", Op::new(INSERT_SLICE, attrs)?, &[None, Some(y)])?.clone();
    Ok(Some(Stored { graph: g, inputs, placed }))
}

/// The part of this shape, and the bytes of all other elements.
fn cut(whole: &Tensor, shape: &[usize], placed: Placed) -> Option<(Tensor, Vec<u8>)> {
    let size = whole.dtype().bits() as usize / 8;
    let bytes = whole.bytes();
    let mut own = vec![false; whole.len()];
    let mut part = Vec::new();
    for i in 0..shape.iter().product() {
        let at = placed.at(i);
        own[at] = true;
        part.extend_from_slice(bytes.get(at * size..(at + 1) * size)?);
    }
    let others = own.iter().enumerate().filter(|(_, own)| !**own);
    let rest = others.flat_map(|(i, _)| bytes[i * size..(i + 1) * size].to_vec()).collect();
    Some((Tensor::from_bytes(whole.dtype(), shape, part)?, rest))
}
