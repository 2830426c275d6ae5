//! Error models: the interval of each element of an operator's results.

use super::interval::Interval;
use super::units::{eps, ulp};
use super::{Latitude, pointwise, values};
use kiln_ir::expr::Num;
use kiln_ir::op::Tolerance;
use kiln_ir::problem::Rng;
use kiln_ir::{DType, Elems, Op, Tensor};

/// Runs of the oracle with inputs that are off by a rounding, to see what that changes.
const DISTURBED_RUNS: u64 = 4;

/// The intervals of all outputs, for results of the oracle.
pub fn intervals(
    op: &Op,
    inputs: &[Option<Tensor>],
    wanted: &[Tensor],
    latitude: Latitude,
) -> Result<Vec<Vec<Interval>>, String> {
    let e32 = eps(DType::F32);
    let per_output = |error: &dyn Fn(usize, usize, f64) -> f64| {
        let each = |(i, t): (usize, &Tensor)| around(t, |at, x| error(i, at, x));
        wanted.iter().enumerate().map(each).collect()
    };
    Ok(match op.tolerance() {
        Tolerance::Elementwise | Tolerance::Transcendental if op.def().expr.is_some() => {
            vec![pointwise::intervals(op, inputs, &wanted[0])?]
        }
        Tolerance::Exact | Tolerance::ByAttrs(_) => per_output(&|_, _, _| 0.0),
        Tolerance::Elementwise | Tolerance::Transcendental | Tolerance::Generated => {
            let most: Vec<f64> = wanted.iter().map(|t| greatest(&values(t))).collect();
            per_output(&|i, _, x| 16.0 * ulp(x, DType::F32) + 8.0 * e32 * most[i])
        }
        Tolerance::Sum => {
            let sums = Sums::new(op, inputs, latitude);
            per_output(&|i, at, x| sums.error(i, at, x))
        }
        Tolerance::Sampled => {
            let image = inputs.first().and_then(Option::as_ref);
            let extent = image.and_then(|t| t.shape().iter().max().copied()).unwrap_or(1) as f64;
            let inside = image.map_or(0.0, |t| greatest(&values(t)));
            let most: Vec<f64> = wanted.iter().map(|t| inside.max(greatest(&values(t)))).collect();
            let mut all: Vec<Vec<Interval>> = per_output(&|i, _, _| e32 * (16.0 + extent) * most[i]);
            // A sum that is rounded to an integer may lie on either side of a tie.
            for x in all.iter_mut().flatten() {
                if let Interval::Int(lo, hi) = x {
                    (*lo, *hi) = (lo.saturating_sub(1), hi.saturating_add(1));
                }
            }
            all
        }
        Tolerance::Conditioned => {
            let spread = Spread::new(op, inputs, wanted, DType::F32);
            per_output(&|i, at, x| spread.error(i, at, x))
        }
        Tolerance::Transform => {
            let spread = Spread::new(op, inputs, wanted, DType::F32);
            let most: Vec<f64> = wanted.iter().map(|t| greatest(&values(t))).collect();
            per_output(&|i, at, x| spread.error(i, at, x) + 8.0 * e32 * most[i])
        }
        Tolerance::Narrow => {
            let spread = Spread::new(op, inputs, wanted, narrowest(inputs));
            per_output(&|i, at, x| spread.error(i, at, x))
        }
    })
}

/// Intervals around the elements of a tensor, the last rounding of narrow types included.
fn around(t: &Tensor, error: impl Fn(usize, f64) -> f64) -> Vec<Interval> {
    let last = if t.dtype() == DType::F32 { 0.0 } else { 1.01 };
    let one = |(at, x): (usize, Num)| match x {
        Num::F(v) => match error(at, v) {
            0.0 => Interval::exactly(x),
            e => Interval::around(x, e + last * ulp(v, t.dtype()), t.dtype()),
        },
        Num::I(_) => Interval::exactly(x),
    };
    values(t).into_iter().enumerate().map(one).collect()
}

/// The greatest finite magnitude.
pub fn greatest(values: &[Num]) -> f64 {
    let float = |x: &Num| if let Num::F(x) = x { x.abs() } else { 0.0 };
    values.iter().map(float).filter(|x| x.is_finite()).fold(0.0, f64::max)
}

/// The narrowest float type among the inputs.
fn narrowest(inputs: &[Option<Tensor>]) -> DType {
    let floats = inputs.iter().flatten().map(Tensor::dtype).filter(|t| t.is_float());
    floats.max_by(|a, b| eps(*a).total_cmp(&eps(*b))).unwrap_or(DType::F32)
}

/// Number of elements of the largest float input.
fn longest(inputs: &[Option<Tensor>]) -> usize {
    inputs.iter().flatten().filter(|t| t.dtype().is_float()).map(Tensor::len).max().unwrap_or(1)
}

/// The inputs with each element of float data changed by `f`; narrow types are widened to f32. Inputs that the host
/// reads stay as they are.
fn changed(op: &Op, inputs: &[Option<Tensor>], mut f: impl FnMut(f64) -> f64) -> Vec<Option<Tensor>> {
    let one = |(i, t): (usize, &Option<Tensor>)| {
        let t = t.as_ref()?;
        let host = op.port(i).is_some_and(|p| p.host);
        match t.elems() {
            Elems::F(v) if !host => {
                let v = v.into_iter().map(&mut f).collect();
                Tensor::from_elems(DType::F32, t.shape(), &Elems::F(v))
            }
            _ => Some(t.clone()),
        }
    };
    inputs.iter().enumerate().map(one).collect()
}

/// The oracle's results as floats, of inputs that are widened; empty where the operator does not take these types.
fn floats(op: &Op, inputs: &[Option<Tensor>]) -> Vec<Vec<f64>> {
    op.eval(inputs).map(|all| all.iter().map(Tensor::to_f64).collect()).unwrap_or_default()
}

/// The last place of sums of [`Latitude::short_sums`], relative to the greatest term.
const SHORT: f64 = 1.0 / 8192.0;

/// Error bounds of sums: eps·(8 + √k)·Σ|aᵢbᵢ| for k terms.
struct Sums {
    eps: f64,
    magnitudes: Vec<Vec<f64>>,
    terms: Vec<Vec<f64>>,
    longest: usize,
}

impl Sums {
    fn new(op: &Op, inputs: &[Option<Tensor>], latitude: Latitude) -> Sums {
        let short = inputs.iter().flatten().any(|t| t.dtype() == DType::F8E4M3) && latitude.short_sums;
        Sums {
            eps: if short { SHORT } else { eps(DType::F32) },
            magnitudes: floats(op, &changed(op, inputs, f64::abs)),
            terms: floats(op, &changed(op, inputs, |_| 1.0)),
            longest: longest(inputs),
        }
    }

    fn error(&self, output: usize, at: usize, wanted: f64) -> f64 {
        let read =
            |of: &[Vec<f64>]| of.get(output).and_then(|v| v.get(at)).copied().filter(|x| x.is_finite());
        let magnitude = read(&self.magnitudes).unwrap_or(0.0).abs().max(wanted.abs());
        let outputs = self.magnitudes.get(output).map_or(1, Vec::len).max(1);
        let terms = read(&self.terms).unwrap_or(0.0).abs().max((self.longest / outputs) as f64);
        self.eps * (8.0 + terms.clamp(1.0, 65536.0).sqrt()) * magnitude
    }
}

/// The greatest change of each result when every input is off by a rounding, and the bounds that follow from it.
struct Spread {
    changes: Vec<Vec<f64>>,
    /// The type that intermediate results may be rounded to.
    inner: DType,
    roundings: f64,
}

impl Spread {
    fn new(op: &Op, inputs: &[Option<Tensor>], wanted: &[Tensor], inner: DType) -> Spread {
        let base = floats(op, &changed(op, inputs, |x| x));
        let mut changes: Vec<Vec<f64>> = wanted.iter().map(|t| vec![0.0; t.len()]).collect();
        for run in 0..DISTURBED_RUNS {
            let mut rng = Rng::new(run + 1);
            let off = floats(op, &changed(op, inputs, |x| x * (1.0 + eps(inner) * direction(&mut rng))));
            for (change, (a, b)) in changes.iter_mut().zip(base.iter().zip(&off)) {
                for (c, (a, b)) in change.iter_mut().zip(a.iter().zip(b)) {
                    *c = Some((a - b).abs()).filter(|d| d.is_finite()).unwrap_or(0.0).max(*c);
                }
            }
        }
        let roundings = (longest(inputs).clamp(1, 65536) as f64).sqrt();
        Spread { changes, inner, roundings }
    }

    fn error(&self, output: usize, at: usize, wanted: f64) -> f64 {
        let change = self.changes.get(output).and_then(|v| v.get(at)).copied().unwrap_or(0.0);
        let own = eps(DType::F32) * (8.0 + self.roundings) * wanted.abs();
        match self.inner {
            DType::F32 => (16.0 + self.roundings) * change + own,
            narrow => 4.0 * change + 2.0 * eps(narrow) * wanted.abs() + own,
        }
    }
}

/// A random factor of −1 to −0.5 or 0.5 to 1: never so small that a change does not show, and never equal for two
/// elements, so that changes do not cancel.
fn direction(rng: &mut Rng) -> f64 {
    let size = rng.float(0.5, 1.0);
    if rng.bits() & 1 == 0 { size } else { -size }
}
