//! An open wgpu device, its errors collected instead of panicking, its pipelines cached by text.

use crate::adapter::features;
use crate::exec::Buffer;
use kiln_backend::{BackendError, Recent, Target, stop, watchdog};
use kiln_gpu::SharedBuffers;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time after which a host that waits looks whether its run is to stop.
const GLANCE: Duration = Duration::from_millis(5);

/// A device with its queue.
pub struct Gpu {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub target: Target,
    pub timestamps: bool,
    /// Iterations that all loops of one thread may make in one launch.
    pub rounds: usize,
    /// Time that the host waits for the device before it takes it for lost.
    limit: Option<Duration>,
    errors: Arc<Errors>,
    /// Memory of weights that all programs on the device share.
    pub weights: SharedBuffers<Buffer>,
    modules: Recent<blake3::Hash, Module>,
    compilations: AtomicU64,
    /// Times that bytes went to the device.
    pub uploads: AtomicU64,
    /// Times that the host waited for bytes of the device.
    pub downloads: AtomicU64,
}

/// Bytes of kernel text whose pipelines are kept, those in use included.
const KEPT_TEXT: u64 = 16 << 20;

/// First error, and loss of the device, since the last check.
#[derive(Default)]
struct Errors {
    first: Mutex<Option<BackendError>>,
    lost: Mutex<Option<String>>,
}

/// The pipelines of one kernel text.
pub struct Module {
    pub layout: wgpu::BindGroupLayout,
    pub pipelines: Vec<wgpu::ComputePipeline>,
}

fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Errors {
    fn report(&self, e: wgpu::Error) {
        lock(&self.first).get_or_insert(match e {
            wgpu::Error::OutOfMemory { .. } => {
                BackendError::OutOfMemory { what: "a buffer of the device".into(), bytes: 0 }
            }
            wgpu::Error::Validation { description, .. } => BackendError::Internal(description),
            wgpu::Error::Internal { description, .. } => BackendError::Internal(description),
        });
    }
}

impl Gpu {
    /// Opens an adapter with all features that kernels use and its full limits.
    pub fn open(adapter: &wgpu::Adapter, target: Target) -> Result<Arc<Gpu>, BackendError> {
        let want = features(adapter);
        let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
            label: Some("kiln"),
            required_features: want,
            required_limits: adapter.limits(),
            // SAFETY: kernels load and store cooperative matrices in workgroup memory only, within arrays of constant size.
            experimental_features: unsafe { wgpu::ExperimentalFeatures::enabled() },
            ..Default::default()
        }))
        .map_err(|e| BackendError::DeviceLost(format!("{}: {e}", target.device)))?;
        let errors = Arc::new(Errors::default());
        let sink = errors.clone();
        device.on_uncaptured_error(Arc::new(move |e| sink.report(e)));
        let sink = errors.clone();
        device.set_device_lost_callback(move |reason, message| {
            *lock(&sink.lost) = Some(format!("{reason:?}: {message}"));
        });
        Ok(Arc::new(Gpu {
            device,
            queue,
            timestamps: want.contains(wgpu::Features::TIMESTAMP_QUERY),
            rounds: rounds(&target),
            limit: watchdog::limit(),
            target,
            errors,
            weights: SharedBuffers::default(),
            modules: Recent::new(KEPT_TEXT),
            compilations: AtomicU64::new(0),
            uploads: AtomicU64::new(0),
            downloads: AtomicU64::new(0),
        }))
    }

    /// The error that happened since the last call, if any.
    pub fn check(&self) -> Result<(), BackendError> {
        if let Some(lost) = lock(&self.errors.lost).clone() {
            return Err(BackendError::DeviceLost(lost));
        }
        lock(&self.errors.first).take().map_or(Ok(()), Err)
    }

    /// A buffer; its size is rounded up to whole words, and never 0.
    pub fn buffer(
        &self,
        what: &str,
        size: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<wgpu::Buffer, BackendError> {
        let size = size.max(16).next_multiple_of(16);
        if size > self.device.limits().max_buffer_size {
            return Err(BackendError::OutOfMemory { what: what.to_owned(), bytes: size });
        }
        let b = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(what),
            size,
            usage,
            mapped_at_creation: false,
        });
        self.check().map_err(|e| match e {
            BackendError::OutOfMemory { .. } => {
                BackendError::OutOfMemory { what: what.to_owned(), bytes: size }
            }
            e => e,
        })?;
        Ok(b)
    }

    /// Waits until the device has done all that was submitted.
    pub fn finish(&self) -> Result<(), BackendError> {
        self.finish_to(None)
    }

    /// Waits until the device has done this submission, of `None` all of them; no longer than the limit of waits. A run that is
    /// asked to stop leaves the wait at once: what was submitted goes on without it.
    pub fn finish_to(&self, submission: Option<wgpu::SubmissionIndex>) -> Result<(), BackendError> {
        let start = Instant::now();
        loop {
            let rest = self.limit.map(|l| l.saturating_sub(start.elapsed()));
            let timeout = match stop::possible() {
                true => Some(rest.map_or(GLANCE, |r| r.min(GLANCE))),
                false => rest,
            };
            let wait = wgpu::PollType::Wait { submission_index: submission.clone(), timeout };
            match (self.device.poll(wait), self.limit) {
                (Ok(_), _) => return self.check(),
                (Err(wgpu::PollError::Timeout), Some(limit)) if start.elapsed() >= limit => {
                    return Err(watchdog::expired(&self.target.device, limit));
                }
                (Err(wgpu::PollError::Timeout), _) => stop::check("")?,
                (Err(e), _) => return Err(BackendError::DeviceLost(e.to_string())),
            }
        }
    }

    /// The pipelines of a kernel, made once for every text of those that are in use or were used lately.
    pub fn module(&self, text: &str) -> Result<Arc<Module>, BackendError> {
        let hash = blake3::hash(text.as_bytes());
        if let Some(m) = self.modules.get(&hash) {
            return Ok(m);
        }
        let module = Arc::new(self.make(text)?);
        self.modules.insert(hash, module.clone(), text.len() as u64);
        Ok(module)
    }

    /// Number of pipelines that were made so far.
    pub fn compilations(&self) -> u64 {
        self.compilations.load(Ordering::Relaxed)
    }

    fn make(&self, text: &str) -> Result<Module, BackendError> {
        let head = crate::wgsl::Head::parse(text)
            .ok_or_else(|| BackendError::Incompatible("the blob is no kernel of this backend".into()))?;
        let bad = |e: BackendError| match e {
            BackendError::Internal(m) => BackendError::Internal(format!("{m}\n{text}")),
            e => e,
        };
        let described =
            wgpu::ShaderModuleDescriptor { label: None, source: wgpu::ShaderSource::Wgsl(text.into()) };
        // Counters that end loops keep drivers from unrolling them.
        let checks =
            wgpu::ShaderRuntimeChecks { force_loop_bounding: false, ..wgpu::ShaderRuntimeChecks::checked() };
        // SAFETY: every loop of a kernel counts up or down to a number of its parameters, and accesses of memory stay checked.
        let shader = unsafe { self.device.create_shader_module_trusted(described, checks) };
        self.check().map_err(bad)?;
        let entries: Vec<_> = (0..=head.bindings).map(|i| layout_entry(i, head.bindings)).collect();
        let layout = self
            .device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
        let pipeline_layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        let pipelines = head.entries.iter().map(|name| {
            self.compilations.fetch_add(1, Ordering::Relaxed);
            self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(name),
                layout: Some(&pipeline_layout),
                module: &shader,
                entry_point: Some(name),
                compilation_options: wgpu::PipelineCompilationOptions {
                    zero_initialize_workgroup_memory: false,
                    ..Default::default()
                },
                cache: None,
            })
        });
        let pipelines = pipelines.collect();
        self.check().map_err(bad)?;
        Ok(Module { layout, pipelines })
    }
}

/// llvmpipe silently ends loops after 65,535 iterations of all loops of one thread; elsewhere one launch
/// should not take so long that the driver takes the device away. `KILN_WGPU_ROUNDS` sets it, so that tests
/// need no large tensors.
pub fn rounds(target: &Target) -> usize {
    let given = std::env::var("KILN_WGPU_ROUNDS").ok().and_then(|v| v.parse().ok());
    given.unwrap_or(if target.has("software") { 50_000 } else { 1 << 22 }).max(1)
}

/// Binding 0 holds arguments and is only read, as is the last one, a uniform buffer of their first words; all others are tensors.
fn layout_entry(i: u32, last: u32) -> wgpu::BindGroupLayoutEntry {
    wgpu::BindGroupLayoutEntry {
        binding: i,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: match i == last {
                true => wgpu::BufferBindingType::Uniform,
                false => wgpu::BufferBindingType::Storage { read_only: i == 0 },
            },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    }
}
