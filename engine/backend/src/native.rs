//! The optional native interface of a context: streams, device memory and events of the caller's.
//!
//! [`Context`](crate::Context) itself has no handles of a device. A backend whose device has them returns this interface from
//! [`Context::native`](crate::Context::native).

use crate::BackendError;
use std::ffi::c_void;
use std::sync::Arc;

/// An input or output of a program by its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// An input.
    Input(usize),
    /// An output.
    Output(usize),
}

/// Device memory that the caller hands out for the runs of a context.
pub trait TemporaryAllocator: Send + Sync {
    /// The address of so many bytes at a multiple of `alignment`, a power of two. Work that is put into the stream from now on uses them.
    /// Null where there is no such memory. Streams are handles of the backend's kind: of CUDA a `CUstream`.
    fn allocate(&self, bytes: u64, alignment: u64, stream: *mut c_void) -> *mut c_void;

    /// Takes memory back, once the work that is in the stream is done.
    fn free(&self, address: *mut c_void, bytes: u64, stream: *mut c_void);
}

/// Native handles of a context. The kind of a handle is the backend's; CUDA takes `CUstream`, device pointers and `CUevent`.
pub trait NativeContext {
    /// Runs the work of further runs in a stream of the caller's, in its order. Null returns to the context's own stream. While the
    /// stream captures a graph, runs are recorded in it: of shapes that the context has run before, with all inputs and outputs bound.
    ///
    /// # Safety
    /// The handle is a stream of the backend's kind on this device, or null. It stays valid until another one is set or the
    /// context is dropped. The context outlives graphs that record its runs, and does not run while one of these is running.
    unsafe fn set_stream(&mut self, stream: *mut c_void) -> Result<(), BackendError>;

    /// Lets further runs read an input from, or write an output to, `bytes` bytes of the caller's device memory. Null returns to
    /// memory of the context's own. Of a bound input `enqueue` reads only the shape, and the elements where the host needs
    /// them. A bound output is complete when the run is, in the order of its stream; `outputs` copies it to the host as
    /// well. An output whose size the run decides needs room for that size. `enqueue` may wait for the device where the memory is
    /// smaller than the largest possible size.
    ///
    /// # Safety
    /// The address is a device address of the backend's kind with `bytes` bytes, or null. The memory stays valid while runs use
    /// it, and nothing else writes to it meanwhile.
    unsafe fn bind(&mut self, port: Bound, address: *mut c_void, bytes: u64) -> Result<(), BackendError>;

    /// Lets further runs record an event of the caller's as soon as inputs may be overwritten: after the last kernel that reads
    /// memory bound to an input, and before any kernel where none is bound. Null: no event.
    ///
    /// # Safety
    /// The handle is an event of the backend's kind on this device, or null. It stays valid until another one is set or the
    /// context is dropped.
    unsafe fn set_consumed_event(&mut self, event: *mut c_void) -> Result<(), BackendError>;

    /// Stores activations of further runs in `bytes` bytes of the caller's device memory, in place of an arena of the context's own.
    /// Null takes the memory away: the context cannot run until it has other memory. `Unsupported` for a context that was made with
    /// an arena, and where there are no such contexts.
    ///
    /// # Safety
    /// The address is a device address of the backend's kind with `bytes` bytes, or null. The memory stays valid until other memory is
    /// set or the context is dropped, and nothing else uses it while a run is in flight.
    unsafe fn set_memory(&mut self, address: *mut c_void, bytes: u64) -> Result<(), BackendError>;

    /// Takes device memory that the context needs from now on, its arena aside, from an allocator of the caller's: scratch memory, inputs
    /// and outputs that are not bound, tensors of unknown size. `None`: from the backend's own again. By default refused.
    ///
    /// # Safety
    /// The allocator returns null, or device addresses of the backend's kind with as many bytes as asked for. Nothing else uses them until
    /// they are taken back and the work is done that was in the stream then.
    unsafe fn set_allocator(
        &mut self,
        _allocator: Option<Arc<dyn TemporaryAllocator>>,
    ) -> Result<(), BackendError> {
        Err(BackendError::Unsupported("this backend takes no memory of an allocator of the caller's".into()))
    }

    /// Puts steps of further runs that are in auxiliary streams of the program into streams of the caller's: those of the first auxiliary
    /// stream into the first. Where there are fewer, the rest are in streams of the backend's own; further ones are not used. Each run
    /// begins behind the work that is in its main stream, and the main stream ends behind all others. None: nothing in streams of the
    /// caller's. By default refused.
    ///
    /// # Safety
    /// The handles are streams of the backend's kind on this device. They stay valid until others are set or the context is dropped.
    unsafe fn set_aux_streams(&mut self, _streams: &[*mut c_void]) -> Result<(), BackendError> {
        Err(BackendError::Unsupported(
            "this backend puts no work into auxiliary streams of the caller's".into(),
        ))
    }

    /// The device address of an input or output of the last run, and its size in bytes. The memory is the context's own unless
    /// the caller bound other memory; [`NativeContext::bind`] accepts both.
    fn address(&mut self, port: Bound) -> Result<(*mut c_void, u64), BackendError>;
}
