//! What fuzz targets share: building and running what was read, within budgets, and comparing results with the oracle's.

mod oracle;

use kiln::{BuildConfig, Engine, IoMode, Plan, Tensor};
use kiln_ir::problem::Rng;
use kiln_ir::stop::{self, Stop, StopFlag};
use kiln_ir::{Elems, Graph, budget};
use kiln_backend_cpu::Cpu;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// Host memory of tensors.
pub const MEMORY: u64 = 192 << 20;
/// A build or a run that takes longer is stopped.
const TIME: Duration = Duration::from_secs(5);
/// Runs that take longer are not compared, nor are those for which the oracle takes longer than [`TIME`].
const COMPARED: Duration = Duration::from_millis(100);

/// Inputs of a run, and its outputs or why it failed.
type Ran = (Vec<Tensor>, Result<Vec<Tensor>, String>);

/// Sets the budgets of the process.
pub fn limit() {
    budget::set_limit(MEMORY);
}

/// Builds a graph for the reference backend, without timing, and runs it once. Dimensions that nobody gives are 1.
pub fn build_and_run(graph: Graph) {
    limit();
    let config = BuildConfig { estimates: true, ..BuildConfig::default() };
    let (backends, _) = kiln::backends(&kiln::DiscoverOptions::linked());
    let builder = Engine::builder().backend("cpu").config(config).backends(backends);
    let start = Instant::now();
    let mut progress = |_: &str, _: usize, _: usize| start.elapsed() < TIME;
    let Ok(built) = builder.build_plan_with_progress(graph.clone(), &mut progress) else { return };
    let bytes = built.plan.write().expect("a plan that was built is written");
    let start = Instant::now();
    let ran = run(Plan::read(bytes).expect("a plan that was built is read"));
    if let Some((inputs, outputs)) = ran.filter(|_| start.elapsed() < COMPARED) {
        within(TIME, || oracle::compare(&graph, &inputs, outputs.as_deref().map_err(Clone::clone)));
    }
}

/// Runs `f` until it ends, or passes a checkpoint of the oracle after this time.
fn within(time: Duration, f: impl FnOnce()) {
    let flag = StopFlag::new();
    let (ended, end) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|threads| {
        let flag = &flag;
        threads.spawn(move || {
            if end.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                flag.set(Stop::Now);
            }
        });
        let done = stop::scope(flag, || stop::catch(f));
        drop(ended);
        drop(done);
    });
}

/// Loads a plan on the reference backend and runs it once. Inputs of integers are ones; loops that do not end are stopped.
/// `None` if it is refused before.
pub fn run(plan: Plan) -> Option<Ran> {
    limit();
    let profile = plan.header.profiles.first().cloned().unwrap_or_default();
    let engine = kiln_runtime::Engine::from_plan(plan, Arc::new(Cpu::new())).ok()?;
    let mut context = engine.create_context().ok()?;
    context.set_timeout(Some(TIME));
    let (mut names, mut inputs, mut rng) = (Vec::new(), Vec::new(), Rng::new(1));
    for t in engine.io_tensors().iter().filter(|t| t.mode == IoMode::Input) {
        let dims = match profile.shapes.get(&t.name) {
            Some(range) => range.opt.clone(),
            None => t.dims_or_minus_one(),
        };
        let shape: Vec<usize> = dims.iter().map(|&d| usize::try_from(d).unwrap_or(1)).collect();
        let volume = kiln_ir::tensor::volume(&shape).filter(|&n| n <= 1 << 20)?;
        let elems = match t.dtype.is_float() {
            true => Elems::F((0..volume).map(|_| rng.float(-1.0, 1.0)).collect()),
            false => Elems::I(vec![1; volume]),
        };
        inputs.push(Tensor::from_elems(t.dtype, &shape, &elems)?);
        names.push(t.name.as_str());
    }
    let given: Vec<_> = names.into_iter().zip(inputs.iter().cloned()).collect();
    let outputs = context.run(&given).map_err(|e| e.to_string());
    Some((inputs, outputs.map(|all| all.into_iter().map(|(_, t)| t).collect())))
}
