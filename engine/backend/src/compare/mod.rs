//! Allowed differences of a backend from the oracle.
//!
//! An [`Expectation`] holds the oracle's results for one operator and its inputs, with an interval around
//! each element. The intervals come from an error model of the operator ([`kiln_ir::op::Tolerance`]). They
//! depend on the terms of that element, never on unrelated large values elsewhere in the inputs.

mod bounds;
mod chain;
mod interval;
mod pointwise;
mod units;

pub use chain::check_chain;
pub use units::{eps, ulp, ulp_distance};

use interval::Interval;
use kiln_ir::expr::Num;
use kiln_ir::{DType, Elems, Op, Tensor};

/// Freedom that a device has and the oracle has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latitude {
    /// Subnormal f32 values, read or written, may be taken as zero.
    pub flush: bool,
    /// Sums of products of 8-bit floats may keep 13 bits of fraction, as those of tensor cores do.
    pub short_sums: bool,
}

/// The oracle's results for an operator and its inputs, with an interval for each element.
#[derive(Debug)]
pub struct Expectation {
    wanted: Vec<Tensor>,
    /// The intervals of each output; of its integers, too.
    intervals: Vec<Vec<Interval>>,
    /// Bounds for subnormal inputs taken as zeros, where that makes a difference.
    flushed: Option<Box<Expectation>>,
}

impl Expectation {
    /// Runs the oracle and derives the intervals.
    pub fn new(op: &Op, inputs: &[Option<Tensor>], latitude: Latitude) -> Result<Expectation, String> {
        let wanted = op.eval(inputs).map_err(|e| format!("the oracle fails: {e}"))?;
        let intervals = bounds::intervals(op, inputs, &wanted, latitude)?;
        let flushed = match latitude.flush {
            true => {
                let zeroed: Vec<_> = inputs.iter().map(|t| t.as_ref().map(flush)).collect();
                let differs = zeroed.iter().zip(inputs).any(|(a, b)| a != b);
                differs.then(|| Expectation::new(op, &zeroed, Latitude::default())).transpose()?.map(Box::new)
            }
            false => None,
        };
        Ok(Expectation { wanted, intervals, flushed })
    }

    /// The oracle's results.
    pub fn wanted(&self) -> &[Tensor] {
        &self.wanted
    }

    /// Checks a device's results. The error names the first element that is outside its interval.
    pub fn check(&self, found: &[Tensor]) -> Result<(), String> {
        if self.wanted.len() != found.len() {
            return Err(format!("{} outputs, wants {}", found.len(), self.wanted.len()));
        }
        for (i, found) in found.iter().enumerate() {
            self.output(i, found).map_err(|e| format!("output {i}: {e}"))?;
        }
        Ok(())
    }

    fn output(&self, i: usize, found: &Tensor) -> Result<(), String> {
        let wanted = &self.wanted[i];
        if wanted.dtype() != found.dtype() || wanted.shape() != found.shape() {
            return Err(format!("is {}, wants {}", found.ty(), wanted.ty()));
        }
        let off = (0..wanted.len()).zip(values(found)).find(|&(at, value)| !self.fits(i, at, value));
        off.map_or(Ok(()), |(at, value)| Err(miss(wanted, at, value, self.intervals[i][at])))
    }

    fn fits(&self, output: usize, at: usize, found: Num) -> bool {
        self.intervals[output][at].holds(found)
            || self.flushed.as_ref().is_some_and(|other| other.fits(output, at, found))
    }
}

/// Compares what a device computed for `op` with the oracle's results for the same inputs.
pub fn check(op: &Op, inputs: &[Option<Tensor>], found: &[Tensor], latitude: Latitude) -> Result<(), String> {
    Expectation::new(op, inputs, latitude)?.check(found)
}

fn values(t: &Tensor) -> Vec<Num> {
    match t.elems() {
        Elems::F(v) => v.into_iter().map(Num::F).collect(),
        Elems::I(v) => v.into_iter().map(Num::I).collect(),
    }
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

fn miss(wanted: &Tensor, at: usize, found: Num, interval: Interval) -> String {
    let mut index = Vec::new();
    let mut rest = at;
    for &d in wanted.shape().iter().rev() {
        index.push(rest % d.max(1));
        rest /= d.max(1);
    }
    index.reverse();
    let ty = wanted.ty();
    match (values(wanted)[at], found) {
        (Num::F(w), Num::F(f)) => {
            let ulps = ulp_distance(w, f, wanted.dtype());
            format!("element {index:?} of {ty} is {f:e}, wants {w:e} ({ulps:.1} ulp; allowed {interval})")
        }
        (Num::I(w), Num::I(f)) => format!("element {index:?} of {ty} is {f}, wants {w} (allowed {interval})"),
        (w, f) => format!("element {index:?} of {ty} is {f:?}, wants {w:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::Attrs;

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
        let x = Tensor::i64(&[1], &[1 << 60]).unwrap();
        let y = Tensor::i64(&[1], &[(1 << 60) + 2]).unwrap();
        let one = Tensor::i64(&[1], &[1]).unwrap();
        assert!(check(&op, &[Some(x), Some(one)], &[y], Latitude::default()).is_err());
    }

    /// A large value elsewhere in the input must not widen the interval of a small result.
    #[test]
    fn bounds_are_local() {
        let op = Op::new("sigmoid", Attrs::new()).unwrap();
        let x = Tensor::f32(&[2], &[0.0, 3e38]).unwrap();
        let wrong = Tensor::f32(&[2], &[0.50001, 1.0]).unwrap();
        assert!(check(&op, &[Some(x)], &[wrong], Latitude::default()).is_err());
    }

    #[test]
    fn small_results_of_softmax_must_be_right() {
        let op = Op::new("softmax", Attrs::new()).unwrap();
        let x = Tensor::f32(&[3], &[0.0, 12.0, 20.0]).unwrap();
        let right = op.eval(&[Some(x.clone())]).unwrap();
        let p: &[f32] = right[0].view().unwrap();
        let zeroed = Tensor::f32(&[3], &[0.0, p[1], p[2]]).unwrap();
        assert_eq!(check(&op, &[Some(x.clone())], &right, Latitude::default()), Ok(()));
        assert!(check(&op, &[Some(x)], &[zeroed], Latitude::default()).is_err());
    }

    #[test]
    fn a_sum_must_have_all_its_terms() {
        let op = Op::new("reduce", Attrs::new().with("op", "sum")).unwrap();
        let x = Tensor::f32(&[1000], &[1.0; 1000]).unwrap();
        let short = Tensor::f32(&[1], &[999.9]).unwrap();
        let close = Tensor::f32(&[1], &[1000.0005]).unwrap();
        assert_eq!(check(&op, &[Some(x.clone()), None], &[close], Latitude::default()), Ok(()));
        assert!(check(&op, &[Some(x), None], &[short], Latitude::default()).is_err());
    }
}
