//! Steps that the library of a plug-in runs by its native form.

use super::memory::Range;
use super::native_stream::{self, Kept};
use super::queue::WgpuQueue;
use crate::gpu::Gpu;
use kiln_backend::BackendError;
use kiln_backend::launch::NativeKernel;
use kiln_gpu::native::{self, SharedState};
use kiln_gpu::{Operands, Planner, Queue as _};
use kiln_ops::plugin::native::NativeCall;
use std::sync::{Arc, Mutex, PoisonError};

/// A call with its memory. A library names it by addresses: the number of a range in the upper bits, bytes in the lower ones.
pub struct NativeWork {
    kernel: Arc<NativeKernel>,
    state: SharedState,
    call: NativeCall,
    ranges: Vec<Range>,
    /// Copies of inputs to the outputs that begin with their contents: (to, from, bytes).
    copies: Vec<(Range, Range, u64)>,
    /// Dispatches of the run before, which the next one mostly repeats.
    kept: Mutex<Vec<Kept>>,
}

impl NativeWork {
    /// Lets the library record its work; the time of it goes into stamps.
    pub fn record(
        &self,
        queue: &mut WgpuQueue,
        stamps: Option<wgpu::ComputePassTimestampWrites<'_>>,
    ) -> Result<(), BackendError> {
        if let Some(s) = &stamps {
            mark(queue, wgpu::ComputePassTimestampWrites { end_of_pass_write_index: None, ..s.clone() });
        }
        for (to, from, bytes) in &self.copies {
            queue.copy(from, to, *bytes)?;
        }
        let mut state = self.state.lock();
        if state.run.is_none() {
            state.run = Some(self.kernel.attach(&self.call)?);
        }
        let unready = || BackendError::Internal("a native form that is not ready".into());
        let run = state.run.as_mut().ok_or_else(unready)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let ran =
            native_stream::with(queue, &self.ranges, &mut kept, |stream| run.enqueue(&self.call, stream));
        state.failed |= ran.is_err();
        ran?;
        if let Some(s) = stamps {
            mark(queue, wgpu::ComputePassTimestampWrites { beginning_of_pass_write_index: None, ..s });
        }
        Ok(())
    }
}

/// Writes a timestamp.
fn mark(queue: &mut WgpuQueue, writes: wgpu::ComputePassTimestampWrites<'_>) {
    let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes: Some(writes) };
    drop(queue.encoder().begin_compute_pass(&descriptor));
}

/// The work of a step that a native form runs; `counts` asks for the call that finds sizes.
pub fn work(
    plan: &mut Planner<'_, Gpu>,
    step: usize,
    kernel: &Arc<NativeKernel>,
    operands: &Operands<Gpu>,
    counts: bool,
) -> Result<Option<NativeWork>, BackendError> {
    let mut ranges: Vec<Range> = Vec::new();
    let mut address = |r: &Range| {
        ranges.push(r.clone());
        native_stream::address(ranges.len())
    };
    let made = native::prepare(plan, step, kernel, operands, counts, &mut address)?;
    let Some(native::Prepared { call, copies }) = made else { return Ok(None) };
    let range = |all: &[Option<Range>], at: usize| {
        all.get(at).cloned().flatten().ok_or_else(|| kiln_gpu::lost(plan.kernel(step)))
    };
    let copies = copies
        .into_iter()
        .filter(|c| c.2 > 0)
        .map(|(j, i, n)| Ok((range(&operands.outputs, j)?, range(&operands.inputs, i)?, n)));
    let copies = copies.collect::<Result<Vec<_>, BackendError>>()?;
    let movable = kernel.form().movable;
    let kept = plan.memory.notes.get(&step).filter(|s| movable && !s.lock().failed);
    let state = kept.cloned().unwrap_or_default();
    if movable {
        plan.memory.notes.insert(step, state.clone());
    }
    Ok(Some(NativeWork { kernel: kernel.clone(), state, call, ranges, copies, kept: Mutex::default() }))
}
