//! Sliding windows: from attributes and sizes to output sizes, padding and the elements under each tap.
//!
//! Convolution, pooling and their relatives share this, and backends call it too: [`windows`] and [`transposed`] give
//! one [`Axis`] for each spatial dimension, symbolic; [`numbers`] makes them numbers once sizes are known.
//!
//! Let I be the input, B and A the padding before and after, and M = I + B + A. With stride S, kernel K,
//! dilation D and DK = 1 + D(K−1), the number of windows O is
//!
//! | pad mode | O | padding |
//! |---|---|---|
//! | explicit | ⌊(M−DK)/S⌋ + 1 | as given |
//! | explicit, `ceil_mode` | ⌈(M−DK)/S⌉ + 1, less windows that start in the padding after | as given |
//! | explicit_round_up | ⌈(M−DK)/S⌉ + 1 | as given |
//! | valid | ⌊(I−DK)/S⌋ + 1 | none |
//! | same_upper, same_lower | ⌈I/S⌉ | P = max(0, (O−1)S + DK − I), the odd one after (upper) or before (lower) |

#[cfg(test)]
mod tests;
pub mod transposed;

use crate::util::for_each_index;
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::error::OpError;
use kiln_ir::op::{AttrDef, attr, choice};

/// Attribute: elements between windows, one a spatial dimension; empty for 1.
pub const STRIDES: AttrDef = attr("strides", || Attr::Ints(Vec::new()));
/// Attribute: padding, all begins and then all ends; empty for 0.
pub const PADS: AttrDef = attr("pads", || Attr::Ints(Vec::new()));
/// Attribute: elements between the taps of a window; empty for 1.
pub const DILATIONS: AttrDef = attr("dilations", || Attr::Ints(Vec::new()));
/// Attribute: how padding is found and sizes are rounded; see [`PadMode`].
pub const PAD_MODE: AttrDef = choice("pad_mode", || "explicit".into(), PadMode::NAMES);

/// Rule for padding and for the rounding of output sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PadMode {
    /// The `pads` attribute; sizes rounded down.
    Explicit,
    /// The `pads` attribute; sizes rounded up.
    ExplicitRoundUp,
    /// Padding that makes the output ⌈I/S⌉ long, an odd one after; `pads` is ignored.
    SameUpper,
    /// Padding that makes the output ⌈I/S⌉ long, an odd one before; `pads` is ignored.
    SameLower,
    /// None; `pads` is ignored.
    Valid,
}

impl PadMode {
    /// Names of the modes in attributes.
    pub const NAMES: &[&str] = &["explicit", "explicit_round_up", "same_upper", "same_lower", "valid"];

    /// The attribute "pad_mode", explicit if there is none.
    pub fn of(attrs: &Attrs) -> PadMode {
        match attrs.str("pad_mode") {
            Ok("explicit_round_up") => PadMode::ExplicitRoundUp,
            Ok("same_upper") => PadMode::SameUpper,
            Ok("same_lower") => PadMode::SameLower,
            Ok("valid") => PadMode::Valid,
            _ => PadMode::Explicit,
        }
    }
}

/// One spatial dimension of a sliding window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis<T> {
    /// Elements that windows slide over.
    pub input: T,
    /// Number of windows.
    pub output: T,
    /// Taps of a window.
    pub kernel: T,
    /// Elements from one window to the next.
    pub stride: i64,
    /// Elements from one tap to the next.
    pub dilation: i64,
    /// Padding before the first element.
    pub begin: T,
    /// Padding after the last element.
    pub end: T,
}

impl Axis<i64> {
    /// Taps of window `o` that lie on elements, not on padding: (tap, position), in order.
    pub fn taps(&self, o: i64) -> impl Iterator<Item = (i64, i64)> + use<> {
        let (start, step, input) = (o * self.stride - self.begin, self.dilation, self.input);
        let first = if start < 0 { (-start + step - 1) / step } else { 0 };
        let after = if input > start { (input - start + step - 1) / step } else { 0 };
        (first..after.min(self.kernel)).map(move |k| (k, start + k * step))
    }

    /// Taps of window `o` that lie on elements or padding: all but those beyond the padding after, where rounding up
    /// can put them.
    pub fn padded_taps(&self, o: i64) -> i64 {
        let room = self.begin + self.input + self.end - o * self.stride;
        let fit = if room > 0 { (room + self.dilation - 1) / self.dilation } else { 0 };
        fit.min(self.kernel)
    }
}

/// The numbers, where all are.
pub fn numbers(axes: &[Axis<Dim>]) -> Option<Vec<Axis<i64>>> {
    let number = |a: &Axis<Dim>| {
        Some(Axis {
            input: a.input.as_const()?,
            output: a.output.as_const()?,
            kernel: a.kernel.as_const()?,
            stride: a.stride,
            dilation: a.dilation,
            begin: a.begin.as_const()?,
            end: a.end.as_const()?,
        })
    };
    axes.iter().map(number).collect()
}

/// [`numbers`] for the oracle, to which all sizes are known.
pub fn known(axes: &[Axis<Dim>]) -> Result<Vec<Axis<i64>>, OpError> {
    numbers(axes).ok_or_else(|| OpError::Value("the sizes of the windows are not known".into()))
}

/// A shape as dimensions.
pub fn dims(shape: &[usize]) -> Vec<Dim> {
    shape.iter().map(|&d| Dim::new(d as i64)).collect()
}

/// Calls `f(tap, position)` for every tap of the window at `at` that is on an element; both are row-major, in
/// the kernel and in the input.
pub fn for_each_tap(axes: &[Axis<i64>], at: &[usize], mut f: impl FnMut(usize, usize)) {
    let taps: Vec<Vec<(i64, i64)>> = axes.iter().zip(at).map(|(a, &o)| a.taps(o as i64).collect()).collect();
    let counts: Vec<usize> = taps.iter().map(Vec::len).collect();
    for_each_index(&counts, |which| {
        let (mut tap, mut position) = (0, 0);
        for ((axis, taps), &i) in axes.iter().zip(&taps).zip(which) {
            let (k, p) = taps[i];
            tap = tap * axis.kernel + k;
            position = position * axis.input + p;
        }
        f(tap as usize, position as usize);
    });
}

/// A list attribute with one number a spatial dimension, all within `least..=2³¹−1`; `default` for each if it is empty
/// or the operator has no such attribute.
pub fn list(attrs: &Attrs, name: &str, len: usize, default: i64, least: i64) -> Result<Vec<i64>, OpError> {
    let v = match attrs.get(name) {
        Some(_) => attrs.ints(name)?,
        None => &[],
    };
    let wrong = |wanted: String| OpError::Attr { name: name.into(), found: format!("{v:?}"), wanted };
    if v.is_empty() {
        return Ok(vec![default; len]);
    }
    if v.len() != len {
        return Err(wrong(format!("{len} numbers, or none")));
    }
    if v.iter().any(|x| !(least..=i64::from(i32::MAX)).contains(x)) {
        return Err(wrong(format!("numbers of {least} or more, below 2³¹")));
    }
    Ok(v.to_vec())
}

/// The windows of a convolution or pooling over spatial dimensions `input` with a kernel of this size.
pub fn windows(attrs: &Attrs, input: &[Dim], kernel: &[Dim]) -> Result<Vec<Axis<Dim>>, OpError> {
    let n = input.len();
    let (strides, dilations) = (list(attrs, "strides", n, 1, 1)?, list(attrs, "dilations", n, 1, 1)?);
    let pads = list(attrs, "pads", 2 * n, 0, 0)?;
    let ceil = attrs.bool("ceil_mode").unwrap_or(false);
    (0..n)
        .map(|i| {
            let axis = Axis {
                input: input[i].clone(),
                output: Dim::new(0),
                kernel: check_kernel(&kernel[i], i)?,
                stride: strides[i],
                dilation: dilations[i],
                begin: pads[i].into(),
                end: pads[n + i].into(),
            };
            resolve(axis, PadMode::of(attrs), ceil, i)
        })
        .collect()
}

fn check_kernel(k: &Dim, axis: usize) -> Result<Dim, OpError> {
    match k.as_const() {
        Some(n) if !(1..=i64::from(i32::MAX)).contains(&n) => {
            Err(OpError::Value(format!("the kernel has size {n} on spatial axis {axis}; wants 1 or more")))
        }
        _ => Ok(k.clone()),
    }
}

/// DK: the elements that a window spans.
fn span<T: Clone>(a: &Axis<T>) -> Dim
where
    Dim: From<T>,
{
    (Dim::from(a.kernel.clone()) - 1.into()) * a.dilation.into() + 1.into()
}

/// Fills in the output size and, where the mode says so, the padding.
fn resolve(mut a: Axis<Dim>, mode: PadMode, ceil: bool, axis: usize) -> Result<Axis<Dim>, OpError> {
    let stride = Dim::new(a.stride);
    let spanned = span(&a);
    match mode {
        PadMode::SameUpper | PadMode::SameLower => {
            a.output = a.input.ceil_div(&stride);
            let last = (a.output.clone() - 1.into()) * stride;
            let total = (last + spanned - a.input.clone()).max_with(&0.into());
            (a.begin, a.end) = halves(&total, mode == PadMode::SameUpper);
            return Ok(a);
        }
        PadMode::Valid => (a.begin, a.end) = (0.into(), 0.into()),
        PadMode::Explicit | PadMode::ExplicitRoundUp => {}
    }
    let padded = a.input.clone() + a.begin.clone() + a.end.clone();
    let room = padded.clone() - spanned.clone();
    let up = mode == PadMode::ExplicitRoundUp || (ceil && mode == PadMode::Explicit);
    a.output = if up { room.ceil_div(&stride) } else { room.floor_div(&stride) } + 1.into();
    if ceil && mode == PadMode::Explicit && may_start_after(&a, &spanned) {
        a.output = a.output.min_with(&(a.input.clone() + a.begin.clone()).ceil_div(&stride));
    }
    match (a.output.as_const(), a.input.is(0)) {
        (Some(n), true) if n < 0 => a.output = 0.into(),
        (Some(n), false) if n < 1 => {
            return Err(OpError::Value(format!(
                "a window of {spanned} elements (kernel {}, dilation {}) is larger than the padded input of {padded} \
                 on spatial axis {axis}",
                a.kernel, a.dilation
            )));
        }
        _ => {}
    }
    Ok(a)
}

/// Whether a window, the size rounded up, can start in the padding after the input. It can't if padding and
/// stride together are at most as long as a window.
fn may_start_after(a: &Axis<Dim>, spanned: &Dim) -> bool {
    match ((a.end.clone() + a.stride.into()).as_const(), spanned.as_const()) {
        (Some(reach), Some(spanned)) => reach > spanned,
        _ => true,
    }
}

/// A total divided into before and after, the odd one after or before.
fn halves(total: &Dim, odd_after: bool) -> (Dim, Dim) {
    let half = total.floor_div(&2.into());
    let rest = total.clone() - half.clone();
    if odd_after { (half, rest) } else { (rest, half) }
}
