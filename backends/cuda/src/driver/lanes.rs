//! Commands in several streams that record one graph.

use super::graph::Failed;
use super::library::{DriverError, cu};
use super::module::Command;
use super::stream::{Event, Stream};
use cudarc::driver::sys;
use std::sync::Arc;

/// Streams of commands: 0 is the main one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lanes {
    /// The stream of each command.
    pub of: Vec<usize>,
    /// Commands of other streams that each command waits for.
    pub waits: Vec<Vec<usize>>,
    /// Commands that the end waits for: the last ones of all other streams.
    pub ends: Vec<usize>,
    /// Number of streams.
    pub count: usize,
}

/// Streams that commands are put into, to record graphs or at once: one, and those beside it.
pub struct Recorder {
    pub main: Arc<Stream>,
    beside: Vec<Arc<Stream>>,
}

impl Recorder {
    pub fn new(main: Arc<Stream>) -> Recorder {
        Recorder { main, beside: Vec::new() }
    }

    /// Streams for commands that are put there now: `main`, those of the caller's, and as many further ones as so many lanes need.
    pub fn given(main: &Arc<Stream>, theirs: &[Arc<Stream>], lanes: usize) -> Result<Recorder, DriverError> {
        let theirs = theirs.iter().take(lanes.saturating_sub(1)).cloned();
        let mut all = Recorder { main: main.clone(), beside: theirs.collect() };
        all.reserve(lanes)?;
        Ok(all)
    }

    /// Makes streams for so many lanes.
    pub(super) fn reserve(&mut self, lanes: usize) -> Result<(), DriverError> {
        while self.beside.len() + 1 < lanes {
            self.beside.push(Stream::new(&self.main.gpu)?);
        }
        Ok(())
    }

    fn stream(&self, lane: usize) -> &Arc<Stream> {
        lane.checked_sub(1).and_then(|i| self.beside.get(i)).unwrap_or(&self.main)
    }
}

impl Stream {
    /// Lets work that is put into the stream from now on wait for an event.
    fn wait_for(&self, event: &Event) -> Result<(), DriverError> {
        // SAFETY: both handles are alive.
        unsafe { cu!(self.gpu.api, cuStreamWaitEvent(self.handle, event.raw(), 0)) }
    }
}

/// Events between the streams of commands.
pub struct Marks {
    /// In front of all commands.
    start: Event,
    /// Behind those commands that others wait for.
    behind: Vec<Option<Event>>,
}

impl Marks {
    pub fn new(commands: usize, recorder: &Recorder, lanes: &Lanes) -> Result<Marks, DriverError> {
        let gpu = &recorder.main.gpu;
        let mut marks = Marks { start: Event::new(gpu, false)?, behind: Vec::new() };
        marks.behind.resize_with(commands, || None);
        for &c in lanes.waits.iter().flatten().chain(&lanes.ends) {
            if let Some(mark) = marks.behind.get_mut(c).filter(|m| m.is_none()) {
                *mark = Some(Event::new(gpu, false)?);
            }
        }
        Ok(marks)
    }

    fn of(&self, command: usize) -> Option<&Event> {
        self.behind.get(command)?.as_ref()
    }
}

/// Puts commands into their streams. The others begin behind what is in the main one, and it ends behind them. `records` says that the main
/// one records a graph, which the others join.
pub fn run_lanes(
    commands: &[Command],
    recorder: &Recorder,
    lanes: &Lanes,
    (marks, records): (&Marks, bool),
    mut noted: impl FnMut(usize, &Stream) -> Result<(), DriverError>,
) -> Result<(), Failed> {
    marks.start.record(&recorder.main)?;
    let mut joined = vec![false; lanes.count];
    let mut behind = vec![false; lanes.count];
    for (i, c) in commands.iter().enumerate() {
        let lane = lanes.of.get(i).copied().unwrap_or(0);
        let stream = recorder.stream(lane);
        let waits = lanes.waits.get(i).map_or(&[][..], Vec::as_slice);
        if lane > 0 && !std::mem::replace(&mut joined[lane], true) {
            stream.wait_for(&marks.start)?;
        }
        waits.iter().filter_map(|&w| marks.of(w)).try_for_each(|event| stream.wait_for(event))?;
        let overlap = behind[lane] && waits.is_empty();
        let ran = match records {
            true => stream.while_recording(|| c.run(stream, overlap)),
            false => c.run(stream, overlap),
        };
        let ran = ran.and_then(|()| noted(i, stream));
        ran.map_err(|error| Failed { command: Some(i), error })?;
        behind[lane] = c.may_be_overlapped(overlap);
        marks.of(i).map_or(Ok(()), |event| event.record(stream))?;
    }
    let ends = lanes.ends.iter().filter_map(|&e| marks.of(e));
    Ok(ends.into_iter().try_for_each(|event| recorder.main.wait_for(event))?)
}
