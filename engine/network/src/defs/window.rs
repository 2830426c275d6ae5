//! Placement of windows, shared by convolutions and poolings.

use crate::body::bad;
use kiln_ir::attr::Attrs;
use kiln_ir::error::OpError;

/// Rule for the size of an output with its padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PaddingMode {
    /// The paddings given; a window that does not fit is dropped.
    #[default]
    ExplicitRoundDown,
    /// The paddings given; a last window that does not fit is kept.
    ExplicitRoundUp,
    /// Padding for as many outputs as strides; the larger part of an odd padding comes after.
    SameUpper,
    /// Padding for as many outputs as strides; the larger part of an odd padding comes before.
    SameLower,
}

impl PaddingMode {
    /// Whether the padding is computed, whatever was given.
    pub(super) fn is_same(self) -> bool {
        matches!(self, PaddingMode::SameUpper | PaddingMode::SameLower)
    }

    fn name(self) -> &'static str {
        match self {
            PaddingMode::ExplicitRoundDown => "explicit",
            PaddingMode::ExplicitRoundUp => "explicit_round_up",
            PaddingMode::SameUpper => "same_upper",
            PaddingMode::SameLower => "same_lower",
        }
    }
}

/// Strides and paddings; empty lists stand for 1 and 0 everywhere.
#[derive(Clone, Debug, Default)]
pub struct Window {
    pub stride: Vec<i64>,
    pub pre: Vec<i64>,
    pub post: Vec<i64>,
    pub mode: PaddingMode,
}

/// Greatest stride, padding, window and dilation.
const MAX: i64 = 1 << 31;

/// The list, or as many times `default` if it is empty; every number at least `least` and at most 2^31.
pub(super) fn list(name: &str, v: &[i64], n: usize, default: i64, least: i64) -> Result<Vec<i64>, OpError> {
    if v.is_empty() {
        return Ok(vec![default; n]);
    }
    if v.len() != n || v.iter().any(|x| !(least..=MAX).contains(x)) {
        return Err(bad(name, format!("{v:?}"), &format!("{n} numbers of {least} or more, 2^31 at most")));
    }
    Ok(v.to_vec())
}

impl Window {
    /// Strides, paddings and mode as the operators have them.
    pub(super) fn attrs(&self, spatial: usize) -> Result<Attrs, OpError> {
        let mut pads = list("pre_padding", &self.pre, spatial, 0, 0)?;
        pads.extend(list("post_padding", &self.post, spatial, 0, 0)?);
        if self.mode.is_same() {
            pads.fill(0);
        }
        let strides = list("stride", &self.stride, spatial, 1, 1)?;
        Ok(Attrs::new().with("strides", strides).with("pads", pads).with("pad_mode", self.mode.name()))
    }
}
