//! Commands that wait to be submitted.

use super::super::memory::{Growing, Memory, Range};
use super::super::plan::Dispatch;
use super::super::record::{Stamps, collect, encode, encode_copies};
use super::Loaded;
use crate::gpu::Gpu;
use kiln_backend::BackendError;
use kiln_backend::flow::Pace;
use std::sync::Arc;

/// Records commands in order and submits them when asked to, or when they are many.
pub struct Recorder {
    pub gpu: Arc<Gpu>,
    encoder: Option<wgpu::CommandEncoder>,
    dispatches: usize,
    pace: Pace<wgpu::SubmissionIndex>,
    /// What is copied within one buffer goes through this one.
    bounce: Option<Growing>,
    pub allocations: u64,
}

impl Recorder {
    pub fn new(gpu: Arc<Gpu>) -> Recorder {
        Recorder { gpu, encoder: None, dispatches: 0, pace: Pace::default(), bounce: None, allocations: 0 }
    }

    /// Forgets what a run that failed left behind.
    pub fn forget(&mut self) {
        (self.encoder, self.dispatches) = (None, 0);
        self.pace.restart();
    }

    pub fn encoder(&mut self) -> &mut wgpu::CommandEncoder {
        let device = &self.gpu.device;
        self.encoder
            .get_or_insert_with(|| device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default()))
    }

    /// Submits what was recorded.
    pub fn flush(&mut self) -> Result<(), BackendError> {
        self.dispatches = 0;
        if let Some(e) = self.encoder.take() {
            self.gpu.queue.submit([e.finish()]);
            self.gpu.check()?;
        }
        Ok(())
    }

    /// Submits what was recorded, waits for it, and gives the contents of ranges.
    pub fn read(
        &mut self,
        memory: &mut Memory,
        from: &[(Range, usize)],
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let gpu = self.gpu.clone();
        encode_copies(&gpu, memory, self.encoder(), from)?;
        self.flush()?;
        let lengths: Vec<usize> = from.iter().map(|(_, n)| *n).collect();
        collect(&gpu, memory, &lengths)
    }

    /// Records dispatches.
    pub fn run(
        &mut self,
        loaded: &Loaded,
        dispatches: &[Dispatch],
        groups: &[wgpu::BindGroup],
        stamps: Option<&Stamps>,
    ) {
        encode(loaded, self.encoder(), dispatches, groups, stamps);
        self.dispatches += dispatches.len();
    }

    /// Submits what was recorded if it keeps the device busy for a while, and waits for what was submitted before it.
    pub fn relieve(&mut self) -> Result<(), BackendError> {
        if !self.pace.is_due(std::mem::take(&mut self.dispatches)) {
            return Ok(());
        }
        let gpu = self.gpu.clone();
        let commands = self.encoder.take().map(wgpu::CommandEncoder::finish);
        let mark = gpu.queue.submit(commands);
        gpu.check()?;
        self.pace.passed(mark, |before| gpu.finish_to(Some(before)))
    }

    /// Copies the first bytes of a range, in whole words.
    pub fn copy(&mut self, from: &Range, to: &Range, bytes: usize) -> Result<(), BackendError> {
        let n = (bytes as u64).next_multiple_of(4);
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
        let between = Memory::tensor(&self.gpu, &mut self.bounce, &mut self.allocations, n)?;
        let e = self.encoder();
        e.copy_buffer_to_buffer(&from.buffer, from.offset, &between.buffer, 0, n);
        e.copy_buffer_to_buffer(&between.buffer, 0, &to.buffer, to.offset, n);
        Ok(())
    }

    /// Fills bytes `start..end` of a range with zeros, in whole words.
    pub fn clear(&mut self, r: &Range, start: u64, end: u64) {
        let (start, end) = (start.next_multiple_of(4).min(r.size), end.next_multiple_of(4).min(r.size));
        if start < end {
            self.encoder().clear_buffer(&r.buffer, r.offset + start, Some(end - start));
        }
    }
}
