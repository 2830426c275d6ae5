//! Conditional nodes of graphs: what runs is decided on the device.

use super::graph::Graph;
use super::library::{Conditional, DriverError, Handle};
use super::module::{Command, Launch, run_all};
use super::stream::Stream;
use std::any::Any;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

/// What a conditional node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Kind {
    /// Runs its first body if the handle is set, its second else.
    If = 0,
    /// Runs its body as long as the handle is set.
    While = 1,
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

/// `CUgraphNodeParams` of the driver's header, for a conditional node.
#[repr(C)]
struct NodeParams {
    node: i32,
    _reserved: [i32; 3],
    handle: u64,
    kind: i32,
    size: u32,
    bodies: *mut Handle,
    context: Handle,
    _rest: [u64; 26],
}

const CONDITIONAL_NODE: i32 = 13;
const RELAXED: i32 = 2;
const SET_DEPENDENCIES: u32 = 1;

/// Where a stream that is recording has come to: its graph, and what the next node depends on.
pub(super) struct Position {
    /// Null where it records nothing.
    pub graph: Handle,
    pub dependencies: Vec<Handle>,
    edges: Vec<u64>,
}

pub(super) fn position(of: &Conditional, stream: &Stream) -> Result<Position, DriverError> {
    let (mut status, mut id, mut graph, mut count) = (0, 0, std::ptr::null_mut(), 0usize);
    let (mut nodes, mut edges): (*const Handle, *const u64) = (std::ptr::null(), std::ptr::null());
    // SAFETY: all places are valid; an edge's data are 8 bytes.
    let code = unsafe {
        (of.capture_info)(stream.handle, &mut status, &mut id, &mut graph, &mut nodes, &mut edges, &mut count)
    };
    stream.gpu.api.check("cuStreamGetCaptureInfo", code)?;
    let copied = |p: *const u64| match p.is_null() || count == 0 {
        true => vec![0; count],
        // SAFETY: the driver gives so many, valid until the stream's capture goes on; they are copied before.
        false => unsafe { std::slice::from_raw_parts(p, count) }.to_vec(),
    };
    let dependencies = copied(nodes.cast()).into_iter().map(|n| n as usize as Handle).collect();
    Ok(Position { graph, dependencies, edges: copied(edges) })
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

    /// Adds it to the graph that the stream records; in a stream that records none it is a graph of its own.
    pub fn run(self: &Arc<Branch>, stream: &Stream) -> Result<(), DriverError> {
        let of =
            Conditional::get().ok_or(DriverError::TooOld { symbol: "cuGraphConditionalHandleCreate" })?;
        let at = position(of, stream)?;
        if at.graph.is_null() {
            let recorder = Stream::new(&stream.gpu)?;
            let alone = Graph::new(&recorder, &[Command::Branch(self.clone())]);
            return alone.map_err(|f| f.error)?.run(stream);
        }
        self.record(of, stream, &at)
    }

    fn record(&self, of: &Conditional, stream: &Stream, at: &Position) -> Result<(), DriverError> {
        let api = stream.gpu.api;
        let mut handle = 0;
        // SAFETY: the graph is being recorded, the context is current.
        let code = unsafe { (of.create_handle)(&mut handle, at.graph, stream.gpu.context, 0, 0) };
        api.check("cuGraphConditionalHandleCreate", code)?;
        self.ahead.with_handle(handle).run(stream, false)?;
        let at = position(of, stream)?;
        let mut params = NodeParams {
            node: CONDITIONAL_NODE,
            _reserved: [0; 3],
            handle,
            kind: self.kind as i32,
            size: self.bodies.len() as u32,
            bodies: std::ptr::null_mut(),
            context: stream.gpu.context,
            _rest: [0; 26],
        };
        let mut node = std::ptr::null_mut();
        let count = at.dependencies.len();
        // SAFETY: the lists have `count` elements; the structure has the layout of the driver's header.
        let code = unsafe {
            (of.add_node)(
                &mut node,
                at.graph,
                at.dependencies.as_ptr(),
                at.edges.as_ptr().cast(),
                count,
                (&raw mut params).cast::<c_void>(),
            )
        };
        api.check("cuGraphAddNode", code)?;
        for (i, body) in self.bodies.iter().enumerate() {
            // SAFETY: the driver has made as many graphs as were asked for; they belong to the node.
            let graph = unsafe { *params.bodies.add(i) };
            self.record_body(of, graph, body, handle)?;
        }
        // SAFETY: the node is one of the graph that is recorded.
        let code =
            unsafe { (of.set_dependencies)(stream.handle, &mut node, std::ptr::null(), 1, SET_DEPENDENCIES) };
        api.check("cuStreamUpdateCaptureDependencies", code)
    }

    fn record_body(
        &self,
        of: &Conditional,
        graph: Handle,
        body: &[Command],
        handle: u64,
    ) -> Result<(), DriverError> {
        let (api, stream) = (self.recorder.gpu.api, &self.recorder);
        let none = std::ptr::null();
        // SAFETY: the stream is alive and records nothing else; the graph is the node's.
        let code = unsafe { (of.begin_in)(stream.handle, graph, none, none.cast(), 0, RELAXED) };
        api.check("cuStreamBeginCaptureToGraph", code)?;
        let told: Vec<Command> = body.iter().map(|c| c.with_handle(handle)).collect();
        let ran = run_all(&told, stream, true);
        let mut same = std::ptr::null_mut();
        // SAFETY: the capture was begun above; the graph stays the node's.
        let code = unsafe { (api.stream_end_capture)(stream.handle, &mut same) };
        ran.map_err(|f| f.error)?;
        api.check("cuStreamEndCapture", code)
    }
}
