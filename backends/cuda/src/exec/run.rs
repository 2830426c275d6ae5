//! Launches that are ready to run, alone or as a graph.

use super::memory::naming;
use super::plan::Planned;
use crate::driver::{Buffer, Event, Graph, Launch, Pinned, Stream};
use kiln_backend::{BackendError, StepTime};
use std::sync::Arc;

/// The launches of a run or of a part of it.
pub struct Batch {
    launches: Vec<Launch>,
    steps: Vec<usize>,
    /// Argument words that found no room in the launches' parameters.
    _further: Option<(Buffer, Pinned)>,
    graph: Option<Graph>,
    runs: u64,
}

/// Where the address of further words lies in a launch's parameter.
const FURTHER_AT: usize = 16;

impl Batch {
    /// Uploads the words that don't travel with the launches.
    pub fn new(stream: &Arc<Stream>, planned: Vec<Planned>) -> Result<Batch, BackendError> {
        let total: usize = planned.iter().map(|p| p.further.len()).sum();
        let mut further = None;
        if total > 0 {
            let bytes = total * 4;
            let buffer = naming("argument words", bytes as u64, Buffer::new(stream, bytes as u64))?;
            let pinned = naming("argument words", bytes as u64, Pinned::new(stream, bytes))?;
            further = Some((buffer, pinned));
        }
        let (mut launches, mut steps, mut words) = (Vec::new(), Vec::new(), Vec::with_capacity(total));
        for mut p in planned {
            if let Some((buffer, _)) = further.as_ref().filter(|_| !p.further.is_empty()) {
                let address = buffer.address() + words.len() as u64 * 4;
                if let Some(place) = p.launch.parameter.get_mut(FURTHER_AT..FURTHER_AT + 8) {
                    place.copy_from_slice(&address.to_le_bytes());
                }
                words.extend(p.further);
            }
            launches.push(p.launch);
            steps.push(p.step);
        }
        if let Some((buffer, pinned)) = &mut further {
            let to = buffer.address();
            pinned.send(0, bytemuck::cast_slice(&words), to)?;
        }
        Ok(Batch { launches, steps, _further: further, graph: None, runs: 0 })
    }

    /// Puts the launches into the stream, with marks around each step where they are wanted.
    pub fn run(&mut self, stream: &Stream, stamps: Option<&mut Stamps>) -> Result<(), BackendError> {
        self.runs += 1;
        let Some(stamps) = stamps else {
            match &self.graph {
                Some(g) => g.run()?,
                None => self.launches.iter().try_for_each(|l| l.run(stream))?,
            }
            return Ok(());
        };
        for (l, &step) in self.launches.iter().zip(&self.steps) {
            stamps.before(step, stream)?;
            l.run(stream)?;
        }
        stamps.close(stream)
    }

    /// Makes a graph of the launches once they have run without one, taking over `old` where its kernels are the same.
    /// Returns how many graphs were instantiated.
    pub fn make_graph(&mut self, stream: &Arc<Stream>, old: Option<Graph>) -> Result<u64, BackendError> {
        if self.graph.is_some() || self.launches.len() < 2 || self.runs == 0 {
            return Ok(0);
        }
        if let Some(mut g) = old
            && g.update(&self.launches)?
        {
            self.graph = Some(g);
            return Ok(0);
        }
        self.graph = Some(Graph::new(stream, &self.launches)?);
        Ok(1)
    }

    /// Gives its graph away.
    pub fn take_graph(&mut self) -> Option<Graph> {
        self.graph.take()
    }
}

/// Marks in the stream around every step of a run.
pub struct Stamps {
    marks: Vec<Event>,
    /// Step and its first mark; the next mark ends it.
    used: Vec<(Option<usize>, usize)>,
    next: usize,
}

impl Stamps {
    pub fn new() -> Stamps {
        Stamps { marks: Vec::new(), used: Vec::new(), next: 0 }
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
                None => out.push(StepTime { step, ns }),
            }
        }
        Ok(out)
    }
}
