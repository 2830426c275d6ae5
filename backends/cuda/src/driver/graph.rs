//! Graphs: a run's launches as one.

use super::device::Gpu;
use super::lanes::{Lanes, Marks, Recorder, run_lanes};
use super::library::{DriverError, cu};
use super::module::{Command, run_all};
use super::stream::Stream;
use crate::foreign::call;
use cudarc::driver::sys;
use std::sync::Arc;

/// An executable graph.
pub struct Graph {
    gpu: Arc<Gpu>,
    exec: sys::CUgraphExec,
}

// SAFETY: executable graphs may be used from any thread, by one at a time.
unsafe impl Send for Graph {}

/// Failure to put commands into a stream or a graph, with the command that failed, if it was one.
pub struct Failed {
    pub command: Option<usize>,
    pub error: DriverError,
}

impl From<DriverError> for Failed {
    fn from(error: DriverError) -> Failed {
        Failed { command: None, error }
    }
}

/// A recorded graph that is destroyed when it goes.
struct Recorded<'a>(&'a Stream, sys::CUgraph);

impl Drop for Recorded<'_> {
    fn drop(&mut self) {
        // A recording that failed has no graph.
        if !self.1.is_null() {
            // SAFETY: recorded by the driver, destroyed once.
            unsafe { call!(self.0.gpu.api, sys::cuGraphDestroy(self.1)) };
        }
    }
}

fn record<'a>(
    recorder: &'a mut Recorder,
    launches: &[Command],
    lanes: Option<&Lanes>,
) -> Result<Recorded<'a>, Failed> {
    use sys::CUstreamCaptureMode::{CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL};
    // Kernels of control flow may not be loaded yet.
    let relaxed = launches.iter().any(Command::is_branch);
    let mode = if relaxed { CU_STREAM_CAPTURE_MODE_RELAXED } else { CU_STREAM_CAPTURE_MODE_THREAD_LOCAL };
    recorder.reserve(lanes.map_or(1, |l| l.count))?;
    let marks = lanes.map(|l| Marks::new(launches.len(), recorder, l)).transpose()?;
    let stream = &*recorder.main;
    let api = stream.gpu.api;
    // SAFETY: the stream is alive and not yet capturing: contexts are used by one thread at a time.
    unsafe { cu!(api, cuStreamBeginCapture_v2(stream.handle, mode)) }?;
    let ran = match lanes.zip(marks.as_ref()) {
        Some((lanes, marks)) => run_lanes(launches, recorder, lanes, marks),
        None => stream.while_recording(|| run_all(launches, stream, true)),
    };
    let mut graph = std::ptr::null_mut();
    // SAFETY: the capture was begun above; it is ended whether the launches were taken or not.
    let ended = unsafe { cu!(api, cuStreamEndCapture(stream.handle, &mut graph)) };
    let recorded = Recorded(stream, graph);
    ran?;
    ended?;
    Ok(recorded)
}

impl Graph {
    /// The launches, in order or in several streams; the recorder records them and nothing else.
    pub fn new(
        recorder: &mut Recorder,
        launches: &[Command],
        lanes: Option<&Lanes>,
    ) -> Result<Graph, Failed> {
        let gpu = recorder.main.gpu.clone();
        let recorded = record(recorder, launches, lanes)?;
        let mut exec = std::ptr::null_mut();
        // SAFETY: the graph was recorded above, the place for the handle is valid.
        unsafe { cu!(gpu.api, cuGraphInstantiateWithFlags(&mut exec, recorded.1, 0)) }?;
        drop(recorded);
        Ok(Graph { gpu, exec })
    }

    /// Other parameters and grids for the same kernels in the same order; false if the kernels differ.
    pub fn update(
        &mut self,
        recorder: &mut Recorder,
        launches: &[Command],
        lanes: Option<&Lanes>,
    ) -> Result<bool, Failed> {
        if launches.iter().any(Command::is_branch) {
            return Ok(false);
        }
        let recorded = record(recorder, launches, lanes)?;
        // The answer is not read: its code may be newer than cudarc's enumeration.
        let mut info = std::mem::MaybeUninit::uninit();
        // SAFETY: both graphs are alive, the place for the answer is valid.
        let code = unsafe {
            call!(self.gpu.api, sys::cuGraphExecUpdate_v2(self.exec, recorded.1, info.as_mut_ptr()))
        };
        Ok(code == 0)
    }

    /// Puts it into a stream.
    pub fn run(&self, stream: &Stream) -> Result<(), DriverError> {
        let api = self.gpu.api;
        // SAFETY: both handles are alive.
        unsafe { cu!(api, cuGraphLaunch(self.exec, stream.handle)) }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.gpu.may_close() {
            // SAFETY: instantiated in `new`, destroyed once; the driver keeps it until a launch in flight is done.
            unsafe { call!(self.gpu.api, sys::cuGraphExecDestroy(self.exec)) };
        }
    }
}
