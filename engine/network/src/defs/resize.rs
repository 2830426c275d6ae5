//! Resampling: resize, grid sample.

use crate::body::bad;
use crate::layer::{layer_def, setters};
use crate::{Body, Layer, Network, NetworkError, SampleMode, TensorId};
use kiln_ir::attr::Attrs;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;
use kiln_ir::tensor::Tensor;
use kiln_ops::cast::IDENTITY;
use kiln_ops::sample::grid_sample::GRID_SAMPLE;
use kiln_ops::sample::resize::RESIZE;

/// Interpolation between elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InterpolationMode {
    /// The nearest element; any number of dimensions.
    Nearest,
    /// Linear, along at most three dimensions.
    Linear,
    /// Cubic, along two dimensions.
    Cubic,
}

impl InterpolationMode {
    fn name(self) -> &'static str {
        match self {
            InterpolationMode::Nearest => "nearest",
            InterpolationMode::Linear => "linear",
            InterpolationMode::Cubic => "cubic",
        }
    }
}

/// Formula from an output index to a coordinate of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResizeCoordinates {
    /// i·(in − 1)/(out − 1).
    AlignCorners,
    /// i·in/out.
    Asymmetric,
    /// (i + ½)·in/out − ½.
    HalfPixel,
}

/// Coordinate of an output of length 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResizeSelector {
    /// The coordinate of the formula.
    Formula,
    /// At 0.
    Upper,
}

/// Rounding to the nearest element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResizeRounding {
    /// Rounded, halves up.
    HalfUp,
    /// Rounded, halves down.
    HalfDown,
    /// Rounded down.
    Floor,
    /// Rounded up.
    Ceil,
}

/// Size of a resized tensor.
#[derive(Clone, Debug)]
pub enum ResizeTarget {
    /// That of the input.
    Same,
    /// These dimensions.
    Dims(Vec<i64>),
    /// These factors of the input's, rounded down.
    Scales(Vec<f32>),
}

/// See [`Network::add_resize`].
#[derive(Clone, Debug)]
pub struct Resize {
    pub to: ResizeTarget,
    pub mode: InterpolationMode,
    pub coordinates: ResizeCoordinates,
    pub selector: ResizeSelector,
    pub rounding: ResizeRounding,
    pub exclude_outside: bool,
    pub cubic_coeff: f64,
}

impl Network {
    /// Resizes to dimensions or by scales, set next; or to a 1-D tensor of dimensions, set by `set_input(1, …)`. At
    /// first nearest, asymmetric, rounding down.
    pub fn add_resize(&mut self, input: TensorId) -> Result<Layer<'_, Resize>, NetworkError> {
        let def = Resize {
            to: ResizeTarget::Same,
            mode: InterpolationMode::Nearest,
            coordinates: ResizeCoordinates::Asymmetric,
            selector: ResizeSelector::Formula,
            rounding: ResizeRounding::Floor,
            exclude_outside: false,
            cubic_coeff: -0.75,
        };
        self.add_kind(def, &[input])
    }

    /// Samples [N, C, H, W] at a grid [N, H', W', 2] of x and y in −1 to 1. At first linear, filling with zeros.
    pub fn add_grid_sample(
        &mut self,
        input: TensorId,
        grid: TensorId,
    ) -> Result<Layer<'_, GridSample>, NetworkError> {
        let mode = InterpolationMode::Linear;
        self.add_kind(GridSample { mode, align_corners: false, outside: SampleMode::Fill }, &[input, grid])
    }
}

setters! { Resize {
    /// Sets the interpolation between elements.
    set_resize_mode(mode: InterpolationMode) => mode = mode;
    /// Sets the formula from an output index to a coordinate of the input.
    set_coordinate_transformation(coordinates: ResizeCoordinates) => coordinates = coordinates;
    /// Sets the coordinate of an output of length 1.
    set_selector_for_single_pixel(selector: ResizeSelector) => selector = selector;
    /// Sets the rounding to the nearest element.
    set_nearest_rounding(rounding: ResizeRounding) => rounding = rounding;
    /// Whether elements outside have no weight.
    set_exclude_outside(exclude: bool) => exclude_outside = exclude;
    /// The coefficient of cubic interpolation.
    set_cubic_coeff(coeff: f64) => cubic_coeff = coeff;
}}
layer_def!(Resize, "resize", 2, true);

impl Layer<'_, Resize> {
    fn fixed(&self) -> Result<(), NetworkError> {
        if self.inputs().len() < 2 {
            return Ok(());
        }
        let what = "the size".into();
        Err(NetworkError::Irreversible { layer: self.name().to_owned(), what })
    }

    /// The dimensions of the output. Refused once they come from a tensor.
    pub fn set_output_dimensions(self, dims: &[i64]) -> Result<Self, NetworkError> {
        self.fixed()?;
        self.change(|p| p.to = ResizeTarget::Dims(dims.to_vec()))
    }

    /// The scale of every dimension; a dimension d becomes ⌊d·scale⌋. Refused once dimensions come from a tensor.
    pub fn set_scales(self, scales: &[f32]) -> Result<Self, NetworkError> {
        self.fixed()?;
        self.change(|p| p.to = ResizeTarget::Scales(scales.to_vec()))
    }
}

impl Resize {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let x = b.x(0)?;
        b.no_ints(0)?;
        let (rank, lead) = (b.rank(x), b.lead());
        let own = rank - lead;
        let axes: Vec<i64> = (lead..rank).map(|a| a as i64).collect();
        let counted = |found: String, n: usize| match n == own {
            true => Ok(()),
            false => Err(bad("size", found, &format!("{own} numbers, one for each dimension"))),
        };
        let (mut scales, mut sizes) = (None, None);
        match (b.opt(1), &self.to) {
            (Some(v), _) => {
                b.check_dtype(1, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64")?;
                sizes = Some(b.cast(v, DType::I64)?);
            }
            (None, ResizeTarget::Same) => return Ok(vec![b.plain(IDENTITY, &[x])?]),
            (None, ResizeTarget::Dims(d)) => {
                counted(format!("{d:?}"), d.len())?;
                sizes = Some(b.ints(d)?);
            }
            (None, ResizeTarget::Scales(s)) => {
                counted(format!("{s:?}"), s.len())?;
                let t = Tensor::f32(&[s.len()], s).ok_or_else(|| OpError::TooLarge("scales".into()))?;
                scales = Some(b.constant(t));
            }
        }
        let y = b.ops(RESIZE, self.attrs(axes), &[Some(x), None, scales, sizes])?;
        if let Some(&y) = y.first() {
            self.check_dims(b, x, y)?;
        }
        Ok(y)
    }

    fn attrs(&self, axes: Vec<i64>) -> Attrs {
        let coord = match (self.coordinates, self.selector) {
            (ResizeCoordinates::AlignCorners, _) => "align_corners",
            (ResizeCoordinates::Asymmetric, _) => "asymmetric",
            (ResizeCoordinates::HalfPixel, ResizeSelector::Formula) => "half_pixel",
            (ResizeCoordinates::HalfPixel, ResizeSelector::Upper) => "pytorch_half_pixel",
        };
        let rounding = match self.rounding {
            ResizeRounding::HalfUp => "round_prefer_ceil",
            ResizeRounding::HalfDown => "round_prefer_floor",
            ResizeRounding::Floor => "floor",
            ResizeRounding::Ceil => "ceil",
        };
        Attrs::new()
            .with("mode", self.mode.name())
            .with("coord", coord)
            .with("nearest_mode", rounding)
            .with("cubic_a", self.cubic_coeff)
            .with("exclude_outside", self.exclude_outside)
            .with("axes", axes)
    }

    /// Linear and cubic interpolation work along few dimensions.
    fn check_dims(&self, b: &Body<'_>, x: ValueId, y: ValueId) -> Result<(), OpError> {
        let most = match self.mode {
            InterpolationMode::Nearest => return Ok(()),
            InterpolationMode::Linear => 3,
            InterpolationMode::Cubic => 2,
        };
        let changed = b.dims(x).iter().zip(&b.dims(y)).filter(|(a, b)| a != b).count();
        if changed <= most {
            return Ok(());
        }
        Err(bad(
            "mode",
            self.mode.name(),
            &format!("nearest, as {changed} dimensions change ({most} at most)"),
        ))
    }
}

/// See [`Network::add_grid_sample`].
#[derive(Clone, Debug)]
pub struct GridSample {
    pub mode: InterpolationMode,
    pub align_corners: bool,
    pub outside: SampleMode,
}

setters! { GridSample {
    /// Sets the interpolation between elements.
    set_interpolation_mode(mode: InterpolationMode) => mode = mode;
    /// Whether −1 and 1 are the centres of the outer elements.
    set_align_corners(align: bool) => align_corners = align;
    /// Sets the elements that are read outside: clamp, fill or reflect.
    set_sample_mode(outside: SampleMode) => outside = outside;
}}
layer_def!(GridSample, "grid_sample", 2, true);

impl GridSample {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        for i in 0..2 {
            b.floats(i)?;
            let lead = b.lead();
            let wanted = format!("{} or {} dimensions", 4 - lead, 5 - lead);
            b.check_rank(i, |r| r + lead == 4 || r + lead == 5, &wanted)?;
        }
        let padding = match self.outside {
            SampleMode::Clamp => "border",
            SampleMode::Fill => "zeros",
            SampleMode::Reflect => "reflection",
            other => return Err(bad("sample_mode", format!("{other:?}"), "Clamp, Fill or Reflect")),
        };
        let attrs = Attrs::new().with("mode", self.mode.name()).with("padding", padding);
        let all = b.all()?;
        Ok(vec![b.op(GRID_SAMPLE, attrs.with("align_corners", self.align_corners), &all)?])
    }
}
