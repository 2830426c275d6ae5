//! SDK for custom layers of Kiln, in libraries that Kiln loads at run time (`libkiln_layers_NAME.so`).
//!
//! A layer is a structure of fields, defined by [`fields!`], and an implementation of [`Layer`]. [`export_layers!`] makes a
//! library of them. A panic becomes an error of the layer; the process goes on.
//!
//! ```
//! use kiln_layer::{Call, Error, Layer};
//!
//! kiln_layer::fields! {
//!     /// Adds a number to each element.
//!     pub struct Shift {
//!         /// The number.
//!         by: f64 = 1.0,
//!     }
//! }
//!
//! impl Layer for Shift {
//!     const NAME: &'static str = "Shift";
//!     const SPACE: &'static str = "acme";
//!     const TYPES: &'static str = "f32:f32";
//!     const OUTPUTS: &'static str = "[i0.d*]";
//!     const EXPRESSION: &'static str = "x0 + by";
//!
//!     fn run(&mut self, call: &mut Call<'_>) -> Result<(), Error> {
//!         let mut v = call.input(0)?.to_vec::<f32>()?;
//!         v.iter_mut().for_each(|x| *x += self.by as f32);
//!         call.output(0)?.write(&v)
//!     }
//! }
//!
//! kiln_layer::export_layers!("shift", [Shift]);
//! ```

mod call;
mod error;
mod export;
mod field;
mod host;
mod layer;
mod native;
mod wgpu;

pub use call::{Call, Element, Input, Output};
pub use error::Error;
pub use export::{Table, descriptor, init, table};
pub use field::{Field, FieldValue, Fields, Value};
/// The C ABI that the exported symbols speak.
pub use kiln_abi as abi;
pub use layer::{Count, Device, Kernel, Language, Layer, MOST_NATIVES, Native, NativeState};
pub use native::{NativeCall, NativeTensor};
pub use wgpu::{Dispatch, Wgpu};

/// Defines the structure of a layer's fields. A field is `name: type = default`, or `name: type` where the user must give it;
/// the types are `i64`, `f64`, `String` and vectors of them. Doc comments describe fields to users.
#[macro_export]
macro_rules! fields {
    (
        $(#[$($attribute:tt)*])*
        $visibility:vis struct $name:ident {
            $($(#[doc = $doc:literal])* $field:ident: $kind:ty $(= $default:expr)?),* $(,)?
        }
    ) => {
        $(#[$($attribute)*])*
        $visibility struct $name {
            $($(#[doc = $doc])* $field: $kind),*
        }

        impl $crate::Fields for $name {
            fn fields() -> ::std::vec::Vec<$crate::Field> {
                vec![$($crate::Field::of::<$kind>(
                    stringify!($field),
                    concat!("" $(, $doc)*).trim(),
                    $crate::fields!(@default $kind $(, $default)?),
                )),*]
            }

            #[allow(unused_mut, unused_variables, reason = "a layer may have no field")]
            fn of(values: &[$crate::Value]) -> ::std::result::Result<Self, $crate::Error> {
                let mut values = values.iter();
                ::std::result::Result::Ok($name {
                    $($field: <$kind as $crate::FieldValue>::of(values.next(), stringify!($field))?),*
                })
            }
        }
    };
    (@default $kind:ty, $default:expr) => {
        ::std::option::Option::Some(<$kind as ::std::convert::From<_>>::from($default))
    };
    (@default $kind:ty) => {
        ::std::option::Option::<$kind>::None
    };
}

/// Exports layers from a `cdylib`: the descriptor that a host looks for, and the functions behind it. The first argument is the
/// name of the library, which is found as `libkiln_layers_NAME.so`; the version is that of the crate.
#[macro_export]
macro_rules! export_layers {
    ($name:expr, [$($layer:ty),+ $(,)?] $(, vendor = $vendor:expr)? $(,)?) => {
        const _: () = {
            unsafe extern "C" fn init(
                host: *const $crate::abi::kiln_host,
                err: *mut $crate::abi::kiln_error,
            ) -> i32 {
                // SAFETY: the caller keeps the contract of the descriptor, which is that of `init`.
                unsafe { $crate::init(host, err) }
            }

            unsafe extern "C" fn get_interface(id: $crate::abi::kiln_str) -> *const ::std::ffi::c_void {
                static TABLE: ::std::sync::OnceLock<$crate::Table> = ::std::sync::OnceLock::new();
                // SAFETY: the caller passes a view of text.
                unsafe { $crate::table(id, &TABLE, |t| { $(t.add::<$layer>();)+ }) }
            }

            /// Descriptor that a host reads before it runs any code of this library.
            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals, reason = "the symbol that hosts look for")]
            pub static kiln_plugin_descriptor: $crate::abi::kiln_descriptor =
                $crate::descriptor($name, concat!("" $(, $vendor)?), env!("CARGO_PKG_VERSION"), init, get_interface);
        };
    };
}
