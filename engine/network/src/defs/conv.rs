//! Convolution and deconvolution.

use super::window::{PaddingMode, Window, list};
use crate::NetworkError;
use crate::body::bad;
use crate::layer::setters;
use crate::{Body, Layer, LayerDef, Network, TensorId, WeightsRole};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;
use kiln_ir::tensor::Tensor;

/// Weights of a layer: numbers, a tensor that the network computes, or none.
#[derive(Clone, Debug)]
pub enum Weights {
    /// None at all.
    None,
    /// Numbers; only how many there are counts, not their shape.
    Values(Tensor),
    /// A tensor of the network, in the layer's own layout.
    Computed(TensorId),
}

impl From<Tensor> for Weights {
    fn from(t: Tensor) -> Weights {
        Weights::Values(t)
    }
}

impl From<TensorId> for Weights {
    fn from(t: TensorId) -> Weights {
        Weights::Computed(t)
    }
}

impl From<Option<Tensor>> for Weights {
    fn from(t: Option<Tensor>) -> Weights {
        t.map_or(Weights::None, Weights::Values)
    }
}

impl Weights {
    pub(super) fn values(&self) -> Option<Tensor> {
        if let Weights::Values(t) = self { Some(t.clone()) } else { None }
    }

    pub(super) fn computed(&self) -> Option<TensorId> {
        if let Weights::Computed(t) = self { Some(*t) } else { None }
    }
}

/// A convolution, or its transpose.
#[derive(Clone, Debug)]
pub struct Conv<const TRANSPOSED: bool> {
    pub maps: i64,
    pub kernel: Vec<i64>,
    pub weights: Option<Tensor>,
    pub bias: Option<Tensor>,
    pub window: Window,
    pub dilation: Vec<i64>,
    /// Number of groups; if it was not set, it follows from the number of weights.
    pub groups: Option<i64>,
}

/// See [`Network::add_convolution_nd`].
pub type Convolution = Conv<false>;
/// See [`Network::add_deconvolution_nd`].
pub type Deconvolution = Conv<true>;

impl Network {
    /// Convolves [N, C, (D,) H, W] with `weights` of layout [maps, C/groups, kernel…] and adds a bias of `maps`
    /// numbers. Weights that are tensors become inputs 1 and 2. How many weights there are says how many groups.
    pub fn add_convolution_nd(
        &mut self,
        input: TensorId,
        maps: i64,
        kernel: &[i64],
        weights: impl Into<Weights>,
        bias: impl Into<Weights>,
    ) -> Result<Layer<'_, Convolution>, NetworkError> {
        self.add_conv(input, maps, kernel, &weights.into(), &bias.into())
    }

    /// The transpose of a convolution: weights of layout [C, maps/groups, kernel…]; padding trims the output.
    pub fn add_deconvolution_nd(
        &mut self,
        input: TensorId,
        maps: i64,
        kernel: &[i64],
        weights: impl Into<Weights>,
        bias: impl Into<Weights>,
    ) -> Result<Layer<'_, Deconvolution>, NetworkError> {
        self.add_conv(input, maps, kernel, &weights.into(), &bias.into())
    }

    fn add_conv<const T: bool>(
        &mut self,
        input: TensorId,
        maps: i64,
        kernel: &[i64],
        weights: &Weights,
        bias: &Weights,
    ) -> Result<Layer<'_, Conv<T>>, NetworkError> {
        let def = Conv::<T> {
            maps,
            kernel: kernel.to_vec(),
            weights: weights.values(),
            bias: bias.values(),
            window: Window::default(),
            dilation: Vec::new(),
            groups: None,
        };
        self.add_kind_opt(def, &[Some(input), weights.computed(), bias.computed()])
    }
}

macro_rules! conv_setters {
    ($t:literal) => {
        setters! { Conv<$t> {
            /// Strides.
            set_stride_nd(stride: &[i64]) => window.stride = stride.to_vec();
            /// Padding before.
            set_pre_padding(padding: &[i64]) => window.pre = padding.to_vec();
            /// Padding after.
            set_post_padding(padding: &[i64]) => window.post = padding.to_vec();
            /// Sets the source of the padding.
            set_padding_mode(mode: PaddingMode) => window.mode = mode;
            /// Distances between taps.
            set_dilation_nd(dilation: &[i64]) => dilation = dilation.to_vec();
            /// Groups of channels that are convolved by themselves.
            set_nb_groups(groups: i64) => groups = Some(groups);
            /// Output channels.
            set_nb_output_maps(maps: i64) => maps = maps;
            /// Replaces the weights.
            set_kernel_weights(weights: Option<Tensor>) => weights = weights;
            /// Replaces the bias.
            set_bias_weights(bias: Option<Tensor>) => bias = bias;
        }}
    };
}
conv_setters!(false);
conv_setters!(true);

impl<const T: bool> LayerDef for Conv<T> {
    fn kind(&self) -> &'static str {
        if T { "deconvolution" } else { "convolution" }
    }
    fn max_inputs(&self) -> usize {
        3
    }
    fn implicit_batch(&self) -> bool {
        true
    }
    fn weights(&self) -> &'static [WeightsRole] {
        &[WeightsRole::Kernel, WeightsRole::Bias]
    }
    fn operand_role(&self, input: usize) -> Option<WeightsRole> {
        input.checked_sub(1).and_then(|i| self.weights().get(i)).copied()
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        self.write(b)
    }
}

impl<const T: bool> Layer<'_, Conv<T>> {
    /// Sets padding, as much before as after.
    pub fn set_padding_nd(self, padding: &[i64]) -> Result<Self, NetworkError> {
        self.change(|p| (p.window.pre, p.window.post) = (padding.to_vec(), padding.to_vec()))
    }
}

/// Weights, or the input that stands for them; both is an error.
fn operand(
    b: &mut Body<'_>,
    i: usize,
    role: WeightsRole,
    own: Option<&Tensor>,
    shape: &[i64],
) -> Result<Option<ValueId>, OpError> {
    match (own, b.opt(i)) {
        (Some(_), Some(_)) => Err(bad(&format!("{role} weights"), "given", &format!("absent: input {i} is"))),
        (None, v) => Ok(v),
        (Some(t), None) => {
            let dims: Option<Vec<usize>> = shape.iter().map(|&d| usize::try_from(d).ok()).collect();
            let found = format!("{} numbers", t.len());
            let misfit = || bad(&format!("{role} weights"), &found, &format!("as many as {shape:?} holds"));
            let t = dims.and_then(|d| t.reshaped(&d)).ok_or_else(misfit)?;
            Ok(Some(b.weights(role, t)))
        }
    }
}

impl<const T: bool> Conv<T> {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let x = b.x(0)?;
        let dtype = b.no_ints(0)?;
        let spatial = b.rank(x).saturating_sub(2);
        if !(2..=3).contains(&spatial) {
            return Err(b.bad_shape(0, "two or three spatial dimensions behind batch and channels"));
        }
        let channels = b.dims(x).get(1).and_then(|d| d.as_const());
        let channels = channels.ok_or_else(|| b.bad_shape(0, "a constant number of channels"))?;
        let kernel = list("kernel", &self.kernel, spatial, 1, 1)?;
        let g = self.groups.unwrap_or_else(|| self.groups_of(b, channels, &kernel));
        if g < 1 || channels % g != 0 || self.maps < 1 || self.maps % g != 0 {
            let wanted = format!("a divisor of {channels} channels and of {} maps", self.maps);
            return Err(bad("groups", g, &wanted));
        }
        if dtype == DType::I8 && g > 1 && (channels / g % 4 != 0 || self.maps / g % 4 != 0) {
            return Err(bad("groups", g, "groups of a multiple of 4 channels, as the input is i8"));
        }
        let mut shape = if T { vec![channels, self.maps / g] } else { vec![self.maps, channels / g] };
        shape.extend(&kernel);
        let w = operand(b, 1, WeightsRole::Kernel, self.weights.as_ref(), &shape)?;
        let missing = || OpError::MissingInput { input: 1, name: "kernel weights".into() };
        let w = w.ok_or_else(missing)?;
        let bias = operand(b, 2, WeightsRole::Bias, self.bias.as_ref(), &[self.maps])?;
        let dilation = list("dilation", &self.dilation, spatial, 1, 1)?;
        let attrs = self.window(spatial, &kernel, &dilation)?;
        let attrs = attrs.with("dilations", dilation).with("groups", g);
        let op = if T { "conv_transpose" } else { "conv" };
        b.ops(op, attrs, &[Some(x), Some(w), bias])
    }

    /// Number of groups that the weights are for; 1 where they fit no number.
    fn groups_of(&self, b: &Body<'_>, channels: i64, kernel: &[i64]) -> i64 {
        let each = if T { self.maps } else { channels };
        let computed = b.opt(1).and_then(|w| b.dims(w).get(1).and_then(|d| d.as_const()));
        let taps = kernel.iter().try_fold(1i64, |a, &k| a.checked_mul(k));
        let given = self.weights.as_ref().and_then(|t| {
            let taps = taps?;
            let all = self.maps.checked_mul(channels)?.checked_mul(taps)?;
            (t.len() as i64).checked_mul(each)?.checked_div(all)
        });
        let own = computed.or(given).unwrap_or(each);
        if own > 0 && each % own == 0 { each / own } else { 1 }
    }

    /// Strides and paddings. A deconvolution's padding follows from the kernel alone, so it is computed here.
    fn window(&self, spatial: usize, kernel: &[i64], dilation: &[i64]) -> Result<kiln_ir::Attrs, OpError> {
        if !T {
            return self.window.attrs(spatial);
        }
        let mut window = Window { mode: PaddingMode::ExplicitRoundDown, ..self.window.clone() };
        if self.window.mode.is_same() {
            let stride = list("stride", &window.stride, spatial, 1, 1)?;
            let reach = |i: usize| dilation[i].saturating_mul(kernel[i] - 1).saturating_add(1);
            let total = |i: usize| reach(i).saturating_sub(stride[i]).max(0);
            let (less, more): (Vec<_>, Vec<_>) =
                (0..spatial).map(|i| (total(i) / 2, total(i) - total(i) / 2)).unzip();
            let upper = self.window.mode == PaddingMode::SameUpper;
            (window.pre, window.post) = if upper { (less, more) } else { (more, less) };
        }
        window.attrs(spatial)
    }
}
