//! Steps that the library of a plug-in runs by its native form.

use super::kernel::CudaGpu;
use super::memory::Range;
use super::native_state::{NativeState, SharedState};
use crate::driver::{Call, Command, DriverError, Gpu, Stream};
use kiln_backend::BackendError;
use kiln_backend::launch::NativeKernel;
use kiln_gpu::{Operands, Planner, bytes_of};
use kiln_ir::{Fact, TensorType};
use kiln_ops::plugin::native::{NativeCall, NativeStream, NativeTensor};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A call with its addresses.
struct NativeWork {
    kernel: Arc<NativeKernel>,
    gpu: Arc<Gpu>,
    state: SharedState,
    call: NativeCall,
    /// Copies of inputs to the outputs that begin with their contents: (to, from, bytes).
    copies: Vec<(u64, u64, usize)>,
}

impl NativeWork {
    fn lock(&self) -> MutexGuard<'_, NativeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Call for NativeWork {
    fn prepare(&self) -> Result<(), DriverError> {
        let mut state = self.lock();
        if state.run.is_none() {
            self.gpu.bind()?;
            state.run = Some(self.kernel.attach(&self.call).map_err(DriverError::Layer)?);
        }
        Ok(())
    }

    fn run(&self, stream: &Stream) -> Result<(), DriverError> {
        self.copies.iter().try_for_each(|&(to, from, n)| stream.copy(to, from, n))?;
        let mut state = self.lock();
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

/// A tensor of a run; `range` may be longer.
fn tensor(ty: &TensorType, range: Range) -> Result<NativeTensor, BackendError> {
    let dims = ty.static_dims().ok_or_else(|| {
        BackendError::Internal(format!("a native form is given a tensor {ty}, whose sizes are not known"))
    })?;
    let bytes = bytes_of(ty)?;
    Ok(NativeTensor {
        dtype: ty.dtype,
        dims: dims.iter().map(|&d| d as i64).collect(),
        address: if bytes == 0 { 0 } else { range.address },
        bytes,
    })
}

/// The command of a step that a native form runs.
pub fn command(
    plan: &mut Planner<'_, CudaGpu>,
    step: usize,
    kernel: &Arc<NativeKernel>,
    operands: &Operands<CudaGpu>,
) -> Result<Option<Command>, BackendError> {
    let k = plan.kernel(step);
    let facts: Vec<Fact> = k.inputs.iter().flatten().map(|&v| plan.shapes.fact(v).clone()).collect();
    let lost = || kiln_gpu::lost(k);
    let mut inputs = Vec::with_capacity(facts.len());
    for (fact, range) in facts.iter().zip(operands.inputs.iter().flatten()) {
        inputs.push(tensor(&fact.ty, *range)?);
    }
    let mut outputs = Vec::with_capacity(k.stored.len());
    for (&(v, _), range) in k.stored.iter().zip(operands.outputs.iter().flatten()) {
        outputs.push(tensor(&plan.shapes.fact(v).ty, *range)?);
    }
    if inputs.len() != facts.len() || outputs.len() != k.stored.len() {
        return Err(lost());
    }
    if outputs.iter().all(|t| t.bytes == 0) {
        return Ok(None);
    }
    let mut copies = Vec::new();
    for (i, j) in kernel.aliases()? {
        let (input, output) = (inputs.get_mut(i).ok_or_else(lost)?, outputs.get(j).ok_or_else(lost)?);
        copies.push((output.address, input.address, output.bytes.min(input.bytes) as usize));
        input.address = output.address;
    }
    let workspace_bytes = kernel.workspace(facts.iter().collect())?;
    let workspace = plan.memory.scratch(plan.queue, workspace_bytes.max(16))?.address;
    let device = plan.loaded.device.gpu.number();
    let call = NativeCall { inputs, outputs, workspace, workspace_bytes, device };
    let movable = kernel.form().movable;
    let kept = plan.memory.notes.states.get(&step).filter(|_| movable);
    let usable = |s: &&SharedState| !s.lock().unwrap_or_else(PoisonError::into_inner).failed;
    let state = match kept.filter(usable) {
        Some(state) => state.clone(),
        None => Arc::new(Mutex::new(NativeState { run: None, failed: false })),
    };
    if movable {
        plan.memory.notes.states.insert(step, state.clone());
    }
    let (kernel, gpu) = (kernel.clone(), plan.loaded.device.gpu.clone());
    Ok(Some(Command::Library(Arc::new(NativeWork { kernel, gpu, state, call, copies }))))
}
