//! Elements as they are stored, and their order.

use half::{bf16, f16};
use kiln_ir::DType;

/// An element type that kernels are generic over.
pub trait Element: bytemuck::Pod + Send + Sync {
    /// A number whose order is that of the elements: equal for equal elements, and for all NaNs the greatest.
    type Key: Copy + Ord + Send + Sync + Default;
    /// The element's number.
    fn key(self) -> Self::Key;
    /// The number that reverses the order; NaNs stay the greatest where `nan_first`.
    fn reversed(self, nan_first: bool) -> Self::Key;
    /// Whether it is not a number.
    fn is_nan(self) -> bool;
    /// The element as an integer; floats are cut off.
    fn to_i64(self) -> i64;
    /// The element of an integer, which wraps.
    fn from_i64(x: i64) -> Self;
}

/// Orders the bits of floats other than NaN; both zeros are equal.
#[inline(always)]
fn ordered(bits: i32) -> i32 {
    let magnitude = bits & 0x7fff_ffff;
    if bits < 0 { -magnitude } else { magnitude }
}

macro_rules! integer {
    ($($t:ty => $k:ty),*) => {$(
        impl Element for $t {
            type Key = $k;
            #[inline(always)]
            fn key(self) -> $k {
                self.into()
            }
            #[inline(always)]
            fn reversed(self, _: bool) -> $k {
                !<$k>::from(self)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }
            #[inline(always)]
            fn to_i64(self) -> i64 {
                self.into()
            }
            #[inline(always)]
            fn from_i64(x: i64) -> $t {
                x as $t
            }
        }
    )*};
}
integer!(i8 => i32, u8 => i32, i32 => i32, i64 => i64);

macro_rules! float {
    ($($t:ty, $wide:expr, $narrow:expr);*) => {$(
        impl Element for $t {
            type Key = i32;
            #[inline(always)]
            fn key(self) -> i32 {
                let x: f32 = $wide(self);
                if x.is_nan() { i32::MAX } else { ordered(x.to_bits() as i32) }
            }
            #[inline(always)]
            fn reversed(self, nan_first: bool) -> i32 {
                let x: f32 = $wide(self);
                match x.is_nan() {
                    true if nan_first => i32::MAX,
                    true => i32::MIN,
                    false => -ordered(x.to_bits() as i32),
                }
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                f32::is_nan($wide(self))
            }
            #[inline(always)]
            fn to_i64(self) -> i64 {
                $wide(self) as i64
            }
            #[inline(always)]
            fn from_i64(x: i64) -> $t {
                $narrow(x as f32)
            }
        }
    )*};
}
float!(f32, f32::from, f32::from);

/// Orders the bits of floats of 16 bits other than NaN; both zeros are equal.
macro_rules! half {
    ($($t:ty, $infinity:literal);*) => {$(
        impl Element for $t {
            type Key = i32;
            #[inline(always)]
            fn key(self) -> i32 {
                let (bits, nan) = (i32::from(self.to_bits() as i16), Element::is_nan(self));
                let ordered = if bits < 0 { -(bits & 0x7fff) } else { bits };
                if nan { i32::MAX } else { ordered }
            }
            #[inline(always)]
            fn reversed(self, nan_first: bool) -> i32 {
                let key = self.key();
                let nan = if nan_first { i32::MAX } else { i32::MIN };
                if Element::is_nan(self) { nan } else { -key }
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                self.to_bits() & 0x7fff > $infinity
            }
            #[inline(always)]
            fn to_i64(self) -> i64 {
                self.to_f32() as i64
            }
            #[inline(always)]
            fn from_i64(x: i64) -> $t {
                <$t>::from_f32(x as f32)
            }
        }
    )*};
}
half!(f16, 0x7c00; bf16, 0x7f80);

/// Calls a generic function with the type of the elements; the fallback for types that kernels do not hold.
macro_rules! with_element {
    ($dtype:expr, $t:ident => $call:expr, else $other:expr) => {
        match $dtype {
            kiln_ir::DType::F32 => {
                type $t = f32;
                $call
            }
            kiln_ir::DType::F16 => {
                type $t = half::f16;
                $call
            }
            kiln_ir::DType::BF16 => {
                type $t = half::bf16;
                $call
            }
            kiln_ir::DType::I8 => {
                type $t = i8;
                $call
            }
            kiln_ir::DType::U8 | kiln_ir::DType::Bool => {
                type $t = u8;
                $call
            }
            kiln_ir::DType::I32 => {
                type $t = i32;
                $call
            }
            kiln_ir::DType::I64 => {
                type $t = i64;
                $call
            }
            _ => $other,
        }
    };
}
pub(crate) use with_element;

/// Whether [`with_element`] has the type.
pub fn has(t: DType) -> bool {
    with_element!(t, T => size_of::<T>() > 0, else false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_order_of_elements() {
        let all = [f32::NEG_INFINITY, -3.5, -1e-40, 0.0, 1e-40, 2.0, f32::INFINITY, f32::NAN];
        assert!(all.windows(2).all(|w| w[0].key() < w[1].key()));
        assert_eq!((-0.0f32).key(), 0.0f32.key());
        assert_eq!((-f32::NAN).key(), f32::NAN.key());
        assert!(all[..7].windows(2).all(|w| w[0].reversed(true) > w[1].reversed(true)));
        assert!(f32::NAN.reversed(true) > f32::NEG_INFINITY.reversed(true));
        assert!(f32::NAN.reversed(false) < f32::INFINITY.reversed(false));
        assert!(i64::MIN.reversed(true) > i64::MAX.reversed(true));
        for x in all {
            let (h, b) = (f16::from_f32(x), bf16::from_f32(x));
            let sign = |k: i32| k.signum();
            assert_eq!((h.is_nan(), b.is_nan()), (x.is_nan(), x.is_nan()));
            assert_eq!(
                (sign(h.key()), sign(b.key())),
                (sign(h.to_f32().key()), sign(b.to_f32().key())),
                "{x}"
            );
            assert_eq!(h.reversed(false) == i32::MIN, x.is_nan());
            assert_eq!(h.reversed(true) == i32::MAX, x.is_nan());
        }
        let halves = all.map(f16::from_f32);
        assert!(halves.windows(2).all(
            |w| w[0].key() <= w[1].key() && (w[1].is_nan() || w[0].reversed(true) >= w[1].reversed(true))
        ));
        assert!(200u8.key() > 3u8.key() && (-5i8).key() < 3i8.key());
    }
}
