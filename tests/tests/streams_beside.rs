//! Random networks whose branches run in several streams give the same bits as in one. Needs a CUDA device, or the emulated one
//! (`scripts/emulate.sh`), which runs the nodes of graphs in any order that their dependencies permit.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::Tensor;
use kiln_plan::Plan;
use kiln_runtime::Engine;
use kiln_tests::backends;
use kiln_tests::random::{Sample, network};
use std::sync::Arc;

const LAYERS: usize = 20;

/// Outputs of a few runs, and how many layers are beside the main stream.
fn run(backend: &Arc<dyn Backend>, sample: &Sample, streams: usize) -> (Vec<Vec<Tensor>>, usize) {
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target.clone());
    builder.config =
        BuildConfig { estimates: true, search: false, max_aux_streams: streams, ..BuildConfig::default() };
    let program = builder.build(&sample.network).unwrap().program;
    let beside = program.streams.iter().filter(|&&s| s > 0).count();
    // The verifier of plans finds values of one memory that are touched at the same time.
    let plan = Plan::read(Plan::new(program, Vec::new(), target).write().unwrap()).unwrap();
    let engine = Engine::from_plan(plan, backend.clone()).unwrap();
    let names: Vec<String> = engine.io_tensors().iter().map(|t| t.name.clone()).collect();
    let inputs: Vec<(&str, Tensor)> =
        names.iter().map(String::as_str).zip(sample.inputs.iter().cloned()).collect();
    let mut context = engine.create_context().unwrap();
    let one = |_| context.run(&inputs).unwrap().into_iter().map(|(_, t)| t).collect();
    ((0..3).map(one).collect(), beside)
}

#[test]
fn branches_of_random_networks_give_the_same_bits() {
    let Some(backend) = backends::cuda().unwrap() else {
        println!("skipped: no CUDA device");
        return;
    };
    let count = std::env::var("KILN_STREAM_CASES").ok().and_then(|v| v.parse().ok()).unwrap_or(6);
    let mut beside = 0;
    for seed in 0..count {
        let sample = network(seed, LAYERS).unwrap();
        let (wanted, none) = run(&backend, &sample, 0);
        assert_eq!(none, 0);
        for streams in [1, 3, 15] {
            let (found, some) = run(&backend, &sample, streams);
            found.iter().for_each(|o| assert_eq!(*o, wanted[0], "seed {seed}, {streams} streams"));
            beside += some;
        }
    }
    assert!(beside > 0, "networks have branches");
}
