//! `tfidf`: counts of n-grams, a row a task.

use super::{Kernel, NodeCx, TABLES, kernel};
use crate::threads;
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ops::text::{TFIDF, counted};
use std::collections::HashMap;

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(TFIDF, tfidf, |_| true)];

fn tfidf(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let (Some(x), Some(shape), Ok(grams)) = (cx.ints(0), cx.out_shape(0), counted(attrs)) else {
        return Ok(false);
    };
    let numbers = (attrs.int("min_gram"), attrs.int("max_gram"), attrs.int("max_skip"));
    let ((Ok(min), Ok(max), Ok(skip)), Ok(weights), Ok(mode)) =
        (numbers, attrs.floats("weights"), attrs.str("mode"))
    else {
        return Ok(false);
    };
    let slots: HashMap<&[i64], usize> = grams.into_iter().collect();
    let longest = slots.keys().map(|k| k.len()).max().unwrap_or(0);
    let (len, size) = (cx.shape(0).last().copied().unwrap_or(0), shape.last().copied().unwrap_or(0));
    let lengths = usize::try_from(min).unwrap_or(0)..=usize::try_from(max).unwrap_or(0).min(longest);
    let skip = usize::try_from(skip).unwrap_or(0);
    let weight = |k: usize| weights.get(k).copied().unwrap_or(1.0);
    cx.write_floats(0, &shape, |y| {
        let points = Checkpoints::here();
        threads::chunks(y, size, 1, |r, y| {
            let row = &x[r * len..(r + 1) * len];
            let mut counts = vec![0u64; size];
            let mut gram = Vec::new();
            for n in lengths.clone() {
                let distances = if n == 1 { 1 } else { skip.saturating_add(1).min(len) };
                for distance in 1..=distances {
                    points.pass();
                    let span = (n - 1).saturating_mul(distance).saturating_add(1);
                    for start in 0..(len + 1).saturating_sub(span) {
                        gram.clear();
                        gram.extend((0..n).map(|k| row[start + k * distance]));
                        if let Some(&slot) = slots.get(gram.as_slice()) {
                            counts[slot] += 1;
                        }
                    }
                }
            }
            for (k, (y, &n)) in y.iter_mut().zip(&counts).enumerate() {
                *y = match mode {
                    "tf" => n as f32,
                    "idf" if n > 0 => weight(k) as f32,
                    "idf" => 0.0,
                    _ => (weight(k) * n as f64) as f32,
                };
            }
        });
        Ok(())
    })
}
