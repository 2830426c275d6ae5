//! Streams and events.

use super::device::{Gpu, NOT_READY};
use super::library::{Conditional, DriverError, cu};
use crate::foreign::call;
use cudarc::driver::sys;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// A queue of work.
pub struct Stream {
    pub gpu: Arc<Gpu>,
    pub(super) handle: sys::CUstream,
    /// Whether it belongs to the caller, who destroys it.
    foreign: bool,
    /// Whether its work is recorded in a graph.
    pub(super) recording: AtomicBool,
    /// The stream that frees memory in place of one of the caller's that was left.
    heir: OnceLock<Arc<Stream>>,
}

// SAFETY: the driver's streams may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream that does not wait for the default one.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Arc<Stream>, DriverError> {
        const NON_BLOCKING: u32 = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        gpu.bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the place for the handle is valid and the context is current.
        unsafe { cu!(gpu.api, cuStreamCreate(&mut handle, NON_BLOCKING)) }?;
        let (gpu, recording, heir) = (gpu.clone(), AtomicBool::new(false), OnceLock::new());
        Ok(Arc::new(Stream { gpu, handle, foreign: false, recording, heir }))
    }

    /// A stream of the caller's.
    ///
    /// # Safety
    /// The handle is a stream of this device's primary context that outlives the object, or the call of [`Stream::leave`].
    pub unsafe fn foreign(gpu: &Arc<Gpu>, handle: *mut c_void) -> Arc<Stream> {
        let (gpu, recording, heir) = (gpu.clone(), AtomicBool::new(false), OnceLock::new());
        Arc::new(Stream { gpu, handle: handle.cast(), foreign: true, recording, heir })
    }

    /// Frees memory of this stream without it from now on, if it is the caller's, who may have destroyed it. All work that uses the
    /// memory is done.
    pub fn leave(&self) {
        if self.foreign
            && let Ok(own) = Stream::new(&self.gpu)
        {
            let _ = self.heir.set(own);
        }
    }

    /// Whether memory is given back without it.
    pub(super) fn is_left(&self) -> bool {
        self.heir.get().is_some()
    }

    /// The handle of the stream in whose order memory is given back.
    pub(super) fn closing(&self) -> sys::CUstream {
        self.heir.get().map_or(self.handle, |own| own.handle)
    }

    /// The driver's handle.
    pub fn handle(&self) -> *mut c_void {
        self.handle.cast()
    }

    /// Whether its work is recorded in a graph.
    pub fn is_recording(&self) -> bool {
        self.recording.load(Ordering::Relaxed)
    }

    /// Whether it is a stream of the caller's that records a graph of the caller's now.
    pub fn is_captured(&self) -> Result<bool, DriverError> {
        if !self.foreign {
            return Ok(false);
        }
        // Not read as an enumeration: a driver's status may be newer than cudarc's. 0 is none.
        let mut status = MaybeUninit::<sys::CUstreamCaptureStatus>::zeroed();
        // SAFETY: the place for the status is valid, the handle is alive.
        unsafe { cu!(self.gpu.api, cuStreamIsCapturing(self.handle, status.as_mut_ptr())) }?;
        // SAFETY: the enumeration is as large as an `int`, and all bytes are set.
        Ok(unsafe { status.as_ptr().cast::<i32>().read() } != 0)
    }

    /// Runs `f` with the stream marked as one whose work is recorded in a graph.
    pub fn while_recording<T>(&self, f: impl FnOnce() -> T) -> T {
        self.recording.store(true, Ordering::Relaxed);
        let out = f();
        self.recording.store(false, Ordering::Relaxed);
        out
    }

    /// Waits until all work is done.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        let (api, stream) = (self.gpu.api, self.handle);
        // SAFETY: the handle lives as long as this object.
        let ready = || unsafe { call!(api, sys::cuStreamQuery(stream)) };
        // SAFETY: as above.
        self.gpu.wait(["cuStreamQuery", "cuStreamSynchronize"], ready, || unsafe {
            call!(api, sys::cuStreamSynchronize(stream))
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.foreign && self.gpu.drained(self.handle) {
            // SAFETY: made in `new`, destroyed once; work in flight is done.
            unsafe { call!(self.gpu.api, sys::cuStreamDestroy_v2(self.handle)) };
        }
    }
}

/// Position of a stream that is recording: its graph, and the nodes that the next one depends on.
pub(super) struct Position {
    /// Null where it records nothing.
    pub graph: sys::CUgraph,
    pub dependencies: Vec<sys::CUgraphNode>,
    pub edges: Vec<sys::CUgraphEdgeData>,
}

/// The position of a stream that may be recording.
pub(super) fn position(of: &Conditional, stream: &Stream) -> Result<Position, DriverError> {
    let (mut id, mut graph, mut count) = (0, std::ptr::null_mut(), 0usize);
    // Not read: a driver's status may be newer than cudarc's enumeration.
    let mut status = MaybeUninit::uninit();
    let (mut nodes, mut edges) = (std::ptr::null(), std::ptr::null());
    // SAFETY: all places are valid.
    unsafe {
        cu!(stream.gpu.api, in of, cuStreamGetCaptureInfo_v3(
            stream.handle, status.as_mut_ptr(), &mut id, &mut graph, &mut nodes, &mut edges, &mut count
        ))
    }?;
    // SAFETY: the driver has written so many of both, valid until the stream's capture goes on; they are copied before.
    let (dependencies, edges) = unsafe {
        let unlabelled = sys::CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] };
        (copied(nodes, count, std::ptr::null_mut()), copied(edges, count, unlabelled))
    };
    Ok(Position { graph, dependencies, edges })
}

/// Copies the driver's list; returns `default` for each element where there is no list.
///
/// # Safety
/// A list that is not null has `count` elements.
unsafe fn copied<T: Copy>(list: *const T, count: usize, default: T) -> Vec<T> {
    match list.is_null() || count == 0 {
        true => vec![default; count],
        // SAFETY: the caller's promise.
        false => unsafe { std::slice::from_raw_parts(list, count) }.to_vec(),
    }
}

/// A mark in a stream.
pub struct Event {
    gpu: Arc<Gpu>,
    handle: sys::CUevent,
    /// Whether it belongs to the caller, who destroys it.
    foreign: bool,
}

// SAFETY: the driver's events may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Makes an event; two `timed` ones measure the time between them.
    pub fn new(gpu: &Arc<Gpu>, timed: bool) -> Result<Event, DriverError> {
        const DISABLE_TIMING: u32 = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        gpu.bind()?;
        let mut handle = std::ptr::null_mut();
        let flags = if timed { 0 } else { DISABLE_TIMING };
        // SAFETY: the place for the handle is valid and the context is current.
        unsafe { cu!(gpu.api, cuEventCreate(&mut handle, flags)) }?;
        Ok(Event { gpu: gpu.clone(), handle, foreign: false })
    }

    /// An event of the caller's.
    ///
    /// # Safety
    /// The handle is an event of this device's primary context that outlives the object.
    pub unsafe fn foreign(gpu: &Arc<Gpu>, handle: *mut c_void) -> Event {
        Event { gpu: gpu.clone(), handle: handle.cast(), foreign: true }
    }

    pub(super) fn raw(&self) -> sys::CUevent {
        self.handle
    }

    /// Whether the event has this handle.
    pub fn is(&self, handle: *mut c_void) -> bool {
        self.handle == handle.cast()
    }

    /// Whether the stream has reached the event.
    pub fn reached(&self) -> Result<bool, DriverError> {
        // SAFETY: the handle is alive.
        match unsafe { call!(self.gpu.api, sys::cuEventQuery(self.handle)) } {
            NOT_READY => Ok(false),
            code => self.gpu.api.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Whether a recorded graph can record an event aside, so that the kernels around it still overlap.
    pub fn marks_aside() -> bool {
        Conditional::get().is_some()
    }

    /// Records the event after all work of the stream so far. In a stream that records a graph it becomes a node of it, which
    /// nothing waits for where the driver can do that.
    pub fn mark(&self, stream: &Stream) -> Result<(), DriverError> {
        const EXTERNAL: u32 = sys::CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as u32;
        let api = stream.gpu.api;
        let Some(of) = Conditional::get() else {
            // SAFETY: both handles are alive. Refused where nothing is recorded.
            let code =
                unsafe { call!(api, sys::cuEventRecordWithFlags(self.handle, stream.handle, EXTERNAL)) };
            return if code == 0 { Ok(()) } else { self.record(stream) };
        };
        let at = position(of, stream)?;
        if at.graph.is_null() {
            return self.record(stream);
        }
        let mut node = std::ptr::null_mut();
        let (all, count) = (at.dependencies.as_ptr(), at.dependencies.len());
        // SAFETY: the list has `count` nodes of the graph, which is being recorded.
        unsafe { cu!(api, cuGraphAddEventRecordNode(&mut node, at.graph, all, count, self.handle)) }
    }

    /// Records the event after all work of the stream so far.
    pub fn record(&self, stream: &Stream) -> Result<(), DriverError> {
        // SAFETY: both handles are alive.
        unsafe { cu!(self.gpu.api, cuEventRecord(self.handle, stream.handle)) }
    }

    /// Waits until the mark is reached.
    pub fn wait(&self) -> Result<(), DriverError> {
        let (api, event) = (self.gpu.api, self.handle);
        // SAFETY: the handle is alive.
        let ready = || unsafe { call!(api, sys::cuEventQuery(event)) };
        // SAFETY: as above.
        self.gpu.wait(["cuEventQuery", "cuEventSynchronize"], ready, || unsafe {
            call!(api, sys::cuEventSynchronize(event))
        })
    }

    /// Nanoseconds from this mark to a later one; both are reached.
    pub fn until(&self, later: &Event) -> Result<f64, DriverError> {
        let mut ms = 0.0f32;
        // SAFETY: both handles are alive, the place for the number is valid.
        unsafe { cu!(self.gpu.api, cuEventElapsedTime(&mut ms, self.handle, later.handle)) }?;
        Ok(f64::from(ms) * 1e6)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if !self.foreign && self.gpu.may_close() {
            // SAFETY: made in `new`, destroyed once.
            unsafe { call!(self.gpu.api, sys::cuEventDestroy_v2(self.handle)) };
        }
    }
}
