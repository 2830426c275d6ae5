//! cuDNN's graph interface: descriptors, plans, runs.

use super::library::Name;
use crate::driver::{Call, DriverError, Gpu, Stream};
use crate::foreign::{call, functions};
use cudarc::cudnn::sys::{self, cudnnBackendAttributeType_t as Type};
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

pub use sys::cudnnBackendAttributeName_t as Attribute;
pub use sys::cudnnBackendDescriptorType_t as Kind;

functions! {
    /// The library's functions.
    Api {
        cudnnGetVersion cudnnCreate cudnnSetStream cudnnBackendCreateDescriptor cudnnBackendDestroyDescriptor
        cudnnBackendSetAttribute cudnnBackendGetAttribute cudnnBackendFinalize cudnnBackendExecute
    }
}

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
        unsafe { call!(self, sys::cudnnGetVersion()) as u64 }
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
    /// Returns the state of a device, which is kept for the life of the process.
    pub fn of(api: &'static Api, gpu: &Arc<Gpu>) -> Result<Arc<State>, DriverError> {
        static ALL: Mutex<Vec<(Arc<Gpu>, Arc<State>)>> = Mutex::new(Vec::new());
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, s)) = all.iter().find(|(of, _)| of.same(gpu)) {
            return Ok(s.clone());
        }
        gpu.bind()?;
        let mut h = std::ptr::null_mut();
        // SAFETY: the place for the handle is valid, a context is current.
        check("cudnnCreate", unsafe { call!(api, sys::cudnnCreate(&mut h)) })?;
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

/// Enumeration that an attribute may hold, with the attribute's type.
pub trait Enumeration: Copy {
    const TYPE: sys::cudnnBackendAttributeType_t;
}

macro_rules! enumerations {
    ($($enumeration:ident: $type:ident;)*) => {
        $(impl Enumeration for sys::$enumeration {
            const TYPE: sys::cudnnBackendAttributeType_t = sys::cudnnBackendAttributeType_t::$type;
        })*
    };
}
enumerations! {
    cudnnDataType_t: CUDNN_TYPE_DATA_TYPE;
    cudnnConvolutionMode_t: CUDNN_TYPE_CONVOLUTION_MODE;
    cudnnBackendHeurMode_t: CUDNN_TYPE_HEUR_MODE;
    cudnnPointwiseMode_t: CUDNN_TYPE_POINTWISE_MODE;
}

/// A descriptor, destroyed when it goes.
pub struct Descriptor {
    api: &'static Api,
    handle: sys::cudnnBackendDescriptor_t,
}

// SAFETY: finished descriptors are not changed, and may be used from any thread.
unsafe impl Send for Descriptor {}
// SAFETY: as above.
unsafe impl Sync for Descriptor {}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed once.
        unsafe { call!(self.api, sys::cudnnBackendDestroyDescriptor(self.handle)) };
    }
}

impl Descriptor {
    pub fn new(api: &'static Api, kind: Kind) -> Result<Descriptor, DriverError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the place for the handle is valid.
        let code = unsafe { call!(api, sys::cudnnBackendCreateDescriptor(kind, &mut handle)) };
        check("cudnnBackendCreateDescriptor", code)?;
        Ok(Descriptor { api, handle })
    }

    fn put<T>(self, name: Attribute, of: Type, all: &[T]) -> Result<Descriptor, DriverError> {
        // SAFETY: the list has so many elements of the attribute's type; the library copies them.
        let code = unsafe {
            let count = all.len() as i64;
            call!(self.api, sys::cudnnBackendSetAttribute(self.handle, name, of, count, all.as_ptr().cast()))
        };
        check("cudnnBackendSetAttribute", code)?;
        Ok(self)
    }

    pub fn ints(self, name: Attribute, all: &[i64]) -> Result<Descriptor, DriverError> {
        self.put(name, Type::CUDNN_TYPE_INT64, all)
    }

    pub fn float(self, name: Attribute, v: f32) -> Result<Descriptor, DriverError> {
        self.put(name, Type::CUDNN_TYPE_FLOAT, &[v])
    }

    pub fn one_of<E: Enumeration>(self, name: Attribute, value: E) -> Result<Descriptor, DriverError> {
        self.put(name, E::TYPE, &[value])
    }

    pub fn flag(self, name: Attribute, value: bool) -> Result<Descriptor, DriverError> {
        self.put(name, Type::CUDNN_TYPE_BOOLEAN, &[value])
    }

    pub fn pointers(self, name: Attribute, all: &[u64]) -> Result<Descriptor, DriverError> {
        self.put(name, Type::CUDNN_TYPE_VOID_PTR, all)
    }

    pub fn parts(self, name: Attribute, all: &[&Descriptor]) -> Result<Descriptor, DriverError> {
        let all: Vec<_> = all.iter().map(|d| d.handle).collect();
        self.put(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &all)
    }

    pub fn handle(self, name: Attribute, handle: &MutexGuard<'_, usize>) -> Result<Descriptor, DriverError> {
        self.put(name, Type::CUDNN_TYPE_HANDLE, &[**handle])
    }

    pub fn done(self) -> Result<Descriptor, DriverError> {
        // SAFETY: the descriptor is alive.
        check("cudnnBackendFinalize", unsafe { call!(self.api, sys::cudnnBackendFinalize(self.handle)) })?;
        Ok(self)
    }

    /// Reads a number from the library.
    pub fn int(&self, name: Attribute) -> Result<i64, DriverError> {
        let (mut n, mut v) = (0i64, 0i64);
        // SAFETY: there is room for the one element that is asked for.
        let code = unsafe {
            let to = (&raw mut v).cast();
            let of = Type::CUDNN_TYPE_INT64;
            call!(self.api, sys::cudnnBackendGetAttribute(self.handle, name, of, 1, &mut n, to))
        };
        check("cudnnBackendGetAttribute", code)?;
        Ok(v)
    }

    /// Descriptors of a kind that the library fills in, at most `most`.
    pub fn found(&self, name: Attribute, kind: Kind, most: usize) -> Result<Vec<Descriptor>, DriverError> {
        let mut all = (0..most).map(|_| Descriptor::new(self.api, kind)).collect::<Result<Vec<_>, _>>()?;
        let mut handles: Vec<_> = all.iter().map(|d| d.handle).collect();
        let mut n = 0i64;
        // SAFETY: there are as many descriptors as are asked for.
        let code = unsafe {
            let to = handles.as_mut_ptr().cast();
            let of = Type::CUDNN_TYPE_BACKEND_DESCRIPTOR;
            call!(self.api, sys::cudnnBackendGetAttribute(self.handle, name, of, most as i64, &mut n, to))
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
    fn run(&self, stream: &Stream) -> Result<(), DriverError> {
        let stream = stream.handle();
        let api = self.state.api;
        let handle = self.state.handle();
        let h = *handle as sys::cudnnHandle_t;
        // SAFETY: both handles are alive; nobody else uses the library's one now.
        check("cudnnSetStream", unsafe { call!(api, sys::cudnnSetStream(h, stream.cast())) })?;
        // SAFETY: plan and pack are finished and alive; addresses are those of live tensors of the described sizes.
        let code = unsafe { call!(api, sys::cudnnBackendExecute(h, self.plan.handle, self.pack.handle)) };
        check("cudnnBackendExecute", code)
    }
}
