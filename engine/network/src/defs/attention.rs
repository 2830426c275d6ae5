//! Attention, rotary embedding, key/value cache.

use crate::NetworkError;
use crate::body::bad;
use crate::layer::{layer_def, setters};
use crate::{Body, Layer, Network, TensorId};
use kiln_ir::attr::Attrs;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;
use kiln_ops::attention::ATTENTION;
use kiln_ops::attention::kv_cache::KV_CACHE_UPDATE;
use kiln_ops::attention::rotary::ROTARY_EMBEDDING;
use kiln_ops::gather::GATHER;
use kiln_ops::matmul::MATMUL;
use kiln_ops::pointwise::binary::{ADD, MUL, SUB};
use kiln_ops::pointwise::select::SELECT;
use kiln_ops::quantize::{DEQUANTIZE, QUANTIZE};
use kiln_ops::shape::expand::EXPAND;
use kiln_ops::slice::concat::CONCAT;
use kiln_ops::softmax::SOFTMAX;
use kiln_ops::transpose::rearrange::TRILU;

/// Function from scores to weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttentionNorm {
    /// Scores are the weights.
    None,
    /// Softmax.
    Softmax,
}

/// Keys that a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CausalMask {
    /// All.
    None,
    /// Query i sees keys up to i.
    UpperLeft,
    /// The last query sees all keys, the one before all but the last, and so on.
    LowerRight,
}

/// See [`Network::add_attention`].
#[derive(Clone, Debug)]
pub struct Attention {
    pub norm: AttentionNorm,
    pub causal: CausalMask,
    pub scale: f64,
    pub quantize: Option<DType>,
}

impl Network {
    /// norm(Q·Kᵀ + mask)·V for Q [B, Hq, Sq, D] and K, V [B, Hk, Sk, D], Hq a multiple of Hk. Scores are not scaled
    /// (see `set_scale`). A mask, input 3, broadcasts to [B, Hq, Sq, Sk]: truth values (true takes part) or numbers that
    /// are added. A scale for quantizing the weights is input 4.
    pub fn add_attention(
        &mut self,
        query: TensorId,
        key: TensorId,
        value: TensorId,
        norm: AttentionNorm,
        causal: CausalMask,
    ) -> Result<Layer<'_, Attention>, NetworkError> {
        let def = Attention { norm, causal, scale: 1.0, quantize: None };
        self.add_kind(def, &[query, key, value])
    }

    /// Rotates pairs of the first `rotary_dim` components (0: all; even) of x [B, H, S, D] by angles. Cosines
    /// and sines are [B, S, rotary_dim/2], or tables [positions, rotary_dim/2] that are read at position ids
    /// [B, S], input 3.
    pub fn add_rotary_embedding(
        &mut self,
        input: TensorId,
        cos: TensorId,
        sin: TensorId,
        interleaved: bool,
        rotary_dim: i64,
    ) -> Result<Layer<'_, RotaryEmbedding>, NetworkError> {
        self.add_kind(RotaryEmbedding { interleaved, rotary_dim }, &[input, cos, sin])
    }

    /// Writes `update` [B, H, S, D] into `cache` [B, H, capacity, D] from row `write_indices[b]` on, in place: cache and
    /// output are the same memory. Rows beyond the capacity are dropped.
    pub fn add_kv_cache_update(
        &mut self,
        cache: TensorId,
        update: TensorId,
        write_indices: TensorId,
    ) -> Result<Layer<'_, KvCacheUpdate>, NetworkError> {
        self.add_kind(KvCacheUpdate, &[cache, update, write_indices])
    }
}

setters! { Attention {
    /// Sets the function from scores to weights.
    set_norm(norm: AttentionNorm) => norm = norm;
    /// Sets the keys that a query sees.
    set_causal(causal: CausalMask) => causal = causal;
    /// Sets the factor of the scores, 1 at first (beyond TensorRT).
    set_scale(scale: f64) => scale = scale;
}}
layer_def!(Attention, "attention", 5, true);

impl Layer<'_, Attention> {
    /// Quantizes the weights to i8 or f8e4m3 by this scale, which becomes input 4.
    pub fn set_normalization_quantize(mut self, to: DType, scale: TensorId) -> Result<Self, NetworkError> {
        let def = Attention { quantize: Some(to), ..self.params()?.clone() };
        let id = self.id();
        self.network().redefine_with(id, std::sync::Arc::new(def), &[(SCALE, scale)])?;
        Ok(self)
    }
}

const MASK: usize = 3;
const SCALE: usize = 4;

impl Attention {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        b.check_dtype(0, |d| matches!(d, DType::F32 | DType::F16 | DType::BF16), "f32, f16 or bf16")?;
        for i in 0..3 {
            b.same_dtype(0, i)?;
            b.check_rank(i, |r| r + b.lead() == 4, "[batch, heads, length, size]")?;
        }
        if b.has(MASK) && self.causal != CausalMask::None {
            return Err(bad("causal", format!("{:?}", self.causal), "None, as there is a mask"));
        }
        if self.quantize.is_some() != b.has(SCALE) {
            return Err(OpError::Value(
                "quantizing the weights takes both a type and a scale (input 4)".into(),
            ));
        }
        let mask = match self.causal {
            CausalMask::LowerRight => Some(self.triangle(b, false)?),
            // The step-by-step form has no other way to say it.
            CausalMask::UpperLeft if self.by_steps() => Some(self.triangle(b, true)?),
            _ => b.opt(MASK),
        };
        if self.by_steps() {
            return self.steps(b, mask);
        }
        let inputs = [b.opt(0), b.opt(1), b.opt(2), mask];
        let attrs = Attrs::new().with("scale", self.scale);
        let attrs = attrs.with("causal", self.causal == CausalMask::UpperLeft);
        Ok(b.ops(ATTENTION, attrs, &inputs)?.into_iter().take(1).collect())
    }

    fn by_steps(&self) -> bool {
        self.norm == AttentionNorm::None || self.quantize.is_some() || self.scale == 0.0
    }

    /// A mask [Sq, Sk] of the keys that each query sees.
    fn triangle(&self, b: &mut Body<'_>, upper_left: bool) -> Result<ValueId, OpError> {
        let (q, k) = (b.x(0)?, b.x(1)?);
        let (rows, columns) = (b.dim(q, 2)?, b.dim(k, 2)?);
        let shape = b.op(CONCAT, Attrs::new().with("axis", 0i64), &[rows, columns])?;
        let one = b.number(DType::F32, 1.0)?;
        let ones = b.plain(EXPAND, &[one, shape])?;
        let diagonal = match upper_left {
            true => b.int(0)?,
            false => {
                let d = b.plain(SUB, &[columns, rows])?;
                b.reshape(d, &[])?
            }
        };
        let low = b.op(TRILU, Attrs::new().with("upper", false), &[ones, diagonal])?;
        b.cast(low, DType::Bool)
    }

    fn steps(&self, b: &mut Body<'_>, mask: Option<ValueId>) -> Result<Vec<ValueId>, OpError> {
        let (q, k, v) = (b.x(0)?, b.x(1)?, b.x(2)?);
        let dtype = b.dtype(q);
        let (k, v) = (heads_of(b, q, k)?, heads_of(b, q, v)?);
        let k = b.transpose(k, &[0, 1, 3, 2])?;
        let mut scores = b.plain(MATMUL, &[q, k])?;
        if self.scale != 1.0 {
            let scale = b.number(dtype, self.scale)?;
            scores = b.plain(MUL, &[scores, scale])?;
        }
        if let Some(m) = mask {
            scores = match b.dtype(m) {
                DType::Bool => {
                    let none = if self.norm == AttentionNorm::None { 0.0 } else { f64::NEG_INFINITY };
                    let none = b.number(dtype, none)?;
                    b.plain(SELECT, &[m, scores, none])?
                }
                _ => b.plain(ADD, &[scores, m])?,
            };
        }
        if self.norm == AttentionNorm::Softmax {
            scores = b.op(SOFTMAX, Attrs::new().with("axis", -1i64), &[scores])?;
        }
        if let Some(to) = self.quantize {
            if !matches!(to, DType::I8 | DType::F8E4M3) {
                return Err(bad("quantize_to_type", to, "i8 or f8e4m3"));
            }
            let scale = b.x(SCALE)?;
            let narrow = b.op(QUANTIZE, Attrs::new().with("to", to), &[scores, scale])?;
            scores = b.op(DEQUANTIZE, Attrs::new().with("to", dtype), &[narrow, scale])?;
        }
        Ok(vec![b.plain(MATMUL, &[scores, v])?])
    }
}

/// Keys or values with as many heads as the queries, each repeated for its group.
fn heads_of(b: &mut Body<'_>, q: ValueId, v: ValueId) -> Result<ValueId, OpError> {
    let heads = b.dims(q)[1].as_const().zip(b.dims(v)[1].as_const());
    let (many, few) = heads.ok_or_else(|| b.bad_shape(0, "a constant number of heads"))?;
    if many == few {
        return Ok(v);
    }
    if few == 0 || many % few != 0 {
        return Err(b.bad_shape(1, &format!("a number of heads that divides {many}")));
    }
    let heads: Vec<i64> = (0..many).map(|h| h / (many / few)).collect();
    let heads = b.ints(&heads)?;
    b.op(GATHER, Attrs::new().with("axis", 1i64), &[v, heads])
}

/// See [`Network::add_rotary_embedding`].
#[derive(Clone, Debug)]
pub struct RotaryEmbedding {
    pub interleaved: bool,
    pub rotary_dim: i64,
}

setters! { RotaryEmbedding {
    /// Whether the two elements of a pair are neighbours.
    set_interleaved(interleaved: bool) => interleaved = interleaved;
    /// Sets the number of components that are rotated.
    set_rotary_dim(dim: i64) => rotary_dim = dim;
}}
layer_def!(RotaryEmbedding, "rotary_embedding", 4, true);

impl RotaryEmbedding {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        b.check_rank(0, |r| r + b.lead() == 4, "[batch, heads, length, size]")?;
        let attrs = Attrs::new().with("interleaved", self.interleaved).with("rotary_dim", self.rotary_dim);
        let inputs: Vec<_> = (0..b.len()).map(|i| b.opt(i)).collect();
        b.ops(ROTARY_EMBEDDING, attrs, &inputs)
    }
}

/// See [`Network::add_kv_cache_update`].
#[derive(Clone, Debug)]
pub struct KvCacheUpdate;

impl crate::LayerDef for KvCacheUpdate {
    fn kind(&self) -> &'static str {
        "kv_cache_update"
    }
    fn max_inputs(&self) -> usize {
        3
    }
    fn side_effect(&self) -> bool {
        true
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        b.floats(0)?;
        for i in 0..2 {
            b.check_rank(i, |r| r == 4, "[batch, heads, length, size]")?;
        }
        let all = b.all()?;
        Ok(vec![b.plain(KV_CACHE_UPDATE, &all)?])
    }
}
