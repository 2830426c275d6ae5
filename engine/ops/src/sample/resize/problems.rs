//! Test problems of `resize`.

use kiln_ir::attr::Attrs;
use kiln_ir::dtype::DType;
use kiln_ir::problem::{Problem, Rng, made};
use kiln_ir::tensor::Tensor;

struct Case {
    label: &'static str,
    x: &'static [usize],
    axes: &'static [i64],
    scales: &'static [f32],
    sizes: &'static [i64],
    policy: &'static str,
}

const BASE: Case =
    Case { label: "", x: &[2, 3, 5, 6], axes: &[2, 3], scales: &[], sizes: &[], policy: "stretch" };

const CASES: &[Case] = &[
    Case { label: "twice as large", scales: &[2.0, 2.0], ..BASE },
    Case { label: "smaller by a fraction", scales: &[0.6, 0.7], ..BASE },
    Case { label: "larger and smaller", sizes: &[11, 4], ..BASE },
    Case { label: "long lines of vectors", x: &[2, 9, 3, 40], sizes: &[5, 328], ..BASE },
    Case { label: "long odd lines", x: &[2, 3, 3, 37], sizes: &[5, 301], ..BASE },
    Case {
        label: "few channels last, large factors",
        x: &[2, 4, 5, 5],
        axes: &[1, 2],
        sizes: &[13, 41],
        ..BASE
    },
    Case { label: "to one element", sizes: &[1, 1], ..BASE },
    Case { label: "from one element", x: &[1, 2, 1, 1], sizes: &[3, 4], ..BASE },
    Case { label: "axes in reverse", axes: &[-1, 2], sizes: &[4, 9], ..BASE },
    Case { label: "not larger", sizes: &[9, 7], policy: "not_larger", ..BASE },
    Case { label: "not smaller", sizes: &[9, 7], policy: "not_smaller", ..BASE },
    Case { label: "all axes", x: &[1, 2, 4, 3], axes: &[], scales: &[1.0, 1.0, 1.5, 3.0], ..BASE },
    Case { label: "1-D", x: &[1, 3, 9], axes: &[2], scales: &[1.7], ..BASE },
    Case { label: "3-D", x: &[1, 2, 3, 4, 3], axes: &[2, 3, 4], sizes: &[5, 3, 4], ..BASE },
    Case { label: "rows of vectors", x: &[3, 2, 5, 8], scales: &[2.0, 2.0], ..BASE },
    Case { label: "channels last", x: &[2, 4, 3, 16], axes: &[1, 2], scales: &[2.0, 1.5], ..BASE },
    Case { label: "axes apart", x: &[2, 4, 3, 5], axes: &[1, 3], sizes: &[6, 8], ..BASE },
    Case { label: "batch 0", x: &[0, 3, 4, 4], sizes: &[2, 7], ..BASE },
    Case { label: "to nothing", sizes: &[0, 7], ..BASE },
];

fn make(rng: &mut Rng, c: &Case, label: &str, attrs: Attrs, t: DType) -> Problem {
    let n = if c.axes.is_empty() { c.x.len() } else { c.axes.len() };
    let attrs = attrs.with("axes", c.axes).with("policy", c.policy);
    // Regions that leave the input on both sides, or only at its end.
    let roi: Vec<f32> = (0..2 * n).map(|i| if i < n { 0.15 - 0.2 * (i % 2) as f32 } else { 1.1 }).collect();
    let crop = attrs.str("coord") == Ok("tf_crop_and_resize");
    let roi = if crop { Some(made(Tensor::f32(&[2 * n], &roi))) } else { None };
    let scales =
        if c.scales.is_empty() { None } else { Some(made(Tensor::f32(&[c.scales.len()], c.scales))) };
    let sizes = (!c.sizes.is_empty()).then(|| rng.i64s(&[c.sizes.len()], c.sizes));
    let inputs = [Some(rng.tensor(t, c.x)), roi, scales, sizes];
    Problem::of(&format!("{} {label} {t}", c.label), "resize", attrs, inputs)
}

/// Every case in every mode and with every mapping of coordinates; options and types on the first few.
pub fn problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for c in CASES {
        for mode in ["nearest", "linear", "cubic"] {
            for coord in super::coord::Coord::NAMES {
                let attrs = Attrs::new().with("mode", mode).with("coord", *coord).with("extrapolation", 10.0);
                out.push(make(rng, c, &format!("{mode} {coord}"), attrs, DType::F32));
            }
        }
    }
    for c in &CASES[..3] {
        for rounding in super::coord::Rounding::NAMES {
            for coord in ["half_pixel", "asymmetric"] {
                let attrs = Attrs::new().with("nearest_mode", *rounding).with("coord", coord);
                out.push(make(rng, c, &format!("{rounding} {coord}"), attrs, DType::F32));
            }
        }
        for mode in ["linear", "cubic"] {
            for (antialias, exclude) in [(true, false), (false, true), (true, true)] {
                let attrs = Attrs::new()
                    .with("mode", mode)
                    .with("antialias", antialias)
                    .with("exclude_outside", exclude)
                    .with("cubic_a", -0.5);
                let label = format!("{mode} antialias {antialias} exclude {exclude}");
                out.push(make(rng, c, &label, attrs, DType::F32));
            }
        }
    }
    for c in &CASES[..6] {
        for t in [DType::I8, DType::U8] {
            for mode in ["linear", "cubic"] {
                let attrs = Attrs::new().with("mode", mode).with("to_f32", true);
                out.push(make(rng, c, &format!("{mode} to f32"), attrs, t));
            }
        }
        for t in [DType::F16, DType::BF16, DType::I8, DType::U8, DType::I32] {
            for mode in ["nearest", "linear", "cubic"] {
                out.push(make(rng, c, mode, Attrs::new().with("mode", mode), t));
            }
        }
    }
    out
}
