//! `linear_attention`: a state for each head goes from step to step; heads are shared among threads.

use super::{Floats, Kernel, NodeCx, TABLES, kernel};
use crate::threads::{self, Parts};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ops::attention::linear::{LINEAR_ATTENTION, Rule};

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(LINEAR_ATTENTION, run, |t| t.all_real())];

/// An input [B, T, parts].
struct Steps {
    data: Floats,
    parts: usize,
}

impl Steps {
    fn of(cx: &NodeCx<'_>, i: usize) -> Option<Steps> {
        Some(Steps { data: cx.floats(i)?, parts: *cx.shape(i).last()? })
    }

    /// The `size` elements of part number `k` of a step.
    fn part(&self, step: usize, k: usize, size: usize) -> &[f32] {
        &self.data[step * self.parts + k * size..][..size]
    }
}

fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let [Some(q), Some(k), Some(v)] = [0, 1, 2].map(|i| Steps::of(cx, i)) else { return Ok(false) };
    let [past, decay, beta] = [3, 4, 5].map(|i| if cx.has(i) { Steps::of(cx, i) } else { None });
    let numbers = (attrs.int("q_heads"), attrs.int("kv_heads"), attrs.float("scale"), Rule::of(attrs));
    let (Ok(q_heads), Ok(kv_heads), Ok(scale), Ok(rule)) = numbers else { return Ok(false) };
    let (Some(shape), Some(state)) = (cx.out_shape(0), cx.out_shape(1)) else { return Ok(false) };
    let [batch, len, _] = shape[..] else { return Ok(false) };
    let [_, _, dk, dv] = state[..] else { return Ok(false) };
    let job = Job {
        q,
        k,
        v,
        decay: decay.filter(|_| rule.gated),
        beta: beta.filter(|_| rule.delta),
        scale: if scale == 0.0 { 1.0 / (dk as f64).sqrt() } else { scale },
        q_heads: q_heads.max(1) as usize,
        kv_heads: kv_heads.max(1) as usize,
        dk,
        dv,
    };
    let mut states = match past {
        Some(p) => p.data.to_vec(),
        None => vec![0f32; state.iter().product()],
    };
    let done = cx.write_floats(0, &shape, |y| {
        let points = Checkpoints::here();
        let (y, all) = (Parts::new(y), Parts::new(&mut states));
        threads::each(batch * job.kv_heads, |task| {
            let (b, h) = (task / job.kv_heads, task % job.kv_heads);
            // SAFETY: each head has a state of its own.
            let state = unsafe { all.part(task * dk * dv, (task + 1) * dk * dv) };
            let mut room = vec![0f32; dv];
            for step in b * len..(b + 1) * len {
                points.pass();
                job.update(state, step, h, &mut room);
                let group = job.q_heads / job.kv_heads;
                for head in h * group..(h + 1) * group {
                    let at = (step * job.q_heads + head) * dv;
                    // SAFETY: each query head reads the state of one head, whose task alone writes its rows.
                    job.read(state, step, head, unsafe { y.part(at, at + dv) });
                }
            }
        });
        Ok(())
    })?;
    Ok(done
        && cx.write_floats(1, &state, |y| {
            y.copy_from_slice(&states);
            Ok(())
        })?)
}

struct Job {
    q: Steps,
    k: Steps,
    v: Steps,
    decay: Option<Steps>,
    beta: Option<Steps>,
    scale: f64,
    q_heads: usize,
    kv_heads: usize,
    dk: usize,
    dv: usize,
}

impl Job {
    /// Decays the state and adds what the step writes.
    fn update(&self, state: &mut [f32], step: usize, h: usize, room: &mut [f32]) {
        let (dk, dv) = (self.dk, self.dv);
        if dv == 0 {
            return;
        }
        if let Some(g) = &self.decay {
            // Either a number a head, or one a row of its state.
            let each = g.parts / self.kv_heads;
            let g = g.part(step, h, each);
            for (i, row) in state.chunks_exact_mut(dv).enumerate() {
                let factor = f64::from(g[if each == 1 { 0 } else { i }]).exp() as f32;
                row.iter_mut().for_each(|s| *s *= factor);
            }
        }
        let key = self.k.part(step, h, dk);
        room.copy_from_slice(self.v.part(step, h, dv));
        if let Some(beta) = &self.beta {
            let by = beta.part(step, if beta.parts == 1 { 0 } else { h }, 1)[0];
            for (row, &k) in state.chunks_exact(dv).zip(key) {
                room.iter_mut().zip(row).for_each(|(w, &s)| *w -= s * k);
            }
            room.iter_mut().for_each(|w| *w *= by);
        }
        for (row, &k) in state.chunks_exact_mut(dv).zip(key) {
            row.iter_mut().zip(&*room).for_each(|(s, &w)| *s += k * w);
        }
    }

    /// Multiplies a query with the state.
    fn read(&self, state: &[f32], step: usize, head: usize, y: &mut [f32]) {
        let query = self.q.part(step, head, self.dk);
        let mut sums = vec![0f64; self.dv];
        for (row, &q) in state.chunks_exact(self.dv.max(1)).zip(query) {
            sums.iter_mut().zip(row).for_each(|(y, &s)| *y += f64::from(q) * f64::from(s));
        }
        y.iter_mut().zip(sums).for_each(|(y, s)| *y = (self.scale * s) as f32);
    }
}
