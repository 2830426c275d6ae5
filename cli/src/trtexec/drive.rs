//! The measurement: contexts that run side by side until there are enough runs and time.

use super::settings::Settings;
use crate::failure::Failure;
use crate::query::{self, Moments};
use kiln::{Engine, ExecutionContext, Outputs, RuntimeError, Tensor};
use std::time::{Duration, Instant};

/// Runs to warm up at least: the first allocates, the second makes what launches the run as one.
const WARM_UPS: usize = 3;

/// Runs on the device alone that are timed at most.
const DEVICE_RUNS: usize = 100;

/// Place of inputs and outputs of a measured run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residence {
    /// The device's memory is the host's.
    Host,
    /// They stay on the device.
    Device,
    /// The backend copies inputs in each run.
    Copied,
}

/// All that was measured.
#[derive(Debug)]
pub struct Measured {
    /// Runs by their beginning.
    pub runs: Vec<Moments>,
    /// Time of all runs together, in nanoseconds.
    pub wall: f64,
    /// Runs before anything counted, and their time.
    pub warm_ups: usize,
    pub warm_up: Duration,
    /// Times of runs on the device alone in nanoseconds, where it can tell.
    pub device: Vec<f64>,
    pub residence: Residence,
}

/// One context with its inputs.
struct Stream<'a> {
    number: usize,
    context: ExecutionContext,
    inputs: &'a [(String, Tensor)],
}

/// Moment at which a series of runs is long enough.
struct Limit {
    runs: usize,
    time: Duration,
}

/// A context of the profile that is asked for, with its inputs set.
pub fn context(
    engine: &Engine,
    inputs: &[(String, Tensor)],
    profile: Option<usize>,
) -> Result<ExecutionContext, RuntimeError> {
    let mut context = engine.create_context()?;
    context.set_profile(profile)?;
    query::copy_inputs(&mut context, inputs)?;
    Ok(context)
}

/// One run outside of the measurement, with its outputs.
pub fn run_once(context: &mut ExecutionContext) -> Result<Outputs, RuntimeError> {
    context.enqueue()?;
    context.outputs()
}

/// Measures an engine.
pub fn measure(engine: &Engine, inputs: &[(String, Tensor)], s: &Settings) -> Result<Measured, Failure> {
    let mut streams = Vec::new();
    let mut residence = match kiln::is_linked(engine.backend()) {
        true => Residence::Host,
        false if s.transfers => Residence::Copied,
        false => Residence::Device,
    };
    for number in 0..s.streams {
        let mut context = context(engine, inputs, s.use_profile)?;
        run_once(&mut context)?;
        if residence == Residence::Device && context.keep_on_device().is_err() {
            residence = Residence::Copied;
        }
        streams.push(Stream { number, context, inputs });
    }
    let begin = Instant::now();
    let limit = Limit { runs: WARM_UPS, time: s.warm_up };
    let (warm, _) = all(&mut streams, s, &limit)?;
    let warm_up = begin.elapsed();
    let limit = Limit { runs: s.iterations.max(1), time: s.duration };
    let (mut runs, wall) = all(&mut streams, s, &limit)?;
    runs.sort_by(|a, b| a.input[0].total_cmp(&b.input[0]));
    let times = runs.len().clamp(20, DEVICE_RUNS) as u32;
    let device = streams.first_mut().and_then(|s| s.context.time_runs(times).ok()).unwrap_or_default();
    Ok(Measured { runs, wall, warm_ups: warm.len(), warm_up, device, residence })
}

/// Runs all contexts, each in a thread or all in this one, and returns their runs and the time of them all.
fn all(streams: &mut [Stream<'_>], s: &Settings, limit: &Limit) -> Result<(Vec<Moments>, f64), RuntimeError> {
    let since = Instant::now();
    let runs = if s.threads {
        std::thread::scope(|scope| {
            let start = |one| scope.spawn(move || series(std::slice::from_mut(one), s, limit, since));
            let running: Vec<_> = streams.iter_mut().map(start).collect();
            let mut all = Vec::new();
            for thread in running {
                all.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            Ok::<_, RuntimeError>(all)
        })?
    } else {
        series(streams, s, limit, since)?
    };
    Ok((runs, since.elapsed().as_nanos() as f64))
}

/// Runs contexts round by round: all are started before the first is waited for.
fn series(
    streams: &mut [Stream<'_>],
    s: &Settings,
    limit: &Limit,
    since: Instant,
) -> Result<Vec<Moments>, RuntimeError> {
    let mut runs = Vec::new();
    let mut rounds = 0;
    while rounds < limit.runs || since.elapsed() < limit.time {
        let first = runs.len();
        for stream in &mut *streams {
            runs.push(stream.start(s, since)?);
        }
        for (stream, moments) in streams.iter_mut().zip(&mut runs[first..]) {
            query::finish(&mut stream.context, since, s.transfers, moments)?;
        }
        rounds += 1;
        std::thread::sleep(s.idle);
    }
    Ok(runs)
}

impl Stream<'_> {
    /// Copies the inputs, if copies count, and starts a run.
    fn start(&mut self, s: &Settings, since: Instant) -> Result<Moments, RuntimeError> {
        let now = || since.elapsed().as_nanos() as f64;
        let begin = now();
        if s.transfers {
            query::copy_inputs(&mut self.context, self.inputs)?;
        }
        let end = if s.transfers { now() } else { begin };
        let mut moments = Moments { stream: self.number, input: [begin, end], ..Moments::default() };
        std::thread::sleep(s.sleep);
        query::start(&mut self.context, since, &mut moments)?;
        Ok(moments)
    }
}
