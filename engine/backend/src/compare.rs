//! How closely a backend has to agree with the oracle: the one table of tolerances, and the distance in units in the
//! last place.

use kiln_ir::op::Tolerance;
use kiln_ir::{DType, Elems, Op, Tensor};

/// What a device may do that the oracle does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latitude {
    /// Subnormal f32 values, read or written, may be taken as zero.
    pub flush: bool,
}

/// The relative spacing of a float type: one unit in the last place of 1.
pub fn eps(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        DType::F8E4M3 => 2f64.powi(-3),
        _ => 2f64.powi(-23),
    }
}

/// The least normal magnitude of a float type.
fn least_normal(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-14),
        DType::F8E4M3 => 2f64.powi(-6),
        _ => 2f64.powi(-126),
    }
}

/// One unit in the last place of `x` in a float type.
pub fn ulp(x: f64, dtype: DType) -> f64 {
    let a = x.abs().max(least_normal(dtype));
    if a.is_finite() { 2f64.powi(a.log2().floor() as i32) * eps(dtype) } else { 0.0 }
}

/// `|a − b|` in units in the last place of the greater; 0 for equal infinities and two NaNs, infinite where only one
/// of them is NaN.
pub fn ulp_distance(a: f64, b: f64, dtype: DType) -> f64 {
    if a == b || (a.is_nan() && b.is_nan()) {
        return 0.0;
    }
    let d = (a - b).abs() / ulp(a.abs().max(b.abs()), dtype);
    if d.is_nan() { f64::INFINITY } else { d }
}

/// Compares what a device computed for `op` with the oracle's results for the same inputs, every output under the
/// operator's tolerance. The error names the first element that is off.
pub fn check(op: &Op, inputs: &[Option<Tensor>], found: &[Tensor], latitude: Latitude) -> Result<(), String> {
    let oracle = |ins: &[Option<Tensor>]| op.eval(ins).map_err(|e| format!("the oracle fails: {e}"));
    let wanted = oracle(inputs)?;
    if wanted.len() != found.len() {
        return Err(format!("{} outputs, wants {}", found.len(), wanted.len()));
    }
    let flushed: Vec<_> = inputs.iter().map(|t| t.as_ref().map(flush)).collect();
    let other = if latitude.flush && flushed != inputs { oracle(&flushed)? } else { Vec::new() };
    let scale = Scale::of(op, inputs);
    for (i, (w, f)) in wanted.iter().zip(found).enumerate() {
        tensors(w, other.get(i), f, &scale, i).map_err(|e| format!("output {i}: {e}"))?;
    }
    Ok(())
}

/// Compares two results of one operator without running the oracle again: of two backends, or of two tactics.
pub fn check_pair(
    op: &Op,
    inputs: &[Option<Tensor>],
    wanted: &[Tensor],
    found: &[Tensor],
) -> Result<(), String> {
    if wanted.len() != found.len() {
        return Err(format!("{} outputs, wants {}", found.len(), wanted.len()));
    }
    let scale = Scale::of(op, inputs);
    for (i, (w, f)) in wanted.iter().zip(found).enumerate() {
        tensors(w, None, f, &scale, i).map_err(|e| format!("output {i}: {e}"))?;
    }
    Ok(())
}

/// Compares results of several layers in a row under the tolerance of chains.
pub fn check_chain(wanted: &[Tensor], found: &[Tensor]) -> Result<(), String> {
    if wanted.len() != found.len() {
        return Err(format!("{} outputs, wants {}", found.len(), wanted.len()));
    }
    let scale = Scale {
        tolerance: Tolerance::Chain,
        inputs: None,
        magnitudes: Vec::new(),
        terms: 1.0,
        composite: true,
        largest: 0.0,
        integers: 0,
    };
    for (i, (w, f)) in wanted.iter().zip(found).enumerate() {
        tensors(w, None, f, &scale, i).map_err(|e| format!("output {i}: {e}"))?;
    }
    Ok(())
}

/// Subnormal values of f32 and bf16 as zeros.
fn flush(t: &Tensor) -> Tensor {
    let small = |x: f64| x != 0.0 && x.abs() < 2f64.powi(-126);
    match t.elems() {
        Elems::F(v) if matches!(t.dtype(), DType::F32 | DType::BF16) && v.iter().any(|&x| small(x)) => {
            let v = v.into_iter().map(|x| if small(x) { 0.0f64.copysign(x) } else { x }).collect();
            Tensor::from_elems(t.dtype(), t.shape(), &Elems::F(v)).unwrap_or_else(|| t.clone())
        }
        _ => t.clone(),
    }
}

/// What the bounds of one problem are made of.
struct Scale {
    tolerance: Tolerance,
    /// The narrowest float among the inputs: intermediate results may be rounded to it.
    inputs: Option<DType>,
    /// Outputs for the inputs' magnitudes: Σ|aᵢbᵢ| where the operator sums products.
    magnitudes: Vec<Vec<f64>>,
    /// How many products one result sums, at most.
    terms: f64,
    /// Is it a chain of several roundings, which may cancel?
    composite: bool,
    /// The greatest finite magnitude among the inputs.
    largest: f64,
    /// By how much integer results may be off: by one where sums of floats are rounded, since a tie may go either way.
    integers: i64,
}

impl Scale {
    fn of(op: &Op, inputs: &[Option<Tensor>]) -> Scale {
        let tolerance = op.def().tolerance;
        let floats = || inputs.iter().flatten().filter(|t| t.dtype().is_float());
        let abs: Vec<_> = inputs.iter().map(|t| t.as_ref().map(magnitude)).collect();
        let sums = matches!(tolerance, Tolerance::Reduction);
        let outs = if sums { op.eval(&abs).unwrap_or_default() } else { Vec::new() };
        let types: Vec<DType> = inputs.iter().flatten().map(Tensor::dtype).collect();
        let composite = match op.def().expr.map(|e| e(op.attrs(), &types)) {
            Some(Ok(e)) => e.insts.iter().filter(|i| is_arithmetic(i.op)).count() > 1,
            _ => true,
        };
        Scale {
            tolerance,
            inputs: floats().map(Tensor::dtype).max_by(|a, b| eps(*a).total_cmp(&eps(*b))),
            magnitudes: outs.iter().map(Tensor::to_f64).collect(),
            terms: floats().map(Tensor::len).max().unwrap_or(1).min(1 << 16) as f64,
            composite,
            integers: i64::from(op.is("resize")),
            largest: floats()
                .flat_map(Tensor::to_f64)
                .filter(|x| x.is_finite())
                .fold(0.0, |m: f64, x| m.max(x.abs())),
        }
    }

    /// The greatest error allowed for an element.
    fn bound(&self, wanted: f64, dtype: DType, output: usize, at: usize, greatest: f64) -> f64 {
        let e32 = eps(DType::F32);
        // The last rounding of a narrow type may go either way.
        let last = if dtype == DType::F32 { 0.0 } else { 1.01 * ulp(wanted, dtype) };
        let slack = if self.composite { 8.0 * e32 * self.largest.clamp(1.0, 1e6) } else { 0.0 };
        match self.tolerance {
            Tolerance::Exact => 0.0,
            Tolerance::Elementwise => {
                4.0 * ulp(wanted, DType::F32) + last + if self.composite { slack } else { 0.0 }
            }
            Tolerance::Transcendental => 16.0 * ulp(wanted, DType::F32) + last + slack,
            Tolerance::Reduction => {
                let sum = self.magnitudes.get(output).and_then(|m| m.get(at)).copied().unwrap_or(0.0);
                let sum = if sum.is_finite() { sum.abs() } else { 0.0 };
                e32 * (8.0 + self.terms.sqrt()) * (sum.max(wanted.abs()) + self.largest.clamp(0.0, 1e6))
                    + last
            }
            Tolerance::Chain | Tolerance::Recurrence => {
                let narrow = self.inputs.map_or(0.0, |t| if t == DType::F32 { 0.0 } else { 2.0 * eps(t) });
                let share = if self.tolerance == Tolerance::Recurrence { 1.0 } else { 0.25 };
                1e-4 * wanted.abs() + 2e-5 * greatest + narrow * wanted.abs().max(share * greatest) + last
            }
        }
    }
}

fn is_arithmetic(op: kiln_ir::expr::Scalar) -> bool {
    use kiln_ir::expr::Scalar;
    matches!(op, Scalar::Un(..) | Scalar::Bin(..))
}

fn magnitude(t: &Tensor) -> Tensor {
    match t.elems() {
        Elems::F(v) => {
            let v = v.into_iter().map(f64::abs).collect();
            Tensor::from_elems(t.dtype(), t.shape(), &Elems::F(v)).unwrap_or_else(|| t.clone())
        }
        Elems::I(_) => t.clone(),
    }
}

fn tensors(
    w: &Tensor,
    other: Option<&Tensor>,
    f: &Tensor,
    scale: &Scale,
    output: usize,
) -> Result<(), String> {
    if w.dtype() != f.dtype() || w.shape() != f.shape() {
        return Err(format!("is {}, wants {}", f.ty(), w.ty()));
    }
    match (w.elems(), f.elems()) {
        (Elems::F(a), Elems::F(b)) => {
            let greatest = a.iter().filter(|x| x.is_finite()).fold(0.0, |m: f64, x| m.max(x.abs()));
            let other = other.map(Tensor::to_f64);
            let off = (0..a.len()).find(|&i| {
                let fits = |want: f64| fits(want, b[i], scale.bound(want, w.dtype(), output, i, greatest));
                !(fits(a[i]) || other.as_ref().and_then(|o| o.get(i)).is_some_and(|&o| fits(o)))
            });
            off.map_or(Ok(()), |i| Err(miss(w, i, a[i], b[i])))
        }
        (a, b) if a == b => Ok(()),
        (Elems::I(a), Elems::I(b)) => {
            let other = other.map(Tensor::to_i64);
            let near = |x: i64, y: i64| x.abs_diff(y) <= scale.integers.unsigned_abs();
            let off = (0..a.len()).find(|&i| {
                !near(a[i], b[i]) && !other.as_ref().and_then(|o| o.get(i)).is_some_and(|&o| near(o, b[i]))
            });
            off.map_or(Ok(()), |i| Err(miss(w, i, a[i] as f64, b[i] as f64)))
        }
        _ => Err("is of another kind".into()),
    }
}

fn fits(want: f64, found: f64, bound: f64) -> bool {
    if want.is_nan() || found.is_nan() {
        return want.is_nan() && found.is_nan();
    }
    // Overflow may come a few units early or late.
    let cap = |x: f64| x.clamp(-f64::from(f32::MAX), f64::from(f32::MAX));
    want == found
        || (want - found).abs() <= bound + 2f64.powi(-126) * f64::from(u8::from(want != found))
        || (bound > 0.0 && cap(want) == cap(found))
}

fn miss(t: &Tensor, i: usize, wanted: f64, found: f64) -> String {
    let mut at = Vec::new();
    let mut rest = i;
    for &d in t.shape().iter().rev() {
        at.push(rest % d.max(1));
        rest /= d.max(1);
    }
    at.reverse();
    let ulps = ulp_distance(wanted, found, t.dtype());
    format!("element {at:?} of {} is {found:e}, wants {wanted:e} ({ulps:.1} ulp)", t.ty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::Attrs;

    #[test]
    fn distances_are_in_units_of_the_type() {
        assert_eq!(ulp_distance(1.0, 1.0 + 2f64.powi(-23), DType::F32), 1.0);
        assert_eq!(ulp_distance(1.0, 1.0 + 2f64.powi(-9), DType::F16), 2.0);
        assert_eq!(ulp_distance(f64::NAN, f64::NAN, DType::F32), 0.0);
        assert!(ulp_distance(f64::NAN, 1.0, DType::F32).is_infinite());
    }

    #[test]
    fn errors_beyond_the_bound_are_found() {
        let op = Op::new("exp", Attrs::new()).unwrap();
        let x = Tensor::f32(&[2], &[0.0, 1.0]).unwrap();
        let near = Tensor::f32(&[2], &[1.0, std::f32::consts::E]).unwrap();
        let far = Tensor::f32(&[2], &[1.0, 2.7184]).unwrap();
        let run = |y: &Tensor| check(&op, &[Some(x.clone())], &[y.clone()], Latitude::default());
        assert_eq!(run(&near), Ok(()));
        assert!(run(&far).unwrap_err().contains("[1]"));
    }

    #[test]
    fn integers_must_agree_exactly() {
        let op = Op::new("add", Attrs::new()).unwrap();
        let x = Tensor::i64(&[1], &[1]).unwrap();
        let y = Tensor::i64(&[1], &[3]).unwrap();
        assert!(check(&op, &[Some(x.clone()), Some(x)], &[y], Latitude::default()).is_err());
    }
}
