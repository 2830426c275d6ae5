//! Steps that the library of a plug-in runs by its native form.

use super::kernel::CudaGpu;
use super::memory::Range;
use crate::driver::{Call, Command, DriverError, Gpu, Stream};
use kiln_backend::BackendError;
use kiln_backend::launch::NativeKernel;
use kiln_gpu::native::{self, SharedState};
use kiln_gpu::{Operands, Planner};
use kiln_ops::plugin::native::{NativeCall, NativeStream};
use std::sync::Arc;

/// A call with its addresses.
struct NativeWork {
    kernel: Arc<NativeKernel>,
    gpu: Arc<Gpu>,
    state: SharedState,
    call: NativeCall,
    /// Copies of inputs to the outputs that begin with their contents: (to, from, bytes).
    copies: Vec<(u64, u64, usize)>,
}

impl Call for NativeWork {
    fn prepare(&self) -> Result<(), DriverError> {
        let mut state = self.state.lock();
        if state.run.is_none() {
            self.gpu.bind()?;
            state.run = Some(self.kernel.attach(&self.call).map_err(DriverError::Layer)?);
        }
        Ok(())
    }

    fn run(&self, stream: &Stream) -> Result<(), DriverError> {
        self.copies.iter().try_for_each(|&(to, from, n)| stream.copy(to, from, n))?;
        let mut state = self.state.lock();
        let unready = || DriverError::Layer(BackendError::Internal("a native form that is not ready".into()));
        let at = NativeStream { handle: stream.handle(), recording: stream.is_recording() };
        let ran = state.run.as_mut().ok_or_else(unready)?.enqueue(&self.call, at);
        state.failed |= ran.is_err();
        ran.map_err(|e| DriverError::Layer(NativeKernel::error(e)))
    }

    fn is_capturable(&self) -> bool {
        self.kernel.form().capturable
    }
}

/// The command of a step that a native form runs; `counts` asks for the call that finds sizes.
pub fn command(
    plan: &mut Planner<'_, CudaGpu>,
    step: usize,
    kernel: &Arc<NativeKernel>,
    operands: &Operands<CudaGpu>,
    counts: bool,
) -> Result<Option<Command>, BackendError> {
    let made = native::prepare(plan, step, kernel, operands, counts, &mut |r: &Range| r.address)?;
    let Some(native::Prepared { mut call, copies }) = made else { return Ok(None) };
    call.device = plan.loaded.device.gpu.number();
    let address = |all: &[Option<Range>], at: usize| {
        let range = all.get(at).copied().flatten();
        range.map(|r| r.address).ok_or_else(|| kiln_gpu::lost(plan.kernel(step)))
    };
    let copies = copies
        .into_iter()
        .filter(|c| c.2 > 0)
        .map(|(j, i, n)| Ok((address(&operands.outputs, j)?, address(&operands.inputs, i)?, n as usize)));
    let copies = copies.collect::<Result<Vec<_>, BackendError>>()?;
    let movable = kernel.form().movable;
    let kept = plan.memory.notes.states.get(&step).filter(|s| movable && !s.lock().failed);
    let state = kept.cloned().unwrap_or_default();
    if movable {
        plan.memory.notes.states.insert(step, state.clone());
    }
    let (kernel, gpu) = (kernel.clone(), plan.loaded.device.gpu.clone());
    Ok(Some(Command::Library(Arc::new(NativeWork { kernel, gpu, state, call, copies }))))
}
