//! The graph of a case through a whole build and on a device.

use super::{Case, inputs, near};
use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::Graph;
use kiln_runtime::{Engine, Profile};
use std::sync::Arc;

/// Builds the graph of a case for the first device of a backend, runs it for all its sizes and compares with the oracle.
pub fn build_and_run(case: &Case, backend: &Arc<dyn Backend>, tolerance: f64) -> Result<(), String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let g = Graph::from_text(&case.input).map_err(|e| text(&e))?;
    for (seed, &size) in case.settings.sizes.iter().enumerate() {
        let given = inputs(&g, size, seed as u64, &case.settings)?;
        let mut profile = Profile::new();
        for (&v, t) in g.inputs.iter().zip(&given) {
            let shape: Vec<i64> = t.shape().iter().map(|&d| d as i64).collect();
            profile.set_shape(&g.value(v).name, &shape, &shape, &shape).map_err(|e| text(&e))?;
        }
        let target = backend.targets().map_err(|e| text(&e))?.into_iter().next().ok_or("no device")?;
        let mut builder = Builder::new(backend.clone(), target.clone());
        builder.config =
            BuildConfig { profiles: vec![profile.clone()], max_tactics: 1, ..case.settings.config.clone() };
        let built = builder.build_graph(g.clone(), &mut |_, _, _| true).map_err(|e| text(&e))?;
        let engine = Engine::on_target(built.program, vec![profile], backend.as_ref(), target);
        let engine = engine.map_err(|e| text(&e))?;
        let names = g.inputs.iter().map(|&v| g.value(v).name.as_str());
        let named: Vec<_> = names.zip(given.iter().cloned()).collect();
        let mut context = engine.create_context().map_err(|e| text(&e))?;
        let found = context.run(&named).map_err(|e| text(&e))?;
        let wanted = g.eval(&given).map_err(|e| text(&e))?;
        for ((name, found), wanted) in found.iter().zip(&wanted) {
            near(wanted, found, tolerance).map_err(|e| format!("output {name} for size {size}: {e}"))?;
        }
        if found.len() != wanted.len() {
            return Err(format!("{} outputs, {} wanted", found.len(), wanted.len()));
        }
    }
    Ok(())
}
