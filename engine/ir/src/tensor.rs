//! Host tensors: weights, constants, inputs and outputs of the oracle.

use crate::budget::{self, Reservation};
use crate::dim::Dim;
use crate::dtype::{DType, Kind};
use crate::error::OpError;
use crate::float;
use crate::ty::TensorType;
pub use crate::ty::volume;
use half::{bf16, f16};
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

/// Shared bytes: owned, or a window of something mapped.
#[derive(Clone)]
pub struct Bytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    start: usize,
    len: usize,
}

impl Bytes {
    /// A window of `owner`; `None` if it does not lie inside.
    pub fn window(owner: Arc<dyn AsRef<[u8]> + Send + Sync>, start: usize, len: usize) -> Option<Bytes> {
        let whole = (*owner).as_ref().len();
        (start.checked_add(len)? <= whole).then_some(Bytes { owner, start, len })
    }

    /// A part of it that shares the memory; `None` if it does not lie inside.
    pub fn slice(&self, start: usize, len: usize) -> Option<Bytes> {
        let inside = start.checked_add(len)? <= self.len;
        inside.then(|| Bytes { owner: self.owner.clone(), start: self.start + start, len })
    }

    /// Bytes that `make` makes when they are read for the first time, `len` of them: a backend keeps weights in a form of its own, and
    /// makes the elements again for the few who ask. They stay in memory from then on. `make` must make that many bytes; all of them are
    /// missing otherwise.
    pub fn made(len: usize, make: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> Bytes {
        Bytes { owner: Arc::new(Made { make: Box::new(make), bytes: OnceLock::new() }), start: 0, len }
    }

    /// Number of bytes; makes none.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        (*self.owner).as_ref().get(self.start..self.start + self.len).unwrap_or_default()
    }
}

/// Shared bytes that are gone once nobody else has them.
#[derive(Clone)]
pub struct WeakBytes {
    owner: Weak<dyn AsRef<[u8]> + Send + Sync>,
    start: usize,
    len: usize,
}

impl Bytes {
    /// A handle that does not keep the bytes.
    pub fn downgrade(&self) -> WeakBytes {
        WeakBytes { owner: Arc::downgrade(&self.owner), start: self.start, len: self.len }
    }
}

/// Identity of bytes in memory, valid as long as a handle of them lives: equal for all handles of the same storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BytesId(usize, usize, usize);

impl Bytes {
    /// The identity of this storage.
    pub fn id(&self) -> BytesId {
        BytesId(Arc::as_ptr(&self.owner).addr(), self.start, self.len)
    }
}

impl WeakBytes {
    /// The identity of the bytes, which no others get as long as this handle lives.
    pub fn id(&self) -> BytesId {
        BytesId(self.owner.as_ptr().addr(), self.start, self.len)
    }

    /// The bytes, if anybody still has them.
    pub fn upgrade(&self) -> Option<Bytes> {
        Some(Bytes { owner: self.owner.upgrade()?, start: self.start, len: self.len })
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

/// Owned bytes, which count against the memory budget as long as they live.
struct Owned {
    bytes: Vec<u8>,
    _held: Reservation,
}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Bytes that are made when they are read.
struct Made {
    make: Box<dyn Fn() -> Vec<u8> + Send + Sync>,
    bytes: OnceLock<Owned>,
}

impl AsRef<[u8]> for Made {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get_or_init(|| Owned::new((self.make)())).as_ref()
    }
}

impl Owned {
    fn new(bytes: Vec<u8>) -> Owned {
        let _held = Reservation::of(bytes.capacity() as u64);
        Owned { bytes, _held }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        let len = bytes.len();
        Bytes { owner: Arc::new(Owned::new(bytes)), start: 0, len }
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

/// A dense, row-major tensor in host memory, little-endian. Cloning shares the bytes.
#[derive(Clone)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    bytes: Bytes,
}

/// The elements of a tensor, widened: all floats as `f64`, all integers and truth values as `i64`.
#[derive(Clone, Debug, PartialEq)]
pub enum Elems {
    /// Floats.
    F(Vec<f64>),
    /// Integers and truth values.
    I(Vec<i64>),
}

impl Tensor {
    /// Makes a tensor of little-endian bytes; `None` if their number is not that of the shape.
    pub fn from_bytes(dtype: DType, shape: &[usize], bytes: impl Into<Bytes>) -> Option<Tensor> {
        let bytes = bytes.into();
        let n = volume(shape)?;
        (dtype.bytes_for(n as u64)? == bytes.len as u64).then(|| Tensor {
            dtype,
            shape: shape.to_vec(),
            bytes,
        })
    }

    /// Makes a tensor of floats, rounded to nearest even once (integers: truncated and saturated). Never
    /// panics: too few or too many elements yield `None`.
    pub fn from_elems(dtype: DType, shape: &[usize], elems: &Elems) -> Option<Tensor> {
        let bytes = match elems {
            Elems::F(v) => encode_f(dtype, v),
            Elems::I(v) => encode_i(dtype, v),
        };
        Tensor::from_bytes(dtype, shape, bytes)
    }

    /// An f32 tensor.
    pub fn f32(shape: &[usize], v: &[f32]) -> Option<Tensor> {
        Tensor::from_bytes(DType::F32, shape, bytemuck::cast_slice(v).to_vec())
    }

    /// An i64 tensor.
    pub fn i64(shape: &[usize], v: &[i64]) -> Option<Tensor> {
        Tensor::from_bytes(DType::I64, shape, bytemuck::cast_slice(v).to_vec())
    }

    /// All zero bytes; an error where that many can't be had.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<Tensor, OpError> {
        let too_large = || OpError::TooLarge(format!("{dtype}{shape:?}"));
        let n = volume(shape).and_then(|n| dtype.bytes_for(n as u64)).ok_or_else(too_large)?;
        let _held = budget::reserve(n)?;
        let n = usize::try_from(n).map_err(|_| too_large())?;
        let mut v = Vec::new();
        v.try_reserve_exact(n).map_err(|_| too_large())?;
        v.resize(n, 0);
        Tensor::from_bytes(dtype, shape, v).ok_or_else(too_large)
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Dimensions, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Type of the tensor, its dimensions static.
    pub fn ty(&self) -> TensorType {
        TensorType::new(self.dtype, self.shape.iter().map(|&d| Dim::new(d as i64)))
    }

    /// The little-endian bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// The shared storage.
    pub fn shared_bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// Reshapes to another shape of the same volume.
    pub fn reshaped(&self, shape: &[usize]) -> Option<Tensor> {
        (volume(shape)? == self.len()).then(|| Tensor { shape: shape.to_vec(), ..self.clone() })
    }

    /// A typed view without copying; `None` where the element size or the alignment does not fit.
    pub fn view<T: bytemuck::Pod>(&self) -> Option<&[T]> {
        (size_of::<T>() as u32 * 8 == self.dtype.bits()).then_some(())?;
        bytemuck::try_cast_slice(self.bytes()).ok()
    }

    /// All elements, widened.
    pub fn elems(&self) -> Elems {
        match self.dtype.kind() {
            Kind::Float => Elems::F(self.to_f64()),
            _ => Elems::I(self.to_i64()),
        }
    }

    /// All elements as `f64` (integers converted).
    pub fn to_f64(&self) -> Vec<f64> {
        let b = self.bytes();
        match self.dtype {
            DType::F32 => chunks(b, |c: [u8; 4]| f32::from_le_bytes(c).into()),
            DType::F16 => chunks(b, |c: [u8; 2]| f16::from_le_bytes(c).into()),
            DType::BF16 => chunks(b, |c: [u8; 2]| bf16::from_le_bytes(c).into()),
            DType::F8E4M3 => b.iter().map(|&c| float::f8e4m3_to_f64(c)).collect(),
            _ => self.to_i64().into_iter().map(|x| x as f64).collect(),
        }
    }

    /// All elements as `i64` (floats truncated toward zero and saturated, NaN to 0).
    pub fn to_i64(&self) -> Vec<i64> {
        let b = self.bytes();
        match self.dtype {
            DType::I64 => chunks(b, i64::from_le_bytes),
            DType::I32 => chunks(b, |c: [u8; 4]| i32::from_le_bytes(c).into()),
            DType::I8 => b.iter().map(|&c| (c as i8).into()).collect(),
            DType::U8 => b.iter().map(|&c| c.into()).collect(),
            DType::Bool => b.iter().map(|&c| (c != 0).into()).collect(),
            DType::I4 => {
                (0..self.len()).map(|i| (((b[i / 2] >> (i % 2 * 4)) << 4) as i8 >> 4).into()).collect()
            }
            _ => self.to_f64().into_iter().map(|x| x as i64).collect(),
        }
    }

    /// The single element of a tensor of volume one, as `i64`.
    pub fn scalar_i64(&self) -> Option<i64> {
        (self.len() == 1).then(|| self.to_i64()[0])
    }

    /// The single element of a tensor of volume one, as `f64`.
    pub fn scalar_f64(&self) -> Option<f64> {
        (self.len() == 1).then(|| self.to_f64()[0])
    }
}

fn chunks<const N: usize, T>(b: &[u8], f: impl Fn([u8; N]) -> T) -> Vec<T> {
    b.as_chunks::<N>().0.iter().map(|c| f(*c)).collect()
}

fn encode_f(dtype: DType, v: &[f64]) -> Vec<u8> {
    match dtype {
        DType::F32 => v.iter().flat_map(|&x| (x as f32).to_le_bytes()).collect(),
        DType::F16 => v.iter().flat_map(|&x| float::f16_bits(x).to_le_bytes()).collect(),
        DType::BF16 => v.iter().flat_map(|&x| float::bf16_bits(x).to_le_bytes()).collect(),
        DType::F8E4M3 => v.iter().map(|&x| float::f8e4m3_bits(x)).collect(),
        DType::Bool => v.iter().map(|&x| u8::from(x != 0.0)).collect(),
        _ => encode_i(dtype, &v.iter().map(|&x| x as i64).collect::<Vec<_>>()),
    }
}

/// Integers wrap to the width of the type, as a C cast does.
fn encode_i(dtype: DType, v: &[i64]) -> Vec<u8> {
    match dtype {
        DType::I64 => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::I32 => v.iter().flat_map(|&x| (x as i32).to_le_bytes()).collect(),
        DType::I8 | DType::U8 => v.iter().map(|&x| x as u8).collect(),
        DType::Bool => v.iter().map(|&x| u8::from(x != 0)).collect(),
        DType::I4 => {
            v.chunks(2).map(|c| (c[0] & 15) as u8 | ((c.get(1).unwrap_or(&0) & 15) << 4) as u8).collect()
        }
        _ => encode_f(dtype, &v.iter().map(|&x| x as f64).collect::<Vec<_>>()),
    }
}

impl PartialEq for Tensor {
    /// Compares type, shape and bytes.
    fn eq(&self, o: &Tensor) -> bool {
        self.dtype == o.dtype && self.shape == o.shape && self.bytes() == o.bytes()
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)?;
        if self.len() <= 16 { write!(f, " {:?}", self.elems()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_made_when_they_are_read_and_once() {
        let made = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = made.clone();
        let bytes = Bytes::made(8, move || {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            vec![1, 0, 0, 0, 2, 0, 0, 0]
        });
        let x = Tensor::from_bytes(DType::I32, &[2], bytes.clone()).unwrap();
        let last = bytes.slice(4, 4).unwrap();
        let times = || made.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!((bytes.len(), bytes.is_empty(), times()), (8, false, 0));
        assert_eq!((x.shared_bytes().id(), bytes.downgrade().id()), (bytes.id(), bytes.id()));
        assert_ne!(bytes.id(), last.id());
        assert_eq!((x.to_i64(), last.as_slice(), times()), (vec![1, 2], &[2, 0, 0, 0][..], 1));
        // Too few bytes are none.
        assert!(Bytes::made(4, || vec![1]).as_slice().is_empty());
    }

    #[test]
    fn elements_survive_storage() {
        for t in DType::ALL {
            let v = Elems::I(vec![0, 1, 1, 0, 1]);
            let x = Tensor::from_elems(t, &[5], &v).unwrap();
            assert_eq!(x.to_i64(), [0, 1, 1, 0, 1], "{t}");
        }
        let x = Tensor::from_elems(DType::I4, &[3], &Elems::I(vec![-8, 7, -1])).unwrap();
        assert_eq!((x.to_i64(), x.bytes().len()), (vec![-8, 7, -1], 2));
    }

    #[test]
    fn a_wrong_number_of_bytes_is_refused() {
        assert!(Tensor::from_bytes(DType::F32, &[2], vec![0; 7]).is_none());
        assert!(Tensor::from_bytes(DType::F32, &[1 << 40, 0], vec![]).is_some());
        assert!(Tensor::from_bytes(DType::F32, &[0, 1 << 40, 1 << 40], vec![]).is_none());
        assert!(Tensor::zeros(DType::F32, &[usize::MAX, 2]).is_err());
    }
}
