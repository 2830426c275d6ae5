//! Recording dispatches into command buffers, and reading memory back.

use super::device::Loaded;
use super::memory::{Growing, Memory, Range};
use super::plan::Dispatch;
use crate::adapter::ALIGNMENT;
use crate::gpu::Gpu;
use kiln_backend::{BackendError, StepTime};
use std::collections::HashMap;
use std::sync::atomic::Ordering;

/// Bind groups by step and number of the dispatch, with the ranges that they bind.
#[derive(Default)]
pub struct BindGroups(HashMap<(usize, usize), (Vec<(u64, u64, u64)>, wgpu::BindGroup)>);

impl BindGroups {
    fn get(&mut self, loaded: &Loaded, d: &Dispatch, args: &Range) -> Result<wgpu::BindGroup, BackendError> {
        let ranges = || std::iter::once(args).chain(&d.ranges);
        let key: Vec<_> = ranges().map(|r| (r.id, r.offset, r.size)).collect();
        if let Some((_, group)) = self.0.get(&(d.step, d.number)).filter(|(k, _)| *k == key) {
            return Ok(group.clone());
        }
        let group = bind_group(&loaded.gpu, &loaded.steps[d.step].module.layout, ranges())?;
        self.0.insert((d.step, d.number), (key, group.clone()));
        Ok(group)
    }
}

/// A bind group of these ranges in order.
pub fn bind_group<'a>(
    gpu: &Gpu,
    layout: &wgpu::BindGroupLayout,
    ranges: impl Iterator<Item = &'a Range>,
) -> Result<wgpu::BindGroup, BackendError> {
    let entries: Vec<_> = ranges
        .enumerate()
        .map(|(i, r)| wgpu::BindGroupEntry {
            binding: i as u32,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: &r.buffer,
                offset: r.offset,
                size: std::num::NonZeroU64::new(r.size),
            }),
        })
        .collect();
    let group =
        gpu.device.create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout, entries: &entries });
    gpu.check()?;
    Ok(group)
}

/// Uploads the arguments of all dispatches into a buffer that grows and gives the bind group of each.
pub fn bind(
    loaded: &Loaded,
    args: &mut Option<Growing>,
    allocations: &mut u64,
    groups: &mut BindGroups,
    dispatches: &[Dispatch],
) -> Result<Vec<wgpu::BindGroup>, BackendError> {
    let mut words: Vec<u32> = Vec::new();
    let mut spans = Vec::new();
    for d in dispatches {
        words.resize(words.len().next_multiple_of(ALIGNMENT as usize / 4), 0);
        spans.push((words.len() as u64 * 4, (d.args.len() as u64 * 4).next_multiple_of(16)));
        words.extend(&d.args);
    }
    words.resize(words.len().next_multiple_of(4), 0);
    // Room for every dispatch at its largest, so that other shapes of the same ranks fit.
    let bytes = words.len() as u64 * 4;
    let bytes = bytes.max(dispatches.len() as u64 * 2 * ALIGNMENT);
    let whole = Memory::tensor(&loaded.gpu, args, allocations, bytes)?;
    super::memory::write(&loaded.gpu, &whole.buffer, 0, bytemuck::cast_slice(&words))?;
    let bound = dispatches.iter().zip(spans);
    bound.map(|(d, (offset, size))| groups.get(loaded, d, &Range { offset, size, ..whole.clone() })).collect()
}

/// Timestamps around every step of a program.
pub struct Stamps {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    steps: usize,
}

/// The most queries of one set.
const MAX_QUERIES: usize = 4096;

impl Stamps {
    pub fn new(gpu: &Gpu, steps: usize) -> Result<Stamps, BackendError> {
        let count = steps * 2;
        if !gpu.timestamps || count > MAX_QUERIES || count == 0 {
            return Err(BackendError::Unsupported(format!("timing {steps} steps on {}", gpu.target.device)));
        }
        let queries = gpu.device.create_query_set(&wgpu::QuerySetDescriptor {
            label: None,
            ty: wgpu::QueryType::Timestamp,
            count: count as u32,
        });
        let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        let resolved = gpu.buffer("timestamps", count as u64 * 8, usage)?;
        Ok(Stamps { queries, resolved, steps })
    }

    pub fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        encoder.resolve_query_set(&self.queries, 0..self.steps as u32 * 2, &self.resolved, 0);
    }

    /// Durations of the steps that ran.
    pub fn read(&self, gpu: &Gpu, memory: &mut Memory) -> Result<Vec<StepTime>, BackendError> {
        let from = Range { buffer: self.resolved.clone(), id: 0, offset: 0, size: self.resolved.size() };
        let bytes = read_ranges(gpu, memory, &[(from, self.steps * 16)])?.pop().unwrap_or_default();
        let period = f64::from(gpu.queue.get_timestamp_period());
        let ticks: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|c| u64::from_le_bytes(*c)).collect();
        let spans = ticks.chunks_exact(2).enumerate().filter(|(_, t)| t[1] >= t[0] && t[1] != 0);
        Ok(spans.map(|(step, t)| StepTime::new(step, (t[1] - t[0]) as f64 * period)).collect())
    }
}

/// Records dispatches; steps get passes of their own if they are timed.
pub fn encode(
    loaded: &Loaded,
    encoder: &mut wgpu::CommandEncoder,
    dispatches: &[Dispatch],
    groups: &[wgpu::BindGroup],
    stamps: Option<&Stamps>,
) {
    let pairs: Vec<_> = dispatches.iter().zip(groups).collect();
    let same_pass = |a: &(&Dispatch, _), b: &(&Dispatch, _)| stamps.is_none() || a.0.step == b.0.step;
    for run in pairs.chunk_by(same_pass) {
        let step = run[0].0.step as u32;
        let timestamp_writes = stamps.map(|s| wgpu::ComputePassTimestampWrites {
            query_set: &s.queries,
            beginning_of_pass_write_index: Some(step * 2),
            end_of_pass_write_index: Some(step * 2 + 1),
        });
        let mut pass =
            encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes });
        for (d, group) in run {
            if let Some(p) = loaded.steps[d.step].module.pipelines.get(d.entry) {
                pass.set_pipeline(p);
                pass.set_bind_group(0, *group, &[]);
                pass.dispatch_workgroups(d.groups.0, d.groups.1, 1);
            }
        }
    }
}

/// Records copies of ranges into the read-back buffer, one after the other.
pub fn encode_copies(
    gpu: &Gpu,
    memory: &mut Memory,
    encoder: &mut wgpu::CommandEncoder,
    from: &[(Range, usize)],
) -> Result<(), BackendError> {
    let total: u64 = from.iter().map(|(_, n)| padded(*n)).sum();
    let to = memory.readback(gpu, total)?;
    let mut at = 0;
    for (r, n) in from.iter().filter(|(_, n)| *n > 0) {
        encoder.copy_buffer_to_buffer(&r.buffer, r.offset, &to.buffer, at, (*n as u64).next_multiple_of(4));
        at += padded(*n);
    }
    Ok(())
}

fn padded(n: usize) -> u64 {
    (n as u64).next_multiple_of(8)
}

/// Waits for the device and takes what [`encode_copies`] put into the read-back buffer.
pub fn collect(gpu: &Gpu, memory: &mut Memory, lengths: &[usize]) -> Result<Vec<Vec<u8>>, BackendError> {
    let total: u64 = lengths.iter().map(|n| padded(*n)).sum();
    if total == 0 {
        gpu.finish()?;
        return Ok(lengths.iter().map(|_| Vec::new()).collect());
    }
    gpu.downloads.fetch_add(1, Ordering::Relaxed);
    let from = memory.readback(gpu, total)?;
    let slice = from.buffer.slice(..total);
    let (send, receive) = std::sync::mpsc::channel();
    slice.map_async(wgpu::MapMode::Read, move |r| drop(send.send(r)));
    if let Err(e) = gpu.finish() {
        // A run that was stopped leaves nothing mapped to the next one.
        from.buffer.unmap();
        return Err(e);
    }
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
    from.buffer.unmap();
    Ok(out)
}

/// Copies ranges to the host now.
pub fn read_ranges(
    gpu: &Gpu,
    memory: &mut Memory,
    from: &[(Range, usize)],
) -> Result<Vec<Vec<u8>>, BackendError> {
    let mut encoder = gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encode_copies(gpu, memory, &mut encoder, from)?;
    gpu.queue.submit([encoder.finish()]);
    let lengths: Vec<usize> = from.iter().map(|(_, n)| *n).collect();
    collect(gpu, memory, &lengths)
}
