//! `nms`: non-maximum suppression.

use crate::util::{PLAIN, REAL, REALS, is_real};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ};
use kiln_ir::op::{OpDef, Roles, Tolerance, Traits, attr, input, optional};
use kiln_ir::problem::{Problem, Rng, made};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    NMS = "nms",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: NMS,
    doc: "For every batch entry and class, picks boxes by descending score (equal scores: lower index first), leaving out \
          those whose intersection over union with a picked one exceeds `iou`, until `max_out` are picked. boxes are [B, N, \
          4], or [B, N, C, 4] with boxes for each class; scores are [B, C, N]. A box is two opposite corners (y1, x1, y2, x2) \
          or, with center_box, (x, y, width, height) of its centre. Only scores above `score`, if given, take part, NaN \
          never; with topk_limit > 0 only so many of the best. Absent max_out means 0, absent iou 0. Gives i64 [n, 3]: \
          batch entry, class, box, in this order of picking or, with by_score, in each batch entry by descending score.",
    inputs: &[
        input("boxes"),
        input("scores"),
        optional("max_out").on_host(),
        optional("iou").on_host(),
        optional("score").on_host(),
    ],
    outputs: &["indices"],
    attrs: &[
        attr("center_box", || Attr::Bool(false)),
        attr("topk_limit", || Attr::Int(0)),
        attr("by_score", || Attr::Bool(false)),
    ],
    infer,
    eval,
    traits: Traits {
        // Each box of a class is compared with those that were picked before.
        work: Some(|s| s.volume(1).saturating_mul(s.from_last(1, 0))),
        ..Traits::DATA_DEPENDENT
    },
    tolerance: Tolerance::Exact,
    problems,
    roles: Roles { keeps_f32: true, ..Roles::NONE },
    ..PLAIN
}];

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_dtype(0, is_real, REAL)?;
    cx.same_dtype(0, 1)?;
    cx.check_rank(1, 3)?;
    let s = cx.dims(1)?;
    let fits = |d: &[Dim]| match d {
        [b, n, four] => !differ(b, &s[0]) && !differ(n, &s[2]) && !differ(four, &4.into()),
        [b, n, c, four] => {
            !differ(b, &s[0]) && !differ(n, &s[2]) && !differ(c, &s[1]) && !differ(four, &4.into())
        }
        _ => false,
    };
    cx.check_shape(0, fits, &format!("[{},{},4] or [{},{},{},4]", s[0], s[2], s[0], s[2], s[1]))?;
    for i in 2..cx.len().min(5) {
        if cx.has(i) {
            let (allowed, wanted): (fn(DType) -> bool, _) = match i {
                2 => (|d| matches!(d, DType::I32 | DType::I64), "i32 or i64"),
                _ => (DType::is_float, REAL),
            };
            cx.check_dtype(i, allowed, wanted)?;
            cx.check_shape(i, |d| d.iter().all(|d| d.as_const().is_none_or(|n| n == 1)), "one element")?;
        }
    }
    let most = match cx.contents(2).as_deref() {
        _ if !cx.has(2) => Dim::new(0),
        Some([n]) if !n.has_content() => n.max_with(&0.into()).min_with(&s[2]),
        _ => s[2].clone(),
    };
    let bound = s[0].clone() * s[1].clone() * most;
    let dims = vec![cx.fresh_device("n", Some(bound)), 3.into()];
    Ok(vec![Fact::of(TensorType { dtype: DType::I64, dims })])
}

/// A box by its least and greatest coordinates.
struct Rect {
    x: (f64, f64),
    y: (f64, f64),
}

impl Rect {
    fn new(b: &[f64], center: bool) -> Rect {
        let sorted = |a: f64, b: f64| (a.min(b), a.max(b));
        let around = |middle: f64, size: f64| (middle - size / 2.0, middle + size / 2.0);
        match center {
            true => Rect { x: around(b[0], b[2]), y: around(b[1], b[3]) },
            false => Rect { x: sorted(b[1], b[3]), y: sorted(b[0], b[2]) },
        }
    }

    fn area(&self) -> f64 {
        (self.x.1 - self.x.0) * (self.y.1 - self.y.0)
    }

    /// Whether they overlap by more than `iou`. Boxes without area overlap nothing.
    fn overlaps(&self, o: &Rect, iou: f64) -> bool {
        let width = self.x.1.min(o.x.1) - self.x.0.max(o.x.0);
        let height = self.y.1.min(o.y.1) - self.y.0.max(o.y.0);
        if !(width > 0.0 && height > 0.0 && self.area() > 0.0 && o.area() > 0.0) {
            return false;
        }
        let both = width * height;
        both / (self.area() + o.area() - both) > iou
    }
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let (boxes, scores) = (cx.input(0)?, cx.input(1)?);
    let &[batch, classes, count] = scores.shape() else {
        return Err(OpError::Value(format!("scores of shape {:?}", scores.shape())));
    };
    let own_boxes = boxes.shape().len() == 4;
    let center = cx.attrs().bool("center_box")?;
    let limit = |n: i64| usize::try_from(n).unwrap_or(0);
    let max_out = limit(cx.get(2).and_then(Tensor::scalar_i64).unwrap_or(0));
    let topk = limit(cx.attrs().int("topk_limit")?);
    let iou = cx.get(3).and_then(Tensor::scalar_f64).unwrap_or(0.0);
    let least = cx.get(4).and_then(Tensor::scalar_f64);
    let (v, s) = (boxes.to_f64(), scores.to_f64());
    let mut out = Vec::new();
    for (b, c) in (0..batch).flat_map(|b| (0..classes).map(move |c| (b, c))) {
        let rect = |i: usize| {
            let at = if own_boxes { (b * count + i) * classes + c } else { b * count + i };
            Rect::new(&v[at * 4..at * 4 + 4], center)
        };
        let own = &s[(b * classes + c) * count..][..count];
        let takes_part = |x: f64| !x.is_nan() && least.is_none_or(|t| x > t);
        let mut candidates: Vec<usize> = (0..count).filter(|&i| takes_part(own[i])).collect();
        // The sort is stable, so that of equal scores (of both zeros, too) the lower index stays first.
        candidates.sort_by(|&i, &j| own[j].partial_cmp(&own[i]).unwrap_or(std::cmp::Ordering::Equal));
        candidates.truncate(if topk > 0 { topk } else { count });
        let mut picked: Vec<Rect> = Vec::new();
        for i in candidates {
            let r = rect(i);
            if picked.len() < max_out && !picked.iter().any(|p| p.overlaps(&r, iou)) {
                picked.push(r);
                out.push(([b as i64, c as i64, i as i64], own[i]));
            }
        }
    }
    if cx.attrs().bool("by_score")? {
        // Stable too: of equal scores the lower class stays first.
        let falling = |x: f64, y: f64| y.partial_cmp(&x).unwrap_or(std::cmp::Ordering::Equal);
        out.sort_by(|(a, x), (b, y)| a[0].cmp(&b[0]).then(falling(*x, *y)));
    }
    let picks: Vec<i64> = out.iter().flat_map(|(pick, _)| *pick).collect();
    Ok(vec![cx.make(0, &[out.len(), 3], Elems::I(picks))?])
}

/// Boxes on a coarse grid and scores in steps that every type holds, so that no rounding moves a comparison.
fn problems(rng: &mut Rng) -> Vec<Problem> {
    let cases: &[(&str, [usize; 3], i64, Option<f32>, bool, bool, i64)] = &[
        ("odd sizes", [2, 3, 17], 5, None, false, false, 0),
        ("score threshold", [1, 2, 33], 40, Some(0.3), false, false, 0),
        ("centres, top 7", [2, 1, 29], 9, Some(0.1), true, false, 7),
        ("boxes for each class", [2, 3, 11], 4, None, false, true, 0),
        ("nothing wanted", [1, 1, 5], 0, None, false, false, 0),
        ("no boxes", [1, 2, 0], 3, None, false, false, 0),
        ("larger", [1, 2, 300], 50, Some(0.2), false, false, 0),
        ("many boxes", [1, 1, 2500], 12, None, false, false, 0),
        ("top 100 of many boxes", [2, 1, 2500], 40, Some(0.3), false, false, 100),
        ("picks by score", [2, 3, 40], 6, Some(0.1), false, false, 0),
    ];
    let mut out = Vec::new();
    for &(label, [b, c, n], most, score, center, own, topk) in cases {
        for t in REALS {
            let shape = if own { vec![b, n, c, 4] } else { vec![b, n, 4] };
            let mut draw = |shape: &[usize], lo: i64, hi: i64, unit: f64| {
                let count: usize = shape.iter().product();
                let v = (0..count).map(|_| rng.int(lo, hi) as f64 * unit).collect();
                Some(made(Tensor::from_elems(t, shape, &Elems::F(v))))
            };
            let ins = [
                draw(&shape, 1, 12, 0.5),
                draw(&[b, c, n], 0, 255, 1.0 / 256.0),
                Some(made(Tensor::i64(&[], &[most]))),
                Some(made(Tensor::f32(&[], &[0.3]))),
                score.map(|s| made(Tensor::f32(&[1], &[s]))),
            ];
            let by_score = label.ends_with("by score");
            let attrs =
                Attrs::new().with("center_box", center).with("topk_limit", topk).with("by_score", by_score);
            out.push(Problem::of(&format!("{label} {t}"), "nms", attrs, ins));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{f32s, infer, ints, run_all};

    const CORNERS: [f64; 24] = [
        0.0, 0.0, 1.0, 1.0, 0.0, 0.1, 1.0, 1.1, 0.0, -0.1, 1.0, 0.9, 0.0, 10.0, 1.0, 11.0, 0.0, 10.1, 1.0,
        11.1, 0.0, 100.0, 1.0, 101.0,
    ];
    const SCORES: [f64; 6] = [0.9, 0.75, 0.6, 0.95, 0.5, 0.3];

    fn nms(attrs: Attrs, boxes: &[f64], scores: &[f64], most: i64, score: Option<f64>) -> Vec<i64> {
        let n = scores.len();
        let ins = [
            Some(f32s(&[1, n, 4], boxes)),
            Some(f32s(&[1, 1, n], scores)),
            Some(ints(DType::I64, &[1], &[most])),
            Some(f32s(&[1], &[0.5])),
            score.map(|s| f32s(&[], &[s])),
        ];
        let y = run_all("nms", attrs, &ins).unwrap().swap_remove(0);
        assert_eq!(y.shape()[1], 3);
        y.to_i64().chunks(3).map(|c| c[2]).collect()
    }

    #[test]
    fn overlapping_boxes_give_way_to_better_ones() {
        assert_eq!(nms(Attrs::new(), &CORNERS, &SCORES, 3, None), [3, 0, 5]);
        assert_eq!(nms(Attrs::new(), &CORNERS, &SCORES, 2, None), [3, 0]);
        assert_eq!(nms(Attrs::new(), &CORNERS, &SCORES, 3, Some(0.4)), [3, 0]);
        assert_eq!(nms(Attrs::new(), &CORNERS, &SCORES, 0, None), [0i64; 0]);
        let flipped: Vec<f64> = CORNERS.chunks(4).flat_map(|c| [c[2], c[3], c[0], c[1]]).collect();
        assert_eq!(nms(Attrs::new(), &flipped, &SCORES, 3, None), [3, 0, 5]);
        assert_eq!(nms(Attrs::new().with("topk_limit", 2i64), &CORNERS, &SCORES, 3, None), [3, 0]);
    }

    #[test]
    fn centres_ties_and_nan() {
        let centers = [0.5, 0.5, 1.0, 1.0, 0.5, 0.6, 1.0, 1.0, 9.0, 0.5, 1.0, 1.0];
        let center = Attrs::new().with("center_box", true);
        assert_eq!(nms(center.clone(), &centers, &[0.5, 0.5, 0.5], 9, None), [0, 2]);
        assert_eq!(nms(center, &centers, &[f64::NAN, 0.5, 0.6], 9, None), [2, 1]);
    }

    #[test]
    fn every_class_and_batch_entry_for_itself() {
        let boxes = f32s(&[2, 1, 4], &[0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]);
        let ins = [Some(boxes), Some(f32s(&[2, 2, 1], &[0.5; 4])), Some(ints(DType::I32, &[], &[1]))];
        let y = run_all("nms", Attrs::new(), &ins).unwrap();
        assert_eq!(y[0].to_i64(), [0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 1, 0]);
    }

    #[test]
    fn the_number_of_picks_is_bounded() {
        let b = Dim::host("b");
        let ins = [
            (DType::F32, vec![b.clone(), 100.into(), 4.into()]),
            (DType::F32, vec![b.clone(), 3.into(), 100.into()]),
        ];
        let out =
            infer("nms", Attrs::new(), &[ins[0].clone(), ins[1].clone(), (DType::I64, vec![])]).unwrap();
        assert_eq!(out[0].ty.dims[0].upper_bound(), Some(b * 300.into()));
        let bad = [ins[0].clone(), (DType::F32, vec![2.into(), 3.into(), 99.into()])];
        assert!(infer("nms", Attrs::new(), &bad).unwrap_err().to_string().contains("99,4]"));
    }
}
