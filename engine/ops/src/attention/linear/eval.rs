//! The oracle of linear attention: one step at a time, every head by itself.

use super::{BETA, DECAY, PAST, Rule, heads};
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::tensor::{Elems, Tensor};

/// Elements of an input [B, T, parts].
struct Steps {
    elems: Vec<f64>,
    parts: usize,
}

impl Steps {
    fn new(t: &Tensor) -> Steps {
        Steps { elems: t.to_f64(), parts: t.shape().last().copied().unwrap_or(0) }
    }

    /// The `size` elements of part number `k` of a step.
    fn part(&self, step: usize, k: usize, size: usize) -> &[f64] {
        let from = step * self.parts + k * size;
        &self.elems[from..from + size]
    }
}

/// Evaluates the operator in f64, rounded once.
pub(super) fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let rule = Rule::of(cx.attrs())?;
    let (q_heads, kv_heads) = heads(cx.attrs())?;
    let (q_heads, kv_heads) = (q_heads as usize, kv_heads as usize);
    let (y_shape, state_shape) = (cx.out_shape(0)?, cx.out_shape(1)?);
    let (batch, length) = (y_shape[0], y_shape[1]);
    let (dk, dv) = (state_shape[2], state_shape[3]);
    let scale = match cx.attrs().float("scale")? {
        0.0 => 1.0 / (dk as f64).sqrt(),
        scale => scale,
    };
    let [q, k, v] = [0, 1, 2].map(|i| cx.input(i).map(Steps::new));
    let (q, k, v) = (q?, k?, v?);
    let (decay, beta) = (cx.get(DECAY).map(Steps::new), cx.get(BETA).map(Steps::new));
    let mut states = match cx.get(PAST) {
        Some(t) => t.to_f64(),
        None => vec![0.0; state_shape.iter().product()],
    };
    let group = q_heads / kv_heads;
    let mut y = vec![0.0; y_shape.iter().product()];
    for (b, h) in (0..batch).flat_map(|b| (0..kv_heads).map(move |h| (b, h))) {
        let from = (b * kv_heads + h) * dk * dv;
        let state = &mut states[from..from + dk * dv];
        for step in (0..length).map(|t| b * length + t) {
            if let Some(g) = decay.as_ref().filter(|_| rule.gated) {
                // Either a number a head, or one a row of its state.
                let each = g.parts / kv_heads;
                let g = g.part(step, h, each);
                for (i, s) in state.iter_mut().enumerate() {
                    *s *= libm::exp(g[if each == 1 { 0 } else { i / dv }]);
                }
            }
            let key = k.part(step, h, dk);
            let mut write = v.part(step, h, dv).to_vec();
            if let Some(beta) = beta.as_ref().filter(|_| rule.delta) {
                let beta = beta.part(step, if beta.parts == 1 { 0 } else { h }, 1)[0];
                for (j, w) in write.iter_mut().enumerate() {
                    let held: f64 = (0..dk).map(|i| state[i * dv + j] * key[i]).sum();
                    *w = beta * (*w - held);
                }
            }
            for (i, s) in state.iter_mut().enumerate() {
                *s += key[i / dv] * write[i % dv];
            }
            for head in h * group..(h + 1) * group {
                let query = q.part(step, head, dk);
                for j in 0..dv {
                    let sum: f64 = (0..dk).map(|i| query[i] * state[i * dv + j]).sum();
                    y[(step * q_heads + head) * dv + j] = scale * sum;
                }
            }
        }
    }
    Ok(vec![cx.make(0, &y_shape, Elems::F(y))?, cx.make(1, &state_shape, Elems::F(states))?])
}
