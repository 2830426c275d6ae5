//! Streams, events and memory of the caller's on the device.

use super::ExecutionContext;
use crate::RuntimeError;
use kiln_backend::process::check_process;
use kiln_backend::{BackendError, Bound, TemporaryAllocator};
use kiln_ir::Tensor;
use std::ffi::c_void;
use std::sync::Arc;

impl ExecutionContext {
    /// Puts the work of further runs into a stream of the caller's, behind what is in it; null: into the context's own
    /// stream again. It stays set through a refit.
    ///
    /// The stream may capture a graph, when it is set or later: runs are recorded then, for as many launches of the graph as the caller
    /// likes. The context has run with the same shapes before, and all inputs and outputs are bound. Such runs have no outputs to take and
    /// report no indices out of range. Weights of a later refit do not reach the graph.
    ///
    /// Loops and conditionals become conditional nodes of the caller's graph. Such a graph cannot be a child graph of another one: CUDA
    /// refuses that. Layers that need the host in a run, and outputs that are inputs or weights, are refused with what to do. So are random
    /// layers without a seed.
    ///
    /// # Safety
    /// The handle is a stream of the backend's kind (of CUDA a `CUstream` of the device's primary context), or null. It
    /// stays until another one is set or this context is gone. The context stays as long as graphs that record its runs, and is not
    /// refitted while they run. Neither it nor another of these graphs runs while one of them does.
    pub unsafe fn set_stream(&mut self, stream: *mut c_void) -> Result<(), RuntimeError> {
        // SAFETY: as the caller vouches.
        let result = unsafe { self.try_set_stream(stream) };
        self.recorder.note(result)
    }

    unsafe fn try_set_stream(&mut self, stream: *mut c_void) -> Result<(), RuntimeError> {
        self.in_flight = false;
        if stream.is_null() && !self.takes_device_memory() {
            return Ok(());
        }
        // SAFETY: as the caller vouches.
        let set = self.context.require_native().and_then(|native| unsafe { native.set_stream(stream) });
        set.map_err(|e| self.engine.backend_error(e))?;
        self.native.set_stream(stream);
        Ok(())
    }

    /// Puts layers of further runs that are in auxiliary streams of the engine ([`Engine::aux_streams`](crate::Engine::aux_streams)) into
    /// streams of the caller's: those of the first auxiliary stream into the first. Where there are fewer, the rest are in streams of the
    /// backend's own; further ones are not used. Each run begins behind the work that is in its main stream, and the main stream ends
    /// behind all others. Such runs are launched kernel by kernel, not as one graph, so that they take more of the host's time; runs
    /// that a capture of the caller's records, runs with control flow on the device, and timed steps are in the main stream alone. None: no
    /// stream of the caller's. They stay set through a refit.
    ///
    /// # Errors
    /// [`RuntimeError::Backend`] for a null stream, and from backends without streams (cpu, reference, wgpu), unless none are given.
    ///
    /// # Safety
    /// The handles are streams of the backend's kind (of CUDA `CUstream`s of the device's primary context). They stay until others are set
    /// or this context is gone.
    pub unsafe fn set_aux_streams(&mut self, streams: &[*mut c_void]) -> Result<(), RuntimeError> {
        // SAFETY: as the caller vouches.
        let result = unsafe { self.try_set_aux_streams(streams) };
        self.recorder.note(result)
    }

    unsafe fn try_set_aux_streams(&mut self, streams: &[*mut c_void]) -> Result<(), RuntimeError> {
        if streams.is_empty() && !self.takes_device_memory() {
            return Ok(());
        }
        if let Some(i) = streams.iter().position(|s| s.is_null()) {
            let why = BackendError::InvalidArgument(format!("the auxiliary stream {i} is null"));
            return Err(self.engine.backend_error(why));
        }
        let native = self.context.require_native();
        // SAFETY: as the caller vouches.
        let set = native.and_then(|native| unsafe { native.set_aux_streams(streams) });
        set.map_err(|e| self.engine.backend_error(e))?;
        self.native.set_aux_streams(streams);
        Ok(())
    }

    /// Sets the memory of an input or an output for further runs: `bytes` bytes of the caller's on the
    /// device, in the tensor's format, dense. Null restores this context's own memory. Such an input needs only its shape set; shape
    /// inputs need their elements, too. An output whose size the run computes needs room for that size.
    /// [`ExecutionContext::enqueue`] waits for the device unless the room is the most that
    /// [`ExecutionContext::infer_shapes`] reports, in its format. [`ExecutionContext::outputs`] still copies bound outputs
    /// to the host; callers that read them on the device don't call it. Bindings stay through a refit.
    ///
    /// Backends that take no device memory (cpu, reference, wgpu) take host memory of any alignment. [`ExecutionContext::enqueue`]
    /// copies inputs from there. [`ExecutionContext::wait`] and [`ExecutionContext::outputs`] copy outputs there.
    ///
    /// # Safety
    /// The address is null or one of the backend's kind, on the engine's device, with as many bytes
    /// after it. On CUDA it is a device pointer, best a multiple of 16: runs copy memory at others. On backends without device memory it is a host pointer. The memory
    /// stays while runs use it, and nothing else writes to it meanwhile.
    pub unsafe fn bind(&mut self, name: &str, address: *mut c_void, bytes: u64) -> Result<(), RuntimeError> {
        // SAFETY: as the caller vouches.
        let result = unsafe { self.try_bind(name, address, bytes) };
        self.recorder.note(result)
    }

    unsafe fn try_bind(&mut self, name: &str, address: *mut c_void, bytes: u64) -> Result<(), RuntimeError> {
        let outputs = self.engine.output_tensors();
        let port = match outputs.iter().position(|t| t.name == name) {
            Some(i) => Bound::Output(i),
            None => Bound::Input(self.engine.input(name)?),
        };
        // SAFETY: as the caller vouches.
        unsafe { self.bind_port(port, address, bytes) }
    }

    /// Whether addresses of [`ExecutionContext::bind`] are those of a device. Otherwise they are host addresses, as the backend has no native
    /// interface.
    pub fn takes_device_memory(&mut self) -> bool {
        if let Some(known) = self.device_memory {
            return known;
        }
        // The context of a loaded library always has the interface; its calls tell.
        let asked = self.context.require_native().and_then(|native| native.address(Bound::Input(0)));
        *self.device_memory.insert(!matches!(asked, Err(BackendError::Unsupported(_))))
    }

    /// Binds memory to an input or output by position.
    ///
    /// # Safety
    /// As of [`ExecutionContext::bind`].
    pub(super) unsafe fn bind_port(
        &mut self,
        port: Bound,
        address: *mut c_void,
        bytes: u64,
    ) -> Result<(), RuntimeError> {
        let on_device = self.takes_device_memory();
        if on_device {
            // SAFETY: as the caller vouches.
            let bound =
                self.context.require_native().and_then(|native| unsafe { native.bind(port, address, bytes) });
            bound.map_err(|e| self.engine.backend_error(e))?;
            self.native.bind(port, address, bytes, false);
        } else {
            self.host.bind(port, address, bytes);
        }
        if let Bound::Input(i) = port
            && let (Some(b), Some(slot)) = (self.bound.get_mut(i), self.slots.get_mut(i))
        {
            *b = !address.is_null();
            // Nobody reads what stands for memory of the device: it serves any address, and making it anew takes as long as a run's start.
            let serves = on_device && *b;
            if !serves && std::mem::take(&mut slot.stands_in) {
                slot.tensor = None;
            }
        }
        Ok(())
    }

    /// Takes device memory that this context needs from now on, its arena aside, from an allocator of the caller's: scratch memory,
    /// inputs and outputs that are not bound, tensors whose size a run computes. `None`: from the backend's own again. It stays set
    /// through a refit. Memory goes back to the allocator that it came from, until the context is gone.
    ///
    /// # Errors
    /// [`RuntimeError::Backend`] of backends that take no memory of the caller's (cpu, reference, wgpu). Runs fail with it where the
    /// allocator returns null or an address that is not aligned.
    ///
    /// # Safety
    /// The allocator returns null, or device addresses of the engine's device with as many bytes as asked for. Nothing else uses them
    /// until they are taken back and the work is done that was in the stream then.
    pub unsafe fn set_temporary_allocator(
        &mut self,
        allocator: Option<Arc<dyn TemporaryAllocator>>,
    ) -> Result<(), RuntimeError> {
        let native = self.context.require_native();
        // SAFETY: as the caller vouches.
        let set = native.and_then(|n| unsafe { n.set_allocator(allocator.clone()) });
        let set = set.map_err(|e| self.engine.backend_error(e));
        if set.is_ok() {
            self.native.set_allocator(allocator);
        }
        self.recorder.note(set)
    }

    /// Stores activations of further runs in `bytes` bytes of the caller's on the device.
    /// [`Engine::context_memory`](crate::Engine::context_memory) are enough for any shapes,
    /// [`ExecutionContext::memory_for_shapes`] for those that are set. Null takes the memory away. It stays set through a refit. The
    /// call waits for the run in flight.
    ///
    /// # Errors
    /// [`RuntimeError::Backend`] for an address that is not aligned as the target's memory rules want, and for a context that has memory
    /// of its own. Runs for which there is too little memory fail.
    ///
    /// # Safety
    /// The address is null or one of the backend's kind, on the engine's device, with as many bytes after it. The memory stays until
    /// other memory is set or this context is gone. Nothing else uses it while a run of this context is in flight.
    pub unsafe fn set_memory(&mut self, address: *mut c_void, bytes: u64) -> Result<(), RuntimeError> {
        // SAFETY: as the caller vouches.
        let result = unsafe { self.try_set_memory(address, bytes) };
        self.recorder.note(result)
    }

    unsafe fn try_set_memory(&mut self, address: *mut c_void, bytes: u64) -> Result<(), RuntimeError> {
        // SAFETY: as the caller vouches.
        let set =
            self.context.require_native().and_then(|native| unsafe { native.set_memory(address, bytes) });
        set.map_err(|e| self.engine.backend_error(e))?;
        self.native.set_memory(address, bytes);
        Ok(())
    }

    /// Lets further runs mark an event of the caller's as soon as inputs may be overwritten: behind the last kernel that reads
    /// memory bound to an input, not at the end of the run; before any kernel where no input is bound, as elements of the
    /// host are kept or copied by [`ExecutionContext::enqueue`]. Null: none. It stays set through a refit.
    ///
    /// # Safety
    /// The handle is an event of the backend's kind (of CUDA a `CUevent` of the device's primary context), or null. It stays
    /// until another one is set or this context is gone.
    pub unsafe fn set_consumed_event(&mut self, event: *mut c_void) -> Result<(), RuntimeError> {
        // SAFETY: as the caller vouches.
        let result = unsafe { self.try_set_consumed_event(event) };
        self.recorder.note(result)
    }

    unsafe fn try_set_consumed_event(&mut self, event: *mut c_void) -> Result<(), RuntimeError> {
        // SAFETY: as the caller vouches.
        let set =
            self.context.require_native().and_then(|native| unsafe { native.set_consumed_event(event) });
        set.map_err(|e| self.engine.backend_error(e))?;
        self.native.set_event(event);
        Ok(())
    }

    /// Waits until the inputs of the run in flight may be overwritten, on any backend; at once where they were copied. The
    /// first call may wait for the whole run: later runs are marked where their inputs are free.
    pub fn wait_consumed(&mut self) -> Result<(), RuntimeError> {
        let result = self.try_wait_consumed();
        self.recorder.note(result)
    }

    fn try_wait_consumed(&mut self) -> Result<(), RuntimeError> {
        match self.in_flight {
            true => self.under_flag(|context| context.wait_consumed()).map_err(|e| self.ended(e)),
            false => Ok(()),
        }
    }

    /// Waits until the run in flight is done, without taking its outputs.
    pub fn wait(&mut self) -> Result<(), RuntimeError> {
        let result = self.try_wait();
        self.recorder.note(result)
    }

    fn try_wait(&mut self) -> Result<(), RuntimeError> {
        if !self.in_flight {
            return Ok(());
        }
        check_process()?;
        self.under_flag(|context| context.wait()).map_err(|e| self.ended(e))?;
        if self.control.finish() {
            self.deliver_early()?;
            return self.report_debug();
        }
        // A run that was asked to stop may have ended early.
        self.in_flight = false;
        let cause = self.control.end();
        cause.map_or(Ok(()), |c| Err(c.error(String::new())))
    }

    /// Leaves transfers out of further runs: inputs keep on the device the elements of the last run, outputs stay there in
    /// this context's memory, until [`ExecutionContext::outputs`] copies them. Shapes must stay as they are. This holds through
    /// a refit.
    pub fn keep_on_device(&mut self) -> Result<(), RuntimeError> {
        let result = self.try_keep_on_device();
        self.recorder.note(result)
    }

    fn try_keep_on_device(&mut self) -> Result<(), RuntimeError> {
        let (inputs, outputs) = (self.engine.input_tensors().len(), self.engine.output_tensors().len());
        for port in (0..inputs).map(Bound::Input).chain((0..outputs).map(Bound::Output)) {
            let kept = self.context.require_native().and_then(|native| {
                let (address, bytes) = native.address(port)?;
                // SAFETY: the context's own memory, which it keeps as long as it is bound.
                unsafe { native.bind(port, address, bytes) }?;
                Ok((address, bytes))
            });
            let (address, bytes) = kept.map_err(|e| self.engine.backend_error(e))?;
            self.native.bind(port, address, bytes, true);
            if let Bound::Input(i) = port {
                self.bound[i] = true;
            }
        }
        Ok(())
    }

    /// Sets elements for bound inputs of known shapes: those in host memory, and zeros, which nobody reads, for those on a device.
    pub(super) fn stand_in(&mut self) -> Result<(), RuntimeError> {
        self.read_bound_inputs(false)?;
        let io = self.engine.input_tensors();
        for ((t, slot), _) in io.iter().zip(&mut self.slots).zip(&self.bound).filter(|(_, b)| **b) {
            let shape = slot.shape.clone().or_else(|| t.ty().static_dims());
            if let (Some(shape), None, false) = (shape, &slot.tensor, t.is_shape_input) {
                let zeros = Tensor::zeros(t.dtype, &t.packing.physical_shape(&shape));
                slot.tensor = Some(zeros.map_err(|e| RuntimeError::State(e.to_string()))?);
                slot.stands_in = true;
            }
        }
        Ok(())
    }
}
