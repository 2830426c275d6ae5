//! One run of a context, with the moments of its parts.

use crate::signals;
use kiln::{ExecutionContext, Outputs, RuntimeError, Tensor};
use std::time::Instant;

/// Moments of a run in nanoseconds since a measurement began: beginning and end of each part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    /// Number of the context.
    pub stream: usize,
    /// The copy of inputs.
    pub input: [f64; 2],
    /// The call that starts the run.
    pub enqueue: [f64; 2],
    /// From that call until the results are there.
    pub compute: [f64; 2],
    /// The copy of outputs.
    pub output: [f64; 2],
}

impl Moments {
    /// Length of the copy of inputs.
    pub fn input_ns(&self) -> f64 {
        self.input[1] - self.input[0]
    }

    /// Length of the call that starts the run.
    pub fn enqueue_ns(&self) -> f64 {
        self.enqueue[1] - self.enqueue[0]
    }

    /// Time until the results are there.
    pub fn compute_ns(&self) -> f64 {
        self.compute[1] - self.compute[0]
    }

    /// Length of the copy of outputs.
    pub fn output_ns(&self) -> f64 {
        self.output[1] - self.output[0]
    }

    /// The moments of a context of this number that began so many nanoseconds later.
    pub fn later(&self, stream: usize, ns: f64) -> Moments {
        let later = |part: [f64; 2]| part.map(|t| t + ns);
        let Moments { input, enqueue, compute, output, .. } = *self;
        Moments {
            stream,
            input: later(input),
            enqueue: later(enqueue),
            compute: later(compute),
            output: later(output),
        }
    }

    /// The sum of the parts one after the other.
    pub fn latency_ns(&self) -> f64 {
        self.input_ns() + self.compute_ns() + self.output_ns()
    }
}

/// Copies inputs of the host into a context. Their bytes are copied, as a caller with a buffer of its own has them.
pub fn copy_inputs(context: &mut ExecutionContext, inputs: &[(String, Tensor)]) -> Result<(), RuntimeError> {
    for (name, t) in inputs {
        let copy = Tensor::from_bytes(t.dtype(), t.shape(), t.bytes().to_vec()).unwrap_or_else(|| t.clone());
        context.set_input(name, copy)?;
    }
    Ok(())
}

/// Starts a run with the inputs set.
pub fn start(
    context: &mut ExecutionContext,
    since: Instant,
    moments: &mut Moments,
) -> Result<(), RuntimeError> {
    if signals::received().is_some() {
        return Err(RuntimeError::Cancelled { layer: String::new() });
    }
    let now = || since.elapsed().as_nanos() as f64;
    let begin = now();
    context.enqueue()?;
    moments.enqueue = [begin, now()];
    moments.compute = moments.enqueue;
    Ok(())
}

/// Waits for a run, and copies its outputs to the host if they are wanted.
pub fn finish(
    context: &mut ExecutionContext,
    since: Instant,
    outputs: bool,
    moments: &mut Moments,
) -> Result<Option<Outputs>, RuntimeError> {
    let now = || since.elapsed().as_nanos() as f64;
    context.wait()?;
    let done = now();
    moments.compute[1] = done;
    let outputs = if outputs { Some(context.outputs()?) } else { None };
    moments.output = [done, if outputs.is_some() { now() } else { done }];
    Ok(outputs)
}
