//! Coordinates of `resize`: the place of an output index in the input, and the elements that make its value.
//! Backends call it on the host (tables of taps, one dimension at a time) or mirror it in kernels.

use crate::sample::cubic_kernel;
use kiln_ir::attr::Attrs;
use kiln_ir::error::OpError;

/// One element of the input and its weight.
pub type Tap = (usize, f64);

/// Map from an output index to a place of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coord {
    /// (i + ½)/scale − ½.
    HalfPixel,
    /// Formula of `HalfPixel`, with the centres of input and output aligned.
    HalfPixelSymmetric,
    /// Formula of `HalfPixel`, but 0 for an output of one element.
    PytorchHalfPixel,
    /// First and last elements of both coincide.
    AlignCorners,
    /// i/scale.
    Asymmetric,
    /// First and last elements of the output coincide with those of a region.
    TfCropAndResize,
}

impl Coord {
    /// Names of the formulas in attributes.
    pub const NAMES: &[&str] = &[
        "half_pixel",
        "half_pixel_symmetric",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
        "tf_crop_and_resize",
    ];

    fn of(attrs: &Attrs) -> Result<Coord, OpError> {
        Ok(match attrs.str("coord")? {
            "half_pixel_symmetric" => Coord::HalfPixelSymmetric,
            "pytorch_half_pixel" => Coord::PytorchHalfPixel,
            "align_corners" => Coord::AlignCorners,
            "asymmetric" => Coord::Asymmetric,
            "tf_crop_and_resize" => Coord::TfCropAndResize,
            _ => Coord::HalfPixel,
        })
    }
}

/// Choice of the nearest element for a place between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// To the nearest, ties down.
    PreferFloor,
    /// To the nearest, ties up.
    PreferCeil,
    /// Down.
    Floor,
    /// Up.
    Ceil,
}

impl Rounding {
    /// Names of the roundings in attributes.
    pub const NAMES: &[&str] = &["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"];

    fn of(attrs: &Attrs) -> Result<Rounding, OpError> {
        Ok(match attrs.str("nearest_mode")? {
            "round_prefer_ceil" => Rounding::PreferCeil,
            "floor" => Rounding::Floor,
            "ceil" => Rounding::Ceil,
            _ => Rounding::PreferFloor,
        })
    }

    /// The index that a place chooses, perhaps outside the input.
    pub fn round(self, x: f64) -> i64 {
        let down = x.floor();
        // Exact, so that a place just below a tie is not rounded to it.
        let beyond = x - down;
        let up = match self {
            Rounding::PreferFloor => beyond > 0.5,
            Rounding::PreferCeil => beyond >= 0.5,
            Rounding::Floor => false,
            Rounding::Ceil => beyond > 0.0,
        };
        down as i64 + i64::from(up)
    }
}

/// Interpolation between elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// The nearest element.
    Nearest(Rounding),
    /// Linear between two neighbours.
    Linear,
    /// Cubic convolution with this coefficient.
    Cubic(f64),
}

/// One dimension of a `resize`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResizeAxis {
    /// Elements of the input.
    pub input: usize,
    /// Elements of the output.
    pub output: usize,
    /// Output over input. The exact output size, input·scale, may be a fraction where scales are given.
    pub scale: f64,
    /// The region, as fractions of input − 1.
    pub region: (f64, f64),
}

impl ResizeAxis {
    /// A dimension that is not resized.
    pub fn identity(size: usize) -> ResizeAxis {
        ResizeAxis { input: size, output: size, scale: 1.0, region: (0.0, 1.0) }
    }

    /// Whether every output element equals the input's.
    pub fn is_identity(&self) -> bool {
        *self == ResizeAxis::identity(self.input)
    }
}

/// Settings of a `resize` that hold for all dimensions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filter {
    /// Map from indices to places.
    pub coord: Coord,
    /// Interpolation at the places.
    pub mode: Mode,
    /// Stretch the filter when shrinking?
    pub antialias: bool,
    /// Give elements outside no weight, instead of repeating the border?
    pub exclude_outside: bool,
}

impl Filter {
    /// Reads the settings from the attributes of a `resize`.
    pub fn of(attrs: &Attrs) -> Result<Filter, OpError> {
        let mode = match attrs.str("mode")? {
            "linear" => Mode::Linear,
            "cubic" => Mode::Cubic(attrs.float("cubic_a")?),
            _ => Mode::Nearest(Rounding::of(attrs)?),
        };
        let antialias = attrs.bool("antialias")?;
        if antialias && matches!(mode, Mode::Nearest(_)) {
            return Err(OpError::Attr {
                name: "antialias".into(),
                found: "true".into(),
                wanted: "false with mode nearest".into(),
            });
        }
        Ok(Filter {
            coord: Coord::of(attrs)?,
            mode,
            antialias,
            exclude_outside: attrs.bool("exclude_outside")?,
        })
    }

    /// The elements that make output index `o` of one dimension, with weights that are not 0; `None` where it
    /// is outside the region of tf_crop_and_resize. Their number is at most about four times that of the
    /// input's elements for every output index that exists.
    pub fn taps(&self, a: &ResizeAxis, o: usize) -> Option<Vec<Tap>> {
        if a.is_identity() {
            return Some(vec![(o, 1.0)]);
        }
        if a.input == 0 {
            return Some(Vec::new());
        }
        let x = place(self.coord, a, o);
        let last = a.input as f64 - 1.0;
        if self.coord == Coord::TfCropAndResize && !(x >= 0.0 && x <= last) {
            return None;
        }
        let (first, weights) = self.weights(x, a.scale);
        let inside = |i: i64| (0..a.input as i64).contains(&i);
        let all = weights.iter().enumerate().map(|(k, &w)| (first + k as i64, w));
        let kept: Vec<(i64, f64)> =
            all.filter(|&(i, w)| w != 0.0 && (inside(i) || !self.excludes())).collect();
        let total = if self.excludes() { kept.iter().map(|t| t.1).sum() } else { 1.0 };
        Some(kept.iter().map(|&(i, w)| (i.clamp(0, last as i64) as usize, w / total)).collect())
    }

    /// The element nearest to output index `o` of one dimension, as [`Filter::taps`] has it; `None` where there is none.
    pub fn nearest(&self, rounding: Rounding, a: &ResizeAxis, o: usize) -> Option<usize> {
        if a.is_identity() {
            return Some(o);
        }
        let (x, last) = (place(self.coord, a, o), a.input.checked_sub(1)?);
        let outside = self.coord == Coord::TfCropAndResize && !(x >= 0.0 && x <= last as f64);
        (!outside).then(|| rounding.round(x).clamp(0, last as i64) as usize)
    }

    fn excludes(&self) -> bool {
        self.exclude_outside && !matches!(self.mode, Mode::Nearest(_))
    }

    /// The first element (perhaps outside the input) around a place, and the weights from it on.
    fn weights(&self, x: f64, scale: f64) -> (i64, Vec<f64>) {
        let radius = match self.mode {
            Mode::Nearest(r) => return (r.round(x), vec![1.0]),
            Mode::Linear => 1.0,
            Mode::Cubic(_) => 2.0,
        };
        let scale = if self.antialias { scale.min(1.0) } else { 1.0 };
        // The element before x, and how far x is beyond it: in (0, 1], so that a place on an element leans left.
        let before = x.ceil() - 1.0;
        let beyond = x - before;
        let reach = (radius / scale).ceil() as i64;
        let kernel = |k: i64| match self.mode {
            Mode::Cubic(a) => cubic_kernel(scale * (k as f64 - beyond), a),
            _ => (1.0 - (scale * (k as f64 - beyond)).abs()).max(0.0),
        };
        let mut weights: Vec<f64> = (1 - reach..=reach).map(kernel).collect();
        if self.antialias {
            let total: f64 = weights.iter().sum();
            weights.iter_mut().for_each(|w| *w /= total);
        }
        (before as i64 + 1 - reach, weights)
    }
}

/// The place in the input of output index `o`.
pub fn place(coord: Coord, a: &ResizeAxis, o: usize) -> f64 {
    let (i, size) = (o as f64, a.input as f64);
    let exact = a.scale * size;
    let half_pixel = (i + 0.5) / a.scale - 0.5;
    match coord {
        Coord::HalfPixel => half_pixel,
        Coord::PytorchHalfPixel if a.output > 1 => half_pixel,
        Coord::PytorchHalfPixel => 0.0,
        Coord::HalfPixelSymmetric => size / 2.0 * (1.0 - a.output as f64 / exact) + half_pixel,
        Coord::AlignCorners if exact == 1.0 => 0.0,
        Coord::AlignCorners => i * (size - 1.0) / (exact - 1.0),
        Coord::Asymmetric => i / a.scale,
        Coord::TfCropAndResize => {
            let (start, end) = a.region;
            if exact == 1.0 {
                return (start + end) * (size - 1.0) / 2.0;
            }
            start * (size - 1.0) + i * (end - start) * (size - 1.0) / (exact - 1.0)
        }
    }
}
