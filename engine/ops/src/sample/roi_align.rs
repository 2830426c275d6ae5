//! `roi_align`: pooling of regions of interest by bilinear sampling.

use crate::util::{PLAIN, REAL, for_each_index, is_real};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ, unify};
use kiln_ir::op::{OpDef, Roles, Tolerance, Traits, attr, choice, input};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::range::IndexRange;
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::{TensorType, dims_text};

/// The most samples that a bin takes along one dimension when their number follows from the region's size.
pub const MAX_SAMPLES: i64 = 1024;

kiln_ir::op_names! {
    ROI_ALIGN = "roi_align",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: ROI_ALIGN,
    doc: "Regions of x [N, C, H, W], giving [R, C, output_height, output_width]. rois [R, 4] are x1, y1, x2, y2 in \
          coordinates that `spatial_scale` takes to elements, less 0.5 with `half_pixel` (without it, regions are at \
          least 1 wide and high); batch_indices [R] (i64 or i32) name their images, one out of range is an error. \
          Every bin takes sampling_ratio² samples at centres of equal cells, or, if that is 0, ⌈region/output⌉ along \
          each dimension, at most 1024. A sample more than 1 outside is 0; others are interpolated between four \
          elements, coordinates clamped. mode avg: the mean of the samples. mode max: the greatest of the four \
          weighted elements of any sample. A bin without samples is 0. Coordinates are computed in f32.",
    inputs: &[input("x"), input("rois"), input("batch_indices")],
    attrs: &[
        choice("mode", || "avg".into(), &["avg", "max"]),
        attr("output_height", || Attr::Int(1)),
        attr("output_width", || Attr::Int(1)),
        attr("sampling_ratio", || Attr::Int(0)),
        attr("spatial_scale", || Attr::Float(1.0)),
        attr("half_pixel", || Attr::Bool(true)),
    ],
    infer,
    eval,
    ranges: Some(|cx| Ok(vec![IndexRange::up_to(2, cx.size(0, 0) - 1)])),
    tolerance: Tolerance::Sampled,
    problems,
    traits: Traits::heavy(|s| {
        let samples = match s.attrs.int("sampling_ratio") {
            Ok(n) if n > 0 => n.unsigned_abs().saturating_mul(n.unsigned_abs()),
            // As many as fit into a region, which may be the whole image.
            _ => s.from_last(0, 0).saturating_mul(s.from_last(0, 1)),
        };
        s.made(0).saturating_mul(samples).saturating_mul(4)
    }),
    roles: Roles { keeps_f32: true, ..Roles::NONE },
    ..PLAIN
}];

/// One dimension of a region: where its bins start, how long they are and how many samples each takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bins {
    /// The start of the first bin, in elements.
    pub start: f32,
    /// The length of a bin.
    pub size: f32,
    /// Samples of a bin.
    pub samples: i64,
}

impl Bins {
    /// Bins of a region, from its ends and the number of bins; `ratio` 0 derives the number of samples.
    pub fn new(from: f32, to: f32, scale: f32, half_pixel: bool, bins: i64, ratio: i64) -> Bins {
        let shift = if half_pixel { 0.5 } else { 0.0 };
        let start = from * scale - shift;
        let length = to * scale - shift - start;
        let length = if half_pixel { length } else { length.max(1.0) };
        let size = length / bins as f32;
        let samples = if ratio > 0 { ratio } else { (size.ceil() as i64).clamp(0, MAX_SAMPLES) };
        Bins { start, size, samples }
    }

    /// The coordinate of sample `i` of bin `bin`.
    pub fn at(self, bin: i64, i: i64) -> f32 {
        self.start + bin as f32 * self.size + (i as f32 + 0.5) * self.size / self.samples as f32
    }
}

/// The two elements around a coordinate and the weight of the second; `None` more than 1 outside the input.
pub fn around(x: f32, size: i64) -> Option<(i64, i64, f32)> {
    if x.is_nan() || x < -1.0 || x > size as f32 || size == 0 {
        return None;
    }
    let x = x.max(0.0);
    let low = x as i64;
    if low >= size - 1 { Some((size - 1, size - 1, 0.0)) } else { Some((low, low + 1, x - low as f32)) }
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_dtype(0, is_real, REAL)?;
    cx.same_dtype(0, 1)?;
    cx.check_dtype(2, |d| matches!(d, DType::I64 | DType::I32), "i64 or i32")?;
    cx.check_rank(0, 4)?;
    cx.check_shape(1, |d| d.len() == 2 && !differ(&d[1], &4.into()), "[R, 4]")?;
    cx.check_rank(2, 1)?;
    let (x, rois, batch) = (cx.ty(0)?, cx.dims(1)?, cx.dims(2)?);
    let regions = unify(&rois[0], &batch[0]).ok_or_else(|| OpError::Mismatch {
        a: dims_text(rois),
        b: dims_text(batch),
        wanted: "there must be one batch index a region".into(),
    })?;
    let size = |name: &str, least: i64| match cx.attrs.int(name)? {
        n if (least..=i64::from(i32::MAX)).contains(&n) => Ok(n),
        n => Err(OpError::Attr {
            name: name.into(),
            found: n.to_string(),
            wanted: format!("{least} or more, below 2³¹"),
        }),
    };
    size("sampling_ratio", 0)?;
    let dims =
        vec![regions, x.dims[1].clone(), size("output_height", 1)?.into(), size("output_width", 1)?.into()];
    Ok(vec![Fact::of(TensorType { dtype: x.dtype, dims })])
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let (x, a) = (cx.input(0)?, cx.attrs());
    let (values, rois, batch) = (x.to_f64(), cx.input(1)?.to_f64(), cx.input(2)?.to_i64());
    let shape = cx.out_shape(0)?;
    let [images, channels, height, width] = [x.shape()[0], x.shape()[1], x.shape()[2], x.shape()[3]];
    let (scale, half, ratio) =
        (a.float("spatial_scale")? as f32, a.bool("half_pixel")?, a.int("sampling_ratio")?);
    let mean = a.str("mode")? == "avg";
    let mut y = vec![0.0; shape.iter().product()];
    for_each_index(&[shape[0], shape[2], shape[3]], |at| {
        let region = &rois[at[0] * 4..][..4];
        let bins = |k: usize, n: usize| {
            Bins::new(region[k] as f32, region[k + 2] as f32, scale, half, n as i64, ratio)
        };
        let Some(image) = usize::try_from(batch[at[0]]).ok().filter(|&i| i < images) else { return };
        let (rows, columns) = (bins(1, shape[2]), bins(0, shape[3]));
        for c in 0..channels {
            let plane = &values[(image * channels + c) * height * width..][..height * width];
            let samples = (0..rows.samples).flat_map(|i| (0..columns.samples).map(move |j| (i, j)));
            let terms = samples.map(|(i, j)| {
                let v = around(rows.at(at[1] as i64, i), height as i64);
                corners(plane, width, v, around(columns.at(at[2] as i64, j), width as i64))
            });
            let out = &mut y[((at[0] * channels + c) * shape[2] + at[1]) * shape[3] + at[2]];
            *out = if mean { average(terms) } else { greatest(terms) };
        }
    });
    Ok(vec![cx.make(0, &shape, Elems::F(y))?])
}

type Around = Option<(i64, i64, f32)>;

/// The four elements around a sample, times their weights.
fn corners(plane: &[f64], width: usize, v: Around, h: Around) -> [f64; 4] {
    let (Some((y0, y1, fy)), Some((x0, x1, fx))) = (v, h) else { return [0.0; 4] };
    let at = |y: i64, x: i64| plane[y as usize * width + x as usize];
    let (fy, fx) = (f64::from(fy), f64::from(fx));
    [
        (1.0 - fy) * (1.0 - fx) * at(y0, x0),
        (1.0 - fy) * fx * at(y0, x1),
        fy * (1.0 - fx) * at(y1, x0),
        fy * fx * at(y1, x1),
    ]
}

fn average(terms: impl Iterator<Item = [f64; 4]>) -> f64 {
    let (sum, n) = terms.fold((0.0, 0), |(s, n), t| (s + t.iter().sum::<f64>(), n + 1));
    if n == 0 { 0.0 } else { sum / f64::from(n) }
}

fn greatest(terms: impl Iterator<Item = [f64; 4]>) -> f64 {
    terms.flatten().reduce(f64::max).unwrap_or(0.0)
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for (label, x, n) in [
        ("regions", [2usize, 3, 9, 11], 5usize),
        ("one element", [1, 2, 1, 1], 3),
        ("no regions", [1, 2, 4, 4], 0),
        ("no channels", [1, 0, 4, 4], 2),
        ("empty image", [1, 2, 0, 4], 2),
    ] {
        for mode in ["avg", "max"] {
            for (ratio, half, t) in [(0i64, true, DType::F32), (2, false, DType::F32), (3, true, DType::F16)]
            {
                let attrs = Attrs::new()
                    .with("mode", mode)
                    .with("output_height", 3i64)
                    .with("output_width", 2i64)
                    .with("sampling_ratio", ratio)
                    .with("spatial_scale", 0.5)
                    .with("half_pixel", half);
                let starts: Vec<f64> = (0..2 * n).map(|_| rng.float(-3.0, 14.0)).collect();
                let rois = (0..n).flat_map(|i| {
                    let (x, y) = (starts[2 * i], starts[2 * i + 1]);
                    [x, y, x + 1.3 + 2.7 * i as f64, y + 9.1 - i as f64]
                });
                let rois = Tensor::from_elems(t, &[n, 4], &Elems::F(rois.collect()));
                let images = rng.tensor_in(DType::I64, &[n], 0.0, 1.0, 0);
                let inputs = [Some(rng.tensor(t, &x)), rois, Some(images)];
                let label = format!("{label} {mode} ratio {ratio} half {half} {t}");
                out.push(Problem::of(&label, "roi_align", attrs, inputs));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, ints, iota, run, run_all};

    fn attrs(mode: &str, out: i64, ratio: i64, half: bool) -> Attrs {
        let a = Attrs::new().with("mode", mode).with("sampling_ratio", ratio).with("half_pixel", half);
        a.with("output_height", out).with("output_width", out)
    }

    fn one(a: Attrs, roi: [f64; 4], image: i64) -> Tensor {
        run("roi_align", a, &[iota(&[1, 1, 4, 4]), f32s(&[1, 4], &roi), ints(DType::I64, &[1], &[image])])
    }

    #[test]
    fn a_plane_is_reproduced_at_the_centres_of_bins() {
        // iota is the plane 4y + x: a mean of samples is its value at the bin's centre.
        let y = one(attrs("avg", 2, 2, false), [0.0, 0.0, 2.0, 2.0], 0);
        assert_near(&y, &[1, 1, 2, 2], &[2.5, 3.5, 6.5, 7.5], 1e-6);
        let y = one(attrs("avg", 2, 0, true), [1.0, 1.0, 3.0, 3.0], 0);
        assert_near(&y, &[1, 1, 2, 2], &[5.0, 6.0, 9.0, 10.0], 1e-6);
    }

    #[test]
    fn the_greatest_weighted_corner() {
        // One sample at (1.5, 1.5), weights 0.25: the greatest corner is element 10.
        let y = one(attrs("max", 1, 1, false), [1.0, 1.0, 2.0, 2.0], 0);
        assert_near(&y, &[1, 1, 1, 1], &[2.5], 0.0);
    }

    #[test]
    fn outside_there_is_nothing() {
        assert_near(&one(attrs("avg", 1, 1, false), [9.0, 9.0, 10.0, 10.0], 0), &[1, 1, 1, 1], &[0.0], 0.0);
        assert_near(&one(attrs("avg", 1, 0, true), [3.0, 3.0, 1.0, 1.0], 0), &[1, 1, 1, 1], &[0.0], 0.0);
        // Just outside, coordinates are clamped to the border.
        assert_near(&one(attrs("avg", 1, 1, false), [-1.0, -1.0, 0.0, 0.0], 0), &[1, 1, 1, 1], &[0.0], 0.0);
        assert_near(&one(attrs("avg", 1, 1, false), [3.0, 3.0, 4.0, 4.0], 0), &[1, 1, 1, 1], &[15.0], 0.0);
    }

    #[test]
    fn huge_regions_take_a_bounded_number_of_samples() {
        assert_eq!(Bins::new(0.0, 1e30, 1.0, true, 1, 0).samples, MAX_SAMPLES);
        assert_eq!(Bins::new(0.0, f32::NAN, 1.0, true, 1, 0).samples, 0);
        let bad = attrs("avg", 0, 0, true);
        let inputs = [iota(&[1, 1, 4, 4]), f32s(&[0, 4], &[]), ints(DType::I64, &[0], &[])].map(Some);
        assert!(run_all("roi_align", bad, &inputs).is_err());
    }
}
