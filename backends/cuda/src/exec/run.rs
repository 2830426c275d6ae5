//! Launches that are ready to run, alone or as a graph.

use super::memory::naming;
use super::plan::Planned;
use crate::driver::{Buffer, Command, Event, Failed, Graph, Pinned, Stream, at_layer};
use crate::nvtx::Range;
use kiln_backend::{BackendError, Program, StepTime};
use std::sync::Arc;

/// The launches of a run or of a part of it.
pub struct Batch {
    launches: Vec<Command>,
    steps: Vec<usize>,
    further: Option<Further>,
    graph: Option<Graph>,
    runs: u64,
    /// Whose steps they are, for errors.
    program: Option<Arc<Program>>,
}

/// Memory of argument words that found no room in the launches' parameters.
pub struct Further {
    buffer: Buffer,
    pinned: Pinned,
    /// Behind the transfer.
    sent: Event,
}

impl Further {
    fn new(stream: &Arc<Stream>, bytes: usize) -> Result<Further, BackendError> {
        let what = "argument words";
        Ok(Further {
            buffer: naming(what, bytes as u64, Buffer::new(stream, bytes as u64))?,
            pinned: naming(what, bytes as u64, Pinned::new(stream, bytes))?,
            sent: Event::new(&stream.gpu, false)?,
        })
    }

    fn holds(&self, bytes: usize) -> bool {
        self.buffer.size() >= bytes as u64 && self.pinned.size() >= bytes
    }
}

/// Where the address of further words lies in a launch's parameter.
const FURTHER_AT: usize = 16;

impl Batch {
    /// Uploads the words that don't travel with the launches, into `old` memory if it is large enough; counts what is
    /// allocated.
    pub fn new(
        stream: &Arc<Stream>,
        planned: Vec<Planned>,
        old: Option<Further>,
        allocations: &mut u64,
    ) -> Result<Batch, BackendError> {
        let bytes = planned.iter().map(|p| p.further.len()).sum::<usize>() * 4;
        let mut further = None;
        if bytes > 0 {
            further = Some(match old.filter(|f| f.holds(bytes)) {
                Some(f) => f,
                None => {
                    *allocations += 2;
                    Further::new(stream, bytes)?
                }
            });
        }
        let (mut launches, mut steps, mut words) = (Vec::new(), Vec::new(), Vec::with_capacity(bytes / 4));
        for mut p in planned {
            if let Some(f) = further.as_ref().filter(|_| !p.further.is_empty()) {
                let address = f.buffer.address() + words.len() as u64 * 4;
                if let Command::Kernel(l) = &mut p.launch
                    && let Some(place) = l.parameter.get_mut(FURTHER_AT..FURTHER_AT + 8)
                {
                    place.copy_from_slice(&address.to_le_bytes());
                }
                words.extend(p.further);
            }
            launches.push(p.launch);
            steps.push(p.step);
        }
        if let Some(f) = &mut further {
            // The last transfer out of this memory may not have begun.
            f.sent.wait()?;
            let to = f.buffer.address();
            f.pinned.send(0, bytemuck::cast_slice(&words), to)?;
            f.sent.record(stream)?;
        }
        Ok(Batch { launches, steps, further, graph: None, runs: 0, program: None })
    }

    /// The same; errors name the layers of this program.
    pub fn of(self, program: &Arc<Program>) -> Batch {
        Batch { program: Some(program.clone()), ..self }
    }

    fn failed(&self, f: Failed) -> BackendError {
        let step = f.command.and_then(|c| self.steps.get(c));
        let step = step.and_then(|&s| self.program.as_ref()?.steps.get(s));
        match step {
            Some(s) => at_layer(f.error.into(), &s.name),
            None => f.error.into(),
        }
    }

    fn launch(&self, command: usize, stream: &Stream) -> Result<(), BackendError> {
        let ran = self.launches.get(command).map_or(Ok(()), |l| l.run(stream, true));
        ran.map_err(|error| self.failed(Failed { command: Some(command), error }))
    }

    /// Puts the launches into the stream, with marks around each step where they are wanted.
    pub fn run(&mut self, stream: &Stream, stamps: Option<&mut Stamps>) -> Result<(), BackendError> {
        self.runs += 1;
        let Some(stamps) = stamps else {
            match &self.graph {
                Some(g) => g.run(stream)?,
                None => (0..self.launches.len()).try_for_each(|i| self.launch(i, stream))?,
            }
            return Ok(());
        };
        for (i, &step) in self.steps.iter().enumerate() {
            stamps.before(step, stream)?;
            let _step = Range::of(stamps.name(step));
            self.launch(i, stream)?;
        }
        stamps.close(stream)
    }

    /// Can it become a graph? Once it has run without one, so that all kernels are loaded; control flow is nothing else.
    pub fn wants_graph(&self) -> bool {
        let branches = self.launches.iter().any(Command::is_branch);
        self.graph.is_none() && (branches || self.launches.len() >= 2 && self.runs > 0)
    }

    /// Its commands, and the memory that they name.
    pub fn into_parts(self) -> (Vec<Command>, Option<Further>) {
        (self.launches, self.further)
    }

    /// Its kernels have run in another batch.
    pub fn prove(&mut self) {
        self.runs = self.runs.max(1);
    }

    /// Has it a graph?
    pub fn has_graph(&self) -> bool {
        self.graph.is_some()
    }

    /// Makes a graph of the launches, taking over `old` where its kernels are the same. `recorder` is a stream for nothing
    /// else. Returns how many graphs were instantiated.
    pub fn make_graph(&mut self, recorder: &Arc<Stream>, old: Option<Graph>) -> Result<u64, BackendError> {
        if let Some(mut g) = old
            && g.update(recorder, &self.launches).map_err(|f| self.failed(f))?
        {
            self.graph = Some(g);
            return Ok(0);
        }
        self.graph = Some(Graph::new(recorder, &self.launches).map_err(|f| self.failed(f))?);
        Ok(1)
    }

    /// Gives its graph away.
    pub fn take_graph(&mut self) -> Option<Graph> {
        self.graph.take()
    }

    /// What another batch can use of this one.
    pub fn retire(self) -> (Option<Graph>, Option<Further>) {
        (self.graph, self.further)
    }
}

/// Marks in the stream around every step of a run.
pub struct Stamps {
    program: Arc<Program>,
    marks: Vec<Event>,
    /// Step and its first mark; the next mark ends it.
    used: Vec<(Option<usize>, usize)>,
    next: usize,
}

impl Stamps {
    pub fn new(program: &Arc<Program>) -> Stamps {
        Stamps { program: program.clone(), marks: Vec::new(), used: Vec::new(), next: 0 }
    }

    fn name(&self, step: usize) -> &str {
        self.program.steps.get(step).map_or("", |s| &s.name)
    }

    /// Forgets the last run's times.
    pub fn reset(&mut self) {
        self.used.clear();
        self.next = 0;
    }

    fn mark(&mut self, step: Option<usize>, stream: &Stream) -> Result<(), BackendError> {
        if self.next == self.marks.len() {
            self.marks.push(Event::new(&stream.gpu, true)?);
        }
        if let Some(e) = self.marks.get(self.next) {
            e.record(stream)?;
        }
        self.used.push((step, self.next));
        self.next += 1;
        Ok(())
    }

    /// Marks where a step begins.
    pub fn before(&mut self, step: usize, stream: &Stream) -> Result<(), BackendError> {
        if self.used.last().map(|u| u.0) == Some(Some(step)) {
            return Ok(());
        }
        self.mark(Some(step), stream)
    }

    /// Marks where the last step ends.
    pub fn close(&mut self, stream: &Stream) -> Result<(), BackendError> {
        self.mark(None, stream)
    }

    /// Durations of the steps of the last run, which is done.
    pub fn read(&self) -> Result<Vec<StepTime>, BackendError> {
        let mut out: Vec<StepTime> = Vec::new();
        for pair in self.used.windows(2) {
            let (&[(Some(step), from), (_, to)], true) = (pair, true) else { continue };
            let (Some(a), Some(b)) = (self.marks.get(from), self.marks.get(to)) else { continue };
            b.wait()?;
            let ns = a.until(b)?;
            match out.iter_mut().find(|t| t.step == step) {
                Some(t) => t.ns += ns,
                None => out.push(StepTime::new(step, ns)),
            }
        }
        Ok(out)
    }
}
