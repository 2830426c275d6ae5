//! `rotary_embedding`.

use super::{Floats, Kernel, NodeCx, TABLES, Types, kernel};
use crate::threads;
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ops::attention::rotary::ROTARY_EMBEDDING;
use kiln_ops::util::is_real;

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(ROTARY_EMBEDDING, rotary, covers)];

fn covers(t: &Types<'_>) -> bool {
    (0..3).all(|i| t.input(i).is_some_and(|x| is_real(x.dtype)))
}

/// Elements that one task takes at least.
const TASK: usize = 1 << 13;

fn rotary(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (shape, attrs) = (cx.shape(0).to_vec(), cx.node.op.attrs());
    let all = (cx.floats(0), cx.floats(1), cx.floats(2), attrs.bool("interleaved"), attrs.int("num_heads"));
    let (Some(x), Some(cos), Some(sin), Ok(interleaved), Ok(heads)) = all else { return Ok(false) };
    let ids = if cx.has(3) { cx.ints(3) } else { None };
    let half = cx.shape(1).last().copied().unwrap_or(0);
    // Neighbouring heads of one position, and the positions of a run of such chunks.
    let (heads, size, len, apart) = match shape[..] {
        [_, h, s, d] => (1, d, s, h),
        [_, s, hidden] => match usize::try_from(heads).ok().filter(|&h| h > 0 && hidden.is_multiple_of(h)) {
            Some(h) => (h, hidden / h, s, 1),
            None => return Ok(false),
        },
        _ => return Ok(false),
    };
    let half = half.min(size / 2);
    let width = cx.shape(1).last().copied().unwrap_or(0);
    let shared = matches!(cx.shape(1), [1, _, _]);
    let rows = |t: &Floats| t.len().checked_div(width).unwrap_or(0);
    let row = |t: &Floats, b: usize, s: usize| -> Option<usize> {
        let at = b * len + s;
        let Some(ids) = &ids else { return Some(if shared { s } else { at } * width) };
        let id = if ids[at] < 0 { ids[at].saturating_add(rows(t) as i64) } else { ids[at] };
        usize::try_from(id).ok().filter(|&r| r < rows(t)).map(|r| r * width)
    };
    cx.write_floats(0, &shape, |y| {
        let points = Checkpoints::here();
        let chunk = heads * size;
        threads::chunks(y, chunk, TASK.div_ceil(chunk.max(1)), |c, y| {
            points.pass();
            let (b, s) = (c / (len * apart), c % len);
            y.copy_from_slice(&x[c * chunk..(c + 1) * chunk]);
            let (Some(cos_at), Some(sin_at)) = (row(&cos, b, s), row(&sin, b, s)) else { return };
            let (cos, sin) = (&cos[cos_at..cos_at + half], &sin[sin_at..sin_at + half]);
            for head in y.chunks_exact_mut(size) {
                for (pair, (&cos, &sin)) in cos.iter().zip(sin).enumerate() {
                    let (i, j) = if interleaved { (2 * pair, 2 * pair + 1) } else { (pair, pair + half) };
                    let (a, b) = (head[i], head[j]);
                    head[i] = cos * a - sin * b;
                    head[j] = sin * a + cos * b;
                }
            }
        });
        Ok(())
    })
}
