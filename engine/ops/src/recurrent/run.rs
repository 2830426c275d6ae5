//! The oracle of recurrences: sequence by sequence, step by step, in f64.

use super::activation::{self, Activation};
use super::{Kind, batch_first, directions};
use kiln_ir::attr::Attrs;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::tensor::{Elems, Tensor};

/// Weights and functions of one direction.
pub(crate) struct Layer<'a> {
    pub(crate) hidden: usize,
    pub(crate) attrs: &'a Attrs,
    /// [gates·hidden, input size].
    w: &'a [f64],
    /// [gates·hidden, hidden].
    r: &'a [f64],
    /// Biases of w, then of r; each [gates·hidden].
    b: &'a [f64],
    /// [3·hidden].
    pub(crate) p: &'a [f64],
    activations: &'a [Activation],
    clip: f64,
}

impl Layer<'_> {
    /// Hidden unit `j` of gate `g` from the input.
    pub(crate) fn of_input(&self, g: usize, j: usize, x: &[f64]) -> f64 {
        let row = g * self.hidden + j;
        dot(&self.w[row * x.len()..], x) + self.b.get(row).unwrap_or(&0.0)
    }

    /// Hidden unit `j` of gate `g` from the state.
    pub(crate) fn of_state(&self, g: usize, j: usize, h: &[f64]) -> f64 {
        let row = g * self.hidden + j;
        dot(&self.r[row * h.len()..], h) + self.b.get(self.b.len() / 2 + row).unwrap_or(&0.0)
    }

    /// Activation `k` of a clipped value.
    pub(crate) fn activate(&self, k: usize, x: f64) -> f64 {
        let x = if self.clip > 0.0 { x.clamp(-self.clip, self.clip) } else { x };
        self.activations[k].of(x)
    }
}

fn dot(row: &[f64], x: &[f64]) -> f64 {
    row.iter().zip(x).map(|(a, b)| a * b).sum()
}

/// The states between two steps of one sequence.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) h: Vec<f64>,
    pub(crate) c: Vec<f64>,
}

/// One step: the new state from the input and the old one.
pub(crate) type Step = dyn Fn(&Layer<'_>, &[f64], &State) -> Result<State, OpError>;

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
        if self.batch_first {
            (b * self.steps + t) * self.dirs + d
        } else {
            (t * self.dirs + d) * self.batch + b
        }
    }
    fn state(&self, d: usize, b: usize) -> usize {
        if self.batch_first { b * self.dirs + d } else { d * self.batch + b }
    }
}

/// Part `d` of a tensor that is split by direction; empty if it is absent.
fn part(v: &[f64], d: usize, dirs: usize) -> &[f64] {
    let n = v.len() / dirs;
    &v[d * n..(d + 1) * n]
}

pub(crate) fn eval(cx: &EvalCx<'_>, kind: Kind, step: &Step) -> Result<Vec<Tensor>, OpError> {
    let attrs = cx.attrs();
    let xs = cx.input(0)?.shape();
    let batch_first = batch_first(attrs)?;
    let (steps, batch) = if batch_first { (xs[1], xs[0]) } else { (xs[0], xs[1]) };
    let g = Geometry { steps, dirs: directions(attrs)?, batch, batch_first };
    let (size, hidden) = (xs[2], cx.input(2)?.shape()[2]);
    let elems = |i| cx.get(i).map_or(Vec::new(), Tensor::to_f64);
    let (x, w, r, b, p) = (elems(0), elems(1), elems(2), elems(3), elems(7));
    let (h0, c0) = (elems(5), elems(6));
    let lens = cx.get(4).map(Tensor::to_i64);
    let activations = activation::of(attrs, kind)?;
    let initial = |v: &[f64], row: usize| match v {
        [] => vec![0.0; hidden],
        v => v[row * hidden..(row + 1) * hidden].to_vec(),
    };
    let mut y = vec![0.0; g.steps * g.dirs * g.batch * hidden];
    let mut last = State { h: vec![0.0; g.dirs * g.batch * hidden], c: vec![0.0; g.dirs * g.batch * hidden] };
    for d in 0..g.dirs {
        let per = kind.activations.len();
        let layer = Layer {
            hidden,
            attrs,
            w: part(&w, d, g.dirs),
            r: part(&r, d, g.dirs),
            b: part(&b, d, g.dirs),
            p: part(&p, d, g.dirs),
            activations: &activations[d * per..(d + 1) * per],
            clip: attrs.float("clip")?,
        };
        let backward = d == 1 || attrs.str("direction")? == "reverse";
        for b in 0..g.batch {
            let len = lens.as_ref().map_or(g.steps, |v| v[b].clamp(0, g.steps as i64) as usize);
            let row = g.state(d, b);
            let mut state = State { h: initial(&h0, row), c: initial(&c0, row) };
            for k in 0..len {
                kiln_ir::stop::checkpoint();
                let t = if backward { len - 1 - k } else { k };
                let at = g.x(t, b) * size;
                state = step(&layer, &x[at..at + size], &state)?;
                let at = g.y(t, d, b) * hidden;
                y[at..at + hidden].copy_from_slice(&state.h);
            }
            last.h[row * hidden..(row + 1) * hidden].copy_from_slice(&state.h);
            last.c[row * hidden..(row + 1) * hidden].copy_from_slice(&state.c);
        }
    }
    let mut out =
        vec![cx.make(0, &cx.out_shape(0)?, Elems::F(y))?, cx.make(1, &cx.out_shape(1)?, Elems::F(last.h))?];
    if kind.cell {
        out.push(cx.make(2, &cx.out_shape(2)?, Elems::F(last.c))?);
    }
    Ok(out)
}
