//! `rnn`, `gru` and `lstm`: one product for the inputs of all steps, then step by step all sequences together.

use super::gemm::{Bias, How, Size, Strided, by_panels, floats, floats_mut, gemm_into, packed, scratch};
use super::kept::Panels;
use super::pointwise::math::{exp, log1p, sigmoid, tanh};
use super::simd::vectorized;
use super::vector::rows_by_vector;
use super::{Floats, NodeCx, Types};
use crate::threads::{self, Parts};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ops::recurrent::{GRU, LSTM, activations};
use kiln_ops::util::is_real;
use std::sync::Arc;

/// Products that one task makes at least.
const TASK: usize = 32 << 10;
/// States of all steps from which on it is worth packing the weights that they are multiplied with.
const FEW: usize = 16;
/// Rows of weights that stay together.
const GROUP: usize = 16;

/// One of the three recurrences.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Rnn,
    Gru,
    Lstm,
}

/// An activation by its plain name, with alpha and beta.
type Activation = (&'static str, f32, f32);

/// Sizes, and positions of rows in the two layouts.
struct Geometry {
    steps: usize,
    dirs: usize,
    batch: usize,
    batch_first: bool,
}

impl Geometry {
    fn x(&self, t: usize, b: usize) -> usize {
        if self.batch_first { b * self.steps + t } else { t * self.batch + b }
    }

    fn y(&self, t: usize, d: usize, b: usize) -> usize {
        match self.batch_first {
            true => (b * self.steps + t) * self.dirs + d,
            false => (t * self.dirs + d) * self.batch + b,
        }
    }

    fn state(&self, d: usize, b: usize) -> usize {
        if self.batch_first { b * self.dirs + d } else { d * self.batch + b }
    }
}

/// Weights and functions of one direction.
struct Layer<'a> {
    kind: Kind,
    hidden: usize,
    /// [gates·hidden, hidden].
    r: &'a [f32],
    /// The weights packed, where they are multiplied with many states at once.
    panels: Option<Arc<Panels>>,
    how: How<'a>,
    /// Biases of r, [gates·hidden]; empty where there are none.
    rb: &'a [f32],
    /// Peepholes, [3·hidden]; empty where there are none.
    p: &'a [f32],
    activations: &'a [Activation],
    clip: f32,
    /// `linear_before_reset` of a gru, `input_forget` of an lstm.
    flag: bool,
}

/// Part `d` of a tensor that is split by direction; empty if it is absent.
fn part(v: &Option<Floats>, d: usize, dirs: usize) -> &[f32] {
    let Some(v) = v else { return &[] };
    let n = v.len() / dirs;
    &v[d * n..(d + 1) * n]
}

/// Whether the kernel covers a node: floats, but for the lengths.
pub fn covers(t: &Types<'_>) -> bool {
    (0..t.node.inputs.len()).filter(|&i| i != 4).all(|i| t.input(i).is_none_or(|t| is_real(t.dtype)))
}

pub fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let op = &cx.node.op;
    let attrs = op.attrs();
    let (kind, gates, per) = match op.id() {
        LSTM => (Kind::Lstm, 4, 3),
        GRU => (Kind::Gru, 3, 2),
        _ => (Kind::Rnn, 1, 1),
    };
    let flag = match kind {
        Kind::Rnn => Ok(false),
        Kind::Gru => attrs.bool("linear_before_reset"),
        Kind::Lstm => attrs.bool("input_forget"),
    };
    let given = (attrs.int("layout"), attrs.str("direction"), attrs.float("clip"), activations(op), flag);
    let (Ok(layout), Ok(direction), Ok(clip), Ok(functions), Ok(flag)) = given else { return Ok(false) };
    let (Some(x), Some(w), Some(r)) = (cx.floats(0), cx.floats(1), cx.floats(2)) else { return Ok(false) };
    let [b, h0, c0, p] = [3, 5, 6, 7].map(|i| cx.floats(i));
    let lens = if cx.has(4) { cx.ints(4) } else { None };
    let functions: Vec<Activation> =
        functions.into_iter().map(|(name, a, b)| (name, a as f32, b as f32)).collect();
    let (xs, rs) = (cx.shape(0).to_vec(), cx.shape(2).to_vec());
    let (steps, batch) = if layout == 1 { (xs[1], xs[0]) } else { (xs[0], xs[1]) };
    let dirs = if direction == "bidirectional" { 2 } else { 1 };
    let g = Geometry { steps, dirs, batch, batch_first: layout == 1 };
    let (size, hidden) = (xs[2], rs[2]);
    let reverse = direction == "reverse";
    let wide = gates * hidden;
    let mut y = vec![0f32; steps * dirs * batch * hidden];
    let mut last_h = vec![0f32; dirs * batch * hidden];
    let mut last_c = last_h.clone();
    let mut inputs = scratch(cx.pool, steps * batch * wide, "gates of the inputs of a recurrence")?;
    let points = Checkpoints::here();
    for d in 0..dirs {
        let bias = part(&b, d, dirs);
        let (wb, rb) = bias.split_at(bias.len() / 2);
        let s = Size { m: steps * batch, n: wide, k: size };
        let left = Strided { data: &x, row: size, col: 1 };
        let right = Strided { data: &w[d * wide * size..], row: 1, col: size };
        let wb = if wb.is_empty() { Bias::None } else { Bias::Columns(wb) };
        let how = cx.how(d);
        gemm_into(s, (&left, &right, wb), floats_mut(&mut inputs), (wide, 0), how)?;
        let inputs = floats(&inputs);
        let own = &r[d * wide * hidden..(d + 1) * wide * hidden];
        // Many states are multiplied at once; weights that one product reads so often are packed.
        let of_states = Size { m: batch, n: wide, k: hidden };
        let many = batch > 1 && batch * steps >= FEW && hidden > 0;
        let right = Strided { data: own, row: 1, col: hidden };
        let panels = many.then(|| packed(of_states, &right, None)).transpose()?;
        let layer = Layer {
            kind,
            hidden,
            r: own,
            panels,
            how: How { kept: None, ..how },
            rb,
            p: part(&p, d, dirs),
            activations: &functions[d * per..(d + 1) * per],
            clip: clip as f32,
            flag,
        };
        let initial = |v: &Option<Floats>| -> Vec<f32> {
            let row = |b: usize| g.state(d, b) * hidden;
            match v {
                Some(v) => (0..batch).flat_map(|b| v[row(b)..row(b) + hidden].iter().copied()).collect(),
                None => vec![0.0; batch * hidden],
            }
        };
        let (mut h, mut c) = (initial(&h0), initial(&c0));
        let mut state = vec![0f32; batch * wide];
        // A new gate that is reset in front of its product needs the reset gate first.
        let needed = if kind == Kind::Gru && !flag { 2 * hidden } else { wide };
        let len = |b: usize| lens.as_ref().map_or(steps, |v| v[b].clamp(0, steps as i64) as usize);
        let most = (0..batch).map(len).max().unwrap_or(0);
        for k in 0..most {
            points.pass();
            layer.of_state(&h, &mut state, 0..needed, 0);
            for b in (0..batch).filter(|&b| k < len(b)) {
                let t = if d == 1 || reverse { len(b) - 1 - k } else { k };
                let from = &inputs[g.x(t, b) * wide..][..wide];
                let own = b * hidden..(b + 1) * hidden;
                layer.step(
                    from,
                    &mut state[b * wide..(b + 1) * wide],
                    &mut h[own.clone()],
                    &mut c[own.clone()],
                );
                let to = g.y(t, d, b) * hidden;
                y[to..to + hidden].copy_from_slice(&h[own]);
            }
        }
        for b in 0..batch {
            let (to, own) = (g.state(d, b) * hidden, b * hidden..(b + 1) * hidden);
            last_h[to..to + hidden].copy_from_slice(&h[own.clone()]);
            last_c[to..to + hidden].copy_from_slice(&c[own]);
        }
    }
    for (i, v) in [&y, &last_h, &last_c].into_iter().enumerate().take(cx.node.outputs.len()) {
        let Some(shape) = cx.out_shape(i) else { return Ok(false) };
        let written = cx.write_floats(i, &shape, |out| {
            out.copy_from_slice(v);
            Ok(())
        })?;
        if !written {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Layer<'_> {
    /// Gates from the states of all sequences, [batch, gates·hidden] without the first `skipped`, for some rows of the weights.
    fn of_state(&self, h: &[f32], out: &mut [f32], rows: std::ops::Range<usize>, skipped: usize) {
        let (n, wide) = (self.hidden, self.r.len() / self.hidden.max(1));
        let batch = h.len() / n.max(1);
        if let Some(panels) = self.panels.as_ref().filter(|_| rows == (0..wide)) {
            let s = Size { m: batch, n: wide, k: n };
            let bias = if self.rb.is_empty() { Bias::None } else { Bias::Columns(self.rb) };
            return by_panels(
                s,
                (&Strided { data: h, row: n, col: 1 }, panels, bias),
                out,
                (wide, 0),
                self.how,
            );
        }
        let parts = Parts::new(out);
        // Whole groups of rows are one task's, so that sums do not depend on the number of threads.
        let groups = rows.len().div_ceil(GROUP);
        threads::ranges(groups, TASK.div_ceil((GROUP * n * batch).max(1)), |range| {
            let first = rows.start + range.start * GROUP;
            let end = rows.end.min(rows.start + range.end * GROUP);
            for (b, h) in h.chunks_exact(n.max(1)).enumerate() {
                // SAFETY: each row of weights belongs to one range.
                let out = unsafe { parts.part(b * wide + first - skipped, b * wide + end - skipped) };
                rows_by_vector(&self.r[first * n..end * n], n, h, out);
                if let Some(bias) = self.rb.get(first..end) {
                    add(out, bias);
                }
            }
        });
    }

    /// Applies activation `i` to clipped values.
    fn activate(&self, i: usize, x: &mut [f32]) {
        if self.clip > 0.0 {
            x.iter_mut().for_each(|x| *x = x.clamp(-self.clip, self.clip));
        }
        apply(self.activations[i], x);
    }

    /// One step of one sequence: gates of its input and of its state, then its states.
    fn step(&self, from: &[f32], gates: &mut [f32], h: &mut [f32], c: &mut [f32]) {
        let n = self.hidden;
        match self.kind {
            Kind::Rnn => {
                add(gates, from);
                self.activate(0, gates);
                h.copy_from_slice(gates);
            }
            Kind::Gru => {
                let (zr, new) = gates.split_at_mut(2 * n);
                add(zr, &from[..2 * n]);
                self.activate(0, zr);
                let (z, r) = zr.split_at(n);
                if self.flag {
                    new.iter_mut().zip(r).for_each(|(x, r)| *x *= r);
                } else {
                    let reset: Vec<f32> = r.iter().zip(&*h).map(|(r, h)| r * h).collect();
                    self.of_state(&reset, new, 2 * n..3 * n, 2 * n);
                }
                add(new, &from[2 * n..]);
                self.activate(1, new);
                let parts = z.iter().zip(&*new);
                h.iter_mut().zip(parts).for_each(|(h, (z, n))| *h = (1.0 - z) * n + z * *h);
            }
            Kind::Lstm => {
                add(gates, from);
                let (i, rest) = gates.split_at_mut(n);
                let (o, rest) = rest.split_at_mut(n);
                let (f, cell) = rest.split_at_mut(n);
                self.peep(0, i, c);
                self.activate(0, i);
                if self.flag {
                    f.iter_mut().zip(&*i).for_each(|(f, i)| *f = 1.0 - i);
                } else {
                    self.peep(2, f, c);
                    self.activate(0, f);
                }
                self.activate(1, cell);
                let parts = f.iter().zip(i.iter().zip(&*cell));
                c.iter_mut().zip(parts).for_each(|(c, (f, (i, g)))| *c = f * *c + i * g);
                self.peep(1, o, c);
                self.activate(0, o);
                h.copy_from_slice(c);
                apply_clipped(self.activations[2], self.clip, h);
                h.iter_mut().zip(&*o).for_each(|(h, o)| *h *= o);
            }
        }
    }

    /// Adds what gate `i` sees of the cell; gates are in the order i o f.
    fn peep(&self, i: usize, gate: &mut [f32], c: &[f32]) {
        if let Some(p) = self.p.get(i * self.hidden..(i + 1) * self.hidden) {
            gate.iter_mut().zip(p.iter().zip(c)).for_each(|(g, (p, c))| *g += p * c);
        }
    }
}

fn apply_clipped(f: Activation, clip: f32, x: &mut [f32]) {
    if clip > 0.0 {
        x.iter_mut().for_each(|x| *x = x.clamp(-clip, clip));
    }
    apply(f, x);
}

vectorized! {
    fn add(a: &mut [f32], b: &[f32]) {
        a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
    }
}

/// Replaces every element by an expression of it; a closure might stay a function of its own, which is not vectorized.
macro_rules! set {
    ($x:ident, |$e:ident| $body:expr) => {
        for x in $x.iter_mut() {
            let $e = *x;
            *x = $body;
        }
    };
}

vectorized! {
    /// An activation of every element.
    fn apply(f: Activation, x: &mut [f32]) {
        let (name, a, b) = f;
        match name {
            "tanh" => set!(x, |x| tanh::<FMA>(x)),
            "sigmoid" => set!(x, |x| sigmoid::<FMA>(x)),
            "relu" => set!(x, |x| if x < 0.0 { 0.0 } else { x }),
            "softsign" => set!(x, |x| x / (1.0 + x.abs())),
            "softplus" => set!(x, |x| {
                let positive = if x < 0.0 { 0.0 } else { x };
                positive + log1p::<FMA>(exp::<FMA>(-x.abs()))
            }),
            "affine" => set!(x, |x| a * x + b),
            "leakyrelu" => set!(x, |x| if x < 0.0 { a * x } else { x }),
            "thresholdedrelu" => set!(x, |x| if x <= a { 0.0 } else { x }),
            "scaledtanh" => set!(x, |x| a * tanh::<FMA>(b * x)),
            "hardsigmoid" => set!(x, |x| (a * x + b).clamp(0.0, 1.0)),
            _ => set!(x, |x| if x < 0.0 { a * libm::expm1f(x) } else { x }),
        }
    }
}
