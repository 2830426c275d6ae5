//! Outputs of a run: copied to the host behind it, with the words that tell their sizes where these were left open.

use super::consumed::LastRead;
use super::context::{CudaContext, tensor};
use super::device::Loaded;
use super::extent::WORD;
use super::memory::Range;
use super::values::bytes;
use kiln_backend::{BackendError, Shapes, stop};
use kiln_codegen::checks::{RECORD_WORDS, recorded};
use kiln_ir::{Tensor, ValueId};
use std::sync::Arc;

/// Outputs that the host has not asked for yet, or has.
pub(super) enum Pending {
    /// In the read-back memory: the records of these programs' steps; values with so many bytes, none of those in memory of the
    /// caller's; then the words that lie at these addresses of the device.
    Copied(Vec<Arc<Loaded>>, Vec<(ValueId, Option<usize>)>, Vec<u64>),
    Taken(Vec<Tensor>),
}

/// Bytes of the records of a program's steps.
fn record_bytes(loaded: &Loaded) -> usize {
    loaded.steps.len() * RECORD_WORDS * 4
}

impl CudaContext {
    /// Starts copying the outputs.
    pub(super) fn take_outputs(&mut self, shapes: &Shapes) -> Result<(), BackendError> {
        if self.timed_only {
            self.done.record(&self.stream)?;
            self.marked = true;
            return Ok(());
        }
        let loaded = self.loaded.clone();
        let (programs, mut from): (Vec<_>, Vec<_>) = self.records().into_iter().unzip();
        let mut pending = Vec::new();
        for &v in &loaded.program.graph.outputs {
            let (r, n) = self.place(shapes, v)?;
            if !self.deliver(v, r, n)? {
                from.push((r, n));
                pending.push((v, Some(n)));
            } else {
                pending.push((v, None));
            }
        }
        let words = self.open.words();
        from.extend(words.iter().map(|&address| (Range { address, size: WORD as u64 }, WORD)));
        self.start_reading(&from)?;
        self.mark(LastRead::Outputs)?;
        self.done.record(&self.stream)?;
        self.marked = true;
        self.outputs = Some(Pending::Copied(programs, pending, words));
        Ok(())
    }

    /// An output that lies in memory of the caller's, or is copied there because nothing writes it: an input, a weight.
    fn deliver(&mut self, v: ValueId, from: Range, bytes: usize) -> Result<bool, BackendError> {
        let Some(to) = self.memory.bound.outputs.get(&v).copied() else { return Ok(false) };
        if to.size < bytes as u64 {
            return Err(BackendError::InvalidArgument(format!(
                "output \"{}\" has {bytes} bytes, the memory bound to it {}; bind more",
                self.loaded.program.graph.value(v).name,
                to.size
            )));
        }
        if to.address != from.address {
            self.stream.copy(to.address, from.address, bytes)?;
        }
        Ok(true)
    }

    /// Waits for the run and gives its outputs; all shapes are known from then on.
    pub(super) fn results(&mut self) -> Result<Vec<Tensor>, BackendError> {
        let nothing = || BackendError::InvalidArgument("no run to take outputs of; enqueue first".into());
        let shapes = self.shapes.clone().ok_or_else(nothing)?;
        let out = match self.outputs.take().ok_or_else(nothing)? {
            Pending::Taken(t) => t,
            Pending::Copied(programs, values, words) => {
                self.loaded.gpu.bind()?;
                self.done.wait()?;
                self.check_records(&programs)?;
                // Loops on the device may have ended early.
                stop::check("")?;
                let skipped = programs.iter().map(|p| record_bytes(p));
                let read = values.iter().filter_map(|(_, n)| *n).chain(words.iter().map(|_| WORD));
                let mut read = self.collect(&skipped.chain(read).collect::<Vec<_>>())?;
                read.drain(..programs.len());
                let told = read.split_off(read.len().saturating_sub(words.len()));
                let shapes = self.settled(shapes, &words, &told)?;
                let mut read = read.into_iter();
                let mut out = Vec::with_capacity(values.len());
                for (v, copied) in values {
                    out.push(match copied.and_then(|_| read.next()) {
                        Some(mut all) => {
                            let ty = &shapes.fact(v).ty;
                            all.truncate(bytes(ty)? as usize);
                            tensor(ty, all)?
                        }
                        None => self.fetch(&shapes, v)?,
                    });
                }
                out
            }
        };
        self.outputs = Some(Pending::Taken(out.clone()));
        Ok(out)
    }

    /// Where the steps of this program, and of the bodies in it, record an index out of range.
    pub(super) fn records(&self) -> Vec<(Arc<Loaded>, (Range, usize))> {
        let own = self.memory.records().map(|r| (self.loaded.clone(), (r, record_bytes(&self.loaded))));
        let bodies = self.bodies.iter().flatten().flat_map(|b| &b.bodies);
        own.into_iter().chain(bodies.flat_map(|b| b.context.records())).collect()
    }

    /// Resets them.
    pub(super) fn clear_records(&self) -> Result<(), BackendError> {
        self.memory.clear_records()?;
        let mut bodies = self.bodies.iter().flatten().flat_map(|b| &b.bodies);
        bodies.try_for_each(|b| b.context.clear_records())
    }

    /// Looks at the records of the last run, which is done: its error, if there is one.
    fn check_records(&mut self, programs: &[Arc<Loaded>]) -> Result<(), BackendError> {
        let lengths: Vec<usize> = programs.iter().map(|p| record_bytes(p)).collect();
        let all = self.collect(&lengths)?;
        let found = programs.iter().zip(&all).try_for_each(|(p, records)| {
            p.steps.iter().zip(records.chunks(RECORD_WORDS * 4)).enumerate().try_for_each(|(i, (step, r))| {
                let anchor = step.anchor.and_then(|n| p.program.graph.get(n));
                recorded(r, anchor.map(|n| &n.op), step.layer(&p.program, i))
            })
        });
        if found.is_err() {
            self.clear_records()?;
        }
        found
    }

    /// Waits for the run: the error that its steps recorded, if there is one. Its outputs can still be asked for.
    pub(super) fn finish(&mut self) -> Result<(), BackendError> {
        self.await_run()?;
        let programs = match &self.outputs {
            Some(Pending::Copied(programs, ..)) => programs.clone(),
            _ => return Ok(()),
        };
        self.check_records(&programs).inspect_err(|_| self.outputs = None)
    }

    /// The shapes of the run with those that it left open.
    fn settled(
        &mut self,
        shapes: Arc<Shapes>,
        words: &[u64],
        told: &[Vec<u8>],
    ) -> Result<Arc<Shapes>, BackendError> {
        if self.open.is_empty() {
            return Ok(shapes);
        }
        let number = |b: &Vec<u8>| b.first_chunk::<WORD>().map(|b| i64::from_le_bytes(*b));
        let words: Vec<_> = words.iter().zip(told).filter_map(|(&at, b)| Some((at, number(b)?))).collect();
        let mut known = (*shapes).clone();
        self.open.settle(&words, &mut known)?;
        let known = Arc::new(known);
        self.shapes = Some(known.clone());
        Ok(known)
    }
}
