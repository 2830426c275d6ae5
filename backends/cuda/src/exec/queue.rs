//! The queue of a context: a stream, and page-locked memory for transfers.

use super::memory::{Range, naming};
use super::uploads;
use crate::driver::{Buffer, Event, Pinned, Rows, Stream, Word};
use kiln_backend::flow::Pace;
use kiln_backend::{BackendError, TemporaryAllocator, stop};
use kiln_gpu::{Queue, Rearrange};
use std::sync::Arc;

/// Unbounded uploads are cut into pieces of this size.
const PIECE: usize = 32 << 20;

/// Uploads of many ranges go through two pieces of at most this size: one is filled while the other is copied.
const HALF: usize = 4 << 20;

/// Work of one context.
pub struct CudaQueue {
    pub stream: Arc<Stream>,
    /// A word that device loops read to know whether they are to stop; none without such loops.
    pub word: Option<Arc<Word>>,
    /// For what goes up.
    staging: Option<Pinned>,
    /// For what comes back.
    readback: Option<Pinned>,
    /// Recorded when the last run ended, if `marked`.
    done: Event,
    marked: bool,
    pace: Pace<Event>,
    pub allocations: u64,
    /// The caller's allocator, if memory is to come from it.
    pub allocator: Option<Arc<dyn TemporaryAllocator>>,
}

impl CudaQueue {
    pub fn new(stream: &Arc<Stream>, word: Option<Arc<Word>>) -> Result<CudaQueue, BackendError> {
        Ok(CudaQueue {
            stream: stream.clone(),
            word,
            staging: None,
            readback: None,
            done: Event::new(&stream.gpu, false)?,
            marked: true,
            pace: Pace::default(),
            allocations: 0,
            allocator: None,
        })
    }

    fn pinned<'a>(
        stream: &Arc<Stream>,
        slot: &'a mut Option<Pinned>,
        count: &mut u64,
        size: usize,
    ) -> Result<&'a mut Pinned, BackendError> {
        if slot.as_ref().is_none_or(|p| p.size() < size) {
            *slot = None;
            *count += 1;
            *slot = Some(naming("page-locked memory", size as u64, Pinned::new(stream, size))?);
        }
        slot.as_mut().ok_or_else(|| BackendError::Internal("no page-locked memory".into()))
    }

    /// Waits until the last run's memory of the host is free again; work of others in the stream may go on.
    fn await_run(&self) -> Result<(), BackendError> {
        self.stream.gpu.bind()?;
        match self.marked {
            true => self.done.wait()?,
            false => self.stream.synchronize()?,
        }
        Ok(())
    }

    /// Rearranges whole bytes.
    fn rearrange_rows(&mut self, job: &Rearrange, from: u64, to: u64) -> Result<(), BackendError> {
        let (inner, slot) = ((job.inner / 8) as usize, (job.slot / 8) as usize);
        let (rows, length) = (job.rows as usize, job.length as usize);
        let count = (job.filled as usize).min(length);
        let row = length * inner;
        let copy = |tensor: usize, slots: usize, height: usize, [tensor_pitch, slot_pitch]: [usize; 2]| {
            let (from_at, to_at, from_pitch, to_pitch) = match job.stacks {
                true => (slots, tensor, slot_pitch, tensor_pitch),
                false => (tensor, slots, tensor_pitch, slot_pitch),
            };
            let rows = Rows { width: inner, height, from_pitch, to_pitch };
            self.stream.copy_rows(to + to_at as u64, from + from_at as u64, rows)
        };
        if rows < count && !job.reverse {
            (0..rows).try_for_each(|r| copy(r * row, r * inner, count, [inner, slot]))?;
        } else {
            let place = |k: usize| if job.reverse { count - 1 - k } else { k };
            (0..count).try_for_each(|k| copy(place(k) * inner, k * slot, rows, [row, inner]))?;
        }
        Ok(())
    }

    /// Rearranges elements that share bytes, on the host.
    fn rearrange_bits(&mut self, job: &Rearrange, from: &Range, to: &Range) -> Result<(), BackendError> {
        let source = self.read(&[(*from, from.size as usize)])?.pop().unwrap_or_default();
        self.store(to, &job.on_host(&source))
    }
}

/// Bytes that a range takes in page-locked memory.
fn padded(n: usize) -> usize {
    n.next_multiple_of(256)
}

impl Queue for CudaQueue {
    type Buffer = Buffer;
    type Range = Range;

    fn begin(&mut self) -> Result<(), BackendError> {
        self.await_run()?;
        self.marked = false;
        self.pace.restart();
        Ok(())
    }

    fn allocate(&mut self, what: &str, bytes: u64) -> Result<Buffer, BackendError> {
        self.allocations += 1;
        match &self.allocator {
            Some(allocator) => Buffer::lent(&self.stream, bytes, allocator).map_err(|e| match e {
                BackendError::OutOfMemory { what: from, bytes } => {
                    BackendError::OutOfMemory { what: format!("{what} ({from})"), bytes }
                }
                e => e,
            }),
            None => naming(what, bytes, Buffer::new(&self.stream, bytes)),
        }
    }

    fn allocations(&self) -> u64 {
        self.allocations
    }

    fn upload(&mut self, parts: &[(Range, &[u8])]) -> Result<(), BackendError> {
        let total = parts.iter().map(|(_, bytes)| padded(bytes.len())).sum();
        if total == 0 {
            return Ok(());
        }
        let staging = Self::pinned(&self.stream, &mut self.staging, &mut self.allocations, total)?;
        let mut at = 0;
        for (to, bytes) in parts {
            staging.send(at, bytes, to.address)?;
            at += padded(bytes.len());
        }
        Ok(())
    }

    fn store(&mut self, to: &Range, bytes: &[u8]) -> Result<(), BackendError> {
        let size = bytes.len().min(PIECE);
        for (k, piece) in bytes.chunks(PIECE).enumerate() {
            self.stream.synchronize()?;
            let staging = Self::pinned(&self.stream, &mut self.staging, &mut self.allocations, size)?;
            staging.send(0, piece, to.address + (k * PIECE) as u64)?;
        }
        Ok(self.stream.synchronize()?)
    }

    fn store_all(&mut self, buffers: &[Vec<(Range, &[u8])>]) -> Result<(), BackendError> {
        let half = buffers.iter().flatten().map(|(_, bytes)| bytes.len()).sum::<usize>().min(HALF);
        if half == 0 {
            return Ok(());
        }
        self.stream.synchronize()?;
        let sent = [Event::new(&self.stream.gpu, false)?, Event::new(&self.stream.gpu, false)?];
        let staging = Self::pinned(&self.stream, &mut self.staging, &mut self.allocations, 2 * half)?;
        for (k, piece) in uploads::pieces(buffers, half).into_iter().enumerate() {
            let (start, sent) = (k % 2 * half, &sent[k % 2]);
            if k >= 2 {
                sent.wait()?;
            }
            for (at, bytes) in piece.parts {
                staging.write(start + at, bytes);
            }
            for (at, to, n) in piece.copies {
                staging.put_part(&self.stream, start + at, to, n)?;
            }
            sent.record(&self.stream)?;
        }
        Ok(self.stream.synchronize()?)
    }

    fn copy(&mut self, from: &Range, to: &Range, bytes: u64) -> Result<(), BackendError> {
        Ok(self.stream.copy(to.address, from.address, bytes as usize)?)
    }

    fn clear(&mut self, range: &Range, start: u64, end: u64) -> Result<(), BackendError> {
        Ok(self.stream.fill(range.address + start, 0, end.saturating_sub(start) as usize)?)
    }

    fn poison(&mut self, buffer: &Buffer) -> Result<(), BackendError> {
        Ok(buffer.fill(0xff, &self.stream)?)
    }

    fn rearrange(&mut self, job: &Rearrange, from: &Range, to: &Range) -> Result<(), BackendError> {
        if !job.inner.is_multiple_of(8) {
            return self.rearrange_bits(job, from, to);
        }
        if job.stacks && job.filled < job.length {
            self.clear(to, 0, job.bytes)?;
        }
        self.rearrange_rows(job, from.address, to.address)
    }

    fn start_reading(&mut self, from: &[(Range, usize)]) -> Result<(), BackendError> {
        self.stream.gpu.bind()?;
        self.marked = false;
        let total = from.iter().map(|(_, n)| padded(*n)).sum();
        let to = Self::pinned(&self.stream, &mut self.readback, &mut self.allocations, total)?;
        let mut at = 0;
        for (r, n) in from {
            to.fetch(at, r.address, *n)?;
            at += padded(*n);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), BackendError> {
        self.done.record(&self.stream)?;
        self.marked = true;
        Ok(())
    }

    fn finish_reading(&mut self, lengths: &[usize]) -> Result<Vec<Vec<u8>>, BackendError> {
        self.await_run()?;
        // The mark of the run is behind as well.
        self.marked = true;
        let total = lengths.iter().map(|n| padded(*n)).sum();
        let from = Self::pinned(&self.stream, &mut self.readback, &mut self.allocations, total)?;
        let mut at = 0;
        let mut out = Vec::new();
        for &n in lengths {
            out.push(from.bytes(at, n).to_vec());
            at += padded(n);
        }
        Ok(out)
    }

    fn wait(&mut self) -> Result<(), BackendError> {
        self.await_run()
    }

    fn relieve(&mut self) -> Result<(), BackendError> {
        if !stop::possible() || !self.pace.is_due(1) {
            return Ok(());
        }
        let mark = Event::new(&self.stream.gpu, false)?;
        mark.record(&self.stream)?;
        self.pace.passed(mark, |before| Ok(before.wait()?))
    }

    fn trim(&mut self) -> Result<(), BackendError> {
        (self.staging, self.readback) = (None, None);
        Ok(self.stream.gpu.trim()?)
    }
}

impl Drop for CudaQueue {
    fn drop(&mut self) {
        // The run in flight reads weights and code, which may go with the context and not in the order of its stream, and the
        // word, which may be in use in a stream of the caller's. That stream may be gone once its run is done.
        let waited = self.await_run();
        if let Err(e) = waited.or_else(|_| self.stream.synchronize()) {
            tracing::debug!("the last run of a context ended with an error that nobody asked for: {e}");
        }
        self.stream.leave();
    }
}
