//! The interface "kiln.backend/1".

use crate::{kiln_bytes, kiln_error, kiln_payload, kiln_sink, kiln_tensor, kiln_tensor_sink};

/// A backend: proposes tactics, compiles them, opens devices.
pub struct kiln_backend {
    _opaque: [u8; 0],
}

/// An open device.
pub struct kiln_device {
    _opaque: [u8; 0],
}

/// A loaded program: kernels and weights, immutable, shared by its contexts.
pub struct kiln_executable {
    _opaque: [u8; 0],
}

/// One run in flight at a time.
pub struct kiln_context {
    _opaque: [u8; 0],
}

/// Request to time one blob.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_time_request {
    /// Size of this structure as the host knows it, in bytes.
    pub struct_size: u32,
    /// Number of samples.
    pub samples: u32,
    /// The graph of the region, its shapes concrete: a Graph.
    pub graph: kiln_payload,
    /// A Tactic.
    pub tactic: kiln_bytes,
    /// Bytes that `backend_compile` returned for the candidate.
    pub blob: kiln_bytes,
    /// Inputs in the order of the region's.
    pub inputs: *const kiln_tensor,
    /// Length of the array of inputs.
    pub input_count: u64,
}

/// Device memory that the caller hands out, for what a context needs beside its arena.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_allocator {
    /// Size of this structure as the host knows it, in bytes.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Passed to both functions.
    pub ctx: *mut core::ffi::c_void,
    /// The address of `bytes` bytes at a multiple of `alignment`, a power of two. Work that is put into the stream from now on uses them.
    /// Null where there is no such memory. `[any-thread]`
    pub allocate: Option<
        unsafe extern "C" fn(
            ctx: *mut core::ffi::c_void,
            bytes: u64,
            alignment: u64,
            stream: *mut core::ffi::c_void,
        ) -> *mut core::ffi::c_void,
    >,
    /// Takes memory back, once the work that is in the stream is done. `[any-thread]`
    pub free: Option<
        unsafe extern "C" fn(
            ctx: *mut core::ffi::c_void,
            address: *mut core::ffi::c_void,
            bytes: u64,
            stream: *mut core::ffi::c_void,
        ),
    >,
}

/// One run.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_run {
    /// Size of this structure as the host knows it, in bytes.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Inputs in the order of the program's. May be retained.
    pub inputs: *const kiln_tensor,
    /// Length of the array of inputs.
    pub input_count: u64,
    /// Element type and dimensions of every value of the program, by its id, with the elements where the host knows
    /// them: those of host ports whose contents do not depend on the device are always there. A dimension that only
    /// the device knows is -1.
    pub values: *const kiln_tensor,
    /// Length of the array of values.
    pub value_count: u64,
    /// A number that stands for these `values` and `shapes`: whenever this executable is run with it again, they are
    /// the same.
    pub shapes_id: u64,
    /// Types and dimensions as in `values`, with the facts of unknown dimensions: a Shapes.
    pub shapes: kiln_payload,
}

/// Work that a context has done since it was made.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct kiln_counters {
    /// Size of this structure as the host knows it, in bytes; the backend fills in no more.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Finished runs.
    pub runs: u64,
    /// Buffers allocated on the device.
    pub allocations: u64,
    /// Kernels compiled.
    pub compilations: u64,
    /// Pipelines, graphs or similar objects made.
    pub pipelines: u64,
    /// Times that the host had to wait inside a run for a size or a content.
    pub host_syncs: u64,
}

/// A backend's functions. Those that return `i32` return a status and record an error where it is not `KILN_OK`.
/// Objects are destroyed in the reverse order of their making; destroying null does nothing.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_backend_v1 {
    /// Size of this structure as the library knows it, in bytes.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,

    /// Required. Makes the backend. `[any-thread]`
    pub backend_create:
        Option<unsafe extern "C" fn(out: *mut *mut kiln_backend, err: *mut kiln_error) -> i32>,
    /// Required. `[any-thread]`
    pub backend_destroy: Option<unsafe extern "C" fn(backend: *mut kiln_backend)>,
    /// Required. Writes the devices that it can open, best first: an array of Target. May be empty. `[any-thread]`
    pub backend_targets: Option<
        unsafe extern "C" fn(backend: *mut kiln_backend, out: *mut kiln_sink, err: *mut kiln_error) -> i32,
    >,
    /// Required. Writes the ways to run a Region on a Target: an array of Tactic; or refuses the region with
    /// `KILN_UNSUPPORTED` and the reason. `[any-thread]`
    pub backend_tactics: Option<
        unsafe extern "C" fn(
            backend: *mut kiln_backend,
            region: *const kiln_payload,
            target: kiln_bytes,
            out: *mut kiln_sink,
            err: *mut kiln_error,
        ) -> i32,
    >,
    /// Required. Writes the blob that `device_load` needs to run a Region by a Tactic; nothing where nothing is to be
    /// stored. Deterministic. `[any-thread]`
    pub backend_compile: Option<
        unsafe extern "C" fn(
            backend: *mut kiln_backend,
            region: *const kiln_payload,
            tactic: kiln_bytes,
            target: kiln_bytes,
            out: *mut kiln_sink,
            err: *mut kiln_error,
        ) -> i32,
    >,
    /// Required. Opens the device of a Target. `[any-thread]`
    pub backend_open: Option<
        unsafe extern "C" fn(
            backend: *mut kiln_backend,
            target: kiln_bytes,
            out: *mut *mut kiln_device,
            err: *mut kiln_error,
        ) -> i32,
    >,

    /// Required. `[any-thread]`
    pub device_destroy: Option<unsafe extern "C" fn(device: *mut kiln_device)>,
    /// Required. Runs a region several times and writes the time of each run in nanoseconds, without transfers: an
    /// array of floats. `[any-thread]`
    pub device_time: Option<
        unsafe extern "C" fn(
            device: *mut kiln_device,
            request: *const kiln_time_request,
            out: *mut kiln_sink,
            err: *mut kiln_error,
        ) -> i32,
    >,
    /// Required. Uploads the weights of a Program and makes its kernels ready. Tensors may be retained, blobs not.
    /// `[any-thread]`
    pub device_load: Option<
        unsafe extern "C" fn(
            device: *mut kiln_device,
            program: *const kiln_payload,
            out: *mut *mut kiln_executable,
            err: *mut kiln_error,
        ) -> i32,
    >,

    /// Required. `[any-thread]`
    pub executable_destroy: Option<unsafe extern "C" fn(executable: *mut kiln_executable)>,
    /// Required. Makes a context with an arena of its own. `[any-thread]`
    pub executable_context: Option<
        unsafe extern "C" fn(
            executable: *mut kiln_executable,
            out: *mut *mut kiln_context,
            err: *mut kiln_error,
        ) -> i32,
    >,

    /// Required. `[serial-per-object]`
    pub context_destroy: Option<unsafe extern "C" fn(context: *mut kiln_context)>,
    /// Required. Starts a run and does not wait for the device, unless sizes are needed that only the device knows.
    /// `[serial-per-object]`
    pub context_enqueue: Option<
        unsafe extern "C" fn(context: *mut kiln_context, run: *const kiln_run, err: *mut kiln_error) -> i32,
    >,
    /// Required. Waits for the run and writes its outputs in the order of the program's. `[serial-per-object]`
    pub context_outputs: Option<
        unsafe extern "C" fn(
            context: *mut kiln_context,
            out: *mut kiln_tensor_sink,
            err: *mut kiln_error,
        ) -> i32,
    >,
    /// Optional: absent means `KILN_UNSUPPORTED`. Writes the value of this id of the last run, if a step
    /// reads or writes it as a whole. `[serial-per-object]`
    pub context_observe: Option<
        unsafe extern "C" fn(
            context: *mut kiln_context,
            value: u32,
            out: *mut kiln_tensor_sink,
            err: *mut kiln_error,
        ) -> i32,
    >,
    /// Optional. 1: keeps all values at the borders of steps until they are observed, from the next run on; 0: does
    /// not. `[serial-per-object]`
    pub context_set_observable: Option<unsafe extern "C" fn(context: *mut kiln_context, on: u32)>,

    /// Optional, since 1.1: absent means `KILN_UNSUPPORTED`. Writes the times of the steps of the last run: an array of
    /// StepTime; enables timing for the following runs. `[serial-per-object]`
    pub context_step_times: Option<
        unsafe extern "C" fn(context: *mut kiln_context, out: *mut kiln_sink, err: *mut kiln_error) -> i32,
    >,
    /// Optional, since 1.1: absent means that the host counts runs itself. Fills in the counters. `[serial-per-object]`
    pub context_counters: Option<
        unsafe extern "C" fn(
            context: *mut kiln_context,
            out: *mut kiln_counters,
            err: *mut kiln_error,
        ) -> i32,
    >,

    /// Optional, since 1.2: absent means `KILN_UNSUPPORTED`. Runs the last run's kernels again so many times, without
    /// transfers, and writes the time of each run in nanoseconds: an array of floats. `KILN_UNSUPPORTED` for programs whose
    /// runs need the host in between. `[serial-per-object]`
    pub context_time_runs: Option<
        unsafe extern "C" fn(
            context: *mut kiln_context,
            runs: u32,
            out: *mut kiln_sink,
            err: *mut kiln_error,
        ) -> i32,
    >,
    /// Optional, since 1.2: absent means `KILN_UNSUPPORTED`. Puts the work of further runs into a stream of the caller's,
    /// behind what is in it: of CUDA a `CUstream`, of the device's primary context, that stays until another one is set or the context is
    /// destroyed. Null: into the context's own stream again. Since 1.10 the stream may be capturing: runs of shapes that were run before,
    /// with all inputs and outputs bound, are recorded. `[serial-per-object]`
    pub context_set_stream: Option<
        unsafe extern "C" fn(
            context: *mut kiln_context,
            stream: *mut core::ffi::c_void,
            err: *mut kiln_error,
        ) -> i32,
    >,
    /// Optional, since 1.3: absent means `KILN_UNSUPPORTED`. Sets the memory of an input (`output` 0) or an
    /// output (`output` 1) for further runs: `bytes` bytes of the caller's on the device, dense and in the
    /// program's format. On CUDA the address is a device pointer, best a multiple of 16: runs copy memory at others. Of a bound input,
    /// `context_enqueue` reads the shape only, and the elements where the host needs them. Null restores the
    /// context's own memory. Runs that alternate between a few addresses make no new objects.
    /// `[serial-per-object]`
    pub context_bind: Option<
        unsafe extern "C" fn(
            context: *mut kiln_context,
            output: u32,
            index: u32,
            address: *mut core::ffi::c_void,
            bytes: u64,
            err: *mut kiln_error,
        ) -> i32,
    >,
    /// Optional, since 1.4: absent means `KILN_UNSUPPORTED`. Lets further runs mark an event of the caller's as soon as their
    /// inputs may be overwritten: behind the last kernel that reads memory bound to an input, and before any where none is
    /// bound. Of CUDA a `CUevent` of the device's primary context that stays until another one is set or the context is
    /// destroyed. Null: none. `[serial-per-object]`
    pub context_set_consumed_event: Option<
        unsafe extern "C" fn(
            context: *mut kiln_context,
            event: *mut core::ffi::c_void,
            err: *mut kiln_error,
        ) -> i32,
    >,
    /// Optional, since 1.4: absent means that the host takes the outputs early. Waits for a moment of the last run, one of
    /// `KILN_WAIT_*`; unknown ones are refused. Outputs can still be taken. `[serial-per-object]`
    pub context_wait:
        Option<unsafe extern "C" fn(context: *mut kiln_context, moment: u32, err: *mut kiln_error) -> i32>,
    /// Optional, since 1.4: absent means `KILN_UNSUPPORTED`. Reports the device address and the bytes of an
    /// input (`output` 0) or output (`output` 1) of the last run. The address is one that `context_bind`
    /// takes: the context's own memory unless another was bound. `[serial-per-object]`
    pub context_address: Option<
        unsafe extern "C" fn(
            context: *mut kiln_context,
            output: u32,
            index: u32,
            address: *mut *mut core::ffi::c_void,
            bytes: *mut u64,
            err: *mut kiln_error,
        ) -> i32,
    >,

    /// Optional, since 1.5: absent means `KILN_UNSUPPORTED`. Writes the steps at which the last run waited for the host, and
    /// why: an array of HostStep, empty where it did not. Of runs whose steps are timed it may be what was found before.
    /// `[serial-per-object]`
    pub context_host_steps: Option<
        unsafe extern "C" fn(context: *mut kiln_context, out: *mut kiln_sink, err: *mut kiln_error) -> i32,
    >,

    /// Optional, since 1.6: absent means that the backend polls `is_cancelled` only. Sets whether the run in
    /// flight stops early, one of `KILN_STOP_*`; unknown ones mean now. Calls for this context that are in
    /// progress, or come later, return `KILN_CANCELLED` as soon as they can, after the device's work has
    /// ended. The host then sets `KILN_STOP_NEVER` again; the next run does not depend on the cancelled one.
    /// `[any-thread]`, beside another call for this context.
    pub context_stop:
        Option<unsafe extern "C" fn(context: *mut kiln_context, state: u32, err: *mut kiln_error) -> i32>,

    /// Optional, since 1.7: absent means that the host asks `backend_tactics`. Accepts a Region on a Target, or refuses it with
    /// `KILN_UNSUPPORTED` and the reason, as `backend_tactics` would. Called thousands of times in a build: it must not
    /// generate kernels. `[any-thread]`
    pub backend_supports: Option<
        unsafe extern "C" fn(
            backend: *mut kiln_backend,
            region: *const kiln_payload,
            target: kiln_bytes,
            err: *mut kiln_error,
        ) -> i32,
    >,

    /// Optional, since 1.10: absent means `KILN_UNSUPPORTED`. Makes a context without an arena: `context_set_memory` supplies one
    /// before its first run. `[any-thread]`
    pub executable_context_without_memory: Option<
        unsafe extern "C" fn(
            executable: *mut kiln_executable,
            out: *mut *mut kiln_context,
            err: *mut kiln_error,
        ) -> i32,
    >,
    /// Optional, since 1.10: absent means `KILN_UNSUPPORTED`. As `device_load`, with at most `weight_budget` bytes of weights on the
    /// device at a time; a budget that is too small is refused with the least one. Weights that do not fit are copied before the steps
    /// that read them; results are the same bit for bit. `[any-thread]`
    pub device_load_within: Option<
        unsafe extern "C" fn(
            device: *mut kiln_device,
            program: *const kiln_payload,
            weight_budget: u64,
            out: *mut *mut kiln_executable,
            err: *mut kiln_error,
        ) -> i32,
    >,
    /// Optional, since 1.10: absent means `KILN_UNSUPPORTED`. Stores activations of further runs in `bytes` bytes of the caller's device
    /// memory, which stays valid until other memory is set. Null: the context cannot run until it has other memory. For contexts that
    /// were made without an arena. `[serial-per-object]`
    pub context_set_memory: Option<
        unsafe extern "C" fn(
            context: *mut kiln_context,
            address: *mut core::ffi::c_void,
            bytes: u64,
            err: *mut kiln_error,
        ) -> i32,
    >,
    /// Optional, since 1.12: absent means `KILN_UNSUPPORTED`. Takes device memory that the context needs from now on, its arena aside,
    /// from an allocator of the caller's: of CUDA with its `CUstream`. Null: from the backend's own again. Both functions may be called
    /// until the context is destroyed, also after another allocator is set. `[serial-per-object]`
    pub context_set_allocator: Option<
        unsafe extern "C" fn(
            context: *mut kiln_context,
            allocator: *const kiln_allocator,
            err: *mut kiln_error,
        ) -> i32,
    >,
    /// Optional, since 1.12: absent means `KILN_UNSUPPORTED`. Reports the bytes of device memory that nobody uses now. `[any-thread]`
    pub device_free_memory:
        Option<unsafe extern "C" fn(device: *mut kiln_device, bytes: *mut u64, err: *mut kiln_error) -> i32>,
    /// Optional, since 1.12: absent means `KILN_UNSUPPORTED`. Copies `bytes` bytes of the device to the host, behind the work that is in
    /// a stream of the caller's (null: of no stream), and waits for the copy. `[any-thread]`
    pub device_read: Option<
        unsafe extern "C" fn(
            device: *mut kiln_device,
            stream: *mut core::ffi::c_void,
            address: *const core::ffi::c_void,
            bytes: u64,
            to: *mut core::ffi::c_void,
            err: *mut kiln_error,
        ) -> i32,
    >,
    /// Optional, since 1.13: absent means `KILN_UNSUPPORTED`. Puts steps of further runs that are in auxiliary streams of the program into
    /// `count` streams of the caller's. Those of the first auxiliary stream go into the first; the rest go into streams of the backend's
    /// own. Each run begins behind the work of its main stream, and the main stream ends behind all of them. A count of 0 ends it.
    /// `[serial-per-object]`
    pub context_set_aux_streams: Option<
        unsafe extern "C" fn(
            context: *mut kiln_context,
            streams: *const *mut core::ffi::c_void,
            count: u32,
            err: *mut kiln_error,
        ) -> i32,
    >,
}

/// Nobody can stop the run.
pub const KILN_STOP_NEVER: u32 = 0;
/// The run may be stopped: work that takes long is handed to the device in pieces.
pub const KILN_STOP_POSSIBLE: u32 = 1;
/// The run is to stop.
pub const KILN_STOP_NOW: u32 = 2;

/// A moment of a run: its inputs may be overwritten.
pub const KILN_WAIT_CONSUMED: u32 = 0;
/// A moment of a run: it is done.
pub const KILN_WAIT_DONE: u32 = 1;
