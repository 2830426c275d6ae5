//! The oracle of attention: one query row at a time.

use super::{MASK, NONPAD, PAST_KEY, PAST_VALUE};
use crate::util::{broadcast_strides, offset};
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::tensor::{Elems, Tensor};

/// Elements of an input under indices (batch, head, position, component), in either layout.
struct View {
    elems: Vec<f64>,
    /// Batch, heads, length, size.
    shape: [usize; 4],
    strides: [usize; 4],
}

impl View {
    fn new(t: &Tensor, heads: usize) -> Result<View, OpError> {
        let elems = t.to_f64();
        match *t.shape() {
            [b, h, s, d] => Ok(View { elems, shape: [b, h, s, d], strides: [h * s * d, s * d, d, 1] }),
            [b, s, hidden] if heads > 0 => {
                let d = hidden / heads;
                Ok(View { elems, shape: [b, heads, s, d], strides: [s * hidden, d, hidden, 1] })
            }
            _ => Err(OpError::Value(format!("{:?} is not 3-D with heads, nor 4-D", t.shape()))),
        }
    }

    fn at(&self, b: usize, h: usize, s: usize, d: usize) -> f64 {
        self.elems[offset(&[b, h, s, d], &self.strides)]
    }
}

/// Rows of the past, then those of `new`, as [batch, heads, total, size].
fn present(past: Option<&Tensor>, new: &View) -> Result<View, OpError> {
    let [batch, heads, len, size] = new.shape;
    let past = past.map(|t| View::new(t, 0)).transpose()?;
    let before = past.as_ref().map_or(0, |p| p.shape[2]);
    let total = before + len;
    let mut elems = Vec::new();
    for (b, h) in (0..batch).flat_map(|b| (0..heads).map(move |h| (b, h))) {
        for s in 0..total {
            let (from, s) = match &past {
                Some(p) if s < before => (p, s),
                _ => (new, s - before),
            };
            elems.extend((0..size).map(|d| from.at(b, h, s, d)));
        }
    }
    let strides = [heads * total * size, total * size, size, 1];
    Ok(View { elems, shape: [batch, heads, total, size], strides })
}

/// Mask of the score of (batch, head, query, key), from the mask operand, causality, windows and lengths.
struct Bias {
    mask: Option<(Elems, Vec<usize>, usize)>,
    causal: bool,
    /// Keys that a query sees before and after its own position; -1 for all.
    window: [i64; 2],
    /// Position of the first query where no lengths are given.
    past: i64,
    queries: i64,
    nonpad: Option<Vec<i64>>,
    /// The score of a key that a bool mask hides.
    hidden: f64,
}

impl Bias {
    fn new(cx: &EvalCx<'_>, to: [usize; 3], past: usize) -> Result<Bias, OpError> {
        let mask = cx.get(MASK).map(|t| {
            let len = t.shape().last().copied().unwrap_or(0);
            let strides = broadcast_strides(t.shape(), &[to[0], to[1], to[2], len]);
            (t.elems(), strides, len)
        });
        let attrs = cx.attrs();
        Ok(Bias {
            mask,
            causal: attrs.bool("causal")?,
            hidden: attrs.float("hidden_score")?,
            window: [attrs.int("window_left")?, attrs.int("window_right")?],
            past: past as i64,
            queries: to[2] as i64,
            nonpad: cx.get(NONPAD).map(|n| n.to_i64().into_iter().map(|n| n.max(0)).collect()),
        })
    }

    /// Whether causality, the window and the lengths leave a key to a query.
    fn sees(&self, b: usize, i: usize, j: usize) -> bool {
        let (i, j) = (i as i64, j as i64);
        let length = self.nonpad.as_ref().map(|n| n[b]);
        let own = i + length.map_or(self.past, |n| n - self.queries);
        let [left, right] = self.window;
        length.is_none_or(|n| j < n)
            && !(self.causal && j > own)
            && !(left >= 0 && own - j > left)
            && !(right >= 0 && j - own > right)
    }

    fn of(&self, score: f64, [b, h, i, j]: [usize; 4]) -> f64 {
        if !self.sees(b, i, j) {
            return f64::NEG_INFINITY;
        }
        match &self.mask {
            None => score,
            Some((_, _, len)) if j >= *len => f64::NEG_INFINITY,
            Some((Elems::I(v), strides, _)) if v[offset(&[b, h, i, j], strides)] == 0 => self.hidden,
            Some((Elems::I(_), ..)) => score,
            Some((Elems::F(v), strides, _)) => match v[offset(&[b, h, i, j], strides)] {
                f64::NEG_INFINITY => f64::NEG_INFINITY,
                added => score + added,
            },
        }
    }
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let e: Vec<f64> = row.iter().map(|x| libm::exp(x - max)).collect();
    let sum: f64 = e.iter().sum();
    e.iter().map(|x| x / sum).collect()
}

/// Evaluates the operator in f64, rounded once.
pub(crate) fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let attrs = cx.attrs();
    let heads = |name| Ok::<_, OpError>(usize::try_from(attrs.int(name)?).unwrap_or(0));
    let q = View::new(cx.input(0)?, heads("q_heads")?)?;
    let k = present(cx.get(PAST_KEY), &View::new(cx.input(1)?, heads("kv_heads")?)?)?;
    let v = present(cx.get(PAST_VALUE), &View::new(cx.input(2)?, heads("kv_heads")?)?)?;
    let ([batch, q_heads, q_len, size], [_, kv_heads, total, _]) = (q.shape, k.shape);
    let past = cx.get(PAST_KEY).and_then(|t| t.shape().get(2).copied()).unwrap_or(0);
    let bias = Bias::new(cx, [batch, q_heads, q_len], past)?;
    let scale = match attrs.float("scale")? {
        0.0 => 1.0 / (size as f64).sqrt(),
        s => s,
    };
    let (cap, mode) = (attrs.float("softcap")?, attrs.int("qk_output")?);
    let (zero_nan, zero_empty) = (attrs.bool("zero_nan")?, attrs.bool("zero_empty")?);
    let y_shape = cx.out_shape(0)?;
    let v_size = v.shape[3];
    let y_strides = match y_shape.len() {
        3 => [q_len * q_heads * v_size, v_size, q_heads * v_size],
        _ => [q_heads * q_len * v_size, q_len * v_size, v_size],
    };
    let mut y = vec![0.0; y_shape.iter().product()];
    let mut qk = Vec::new();
    for (b, h) in (0..batch).flat_map(|b| (0..q_heads).map(move |h| (b, h))) {
        let kv = h * kv_heads / q_heads;
        for i in 0..q_len {
            kiln_ir::stop::checkpoint();
            let dot = |j| (0..size).map(|d| q.at(b, h, i, d) * k.at(b, kv, j, d)).sum::<f64>();
            let product: Vec<f64> = (0..total).map(|j| scale * dot(j)).collect();
            let capped: Vec<f64> = match cap {
                c if c > 0.0 => product.iter().map(|x| c * libm::tanh(x / c)).collect(),
                _ => product.clone(),
            };
            let with_bias = |(j, x): (usize, &f64)| bias.of(*x, [b, h, i, j]);
            let biased: Vec<f64> = capped.iter().enumerate().map(with_bias).collect();
            let mut weights = softmax(&biased);
            if zero_empty && biased.iter().all(|x| *x == f64::NEG_INFINITY) {
                weights.fill(0.0);
            }
            if zero_nan {
                weights.iter_mut().filter(|w| w.is_nan()).for_each(|w| *w = 0.0);
            }
            let row = offset(&[b, h, i], &y_strides);
            for d in 0..v_size {
                y[row + d] = (0..total).map(|j| weights[j] * v.at(b, kv, j, d)).sum();
            }
            qk.extend(match mode {
                0 => product,
                1 => capped,
                2 => biased,
                _ => weights,
            });
        }
    }
    Ok(vec![
        cx.make(0, &y_shape, Elems::F(y))?,
        cx.make(1, &cx.out_shape(1)?, Elems::F(k.elems))?,
        cx.make(2, &cx.out_shape(2)?, Elems::F(v.elems))?,
        cx.make(3, &cx.out_shape(3)?, Elems::F(qk))?,
    ])
}

#[cfg(test)]
mod tests {
    use crate::testing::{assert_near, f32s, infer, ints, run_all};
    use kiln_ir::{Attrs, DType, Dim, Tensor};

    /// Head size 1, scale 1: scores are products of numbers, chosen so that weights are simple.
    fn run(attrs: Attrs, inputs: &[Option<&Tensor>]) -> Vec<Tensor> {
        let inputs: Vec<_> = inputs.iter().map(|t| t.cloned()).collect();
        run_all("attention", attrs.with("scale", 1.0), &inputs).unwrap()
    }

    const LN2: f64 = std::f64::consts::LN_2;
    const LN3: f64 = 1.098_612_288_668_11;

    #[test]
    fn weights_are_those_of_a_softmax_by_hand() {
        let q = f32s(&[1, 1, 2, 1], &[1.0, 0.0]);
        let k = f32s(&[1, 1, 2, 1], &[0.0, LN3]);
        let v = f32s(&[1, 1, 2, 2], &[4.0, 8.0, 0.0, 16.0]);
        let out = run(Attrs::new(), &[Some(&q), Some(&k), Some(&v)]);
        assert_near(&out[0], &[1, 1, 2, 2], &[1.0, 14.0, 2.0, 12.0], 1e-5);
        assert_near(&out[3], &[1, 1, 2, 2], &[0.0, LN3, 0.0, 0.0], 1e-6);
        assert_eq!((&out[1], &out[2]), (&k, &v));
        let weights = run(Attrs::new().with("qk_output", 3i64), &[Some(&q), Some(&k), Some(&v)]);
        assert_near(&weights[3], &[1, 1, 2, 2], &[0.25, 0.75, 0.5, 0.5], 1e-6);
    }

    #[test]
    fn causal_and_masks_exclude_keys() {
        let one = f32s(&[1, 1, 3, 1], &[0.0; 3]);
        let v = f32s(&[1, 1, 3, 1], &[6.0, 12.0, 36.0]);
        let causal = run(Attrs::new().with("causal", true), &[Some(&one), Some(&one), Some(&v)]);
        assert_near(&causal[0], &[1, 1, 3, 1], &[6.0, 9.0, 18.0], 1e-5);
        let bools = ints(DType::Bool, &[3, 3], &[1, 0, 1, 0, 1, 0, 1, 1, 1]);
        let masked = run(Attrs::new(), &[Some(&one), Some(&one), Some(&v), Some(&bools)]);
        assert_near(&masked[0], &[1, 1, 3, 1], &[21.0, 12.0, 18.0], 1e-5);
        let added = f32s(&[1, 3, 2], &[LN2, 0.0, 0.0, 0.0, 0.0, LN2]);
        let both = run(Attrs::new().with("causal", true), &[Some(&one), Some(&one), Some(&v), Some(&added)]);
        assert_near(&both[0], &[1, 1, 3, 1], &[6.0, 9.0, 10.0], 1e-5);
        let none = ints(DType::Bool, &[1, 3], &[0; 3]);
        let nothing = run(Attrs::new(), &[Some(&one), Some(&one), Some(&v), Some(&none)]);
        assert_near(&nothing[0], &[1, 1, 3, 1], &[f64::NAN; 3], 0.0);
    }

    #[test]
    fn hidden_scores_are_a_number_that_may_be_seen() {
        let q = f32s(&[1, 1, 2, 1], &[1.0, 1.0]);
        let k = f32s(&[1, 1, 2, 1], &[0.0, 5.0]);
        let v = f32s(&[1, 1, 2, 1], &[4.0, 8.0]);
        let mask = ints(DType::Bool, &[2, 2], &[0, 0, 1, 0]);
        let run =
            |x: f64| run(Attrs::new().with("hidden_score", x), &[Some(&q), Some(&k), Some(&v), Some(&mask)]);
        // All are hidden: a mean. One is: its weight is e^x / (1 + e^x).
        assert_near(&run(LN3)[0], &[1, 1, 2, 1], &[6.0, 7.0], 1e-5);
        assert_near(&run(-1e4)[0], &[1, 1, 2, 1], &[6.0, 4.0], 1e-6);
        let ty = |n| (DType::F32, vec![1.into(), 1.into(), Dim::new(n), 1.into()]);
        let float = (DType::F32, vec![Dim::new(2)]);
        let bad = infer("attention", Attrs::new().with("hidden_score", -1.0), &[ty(2), ty(2), ty(2), float]);
        assert!(bad.unwrap_err().to_string().contains("hidden_score"));
        let half = |n| (DType::F16, vec![1.into(), 1.into(), Dim::new(n), 1.into()]);
        let wide =
            infer("attention", Attrs::new(), &[half(2), half(2), half(2), (DType::F32, vec![Dim::new(2)])]);
        assert_eq!(wide.unwrap()[0].ty.dtype, DType::F16);
    }

    #[test]
    fn the_past_goes_first_and_shifts_the_diagonal() {
        let q = f32s(&[1, 1, 2, 1], &[0.0; 2]);
        let k = f32s(&[1, 1, 2, 1], &[1.0, 2.0]);
        let v = f32s(&[1, 1, 2, 1], &[3.0, 5.0]);
        let pk = f32s(&[1, 1, 1, 1], &[9.0]);
        let pv = f32s(&[1, 1, 1, 1], &[1.0]);
        let attrs = Attrs::new().with("causal", true);
        let out = run(attrs, &[Some(&q), Some(&k), Some(&v), None, Some(&pk), Some(&pv)]);
        assert_near(&out[0], &[1, 1, 2, 1], &[2.0, 3.0], 1e-6);
        assert_near(&out[1], &[1, 1, 3, 1], &[9.0, 1.0, 2.0], 0.0);
        assert_near(&out[2], &[1, 1, 3, 1], &[1.0, 3.0, 5.0], 0.0);
    }

    #[test]
    fn padding_is_cut_off_and_the_cap_applies_before_the_bias() {
        let q = f32s(&[2, 1, 1, 1], &[1.0; 2]);
        let k = f32s(&[2, 1, 2, 1], &[0.0, LN3, 0.0, LN3]);
        let v = f32s(&[2, 1, 2, 1], &[4.0, 8.0, 4.0, 8.0]);
        let n = ints(DType::I64, &[2], &[1, 2]);
        let out = run(Attrs::new(), &[Some(&q), Some(&k), Some(&v), None, None, None, Some(&n)]);
        assert_near(&out[0], &[2, 1, 1, 1], &[4.0, 7.0], 1e-5);
        let cap = Attrs::new().with("softcap", 2.0).with("qk_output", 2i64);
        let bias = f32s(&[1, 2], &[1.0, 0.0]);
        let out = run(cap, &[Some(&q), Some(&k), Some(&v), Some(&bias)]);
        // 2·tanh(0) + 1 and 2·tanh(ln 3/2) = 2·(3 − 1)/(3 + 1).
        assert_near(&out[3], &[2, 1, 1, 2], &[1.0, 1.0, 1.0, 1.0], 1e-6);
        let cap = Attrs::new().with("softcap", 2.0).with("qk_output", 1i64);
        let none = f32s(&[1, 2], &[0.0, f64::NEG_INFINITY]);
        let out = run(cap, &[Some(&q), Some(&k), Some(&v), Some(&none)]);
        assert_near(&out[3], &[2, 1, 1, 2], &[0.0, 1.0, 0.0, 1.0], 1e-6);
        assert_near(&out[0], &[2, 1, 1, 1], &[4.0, 4.0], 0.0);
    }

    #[test]
    fn windows_and_diagonals_follow_the_position_of_the_query() {
        let q = f32s(&[1, 1, 3, 1], &[0.0; 3]);
        let k = f32s(&[1, 1, 5, 1], &[0.0; 5]);
        let v = f32s(&[1, 1, 5, 1], &[1.0, 10.0, 100.0, 1000.0, 10000.0]);
        let plain = |attrs: Attrs| run(attrs.with("zero_empty", true), &[Some(&q), Some(&k), Some(&v)]);
        let left = plain(Attrs::new().with("window_left", 0i64).with("window_right", 1i64));
        assert_near(&left[0], &[1, 1, 3, 1], &[5.5, 55.0, 550.0], 1e-3);
        let right = plain(Attrs::new().with("window_right", 0i64));
        assert_near(&right[0], &[1, 1, 3, 1], &[1.0, 5.5, 37.0], 1e-3);
        // Four keys count: the queries have positions 1, 2 and 3. Two keys: −1, 0 and 1.
        let by_length = |n: i64, attrs: Attrs| {
            let n = ints(DType::I64, &[1], &[n]);
            run(attrs.with("zero_empty", true), &[Some(&q), Some(&k), Some(&v), None, None, None, Some(&n)])
        };
        let causal = by_length(4, Attrs::new().with("causal", true));
        assert_near(&causal[0], &[1, 1, 3, 1], &[5.5, 37.0, 277.75], 1e-3);
        let empty = by_length(2, Attrs::new().with("causal", true));
        assert_near(&empty[0], &[1, 1, 3, 1], &[0.0, 1.0, 5.5], 1e-3);
        let window = by_length(4, Attrs::new().with("window_left", 1i64).with("window_right", 0i64));
        assert_near(&window[0], &[1, 1, 3, 1], &[5.5, 55.0, 550.0], 1e-3);
    }

    #[test]
    fn what_takes_no_part_does_not_spoil_a_row() {
        let q = f32s(&[1, 1, 1, 1], &[1.0]);
        let k = f32s(&[1, 1, 2, 1], &[1.0, f64::INFINITY]);
        let v = f32s(&[1, 1, 2, 1], &[7.0, 9.0]);
        let mask = ints(DType::Bool, &[1, 2], &[1, 0]);
        let out = run(Attrs::new(), &[Some(&q), Some(&k), Some(&v), Some(&mask)]);
        assert_near(&out[0], &[1, 1, 1, 1], &[7.0], 0.0);
        let ins = [3, 4, 4].map(|n| (DType::F32, vec![1.into(), 1.into(), Dim::new(n), 1.into()]));
        let bad = infer("attention", Attrs::new().with("window_left", -2i64), &ins).unwrap_err().to_string();
        assert!(bad.contains("window_left"), "{bad}");
    }

    #[test]
    fn flat_inputs_keep_their_layout_and_groups_share_keys() {
        // Four query heads on two key heads, one key each: every head gets its key head's value.
        let q = f32s(&[1, 2, 4], &[0.5; 8]);
        let k = f32s(&[1, 1, 2], &[1.0, -1.0]);
        let v = f32s(&[1, 1, 4], &[1.0, 2.0, 3.0, 4.0]);
        let attrs = Attrs::new().with("q_heads", 4i64).with("kv_heads", 2i64);
        let out = run(attrs, &[Some(&q), Some(&k), Some(&v)]);
        let row = [1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0];
        assert_near(&out[0], &[1, 2, 8], &[row, row].concat(), 1e-6);
        assert_near(&out[1], &[1, 2, 1, 1], &[1.0, -1.0], 0.0);
        assert_near(&out[3], &[1, 4, 2, 1], &[0.5, 0.5, 0.5, 0.5, -0.5, -0.5, -0.5, -0.5], 1e-6);
    }

    #[test]
    fn shapes_follow_symbols_and_misfits_are_named() {
        let (b, s, p) = (Dim::host("b"), Dim::host("s"), Dim::host("p"));
        let f = DType::F16;
        let new = vec![b.clone(), 2.into(), s.clone(), 64.into()];
        let past = vec![b.clone(), 2.into(), p.clone(), 64.into()];
        let q = vec![b.clone(), 8.into(), s.clone(), 64.into()];
        let mask = vec![s.clone(), p.clone() + s.clone()];
        let ins =
            [(f, q), (f, new.clone()), (f, new.clone()), (DType::Bool, mask), (f, past.clone()), (f, past)];
        let out = infer("attention", Attrs::new(), &ins).unwrap();
        assert_eq!(out[0].ty.dims, [b.clone(), 8.into(), s.clone(), 64.into()]);
        assert_eq!(out[3].ty.dims, [b, 8.into(), s.clone(), p + s]);
        let bad = |q: &[i64], k: &[i64], attrs: Attrs| {
            let dims = |v: &[i64]| v.iter().map(|&n| Dim::new(n)).collect::<Vec<_>>();
            let ins = [(f, dims(q)), (f, dims(k)), (f, dims(k))];
            infer("attention", attrs, &ins).unwrap_err().to_string()
        };
        assert!(bad(&[1, 3, 4, 8], &[1, 2, 4, 8], Attrs::new()).contains("divides 3"));
        assert!(bad(&[1, 2, 4, 8], &[1, 2, 4, 9], Attrs::new()).contains("head size"));
        assert!(bad(&[1, 4, 8], &[1, 4, 8], Attrs::new()).contains("q_heads"));
        let heads = Attrs::new().with("q_heads", 3i64).with("kv_heads", 1i64);
        assert!(bad(&[1, 4, 8], &[1, 4, 8], heads).contains("multiple of q_heads (3)"));
    }
}
