//! Outputs of a run: copied to the host behind it, with the words that tell their sizes where these were left open.

use super::consumed::LastRead;
use super::context::{CudaContext, tensor};
use super::extent::WORD;
use super::memory::Range;
use super::values::bytes;
use kiln_backend::{BackendError, Shapes};
use kiln_ir::{Tensor, ValueId};
use std::sync::Arc;

/// Outputs that the host has not asked for yet, or has.
pub(super) enum Pending {
    /// In the read-back memory: values with so many bytes, none of those in memory of the caller's; then the words that lie
    /// at these addresses of the device.
    Copied(Vec<(ValueId, Option<usize>)>, Vec<u64>),
    Taken(Vec<Tensor>),
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
        let mut from = Vec::new();
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
        self.outputs = Some(Pending::Copied(pending, words));
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
            Pending::Copied(values, words) => {
                self.loaded.gpu.bind()?;
                self.done.wait()?;
                let read = values.iter().filter_map(|(_, n)| *n).chain(words.iter().map(|_| WORD));
                let mut read = self.collect(&read.collect::<Vec<_>>())?;
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
