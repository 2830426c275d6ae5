//! The CUDA backend of Kiln, on the NVIDIA driver and NVRTC.
//!
//! Building compiles CUDA C++ with NVRTC to cubins, which plans store; running needs the driver and nothing else.
//! Kernels are listed by family in `kiln-codegen` and [`kernels`], the tiles of tensor cores in [`tiles`]; [`frame`] writes a kernel's source, [`compile`]
//! compiles it, [`driver`] talks to the device, [`exec`] runs programs on it; [`vendor`] has the tactics of cuBLASLt and cuDNN.

#[cfg(feature = "compile")]
mod backend;
#[cfg(feature = "compile")]
pub mod compile;
#[cfg(feature = "compile")]
mod dialect;
pub mod driver;
mod exec;
mod foreign;
#[cfg(feature = "compile")]
mod frame;
#[cfg(feature = "compile")]
mod kernels;
#[cfg(feature = "compile")]
mod library;
pub mod nvtx;
mod parameter;
#[cfg(feature = "compile")]
mod plugin;
#[cfg(feature = "compile")]
mod refusals;
mod run;
pub mod target;
#[cfg(feature = "compile")]
pub mod tiles;
#[cfg(feature = "compile")]
mod vendor;
#[cfg(feature = "compile")]
mod written;

#[cfg(feature = "compile")]
pub use backend::{Cuda, planned, written};
pub use exec::copied_an_iteration;
#[cfg(feature = "compile")]
pub use kernels::tables::families;
pub use run::RunOnly;

#[cfg(feature = "compile")]
kiln_backend::export_backend!(Cuda::new, "cuda");
#[cfg(not(feature = "compile"))]
kiln_backend::export_backend!(RunOnly::new, "cuda");

/// The folder of this library's file, if the loader can tell.
#[cfg(feature = "compile")]
fn own_folder() -> Option<std::path::PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: the address is one of this library's functions, the place for the answer is valid.
    let known = unsafe { libc::dladdr(own_folder as *const libc::c_void, &mut info) };
    if known == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader gives text that ends with a zero and lives as long as the library.
    let name = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) };
    std::path::Path::new(name.to_str().ok()?).parent().map(std::path::Path::to_owned)
}
