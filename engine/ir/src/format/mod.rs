//! Formats of inputs and outputs: the order in which the elements of a tensor are stored, apart from its dimensions.
//!
//! Dimensions are always those of the linear format, `[N, C, H, W]` or `[N, C, D, H, W]`. A format says where the channels are
//! stored: as planes, behind the other dimensions, or in vectors of a fixed number of channels. Vectors are filled up with
//! zeros.

mod mask;
mod pack;
mod packing;

pub use mask::Formats;
pub use pack::{pack, unpack};
pub use packing::Packing;

use crate::dtype::DType;
use minicbor::{Decode, Encode};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Beginning of the names of layers that only bring an input or output into its type and format.
pub const REFORMAT: &str = "reformat ";

/// Order of the elements of a tensor in memory. Codes are stable: they are those of TensorRT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
#[non_exhaustive]
#[repr(u8)]
pub enum TensorFormat {
    /// Row-major, the last dimension fastest.
    #[default]
    #[n(0)]
    Linear = 0,
    /// `[N][⌈C/2⌉][H][W][2]`.
    #[n(1)]
    Chw2 = 1,
    /// `[N][H][W][⌈C/8⌉·8]`.
    #[n(2)]
    Hwc8 = 2,
    /// `[N][⌈C/4⌉][H][W][4]`.
    #[n(3)]
    Chw4 = 3,
    /// `[N][⌈C/16⌉][H][W][16]`.
    #[n(4)]
    Chw16 = 4,
    /// `[N][⌈C/32⌉][H][W][32]`.
    #[n(5)]
    Chw32 = 5,
    /// `[N][D][H][W][⌈C/8⌉·8]`.
    #[n(6)]
    Dhwc8 = 6,
    /// `[N][⌈C/32⌉][D][H][W][32]`.
    #[n(7)]
    Cdhw32 = 7,
    /// `[N][H][W][C]`.
    #[n(8)]
    Hwc = 8,
    /// `[N][H][W][⌈C/16⌉·16]`.
    #[n(11)]
    Hwc16 = 11,
    /// `[N][D][H][W][C]`.
    #[n(12)]
    Dhwc = 12,
}

/// Everything that is known of a format.
struct Record {
    format: TensorFormat,
    name: &'static str,
    /// Dimensions behind the channels.
    spatial: usize,
    /// Channels of a vector.
    width: u64,
    /// Whether the channels are stored behind the other dimensions.
    last: bool,
    /// Element types; empty: all.
    types: &'static [DType],
}

const fn record(
    format: TensorFormat,
    name: &'static str,
    spatial: usize,
    width: u64,
    last: bool,
    types: &'static [DType],
) -> Record {
    Record { format, name, spatial, width, last, types }
}

const HALVES: &[DType] = &[DType::F16, DType::BF16];

/// The formats and the types that each is for, as in TensorRT's table. Formats of its accelerators for inference without a GPU
/// are not among them.
const RECORDS: &[Record] = &[
    record(TensorFormat::Linear, "linear", 0, 1, false, &[]),
    record(TensorFormat::Chw2, "chw2", 2, 2, false, HALVES),
    record(TensorFormat::Chw4, "chw4", 2, 4, false, &[DType::F16, DType::I8]),
    record(TensorFormat::Chw16, "chw16", 2, 16, false, &[DType::F16]),
    record(TensorFormat::Chw32, "chw32", 2, 32, false, &[DType::F32, DType::F16, DType::I8]),
    record(TensorFormat::Hwc, "hwc", 2, 1, true, &[DType::F32, DType::U8]),
    record(TensorFormat::Hwc8, "hwc8", 2, 8, true, HALVES),
    record(TensorFormat::Hwc16, "hwc16", 2, 16, true, &[DType::F16, DType::I8, DType::F8E4M3]),
    record(TensorFormat::Dhwc, "dhwc", 3, 1, true, &[DType::F32]),
    record(TensorFormat::Dhwc8, "dhwc8", 3, 8, true, HALVES),
    record(TensorFormat::Cdhw32, "cdhw32", 3, 32, false, &[DType::F16, DType::I8]),
];

/// Names of formats that only accelerators without a backend here have.
const FOREIGN: &[&str] = &["dla_linear", "dla_hwc4"];

impl TensorFormat {
    /// All formats.
    pub const ALL: [TensorFormat; 11] = [
        TensorFormat::Linear,
        TensorFormat::Chw2,
        TensorFormat::Chw4,
        TensorFormat::Chw16,
        TensorFormat::Chw32,
        TensorFormat::Hwc,
        TensorFormat::Hwc8,
        TensorFormat::Hwc16,
        TensorFormat::Dhwc,
        TensorFormat::Dhwc8,
        TensorFormat::Cdhw32,
    ];

    fn record(self) -> &'static Record {
        // The first record is the linear format.
        RECORDS.iter().find(|r| r.format == self).unwrap_or(&RECORDS[0])
    }

    /// The name in text and options.
    pub fn name(self) -> &'static str {
        self.record().name
    }

    /// The stable number of this format.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Element types that it is for.
    pub fn types(self) -> &'static [DType] {
        match self.record().types {
            [] => &DType::ALL,
            types => types,
        }
    }

    /// Whether tensors of this type may have it.
    pub fn allows(self, dtype: DType) -> bool {
        self.types().contains(&dtype)
    }

    /// The least number of dimensions.
    pub fn min_rank(self) -> usize {
        if self == TensorFormat::Linear { 0 } else { self.record().spatial + 1 }
    }

    /// Scalars of one element of the format: channels of a vector, else 1.
    pub fn width(self) -> usize {
        self.record().width as usize
    }

    /// Whether an element is a vector of channels.
    pub fn is_vectorized(self) -> bool {
        self.record().width > 1
    }

    /// Whether channels are stored behind the other dimensions.
    pub fn is_channels_last(self) -> bool {
        self.record().last
    }

    /// The dimension whose neighbours share a vector; `None` where elements are scalars.
    pub fn vectorized_dim(self, rank: usize) -> Option<usize> {
        self.is_vectorized().then(|| self.channel_axis(rank)).flatten()
    }

    /// The dimension of the channels; `None` of the linear format, and of too few dimensions.
    pub(crate) fn channel_axis(self, rank: usize) -> Option<usize> {
        (self != TensorFormat::Linear).then(|| rank.checked_sub(self.min_rank())).flatten()
    }

    /// The format in words, as TensorRT's inspector prints it.
    pub fn describe(self, dtype: DType) -> String {
        let ty = type_in_words(dtype);
        let width = self.width();
        match (self.is_vectorized(), self.is_channels_last()) {
            _ if self == TensorFormat::Linear => format!("Row major linear {ty} format"),
            (false, _) => format!("Channel major {ty} format"),
            (true, true) => format!("Channel major {ty} format where channel % {width} == 0"),
            (true, false) => format!("{} wide channel vectorized row major {ty} format", in_words(width)),
        }
    }
}

fn in_words(width: usize) -> &'static str {
    match width {
        2 => "Two",
        4 => "Four",
        16 => "Sixteen",
        _ => "Thirty-two",
    }
}

/// An element type as TensorRT names it in descriptions.
fn type_in_words(dtype: DType) -> String {
    match dtype {
        DType::F32 => "FP32".into(),
        DType::F16 => "FP16".into(),
        DType::BF16 => "BF16".into(),
        DType::F8E4M3 => "FP8".into(),
        DType::I8 => "Int8".into(),
        DType::U8 => "UInt8".into(),
        DType::I32 => "Int32".into(),
        DType::I64 => "Int64".into(),
        DType::Bool => "Bool".into(),
        DType::I4 => "Int4".into(),
    }
}

impl fmt::Display for TensorFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TensorFormat {
    type Err = FormatError;

    /// Reads a name; "chw" is the linear format, as in TensorRT's tools.
    fn from_str(s: &str) -> Result<TensorFormat, FormatError> {
        let own = if s == "chw" { "linear" } else { s };
        if FOREIGN.contains(&s) {
            return Err(FormatError::Foreign(s.to_owned()));
        }
        let found = RECORDS.iter().find(|r| r.name == own).map(|r| r.format);
        found.ok_or_else(|| FormatError::Unknown {
            name: s.to_owned(),
            known: RECORDS.iter().map(|r| r.name).collect::<Vec<_>>().join(", "),
        })
    }
}

/// A format that a tensor cannot have, or a tensor that is not in its format.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormatError {
    /// A name that no format has.
    #[error("\"{name}\" is not a format; wants chw or one of {known}")]
    Unknown {
        /// The name.
        name: String,
        /// Names of all formats.
        known: String,
    },
    /// A format of another kind of device.
    #[error(
        "format \"{0}\" is for deep-learning accelerators (DLA), which no backend drives; use chw or hwc"
    )]
    Foreign(String),
    /// An element type that the format is not for.
    #[error("format {format} is not for {dtype}; it is for {wanted}")]
    Type {
        /// The format.
        format: TensorFormat,
        /// The type.
        dtype: DType,
        /// Types that it is for.
        wanted: String,
    },
    /// Too few dimensions.
    #[error("format {format} wants {wanted} dimensions or more, found {found}")]
    Rank {
        /// The format.
        format: TensorFormat,
        /// Number of dimensions.
        found: usize,
        /// The least number.
        wanted: usize,
    },
    /// Channels that a run determines, or none.
    #[error(
        "format {format} wants a fixed number of channels, 1 or more, found {found} (dimension {axis}); fix it, or take a \
         format without vectors"
    )]
    Channels {
        /// The format.
        format: TensorFormat,
        /// The dimension.
        found: String,
        /// Its position.
        axis: usize,
    },
    /// A tensor of another shape.
    #[error("a tensor {dims:?} in format {format} is stored as {wanted:?}, found {found:?}")]
    Shape {
        /// The format.
        format: TensorFormat,
        /// Dimensions of the tensor.
        dims: Vec<usize>,
        /// Shape in memory that follows from them.
        wanted: Vec<usize>,
        /// Shape in memory that was found.
        found: Vec<usize>,
    },
    /// More memory than there is.
    #[error("a tensor {0:?} in format {1} is too large for the memory here")]
    Memory(Vec<usize>, TensorFormat),
    /// An empty set of formats.
    #[error("no format is allowed; wants one or more")]
    None,
}

#[cfg(test)]
mod tests;
