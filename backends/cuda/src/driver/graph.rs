//! Graphs: a run's launches as one.

use super::device::Gpu;
use super::library::{DriverError, Handle};
use super::module::{Command, run_all};
use super::stream::Stream;
use std::sync::Arc;

/// An executable graph.
pub struct Graph {
    gpu: Arc<Gpu>,
    exec: Handle,
}

// SAFETY: executable graphs may be used from any thread, by one at a time.
unsafe impl Send for Graph {}

/// Why commands were not put into a stream or a graph, and which of them failed, if it was one.
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
struct Recorded<'a>(&'a Stream, Handle);

impl Drop for Recorded<'_> {
    fn drop(&mut self) {
        // A recording that failed has no graph.
        if !self.1.is_null() {
            // SAFETY: recorded by the driver, destroyed once.
            unsafe { (self.0.gpu.api.graph_destroy)(self.1) };
        }
    }
}

fn record<'a>(stream: &'a Stream, launches: &[Command]) -> Result<Recorded<'a>, Failed> {
    const THREAD_LOCAL: i32 = 1;
    // With control flow: its kernels may not be loaded yet.
    const RELAXED: i32 = 2;
    let mode = if launches.iter().any(Command::is_branch) { RELAXED } else { THREAD_LOCAL };
    let api = stream.gpu.api;
    // SAFETY: the stream is alive and not yet capturing: contexts are used by one thread at a time.
    let code = unsafe { (api.stream_begin_capture)(stream.handle, mode) };
    api.check("cuStreamBeginCapture", code)?;
    let ran = run_all(launches, stream, true);
    let mut graph = std::ptr::null_mut();
    // SAFETY: the capture was begun above; it is ended whether the launches were taken or not.
    let code = unsafe { (api.stream_end_capture)(stream.handle, &mut graph) };
    let recorded = Recorded(stream, graph);
    ran?;
    api.check("cuStreamEndCapture", code)?;
    Ok(recorded)
}

impl Graph {
    /// The launches, in order; `stream` records them and nothing else.
    pub fn new(stream: &Arc<Stream>, launches: &[Command]) -> Result<Graph, Failed> {
        let recorded = record(stream, launches)?;
        let api = stream.gpu.api;
        let mut exec = std::ptr::null_mut();
        // SAFETY: the graph was recorded above, the place for the handle is valid.
        let code = unsafe { (api.graph_instantiate)(&mut exec, recorded.1, 0) };
        api.check("cuGraphInstantiate", code)?;
        Ok(Graph { gpu: stream.gpu.clone(), exec })
    }

    /// Other parameters and grids for the same kernels in the same order; false if the kernels differ.
    pub fn update(&mut self, stream: &Stream, launches: &[Command]) -> Result<bool, Failed> {
        /// `CUgraphExecUpdateResultInfo`: a code and two nodes.
        #[repr(C)]
        struct Info {
            result: i32,
            nodes: [Handle; 2],
        }
        if launches.iter().any(Command::is_branch) {
            return Ok(false);
        }
        let recorded = record(stream, launches)?;
        let mut info = Info { result: 0, nodes: [std::ptr::null_mut(); 2] };
        // SAFETY: both graphs are alive, `info` has the layout of the driver's header.
        let code = unsafe { (self.gpu.api.exec_update)(self.exec, recorded.1, (&raw mut info).cast()) };
        Ok(code == 0)
    }

    /// Puts it into a stream.
    pub fn run(&self, stream: &Stream) -> Result<(), DriverError> {
        let api = self.gpu.api;
        // SAFETY: both handles are alive.
        api.check("cuGraphLaunch", unsafe { (api.graph_launch)(self.exec, stream.handle) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.gpu.may_close() {
            // SAFETY: instantiated in `new`, destroyed once; the driver keeps it until a launch in flight is done.
            unsafe { (self.gpu.api.exec_destroy)(self.exec) };
        }
    }
}
