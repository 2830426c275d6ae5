//! Records the algorithms that a build chose, and lets a second build choose the same: a reproducible engine.
//!
//! ```text
//! cargo run -p kiln --example algorithm_selector -- model.onnx
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use kiln::selection::{Algorithm, AlgorithmSelector, LayerContext, StepReport};
use kiln::{Built, Engine, EngineBuilder, Error};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Chosen tactics by layer.
type Choices = BTreeMap<String, String>;

/// Permits every algorithm, and records what was chosen.
#[derive(Default)]
struct Recorder {
    choices: Choices,
}

impl AlgorithmSelector for Recorder {
    fn select(&mut self, _: &LayerContext, choices: &[Algorithm]) -> Result<Vec<usize>, String> {
        Ok((0..choices.len()).collect())
    }

    fn report(&mut self, layers: &[StepReport]) {
        self.choices = layers.iter().map(|l| (l.name.clone(), l.tactic.clone())).collect();
    }
}

/// Permits the recorded algorithms only.
struct Replayer {
    choices: Choices,
}

impl AlgorithmSelector for Replayer {
    fn select(&mut self, layer: &LayerContext, choices: &[Algorithm]) -> Result<Vec<usize>, String> {
        let recorded = self.choices.get(&layer.layer);
        let same = |(i, a): (usize, &Algorithm)| (Some(&a.tactic) == recorded).then_some(i);
        // None where the search looks at layers that the recorded engine does not have: any algorithm will do.
        Ok(choices.iter().enumerate().filter_map(same).collect())
    }

    fn report(&mut self, layers: &[StepReport]) {
        for l in layers {
            println!("{}: {}", l.name, l.tactic);
        }
    }
}

/// Builds a model twice, the second time by the recorded choices; the tactics of both.
pub fn record_and_replay(model: &str, builder: &EngineBuilder) -> Result<[Vec<String>; 2], Error> {
    let recorder = Arc::new(Mutex::new(Recorder::default()));
    let first = builder.clone().selector(recorder.clone()).build_plan(model)?;
    let choices = recorder.lock().unwrap_or_else(PoisonError::into_inner).choices.clone();
    let replayer = Arc::new(Mutex::new(Replayer { choices }));
    // By the times of the first build the search cuts the network into the same layers.
    let second = builder.clone().selector(replayer).times(first.times.clone()).build_plan(model)?;
    let tactics = |b: &Built| -> Vec<String> { b.report.steps.iter().map(|s| s.tactic.clone()).collect() };
    Ok([tactics(&first), tactics(&second)])
}

fn main() -> Result<(), Error> {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/lenet_a.onnx");
    let model = std::env::args().nth(1).unwrap_or_else(|| own.to_owned());
    let [first, second] = record_and_replay(&model, &Engine::builder())?;
    println!("the same algorithms: {}", first == second);
    Ok(())
}
