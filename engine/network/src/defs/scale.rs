//! Scale and local response normalization.

use crate::NetworkError;
use crate::body::bad;
use crate::layer::{layer_def, setters};
use crate::{Body, Layer, Network, TensorId, WeightsRole};
use kiln_ir::attr::Attrs;
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;
use kiln_ir::tensor::Tensor;
use kiln_ir::tensor::volume;
use kiln_ops::cast::IDENTITY;
use kiln_ops::norm::lrn::LRN;

/// Number of coefficients of a scale layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScaleMode {
    /// One for all.
    Uniform,
    /// One for each channel.
    Channel,
    /// One for each element, from the channel axis on.
    Elementwise,
}

/// See [`Network::add_scale_nd`].
#[derive(Clone, Debug)]
pub struct Scale {
    pub mode: ScaleMode,
    pub shift: Option<Tensor>,
    pub scale: Option<Tensor>,
    pub power: Option<Tensor>,
    pub channel_axis: Option<usize>,
}

impl Network {
    /// (x·scale + shift)^power with the channels where images have them; see [`Network::add_scale_nd`].
    pub fn add_scale(
        &mut self,
        input: TensorId,
        mode: ScaleMode,
        shift: Option<Tensor>,
        scale: Option<Tensor>,
        power: Option<Tensor>,
    ) -> Result<Layer<'_, Scale>, NetworkError> {
        self.add_kind(Scale { mode, shift, scale, power, channel_axis: None }, &[input])
    }

    /// (x·scale + shift)^power for tensors of at least 4 dimensions. Absent coefficients are 1, 0 and 1.
    pub fn add_scale_nd(
        &mut self,
        input: TensorId,
        mode: ScaleMode,
        shift: Option<Tensor>,
        scale: Option<Tensor>,
        power: Option<Tensor>,
        channel_axis: usize,
    ) -> Result<Layer<'_, Scale>, NetworkError> {
        self.add_kind(Scale { mode, shift, scale, power, channel_axis: Some(channel_axis) }, &[input])
    }

    /// x / (k + α/window·Σx²)^β over neighbouring channels.
    pub fn add_lrn(
        &mut self,
        input: TensorId,
        window: i64,
        alpha: f64,
        beta: f64,
        k: f64,
    ) -> Result<Layer<'_, Lrn>, NetworkError> {
        self.add_kind(Lrn { window, alpha, beta, k }, &[input])
    }
}

setters! { Scale {
    /// Sets the number of coefficients.
    set_mode(mode: ScaleMode) => mode = mode;
    /// Sets the summand.
    set_shift(shift: Option<Tensor>) => shift = shift;
    /// Sets the factor.
    set_scale(scale: Option<Tensor>) => scale = scale;
    /// The power at the end.
    set_power(power: Option<Tensor>) => power = power;
    /// The axis of the channels.
    set_channel_axis(axis: usize) => channel_axis = Some(axis);
}}
layer_def!(Scale, "scale", 1, true, [Shift, Scale, Power]);

impl Scale {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let x = b.x(0)?;
        b.floats(0)?;
        let least = 4 - b.lead();
        let rank = b.check_rank(0, |r| r >= least, &format!("at least {least} dimensions"))?;
        let axis = self.channel_axis.unwrap_or(rank.saturating_sub(3));
        let axis = b.axis("channel_axis", axis as i64, b.rank(x))?;
        let mut y = x;
        let steps = [
            (WeightsRole::Scale, &self.scale, "mul"),
            (WeightsRole::Shift, &self.shift, "add"),
            (WeightsRole::Power, &self.power, "pow"),
        ];
        for (role, weights, op) in steps {
            let Some(t) = weights else { continue };
            let shape = self.shape(b, x, axis)?;
            let found = format!("{} numbers", t.len());
            let misfit =
                || bad(&role.to_string(), &found, &format!("{} ({:?})", volume(&shape).unwrap_or(0), shape));
            let w = b.weights(role, t.reshaped(&shape).ok_or_else(misfit)?);
            let w = b.cast(w, b.dtype(x))?;
            y = b.plain(op, &[y, w])?;
        }
        if y == x {
            y = b.plain(IDENTITY, &[x])?;
        }
        Ok(vec![y])
    }

    /// The shape of the coefficients, which broadcasts to x.
    fn shape(&self, b: &Body<'_>, x: ValueId, axis: usize) -> Result<Vec<usize>, OpError> {
        let dims = b.dims(x);
        let number = |i: usize| {
            let n = dims.get(i).and_then(|d| d.as_const()).and_then(|n| usize::try_from(n).ok());
            n.ok_or_else(|| {
                b.bad_shape(0, &format!("a constant dimension {i}, which the coefficients follow"))
            })
        };
        match self.mode {
            ScaleMode::Uniform => Ok(Vec::new()),
            ScaleMode::Channel => {
                let mut shape = vec![1; dims.len() - axis];
                shape[0] = number(axis)?;
                Ok(shape)
            }
            ScaleMode::Elementwise => (axis..dims.len()).map(number).collect(),
        }
    }
}

/// See [`Network::add_lrn`].
#[derive(Clone, Debug)]
pub struct Lrn {
    pub window: i64,
    pub alpha: f64,
    pub beta: f64,
    pub k: f64,
}

setters! { Lrn {
    /// Sets the number of channels in a window: odd, 1 to 15.
    set_window_size(window: i64) => window = window;
    /// α, at most 1e20 in size.
    set_alpha(alpha: f64) => alpha = alpha;
    /// β, 0.01 to 1e5.
    set_beta(beta: f64) => beta = beta;
    /// k, 1e-5 to 1e10.
    set_k(k: f64) => k = k;
}}
layer_def!(Lrn, "lrn", 1, true);

impl Lrn {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let x = b.x(0)?;
        b.floats(0)?;
        if !(1..=15).contains(&self.window) || self.window % 2 == 0 {
            return Err(bad("window", self.window, "odd, 1 to 15"));
        }
        let ranges =
            [("alpha", self.alpha, -1e20, 1e20), ("beta", self.beta, 0.01, 1e5), ("k", self.k, 1e-5, 1e10)];
        if let Some((name, v, least, most)) = ranges.into_iter().find(|(_, v, a, z)| !(a..=z).contains(&v)) {
            return Err(bad(name, v, &format!("in {least} to {most}")));
        }
        let attrs = Attrs::new().with("size", self.window).with("alpha", self.alpha).with("beta", self.beta);
        Ok(vec![b.op(LRN, attrs.with("bias", self.k), &[x])?])
    }
}
