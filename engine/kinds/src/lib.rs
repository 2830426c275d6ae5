//! Names of layer kinds, of their parameters and of the values of these, for bindings that add layers by name.
//!
//! The tables are macros: each hands its rows to a macro of the caller, which writes the conversions of its language. Types of
//! `kiln-network` and the function `empty` (a constant without elements, as a result) are looked up where the table is used.

mod kinds;
mod names;

pub use kiln_network;

use kiln_network::{Conv, Window};

/// A convolution or deconvolution before any parameter is set.
pub fn convolution<const T: bool>() -> Conv<T> {
    let (kernel, dilation) = (Vec::new(), Vec::new());
    Conv { maps: 0, kernel, weights: None, bias: None, window: Window::default(), dilation, groups: None }
}

/// Parameters that a tensor may give instead: kind, parameter, and the input that does. They can't become constants again.
pub const TAKEN_OVER: [(&str, &str, usize); 8] = [
    ("shuffle", "reshape_dims", 1),
    ("resize", "size", 1),
    ("slice", "start", 1),
    ("slice", "size", 2),
    ("slice", "stride", 3),
    ("fill", "shape", 0),
    ("fill", "alpha", 1),
    ("fill", "beta", 2),
];
