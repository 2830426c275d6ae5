//! `grid_sample`, `affine_grid`: sampling at given places, and places that are affine images of a grid.

mod affine;
#[cfg(test)]
mod tests;

use crate::sample::{self, Interpolation, Padding};
use crate::util::{PLAIN, REAL, for_each_index, is_real};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, unify};
use kiln_ir::op::{AttrDef, OpDef, Roles, Tolerance, Traits, attr, choice, input};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::{TensorType, dims_text};

const ALIGN_CORNERS: AttrDef = attr("align_corners", || Attr::Bool(false));

kiln_ir::op_names! {
    GRID_SAMPLE = "grid_sample",
    AFFINE_GRID = "affine_grid",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: GRID_SAMPLE,
        doc: "x [N, C, ..] sampled at grid [N, out.., r], giving [N, C, out..], for r = one to three spatial \
              dimensions. The last dimension of grid holds coordinates of the innermost dimension first, normalized \
              to −1..1 (centres of the outer elements with `align_corners`, else their outer edges; NaN counts as \
              −1). mode: linear, nearest (ties to the even element) or cubic (a = −0.75). padding, for what lies \
              outside: zeros, border or reflection. Coordinates are computed in f32.",
        inputs: &[input("x"), input("grid")],
        attrs: &[
            choice("mode", || "linear".into(), &["linear", "nearest", "cubic"]),
            choice("padding", || "zeros".into(), &["zeros", "border", "reflection"]),
            ALIGN_CORNERS,
        ],
        infer,
        eval,
        tolerance: Tolerance::ByAttrs(sample::tolerance),
        problems,
        traits: Traits::heavy(|s| {
            let taps: u64 = if s.attrs.str("mode").is_ok_and(|m| m == "cubic") { 4 } else { 2 };
            s.made(0).saturating_mul(taps.saturating_pow(s.from_last(1, 0).min(3) as u32))
        }),
        roles: Roles { keeps_f32: true, ..Roles::NONE },
        ..PLAIN
    },
    OpDef {
        name: AFFINE_GRID,
        doc: "A sampling grid: theta [N, r, r+1] applied to the points (x, y, 1) or (x, y, z, 1) of an evenly spaced \
              grid over −1..1 (ends included with `align_corners`, else centres of equal cells; a single point with \
              `align_corners` is at −1), giving [N, H, W, 2] or [N, D, H, W, 3]. size is [N, C, H, W] or [N, C, D, \
              H, W].",
        inputs: &[input("theta"), input("size").on_host()],
        attrs: &[ALIGN_CORNERS],
        infer: affine::infer,
        eval: affine::eval,
        tolerance: Tolerance::Conditioned,
        problems: affine::problems,
        roles: Roles { keeps_f32: true, ..Roles::NONE },
        ..PLAIN
    },
];

/// Settings of a `grid_sample`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sampler {
    /// Interpolation between elements.
    pub how: Interpolation,
    /// Outside the input.
    pub padding: Padding,
    /// Whether −1 and 1 are centres of elements.
    pub align_corners: bool,
}

impl Sampler {
    /// Reads the settings from the attributes of a `grid_sample`.
    pub fn of(attrs: &Attrs) -> Result<Sampler, OpError> {
        let how = match attrs.str("mode")? {
            "nearest" => Interpolation::Nearest,
            "cubic" => Interpolation::Cubic,
            _ => Interpolation::Linear,
        };
        let padding = match attrs.str("padding")? {
            "border" => Padding::Border,
            "reflection" => Padding::Reflection,
            _ => Padding::Zeros,
        };
        Ok(Sampler { how, padding, align_corners: attrs.bool("align_corners")? })
    }

    /// Elements (`None`: zero) and weights for a normalized coordinate of a dimension of this size. A coordinate is
    /// rounded, with mode nearest, before it is brought inside. With mode cubic and padding border each tap is brought
    /// inside, not the coordinate.
    pub fn taps(self, n: f32, size: i64) -> Vec<(Option<i64>, f64)> {
        let mut x = sample::unnormalize(n, size, self.align_corners);
        if self.how == Interpolation::Nearest {
            x = x.round_ties_even();
        }
        let x = match (self.how, self.padding) {
            // Taps beyond the border read its element, so that the weights are those of the coordinate as it is; from
            // two elements outside on, all taps do.
            (Interpolation::Cubic, Padding::Border) => x.clamp(-2.0, size as f32 + 1.0),
            _ => sample::bring_inside(x, size, self.padding, self.align_corners),
        };
        let element = |i| sample::element(i, size, self.padding, self.align_corners);
        sample::taps(self.how, x).into_iter().map(|(i, w)| (element(i), w)).collect()
    }
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_dtype(0, is_real, REAL)?;
    cx.check_dtype(1, is_real, REAL)?;
    cx.check_shape(0, |d| (3..=5).contains(&d.len()), "[N, C, ..] with one to three spatial dimensions")?;
    let (x, grid) = (cx.ty(0)?, cx.dims(1)?);
    cx.check_rank(1, x.rank())?;
    let r = x.rank() as i64 - 2;
    if grid[grid.len() - 1].as_const().is_some_and(|n| n != r) {
        return Err(cx.bad_shape(1, &format!("{r} coordinates in the last dimension")));
    }
    let batch = unify(&x.dims[0], &grid[0]).ok_or_else(|| OpError::Mismatch {
        a: dims_text(&x.dims),
        b: dims_text(grid),
        wanted: "x and grid must have the same batch size".into(),
    })?;
    let mut dims = vec![batch, x.dims[1].clone()];
    dims.extend_from_slice(&grid[1..grid.len() - 1]);
    Ok(vec![Fact::of(TensorType { dtype: x.dtype, dims })])
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let (x, grid) = (cx.input(0)?, cx.input(1)?);
    let sampler = Sampler::of(cx.attrs())?;
    let shape = cx.out_shape(0)?;
    let (values, places) = (x.to_f64(), grid.to_f64());
    let spatial = &x.shape()[2..];
    let (r, volume) = (spatial.len(), spatial.iter().product::<usize>());
    let points: usize = shape[2..].iter().product();
    let mut y = vec![0.0; shape.iter().product()];
    for_each_index(&[shape[0], points], |at| {
        let place = &places[(at[0] * points + at[1]) * r..][..r];
        let taps: Vec<_> = (0..r).map(|d| sampler.taps(place[r - 1 - d] as f32, spatial[d] as i64)).collect();
        for c in 0..shape[1] {
            let plane = at[0] * shape[1] + c;
            let out = &mut y[plane * points + at[1]];
            sample::for_each_combination(&taps, spatial, |p, w| *out += w * values[plane * volume + p]);
        }
    });
    Ok(vec![cx.make(0, &shape, Elems::F(y))?])
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let shapes: &[(&str, &[usize], &[usize])] = &[
        ("2-D", &[2, 3, 5, 4], &[2, 3, 6, 2]),
        ("1-D", &[1, 2, 7], &[1, 9, 1]),
        ("3-D", &[1, 2, 3, 4, 5], &[1, 2, 3, 4, 3]),
        ("many channels", &[2, 19, 5, 4], &[2, 4, 5, 2]),
        ("one element", &[1, 1, 1, 1], &[1, 3, 3, 2]),
        ("batch 0", &[0, 3, 4, 4], &[0, 2, 2, 2]),
        ("empty grid", &[1, 2, 4, 4], &[1, 0, 2, 2]),
    ];
    let mut out = Vec::new();
    for &(label, x, grid) in shapes {
        for mode in ["linear", "nearest", "cubic"] {
            for padding in ["zeros", "border", "reflection"] {
                for align in [false, true] {
                    let attrs = || {
                        let a = Attrs::new().with("mode", mode).with("padding", padding);
                        a.with("align_corners", align)
                    };
                    let types = if label == "2-D" { &[DType::F32, DType::F16][..] } else { &[DType::F32] };
                    for &t in types {
                        // Places up to half an input outside; off the ties of the nearest element.
                        let inputs = [rng.tensor(t, x), rng.tensor_in(t, grid, -1.87, 1.93, 1)].map(Some);
                        let label = format!("{label} {mode} {padding} align {align} {t}");
                        out.push(Problem::of(&label, "grid_sample", attrs(), inputs));
                    }
                }
            }
        }
    }
    out
}
