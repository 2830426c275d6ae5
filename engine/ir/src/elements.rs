//! Tensors from elements of Rust, and back. Neither converts: the tensor's element type is that of the Rust type.

use crate::{DType, Tensor};

/// Mismatch of elements and a tensor's shape or element type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElementError {
    /// The number of elements is not that of the shape.
    #[error("{dtype}{shape:?} holds {wanted} elements, {found} were given")]
    Count {
        /// The element type.
        dtype: DType,
        /// The shape.
        shape: Vec<usize>,
        /// Number of elements of the shape.
        wanted: String,
        /// Number of elements in the data.
        found: usize,
    },
    /// The tensor has elements of another type.
    #[error(
        "the tensor {found}{shape:?} was read as {wanted}; read it as {found}, or convert it with Tensor::to_f64 or to_i64"
    )]
    DType {
        /// The tensor's element type.
        found: DType,
        /// The tensor's shape.
        shape: Vec<usize>,
        /// The element type that was asked for.
        wanted: DType,
    },
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that tensors hold: `f32`, `i64`, `i32`, `i8`, `u8` and `bool`; with the feature `half` also `half::f16` and
/// `half::bf16`.
pub trait Element: sealed::Sealed + Copy + 'static {
    /// The element type of tensors.
    const DTYPE: DType;

    #[doc(hidden)]
    fn encode(all: &[Self]) -> Vec<u8>;

    #[doc(hidden)]
    fn decode(bytes: &[u8]) -> Vec<Self>;
}

macro_rules! elements {
    ($($(#[$attribute:meta])* $rust:ty => $dtype:ident;)*) => {$(
        $(#[$attribute])*
        impl sealed::Sealed for $rust {}

        $(#[$attribute])*
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;

            fn encode(all: &[$rust]) -> Vec<u8> {
                bytemuck::cast_slice(all).to_vec()
            }

            fn decode(bytes: &[u8]) -> Vec<$rust> {
                bytes.chunks_exact(size_of::<$rust>()).map(bytemuck::pod_read_unaligned).collect()
            }
        }
    )*};
}
elements! {
    f32 => F32;
    i64 => I64;
    i32 => I32;
    i8 => I8;
    u8 => U8;
    #[cfg(feature = "half")] half::f16 => F16;
    #[cfg(feature = "half")] half::bf16 => BF16;
}

impl sealed::Sealed for bool {}

impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn encode(all: &[bool]) -> Vec<u8> {
        all.iter().map(|&b| b.into()).collect()
    }

    fn decode(bytes: &[u8]) -> Vec<bool> {
        bytes.iter().map(|&b| b != 0).collect()
    }
}

impl Tensor {
    /// Makes a tensor of elements in row-major order.
    ///
    /// # Errors
    /// [`ElementError::Count`] if their number is not that of the shape.
    ///
    /// ```
    /// use kiln_ir::{DType, Tensor};
    ///
    /// let t = Tensor::from_slice(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    /// assert_eq!((t.dtype(), t.shape()), (DType::F32, &[2, 3][..]));
    /// assert!(Tensor::from_slice(&[2, 3], &[1i64]).is_err());
    /// # Ok::<(), kiln_ir::ElementError>(())
    /// ```
    pub fn from_slice<T: Element>(shape: &[usize], elements: &[T]) -> Result<Tensor, ElementError> {
        let volume = crate::tensor::volume(shape);
        let made = volume
            .filter(|&n| n == elements.len())
            .and_then(|_| Tensor::from_bytes(T::DTYPE, shape, T::encode(elements)));
        made.ok_or_else(|| ElementError::Count {
            dtype: T::DTYPE,
            shape: shape.to_vec(),
            wanted: volume.map_or_else(|| "too many".to_owned(), |n| n.to_string()),
            found: elements.len(),
        })
    }

    /// Copies the elements in row-major order.
    ///
    /// # Errors
    /// [`ElementError::DType`] if the tensor has elements of another type.
    ///
    /// ```
    /// use kiln_ir::Tensor;
    ///
    /// let t = Tensor::from_slice(&[2], &[true, false])?;
    /// assert_eq!(t.to_vec::<bool>()?, [true, false]);
    /// assert!(t.to_vec::<f32>().is_err());
    /// # Ok::<(), kiln_ir::ElementError>(())
    /// ```
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, ElementError> {
        if self.dtype() != T::DTYPE {
            return Err(ElementError::DType {
                found: self.dtype(),
                shape: self.shape().to_vec(),
                wanted: T::DTYPE,
            });
        }
        Ok(T::decode(self.bytes()))
    }
}

#[cfg(feature = "ndarray")]
mod arrays {
    use super::{Element, ElementError};
    use crate::Tensor;
    use ndarray::{ArrayBase, ArrayD, Data, Dimension, IxDyn};

    impl<T: Element, S: Data<Elem = T>, D: Dimension> TryFrom<&ArrayBase<S, D>> for Tensor {
        type Error = ElementError;

        /// Copies the array, whatever its layout, in row-major order.
        fn try_from(array: &ArrayBase<S, D>) -> Result<Tensor, ElementError> {
            let elements: Vec<T> = array.iter().copied().collect();
            Tensor::from_slice(array.shape(), &elements)
        }
    }

    impl<T: Element, S: Data<Elem = T>, D: Dimension> TryFrom<ArrayBase<S, D>> for Tensor {
        type Error = ElementError;

        /// Copies the array, whatever its layout, in row-major order.
        fn try_from(array: ArrayBase<S, D>) -> Result<Tensor, ElementError> {
            Tensor::try_from(&array)
        }
    }

    impl<T: Element> TryFrom<&Tensor> for ArrayD<T> {
        type Error = ElementError;

        fn try_from(tensor: &Tensor) -> Result<ArrayD<T>, ElementError> {
            let elements = tensor.to_vec::<T>()?;
            let found = elements.len();
            ArrayD::from_shape_vec(IxDyn(tensor.shape()), elements).map_err(|_| ElementError::Count {
                dtype: T::DTYPE,
                shape: tensor.shape().to_vec(),
                wanted: "another number of".to_owned(),
                found,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn elements_come_back_and_other_types_are_refused_by_name() {
        let t = Tensor::from_slice(&[2, 2], &[1i32, -2, 3, i32::MIN]).unwrap();
        assert_eq!(t.to_vec::<i32>().unwrap(), [1, -2, 3, i32::MIN]);
        let e = t.to_vec::<f32>().unwrap_err().to_string();
        assert!(e.contains("i32[2, 2]") && e.contains("read as f32"), "{e}");
        let e = Tensor::from_slice(&[2, 3], &[0u8; 5]).unwrap_err().to_string();
        assert!(e.contains("u8[2, 3]") && e.contains("6") && e.contains("5 were given"), "{e}");
        let e = Tensor::from_slice(&[usize::MAX, 2], &[0u8; 5]).unwrap_err().to_string();
        assert!(e.contains("too many"), "{e}");
        assert!(Tensor::from_slice::<f32>(&[0, 7], &[]).unwrap().to_vec::<f32>().unwrap().is_empty());
    }

    #[cfg(feature = "half")]
    #[test]
    fn half_precision_is_bit_for_bit() {
        let all: Vec<half::f16> = (0..=u16::MAX).map(half::f16::from_bits).collect();
        let back = Tensor::from_slice(&[all.len()], &all).unwrap().to_vec::<half::f16>().unwrap();
        assert!(all.iter().zip(&back).all(|(a, b)| a.to_bits() == b.to_bits()));
        assert!(Tensor::from_slice(&[1], &[half::bf16::ONE]).unwrap().to_vec::<half::f16>().is_err());
    }

    #[cfg(feature = "ndarray")]
    #[test]
    fn arrays_of_any_layout_become_row_major_tensors() {
        let a = ndarray::arr2(&[[1i64, 2, 3], [4, 5, 6]]);
        let turned = Tensor::try_from(a.t()).unwrap();
        assert_eq!((turned.shape(), turned.to_vec::<i64>().unwrap()), (&[3, 2][..], vec![1, 4, 2, 5, 3, 6]));
        assert_eq!(
            Tensor::try_from(&a.slice(ndarray::s![.., ..;-2])).unwrap().to_vec::<i64>().unwrap(),
            [3, 1, 6, 4]
        );
        let back: ndarray::ArrayD<i64> = (&turned).try_into().unwrap();
        assert_eq!(back, a.t().into_dyn());
        assert!(ndarray::ArrayD::<f32>::try_from(&turned).is_err());
        assert_eq!(Tensor::try_from(ndarray::arr0(2.5f32)).unwrap().shape(), &[] as &[usize]);
    }
}
