//! Facts of all values at the points that a build looks at.

use crate::{BuildConfig, BuildError};
use kiln_ir::{Fact, Graph};
use kiln_runtime::{Profile, graph_io};

/// Facts of all values, by value: what kernels are chosen for, and the ends of the profiles for the memory plan.
#[derive(Clone, Debug)]
pub struct Points {
    /// At the usual shapes of the first profile. In bodies of control flow sizes that only a run tells are guessed.
    pub opt: Vec<Fact>,
    /// The same without guesses.
    pub sure: Vec<Fact>,
    /// At the least, usual and greatest shapes of every profile.
    pub ends: Vec<Vec<Fact>>,
}

impl Points {
    /// Infers the graph at every point. Without profiles the network's own input types are the only point.
    pub fn of(g: &Graph, config: &BuildConfig) -> Result<Points, BuildError> {
        let io = graph_io(g);
        if config.profiles.is_empty() {
            let own: Vec<Fact> = g.inputs.iter().map(|&v| g.value(v).fact.clone()).collect();
            check_static(g, &own)?;
            let facts = g.infer_from(&own)?;
            return Ok(Points { opt: facts.clone(), sure: facts.clone(), ends: vec![facts] });
        }
        let mut points: Option<Points> = None;
        for profile in &config.profiles {
            profile.check(&io).map_err(|e| BuildError::Profile(e.to_string()))?;
            let [min, opt, max] = ends(g, profile)?;
            let first = || Points { opt: opt.clone(), sure: opt.clone(), ends: Vec::new() };
            let all = points.get_or_insert_with(first);
            all.ends.extend([min, opt, max]);
        }
        points.ok_or_else(|| BuildError::Profile("there is no profile".into()))
    }
}

fn ends(g: &Graph, profile: &Profile) -> Result<[Vec<Fact>; 3], BuildError> {
    let [min, opt, max] = profile.points(&graph_io(g)).map_err(|e| BuildError::Profile(e.to_string()))?;
    Ok([g.infer_from(&min)?, g.infer_from(&opt)?, g.infer_from(&max)?])
}

fn check_static(g: &Graph, facts: &[Fact]) -> Result<(), BuildError> {
    match facts.iter().zip(&g.inputs).find(|(f, _)| f.ty.static_dims().is_none()) {
        None => Ok(()),
        Some((f, &v)) => Err(BuildError::Profile(format!(
            "input \"{}\" has dynamic dimensions ({}); give its least, usual and greatest shape",
            g.value(v).name,
            f.ty
        ))),
    }
}
