//! cuBLASLt: matrix products.

use super::library::Name;
use crate::driver::{Call, DriverError, Gpu, Stream};
use crate::foreign::{call, functions};
use cudarc::cublaslt::sys;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub use sys::cublasComputeType_t as ComputeType;
pub use sys::cublasLtEpilogue_t as Epilogue;
pub use sys::cudaDataType_t as DataType;

/// An algorithm, opaque; equal for equal versions of the library.
pub type Algorithm = [u64; 8];

functions! {
    /// The library's functions.
    Api {
        cublasLtGetVersion cublasLtCreate cublasLtMatmulDescCreate cublasLtMatmulDescDestroy cublasLtMatmulDescSetAttribute
        cublasLtMatrixLayoutCreate cublasLtMatrixLayoutDestroy cublasLtMatrixLayoutSetAttribute
        cublasLtMatmulPreferenceCreate cublasLtMatmulPreferenceDestroy cublasLtMatmulPreferenceSetAttribute
        cublasLtMatmulAlgoGetHeuristic cublasLtMatmul
    }
}

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
        unsafe { call!(self, sys::cublasLtGetVersion()) as u64 }
    }
}

fn check(call: &'static str, code: c_int) -> Result<(), DriverError> {
    if code == 0 { Ok(()) } else { Err(DriverError::Library { library: TITLE, call, code }) }
}

/// The library's state for a device, kept for the life of the process.
fn handle(api: &Api, gpu: &Arc<Gpu>) -> Result<sys::cublasLtHandle_t, DriverError> {
    static ALL: Mutex<Vec<(Arc<Gpu>, usize)>> = Mutex::new(Vec::new());
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, h)) = all.iter().find(|(of, _)| of.same(gpu)) {
        return Ok(*h as sys::cublasLtHandle_t);
    }
    gpu.bind()?;
    let mut h = std::ptr::null_mut();
    // SAFETY: the place for the handle is valid, a context is current.
    check("cublasLtCreate", unsafe { call!(api, sys::cublasLtCreate(&mut h)) })?;
    all.push((gpu.clone(), h as usize));
    Ok(h)
}

/// A matrix as the library sees it: columns are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    pub dtype: DataType,
    pub rows: usize,
    pub cols: usize,
    /// Elements from one column to the next.
    pub leading: usize,
    /// Elements from one of a batch to the next.
    pub stride: usize,
}

/// Product D = op(A) op(B) with an epilogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Product {
    pub a: Matrix,
    pub b: Matrix,
    pub d: Matrix,
    pub trans: [bool; 2],
    pub batch: usize,
    pub compute: ComputeType,
    pub scale: DataType,
    /// Epilogue: bias and relu.
    pub epilogue: Epilogue,
}

/// Declares an owner of a descriptor: how it is made, what sets an attribute, and what destroys it.
macro_rules! descriptor {
    ($name:ident($handle:ty): $create:ident($($argument:ident: $type:ty),*), $set:ident($attribute:ty), $destroy:ident) => {
        struct $name(&'static Api, $handle);

        impl $name {
            fn new(api: &'static Api, $($argument: $type),*) -> Result<$name, DriverError> {
                let mut handle = std::ptr::null_mut();
                // SAFETY: the place for the descriptor is valid.
                check(stringify!($create), unsafe { call!(api, sys::$create(&mut handle, $($argument),*)) })?;
                Ok($name(api, handle))
            }

            fn set<T: Copy>(&self, attribute: $attribute, value: T) -> Result<(), DriverError> {
                let value = (&raw const value).cast::<c_void>();
                // SAFETY: the attribute's value has the size that is passed; the library copies it.
                let code = unsafe { call!(self.0, sys::$set(self.1, attribute, value, size_of::<T>())) };
                check(stringify!($set), code)
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: made by the library, destroyed once.
                unsafe { call!(self.0, sys::$destroy(self.1)) };
            }
        }
    };
}

descriptor!(Operation(sys::cublasLtMatmulDesc_t):
    cublasLtMatmulDescCreate(compute: ComputeType, scale: DataType),
    cublasLtMatmulDescSetAttribute(sys::cublasLtMatmulDescAttributes_t), cublasLtMatmulDescDestroy);
descriptor!(Layout(sys::cublasLtMatrixLayout_t):
    cublasLtMatrixLayoutCreate(dtype: DataType, rows: u64, columns: u64, leading: i64),
    cublasLtMatrixLayoutSetAttribute(sys::cublasLtMatrixLayoutAttribute_t), cublasLtMatrixLayoutDestroy);
descriptor!(Preference(sys::cublasLtMatmulPreference_t): cublasLtMatmulPreferenceCreate(),
    cublasLtMatmulPreferenceSetAttribute(sys::cublasLtMatmulPreferenceAttributes_t), cublasLtMatmulPreferenceDestroy);

/// A product's descriptors.
pub struct Described {
    api: &'static Api,
    handle: sys::cublasLtHandle_t,
    operation: Operation,
    /// Layouts of A, B and D.
    layouts: [Layout; 3],
    scale: DataType,
}

// SAFETY: descriptors are not changed once they are made, and may be read from any thread.
unsafe impl Send for Described {}
// SAFETY: as above.
unsafe impl Sync for Described {}

impl Described {
    /// Describes a product; `bias` is its address on the device.
    pub fn new(api: &'static Api, gpu: &Arc<Gpu>, p: &Product, bias: u64) -> Result<Described, DriverError> {
        use sys::cublasLtMatmulDescAttributes_t::*;
        use sys::cublasLtMatrixLayoutAttribute_t::*;
        let handle = handle(api, gpu)?;
        let operation = Operation::new(api, p.compute, p.scale)?;
        operation.set(CUBLASLT_MATMUL_DESC_TRANSA, c_int::from(p.trans[0]))?;
        operation.set(CUBLASLT_MATMUL_DESC_TRANSB, c_int::from(p.trans[1]))?;
        operation.set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue)?;
        if bias != 0 {
            operation.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)?;
        }
        let layout = |m: &Matrix| {
            let layout = Layout::new(api, m.dtype, m.rows as u64, m.cols as u64, m.leading as i64)?;
            layout.set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, p.batch as i32)?;
            layout.set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, m.stride as i64)?;
            Ok::<_, DriverError>(layout)
        };
        let layouts = [layout(&p.a)?, layout(&p.b)?, layout(&p.d)?];
        Ok(Described { api, handle, operation, layouts, scale: p.scale })
    }

    /// The `rank`-th of the algorithms that the library proposes, or the last one, and its workspace in bytes.
    pub fn propose(&self, rank: usize, workspace: usize) -> Result<Option<(Algorithm, usize)>, DriverError> {
        let preference = Preference::new(self.api)?;
        let most = sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        preference.set(most, workspace)?;
        let mut all = [const { MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::zeroed() }; 8];
        let mut n = 0;
        let [a, b, d] = &self.layouts;
        let wanted = (rank + 1).min(all.len()) as c_int;
        // SAFETY: descriptors are alive, so many places are valid.
        let code = unsafe {
            call!(
                self.api,
                sys::cublasLtMatmulAlgoGetHeuristic(
                    self.handle,
                    self.operation.1,
                    a.1,
                    b.1,
                    d.1,
                    d.1,
                    preference.1,
                    wanted,
                    all.as_mut_ptr().cast(),
                    &mut n,
                )
            )
        };
        if code == sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED as c_int {
            return Ok(None);
        }
        check("cublasLtMatmulAlgoGetHeuristic", code)?;
        let found = all.get(..usize::try_from(n).unwrap_or(0)).unwrap_or_default();
        Ok(found.iter().filter_map(usable).next_back())
    }
}

/// Algorithm and workspace in bytes of a proposal; `None` if the library could not make it.
fn usable(proposal: &MaybeUninit<sys::cublasLtMatmulHeuristicResult_t>) -> Option<(Algorithm, usize)> {
    let at = proposal.as_ptr();
    // SAFETY: the place is initialized, and all fields that are read are valid for any bytes: the state, whose code may be newer
    // than cudarc's enumeration, is read as a number.
    unsafe {
        let state = (&raw const (*at).state).cast::<c_int>().read();
        (state == 0).then(|| ((*at).algo.data, (*at).workspaceSize))
    }
}

/// One product with addresses.
pub struct Multiply {
    pub described: Described,
    pub algorithm: Algorithm,
    /// Addresses of A, B, D and the workspace.
    pub at: [u64; 4],
    pub workspace: usize,
}

impl Call for Multiply {
    fn run(&self, stream: &Stream) -> Result<(), DriverError> {
        let stream = stream.handle();
        let (d, [a, b, out, scratch]) = (&self.described, self.at);
        let (one, zero): ([u32; 1], [u32; 1]) =
            if d.scale == DataType::CUDA_R_32I { ([1], [0]) } else { ([1.0f32.to_bits()], [0]) };
        let at = |address: u64| address as usize as *mut c_void;
        let algorithm = sys::cublasLtMatmulAlgo_t { data: self.algorithm };
        // SAFETY: descriptors are alive, addresses are those of live tensors of the described sizes in this device's memory,
        // the scalars have the type that the product was described with.
        let code = unsafe {
            call!(
                d.api,
                sys::cublasLtMatmul(
                    d.handle,
                    d.operation.1,
                    one.as_ptr().cast(),
                    at(a),
                    d.layouts[0].1,
                    at(b),
                    d.layouts[1].1,
                    zero.as_ptr().cast(),
                    at(out),
                    d.layouts[2].1,
                    at(out),
                    d.layouts[2].1,
                    &algorithm,
                    at(scratch),
                    self.workspace,
                    stream.cast(),
                )
            )
        };
        check("cublasLtMatmul", code)
    }
}
