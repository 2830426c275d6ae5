//! The phases of a build that are open, as monitors and callbacks are informed of them.

use crate::{BuildError, Monitor, Progress};

/// The phases of a build that are open. Dropping finishes them.
pub(crate) struct Phases<'a> {
    callback: Progress<'a>,
    monitor: Option<Monitor>,
    open: Vec<Phase>,
}

struct Phase {
    name: String,
    steps: usize,
    done: usize,
}

impl<'a> Phases<'a> {
    /// No phase yet, reported to both.
    pub(crate) fn new(callback: Progress<'a>, monitor: Option<Monitor>) -> Phases<'a> {
        Phases { callback, monitor, open: Vec::new() }
    }

    /// Opens a phase inside of the innermost one. Returns its depth, for [`Phases::finish`].
    ///
    /// # Errors
    /// [`BuildError::Cancelled`].
    pub(crate) fn start(&mut self, name: impl Into<String>, steps: usize) -> Result<usize, BuildError> {
        let name = name.into();
        if let Some(m) = &self.monitor {
            let parent = self.open.last().map(|p| p.name.as_str());
            m.with(|m| m.phase_start(&name, parent, steps));
        }
        self.open.push(Phase { name, steps, done: 0 });
        self.tell(true)?;
        Ok(self.open.len() - 1)
    }

    /// Notes that a step of the innermost phase is done.
    ///
    /// # Errors
    /// [`BuildError::Cancelled`].
    pub(crate) fn step(&mut self) -> Result<(), BuildError> {
        let Some(phase) = self.open.last_mut() else { return Ok(()) };
        phase.done += 1;
        let goes_on = match &self.monitor {
            Some(m) => m.with(|m| m.step_complete(&phase.name, phase.done - 1)),
            None => true,
        };
        self.tell(goes_on)
    }

    /// Asks the callback, too.
    fn tell(&mut self, goes_on: bool) -> Result<(), BuildError> {
        let Some(phase) = self.open.last() else { return Ok(()) };
        match (self.callback)(&phase.name, phase.done, phase.steps) && goes_on {
            true => Ok(()),
            false => Err(BuildError::Cancelled),
        }
    }

    /// Closes the phase of this depth, and those in it that an error left open.
    pub(crate) fn finish(&mut self, depth: usize) {
        while self.open.len() > depth {
            let phase = self.open.pop();
            if let (Some(m), Some(phase)) = (&self.monitor, phase) {
                m.with(|m| m.phase_finish(&phase.name));
            }
        }
    }
}

impl Drop for Phases<'_> {
    fn drop(&mut self) {
        self.finish(0);
    }
}
