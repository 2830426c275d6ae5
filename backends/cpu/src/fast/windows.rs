//! Sizes of convolutions and their windows.

use kiln_ops::conv::window::Axis;

/// Three spatial dimensions, leading ones of size 1 where there are fewer.
pub type Spatial = [Axis<i64>; 3];

/// Axes filled up to three.
pub fn spatial(axes: Vec<Axis<i64>>) -> Option<Spatial> {
    let one = || Axis { input: 1, output: 1, kernel: 1, stride: 1, dilation: 1, begin: 0, end: 0 };
    let missing = 3usize.checked_sub(axes.len())?;
    let all: Vec<_> = (0..missing).map(|_| one()).chain(axes).collect();
    all.try_into().ok()
}

/// A product over the dimensions.
pub fn volume(s: &Spatial, f: fn(&Axis<i64>) -> i64) -> usize {
    s.iter().map(|a| f(a) as usize).product()
}

/// A convolution whose sizes are known.
pub struct Conv<'a> {
    /// Elements of x, weights and bias.
    pub x: &'a [f32],
    pub w: &'a [f32],
    pub bias: Option<&'a [f32]>,
    /// The windows.
    pub axes: Spatial,
    pub groups: usize,
    /// Channels of x, of y, and of x in a group.
    pub channels: usize,
    pub m: usize,
    pub depth: usize,
}
