//! cuBLASLt: matrix products.

use super::library::{Name, functions};
use crate::driver::{Call, DriverError, Gpu};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

type Handle = *mut c_void;

/// An algorithm, opaque; equal for equal versions of the library.
pub type Algorithm = [u64; 8];

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Proposal {
    algorithm: Algorithm,
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

functions!(Api {
    version = "cublasLtGetVersion" () -> usize;
    create = "cublasLtCreate" (*mut Handle) -> c_int;
    product_create = "cublasLtMatmulDescCreate" (*mut Handle, c_int, c_int) -> c_int;
    product_destroy = "cublasLtMatmulDescDestroy" (Handle) -> c_int;
    product_set = "cublasLtMatmulDescSetAttribute" (Handle, c_int, *const c_void, usize) -> c_int;
    layout_create = "cublasLtMatrixLayoutCreate" (*mut Handle, c_int, u64, u64, i64) -> c_int;
    layout_destroy = "cublasLtMatrixLayoutDestroy" (Handle) -> c_int;
    layout_set = "cublasLtMatrixLayoutSetAttribute" (Handle, c_int, *const c_void, usize) -> c_int;
    preference_create = "cublasLtMatmulPreferenceCreate" (*mut Handle) -> c_int;
    preference_destroy = "cublasLtMatmulPreferenceDestroy" (Handle) -> c_int;
    preference_set = "cublasLtMatmulPreferenceSetAttribute" (Handle, c_int, *const c_void, usize) -> c_int;
    heuristic = "cublasLtMatmulAlgoGetHeuristic"
        (Handle, Handle, Handle, Handle, Handle, Handle, Handle, c_int, *mut Proposal, *mut c_int) -> c_int;
    matmul = "cublasLtMatmul" (
        Handle, Handle, *const c_void, *const c_void, Handle, *const c_void, Handle, *const c_void, *const c_void,
        Handle, *mut c_void, Handle, *const Algorithm, *mut c_void, usize, Handle
    ) -> c_int;
});

const NAME: Name = Name {
    title: "cuBLASLt",
    files: &["libcublasLt.so.13", "libcublasLt.so.12"],
    variable: "KILN_CUBLASLT",
    package: "nvidia-cublas",
};

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

/// The library's state for a device, kept for the life of the process.
fn handle(api: &Api, gpu: &Arc<Gpu>) -> Result<Handle, DriverError> {
    static ALL: Mutex<Vec<(Arc<Gpu>, usize)>> = Mutex::new(Vec::new());
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, h)) = all.iter().find(|(of, _)| of.same(gpu)) {
        return Ok(*h as Handle);
    }
    gpu.bind()?;
    let mut h = std::ptr::null_mut();
    // SAFETY: the place for the handle is valid, a context is current.
    check("cublasLtCreate", unsafe { (api.create)(&mut h) })?;
    all.push((gpu.clone(), h as usize));
    Ok(h)
}

/// A matrix as the library sees it: columns are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    pub dtype: c_int,
    pub rows: usize,
    pub cols: usize,
    /// Elements from one column to the next.
    pub leading: usize,
    /// Elements from one of a batch to the next.
    pub stride: usize,
}

/// D = op(A) op(B), and what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Product {
    pub a: Matrix,
    pub b: Matrix,
    pub d: Matrix,
    pub trans: [bool; 2],
    pub batch: usize,
    pub compute: c_int,
    pub scale: c_int,
    /// The library's number for bias and relu.
    pub epilogue: c_int,
}

/// A descriptor that is destroyed when it goes.
struct Owned(Handle, unsafe extern "C" fn(Handle) -> c_int);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: made by the library, destroyed once.
        unsafe { (self.1)(self.0) };
    }
}

type Setter = unsafe extern "C" fn(Handle, c_int, *const c_void, usize) -> c_int;

fn set<T: Copy>(of: &Owned, by: Setter, what: c_int, value: T) -> Result<(), DriverError> {
    // SAFETY: the attribute's value has the size that is told; the library copies it.
    let code = unsafe { by(of.0, what, (&raw const value).cast(), size_of::<T>()) };
    check("cublasLt…SetAttribute", code)
}

/// A product's descriptors.
pub struct Described {
    api: &'static Api,
    handle: Handle,
    product: Owned,
    /// Of A, B and D.
    layouts: [Owned; 3],
    scale: c_int,
}

// SAFETY: descriptors are not changed once they are made, and may be read from any thread.
unsafe impl Send for Described {}
// SAFETY: as above.
unsafe impl Sync for Described {}

const TRANS_A: c_int = 3;
const TRANS_B: c_int = 4;
const EPILOGUE: c_int = 7;
const BIAS_POINTER: c_int = 8;
const BATCH_COUNT: c_int = 5;
const BATCH_STRIDE: c_int = 6;
const MAX_WORKSPACE: c_int = 1;

impl Described {
    /// Describes a product; `bias` is its address on the device.
    pub fn new(api: &'static Api, gpu: &Arc<Gpu>, p: &Product, bias: u64) -> Result<Described, DriverError> {
        let handle = handle(api, gpu)?;
        let mut h = std::ptr::null_mut();
        // SAFETY: the place for the descriptor is valid.
        check("cublasLtMatmulDescCreate", unsafe { (api.product_create)(&mut h, p.compute, p.scale) })?;
        let product = Owned(h, api.product_destroy);
        set(&product, api.product_set, TRANS_A, c_int::from(p.trans[0]))?;
        set(&product, api.product_set, TRANS_B, c_int::from(p.trans[1]))?;
        set(&product, api.product_set, EPILOGUE, p.epilogue)?;
        if bias != 0 {
            set(&product, api.product_set, BIAS_POINTER, bias)?;
        }
        let layout = |m: &Matrix| {
            let mut h = std::ptr::null_mut();
            let (rows, cols) = (m.rows as u64, m.cols as u64);
            // SAFETY: the place for the descriptor is valid.
            let code = unsafe { (api.layout_create)(&mut h, m.dtype, rows, cols, m.leading as i64) };
            check("cublasLtMatrixLayoutCreate", code)?;
            let layout = Owned(h, api.layout_destroy);
            set(&layout, api.layout_set, BATCH_COUNT, p.batch as i32)?;
            set(&layout, api.layout_set, BATCH_STRIDE, m.stride as i64)?;
            Ok::<_, DriverError>(layout)
        };
        let layouts = [layout(&p.a)?, layout(&p.b)?, layout(&p.d)?];
        Ok(Described { api, handle, product, layouts, scale: p.scale })
    }

    /// The `rank`-th of the algorithms that the library proposes, or the last one, and its workspace in bytes.
    pub fn propose(&self, rank: usize, workspace: usize) -> Result<Option<(Algorithm, usize)>, DriverError> {
        let mut h = std::ptr::null_mut();
        // SAFETY: the place for the descriptor is valid.
        check("cublasLtMatmulPreferenceCreate", unsafe { (self.api.preference_create)(&mut h) })?;
        let preference = Owned(h, self.api.preference_destroy);
        set(&preference, self.api.preference_set, MAX_WORKSPACE, workspace)?;
        let none = Proposal { algorithm: [0; 8], workspace: 0, state: 0, waves: 0.0, reserved: [0; 4] };
        let mut all = [none; 8];
        let mut n = 0;
        let [a, b, d] = &self.layouts;
        let wanted = (rank + 1).min(all.len()) as c_int;
        // SAFETY: descriptors are alive, so many places are valid.
        let code = unsafe {
            (self.api.heuristic)(
                self.handle,
                self.product.0,
                a.0,
                b.0,
                d.0,
                d.0,
                preference.0,
                wanted,
                all.as_mut_ptr(),
                &mut n,
            )
        };
        const NOT_SUPPORTED: c_int = 15;
        if code == NOT_SUPPORTED {
            return Ok(None);
        }
        check("cublasLtMatmulAlgoGetHeuristic", code)?;
        let found = all.get(..usize::try_from(n).unwrap_or(0)).unwrap_or_default();
        Ok(found.iter().rfind(|p| p.state == 0).map(|p| (p.algorithm, p.workspace)))
    }
}

/// One product with addresses.
pub struct Multiply {
    pub described: Described,
    pub algorithm: Algorithm,
    /// Of A, B, D and the workspace.
    pub at: [u64; 4],
    pub workspace: usize,
}

/// The type that integers are scaled in.
pub const SCALE_I32: c_int = 10;

impl Call for Multiply {
    fn run(&self, stream: *mut c_void) -> Result<(), DriverError> {
        let (d, [a, b, out, scratch]) = (&self.described, self.at);
        let (one, zero): ([u32; 1], [u32; 1]) =
            if d.scale == SCALE_I32 { ([1], [0]) } else { ([1.0f32.to_bits()], [0]) };
        let at = |address: u64| address as usize as *mut c_void;
        // SAFETY: descriptors are alive, addresses are those of live tensors of the described sizes in this device's memory,
        // the scalars have the type that the product was described with.
        let code = unsafe {
            (d.api.matmul)(
                d.handle,
                d.product.0,
                one.as_ptr().cast(),
                at(a),
                d.layouts[0].0,
                at(b),
                d.layouts[1].0,
                zero.as_ptr().cast(),
                at(out),
                d.layouts[2].0,
                at(out),
                d.layouts[2].0,
                &raw const self.algorithm,
                at(scratch),
                self.workspace,
                stream,
            )
        };
        check("cublasLtMatmul", code)
    }
}
