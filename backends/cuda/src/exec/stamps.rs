//! Times of steps.

use crate::driver::{Event, Stream};
use kiln_backend::{BackendError, Program, StepTime};
use std::sync::Arc;

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

    /// The name of a step.
    pub fn name(&self, step: usize) -> &str {
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
            let &[(Some(step), from), (_, to)] = pair else { continue };
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
