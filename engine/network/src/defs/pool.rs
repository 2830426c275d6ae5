//! Pooling.

use super::window::{PaddingMode, Window, list};
use crate::NetworkError;
use crate::body::bad;
use crate::layer::{layer_def, setters};
use crate::{Body, Layer, Network, TensorId};
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;
use kiln_ops::pointwise::binary::{ADD, MUL};
use kiln_ops::pool::POOL;

/// Function of a window's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolingKind {
    /// The greatest element.
    Max,
    /// The mean.
    Average,
    /// (1 − blend)·max + blend·mean.
    MaxAverageBlend,
}

/// See [`Network::add_pooling_nd`].
#[derive(Clone, Debug)]
pub struct Pooling {
    pub kind: PoolingKind,
    pub size: Vec<i64>,
    pub window: Window,
    pub blend: f64,
    pub excludes_padding: bool,
}

impl Network {
    /// Pools windows of [N, C, (D,) H, W]. Strides are 1 and paddings 0 until they are set.
    pub fn add_pooling_nd(
        &mut self,
        input: TensorId,
        kind: PoolingKind,
        window: &[i64],
    ) -> Result<Layer<'_, Pooling>, NetworkError> {
        let (size, window) = (window.to_vec(), Window::default());
        self.add_kind(Pooling { kind, size, window, blend: 0.0, excludes_padding: true }, &[input])
    }
}

setters! { Pooling {
    /// Replaces the function of the window.
    set_pooling_type(kind: PoolingKind) => kind = kind;
    /// The size of the window.
    set_window_size_nd(size: &[i64]) => size = size.to_vec();
    /// Strides.
    set_stride_nd(stride: &[i64]) => window.stride = stride.to_vec();
    /// Padding before.
    set_pre_padding(padding: &[i64]) => window.pre = padding.to_vec();
    /// Padding after.
    set_post_padding(padding: &[i64]) => window.post = padding.to_vec();
    /// Sets the source of the padding.
    set_padding_mode(mode: PaddingMode) => window.mode = mode;
    /// Sets the part of the mean in a blend, 0 to 1.
    set_blend_factor(blend: f64) => blend = blend;
    /// Whether padding does not count in the mean (as it does not at first).
    set_average_count_excludes_padding(excludes: bool) => excludes_padding = excludes;
}}
layer_def!(Pooling, "pooling", 1, true);

impl Layer<'_, Pooling> {
    /// Sets padding, as much before as after.
    pub fn set_padding_nd(self, padding: &[i64]) -> Result<Self, NetworkError> {
        self.change(|p| (p.window.pre, p.window.post) = (padding.to_vec(), padding.to_vec()))
    }
}

impl Pooling {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let x = b.x(0)?;
        let dtype = b.no_ints(0)?;
        let spatial = b.rank(x).saturating_sub(2);
        if !(2..=3).contains(&spatial) {
            return Err(b.bad_shape(0, "two or three spatial dimensions behind batch and channels"));
        }
        if self.kind == PoolingKind::MaxAverageBlend {
            b.floats(0)?;
        }
        if !(0.0..=1.0).contains(&self.blend) {
            return Err(bad("blend_factor", self.blend, "in 0 to 1"));
        }
        let attrs = self.window.attrs(spatial)?.with("kernel", list("window", &self.size, spatial, 1, 1)?);
        let pool = |b: &mut Body<'_>, op: &str| {
            let mut attrs = attrs.clone().with("op", op);
            attrs.set("count_include_pad", op == "average" && !self.excludes_padding);
            b.op(POOL, attrs, &[x])
        };
        match self.kind {
            PoolingKind::Max => Ok(vec![pool(b, "max")?]),
            PoolingKind::Average => Ok(vec![pool(b, "average")?]),
            PoolingKind::MaxAverageBlend => {
                let (max, mean) = (pool(b, "max")?, pool(b, "average")?);
                let (rest, blend) = (b.number(dtype, 1.0 - self.blend)?, b.number(dtype, self.blend)?);
                let (max, mean) = (b.plain(MUL, &[max, rest])?, b.plain(MUL, &[mean, blend])?);
                Ok(vec![b.plain(ADD, &[max, mean])?])
            }
        }
    }
}
