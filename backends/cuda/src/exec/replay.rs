//! Runs whose launches are known: as a graph, or timed without transfers.

use super::context::CudaContext;
use super::run::Batch;
use crate::driver::Event;
use kiln_backend::{BackendError, Shapes};
use std::sync::Arc;

/// How many prepared runs have a graph of their own; further ones take over another's.
const GRAPHS: usize = 4;

impl CudaContext {
    /// Runs prepared launches; as a graph from their second run on. Gives the shapes that they were made for.
    pub(super) fn replay(&mut self, at: usize) -> Result<Arc<Shapes>, BackendError> {
        let mut p = self.prepared.remove(at);
        self.open = p.open.clone();
        let (ran, shapes) = (self.run_graph(&mut p.batch), p.shapes.clone());
        self.prepared.push(p);
        self.whole = true;
        ran.map(|()| shapes)
    }

    pub(super) fn run_graph(&mut self, batch: &mut Batch) -> Result<(), BackendError> {
        if self.stamps.is_none() && batch.wants_graph() {
            let graphs = self.prepared.iter().filter(|p| p.batch.has_graph()).count();
            let mut old = self.spare.take();
            if old.is_none() && graphs >= GRAPHS {
                old = self.prepared.iter_mut().find_map(|p| p.batch.take_graph());
            }
            self.counters.pipelines += batch.make_graph(&self.recorder, old)?;
        }
        batch.run(&self.stream, self.stamps.as_mut())
    }

    /// Durations of so many runs of a batch.
    pub(super) fn time_batch(&mut self, batch: &mut Batch, runs: u32) -> Result<Vec<f64>, BackendError> {
        // No marks around steps meanwhile.
        let stamps = self.stamps.take();
        let marks = self.mark_runs(batch, runs);
        self.stamps = stamps;
        marks?.iter().map(|(from, to)| Ok(from.until(to)?)).collect()
    }

    /// Runs a batch so often; an event in front of each run and one behind it, all of which are reached.
    fn mark_runs(&mut self, batch: &mut Batch, runs: u32) -> Result<Vec<(Event, Event)>, BackendError> {
        let mut marks = Vec::with_capacity(runs.min(1 << 16) as usize);
        for _ in 0..runs {
            let (from, to) = (Event::new(&self.loaded.gpu, true)?, Event::new(&self.loaded.gpu, true)?);
            from.record(&self.stream)?;
            self.run_graph(batch)?;
            to.record(&self.stream)?;
            marks.push((from, to));
        }
        self.stream.synchronize()?;
        Ok(marks)
    }
}
