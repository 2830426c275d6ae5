//! Modules of kernels, and launches.

use super::branch::Branch;
use super::device::Gpu;
use super::graph::Failed;
use super::library::{DriverError, cu};
use super::memory::Pinned;
use super::stream::{Event, Stream};
use crate::foreign::call;
use crate::parameter::YIELDS;
use cudarc::driver::sys::{
    self, CUfunction_attribute as FunctionAttribute, CUlaunchAttributeID as LaunchAttribute,
};
use kiln_ir::ValueId;
use std::ffi::{CString, c_int, c_void};
use std::sync::Arc;

/// Loaded kernels.
pub struct Module {
    gpu: Arc<Gpu>,
    handle: sys::CUmodule,
    functions: Vec<Function>,
}

// SAFETY: the driver's modules may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as above; nothing is changed after loading.
unsafe impl Sync for Module {}

/// One kernel; valid as long as its module.
#[derive(Clone, Copy)]
pub struct Function {
    handle: sys::CUfunction,
    /// Threads of a block.
    pub threads: u32,
}

// SAFETY: a name of the driver's, usable from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    /// Returns the kernel with fewer threads in a block.
    pub fn of_threads(self, threads: u32) -> Function {
        Function { threads, ..self }
    }
}

/// One launch: blocks of the function's threads in one dimension, one parameter by value.
#[derive(Clone)]
pub struct Launch {
    pub function: Function,
    pub blocks: u32,
    /// Dynamic shared memory in bytes.
    pub shared: u32,
    /// The parameter, as the kernel's structure lays it out.
    pub parameter: Vec<u8>,
    /// Whether the kernel itself waits for those in front of it.
    pub waits: bool,
    /// Whether its blocks wait for each other, so that all of them must run at once.
    pub together: bool,
    /// Whether it has work that does not depend on the kernel in front.
    pub early: bool,
    /// Whether it sets the handle of the control flow that it belongs to.
    pub decides: bool,
    /// Offset in the parameter of the marks; none of a kernel that has no marks.
    pub marks_at: Option<usize>,
    /// Offset in the parameter of a word's address: the kernel does nothing if the word is zero. Without an address it runs.
    pub alive_at: usize,
}

/// Work that a library puts into a stream.
pub trait Call: Send + Sync {
    /// Makes it ready, before it is put into a stream for the first time.
    fn prepare(&self) -> Result<(), DriverError> {
        Ok(())
    }

    /// Puts it into the stream, which may be recording a graph.
    fn run(&self, stream: &Stream) -> Result<(), DriverError>;

    /// Whether a graph may record it. Others run between graphs, each time anew.
    fn is_capturable(&self) -> bool {
        true
    }
}

/// One piece of work of a stream.
#[derive(Clone)]
pub enum Command {
    Kernel(Launch),
    Library(Arc<dyn Call>),
    Branch(Arc<Branch>),
    /// Records an event after the commands in front of it.
    Mark(Arc<Event>),
    /// Copies a weight.
    Weight(Upload),
}

/// A copy of a weight from the host.
#[derive(Clone)]
pub struct Upload {
    /// The weight.
    pub weight: ValueId,
    pub from: Arc<Pinned>,
    /// Address on the device.
    pub to: u64,
    pub bytes: usize,
}

impl Command {
    /// Puts it into the stream, which may be recording a graph. `overlap` lets a kernel begin before the one in front of it
    /// is done.
    pub fn run(&self, stream: &Stream, overlap: bool) -> Result<(), DriverError> {
        match self {
            Command::Kernel(l) => l.run(stream, overlap),
            Command::Library(c) => c.run(stream),
            Command::Branch(b) => b.run(stream),
            Command::Mark(e) => e.mark(stream),
            Command::Weight(w) => w.from.put(stream, w.to, w.bytes),
        }
    }

    /// Whether the command is control flow.
    pub fn is_branch(&self) -> bool {
        matches!(self, Command::Branch(_))
    }

    /// Makes it ready, before it is put into a stream for the first time.
    pub fn prepare(&self) -> Result<(), DriverError> {
        match self {
            Command::Library(c) => c.prepare(),
            Command::Branch(b) => b.prepare(),
            Command::Kernel(_) | Command::Mark(_) | Command::Weight(_) => Ok(()),
        }
    }

    /// Whether a graph may hold it.
    pub fn is_capturable(&self) -> bool {
        match self {
            Command::Library(c) => c.is_capturable(),
            _ => true,
        }
    }

    /// Number of commands, those in its bodies included.
    pub fn size(&self) -> usize {
        match self {
            Command::Branch(b) => 1 + b.size(),
            _ => 1,
        }
    }
}

/// Puts commands into a stream; kernels overlap with kernels before them, the first one with what is in the stream if `behind` permits
/// it. `noted` is called behind each.
pub fn run_all(
    commands: &[Command],
    stream: &Stream,
    mut behind: bool,
    mut noted: impl FnMut(usize, &Stream) -> Result<(), DriverError>,
) -> Result<(), Failed> {
    for (i, c) in commands.iter().enumerate() {
        let ran = c.run(stream, behind).and_then(|()| noted(i, stream));
        ran.map_err(|error| Failed { command: Some(i), error })?;
        behind = c.may_be_overlapped(behind);
    }
    Ok(())
}

impl Command {
    /// Whether a kernel behind it may begin before it is done; `behind` says so of what is in front of it.
    pub(super) fn may_be_overlapped(&self, behind: bool) -> bool {
        match self {
            Command::Kernel(_) => true,
            Command::Mark(_) => behind && Event::marks_aside(),
            Command::Library(_) | Command::Branch(_) | Command::Weight(_) => false,
        }
    }
}

impl Module {
    /// Loads a cubin and its entry points, given by name and threads of a block.
    pub fn load(gpu: &Arc<Gpu>, cubin: &[u8], entries: &[(String, u32)]) -> Result<Module, DriverError> {
        gpu.bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a cubin is an ELF file, whose headers state its length; blobs are trusted input like the plan.
        unsafe { cu!(gpu.api, cuModuleLoadData(&mut handle, cubin.as_ptr().cast())) }?;
        let mut module = Module { gpu: gpu.clone(), handle, functions: Vec::new() };
        for (name, threads) in entries {
            let name = CString::new(name.as_str()).unwrap_or_default();
            let mut f = std::ptr::null_mut();
            // SAFETY: the module is loaded, the name ends with a zero.
            unsafe { cu!(gpu.api, cuModuleGetFunction(&mut f, handle, name.as_ptr())) }?;
            module.functions.push(Function { handle: f, threads: *threads });
        }
        Ok(module)
    }

    /// Its entry points in order.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// Registers of a thread and bytes of local memory (spills) of an entry point.
    pub fn resources(&self, entry: usize) -> Result<(u32, u32), DriverError> {
        let Some(f) = self.functions.get(entry) else { return Ok((0, 0)) };
        let of = |what| {
            let mut n = 0;
            // SAFETY: the function is alive as the module is.
            unsafe { cu!(self.gpu.api, cuFuncGetAttribute(&mut n, what, f.handle)) }?;
            Ok(u32::try_from(n).unwrap_or(0))
        };
        let registers = of(FunctionAttribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?;
        Ok((registers, of(FunctionAttribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?))
    }

    /// Lets an entry point run in clusters of more than 8 blocks.
    pub fn allow_large_clusters(&self, entry: usize) -> Result<(), DriverError> {
        self.set(entry, FunctionAttribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
    }

    /// Lets an entry point use this much dynamic shared memory.
    pub fn allow_shared(&self, entry: usize, bytes: u32) -> Result<(), DriverError> {
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        self.set(entry, FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes)
    }

    fn set(&self, entry: usize, attribute: FunctionAttribute, value: c_int) -> Result<(), DriverError> {
        let Some(f) = self.functions.get(entry) else { return Ok(()) };
        // SAFETY: the function is alive as the module is.
        unsafe { cu!(self.gpu.api, cuFuncSetAttribute(f.handle, attribute, value)) }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.gpu.may_close() {
            // SAFETY: loaded in `load`, unloaded once; executables outlive their contexts' work.
            unsafe { call!(self.gpu.api, sys::cuModuleUnload(self.handle)) };
        }
    }
}

impl Launch {
    /// Returns the launch that does nothing if the word at this address, a multiple of 4, is zero. The word may be read `ahead` of
    /// the end of the kernel in front, where that one has waited for those that write it.
    pub fn only_if(mut self, address: u64, ahead: bool) -> Launch {
        self.put(self.alive_at, address | u64::from(ahead));
        self
    }

    /// Lets the next launch begin beside this one, if it has work that does not depend on this one.
    pub fn yield_to(&mut self, next: &Launch) {
        if let Some(at) = self.marks_at.filter(|_| next.early)
            && let Some(last) = self.parameter.get_mut(at + 3)
        {
            *last |= YIELDS.to_le_bytes()[3];
        }
    }

    /// Writes bytes into the parameter.
    pub fn set(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.parameter.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    /// Puts the parameter into a node of an executable graph. The driver copies it before this returns.
    ///
    /// # Safety
    /// The node is that of this launch, of the graph from which the executable graph was made, which is alive.
    pub(super) unsafe fn set_node(
        &self,
        gpu: &Gpu,
        exec: sys::CUgraphExec,
        node: sys::CUgraphNode,
    ) -> Result<(), DriverError> {
        let mut parameters = [self.parameter.as_ptr().cast_mut().cast::<c_void>()];
        let Function { handle, threads } = self.function;
        let node_parameters = sys::CUDA_KERNEL_NODE_PARAMS {
            func: handle,
            gridDimX: self.blocks,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.shared,
            kernelParams: parameters.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        };
        // SAFETY: the caller's promise; the kernel takes one structure by value, which `parameter` holds in full.
        unsafe { cu!(gpu.api, cuGraphExecKernelNodeSetParams_v2(exec, node, &node_parameters)) }
    }

    /// Writes an address into the parameter.
    pub(super) fn put(&mut self, at: usize, address: u64) {
        self.set(at, &address.to_le_bytes());
    }

    /// Puts it into the stream. The parameter is copied by the driver before this returns.
    pub fn run(&self, stream: &Stream, overlap: bool) -> Result<(), DriverError> {
        let api = stream.gpu.api;
        let mut parameters = [self.parameter.as_ptr().cast_mut().cast::<c_void>()];
        let Function { handle, threads } = self.function;
        let mut attribute = match self.together {
            // All blocks run at once, or the launch fails.
            true => sys::CUlaunchAttribute {
                id: LaunchAttribute::CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                pad: [0; 4],
                value: sys::CUlaunchAttributeValue { cooperative: 1 },
            },
            // The kernel may begin before the one in front of it is done: it waits itself.
            false => sys::CUlaunchAttribute {
                id: LaunchAttribute::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                pad: [0; 4],
                value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
            },
        };
        let early = stream.gpu.overlap && overlap && self.waits;
        let config = sys::CUlaunchConfig {
            gridDimX: self.blocks,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.shared,
            hStream: stream.handle,
            attrs: &raw mut attribute,
            numAttrs: u32::from(self.together || early),
        };
        // SAFETY: the kernel takes one structure by value, which `parameter` holds in full (the blob's head tells its
        // layout, checked when it was made); addresses in it are those of live buffers of this context; kernels wait for
        // what they depend on before they touch memory.
        unsafe { cu!(api, cuLaunchKernelEx(&config, handle, parameters.as_mut_ptr(), std::ptr::null_mut())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(early: bool, marks_at: Option<usize>) -> Launch {
        Launch {
            function: Function { handle: std::ptr::null_mut(), threads: 32 },
            blocks: 1,
            shared: 0,
            parameter: vec![0; 16],
            waits: true,
            together: false,
            early,
            decides: false,
            marks_at,
            alive_at: 8,
        }
    }

    #[test]
    fn a_launch_yields_to_one_that_has_work_of_its_own() {
        for (early, marks_at, yields) in
            [(true, Some(12), true), (false, Some(12), false), (true, None, false), (true, Some(14), false)]
        {
            let mut first = launch(false, marks_at);
            first.yield_to(&launch(early, Some(12)));
            let mark = first.parameter.last_chunk::<4>().map(|m| u32::from_le_bytes(*m));
            assert_eq!(mark, Some(if yields { YIELDS } else { 0 }), "{early}, {marks_at:?}");
        }
    }
}
