//! Layers that need the host during a run.

use kiln_backend::{HostStep, Program, Step};

/// A layer at which a run waited for the host, or is expected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLayer {
    /// Names of its layers, as the inspector prints them.
    pub name: String,
    /// Reason, as part of a sentence.
    pub why: String,
    /// Advice on how to avoid the wait; may be empty.
    pub advice: String,
}

/// A step of a program, or of a body in it, and its name with those around it.
pub fn step_at<'p>(
    program: &'p Program,
    step: usize,
    inside: &[(usize, usize)],
) -> Option<(String, &'p Step)> {
    let mut step = program.steps.get(step)?;
    let mut name = step.name.clone();
    for &(body, inner) in inside {
        step = step.bodies.get(body)?.steps.get(inner)?;
        name = format!("{name} / {}", step.name);
    }
    Some((name, step))
}

impl HostLayer {
    /// A step of a program, or of a body in it, by name.
    pub fn of(program: &Program, s: HostStep) -> Option<HostLayer> {
        let (name, _) = step_at(program, s.step, &s.inside)?;
        Some(HostLayer { name, why: s.why, advice: s.advice })
    }
}
