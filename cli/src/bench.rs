//! Latencies of many runs.

use crate::query::{self, Moments};
use kiln::{Engine, ExecutionContext, RuntimeError, Tensor};
use std::time::{Duration, Instant};

/// Limits of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Runs before anything counts.
    pub warm_up: Duration,
    /// Least number of runs.
    pub iterations: usize,
    /// Least time of all runs.
    pub duration: Duration,
    /// Leave inputs and outputs on the device?
    pub resident: bool,
    /// The optimization profile that contexts run in; any, if there is none.
    pub profile: Option<usize>,
}

/// Runs to warm up at least: the first allocates, the second makes what launches the run as one.
const WARM_UPS: usize = 3;

/// Times of all counted runs, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// The very first run, which may compile and allocate.
    pub first: f64,
    /// Runs before anything counted, the first among them.
    pub warm_ups: usize,
    /// Times from the call of enqueue until the outputs are there, on the host or, where they stay, on the
    /// device.
    pub latency: Vec<f64>,
    /// Time of the call of enqueue alone.
    pub enqueue: Vec<f64>,
    /// Moments of all counted runs, since the first one began.
    pub moments: Vec<Moments>,
    /// Moment at which the first counted run began.
    pub began: Option<Instant>,
    /// Time of all counted runs together.
    pub wall: f64,
}

/// Runs until both limits are reached, the warm-up before, of [`WARM_UPS`] runs at least.
pub fn measure(
    context: &mut ExecutionContext,
    inputs: &[(String, Tensor)],
    limits: &Limits,
    mut tick: impl FnMut(usize),
) -> Result<(Times, kiln::RunCounters), RuntimeError> {
    for (name, tensor) in inputs {
        context.set_input(name, tensor.clone())?;
    }
    let start = Instant::now();
    let first = once(context, false, start)?;
    let mut times = Times { first: latency(&first), warm_ups: 1, ..Times::default() };
    if limits.resident {
        context.keep_on_device()?;
    }
    while start.elapsed() < limits.warm_up || times.warm_ups < WARM_UPS {
        once(context, limits.resident, start)?;
        times.warm_ups += 1;
    }
    let warm = context.counters();
    let start = Instant::now();
    times.began = Some(start);
    while times.latency.len() < limits.iterations.max(1) || start.elapsed() < limits.duration {
        let moments = once(context, limits.resident, start)?;
        times.enqueue.push(moments.enqueue_ns());
        times.latency.push(latency(&moments));
        times.moments.push(moments);
        tick(times.latency.len());
    }
    times.wall = start.elapsed().as_nanos() as f64;
    Ok((times, warm))
}

/// Runs `n` contexts at once, each in a thread, and returns the times of each.
pub fn together(
    engine: &Engine,
    inputs: &[(String, Tensor)],
    limits: &Limits,
    n: usize,
) -> Result<Vec<Times>, RuntimeError> {
    let mut contexts = (0..n).map(|_| engine.create_context()).collect::<Result<Vec<_>, _>>()?;
    contexts.iter_mut().try_for_each(|c| c.set_profile(limits.profile))?;
    std::thread::scope(|s| {
        let start = |context| s.spawn(move || measure(context, inputs, limits, |_| {}));
        let running: Vec<_> = contexts.iter_mut().map(start).collect();
        let done = running.into_iter().map(|thread| {
            let done = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            done.map(|(times, _)| times)
        });
        done.collect()
    })
}

/// Runs a second of contexts that ran at once.
pub fn rate(all: &[Times]) -> f64 {
    all.iter().map(|t| t.latency.len() as f64 / (t.wall / 1e9)).sum()
}

/// Moments of contexts that ran at once, since the first of their runs began.
pub fn moments(all: &[Times]) -> Vec<Moments> {
    let first = all.iter().filter_map(|t| t.began).min();
    let of = |(stream, t): (usize, &Times)| {
        let late = first.zip(t.began).map_or(0.0, |(first, own)| (own - first).as_nanos() as f64);
        t.moments.iter().map(|m| m.later(stream, late)).collect::<Vec<_>>()
    };
    all.iter().enumerate().flat_map(of).collect()
}

/// Time from the call of enqueue until the outputs are there.
fn latency(m: &Moments) -> f64 {
    m.output[1] - m.enqueue[0]
}

fn once(context: &mut ExecutionContext, resident: bool, since: Instant) -> Result<Moments, RuntimeError> {
    let mut moments = Moments::default();
    query::start(context, since, &mut moments)?;
    moments.input = [moments.enqueue[0]; 2];
    query::finish(context, since, !resident, &mut moments)?;
    Ok(moments)
}

/// Least, mean, percentiles, greatest and variation of some samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// The least.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// Half of the samples are at most this.
    pub p50: f64,
    /// 90 % of them are.
    pub p90: f64,
    /// 95 % of them are.
    pub p95: f64,
    /// 99 % of them are.
    pub p99: f64,
    /// The greatest.
    pub max: f64,
    /// Standard deviation over mean.
    pub variation: f64,
}

impl Stats {
    /// Percentiles of samples in any order, by nearest rank; `None` of none.
    pub fn of(samples: &[f64]) -> Option<Stats> {
        let mut s = samples.to_vec();
        s.sort_by(f64::total_cmp);
        let (min, max) = (*s.first()?, *s.last()?);
        let at = |percent: usize| {
            let rank = (s.len() * percent).div_ceil(100).max(1);
            s.get(rank - 1).copied().unwrap_or(max)
        };
        let mean = s.iter().sum::<f64>() / s.len() as f64;
        let variance = s.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / s.len() as f64;
        let variation = if mean > 0.0 { variance.sqrt() / mean } else { 0.0 };
        Some(Stats { min, mean, p50: at(50), p90: at(90), p95: at(95), p99: at(99), max, variation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let s: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let s = Stats::of(&s).unwrap();
        assert_eq!(
            (s.min, s.mean, s.p50, s.p90, s.p95, s.p99, s.max),
            (1.0, 50.5, 50.0, 90.0, 95.0, 99.0, 100.0)
        );
        let one = Stats::of(&[3.0]).unwrap();
        assert_eq!((one.p50, one.p99, one.variation), (3.0, 3.0, 0.0));
        assert_eq!(Stats::of(&[1.0, 3.0]).unwrap().variation, 0.5);
        assert_eq!(Stats::of(&[]), None);
    }
}
