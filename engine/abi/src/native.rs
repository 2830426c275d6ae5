//! The native form of layers: functions that put work into a stream of the device.

use crate::{kiln_error, kiln_field, kiln_layer_instance, kiln_str};
use core::ffi::c_void;

/// Device of a native form: a GPU by the CUDA driver. Addresses are those of `CUdeviceptr`, the stream is a `CUstream` of the
/// device's primary context, which is current during calls.
pub const KILN_DEVICE_CUDA: u32 = 1;

/// Flag of a native form: `enqueue` may be called while its stream records a graph, and the recorded work may run any number of
/// times. Without it the host splits its graphs, and calls `enqueue` in each run.
pub const KILN_NATIVE_CAPTURABLE: u32 = 1;
/// Flag of a native form: one state serves all shapes and addresses of a context. Without it each state gets the shapes and
/// addresses of its `attach` in every call, so that it may keep them.
pub const KILN_NATIVE_MOVABLE: u32 = 2;

/// Flag of a call: the stream records a graph.
pub const KILN_NATIVE_RECORDING: u32 = 1;

/// State of a native form, of one context of an engine. Never used by two calls at once.
pub struct kiln_native_state {
    _opaque: [u8; 0],
}

/// A tensor in the memory of a device: row-major, without gaps. This structure never changes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_native_tensor {
    /// Code of the element type, as in `kiln_tensor`.
    pub dtype: u32,
    /// Number of dimensions.
    pub ndim: u32,
    /// The dimensions, outermost first.
    pub dims: *const i64,
    /// Address of the first element; 0 of a tensor without elements.
    pub address: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// One call of a native form.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_native_call {
    /// Size of this structure as the host knows it, in bytes.
    pub struct_size: u32,
    /// `KILN_NATIVE_RECORDING`, or 0.
    pub flags: u32,
    /// Fields in the order of their definitions, defaults filled in.
    pub fields: *const kiln_field,
    /// Number of fields.
    pub field_count: u64,
    /// Inputs, which are read-only.
    pub inputs: *const kiln_native_tensor,
    /// Number of inputs.
    pub input_count: u64,
    /// Outputs.
    pub outputs: *const kiln_native_tensor,
    /// Number of outputs.
    pub output_count: u64,
    /// Address of memory of the device, of the size that the layer's `workspace` says. Its contents are undefined, and other layers
    /// use it between calls.
    pub workspace: u64,
    /// Bytes of the workspace.
    pub workspace_bytes: u64,
    /// The stream; null in `attach`.
    pub stream: *mut c_void,
    /// The device: a `CUdevice`.
    pub device: i32,
    /// Zero.
    pub reserved: u32,
}

/// A native form of a layer. Plans with it need the library in the version, and with the hash, that they were built with. A layer
/// whose sizes are found by a run, or whose outputs are aliases, has none.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_layer_native {
    /// Size of this structure as the library knows it, in bytes.
    pub struct_size: u32,
    /// One of `KILN_DEVICE_*`; others are ignored.
    pub device: u32,
    /// Bits `KILN_NATIVE_*`; unknown ones are ignored.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// Name of the tactic, unique among the layer's native forms.
    pub tactic: kiln_str,
    /// The combinations of element types that it takes, as in `kiln_layer`; empty: all of the layer's.
    pub types: kiln_str,
    /// Formula that is not 0 where it can run; empty: always.
    pub condition: kiln_str,
    /// Optional. Makes the state of a context, before the first `enqueue` and again for other shapes or addresses unless the form is
    /// `KILN_NATIVE_MOVABLE`. May allocate, load code and wait for the device. `instance` is null where there is no `create`.
    /// `[serial-per-object]`
    pub attach: Option<
        unsafe extern "C" fn(
            instance: *mut kiln_layer_instance,
            call: *const kiln_native_call,
            out: *mut *mut kiln_native_state,
            err: *mut kiln_error,
        ) -> i32,
    >,
    /// Required where there is `attach`. The device has done the work of earlier calls, unless it failed. `[serial-per-object]`
    pub detach: Option<unsafe extern "C" fn(state: *mut kiln_native_state)>,
    /// Required. Puts the layer's work into the stream and returns: it neither waits for the device nor uses other streams, and
    /// reads nothing from the host later on. `state` is null where there is no `attach`. `[serial-per-object]`
    pub enqueue: Option<
        unsafe extern "C" fn(
            instance: *mut kiln_layer_instance,
            state: *mut kiln_native_state,
            call: *const kiln_native_call,
            err: *mut kiln_error,
        ) -> i32,
    >,
}

// SAFETY: tables are constant; their functions say from which threads they are called.
unsafe impl Sync for kiln_layer_native {}
// SAFETY: as above.
unsafe impl Send for kiln_layer_native {}
