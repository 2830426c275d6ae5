//! The SDK: a [`Backend`](crate::Backend) as a shared library with [`export_backend!`](crate::export_backend).
//!
//! Every slot of the table runs under `catch_unwind`. A panic becomes the status "panicked" with its message, and the
//! object that it happened in refuses all further calls without running its code; its destructor is not run either.

mod allocator;
mod backend;
mod constructor;
mod context;
mod export;
mod handle;
pub(crate) mod host;
mod import;
mod layers;
mod natives;
mod panics;

pub use constructor::{Constructor, create_with};
pub use export::{FLAGS, deinit, descriptor, get_interface, init};
pub use host::{is_cancelled, log};
/// The C ABI that the exported symbols speak.
pub use kiln_abi as abi;

/// Exports a backend from a `cdylib`: the descriptor that a host looks for, and the functions behind it.
///
/// The first argument is a function (or closure without captures) that makes the backend, or says why it can't:
/// `fn() -> Result<impl Backend, BackendError>`. It runs when a host asks for the backend, not before. The second is the
/// name of the plug-in: a library of name `N` is found as `libkiln_backend_N.so`. The version is that of the crate.
///
/// ```ignore
/// kiln_backend::export_backend!(WgpuBackend::new, "wgpu");
/// kiln_backend::export_backend!(Cuda::new, "cuda", vendor = "Acme", flags = kiln_backend::sdk::abi::KILN_FLAG_NEEDS_CUDA);
/// ```
#[macro_export]
macro_rules! export_backend {
    ($constructor:expr, $name:expr $(, vendor = $vendor:expr)? $(, flags = $flags:expr)? $(,)?) => {
        const _: () = {
            fn make() -> ::std::result::Result<::std::boxed::Box<dyn $crate::Backend>, $crate::BackendError> {
                ::std::result::Result::Ok(::std::boxed::Box::new(($constructor)()?))
            }

            unsafe extern "C" fn init(
                host: *const $crate::sdk::abi::kiln_host,
                err: *mut $crate::sdk::abi::kiln_error,
            ) -> i32 {
                // SAFETY: the caller keeps the contract of the descriptor, which is that of `init`.
                unsafe { $crate::sdk::init(host, err, $name, make) }
            }

            /// Descriptor that a host reads before it runs any code of this library.
            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals, reason = "the symbol that hosts look for")]
            pub static kiln_plugin_descriptor: $crate::sdk::abi::kiln_descriptor = $crate::sdk::descriptor(
                $name,
                concat!("" $(, $vendor)?),
                env!("CARGO_PKG_VERSION"),
                $crate::sdk::FLAGS $(| $flags)?,
                init,
            );
        };
    };
}
