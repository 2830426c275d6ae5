//! Graphs: a run's launches as one.

use super::device::Gpu;
use super::lanes::{Lanes, Marks, Recorder, run_lanes};
use super::library::{Conditional, DriverError, cu};
use super::module::{Command, Launch, run_all};
use super::stream::{Stream, position};
use crate::foreign::call;
use cudarc::driver::sys;
use std::sync::Arc;

/// An executable graph.
pub struct Graph {
    gpu: Arc<Gpu>,
    exec: sys::CUgraphExec,
    /// The graph that it was made from, as long as the names of its nodes count; else null.
    recorded: sys::CUgraph,
    /// Nodes of some launches, by position.
    nodes: Vec<(usize, sys::CUgraphNode)>,
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

/// Records the launches, and notes the nodes of some of them.
fn record<'a>(
    recorder: &'a mut Recorder,
    launches: &[Command],
    lanes: Option<&Lanes>,
    mut wanted: Wanted<'_>,
) -> Result<(Recorded<'a>, Vec<(usize, sys::CUgraphNode)>), Failed> {
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
        Some((lanes, marks)) => run_lanes(launches, recorder, lanes, (marks, true), |i, s| wanted.note(i, s)),
        None => stream.while_recording(|| run_all(launches, stream, false, |i, s| wanted.note(i, s))),
    };
    let mut graph = std::ptr::null_mut();
    // SAFETY: the capture was begun above; it is ended whether the launches were taken or not.
    let ended = unsafe { cu!(api, cuStreamEndCapture(stream.handle, &mut graph)) };
    let recorded = Recorded(stream, graph);
    ran?;
    ended?;
    Ok((recorded, wanted.found))
}

/// Launches whose nodes are wanted, in order, and those that are found.
struct Wanted<'a> {
    launches: &'a [usize],
    found: Vec<(usize, sys::CUgraphNode)>,
}

impl<'a> Wanted<'a> {
    fn of(launches: &'a [usize]) -> Wanted<'a> {
        Wanted { launches, found: Vec::new() }
    }

    /// Notes the node of a launch that was put into a recording stream right now. Older drivers do not say which one it is.
    fn note(&mut self, launch: usize, stream: &Stream) -> Result<(), DriverError> {
        let Some(of) = Conditional::get().filter(|_| self.launches.binary_search(&launch).is_ok()) else {
            return Ok(());
        };
        if let [node] = position(of, stream)?.dependencies[..] {
            self.found.push((launch, node));
        }
        Ok(())
    }
}

impl Graph {
    /// The launches, in order or in several streams; the recorder records them and nothing else. Those at the positions `settable`, in
    /// order, can be set one by one.
    pub fn new(
        recorder: &mut Recorder,
        launches: &[Command],
        lanes: Option<&Lanes>,
        settable: &[usize],
    ) -> Result<Graph, Failed> {
        let gpu = recorder.main.gpu.clone();
        let (mut recorded, nodes) = record(recorder, launches, lanes, Wanted::of(settable))?;
        let mut exec = std::ptr::null_mut();
        // SAFETY: the graph was recorded above, the place for the handle is valid.
        unsafe { cu!(gpu.api, cuGraphInstantiateWithFlags(&mut exec, recorded.1, 0)) }?;
        let kept = if nodes.is_empty() {
            std::ptr::null_mut()
        } else {
            std::mem::replace(&mut recorded.1, std::ptr::null_mut())
        };
        drop(recorded);
        Ok(Graph { gpu, exec, recorded: kept, nodes })
    }

    /// Puts the parameter of a launch into its node; false if that is not known.
    pub fn set(&mut self, position: usize, launch: &Launch) -> Result<bool, DriverError> {
        let node = self.nodes.iter().find(|(at, _)| *at == position);
        let Some((_, node)) = node else { return Ok(false) };
        // SAFETY: the node was noted when its launch was recorded, and its graph is kept.
        unsafe { launch.set_node(&self.gpu, self.exec, *node) }.map(|()| true)
    }

    /// Forgets the nodes, and the graph that they are in.
    fn forget_nodes(&mut self) {
        self.nodes.clear();
        let recorded = std::mem::replace(&mut self.recorded, std::ptr::null_mut());
        if !recorded.is_null() && self.gpu.may_close() {
            // SAFETY: recorded by the driver, destroyed once.
            unsafe { call!(self.gpu.api, sys::cuGraphDestroy(recorded)) };
        }
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
        let (recorded, _) = record(recorder, launches, lanes, Wanted::of(&[]))?;
        // The answer is not read: its code may be newer than cudarc's enumeration.
        let mut info = std::mem::MaybeUninit::uninit();
        // SAFETY: both graphs are alive, the place for the answer is valid.
        let code = unsafe {
            call!(self.gpu.api, sys::cuGraphExecUpdate_v2(self.exec, recorded.1, info.as_mut_ptr()))
        };
        drop(recorded);
        // The nodes are those of a graph of before.
        self.forget_nodes();
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
        self.forget_nodes();
        if self.gpu.may_close() {
            // SAFETY: instantiated in `new`, destroyed once; the driver keeps it until a launch in flight is done.
            unsafe { call!(self.gpu.api, sys::cuGraphExecDestroy(self.exec)) };
        }
    }
}
