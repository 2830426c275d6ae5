//! Conversion of tensors between the linear format and others, on the host.

use super::{FormatError, Packing, TensorFormat};
use crate::dtype::DType;
use crate::tensor::Tensor;
use crate::ty::volume;

/// A tensor in a format: its elements in the order of memory, what fills up vectors zero. The result has the shape in memory.
///
/// ```
/// use kiln_ir::{Tensor, TensorFormat, format::pack};
/// let x = Tensor::f32(&[1, 2, 1, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("six elements");
/// let y = pack(&x, TensorFormat::Hwc)?;
/// assert_eq!((y.shape(), y.to_f64()), (&[1, 1, 3, 2][..], vec![1.0, 4.0, 2.0, 5.0, 3.0, 6.0]));
/// # Ok::<(), kiln_ir::FormatError>(())
/// ```
///
/// # Errors
/// Errors of [`Packing::new`], and [`FormatError::Memory`].
pub fn pack(x: &Tensor, format: TensorFormat) -> Result<Tensor, FormatError> {
    let packing = Packing::of_shape(format, x.dtype(), x.shape())?;
    if packing.is_linear() {
        return Ok(x.clone());
    }
    let physical = packing.physical_shape(x.shape());
    moved(x.bytes(), x.dtype(), x.shape(), packing, &physical, Way::Pack)
}

/// The tensor of this shape that is stored in a format; what fills up vectors is not read.
///
/// # Errors
/// As [`pack`], and [`FormatError::Shape`] if the shape in memory is not that of the tensor.
pub fn unpack(x: &Tensor, format: TensorFormat, shape: &[usize]) -> Result<Tensor, FormatError> {
    let packing = Packing::of_shape(format, x.dtype(), shape)?;
    let physical = packing.physical_shape(shape);
    if physical != x.shape() {
        let (dims, found) = (shape.to_vec(), x.shape().to_vec());
        return Err(FormatError::Shape { format, dims, wanted: physical, found });
    }
    if packing.is_linear() {
        return Ok(x.clone());
    }
    moved(x.bytes(), x.dtype(), shape, packing, shape, Way::Unpack)
}

#[derive(Clone, Copy)]
enum Way {
    Pack,
    Unpack,
}

/// Moves the elements of a tensor of this shape; the result has the shape `to`.
fn moved(
    from: &[u8],
    dtype: DType,
    shape: &[usize],
    packing: Packing,
    to: &[usize],
    way: Way,
) -> Result<Tensor, FormatError> {
    let format = packing.format;
    let memory = || FormatError::Memory(shape.to_vec(), format);
    // Formats but the linear one are for types of whole bytes.
    let size = dtype.bits() as usize / 8;
    let axis = format.channel_axis(shape.len()).ok_or_else(memory)?;
    let channels = shape[axis];
    let part = |dims: &[usize]| volume(dims).ok_or_else(memory);
    let (lead, plane) = (part(&shape[..axis])?, part(&shape[axis + 1..])?);
    let width = format.width();
    // A channel's place is block · step + position in the block; a step along the plane is `row` elements.
    let blocked = format.is_vectorized() && !format.is_channels_last();
    let padded = channels.div_ceil(width) * width;
    let row = if blocked { width } else { padded };
    let zeros = Tensor::zeros(dtype, to).map_err(|_| memory())?;
    let mut out = zeros.bytes().to_vec();
    drop(zeros);
    for n in 0..lead {
        for c in 0..channels {
            let block = if blocked { c / width * plane * width + c % width } else { c };
            let packed = n * padded * plane + block;
            let linear = (n * channels + c) * plane;
            for s in 0..plane {
                let (a, b) = ((linear + s) * size, (packed + s * row) * size);
                let (a, b) = match way {
                    Way::Pack => (a, b),
                    Way::Unpack => (b, a),
                };
                // Both are inside: shapes were checked against the numbers of elements.
                if let (Some(x), Some(y)) = (from.get(a..a + size), out.get_mut(b..b + size)) {
                    y.copy_from_slice(x);
                }
            }
        }
    }
    Tensor::from_bytes(dtype, to, out).ok_or_else(memory)
}
