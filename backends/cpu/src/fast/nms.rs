//! `nms`: non-maximum suppression, each class of each batch entry by itself.

use super::{Kernel, NodeCx, TABLES, Types, kernel};
use crate::threads::{self, Parts};
use crate::value::Out;
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::DType;
use kiln_ops::select::nms::NMS;
use kiln_ops::util::is_real;
use std::cmp::Ordering;

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(NMS, nms, covers)];

fn covers(t: &Types<'_>) -> bool {
    (0..2).all(|i| t.input(i).is_some_and(|x| is_real(x.dtype)))
}

/// A box by its least and greatest coordinates.
#[derive(Clone, Copy)]
struct Rect {
    x: (f64, f64),
    y: (f64, f64),
    area: f64,
}

impl Rect {
    fn new(b: &[f32], center: bool) -> Rect {
        let b: [f64; 4] = std::array::from_fn(|i| b[i].into());
        let sorted = |a: f64, b: f64| (a.min(b), a.max(b));
        let around = |middle: f64, size: f64| (middle - size / 2.0, middle + size / 2.0);
        let (x, y) = match center {
            true => (around(b[0], b[2]), around(b[1], b[3])),
            false => (sorted(b[1], b[3]), sorted(b[0], b[2])),
        };
        Rect { x, y, area: (x.1 - x.0) * (y.1 - y.0) }
    }

    /// Whether they overlap by more than `iou`. Boxes without area overlap nothing.
    fn overlaps(&self, o: &Rect, iou: f64) -> bool {
        let width = self.x.1.min(o.x.1) - self.x.0.max(o.x.0);
        let height = self.y.1.min(o.y.1) - self.y.0.max(o.y.0);
        if !(width > 0.0 && height > 0.0 && self.area > 0.0 && o.area > 0.0) {
            return false;
        }
        let both = width * height;
        both / (self.area + o.area - both) > iou
    }
}

fn falling(a: f32, b: f32) -> Ordering {
    b.partial_cmp(&a).unwrap_or(Ordering::Equal)
}

fn nms(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let (Some(boxes), Some(scores)) = (cx.floats(0), cx.floats(1)) else { return Ok(false) };
    let &[batch, classes, count] = cx.shape(1) else { return Ok(false) };
    let (Ok(center), Ok(topk), Ok(by_score)) =
        (attrs.bool("center_box"), attrs.int("topk_limit"), attrs.bool("by_score"))
    else {
        return Ok(false);
    };
    let own_boxes = cx.shape(0).len() == 4;
    let limit = |n: i64| usize::try_from(n).unwrap_or(0);
    let most = limit(cx.ints(2).and_then(|v| v.first().copied()).unwrap_or(0));
    let topk = limit(topk);
    let scalar = |i: usize| cx.args.get(i)?.as_ref()?.tensor().ok()?.scalar_f64();
    let (iou, least) = (scalar(3).unwrap_or(0.0), scalar(4));
    let mut picks: Vec<Vec<usize>> = vec![Vec::new(); batch * classes];
    let parts = Parts::new(&mut picks);
    let points = Checkpoints::here();
    threads::each(batch * classes, |task| {
        let (b, c) = (task / classes, task % classes);
        let rect = |i: usize| {
            let at = if own_boxes { (b * count + i) * classes + c } else { b * count + i };
            Rect::new(&boxes[at * 4..at * 4 + 4], center)
        };
        let own = &scores[task * count..(task + 1) * count];
        let takes_part = |x: f32| !x.is_nan() && least.is_none_or(|t| f64::from(x) > t);
        let mut candidates: Vec<usize> = (0..count).filter(|&i| takes_part(own[i])).collect();
        // The sort is stable, so that of equal scores (of both zeros, too) the lower index stays first.
        candidates.sort_by(|&i, &j| falling(own[i], own[j]));
        candidates.truncate(if topk > 0 { topk } else { count });
        let mut picked: Vec<(usize, Rect)> = Vec::new();
        for i in candidates {
            points.pass();
            if picked.len() >= most {
                break;
            }
            let r = rect(i);
            if !picked.iter().any(|(_, p)| p.overlaps(&r, iou)) {
                picked.push((i, r));
            }
        }
        // SAFETY: each class of each batch entry belongs to one task.
        let own = unsafe { parts.part(task, task + 1) };
        own[0] = picked.into_iter().map(|(i, _)| i).collect();
    });
    let mut all: Vec<[usize; 3]> = Vec::new();
    for (task, picked) in picks.iter().enumerate() {
        all.extend(picked.iter().map(|&i| [task / classes, task % classes, i]));
    }
    if by_score {
        // Stable too: of equal scores the lower class stays first.
        let score = |[b, c, i]: &[usize; 3]| scores[(b * classes + c) * count + i];
        all.sort_by(|a, b| a[0].cmp(&b[0]).then(falling(score(a), score(b))));
    }
    let mut out = Out::new(cx.pool, DType::I64, &[all.len(), 3], &cx.node.name)?;
    out.elems_mut::<i64>().iter_mut().zip(all.iter().flatten()).for_each(|(y, &x)| *y = x as i64);
    cx.push(out.done());
    Ok(true)
}
