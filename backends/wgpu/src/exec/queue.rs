//! The queue of a context: commands that wait to be submitted, and transfers.

use super::memory::{Buffer, Range, TENSOR};
use super::rearrange::{ARGUMENT_BYTES, Rearranger};
use super::write::write;
use crate::gpu::Gpu;
use crate::wgsl::HEAD_BYTES;
use kiln_backend::BackendError;
use kiln_backend::flow::Pace;
use kiln_gpu::{Buffer as _, Queue, Range as _, Rearrange};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of the buffer that poison is copied from.
const POISON: usize = 1 << 20;

/// Records commands in order and submits them when asked to, or when they are many.
pub struct WgpuQueue {
    pub gpu: Arc<Gpu>,
    encoder: Option<wgpu::CommandEncoder>,
    /// Commands recorded since the last submission.
    pub dispatches: usize,
    pace: Pace<wgpu::SubmissionIndex>,
    /// Copies within one buffer go through this one.
    bounce: Option<Buffer>,
    readback: Option<Buffer>,
    /// Whether work of a run may still be under way.
    unfinished: bool,
    poison: Option<Buffer>,
    rearranger: Rearranger,
    allocations: u64,
}

impl WgpuQueue {
    pub fn new(gpu: &Arc<Gpu>) -> WgpuQueue {
        WgpuQueue {
            gpu: gpu.clone(),
            encoder: None,
            dispatches: 0,
            pace: Pace::default(),
            bounce: None,
            readback: None,
            unfinished: false,
            poison: None,
            rearranger: Rearranger::default(),
            allocations: 0,
        }
    }

    /// The encoder that commands are recorded into.
    pub fn encoder(&mut self) -> &mut wgpu::CommandEncoder {
        let device = &self.gpu.device;
        self.encoder
            .get_or_insert_with(|| device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default()))
    }

    /// Submits what was recorded.
    pub fn submit(&mut self) -> Result<(), BackendError> {
        self.dispatches = 0;
        if let Some(e) = self.encoder.take() {
            self.gpu.queue.submit([e.finish()]);
            self.gpu.check()?;
        }
        self.rearranger.submitted();
        Ok(())
    }

    /// A buffer, counted.
    pub fn buffer(
        &mut self,
        what: &str,
        bytes: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<Buffer, BackendError> {
        self.allocations += 1;
        Ok(Buffer::new(self.gpu.buffer(what, bytes, usage)?))
    }

    /// Memory for so many bytes of argument words, with room behind them for the uniform buffer of the last ones.
    pub fn arguments(&mut self, what: &str, bytes: u64) -> Result<Buffer, BackendError> {
        self.buffer(what, bytes + HEAD_BYTES, TENSOR.union(wgpu::BufferUsages::UNIFORM))
    }

    fn readback(&mut self, bytes: u64) -> Result<wgpu::Buffer, BackendError> {
        if let Some(b) = self.readback.as_ref().filter(|b| b.bytes() >= bytes) {
            return Ok(b.buffer.clone());
        }
        self.readback = None;
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let buffer = self.buffer("read-back memory", bytes, usage)?;
        Ok(self.readback.insert(buffer).buffer.clone())
    }
}

/// Bytes that a range takes in the read-back memory.
fn padded(n: usize) -> u64 {
    (n as u64).next_multiple_of(8)
}

impl Queue for WgpuQueue {
    type Buffer = Buffer;
    type Range = Range;

    fn begin(&mut self) -> Result<(), BackendError> {
        // A run that was stopped, or whose outputs nobody took, may still be at work.
        if self.unfinished {
            self.gpu.finish()?;
        }
        self.unfinished = true;
        (self.encoder, self.dispatches) = (None, 0);
        self.rearranger.submitted();
        self.pace.restart();
        Ok(())
    }

    fn allocate(&mut self, what: &str, bytes: u64) -> Result<Buffer, BackendError> {
        self.buffer(what, bytes, TENSOR)
    }

    fn allocations(&self) -> u64 {
        self.allocations
    }

    fn upload(&mut self, parts: &[(Range, &[u8])]) -> Result<(), BackendError> {
        parts.iter().try_for_each(|(to, bytes)| write(&self.gpu, &to.buffer, to.offset, bytes))
    }

    fn store(&mut self, to: &Range, bytes: &[u8]) -> Result<(), BackendError> {
        write(&self.gpu, &to.buffer, to.offset, bytes)
    }

    fn copy(&mut self, from: &Range, to: &Range, bytes: u64) -> Result<(), BackendError> {
        let n = bytes.next_multiple_of(4);
        if n == 0 || from.same_start(to) {
            return Ok(());
        }
        if n > from.size || n > to.size {
            return Err(BackendError::Internal(format!(
                "a copy of {n} bytes from {} into {}",
                from.size, to.size
            )));
        }
        self.dispatches += 1;
        if from.id != to.id {
            self.encoder().copy_buffer_to_buffer(&from.buffer, from.offset, &to.buffer, to.offset, n);
            return Ok(());
        }
        let between = match self.bounce.take().filter(|b| b.bytes() >= n) {
            Some(b) => b,
            None => self.buffer("memory for copies", n, TENSOR)?,
        };
        let e = self.encoder();
        e.copy_buffer_to_buffer(&from.buffer, from.offset, &between.buffer, 0, n);
        e.copy_buffer_to_buffer(&between.buffer, 0, &to.buffer, to.offset, n);
        self.bounce = Some(between);
        Ok(())
    }

    /// In whole words.
    fn clear(&mut self, range: &Range, start: u64, end: u64) -> Result<(), BackendError> {
        let words = |n: u64| n.next_multiple_of(4).min(range.size);
        let (start, end) = (words(start), words(end));
        if start < end {
            self.encoder().clear_buffer(&range.buffer, range.offset + start, Some(end - start));
        }
        Ok(())
    }

    fn poison(&mut self, buffer: &Buffer) -> Result<(), BackendError> {
        if self.poison.is_none() {
            let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
            let from = Buffer::new(self.gpu.buffer("poison", POISON as u64, usage)?);
            write(&self.gpu, &from.buffer, 0, &vec![0xff; POISON])?;
            self.poison = Some(from);
        }
        let Some(from) = self.poison.as_ref().map(|p| p.buffer.clone()) else { return Ok(()) };
        let mut at = 0;
        while at < buffer.bytes() {
            let n = from.size().min(buffer.bytes() - at);
            self.encoder().copy_buffer_to_buffer(&from, 0, &buffer.buffer, at, n);
            at += n;
        }
        Ok(())
    }

    fn rearrange(&mut self, job: &Rearrange, from: &Range, to: &Range) -> Result<(), BackendError> {
        let limit = self.gpu.target.memory.max_binding;
        if job.stacks && job.rows == 1 && job.inner == job.slot && from.size.max(to.size) > limit {
            // Whole slots in another order, more than a kernel can bind.
            let slot = job.slot / 8;
            for i in 0..job.filled {
                let place = if job.reverse { job.filled - 1 - i } else { i };
                self.copy(&from.part(i * slot, slot), &to.part(place * slot, slot), slot)?;
                self.relieve()?;
            }
            return self.clear(to, job.filled * slot, job.bytes);
        }
        if self.rearranger.is_full() {
            self.submit()?;
        }
        if self.rearranger.args.is_none() {
            self.rearranger.args = Some(self.arguments("arguments of loops", ARGUMENT_BYTES)?);
        }
        self.encoder();
        let WgpuQueue { gpu, encoder, rearranger, .. } = self;
        match encoder {
            Some(encoder) => rearranger.run(gpu, encoder, job, from, to),
            None => Ok(()),
        }
    }

    fn start_reading(&mut self, from: &[(Range, usize)]) -> Result<(), BackendError> {
        let to = self.readback(from.iter().map(|(_, n)| padded(*n)).sum())?;
        let mut at = 0;
        for (r, n) in from.iter().filter(|(_, n)| *n > 0) {
            let bytes = (*n as u64).next_multiple_of(4);
            self.encoder().copy_buffer_to_buffer(&r.buffer, r.offset, &to, at, bytes);
            at += padded(*n);
        }
        self.submit()
    }

    fn end(&mut self) -> Result<(), BackendError> {
        self.submit()
    }

    fn finish_reading(&mut self, lengths: &[usize]) -> Result<Vec<Vec<u8>>, BackendError> {
        let total: u64 = lengths.iter().map(|n| padded(*n)).sum();
        if total == 0 {
            self.wait()?;
            return Ok(lengths.iter().map(|_| Vec::new()).collect());
        }
        self.gpu.downloads.fetch_add(1, Ordering::Relaxed);
        let from = self.readback(total)?;
        let slice = from.slice(..total);
        let (send, receive) = std::sync::mpsc::channel();
        slice.map_async(wgpu::MapMode::Read, move |r| drop(send.send(r)));
        if let Err(e) = self.gpu.finish() {
            // A run that was stopped leaves nothing mapped to the next one.
            from.unmap();
            return Err(e);
        }
        self.unfinished = false;
        let lost = |e: String| BackendError::DeviceLost(format!("the result could not be mapped: {e}"));
        receive.recv().map_err(|e| lost(e.to_string()))?.map_err(|e| lost(e.to_string()))?;
        let mut out = Vec::new();
        {
            let view = slice.get_mapped_range().map_err(|e| lost(e.to_string()))?;
            let mut at = 0usize;
            for &n in lengths {
                out.push(view.get(at..at + n).unwrap_or_default().to_vec());
                at += padded(n) as usize;
            }
        }
        from.unmap();
        Ok(out)
    }

    fn wait(&mut self) -> Result<(), BackendError> {
        self.submit()?;
        self.gpu.finish()
    }

    fn relieve(&mut self) -> Result<(), BackendError> {
        if !self.pace.is_due(std::mem::take(&mut self.dispatches)) {
            return Ok(());
        }
        let gpu = self.gpu.clone();
        let commands = self.encoder.take().map(wgpu::CommandEncoder::finish);
        let mark = gpu.queue.submit(commands);
        self.rearranger.submitted();
        gpu.check()?;
        self.pace.passed(mark, |before| gpu.finish_to(Some(before)))
    }

    fn trim(&mut self) -> Result<(), BackendError> {
        Ok(())
    }
}
