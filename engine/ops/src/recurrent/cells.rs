//! One step of each recurrence. The formulas are in the operators' documentation.

use super::run::{Layer, State};
use kiln_ir::error::OpError;

fn units(l: &Layer<'_>, f: impl Fn(usize) -> f64) -> Vec<f64> {
    (0..l.hidden).map(f).collect()
}

pub(crate) fn rnn(l: &Layer<'_>, x: &[f64], s: &State) -> Result<State, OpError> {
    let h = units(l, |j| l.activate(0, l.of_input(0, j, x) + l.of_state(0, j, &s.h)));
    Ok(State { h, c: s.c.clone() })
}

pub(crate) fn gru(l: &Layer<'_>, x: &[f64], s: &State) -> Result<State, OpError> {
    let (zg, rg, ng) = (0, 1, 2);
    let gate = |g: usize| units(l, |j| l.activate(0, l.of_input(g, j, x) + l.of_state(g, j, &s.h)));
    let (z, r) = (gate(zg), gate(rg));
    let reset: Vec<f64> = r.iter().zip(&s.h).map(|(r, h)| r * h).collect();
    let late = l.attrs.bool("linear_before_reset")?;
    let recurrent = |j: usize| if late { r[j] * l.of_state(ng, j, &s.h) } else { l.of_state(ng, j, &reset) };
    let n = units(l, |j| l.activate(1, l.of_input(ng, j, x) + recurrent(j)));
    let h = units(l, |j| (1.0 - z[j]) * n[j] + z[j] * s.h[j]);
    Ok(State { h, c: s.c.clone() })
}

pub(crate) fn lstm(l: &Layer<'_>, x: &[f64], s: &State) -> Result<State, OpError> {
    let (ig, og, fg, cg) = (0, 1, 2, 3);
    let sum = |g: usize, j: usize| l.of_input(g, j, x) + l.of_state(g, j, &s.h);
    // Peepholes are in the order i o f, as the gates are.
    let peep = |g: usize, j: usize, c: &[f64]| l.p.get(g * l.hidden + j).map_or(0.0, |p| p * c[j]);
    let i = units(l, |j| l.activate(0, sum(ig, j) + peep(ig, j, &s.c)));
    let f = match l.attrs.bool("input_forget")? {
        true => units(l, |j| 1.0 - i[j]),
        false => units(l, |j| l.activate(0, sum(fg, j) + peep(fg, j, &s.c))),
    };
    let c = units(l, |j| f[j] * s.c[j] + i[j] * l.activate(1, sum(cg, j)));
    let o = units(l, |j| l.activate(0, sum(og, j) + peep(og, j, &c)));
    let h = units(l, |j| o[j] * l.activate(2, c[j]));
    Ok(State { h, c })
}
