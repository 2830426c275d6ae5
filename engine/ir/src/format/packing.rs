//! A format of a tensor with a known number of channels: from dimensions to the shape in memory, and back.

use super::{FormatError, TensorFormat};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::ty::volume;
use minicbor::{Decode, Encode};

/// Format of an input or output, with the number of channels that its vectors hide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(map)]
pub struct Packing {
    /// The format.
    #[n(0)]
    pub format: TensorFormat,
    /// Number of channels; 0 of formats without vectors.
    #[n(1)]
    channels: u64,
}

impl Packing {
    /// Packing of a tensor of this type and these dimensions.
    ///
    /// # Errors
    /// [`FormatError::Type`], [`FormatError::Rank`] and [`FormatError::Channels`].
    pub fn new(format: TensorFormat, dtype: DType, dims: &[Dim]) -> Result<Packing, FormatError> {
        if !format.allows(dtype) {
            let wanted = format.types().iter().map(|t| t.name()).collect::<Vec<_>>().join(", ");
            return Err(FormatError::Type { format, dtype, wanted });
        }
        if dims.len() < format.min_rank() {
            return Err(FormatError::Rank { format, found: dims.len(), wanted: format.min_rank() });
        }
        let Some(axis) = format.vectorized_dim(dims.len()) else {
            return Ok(Packing { format, channels: 0 });
        };
        let fixed = dims[axis].as_const().and_then(|c| u64::try_from(c).ok()).filter(|&c| c > 0);
        let found = || dims[axis].to_string();
        let channels = fixed.ok_or_else(|| FormatError::Channels { format, found: found(), axis })?;
        Ok(Packing { format, channels })
    }

    /// A packing from a format and its number of channels, 0 of formats without vectors. [`Packing::fits`] checks it.
    pub(crate) fn from_parts(format: TensorFormat, channels: u64) -> Packing {
        Packing { format, channels }
    }

    /// As [`Packing::new`] for numbers.
    pub fn of_shape(format: TensorFormat, dtype: DType, shape: &[usize]) -> Result<Packing, FormatError> {
        let dims: Vec<Dim> = shape.iter().map(|&d| Dim::new(i64::try_from(d).unwrap_or(i64::MAX))).collect();
        Packing::new(format, dtype, &dims)
    }

    /// Whether memory has the tensor's own order.
    pub fn is_linear(self) -> bool {
        self.format == TensorFormat::Linear
    }

    /// Number of vectors that hold the channels.
    pub fn blocks(self) -> u64 {
        self.channels.div_ceil(self.format.width() as u64)
    }

    /// Channels with those that fill the last vector.
    pub fn padded(self) -> u64 {
        self.blocks().saturating_mul(self.format.width() as u64)
    }

    /// Number of channels of a format with vectors.
    pub fn channels(self) -> Option<u64> {
        self.format.is_vectorized().then_some(self.channels)
    }

    /// Whether vectors have room that no channel takes.
    pub fn has_padding(self) -> bool {
        self.padded() != self.channels
    }

    /// Shape in memory of a tensor of these dimensions, which has enough of them.
    pub fn physical<T: Clone>(self, dims: &[T], number: impl Fn(u64) -> T) -> Vec<T> {
        let Some(c) = self.format.channel_axis(dims.len()) else { return dims.to_vec() };
        let (lead, rest) = dims.split_at(c);
        let spatial = rest.get(1..).unwrap_or_default();
        match (self.format.is_vectorized(), self.format.is_channels_last()) {
            (false, _) => [lead, spatial, &rest[..1]].concat(),
            (true, true) => [lead, spatial, &[number(self.padded())]].concat(),
            (true, false) => {
                [lead, &[number(self.blocks())], spatial, &[number(self.format.width() as u64)]].concat()
            }
        }
    }

    /// Dimensions of a tensor from its shape in memory; `None` if that has too few.
    pub fn logical<T: Clone>(self, shape: &[T], number: impl Fn(u64) -> T) -> Option<Vec<T>> {
        let blocked = self.format.is_vectorized() && !self.format.is_channels_last();
        let rank = shape.len().checked_sub(usize::from(blocked))?;
        if self.is_linear() {
            return Some(shape.to_vec());
        }
        let c = self.format.channel_axis(rank)?;
        let (lead, rest) = shape.split_at(c);
        let (spatial, last) = match blocked {
            true => (rest.get(1..rest.len() - 1)?, rest.last()?),
            false => (rest.get(..rest.len() - 1)?, rest.last()?),
        };
        let channels = self.channels().map_or(last.clone(), number);
        Some([lead, &[channels], spatial].concat())
    }

    /// Whether this can be the shape in memory of a tensor of this type.
    pub fn fits(self, dtype: DType, shape: &[Dim]) -> bool {
        let number = |n: u64| Dim::new(i64::try_from(n).unwrap_or(i64::MAX));
        let Some(dims) = self.logical(shape, number) else { return false };
        Packing::new(self.format, dtype, &dims) == Ok(self) && self.physical(&dims, number) == shape
    }

    /// As [`Packing::physical`] for numbers.
    pub fn physical_shape(self, shape: &[usize]) -> Vec<usize> {
        self.physical(shape, |n| usize::try_from(n).unwrap_or(usize::MAX))
    }

    /// As [`Packing::logical`] for numbers.
    pub fn logical_shape(self, shape: &[usize]) -> Option<Vec<usize>> {
        self.logical(shape, |n| usize::try_from(n).unwrap_or(usize::MAX))
    }

    /// Distance in memory between neighbours along each dimension, in elements of the format: vectors, or scalars. Of the
    /// channels it is that between vectors.
    pub fn strides(self, shape: &[usize]) -> Vec<usize> {
        let mut physical = self.physical_shape(shape);
        let last = self.format.is_channels_last();
        match (self.format.is_vectorized(), last) {
            // The vector itself is the unit.
            (true, false) => drop(physical.pop()),
            (true, true) => {
                physical.pop();
                physical.push(usize::try_from(self.blocks()).unwrap_or(usize::MAX));
            }
            _ => {}
        }
        let mut strides = vec![1usize; physical.len()];
        for i in (1..physical.len()).rev() {
            strides[i - 1] = strides[i].saturating_mul(physical[i]);
        }
        if let Some(c) = self.format.channel_axis(shape.len()).filter(|_| last)
            && let Some(own) = strides.pop()
        {
            strides.insert(c, own);
        }
        strides
    }

    /// Bytes of a tensor in memory; `None` on overflow.
    pub fn bytes(self, dtype: DType, shape: &[usize]) -> Option<u64> {
        dtype.bytes_for(volume(&self.physical_shape(shape))? as u64)
    }
}
