//! Times of steps.

use super::memory::{Buffer, TENSOR};
use super::queue::WgpuQueue;
use crate::gpu::Gpu;
use kiln_backend::{BackendError, StepTime};
use kiln_gpu::{Buffer as _, Queue as _};

/// Timestamps around every step of a program, of several runs of it.
pub struct Stamps {
    queries: wgpu::QuerySet,
    resolved: Buffer,
    steps: usize,
    /// Runs that there are timestamps for, and the one whose are set.
    runs: usize,
    pub run: usize,
    /// Whether the last run has set any.
    pub set: bool,
}

/// The most queries of one set.
const MAX_QUERIES: usize = 4096;

impl Stamps {
    pub fn new(gpu: &Gpu, steps: usize) -> Result<Stamps, BackendError> {
        Stamps::of_runs(gpu, steps, 1)
    }

    /// Timestamps of so many runs, or of fewer if there are more steps than fit.
    pub fn of_runs(gpu: &Gpu, steps: usize, runs: usize) -> Result<Stamps, BackendError> {
        let runs = runs.min(MAX_QUERIES / (steps * 2).max(1)).max(1);
        let count = steps * 2 * runs;
        if !gpu.timestamps {
            return Err(BackendError::Unsupported(format!("{} has no timestamps", gpu.target.device)));
        }
        if count > MAX_QUERIES || count == 0 {
            return Err(BackendError::Unsupported(format!("timing {steps} steps on {}", gpu.target.device)));
        }
        let queries = gpu.device.create_query_set(&wgpu::QuerySetDescriptor {
            label: None,
            ty: wgpu::QueryType::Timestamp,
            count: count as u32,
        });
        let usage = TENSOR.union(wgpu::BufferUsages::QUERY_RESOLVE);
        let resolved = Buffer::new(gpu.buffer("timestamps", count as u64 * 8, usage)?);
        Ok(Stamps { queries, resolved, steps, runs, run: 0, set: false })
    }

    /// The timestamps of a step, for its pass.
    pub fn of(&self, step: u32) -> wgpu::ComputePassTimestampWrites<'_> {
        let at = (self.run * self.steps) as u32 + step;
        wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(at * 2),
            end_of_pass_write_index: Some(at * 2 + 1),
        }
    }

    /// Durations of the steps that ran.
    pub fn read(&self, queue: &mut WgpuQueue) -> Result<Vec<StepTime>, BackendError> {
        let period = f64::from(queue.gpu.queue.get_timestamp_period());
        let ticks = self.ticks(queue, 1)?;
        let ran = ticks.iter().enumerate().filter(|(_, t)| ran(t));
        Ok(ran.map(|(step, [from, to])| StepTime::new(step, (to - from) as f64 * period)).collect())
    }

    /// Count of runs that there are timestamps for.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// For each of the first runs, nanoseconds from the beginning of its first step to the end of its last one.
    pub fn whole(&self, queue: &mut WgpuQueue, runs: usize) -> Result<Vec<f64>, BackendError> {
        let period = f64::from(queue.gpu.queue.get_timestamp_period());
        let ticks = self.ticks(queue, runs)?;
        let whole = |steps: &[[u64; 2]]| {
            let (from, to) = (steps.iter().map(|t| t[0]).min(), steps.iter().map(|t| t[1]).max());
            to.zip(from).map_or(0.0, |(to, from)| (to - from) as f64 * period)
        };
        let all = ticks.chunks(self.steps);
        Ok(all.map(|t| whole(&t.iter().copied().filter(ran).collect::<Vec<_>>())).collect())
    }

    /// Ticks at the ends of all steps of so many runs.
    fn ticks(&self, queue: &mut WgpuQueue, runs: usize) -> Result<Vec<[u64; 2]>, BackendError> {
        if !self.set {
            return Ok(Vec::new());
        }
        let steps = self.steps * runs.min(self.runs);
        let count = steps as u32 * 2;
        queue.encoder().resolve_query_set(&self.queries, 0..count, &self.resolved.buffer, 0);
        let from = (self.resolved.range(0, self.resolved.bytes()), steps * 16);
        let bytes = queue.read(&[from])?.pop().unwrap_or_default();
        let ticks: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|c| u64::from_le_bytes(*c)).collect();
        Ok(ticks.as_chunks::<2>().0.to_vec())
    }
}

/// Whether a step with these ticks has run.
fn ran(&[from, to]: &[u64; 2]) -> bool {
    to >= from && to != 0
}
