//! The CUDA backend of Kiln, on the NVIDIA driver and NVRTC.
//!
//! Building compiles CUDA C++ with NVRTC to cubins, which plans store; running needs the driver and nothing else.
//! Kernels are listed by family in `kiln-codegen` and [`kernels`], the tiles of tensor cores in [`tiles`]; [`frame`] writes a kernel's source, [`compile`]
//! compiles it, [`driver`] talks to the device, [`exec`] runs programs on it; [`vendor`] has the tactics of cuBLASLt and cuDNN.

mod backend;
pub mod compile;
mod dialect;
pub mod driver;
mod exec;
mod foreign;
mod frame;
mod kernels;
mod library;
pub mod nvtx;
mod refusals;
pub mod target;
pub mod tiles;
mod vendor;

pub use backend::{Cuda, written};
pub use exec::copied_in_a_trip;
pub use kernels::tables::families;

kiln_backend::export_backend!(Cuda::new, "cuda");

/// The folder of this library's file, if the loader can tell.
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
