//! The folds of `reduce`. Those of integers wrap; those of floats add in f64.

use super::element::Element;
use super::lines::Fold;

/// The greater of two; NaN if either is.
#[inline(always)]
pub fn max(a: f32, b: f32) -> f32 {
    if a > b || a.is_nan() { a } else { b }
}

/// The lesser of two; NaN if either is.
#[inline(always)]
pub fn min(a: f32, b: f32) -> f32 {
    if a < b || a.is_nan() { a } else { b }
}

/// An integer type that wraps.
pub trait Whole: Element + Ord {
    const ZERO: Self;
    const ONE: Self;
    const LEAST: Self;
    const GREATEST: Self;
    fn plus(self, b: Self) -> Self;
    fn times(self, b: Self) -> Self;
    fn magnitude(self) -> Self;
    fn wide(self) -> f64;
}

macro_rules! whole {
    ($($t:ident, |$x:ident| $magnitude:expr;)*) => {$(
        impl Whole for $t {
            const ZERO: $t = 0;
            const ONE: $t = 1;
            const LEAST: $t = $t::MIN;
            const GREATEST: $t = $t::MAX;
            #[inline(always)]
            fn plus(self, b: $t) -> $t {
                self.wrapping_add(b)
            }
            #[inline(always)]
            fn times(self, b: $t) -> $t {
                self.wrapping_mul(b)
            }
            #[inline(always)]
            fn magnitude(self) -> $t {
                let $x = self;
                $magnitude
            }
            #[inline(always)]
            fn wide(self) -> f64 {
                self as f64
            }
        }
    )*};
}
whole! {
    i8, |x| x.wrapping_abs();
    u8, |x| x;
    i32, |x| x.wrapping_abs();
    i64, |x| x.wrapping_abs();
}

/// Defines folds of a type or of types with a bound.
macro_rules! folds {
    ($($(#[$m:meta])* $name:ident, $t:ident $(: $bound:ident)?, $acc:ty, $start:expr, |$a:ident, $x:ident| $step:expr, |$p:ident, $q:ident| $join:expr;)*) => {$(
        $(#[$m])*
        impl $(<$t: $bound>)? Fold<$t> for $name {
            type Acc = $acc;
            const START: $acc = $start;
            #[inline(always)]
            fn step($a: $acc, $x: $t) -> $acc {
                $step
            }
            #[inline(always)]
            fn join($p: $acc, $q: $acc) -> $acc {
                $join
            }
        }
    )*};
}

/// Σx.
pub struct Sum;
/// Σx of integers, in 64 bits.
pub struct Exact;
/// Πx.
pub struct Product;
/// Σ|x|.
pub struct Magnitudes;
/// Σx².
pub struct Squares;
/// Σx² of integers, in f64.
pub struct Norm;
/// The greatest; NaN if there is one.
pub struct Greatest;
/// The least; NaN if there is one.
pub struct Least;

folds! {
    Sum, T: Whole, T, T::ZERO, |a, x| a.plus(x), |a, b| a.plus(b);
    Exact, T: Whole, i64, 0, |a, x| a.wrapping_add(x.to_i64()), |a, b| a.wrapping_add(b);
    Product, T: Whole, T, T::ONE, |a, x| a.times(x), |a, b| a.times(b);
    Magnitudes, T: Whole, T, T::ZERO, |a, x| a.plus(x.magnitude()), |a, b| a.plus(b);
    Squares, T: Whole, T, T::ZERO, |a, x| a.plus(x.times(x)), |a, b| a.plus(b);
    Norm, T: Whole, f64, 0.0, |a, x| a + x.wide() * x.wide(), |a, b| a + b;
    Greatest, T: Whole, T, T::LEAST, |a, x| Ord::max(a, x), |a, b| Ord::max(a, b);
    Least, T: Whole, T, T::GREATEST, |a, x| Ord::min(a, x), |a, b| Ord::min(a, b);
    Sum, f32, f64, 0.0, |a, x| a + f64::from(x), |a, b| a + b;
    Product, f32, f64, 1.0, |a, x| a * f64::from(x), |a, b| a * b;
    Magnitudes, f32, f64, 0.0, |a, x| a + f64::from(x.abs()), |a, b| a + b;
    Squares, f32, f64, 0.0, |a, x| a + f64::from(x) * f64::from(x), |a, b| a + b;
    Greatest, f32, f32, f32::NEG_INFINITY, |a, x| max(a, x), |a, b| max(a, b);
    Least, f32, f32, f32::INFINITY, |a, x| min(a, x), |a, b| min(a, b);
}
