//! Divisions by numbers that a launch knows, and copies of vectors of elements: what kernels that move elements share.

use super::shape::{moving, output};
use crate::frame::element;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Site, unsupported};
use kiln_codegen::word;

/// Elements of a vector.
pub const WIDTH: usize = 8;

/// A number with what stands for a division by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divisor {
    /// The number.
    pub size: usize,
    /// Factor of a dividend.
    pub factor: usize,
    /// Bits that the product is shifted by; 32 where dividends are too large for that.
    pub shift: usize,
}

impl Divisor {
    /// The divisor of numbers up to `most`. For n < 2³¹, n / d is (⌊n·f / 2³²⌋ + n) / 2ˢ with s = ⌈log₂ d⌉ and
    /// f = ⌈2³²·(2ˢ − d) / d⌉ + 1, at most 2³² − 1.
    pub fn new(d: usize, most: usize) -> Result<Divisor, BackendError> {
        let d32 = word(d.max(1))?;
        let size = d32 as usize;
        if most >= 1 << 31 {
            return Ok(Divisor { size, factor: 0, shift: 32 });
        }
        let shift = d32.next_power_of_two().trailing_zeros();
        let d = u64::from(d32);
        let factor = ((1u64 << 32) * ((1u64 << shift) - d)) / d + 1;
        Ok(Divisor { size, factor: factor.min(u64::from(u32::MAX)) as usize, shift: shift as usize })
    }
}

/// Divisors as the lists of a launch.
#[derive(Default)]
pub struct Divisors {
    /// The numbers.
    pub sizes: Vec<usize>,
    /// Their factors.
    pub factors: Vec<usize>,
    /// Their shifts.
    pub shifts: Vec<usize>,
}

impl Divisors {
    /// The lists of divisors of numbers up to `most`.
    pub fn new(all: impl IntoIterator<Item = usize>, most: usize) -> Result<Divisors, BackendError> {
        let mut lists = Divisors::default();
        for d in all {
            let Divisor { size, factor, shift } = Divisor::new(d, most)?;
            lists.sizes.push(size);
            lists.factors.push(factor);
            lists.shifts.push(shift);
        }
        Ok(lists)
    }
}

/// Dimensions whose numbers have fixed places among the parameters.
const PLACED: usize = 6;

/// Dimensions and strides along them, the innermost first, as `by_strides` of `slice/divisor.cuh` takes them.
#[derive(Default)]
pub struct Dims {
    /// Number of dimensions in arrays.
    pub rank: usize,
    /// Their sizes.
    pub sizes: [usize; PLACED],
    /// Factors of divisions by them.
    pub factors: [usize; PLACED],
    /// Shifts of divisions by them.
    pub shifts: [usize; PLACED],
    /// Their strides.
    pub strides: [usize; PLACED],
    /// Further dimensions.
    pub more_sizes: Vec<usize>,
    /// Their strides.
    pub more_strides: Vec<usize>,
}

impl Dims {
    /// The dimensions of numbers up to `most`.
    pub fn new(dims: &[usize], strides: &[usize], most: usize) -> Result<Dims, BackendError> {
        let rank = dims.len().min(PLACED);
        let lists = Divisors::new(dims[..rank].iter().copied(), most)?;
        Ok(Dims {
            rank,
            sizes: placed(&lists.sizes),
            factors: placed(&lists.factors),
            shifts: placed(&lists.shifts),
            strides: placed(&strides[..rank]),
            more_sizes: dims[rank..].to_vec(),
            more_strides: strides[rank..].to_vec(),
        })
    }
}

/// Numbers at the start of an array of zeros.
pub fn placed<const N: usize>(all: &[usize]) -> [usize; N] {
    let mut out = [0; N];
    out.iter_mut().zip(all).for_each(|(o, n)| *o = *n);
    out
}

/// A tactic of a kernel that reads and writes the result's bytes.
pub fn tactics(site: &Site<'_>, name: &str) -> Result<Vec<Tactic>, BackendError> {
    let t = site.out_dtype(0);
    if t.bits() < 8 {
        return unsupported(format!("vectors of {t}, which shares bytes"));
    }
    let bytes = || {
        let y = output(site, 0)?;
        Some(2.0 * y.static_volume()? as f64 * f64::from(y.dtype.bits()) / 8.0)
    };
    let estimate_ns = bytes().map(|b| moving(site.target, b, 1.3));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
}

/// The types, functions and constants that `kernels/slice/copy.cuh` asks for.
pub fn copied(site: &Site<'_>) -> String {
    cells(site) + &site.alias("Value", site.out_dtype(0))
}

/// Cells and fusion alone, without the type of values.
pub fn cells(site: &Site<'_>) -> String {
    element("Cell", "wide", site.out_dtype(0)) + &site.constant("FUSED", "bool", site.fused.is_some())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn divisions_by_factors_are_exact() {
        let largest = (1u64 << 31) - 1;
        for d in (1..3000).chain([4095, 4096, 4097, 65_537, 1 << 30, (1 << 31) - 1]) {
            let Divisor { factor, shift, .. } = Divisor::new(d, 1 << 20).unwrap();
            let near = [0, 1, 2, 3].into_iter().flat_map(|k| {
                let edge = largest / d as u64 * d as u64;
                [
                    k,
                    d as u64 * 7 + k,
                    (d as u64 * 7).saturating_sub(k),
                    edge + k,
                    edge - k.min(edge),
                    largest - k,
                ]
            });
            for n in near.filter(|n| *n <= largest) {
                let q = (((n * factor as u64) >> 32) + n) >> shift;
                assert_eq!(q, n / d as u64, "{n} / {d}");
            }
        }
        assert_eq!(Divisor::new(5, 1 << 31).unwrap(), Divisor { size: 5, factor: 0, shift: 32 });
    }
}
