//! cuDNN's graph interface: descriptors, plans, runs.

use super::library::{Name, functions};
use crate::driver::{Call, DriverError, Gpu};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

type Handle = *mut c_void;

functions!(Api {
    version = "cudnnGetVersion" () -> usize;
    create = "cudnnCreate" (*mut Handle) -> c_int;
    set_stream = "cudnnSetStream" (Handle, Handle) -> c_int;
    descriptor_create = "cudnnBackendCreateDescriptor" (c_int, *mut Handle) -> c_int;
    descriptor_destroy = "cudnnBackendDestroyDescriptor" (Handle) -> c_int;
    descriptor_set = "cudnnBackendSetAttribute" (Handle, c_int, c_int, i64, *const c_void) -> c_int;
    descriptor_get = "cudnnBackendGetAttribute" (Handle, c_int, c_int, i64, *mut i64, *mut c_void) -> c_int;
    finalize = "cudnnBackendFinalize" (Handle) -> c_int;
    execute = "cudnnBackendExecute" (Handle, Handle, Handle) -> c_int;
});

const NAME: Name =
    Name { title: "cuDNN", files: &["libcudnn.so.9"], variable: "KILN_CUDNN", package: "nvidia-cudnn-cu13" };

pub const TITLE: &str = NAME.title;

impl Api {
    /// The library, opened once for the process.
    pub fn get() -> Result<&'static Api, &'static str> {
        static API: OnceLock<Result<Api, String>> = OnceLock::new();
        API.get_or_init(|| NAME.load(Api::find)).as_ref().map_err(String::as_str)
    }

    /// Its version, as 10000 major + 100 minor + patch.
    pub fn version(&self) -> u64 {
        // SAFETY: it takes nothing and reads a constant.
        unsafe { (self.version)() as u64 }
    }
}

fn check(call: &'static str, code: c_int) -> Result<(), DriverError> {
    if code == 0 { Ok(()) } else { Err(DriverError::Library { library: TITLE, call, code }) }
}

/// The library's state for one device. It holds the stream of the next run, so that one thread uses it at a time.
pub struct State {
    pub api: &'static Api,
    _gpu: Arc<Gpu>,
    handle: Mutex<usize>,
}

impl State {
    /// That of a device, kept for the life of the process.
    pub fn of(api: &'static Api, gpu: &Arc<Gpu>) -> Result<Arc<State>, DriverError> {
        static ALL: Mutex<Vec<(Arc<Gpu>, Arc<State>)>> = Mutex::new(Vec::new());
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, s)) = all.iter().find(|(of, _)| of.same(gpu)) {
            return Ok(s.clone());
        }
        gpu.bind()?;
        let mut h = std::ptr::null_mut();
        // SAFETY: the place for the handle is valid, a context is current.
        check("cudnnCreate", unsafe { (api.create)(&mut h) })?;
        let state = Arc::new(State { api, _gpu: gpu.clone(), handle: Mutex::new(h as usize) });
        all.push((gpu.clone(), state.clone()));
        Ok(state)
    }

    /// The library's handle, for one thread as long as the guard is kept: descriptors that store it are finalized, and plans
    /// run, by one thread at a time.
    pub fn handle(&self) -> MutexGuard<'_, usize> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kinds of descriptors, by the header's numbers.
#[derive(Clone, Copy)]
#[repr(i32)]
pub enum Kind {
    Pointwise = 0,
    Convolution = 1,
    EngineConfig = 3,
    Heuristic = 4,
    Plan = 5,
    Forward = 10,
    PointwiseOperation = 13,
    Graph = 15,
    VariantPack = 16,
    Tensor = 17,
}

/// Types of attributes, by the header's numbers.
mod of_type {
    pub const HANDLE: i32 = 0;
    pub const INT64: i32 = 3;
    pub const FLOAT: i32 = 4;
    pub const POINTER: i32 = 6;
    pub const DESCRIPTOR: i32 = 15;
}

/// Types of attributes that hold one of an enumeration.
#[derive(Clone, Copy)]
#[repr(i32)]
pub enum EnumType {
    Data = 1,
    Bool = 2,
    ConvolutionMode = 7,
    HeuristicMode = 8,
    PointwiseMode = 14,
}

/// A descriptor, destroyed when it goes.
pub struct Descriptor {
    api: &'static Api,
    handle: Handle,
}

// SAFETY: finished descriptors are not changed, and may be used from any thread.
unsafe impl Send for Descriptor {}
// SAFETY: as above.
unsafe impl Sync for Descriptor {}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed once.
        unsafe { (self.api.descriptor_destroy)(self.handle) };
    }
}

impl Descriptor {
    pub fn new(api: &'static Api, kind: Kind) -> Result<Descriptor, DriverError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the place for the handle is valid.
        let code = unsafe { (api.descriptor_create)(kind as c_int, &mut handle) };
        check("cudnnBackendCreateDescriptor", code)?;
        Ok(Descriptor { api, handle })
    }

    fn put<T>(self, name: i32, of: i32, all: &[T]) -> Result<Descriptor, DriverError> {
        // SAFETY: so many elements of the attribute's type lie there; the library copies them.
        let code = unsafe {
            (self.api.descriptor_set)(self.handle, name, of, all.len() as i64, all.as_ptr().cast())
        };
        check("cudnnBackendSetAttribute", code)?;
        Ok(self)
    }

    pub fn ints(self, name: i32, all: &[i64]) -> Result<Descriptor, DriverError> {
        self.put(name, of_type::INT64, all)
    }

    pub fn float(self, name: i32, v: f32) -> Result<Descriptor, DriverError> {
        self.put(name, of_type::FLOAT, &[v])
    }

    pub fn one_of(self, name: i32, of: EnumType, v: i32) -> Result<Descriptor, DriverError> {
        match of {
            EnumType::Bool => self.put(name, of as i32, &[v != 0]),
            _ => self.put(name, of as i32, &[v]),
        }
    }

    pub fn pointers(self, name: i32, all: &[u64]) -> Result<Descriptor, DriverError> {
        self.put(name, of_type::POINTER, all)
    }

    pub fn parts(self, name: i32, all: &[&Descriptor]) -> Result<Descriptor, DriverError> {
        let all: Vec<Handle> = all.iter().map(|d| d.handle).collect();
        self.put(name, of_type::DESCRIPTOR, &all)
    }

    pub fn handle(self, name: i32, handle: &MutexGuard<'_, usize>) -> Result<Descriptor, DriverError> {
        self.put(name, of_type::HANDLE, &[**handle])
    }

    pub fn done(self) -> Result<Descriptor, DriverError> {
        // SAFETY: the descriptor is alive.
        check("cudnnBackendFinalize", unsafe { (self.api.finalize)(self.handle) })?;
        Ok(self)
    }

    /// A number that the library tells.
    pub fn int(&self, name: i32) -> Result<i64, DriverError> {
        let (mut n, mut v) = (0i64, 0i64);
        // SAFETY: there is room for the one element that is asked for.
        let code = unsafe {
            let to = (&raw mut v).cast();
            (self.api.descriptor_get)(self.handle, name, of_type::INT64, 1, &mut n, to)
        };
        check("cudnnBackendGetAttribute", code)?;
        Ok(v)
    }

    /// Descriptors of a kind that the library fills in, at most `most`.
    pub fn found(&self, name: i32, kind: Kind, most: usize) -> Result<Vec<Descriptor>, DriverError> {
        let mut all = (0..most).map(|_| Descriptor::new(self.api, kind)).collect::<Result<Vec<_>, _>>()?;
        let mut handles: Vec<Handle> = all.iter().map(|d| d.handle).collect();
        let mut n = 0i64;
        // SAFETY: there are as many descriptors as are asked for.
        let code = unsafe {
            let to = handles.as_mut_ptr().cast();
            (self.api.descriptor_get)(self.handle, name, of_type::DESCRIPTOR, most as i64, &mut n, to)
        };
        check("cudnnBackendGetAttribute", code)?;
        all.truncate(usize::try_from(n).unwrap_or(0));
        Ok(all)
    }
}

/// A plan with addresses.
pub struct Execute {
    pub state: Arc<State>,
    pub plan: Arc<Descriptor>,
    pub pack: Descriptor,
}

impl Call for Execute {
    fn run(&self, stream: *mut c_void) -> Result<(), DriverError> {
        let api = self.state.api;
        let handle = self.state.handle();
        let h = *handle as Handle;
        // SAFETY: both handles are alive; nobody else uses the library's one now.
        check("cudnnSetStream", unsafe { (api.set_stream)(h, stream) })?;
        // SAFETY: plan and pack are finished and alive; addresses are those of live tensors of the described sizes.
        check("cudnnBackendExecute", unsafe { (api.execute)(h, self.plan.handle, self.pack.handle) })
    }
}
