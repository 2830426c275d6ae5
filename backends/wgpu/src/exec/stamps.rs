//! Times of steps.

use super::memory::{Buffer, TENSOR};
use super::queue::WgpuQueue;
use crate::gpu::Gpu;
use kiln_backend::{BackendError, StepTime};
use kiln_gpu::{Buffer as _, Queue as _};

/// Timestamps around every step of a program.
pub struct Stamps {
    queries: wgpu::QuerySet,
    resolved: Buffer,
    steps: usize,
    /// Whether the last run has set any.
    pub set: bool,
}

/// The most queries of one set.
const MAX_QUERIES: usize = 4096;

impl Stamps {
    pub fn new(gpu: &Gpu, steps: usize) -> Result<Stamps, BackendError> {
        let count = steps * 2;
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
        Ok(Stamps { queries, resolved, steps, set: false })
    }

    /// The timestamps of a step, for its pass.
    pub fn of(&self, step: u32) -> wgpu::ComputePassTimestampWrites<'_> {
        wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(step * 2),
            end_of_pass_write_index: Some(step * 2 + 1),
        }
    }

    /// Durations of the steps that ran.
    pub fn read(&self, queue: &mut WgpuQueue) -> Result<Vec<StepTime>, BackendError> {
        if !self.set {
            return Ok(Vec::new());
        }
        let count = self.steps as u32 * 2;
        queue.encoder().resolve_query_set(&self.queries, 0..count, &self.resolved.buffer, 0);
        let from = (self.resolved.range(0, self.resolved.bytes()), self.steps * 16);
        let bytes = queue.read(&[from])?.pop().unwrap_or_default();
        let period = f64::from(queue.gpu.queue.get_timestamp_period());
        let ticks: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|c| u64::from_le_bytes(*c)).collect();
        let spans = ticks.chunks_exact(2).enumerate().filter(|(_, t)| t[1] >= t[0] && t[1] != 0);
        Ok(spans.map(|(step, t)| StepTime::new(step, (t[1] - t[0]) as f64 * period)).collect())
    }
}
