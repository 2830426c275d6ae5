//! Choice of an optimization profile for the inputs of a run.

use crate::RuntimeError;
use kiln_ir::Tensor;
use kiln_plan::profile::inputs;
use kiln_plan::{IoTensor, Profile, Range};

/// Shape of one input of a run, and its elements if it is a shape input.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeInput {
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Elements, of shape inputs.
    pub content: Option<Tensor>,
}

/// The tightest profile that holds the inputs (the first of equals); an error says why the last does not.
pub fn select(profiles: &[Profile], io: &[IoTensor], given: &[RuntimeInput]) -> Result<usize, RuntimeError> {
    let mut why = None;
    let mut best: Option<(i64, usize)> = None;
    for (i, p) in profiles.iter().enumerate() {
        match check(p, i, io, given) {
            Ok(()) => best = Some(best.map_or((p.size(), i), |b| b.min((p.size(), i)))),
            Err(e) => why = Some(e),
        }
    }
    match (best, why) {
        (Some((_, i)), _) => Ok(i),
        (None, Some(e)) if profiles.len() == 1 => Err(e),
        (None, e) => Err(RuntimeError::NoProfile {
            count: profiles.len(),
            nearest: e.map_or_else(String::new, |e| e.to_string()),
        }),
    }
}

/// Checks inputs (in the order of the engine's) against a profile; the error names the first that is outside.
pub(crate) fn check(
    profile: &Profile,
    index: usize,
    io: &[IoTensor],
    given: &[RuntimeInput],
) -> Result<(), RuntimeError> {
    for (t, g) in inputs(io).zip(given) {
        let shape: Vec<i64> = g.shape.iter().map(|&d| d as i64).collect();
        outside(profile.shapes.get(&t.name), &t.name, "shape", shape, index)?;
        if let Some(content) = g.content.as_ref().filter(|_| profile.values.contains_key(&t.name)) {
            outside(profile.values.get(&t.name), &t.name, "values", content.to_i64(), index)?;
        }
    }
    Ok(())
}

fn outside(
    range: Option<&Range>,
    name: &str,
    what: &'static str,
    found: Vec<i64>,
    profile: usize,
) -> Result<(), RuntimeError> {
    match range {
        Some(r) if !r.contains(&found) => Err(RuntimeError::OutsideProfile {
            name: name.to_owned(),
            what,
            found,
            profile,
            min: r.min.clone(),
            max: r.max.clone(),
        }),
        _ => Ok(()),
    }
}
