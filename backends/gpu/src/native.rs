//! Calls of native forms of plug-in layers: tensors of a run as a library is given them, and states of contexts.

use crate::device::Range as _;
use crate::plan::{Launches, Operands, Planner, lost};
use crate::value::bytes_of;
use kiln_backend::BackendError;
use kiln_backend::launch::NativeKernel;
use kiln_ir::{Fact, Packing, TensorType};
use kiln_ops::plugin::native::{NativeCall, NativeRun, NativeTensor};
use kiln_ops::plugin::packings::Packings;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A native form in a context.
#[derive(Default)]
pub struct NativeState {
    /// None before it is attached.
    pub run: Option<Box<dyn NativeRun>>,
    /// Whether a call failed: it is not used again.
    pub failed: bool,
}

/// A state that calls share; used by one at a time.
#[derive(Clone, Default)]
pub struct SharedState(Arc<Mutex<NativeState>>);

impl SharedState {
    /// The state, for a call.
    pub fn lock(&self) -> MutexGuard<'_, NativeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call, and what has to be copied in front of it.
pub struct Prepared {
    /// The call.
    pub call: NativeCall,
    /// Copies of inputs to the outputs that begin with their contents: (output, input, bytes).
    pub copies: Vec<(usize, usize, u64)>,
}

/// The dimensions of a tensor with a format; the greatest where the run leaves sizes to the layer.
fn dims(ty: &TensorType, p: Packing, counting: bool) -> Result<Vec<i64>, BackendError> {
    let known = |d: &kiln_ir::Dim| d.as_const().or_else(|| d.upper_bound().filter(|_| counting)?.as_const());
    let linear = Packings::dims(p, &ty.dims).map_err(NativeKernel::error)?;
    linear.iter().map(known).collect::<Option<Vec<i64>>>().ok_or_else(|| {
        BackendError::Internal(format!("a native form is given a tensor {ty}, whose sizes are not known"))
    })
}

/// The call of a step that a native form runs; none where there is nothing to do. `counts` asks for the call that finds sizes.
/// `address` names memory.
pub fn prepare<D: Launches>(
    plan: &mut Planner<'_, D>,
    step: usize,
    kernel: &NativeKernel,
    operands: &Operands<D>,
    counts: bool,
    address: &mut dyn FnMut(&D::Range) -> u64,
) -> Result<Option<Prepared>, BackendError> {
    let k = plan.kernel(step);
    let packings = kernel.packings()?;
    let facts: Vec<Fact> = k.inputs.iter().flatten().map(|&v| plan.shapes.fact(v).clone()).collect();
    let lost = || lost(k);
    let mut inputs = Vec::with_capacity(facts.len());
    for (i, (fact, range)) in facts.iter().zip(operands.inputs.iter().flatten()).enumerate() {
        let bytes = bytes_of(&fact.ty)?;
        inputs.push(NativeTensor {
            dtype: fact.ty.dtype,
            dims: dims(&fact.ty, packings.input(i), false)?,
            address: if bytes == 0 { 0 } else { address(range) },
            bytes,
        });
    }
    let mut outputs = Vec::with_capacity(k.stored.len());
    for (j, (&(v, _), range)) in k.stored.iter().zip(&operands.outputs).enumerate() {
        let ty = plan.shapes.fact(v).ty.clone();
        let bytes = if counts { 0 } else { bytes_of(&ty)? };
        outputs.push(NativeTensor {
            dtype: ty.dtype,
            dims: dims(&ty, packings.output(j), counts)?,
            address: match range {
                Some(range) if bytes > 0 => address(range),
                _ => 0,
            },
            bytes,
        });
    }
    if inputs.len() != facts.len() || outputs.len() != k.stored.len() {
        return Err(lost());
    }
    if !counts && outputs.iter().all(|t| t.bytes == 0) {
        return Ok(None);
    }
    let mut copies = Vec::new();
    for (i, j) in kernel.aliases()?.into_iter().filter(|_| !counts) {
        let (input, output) = (inputs.get_mut(i).ok_or_else(lost)?, outputs.get(j).ok_or_else(lost)?);
        copies.push((j, i, output.bytes.min(input.bytes)));
        input.address = output.address;
    }
    let workspace_bytes = kernel.workspace(facts.iter().collect())?;
    let workspace = plan.scratch(step, workspace_bytes)?;
    let workspace = address(&workspace.part(0, workspace_bytes.max(16)));
    let sizes = if counts { address(&plan.memory.sizes(plan.queue)?) } else { 0 };
    let call = NativeCall {
        inputs,
        outputs,
        workspace,
        workspace_bytes,
        device: 0,
        sizes,
        counting: counts,
        packings,
    };
    Ok(Some(Prepared { call, copies }))
}
