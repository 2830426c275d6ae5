//! Conditional nodes of graphs: what runs is decided on the device.

use super::graph::Graph;
use super::lanes::Recorder;
use super::library::{Conditional, DriverError, cu};
use super::module::{Command, Launch, run_all};
use super::stream::{Position, Stream, position};
use cudarc::driver::sys;
use std::any::Any;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// Kind of a conditional node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Runs its first body if the handle is set, its second else.
    If,
    /// Runs its body as long as the handle is set.
    While,
}

/// A conditional node with its bodies. The kernels that decide take its handle in the first eight bytes of their parameter.
pub struct Branch {
    kind: Kind,
    /// Sets the handle before the node.
    ahead: Launch,
    bodies: Vec<Vec<Command>>,
    /// Records bodies, and nothing else.
    recorder: Arc<Stream>,
    /// Memory that commands name.
    _kept: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl Launch {
    fn with_handle(&self, handle: u64) -> Launch {
        let mut l = self.clone();
        l.put(0, handle);
        l
    }
}

impl Command {
    fn with_handle(&self, handle: u64) -> Command {
        match self {
            Command::Kernel(l) if l.decides => Command::Kernel(l.with_handle(handle)),
            c => c.clone(),
        }
    }
}

impl Branch {
    /// A node; `None` where the driver has none.
    pub fn new(
        recorder: Arc<Stream>,
        kind: Kind,
        ahead: Launch,
        bodies: Vec<Vec<Command>>,
        kept: Vec<Box<dyn Any + Send>>,
    ) -> Option<Branch> {
        Conditional::get()?;
        Some(Branch { kind, ahead, bodies, recorder, _kept: Mutex::new(kept) })
    }

    /// Commands of all its bodies.
    pub fn size(&self) -> usize {
        self.bodies.iter().flatten().map(Command::size).sum()
    }

    /// Makes the commands of its bodies ready.
    pub fn prepare(&self) -> Result<(), DriverError> {
        self.bodies.iter().flatten().try_for_each(Command::prepare)
    }

    /// Adds it to the graph that the stream records; in a stream that records none it is a graph of its own.
    pub fn run(self: &Arc<Branch>, stream: &Stream) -> Result<(), DriverError> {
        let of =
            Conditional::get().ok_or(DriverError::TooOld { symbol: "cuGraphConditionalHandleCreate" })?;
        let at = position(of, stream)?;
        if at.graph.is_null() {
            let mut recorder = Recorder::new(Stream::new(&stream.gpu)?);
            let alone = Graph::new(&mut recorder, &[Command::Branch(self.clone())], None, &[]);
            return alone.map_err(|f| f.error)?.run(stream);
        }
        self.record(of, stream, &at)
    }

    fn record(&self, of: &Conditional, stream: &Stream, at: &Position) -> Result<(), DriverError> {
        let api = stream.gpu.api;
        let mut handle = 0;
        // SAFETY: the graph is being recorded, the context is current.
        unsafe {
            cu!(api, in of, cuGraphConditionalHandleCreate(&mut handle, at.graph, stream.gpu.context, 0, 0))
        }?;
        self.ahead.with_handle(handle).run(stream, false)?;
        let at = position(of, stream)?;
        let mut params = self.node(stream, handle);
        let mut node = std::ptr::null_mut();
        let (dependencies, edges) = (at.dependencies.as_ptr(), at.edges.as_ptr());
        let count = at.dependencies.len();
        // SAFETY: the lists have `count` elements; the parameters are those of a conditional node.
        unsafe {
            cu!(api, in of, cuGraphAddNode_v2(&mut node, at.graph, dependencies, edges, count, &mut params))
        }?;
        // SAFETY: the parameters were set as a conditional node's.
        let graphs = unsafe { params.__bindgen_anon_1.conditional }.phGraph_out;
        for (i, body) in self.bodies.iter().enumerate() {
            // SAFETY: the driver has made as many graphs as were asked for; they belong to the node.
            let graph = unsafe { *graphs.add(i) };
            self.record_body(of, graph, body, handle)?;
        }
        let set = sys::CUstreamUpdateCaptureDependencies_flags::CU_STREAM_SET_CAPTURE_DEPENDENCIES as u32;
        let none = std::ptr::null();
        // SAFETY: the node is one of the graph that is recorded.
        unsafe {
            cu!(api, in of, cuStreamUpdateCaptureDependencies_v2(stream.handle, &mut node, none, 1, set))
        }
    }

    /// Parameters of the conditional node, whose graphs the driver adds.
    fn node(&self, stream: &Stream, handle: sys::CUgraphConditionalHandle) -> sys::CUgraphNodeParams {
        let mut union = sys::CUgraphNodeParams_st__bindgen_ty_1 { reserved1: [0; 29] };
        union.conditional = sys::CUDA_CONDITIONAL_NODE_PARAMS {
            handle,
            type_: match self.kind {
                Kind::If => sys::CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_IF,
                Kind::While => sys::CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE,
            },
            size: self.bodies.len() as u32,
            phGraph_out: std::ptr::null_mut(),
            ctx: stream.gpu.context,
        };
        sys::CUgraphNodeParams {
            type_: sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL,
            reserved0: [0; 3],
            __bindgen_anon_1: union,
            reserved2: 0,
        }
    }

    fn record_body(
        &self,
        of: &Conditional,
        graph: sys::CUgraph,
        body: &[Command],
        handle: u64,
    ) -> Result<(), DriverError> {
        let (api, stream) = (self.recorder.gpu.api, &self.recorder);
        let relaxed = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        let (nodes, edges) = (std::ptr::null(), std::ptr::null());
        // SAFETY: the stream is alive and records nothing else; the graph is the node's.
        unsafe {
            cu!(api, in of, cuStreamBeginCaptureToGraph(stream.handle, graph, nodes, edges, 0, relaxed))
        }?;
        let told: Vec<Command> = body.iter().map(|c| c.with_handle(handle)).collect();
        stream.recording.store(true, Ordering::Relaxed);
        let ran = run_all(&told, stream, false, |_, _| Ok(()));
        stream.recording.store(false, Ordering::Relaxed);
        let mut same = std::ptr::null_mut();
        // SAFETY: the capture was begun above; the graph stays the node's.
        let ended = unsafe { cu!(api, cuStreamEndCapture(stream.handle, &mut same)) };
        ran.map_err(|f| f.error)?;
        ended
    }
}
