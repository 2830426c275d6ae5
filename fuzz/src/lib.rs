//! What fuzz targets share: building and running what was read, within budgets.

use kiln::{BuildConfig, BuildOptions, Engine, IoMode, Plan, Source, Tensor};
use kiln_ir::{Elems, Graph, budget};
use kiln_reference::Reference;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Host memory of tensors.
pub const MEMORY: u64 = 192 << 20;
/// A build or a run that takes longer is stopped.
const TIME: Duration = Duration::from_secs(5);

/// Sets the budgets of the process.
pub fn limit() {
    budget::set_limit(MEMORY);
}

/// Builds a graph for the reference backend, without timing, and runs it once. Dimensions that nobody gives are 1.
pub fn build_and_run(graph: Graph) {
    limit();
    let config = BuildConfig { estimates: true, ..BuildConfig::default() };
    let options = BuildOptions { backend: Some("reference".into()), config, ..BuildOptions::default() };
    let (backends, _) = kiln::backends(&kiln::DiscoverOptions::linked());
    let start = Instant::now();
    let mut progress = |_: &str, _: usize, _: usize| start.elapsed() < TIME;
    let Ok(built) = kiln::build_with_progress(Source::Graph(graph), &options, &backends, &mut progress)
    else {
        return;
    };
    let bytes = built.plan.write().expect("a plan that was built is written");
    run(Plan::read(bytes).expect("a plan that was built is read"));
}

/// Loads a plan on the reference backend and runs it once, its inputs ones. Loops that do not end are stopped.
pub fn run(plan: Plan) {
    limit();
    let profile = plan.header.profiles.first().cloned().unwrap_or_default();
    let Ok(engine) = Engine::from_plan(plan, Arc::new(Reference::new())) else { return };
    let Ok(mut context) = engine.create_context() else { return };
    context.set_timeout(Some(TIME));
    let mut inputs = Vec::new();
    for t in engine.io_tensors().iter().filter(|t| t.mode == IoMode::Input) {
        let dims = match profile.shapes.get(&t.name) {
            Some(range) => range.opt.clone(),
            None => t.dims_or_minus_one(),
        };
        let shape: Vec<usize> = dims.iter().map(|&d| usize::try_from(d).unwrap_or(1)).collect();
        let volume = kiln_ir::tensor::volume(&shape).filter(|&n| n <= 1 << 20);
        let Some(volume) = volume else { return };
        let Some(ones) = Tensor::from_elems(t.dtype, &shape, &Elems::I(vec![1; volume])) else { return };
        inputs.push((t.name.as_str(), ones));
    }
    let _ = context.run(&inputs);
}
