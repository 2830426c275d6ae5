//! The device object.

use super::context::CudaContext;
use super::host::HostCode;
use super::kernel::{CudaGpu, Modules};
use super::memory::Range;
use super::queue::CudaQueue;
use super::shared::weights_of;
use crate::driver::{Buffer, Event, Gpu, Stream};
use kiln_backend::{BackendError, Context, Device, Executable, Program, Target, TimeRequest};
use kiln_gpu::{GpuContext, Loaded, Queue as _, Residency};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

/// An open device.
pub struct CudaDevice {
    device: Arc<CudaGpu>,
    stream: Arc<Stream>,
    /// Shared by timings, which are done one at a time.
    bench: Mutex<Bench>,
    /// Loads programs; its memory for transfers is used again.
    loader: Mutex<Option<CudaQueue>>,
}

/// Memory and a stream that timings use again.
struct Bench {
    stream: Arc<Stream>,
    queue: Option<CudaQueue>,
    /// Twice the L2: written before each run, so that none finds its inputs there.
    flush: Option<Buffer>,
}

/// Memory of the caller's on the device is read in pieces of this size.
const READ_PIECE: usize = 32 << 20;

/// A cache larger than this is taken for a mistake.
const MAX_FLUSH: u64 = 1 << 30;

impl CudaDevice {
    /// Opens a device. Without `host` it runs what needs no code of the host.
    pub fn new(
        gpu: Arc<Gpu>,
        target: Target,
        host: Option<&'static dyn HostCode>,
    ) -> Result<CudaDevice, BackendError> {
        let stream = Stream::new(&gpu)?;
        let bench = Mutex::new(Bench { stream: Stream::new(&gpu)?, queue: None, flush: None });
        let device =
            Arc::new(CudaGpu { weights: weights_of(&gpu), gpu, target, modules: Modules::default(), host });
        Ok(CudaDevice { device, stream, bench, loader: Mutex::new(None) })
    }

    fn load_program(
        &self,
        program: Arc<Program>,
        residency: Residency,
    ) -> Result<Arc<Loaded<CudaGpu>>, BackendError> {
        self.device.gpu.bind()?;
        let kept = self.loader.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut queue = match kept {
            Some(queue) => queue,
            None => CudaQueue::new(&self.stream, None)?,
        };
        let loaded = Loaded::new(&self.device, &mut queue, program, residency)?;
        if loaded.has_flow() {
            self.device.modules.moves(&self.device.gpu)?;
        }
        *self.loader.lock().unwrap_or_else(PoisonError::into_inner) = Some(queue);
        Ok(Arc::new(loaded))
    }

    /// The memory that clears the L2.
    fn flush<'b>(
        &self,
        flush: &'b mut Option<Buffer>,
        queue: &mut CudaQueue,
    ) -> Result<&'b Buffer, BackendError> {
        if flush.is_none() {
            let l2 = self.device.target.numbers.get("l2_bytes").copied().unwrap_or(0);
            *flush = Some(queue.allocate("memory that clears the L2", 2 * l2.min(MAX_FLUSH))?);
        }
        flush.as_ref().ok_or_else(|| BackendError::Internal("no memory that clears the L2".into()))
    }
}

struct CudaExecutable(Arc<Loaded<CudaGpu>>);

impl Executable for CudaExecutable {
    fn context(&self) -> Result<Box<dyn Context>, BackendError> {
        Ok(Box::new(CudaContext::new(&self.0, true)?))
    }

    fn context_without_memory(&self) -> Result<Box<dyn Context>, BackendError> {
        Ok(Box::new(CudaContext::new(&self.0, false)?))
    }
}

impl Device for CudaDevice {
    fn time(&self, request: &TimeRequest<'_>) -> Result<Vec<f64>, BackendError> {
        let program =
            Program::single_step(request.graph.clone(), request.tactic.clone(), request.blob.to_vec());
        let shapes = Arc::new(program.shapes(request.inputs)?);
        let loaded = self.load_program(Arc::new(program), Residency::Own)?;
        let mut bench = self.bench.lock().unwrap_or_else(PoisonError::into_inner);
        let Bench { stream, queue, flush } = &mut *bench;
        let own = match queue.take() {
            Some(q) => q,
            None => CudaQueue::new(stream, None)?,
        };
        let mut cx = GpuContext::new(&loaded, own)?;
        cx.timed_only = true;
        cx.enqueue(request.inputs, &shapes)?;
        cx.queue.wait()?;
        let flush = self.flush(flush, &mut cx.queue)?;
        let mut marks = Vec::new();
        for _ in 0..request.samples {
            let mark = || Event::new(&self.device.gpu, true);
            let (from, to) = (mark()?, mark()?);
            flush.fill(0, stream)?;
            from.record(stream)?;
            if !cx.repeat()? {
                // A run that needs the host in between cannot be repeated: it is timed with its transfers.
                cx.enqueue(request.inputs, &shapes)?;
            }
            to.record(stream)?;
            marks.push((from, to));
        }
        stream.synchronize()?;
        let times = marks.iter().map(|(from, to)| Ok(from.until(to)?)).collect();
        *queue = Some(cx.queue);
        times
    }

    fn free_memory(&self) -> Result<u64, BackendError> {
        Ok(self.device.gpu.free_memory()?)
    }

    unsafe fn read(
        &self,
        stream: *mut c_void,
        address: *const c_void,
        to: &mut [u8],
    ) -> Result<(), BackendError> {
        let gpu = &self.device.gpu;
        gpu.bind()?;
        let stream = match stream.is_null() {
            true => self.stream.clone(),
            // SAFETY: the caller vouches for the handle.
            false => unsafe { Stream::foreign(gpu, stream) },
        };
        if stream.is_captured()? {
            return Err(BackendError::InvalidArgument(
                "the stream records a graph, and weights are read now: end the capture first".into(),
            ));
        }
        let mut queue = CudaQueue::new(&stream, None)?;
        let from = address as u64;
        for (k, piece) in to.chunks_mut(READ_PIECE).enumerate() {
            let range = Range { address: from + (k * READ_PIECE) as u64, size: piece.len() as u64 };
            let read = queue.read(&[(range, piece.len())])?;
            piece.copy_from_slice(read.first().map_or(&[][..], Vec::as_slice));
        }
        Ok(())
    }

    fn load(&self, program: Arc<Program>) -> Result<Arc<dyn Executable>, BackendError> {
        Ok(Arc::new(CudaExecutable(self.load_program(program, Residency::Shared)?)))
    }

    fn load_within(&self, program: Arc<Program>, budget: u64) -> Result<Arc<dyn Executable>, BackendError> {
        Ok(Arc::new(CudaExecutable(self.load_program(program, Residency::Within(budget))?)))
    }
}
