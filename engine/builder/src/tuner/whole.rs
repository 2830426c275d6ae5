//! Times of steps of control flow with their bodies in them, and of networks: by runs of the whole.
//!
//! A time depends on what was chosen inside, which is therefore part of its key.

use super::measure::of_this_run;
use super::{Choice, Tuner};
use crate::BuildError;
use crate::cache::{describe, key};
use crate::inputs::{can_be_timed, random_inputs};
use crate::search::GAIN;
use kiln_backend::{BackendError, Device, Program, Region, Step, Tactic, flow};
use kiln_ir::{Fact, Graph, NodeId, Source, Tensor, Weight};
use kiln_ops::control::LOOP;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

/// Nanoseconds that the samples of one candidate may take, after the first.
const PATIENCE: f64 = 5e8;
/// Nanoseconds of runs in front of them: clocks rise while a device works.
const WARM: f64 = 5e7;

impl Tuner<'_> {
    /// Chooses for a step of control flow whose bodies are built, where the backend has several ways to run it: its first, unless
    /// another is faster by [`GAIN`], or somebody chose. Steps that the device cannot time, or that random inputs may keep from coming to
    /// an end, keep the first.
    pub fn choose_whole(
        &mut self,
        step: &Step,
        region: &Region,
        facts: &[Fact],
    ) -> Result<Choice, BuildError> {
        let site = self.site(&step.name, region, facts)?;
        if site.candidates.len() < 2 && !site.chosen {
            return Ok(site.untimed(site.candidates.first().unwrap_or(&step.tactic)));
        }
        let graph = pinned(&site.concrete)?;
        let text = describe_whole(&graph, &step.bodies, true);
        let outline = describe_whole(&graph, &step.bodies, false);
        let [key, whatever] = [&text, &outline].map(|text| key(text, self.target, &self.flags()));
        let selected = match site.chosen {
            true => None,
            false => self.selected(&step.name, region, &site.concrete, &key, &site.candidates)?,
        };
        let chosen = site.chosen || selected.is_some();
        let candidates = selected.unwrap_or_else(|| site.candidates.clone());
        let first = site.untimed(candidates.first().unwrap_or(&step.tactic));
        let first = Choice { key: chosen.then(|| key.clone()), ..first };
        let ends = step.bodies.iter().all(ends);
        if !ends || !can_be_timed(&site.concrete) {
            return Ok(first);
        }
        self.used.extend([key.clone(), whatever.clone()]);
        let mut times = key.clone();
        if !self.known(&key, &candidates) {
            if self.config.estimates || candidates.len() < 2 {
                return Ok(first);
            }
            if !self.config.locked {
                self.measure_whole([(&key, text), (&whatever, outline)], step, (&graph, &candidates))?;
            } else if self.known(&whatever, &candidates) {
                self.note(format!(
                    "\"{}\" is chosen by its times with other kernels inside: the timing cache has none with these",
                    step.name
                ));
                times.clone_from(&whatever);
            } else {
                return Err(BuildError::CacheMiss { layer: step.name.clone(), key });
            }
        }
        // The backend's first stays unless another gains enough.
        let own = self.median(&times, &first.tactic);
        let best = self.pick(times, candidates);
        match best.ns.filter(|&ns| ns < own * (1.0 - GAIN)) {
            Some(_) => Ok(Choice { key: Some(key), ..best }),
            None => Ok(Choice { key: Some(key), ns: Some(own).filter(|ns| ns.is_finite()), ..first }),
        }
    }

    /// Times the ways to run a step. Its times are known by these keys: by what was chosen inside, and whatever was chosen, for locked builds
    /// that choose otherwise inside.
    fn measure_whole(
        &mut self,
        keys: [(&str, String); 2],
        step: &Step,
        (graph, candidates): (&Graph, &[Tactic]),
    ) -> Result<(), BuildError> {
        let inputs = random_inputs(graph)?;
        let device = self.opened()?;
        let _turn = self.store.as_ref().and_then(|store| store.turn());
        let start = Instant::now();
        let mut samples = Vec::with_capacity(candidates.len());
        for tactic in candidates {
            samples.push(match time(&*device, step, graph, tactic, &inputs, self.config.samples) {
                Ok(times) => times,
                Err(e) if of_this_run(&e) => {
                    self.note(format!("\"{}\" by {} is not timed: {e}", step.name, tactic.id()));
                    Vec::new()
                }
                Err(source) => {
                    return Err(BuildError::Backend { backend: self.backend.name().to_owned(), source });
                }
            });
        }
        self.spent.timing += start.elapsed();
        self.timed += candidates.len();
        for (key, text) in keys {
            self.remember(key, text, candidates, samples.clone());
        }
        Ok(())
    }
}

impl Tuner<'_> {
    /// The median time of a network in nanoseconds, measured if it is not known. `None` where it is neither known nor may be timed, or fails
    /// with random inputs. `text` says what it is made of; `make` makes a program of it, with inputs.
    pub fn time_network(
        &mut self,
        text: &str,
        make: impl FnOnce(&mut Self) -> Result<Option<(Program, Vec<Tensor>)>, BuildError>,
    ) -> Result<Option<f64>, BuildError> {
        let key = key(text, self.target, &self.flags());
        let network = [Tactic::plain("network")];
        if !self.known(&key, &network) {
            if self.config.locked || self.config.estimates {
                return Ok(None);
            }
            let Some((program, inputs)) = make(self)? else { return Ok(None) };
            let about = format!("network \"{}\" of {} steps", program.graph.name, program.steps.len());
            let device = self.opened()?;
            let _turn = self.store.as_ref().and_then(|store| store.turn());
            let start = Instant::now();
            let times = match time_program(&*device, program, &inputs, self.config.samples) {
                Ok(times) => times,
                Err(e) if of_this_run(&e) => {
                    self.note(format!("the {about} is not timed as a whole: {e}"));
                    Vec::new()
                }
                Err(source) => {
                    return Err(BuildError::Backend { backend: self.backend.name().to_owned(), source });
                }
            };
            self.spent.timing += start.elapsed();
            self.timed += 1;
            self.remember(&key, about, &network, vec![times]);
        }
        let median = self.median(&key, &network[0]);
        self.used.insert(key);
        Ok(Some(median).filter(|ns| ns.is_finite()))
    }
}

/// Times of runs of a program that is this step alone.
fn time(
    device: &dyn Device,
    step: &Step,
    graph: &Graph,
    tactic: &Tactic,
    inputs: &[Tensor],
    samples: u32,
) -> Result<Vec<f64>, BackendError> {
    let mut program = Program::single_step(graph.clone(), tactic.clone(), Vec::new());
    for s in &mut program.steps {
        (s.blob, s.bodies) = (step.blob.clone(), step.bodies.iter().map(usual).collect());
    }
    time_program(device, program, inputs, samples)
}

/// Times of runs of a program: at least one, and no more than [`PATIENCE`] allows.
fn time_program(
    device: &dyn Device,
    program: Program,
    inputs: &[Tensor],
    samples: u32,
) -> Result<Vec<f64>, BackendError> {
    let shapes = Arc::new(program.shapes(inputs)?);
    let mut context = device.load(Arc::new(program))?.context()?;
    context.enqueue(inputs, &shapes)?;
    context.outputs()?;
    let first = context.time_runs(1)?.into_iter().fold(1.0, f64::max);
    context.time_runs((WARM / first).clamp(1.0, 1000.0) as u32)?;
    let fits = (PATIENCE / first).clamp(1.0, f64::from(samples.max(1)));
    context.time_runs(fits as u32)
}

/// A body with the kernels of its usual shapes alone: a program of one step has no other cases.
fn usual(body: &Program) -> Program {
    let mut body = body.clone();
    body.cases.clear();
    for s in &mut body.steps {
        s.alternatives.clear();
        s.bodies = s.bodies.iter().map(usual).collect();
    }
    body
}

/// Whether all loops in a body make as many iterations whatever they are given.
fn ends(body: &Program) -> bool {
    let counted = |s: &Step| body.region(s).is_ok_and(|r| flow::iterations(&r).is_some());
    body.steps.iter().all(|s| {
        let looped = flow::node(&body.graph, s).is_some_and(|n| n.op.is(LOOP));
        (!looped || counted(s)) && s.bodies.iter().all(ends)
    })
}

/// The region with inputs whose contents are known as constants of its own.
fn pinned(concrete: &Graph) -> Result<Graph, BuildError> {
    let mut g = concrete.clone();
    for v in concrete.inputs.clone() {
        if let Some(tensor) = concrete.value(v).fact.as_const().cloned() {
            g.value_mut(v).source = Source::Weight(Weight { tensor, name: None, recipe: None });
            g.inputs.retain(|&i| i != v);
        }
    }
    g.refresh()?;
    Ok(g)
}

/// A region with its bodies, as text, and with what was chosen for their steps if that is wanted.
fn describe_whole(g: &Graph, bodies: &[Program], chosen: bool) -> String {
    let mut s = describe(g);
    for (i, body) in bodies.iter().enumerate() {
        let _ = writeln!(s, "body {i}");
        s.push_str(&canonical(&body.graph, body.graph.order()));
        for step in &body.steps {
            if chosen {
                let _ =
                    writeln!(s, "{} {} of {}", step.tactic.id(), step.tactic.source_hash, step.nodes.len());
            }
            if !step.bodies.is_empty() {
                s.push_str(&describe_whole(&Graph::new(""), &step.bodies, chosen));
            }
        }
    }
    s
}

/// Nodes as text, whatever their values are called.
fn canonical(g: &Graph, nodes: &[NodeId]) -> String {
    Region::extract(g, nodes).map_or_else(|_| describe(g), |r| describe(&r.graph))
}
