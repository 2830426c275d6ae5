//! Attention over sequences of different lengths that are packed one behind the other.

use crate::body::bad;
use crate::layer::{layer_def, setters};
use crate::{Body, CausalMask, Layer, Network, NetworkError, TensorId};
use kiln_ir::attr::Attrs;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;
use kiln_ir::infer::differ;
use kiln_ops::attention::ATTENTION;
use kiln_ops::gather::GATHER;
use kiln_ops::generate::RANGE;
use kiln_ops::pointwise::binary::{ADD, AND, EQUAL, LESS_EQUAL, MIN, SUB};
use kiln_ops::reduce::REDUCE;
use kiln_ops::shape::squeeze::UNSQUEEZE;
use kiln_ops::slice::SLICE;

impl Network {
    /// Attention by softmax over packed sequences: queries [Nq, Hq, D], keys and values [Nk, Hk, D], Hq a multiple of Hk. The tokens
    /// of all sequences follow each other; `query_starts` and `key_starts` [B + 1] (i32 or i64) say where each starts, with 0
    /// first and the number of tokens last. A query sees keys of its own sequence. Scores are not scaled (see
    /// `set_scale`). Results of tokens behind the last sequence mean nothing.
    pub fn add_packed_attention(
        &mut self,
        [query, key, value]: [TensorId; 3],
        query_starts: TensorId,
        key_starts: TensorId,
        causal: CausalMask,
    ) -> Result<Layer<'_, PackedAttention>, NetworkError> {
        let def = PackedAttention { causal, scale: 1.0 };
        self.add_kind(def, &[query, key, value, query_starts, key_starts])
    }
}

/// See [`Network::add_packed_attention`].
#[derive(Clone, Debug)]
pub struct PackedAttention {
    pub causal: CausalMask,
    pub scale: f64,
}

setters! { PackedAttention {
    /// Sets the keys of its sequence that a query sees.
    set_causal(causal: CausalMask) => causal = causal;
    /// Sets the factor of the scores, 1 at first.
    set_scale(scale: f64) => scale = scale;
}}
layer_def!(PackedAttention, "packed_attention", 5, false);

const STARTS: [usize; 2] = [3, 4];

/// Sequence of each token, its place in it, and the length of it.
struct Tokens {
    sequence: ValueId,
    place: ValueId,
    length: ValueId,
}

impl PackedAttention {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        if !self.scale.is_finite() || self.scale == 0.0 {
            return Err(bad("scale", self.scale, "a finite number other than 0"));
        }
        b.check_dtype(0, |d| matches!(d, DType::F32 | DType::F16 | DType::BF16), "f32, f16 or bf16")?;
        for i in 0..3 {
            b.same_dtype(0, i)?;
            b.check_rank(i, |r| r == 3, "[tokens, heads, size]")?;
        }
        for i in STARTS {
            b.check_dtype(i, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64")?;
            b.check_rank(i, |r| r == 1, "one dimension")?;
        }
        let starts = STARTS.map(|i| b.opt(i).and_then(|v| b.dims(v).first().cloned()));
        if let [Some(q), Some(k)] = &starts
            && differ(q, k)
        {
            return Err(b.bad_shape(STARTS[1], "as many sequences as the queries have"));
        }
        let (queries, keys) = (tokens(b, 0, STARTS[0])?, tokens(b, 1, STARTS[1])?);
        let mask = self.mask(b, &queries, &keys)?;
        let mut operands = Vec::new();
        for i in 0..3 {
            let v = b.x(i)?;
            let by_head = b.transpose(v, &[1, 0, 2])?;
            let first = b.ints(&[0])?;
            operands.push(Some(b.plain(UNSQUEEZE, &[by_head, first])?));
        }
        operands.push(Some(mask));
        let y = b.ops(ATTENTION, Attrs::new().with("scale", self.scale), &operands)?;
        let y = y.first().copied().ok_or_else(|| OpError::Value("attention has no output".into()))?;
        let y = b.transpose(y, &[0, 2, 1, 3])?;
        let first = b.ints(&[0])?;
        Ok(vec![b.plain(kiln_ops::shape::squeeze::SQUEEZE, &[y, first])?])
    }

    /// The keys that each query sees, [Nq, Nk].
    fn mask(&self, b: &mut Body<'_>, queries: &Tokens, keys: &Tokens) -> Result<ValueId, OpError> {
        let (rows, columns) = (b.ints(&[1])?, b.ints(&[0])?);
        let row = b.plain(UNSQUEEZE, &[queries.sequence, rows])?;
        let column = b.plain(UNSQUEEZE, &[keys.sequence, columns])?;
        let own = b.plain(EQUAL, &[row, column])?;
        let last = match self.causal {
            CausalMask::None => return Ok(own),
            CausalMask::UpperLeft => queries.place,
            CausalMask::LowerRight => {
                // Lengths of the keys by the sequences of the queries.
                let keys = lengths(b, STARTS[1], queries.sequence)?;
                let more = b.plain(SUB, &[keys, queries.length])?;
                b.plain(ADD, &[queries.place, more])?
            }
        };
        let last = b.plain(UNSQUEEZE, &[last, rows])?;
        let place = b.plain(UNSQUEEZE, &[keys.place, columns])?;
        let before = b.plain(LESS_EQUAL, &[place, last])?;
        b.plain(AND, &[own, before])
    }
}

/// The tokens of input `i` by the starts of input `starts`.
fn tokens(b: &mut Body<'_>, i: usize, starts: usize) -> Result<Tokens, OpError> {
    let (x, at) = (b.x(i)?, b.x(starts)?);
    let at = b.cast(at, DType::I64)?;
    let count = b.dim(x, 0)?;
    let count = b.reshape(count, &[])?;
    let (zero, one) = (b.int(0)?, b.int(1)?);
    let all = b.plain(RANGE, &[zero, count, one])?;
    // A token belongs to as many sequences on as end before it.
    let ends = tail(b, at)?;
    let (rows, columns) = (b.ints(&[1])?, b.ints(&[0])?);
    let (token, end) = (b.plain(UNSQUEEZE, &[all, rows])?, b.plain(UNSQUEEZE, &[ends, columns])?);
    let ended = b.plain(LESS_EQUAL, &[end, token])?;
    let ended = b.cast(ended, DType::I64)?;
    let attrs = Attrs::new().with("op", "sum").with("keep_dims", false);
    let sequence = b.op(REDUCE, attrs, &[ended, rows])?;
    let start = b.op(GATHER, Attrs::new().with("axis", 0i64), &[at, sequence])?;
    let place = b.plain(SUB, &[all, start])?;
    let length = lengths(b, starts, sequence)?;
    Ok(Tokens { sequence, place, length })
}

/// All starts but the first: the ends.
fn tail(b: &mut Body<'_>, starts: ValueId) -> Result<ValueId, OpError> {
    let (from, to, axis) = (b.ints(&[1])?, b.ints(&[i64::MAX])?, b.ints(&[0])?);
    b.ops(SLICE, Attrs::new(), &[Some(starts), Some(from), Some(to), Some(axis)])?
        .first()
        .copied()
        .ok_or_else(|| OpError::Value("slice has no output".into()))
}

/// The lengths of these sequences by the starts of an input; of the last one for tokens behind it.
fn lengths(b: &mut Body<'_>, starts: usize, sequence: ValueId) -> Result<ValueId, OpError> {
    let at = b.x(starts)?;
    let at = b.cast(at, DType::I64)?;
    let count = b.dim(at, 0)?;
    let count = b.reshape(count, &[])?;
    let two = b.int(2)?;
    let last = b.plain(SUB, &[count, two])?;
    let sequence = b.plain(MIN, &[sequence, last])?;
    let ends = tail(b, at)?;
    let attrs = || Attrs::new().with("axis", 0i64);
    let end = b.op(GATHER, attrs(), &[ends, sequence])?;
    let start = b.op(GATHER, attrs(), &[at, sequence])?;
    b.plain(SUB, &[end, start])
}
