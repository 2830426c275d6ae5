//! Runs of the reference form: inputs, outputs, workspace.

use crate::error::Error;
use crate::field::slice;
use kiln_abi::{kiln_host_tensor, kiln_layer_call};
use std::marker::PhantomData;

/// A run: inputs and outputs by position.
pub struct Call<'a> {
    inputs: &'a [kiln_host_tensor],
    outputs: &'a [kiln_host_tensor],
    workspace: &'a mut [u8],
}

/// An input.
pub struct Input<'a>(View<'a>);

/// An output.
pub struct Output<'a>(View<'a>);

struct View<'a> {
    tensor: &'a kiln_host_tensor,
    lives: PhantomData<&'a mut ()>,
}

/// A type of elements.
pub trait Element: Copy + Default + private::Sealed {
    /// Codes of the element types that it stands for.
    const CODES: &'static [u32];
}

mod private {
    pub trait Sealed {}
}

macro_rules! element {
    ($($t:ty: $($code:literal),*;)*) => {$(
        impl private::Sealed for $t {}
        impl Element for $t {
            const CODES: &'static [u32] = &[$($code),*];
        }
    )*};
}
// Numbers of 16 bits are the bits of f16 and bf16; of 8 bits of f8 and truth values, too.
element! {
    f32: 1;
    u16: 2, 3;
    i8: 5;
    u8: 4, 6, 9;
    i32: 7;
    i64: 8;
}

impl<'a> Call<'a> {
    /// The call of a host.
    ///
    /// # Safety
    /// The call and what it refers to are valid during `'a`, and nobody else writes its outputs and workspace.
    pub(crate) unsafe fn new(call: &'a kiln_layer_call) -> Call<'a> {
        // SAFETY: as this function's contract says.
        unsafe {
            let workspace = match call.workspace.is_null() || call.workspace_bytes == 0 {
                true => &mut [][..],
                false => {
                    std::slice::from_raw_parts_mut(call.workspace.cast::<u8>(), call.workspace_bytes as usize)
                }
            };
            Call {
                inputs: slice(call.inputs, call.input_count),
                outputs: slice(call.outputs, call.output_count),
                workspace,
            }
        }
    }

    /// Number of inputs.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// An input.
    pub fn input(&self, index: usize) -> Result<Input<'_>, Error> {
        let none = || Error::Invalid(format!("input {index} of {}", self.inputs.len()));
        Ok(Input(View { tensor: self.inputs.get(index).ok_or_else(none)?, lives: PhantomData }))
    }

    /// An output.
    pub fn output(&mut self, index: usize) -> Result<Output<'_>, Error> {
        let none = || Error::Invalid(format!("output {index} of {}", self.outputs.len()));
        Ok(Output(View { tensor: self.outputs.get(index).ok_or_else(none)?, lives: PhantomData }))
    }

    /// The workspace.
    pub fn workspace(&mut self) -> &mut [u8] {
        self.workspace
    }
}

impl View<'_> {
    fn dims(&self) -> &[i64] {
        // SAFETY: the host keeps dimensions valid for the call; nobody else changes them meanwhile.
        unsafe { slice(self.tensor.dims, self.tensor.ndim.into()) }
    }

    fn check<T: Element>(&self) -> Result<(), Error> {
        match T::CODES.contains(&self.tensor.dtype) {
            true => Ok(()),
            false => Err(Error::Invalid(format!(
                "elements of type {} are not {}",
                self.tensor.dtype,
                std::any::type_name::<T>()
            ))),
        }
    }

    /// Calls `f` with the distance of each element in bytes, in row-major order of these dimensions.
    fn each<T>(&self, dims: &[i64], mut f: impl FnMut(usize)) -> Result<(), Error> {
        // SAFETY: as at `dims`.
        let strides = unsafe { slice(self.tensor.strides, self.tensor.ndim.into()) };
        let count: i64 = dims.iter().product();
        for n in 0..count {
            let (mut rest, mut at) = (n, 0);
            for (d, s) in dims.iter().zip(strides).rev() {
                at += rest % d * s;
                rest /= d;
            }
            let byte = at as usize * size_of::<T>();
            if byte + size_of::<T>() > self.tensor.bytes as usize {
                return Err(Error::Invalid("an element is beyond the memory of its tensor".into()));
            }
            f(byte);
        }
        Ok(())
    }

    fn to_vec<T: Element>(&self) -> Result<Vec<T>, Error> {
        self.check::<T>()?;
        let mut all = Vec::new();
        let data = self.tensor.data.cast::<u8>();
        // SAFETY: `each` gives bytes within the tensor's memory, which the host keeps valid for the call.
        self.each::<T>(self.dims(), |byte| all.push(unsafe { data.add(byte).cast::<T>().read_unaligned() }))?;
        Ok(all)
    }
}

impl Input<'_> {
    /// Code of the element type.
    pub fn dtype(&self) -> u32 {
        self.0.tensor.dtype
    }

    /// Dimensions, outermost first; -1 for one that is not known, as while shapes are described.
    pub fn dims(&self) -> &[i64] {
        self.0.dims()
    }

    /// The elements in row-major order.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, Error> {
        self.0.to_vec()
    }
}

impl Output<'_> {
    /// Code of the element type.
    pub fn dtype(&self) -> u32 {
        self.0.tensor.dtype
    }

    /// Dimensions, outermost first; the greatest ones of sizes that the layer finds.
    pub fn dims(&self) -> &[i64] {
        self.0.dims()
    }

    /// The elements in row-major order: of an alias, those of its input.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, Error> {
        self.0.to_vec()
    }

    /// Writes all elements, in row-major order.
    pub fn write<T: Element>(&mut self, elements: &[T]) -> Result<(), Error> {
        let dims = self.dims().to_vec();
        self.write_found(&dims, elements)
    }

    /// Writes the elements of an output whose sizes the layer finds, and records its dimensions.
    pub fn write_found<T: Element>(&mut self, dims: &[i64], elements: &[T]) -> Result<(), Error> {
        self.0.check::<T>()?;
        let most = self.dims();
        let fits = dims.len() == most.len() && dims.iter().zip(most).all(|(n, most)| (0..=*most).contains(n));
        if !fits || elements.len() as i64 != dims.iter().product() {
            return Err(Error::Invalid(format!(
                "{} elements of {dims:?}, the output has {most:?}",
                elements.len()
            )));
        }
        let data = self.0.tensor.data.cast::<u8>();
        let mut from = elements.iter();
        self.0.each::<T>(dims, |byte| {
            if let Some(x) = from.next() {
                // SAFETY: `each` gives bytes within the tensor's memory, which this call alone writes.
                unsafe { data.add(byte).cast::<T>().write_unaligned(*x) }
            }
        })?;
        for (axis, n) in dims.iter().enumerate() {
            // SAFETY: there are as many dimensions, and this call alone writes them.
            unsafe { *self.0.tensor.dims.add(axis) = *n }
        }
        Ok(())
    }
}
