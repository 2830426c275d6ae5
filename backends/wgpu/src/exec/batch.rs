//! Dispatches bound and recorded into command buffers.

use super::commands::bind_group;
use super::dispatch::Dispatch;
use super::memory::{Buffer, Range};
use super::pieces::Pieces;
use super::queue::WgpuQueue;
use super::stamps::Stamps;
use super::write::write;
use crate::adapter::ALIGNMENT;
use crate::gpu::Gpu;
use crate::wgsl::HEAD_BYTES;
use kiln_backend::assisted::{DECISIONS, Reason};
use kiln_backend::{BackendError, Program, StepTime, stop};
use kiln_gpu::{Buffer as _, Executor, Loaded, Run, lost};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// Bind groups by kernel and number of the dispatch, with the ranges that they bind.
type BindGroups = HashMap<(usize, usize), (Vec<Range>, wgpu::BindGroup)>;

/// Dispatches with their arguments and bind groups.
pub struct Batch {
    dispatches: Vec<Dispatch>,
    /// None of calls of plug-ins' libraries.
    groups: Vec<Option<wgpu::BindGroup>>,
    args: Buffer,
    cache: BindGroups,
    pieces: Pieces,
}

impl Batch {
    /// Uploads the arguments and binds; in the memory of an old batch where that is large enough.
    fn new(
        loaded: &Loaded<Gpu>,
        queue: &mut WgpuQueue,
        dispatches: Vec<Dispatch>,
        old: Option<Batch>,
    ) -> Result<Batch, BackendError> {
        let mut words: Vec<u32> = Vec::new();
        let mut spans = Vec::new();
        for d in &dispatches {
            words.resize(words.len().next_multiple_of(ALIGNMENT as usize / 4), 0);
            spans.push((words.len() as u64 * 4, (d.args.len() as u64 * 4).next_multiple_of(16)));
            words.extend(&d.args);
        }
        words.resize(words.len().next_multiple_of(4), 0);
        // Room for every dispatch at its largest, so that other shapes of the same ranks fit.
        let bytes = (words.len() as u64 * 4).max(dispatches.len() as u64 * 2 * ALIGNMENT);
        let (old, mut cache) = old.map_or((None, HashMap::new()), |b| (Some(b.args), b.cache));
        let args = match old.filter(|b| b.bytes() >= bytes + HEAD_BYTES) {
            Some(b) => b,
            None => queue.arguments("arguments", bytes)?,
        };
        // Arguments are written ahead of what is recorded.
        queue.submit()?;
        write(&queue.gpu, &args.buffer, 0, bytemuck::cast_slice(&words))?;
        let mut groups = Vec::with_capacity(dispatches.len());
        for (d, (offset, size)) in dispatches.iter().zip(spans) {
            if d.native.is_some() {
                groups.push(None);
                continue;
            }
            let args = args.range(offset, size);
            let mut ranges = vec![args.clone()];
            ranges.extend(d.ranges.iter().cloned());
            let known = cache.get(&(d.kernel, d.number)).filter(|(k, _)| *k == ranges);
            groups.push(Some(match known {
                Some((_, group)) => group.clone(),
                None => {
                    let step = &loaded.steps[d.kernel];
                    let code = step.code.as_ref().ok_or_else(|| lost(step))?;
                    let module = code.module.as_ref().ok_or_else(|| lost(step))?;
                    let group = bind_group(&queue.gpu, &module.layout, &args, &d.ranges)?;
                    cache.insert((d.kernel, d.number), (ranges, group.clone()));
                    group
                }
            }));
        }
        Ok(Batch { dispatches, groups, args, cache, pieces: Pieces::default() })
    }

    /// Records a part of the dispatches; steps get passes of their own if they are timed.
    fn record(
        &self,
        loaded: &Loaded<Gpu>,
        queue: &mut WgpuQueue,
        part: std::ops::Range<usize>,
        stamps: Option<&mut Stamps>,
    ) -> Result<(), BackendError> {
        let pairs: Vec<_> = self.dispatches[part.clone()].iter().zip(&self.groups[part]).collect();
        queue.dispatches += pairs.len();
        let stamps = stamps.filter(|_| !pairs.is_empty()).map(|s| {
            s.set = true;
            &*s
        });
        let same_pass = |a: &(&Dispatch, _), b: &(&Dispatch, _)| {
            let native = a.0.native.is_some() || b.0.native.is_some();
            !native && (stamps.is_none() || a.0.step == b.0.step)
        };
        for run in pairs.chunk_by(same_pass) {
            if let [(d, _)] = run
                && let Some(native) = &d.native
            {
                let layer = || loaded.steps[d.kernel].layer(&loaded.program, d.step);
                native.record(queue, stamps.map(|s| s.of(d.step as u32))).map_err(|e| e.inside(layer()))?;
                continue;
            }
            let timestamp_writes = stamps.map(|s| s.of(run[0].0.step as u32));
            let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
            let mut pass = queue.encoder().begin_compute_pass(&descriptor);
            for (d, group) in run {
                let module = loaded.steps[d.kernel].code.as_ref().and_then(|c| c.module.as_ref());
                let pipeline = module.and_then(|m| m.pipelines.get(d.entry));
                if let Some((p, group)) = pipeline.zip(group.as_ref()) {
                    pass.set_pipeline(p);
                    pass.set_bind_group(0, group, &[]);
                    pass.dispatch_workgroups(d.groups.0, d.groups.1, 1);
                }
            }
        }
        Ok(())
    }
}

impl Executor for Gpu {
    type Batch = Batch;
    type Stamps = Stamps;
    type State = ();
    type FlowState = ();

    const PREPARED: usize = 1;
    const WALKS: Option<Reason> = Some(DECISIONS);

    fn state(_queue: &mut WgpuQueue) -> Result<(), BackendError> {
        Ok(())
    }

    fn batch(
        loaded: &Arc<Loaded<Gpu>>,
        queue: &mut WgpuQueue,
        launches: Vec<Dispatch>,
        old: Option<Batch>,
    ) -> Result<Batch, BackendError> {
        Batch::new(loaded, queue, launches, old)
    }

    /// Records a batch. Of a run that may be stopped only the last dispatches: those before are submitted in pieces, and the host
    /// waits for each piece. The bodies of control flow are submitted by the queue's pace.
    fn put(
        run: &mut Run<Gpu>,
        queue: &mut WgpuQueue,
        batch: &mut Batch,
        kept: bool,
    ) -> Result<(), BackendError> {
        let (loaded, count) = (&run.loaded, batch.dispatches.len());
        let step = |d: &Dispatch| loaded.program.steps.get(d.step).map_or("", |s| s.name.as_str());
        let mut from = 0;
        // The times of a step are taken in one submission.
        while !run.nested && stop::possible() && !run.times.on {
            stop::check(batch.dispatches.get(from).map_or("", step))?;
            let end = batch.pieces.end(from, count);
            if end == count {
                break;
            }
            queue.submit()?;
            batch.record(loaded, queue, from..end, None)?;
            let start = Instant::now();
            queue.submit()?;
            let layer = || batch.dispatches.get(end - 1).map_or("", step);
            queue.gpu.finish().map_err(|e| e.inside(layer()))?;
            batch.pieces.took(from..end, start.elapsed());
            from = end;
        }
        let stamps = run.times.stamps.as_mut().filter(|_| run.times.on);
        batch.record(loaded, queue, from..count, stamps)?;
        if kept || run.nested { Ok(()) } else { queue.submit() }
    }

    fn stamps(device: &Gpu, program: &Arc<Program>) -> Result<Stamps, BackendError> {
        Stamps::new(device, program.steps.len())
    }

    fn reset(stamps: &mut Stamps) {
        stamps.set = false;
    }

    fn step_times(queue: &mut WgpuQueue, stamps: &mut Stamps) -> Result<Vec<StepTime>, BackendError> {
        stamps.read(queue)
    }
}
