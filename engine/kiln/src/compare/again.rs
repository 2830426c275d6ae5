//! A plan whose network is built again, so that its kernels can be cut.

use super::Trial;
use super::side::Side;
use crate::Error;
use crate::build::BuildOptions;
use kiln_backend::Program;
use kiln_builder::{Algorithm, AlgorithmSelector, LayerContext, Progress, Selector, StepReport};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

impl Trial<'_> {
    /// The network built by these options with the tactics of the other side's engine, after a run, and the options of further builds.
    pub(super) fn again(
        &self,
        options: &BuildOptions,
        other: &Side,
        progress: Progress<'_>,
    ) -> Result<(BuildOptions, Side), Error> {
        let mut options = options.clone();
        let program = other.engine.program();
        let mut tactics = HashMap::new();
        collect(&program, "", &mut tactics);
        options.replay = None;
        options.config.selector = Some(Selector::new(Arc::new(Mutex::new(AsBuilt { tactics }))));
        // Layers for which the engine has no tactic get the one that the backend expects to be fastest.
        options.config.estimates = true;
        let plan = self.build(&options, progress)?.plan;
        Ok((options, self.execute(plan, true)?))
    }
}

/// Tactics by layer, with names of the bodies that the layer is in.
fn collect(program: &Program, path: &str, all: &mut HashMap<String, Vec<String>>) {
    for s in &program.steps {
        all.insert(format!("{path}{}", s.name), s.tactics().map(|t| t.id()).collect());
        for body in &s.bodies {
            collect(body, &format!("{path}{} / ", body.graph.name), all);
        }
    }
}

/// Selects the tactics of an engine.
struct AsBuilt {
    tactics: HashMap<String, Vec<String>>,
}

impl AlgorithmSelector for AsBuilt {
    fn select(&mut self, layer: &LayerContext, choices: &[Algorithm]) -> Result<Vec<usize>, String> {
        let Some(wanted) = self.tactics.get(&layer.layer) else { return Ok(Vec::new()) };
        let found = choices.iter().enumerate().filter(|(_, c)| wanted.contains(&c.tactic));
        Ok(found.map(|(i, _)| i).collect())
    }

    fn report(&mut self, _: &[StepReport]) {}
}
