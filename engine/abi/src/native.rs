//! The native form of layers: functions that put work into a stream of the device.

use crate::{kiln_error, kiln_field, kiln_layer_instance, kiln_str};
use core::ffi::c_void;

/// Device of a native form: a GPU by the CUDA driver. Addresses are those of `CUdeviceptr`, the stream is a `CUstream` of the
/// device's primary context, which is current during calls.
pub const KILN_DEVICE_CUDA: u32 = 1;
/// Device of a native form: one of wgpu, since 1.11. Addresses are names of memory: a number of bytes may be added to one within its
/// tensor. The stream is a `kiln_wgpu_stream`, whose functions put work behind the work that is there.
pub const KILN_DEVICE_WGPU: u32 = 2;

/// Flag of a native form: `enqueue` may be called while its stream records a graph, and the recorded work may run any number of
/// times. Without it the host splits its graphs, and calls `enqueue` in each run.
pub const KILN_NATIVE_CAPTURABLE: u32 = 1;
/// Flag of a native form: one state serves all shapes and addresses of a context. Without it each state gets the shapes and
/// addresses of its `attach` in every call, so that it may keep them.
pub const KILN_NATIVE_MOVABLE: u32 = 2;
/// Flag of a native form: it finds the sizes of a layer whose sizes a run finds, since 1.11. Each run calls `enqueue` twice: with
/// `KILN_NATIVE_COUNTING`, and then for outputs of these sizes.
pub const KILN_NATIVE_COUNTS: u32 = 4;

/// Flag of a call: the stream records a graph.
pub const KILN_NATIVE_RECORDING: u32 = 1;
/// Flag of a call, since 1.11: only `sizes` is written. Dimensions of outputs are bounds, and their addresses 0. The workspace keeps
/// its contents until the call that follows.
pub const KILN_NATIVE_COUNTING: u32 = 2;

/// State of a native form, of one context of an engine. Never used by two calls at once.
pub struct kiln_native_state {
    _opaque: [u8; 0],
}

/// One dispatch of a kernel in WGSL, since 1.11.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_wgpu_dispatch {
    /// Size of this structure as the library knows it, in bytes.
    pub struct_size: u32,
    /// Number of workgroups along each dimension, 1 to 65535; the dispatch does nothing if one is 0.
    pub groups: [u32; 3],
    /// The whole text of a module. Pipelines are made once for each text. Its group 0 has arguments at binding 0, as
    /// `var<storage, read>`, and memory at bindings 1, 2, …, as `var<storage, read_write>`.
    pub source: kiln_str,
    /// Name of the entry point.
    pub entry: kiln_str,
    /// Words of the arguments; at least one is bound.
    pub words: *const u32,
    /// Number of words.
    pub word_count: u64,
    /// Addresses of memory to bind, each at a multiple of 256 bytes from the beginning of its tensor. Each is bound up to the end
    /// of the tensor, in whole units of 16 bytes.
    pub memory: *const u64,
    /// Number of addresses.
    pub memory_count: u64,
}

/// The stream of a call on wgpu, since 1.11. It is valid for the call. Functions return a status. The host remembers why it refused
/// a call of one, and fails the run with that reason.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_wgpu_stream {
    /// Size of this structure as the host knows it, in bytes.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Argument of every function.
    pub ctx: *mut c_void,
    /// Puts a dispatch behind the work that is there. `[serial-per-object]`
    pub dispatch: Option<unsafe extern "C" fn(ctx: *mut c_void, dispatch: *const kiln_wgpu_dispatch) -> i32>,
    /// Puts a copy of bytes between tensors behind it: places and number are multiples of 4, and the number is rounded up to one.
    /// The memory may be of one tensor, if it does not overlap. `[serial-per-object]`
    pub copy: Option<unsafe extern "C" fn(ctx: *mut c_void, to: u64, from: u64, bytes: u64) -> i32>,
    /// Puts zeros into memory, as `copy` puts bytes. `[serial-per-object]`
    pub clear: Option<unsafe extern "C" fn(ctx: *mut c_void, to: u64, bytes: u64) -> i32>,
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
    /// The device: a `CUdevice`; 0 on wgpu.
    pub device: i32,
    /// Zero.
    pub reserved: u32,
    /// Address of words of 32 bits for the sizes that the layer finds. They are in the order of their first appearance in the
    /// shapes of the outputs. 0 of calls that find none. Since 1.11.
    pub sizes: u64,
    /// Formats of the inputs, codes of which 0 is the linear one; null if all are linear. A tensor in another format has the
    /// dimensions of the linear one, and memory in the order of the format. Since 1.11.
    pub input_formats: *const u32,
    /// Formats of the outputs, likewise. Channels that fill up a vector are written as zeros. Since 1.11.
    pub output_formats: *const u32,
}

/// A native form of a layer. Plans with it need the library in the version, and with the hash, that they were built with.
///
/// An output that is an alias begins with the contents of its input. On CUDA both have one address; on wgpu the input's address is
/// that of the output.
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
    /// `KILN_NATIVE_MOVABLE`. May allocate, load code and wait for the device; on wgpu it has no stream and makes state of the host
    /// only. `instance` is null where there is no `create`.
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
