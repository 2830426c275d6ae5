//! Native forms of layers of libraries in contexts.

use super::call;
use super::contained::{Unwinding, contained};
use super::field_views::FieldViews;
use super::layer::{Instance, LoadedLayer};
use ::kiln_backend::BackendError;
use ::kiln_backend::native_call::with_native_call;
use kiln_abi::*;
use kiln_ir::attr::Attrs;
use kiln_ir::error::OpError;
use kiln_ops::plugin::native::{NativeCall, NativeDevice, NativeForm, NativeRun, NativeStream};
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// A native form of a library in a context, with an instance and a state of its own.
pub(super) struct LoadedNative {
    layer: Arc<LoadedLayer>,
    table: kiln_layer_native,
    fields: FieldViews,
    instance: Option<Instance>,
    state: Option<State>,
    /// Whether a call panicked: state and instance are neither used again nor destroyed.
    lost: bool,
}

/// A state, used by one call at a time.
struct State(NonNull<kiln_native_state>);

// SAFETY: the ABI lets states be used from any thread, by one at a time.
unsafe impl Send for State {}

impl LoadedNative {
    pub(super) fn new(
        layer: Arc<LoadedLayer>,
        fields: &Attrs,
        device: NativeDevice,
        tactic: &str,
        call: &NativeCall,
    ) -> Result<LoadedNative, OpError> {
        let named = |f: &NativeForm| f.device == device && f.tactic == tactic;
        let found = layer.natives().iter().find(|n| named(&n.typed.form));
        let table = found.map(|n| n.table).ok_or_else(|| {
            OpError::Unsupported(format!("the layer {} has no native form \"{tactic}\"", layer.name()))
        })?;
        layer.check_alive()?;
        let views = layer.views(fields);
        let instance = layer.instance(&views).map_err(|e| layer.error(e))?;
        let mut native = LoadedNative { layer, table, fields: views, instance, state: None, lost: false };
        if let Some(attach) = table.attach.map(Unwinding::unwinding) {
            let stream = NativeStream { handle: ptr::null_mut(), recording: false };
            let state = native.guarded(|n| {
                with_native_call((n.fields.as_ptr(), n.fields.len()), call, stream, |c| {
                    // SAFETY: the instance is this object's alone; views, place and sink live for the call.
                    call::object(|out, err| unsafe { attach(n.instance(), c, out, err) })
                })
            })?;
            native.state = Some(State(state));
        }
        Ok(native)
    }

    fn instance(&self) -> *mut kiln_layer_instance {
        self.instance.as_ref().map_or(ptr::null_mut(), Instance::as_ptr)
    }

    fn guarded<T>(&mut self, f: impl FnOnce(&LoadedNative) -> Result<T, BackendError>) -> Result<T, OpError> {
        self.layer.check_alive()?;
        if self.lost {
            return Err(self.layer.error(BackendError::Panicked("an earlier call of it".into())));
        }
        let found = f(self);
        self.lost = matches!(found, Err(BackendError::Panicked(_)));
        found.map_err(|e| self.layer.error(e))
    }
}

impl NativeRun for LoadedNative {
    fn enqueue(&mut self, call: &NativeCall, stream: NativeStream) -> Result<(), OpError> {
        self.guarded(|n| {
            let enqueue = n.table.enqueue.ok_or_else(|| BackendError::Internal("no enqueue".into()))?;
            let enqueue = enqueue.unwinding();
            let state = n.state.as_ref().map_or(ptr::null_mut(), |s| s.0.as_ptr());
            with_native_call((n.fields.as_ptr(), n.fields.len()), call, stream, |c| {
                // SAFETY: instance and state are this object's alone; views and the sink live for the call.
                call::status(|err| unsafe { enqueue(n.instance(), state, c, err) })
            })
        })
    }
}

impl Drop for LoadedNative {
    fn drop(&mut self) {
        if self.lost || self.layer.check_alive().is_err() {
            return;
        }
        if let (Some(detach), Some(state)) = (self.table.detach, self.state.take()) {
            let detach = detach.unwinding();
            // SAFETY: the library made the state, nobody uses it, and the library has not ended.
            if let Err(e) = contained(|| unsafe { detach(state.0.as_ptr()) }) {
                tracing::warn!("{}", self.layer.error(e));
            }
        }
        if let Some(instance) = self.instance.take() {
            self.layer.destroy(instance);
        }
    }
}
