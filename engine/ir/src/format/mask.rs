//! Sets of formats.

use super::TensorFormat;
use minicbor::Encode;
use minicbor::decode::{Decode, Decoder, Error};
use std::fmt;
use std::ops::BitOr;

/// A set of formats: a bit for each, at the format's code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode)]
#[cbor(transparent)]
pub struct Formats(#[n(0)] u32);

impl<'b, C> Decode<'b, C> for Formats {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Formats, Error> {
        let bits = d.u32()?;
        let unknown = || Error::message(format!("{bits:#x} has formats that this version does not know"));
        Formats::from_bits(bits).ok_or_else(unknown)
    }
}

impl Formats {
    /// All formats.
    pub fn all() -> Formats {
        TensorFormat::ALL.into_iter().collect()
    }

    /// The set of these bits; `None` if one of them stands for no format.
    pub fn from_bits(bits: u32) -> Option<Formats> {
        (bits & !Formats::all().0 == 0).then_some(Formats(bits))
    }

    /// A bit for each format, at its code.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Whether it holds a format.
    pub fn contains(self, format: TensorFormat) -> bool {
        self.0 & Formats::from(format).0 != 0
    }

    /// Whether it holds none.
    pub fn is_empty(self) -> bool {
        self.iter().next().is_none()
    }

    /// Its formats, in the order of [`TensorFormat::ALL`].
    pub fn iter(self) -> impl Iterator<Item = TensorFormat> {
        TensorFormat::ALL.into_iter().filter(move |&f| self.contains(f))
    }
}

impl From<TensorFormat> for Formats {
    fn from(format: TensorFormat) -> Formats {
        Formats(1 << format.code())
    }
}

impl FromIterator<TensorFormat> for Formats {
    fn from_iter<I: IntoIterator<Item = TensorFormat>>(all: I) -> Formats {
        all.into_iter().fold(Formats::default(), |set, f| set | f)
    }
}

impl<T: Into<Formats>> BitOr<T> for Formats {
    type Output = Formats;

    fn bitor(self, other: T) -> Formats {
        Formats(self.0 | other.into().0)
    }
}

impl fmt::Display for Formats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iter().map(TensorFormat::name).collect::<Vec<_>>().join(", "))
    }
}
