//! Launches that are ready to run, alone or as a graph.

use super::kernel::CudaGpu;
use super::lanes::{self, Kind};
use super::launch::Planned;
use super::memory::naming;
use super::places::{Moved, Place};
use super::queue::CudaQueue;
use super::stamps::Stamps;
use crate::driver::{
    Buffer, Command, Event, Failed, Gpu, Graph, Lanes, Marks, Pinned, Recorder, Stream, at_layer, run_all,
    run_lanes,
};
use crate::nvtx::Range;
use kiln_backend::{BackendError, Program};
use kiln_gpu::{Loaded, Queue as _};
use std::sync::Arc;

/// The launches of a run or of a part of it.
pub struct Batch {
    launches: Vec<Command>,
    steps: Vec<usize>,
    further: Option<Arc<Further>>,
    /// The launches as graphs, and those between them that no graph records.
    parts: Option<Vec<Part>>,
    /// A graph that may be updated to these launches.
    inherited: Option<Graph>,
    runs: u64,
    /// Whose steps they are, for errors.
    program: Option<Arc<Program>>,
    /// Streams of the launches in a graph; none where they are all in one.
    lanes: Option<Lanes>,
    /// The streams of the caller's that its launches go into, with events between them.
    beside: Option<(Recorder, Marks)>,
    /// Places with addresses of bound memory, by launch in order; none where some addresses are where no other ones can be put.
    places: Option<Vec<(usize, Place)>>,
    /// Whether it has run in other memory than the one that it was made for.
    moves: bool,
}

/// A part of a batch, in order.
enum Part {
    /// A graph of the launches from this one on.
    Graph(Graph, usize),
    /// One launch.
    Alone(usize),
}

impl Part {
    /// Its first launch.
    fn from(&self) -> usize {
        match self {
            Part::Graph(_, from) | Part::Alone(from) => *from,
        }
    }
}

/// Launches at each end that may be outside of the graph, where their addresses change from run to run.
const ENDS: usize = 4;

/// Memory of argument words that found no room in the launches' parameters.
pub struct Further {
    buffer: Buffer,
    pinned: Pinned,
    /// Behind the transfer.
    sent: Event,
}

impl Further {
    fn new(queue: &mut CudaQueue, bytes: usize) -> Result<Further, BackendError> {
        let what = "argument words";
        let buffer = queue.allocate(what, bytes as u64)?;
        queue.allocations += 1;
        let pinned = naming(what, bytes as u64, Pinned::new(&queue.stream, bytes))?;
        Ok(Further { buffer, pinned, sent: Event::new(&queue.stream.gpu, false)? })
    }

    fn holds(&self, bytes: usize) -> bool {
        self.buffer.size() >= bytes as u64 && self.pinned.size() >= bytes
    }
}

/// Objects that a graph of the caller's uses.
pub struct Recorded {
    _further: Option<Arc<Further>>,
    /// Control flow, with the memory that its bodies name.
    _branches: Vec<Command>,
}

/// Offset of the address of further words in a launch's parameter.
const FURTHER_AT: usize = 16;

impl Batch {
    /// Uploads the words that don't travel with the launches, into the memory of an old batch if it is large enough.
    pub fn new(
        queue: &mut CudaQueue,
        planned: Vec<Planned>,
        old: Option<Batch>,
    ) -> Result<Batch, BackendError> {
        let (inherited, old) = old.map_or((None, None), |mut b| (b.take_graph(), b.further));
        // Memory that a graph of the caller's names is not written again.
        let old = old.and_then(Arc::into_inner);
        let bytes = planned.iter().map(|p| p.further.len()).sum::<usize>() * 4;
        let mut further = None;
        if bytes > 0 {
            further = Some(match old.filter(|f| f.holds(bytes)) {
                Some(f) => f,
                None => Further::new(queue, bytes)?,
            });
        }
        let (mut launches, mut steps, mut words) = (Vec::new(), Vec::new(), Vec::with_capacity(bytes / 4));
        let mut places = planned.iter().all(|p| !p.fixed).then(Vec::new);
        for mut p in planned {
            if let Some(places) = &mut places {
                places.extend(p.places.drain(..).map(|place| (launches.len(), place)));
            }
            if let Some(f) = further.as_ref().filter(|_| !p.further.is_empty()) {
                let address = f.buffer.address() + words.len() as u64 * 4;
                if let Command::Kernel(l) = &mut p.launch
                    && let Some(place) = l.parameter.get_mut(FURTHER_AT..FURTHER_AT + 8)
                {
                    place.copy_from_slice(&address.to_le_bytes());
                }
                words.extend(p.further);
            }
            if let (Some(Command::Kernel(last)), Command::Kernel(next)) = (launches.last_mut(), &p.launch) {
                last.yield_to(next);
            }
            launches.push(p.launch);
            steps.push(p.step);
        }
        if let Some(f) = &mut further {
            // The last transfer out of this memory may not have begun.
            f.sent.wait()?;
            let to = f.buffer.address();
            f.pinned.send(0, bytemuck::cast_slice(&words), to)?;
            f.sent.record(&queue.stream)?;
        }
        let further = further.map(Arc::new);
        let (parts, program, lanes, beside) = (None, None, None, None);
        Ok(Batch {
            launches,
            steps,
            further,
            parts,
            inherited,
            runs: 0,
            program,
            lanes,
            beside,
            places,
            moves: false,
        })
    }

    /// Returns the batch with a program, whose layers its errors name, and makes its commands ready.
    pub fn of(self, program: &Arc<Program>) -> Result<Batch, BackendError> {
        let batch = Batch { program: Some(program.clone()), ..self };
        for (i, command) in batch.launches.iter().enumerate() {
            let ready = command.prepare();
            ready.map_err(|error| batch.failed(Failed { command: Some(i), error }))?;
        }
        Ok(batch)
    }

    fn failed(&self, f: Failed) -> BackendError {
        let step = f.command.and_then(|c| self.steps.get(c));
        let step = step.and_then(|&s| self.program.as_ref()?.steps.get(s));
        match step {
            Some(s) => match at_layer(f.error.into(), &s.name) {
                // The words of a plug-in, which do not name the layer of the network.
                BackendError::InvalidArgument(why) => {
                    BackendError::InvalidArgument(format!("layer \"{}\": {why}", s.name))
                }
                e => e,
            },
            None => f.error.into(),
        }
    }

    /// Puts a launch into the stream. The first one waits for what is in front of the run. So the others may read inputs of the run
    /// before they wait for kernels.
    fn launch(&self, command: usize, stream: &Stream) -> Result<(), BackendError> {
        let ran = self.launches.get(command).map_or(Ok(()), |l| l.run(stream, command > 0));
        ran.map_err(|error| self.failed(Failed { command: Some(command), error }))
    }

    /// Puts the launches into the stream, with marks around each step where they are wanted.
    pub fn run(&mut self, stream: &Stream, stamps: Option<&mut Stamps>) -> Result<(), BackendError> {
        self.runs += 1;
        let Some(stamps) = stamps else {
            let Some(parts) = &self.parts else {
                return (0..self.launches.len()).try_for_each(|i| self.launch(i, stream));
            };
            return parts.iter().try_for_each(|p| match p {
                Part::Graph(g, _) => g.run(stream).map_err(BackendError::from),
                Part::Alone(i) => self.launch(*i, stream),
            });
        };
        for (i, &step) in self.steps.iter().enumerate() {
            stamps.before(step, stream)?;
            let _step = Range::of(stamps.name(step));
            self.launch(i, stream)?;
        }
        stamps.close(stream)
    }

    /// Puts the launches into a stream and, those of the program's auxiliary streams, into streams of the caller's. False, and nothing done,
    /// where all are in one stream, or where control flow runs as a graph only.
    pub fn run_beside(&mut self, stream: &Arc<Stream>, theirs: &[Arc<Stream>]) -> Result<bool, BackendError> {
        let Some(lanes) = self.lanes.as_ref().filter(|l| l.count > 1) else { return Ok(false) };
        if self.launches.iter().any(Command::is_branch) {
            return Ok(false);
        }
        let (streams, marks) = match self.beside.take() {
            Some(known) => known,
            None => {
                let streams = Recorder::given(stream, theirs, lanes.count)?;
                let marks = Marks::new(self.launches.len(), &streams, lanes)?;
                (streams, marks)
            }
        };
        let ran = run_lanes(&self.launches, &streams, lanes, (&marks, false), |_, _| Ok(()));
        self.beside = Some((streams, marks));
        ran.map_err(|f| self.failed(f))?;
        self.runs += 1;
        Ok(true)
    }

    /// Puts the launches one by one into a stream that records a graph of the caller's, control flow as conditional nodes of that graph.
    /// Returns what the graph uses, which stays as long as it does.
    pub fn record(&self, stream: &Stream) -> Result<Recorded, BackendError> {
        if let Some(i) = self.launches.iter().position(|c| !c.is_capturable()) {
            let step = self.steps.get(i).and_then(|&s| self.program.as_ref()?.steps.get(s));
            return Err(BackendError::Unsupported(format!(
                "the stream records a graph, and layer \"{}\" has a native form that no graph records: run the engine outside of the \
                 capture, or ask the plug-in's author for a form with KILN_NATIVE_CAPTURABLE",
                step.map_or("", |s| s.name.as_str())
            )));
        }
        let ran = stream.while_recording(|| run_all(&self.launches, stream, false, |_, _| Ok(())));
        ran.map_err(|f| self.failed(f))?;
        let branches = self.launches.iter().filter(|c| c.is_branch()).cloned().collect();
        Ok(Recorded { _further: self.further.clone(), _branches: branches })
    }

    /// Puts other addresses of bound memory into the launches. Those at the ends, which have most of them, are outside of its graph from then
    /// on; nodes of the graph are set. False, and nothing changed, where some cannot be put.
    pub fn rebind(&mut self, gpu: &Gpu, moved: &Moved) -> Result<bool, BackendError> {
        let Some(places) = self.places.as_mut().filter(|all| moved.fits(all.iter().map(|p| &p.1))) else {
            return Ok(false);
        };
        let mut changed: Vec<usize> = Vec::new();
        for (command, place) in places {
            if let Some(Command::Kernel(launch)) = self.launches.get_mut(*command)
                && moved.put(place, launch, gpu)?
                && changed.last() != Some(command)
            {
                changed.push(*command);
            }
        }
        if !std::mem::replace(&mut self.moves, true) && self.ends().is_some() {
            (self.parts, self.inherited) = (None, None);
        }
        for command in changed {
            let Some(Command::Kernel(launch)) = self.launches.get(command) else { continue };
            let parts = self.parts.iter_mut().flatten().rev();
            let part = parts.filter(|p| p.from() <= command).max_by_key(|p| p.from());
            let set = match part {
                Some(Part::Graph(g, from)) => g.set(command - *from, launch),
                Some(Part::Alone(_)) | None => Ok(true),
            };
            if !set.map_err(|error| self.failed(Failed { command: Some(command), error }))? {
                // A graph whose nodes are not known is made anew.
                self.parts = None;
                break;
            }
        }
        Ok(true)
    }

    /// Launches with addresses of bound memory at the ends: those in front of the first position, and from the second one on. None where
    /// there are none, and where launches are in several streams.
    fn ends(&self) -> Option<(usize, usize)> {
        let (count, placed) = (self.launches.len(), self.placed(0));
        let alone = |c: &Command| c.is_capturable() && !c.is_branch();
        if self.lanes.is_some() || !self.launches.iter().all(alone) {
            return None;
        }
        let front = placed.iter().rev().find(|&&c| c < ENDS).map_or(0, |c| c + 1);
        let back = placed.iter().find(|&&c| c >= front.max(count.saturating_sub(ENDS)));
        let back = back.copied().unwrap_or(count);
        (front > 0 || back < count).then_some((front, back))
    }

    /// Makes a graph of the launches between those at the ends.
    fn make_middle(
        &mut self,
        recorder: &mut Recorder,
        (front, back): (usize, usize),
    ) -> Result<u64, BackendError> {
        self.inherited = None;
        let middle = self.launches.get(front..back).unwrap_or_default();
        let mut parts: Vec<Part> = (0..front).map(Part::Alone).collect();
        let made = middle.len() > 1;
        if made {
            let placed = self.placed(front);
            let placed = placed.into_iter().filter(|&c| c < back - front).collect::<Vec<_>>();
            let graph = Graph::new(recorder, middle, None, &placed)
                .map_err(|f| self.failed(Failed { command: f.command.map(|c| c + front), error: f.error }))?;
            parts.push(Part::Graph(graph, front));
        } else {
            parts.extend((front..back).map(Part::Alone));
        }
        parts.extend((back..self.launches.len()).map(Part::Alone));
        self.parts = Some(parts);
        Ok(u64::from(made))
    }

    /// Whether it should become a graph: once it has run without one, so that all kernels are loaded. Control flow runs as a graph
    /// only.
    pub fn wants_graph(&self) -> bool {
        let branches = self.launches.iter().any(Command::is_branch);
        self.parts.is_none() && (branches || self.launches.len() >= 2 && self.runs > 0)
    }

    /// Puts the launches of a whole run into the streams of its program.
    pub fn arrange(&mut self, loaded: &Loaded<CudaGpu>) {
        if self.lanes.is_some() {
            return;
        }
        let kind = |c: &Command| match c {
            Command::Weight(w) => Kind::Copy(w.weight),
            Command::Mark(_) => Kind::Mark,
            _ => Kind::Work,
        };
        let kinds: Vec<Kind> = self.launches.iter().map(kind).collect();
        self.lanes = lanes::of(&loaded.program, loaded.weights.streamed.as_ref(), &kinds, &self.steps);
    }

    /// Its commands, and the memory that they name.
    pub fn into_parts(self) -> (Vec<Command>, Option<Arc<Further>>) {
        (self.launches, self.further)
    }

    /// Notes that its kernels have run in another batch.
    pub fn prove(&mut self) {
        self.runs = self.runs.max(1);
    }

    /// Whether it has a graph.
    pub fn has_graph(&self) -> bool {
        self.parts.is_some()
    }

    /// Makes a graph of the launches; updates an inherited one, or what `old` finds, where its kernels are the same. `recorder` is
    /// for nothing else. Returns how many graphs were instantiated.
    pub fn make_graph(
        &mut self,
        recorder: &mut Recorder,
        old: impl FnOnce() -> Option<Graph>,
    ) -> Result<u64, BackendError> {
        if !self.launches.iter().all(Command::is_capturable) {
            return self.split(recorder);
        }
        if let Some(ends) = self.ends().filter(|_| self.moves) {
            return self.make_middle(recorder, ends);
        }
        if let Some(mut g) = self.inherited.take().or_else(old)
            && g.update(recorder, &self.launches, self.lanes.as_ref()).map_err(|f| self.failed(f))?
        {
            self.parts = Some(vec![Part::Graph(g, 0)]);
            return Ok(0);
        }
        let graph = Graph::new(recorder, &self.launches, self.lanes.as_ref(), &self.placed(0));
        let graph = graph.map_err(|f| self.failed(f))?;
        self.parts = Some(vec![Part::Graph(graph, 0)]);
        Ok(1)
    }

    /// Launches whose parameters have addresses of bound memory, counted from one of them on.
    fn placed(&self, from: usize) -> Vec<usize> {
        let places = self.places.iter().flatten();
        let mut all: Vec<usize> = places.filter_map(|(command, _)| command.checked_sub(from)).collect();
        all.dedup();
        all
    }

    /// Makes graphs of the launches between those that no graph records.
    fn split(&mut self, recorder: &mut Recorder) -> Result<u64, BackendError> {
        self.inherited = None;
        let (mut parts, mut made, mut from) = (Vec::new(), 0, 0);
        for group in self.launches.chunk_by(|a, b| a.is_capturable() && b.is_capturable()) {
            let worth = group.len() > 1 || group.iter().any(Command::is_branch);
            if worth {
                let graph = Graph::new(recorder, group, None, &self.placed(from)).map_err(|f| {
                    self.failed(Failed { command: f.command.map(|c| c + from), error: f.error })
                })?;
                parts.push(Part::Graph(graph, from));
                made += 1;
            } else {
                parts.push(Part::Alone(from));
            }
            from += group.len();
        }
        self.parts = Some(parts);
        Ok(made)
    }

    /// Takes its graph out, the first one of several.
    pub fn take_graph(&mut self) -> Option<Graph> {
        self.parts.take()?.into_iter().find_map(|p| match p {
            Part::Graph(g, _) => Some(g),
            Part::Alone(_) => None,
        })
    }
}
