//! Random networks, built with and without folding and fusion, agree with the oracle on the graph as it was written.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::compare::check_chain;
use kiln_backend::{Backend, Device, Target};
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::Tensor;
use kiln_tests::backends;
use kiln_tests::random::{Sample, network};
use std::sync::Arc;

const LAYERS: usize = 20;

struct Bench {
    backend: Arc<dyn Backend>,
    target: Target,
    device: Arc<dyn Device>,
}

impl Bench {
    fn of(backend: Arc<dyn Backend>) -> Bench {
        let target = backend.targets().unwrap().remove(0);
        let device = backend.open(&target).unwrap();
        Bench { backend, target, device }
    }

    fn run(&self, sample: &Sample, config: BuildConfig) -> Vec<Tensor> {
        let mut b = Builder::new(self.backend.clone(), self.target.clone());
        b.config = config;
        let program = Arc::new(b.build(&sample.network).unwrap().program);
        let shapes = Arc::new(program.shapes(&sample.inputs).unwrap());
        let mut context = self.device.load(program).unwrap().context().unwrap();
        // Twice: the second run finds the memory as the first left it.
        context.enqueue(&sample.inputs, &shapes).unwrap();
        context.outputs().unwrap();
        context.enqueue(&sample.inputs, &shapes).unwrap();
        context.outputs().unwrap()
    }
}

fn check(backend: Arc<dyn Backend>, seeds: std::ops::Range<u64>) {
    let bench = Bench::of(backend);
    for seed in seeds {
        let sample = network(seed, LAYERS).unwrap();
        let graph = sample.network.lower().unwrap();
        assert!(graph.nodes().count() >= LAYERS);
        let wanted = graph.eval(&sample.inputs).unwrap();
        for (fold, fuse) in [(true, true), (true, false), (false, true), (false, false)] {
            let config = BuildConfig { fold, fuse, samples: 1, max_tactics: 1, ..BuildConfig::default() };
            let found = bench.run(&sample, config);
            let same = check_chain(&wanted, &found);
            let text = || graph.to_text();
            let name = bench.backend.name();
            same.unwrap_or_else(|e| panic!("{name}, seed {seed}, fold {fold}, fuse {fuse}: {e}\n{}", text()));
        }
    }
}

#[test]
fn random_networks_agree_with_the_oracle() {
    check(backends::cpu(), 0..150);
}

#[test]
fn random_networks_agree_with_the_oracle_on_wgpu() {
    backends::wgpu().unwrap().into_iter().for_each(|b| check(b, 0..25));
}
