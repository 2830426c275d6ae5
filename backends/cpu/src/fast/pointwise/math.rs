//! Scalar functions of f32 that compile to vector code: no branches, no calls, no conversions that saturate.
//!
//! Functions with a parameter `FMA` are rounded less where the processor has fused multiply-add.

/// Adding and subtracting 1.5·2²³ rounds to the nearest integer, which the low bits of the sum then hold.
const ROUNDER: f32 = 12_582_912.0;

/// a·b + c, fused where the instruction set has that.
#[inline(always)]
pub fn muladd<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// eˣ within 2 units in the last place, by the Cephes polynomial: x = n·ln 2 + r, eˣ = 2ⁿ·eʳ.
#[inline(always)]
pub fn exp<const FMA: bool>(x: f32) -> f32 {
    const LN2_HI: f32 = 0.693_359_4;
    const LN2_LO: f32 = -2.121_944_4e-4;
    let low = if x < -104.0 { -104.0 } else { x };
    let clamped = if low > 89.0 { 89.0 } else { low };
    let shifted = muladd::<FMA>(clamped, std::f32::consts::LOG2_E, ROUNDER);
    let n = shifted - ROUNDER;
    let i = (shifted.to_bits() as i32).wrapping_sub(ROUNDER.to_bits() as i32);
    let r = muladd::<FMA>(n, -LN2_LO, muladd::<FMA>(n, -LN2_HI, clamped));
    let p = 1.987_569_1e-4f32;
    let p = muladd::<FMA>(p, r, 1.398_2e-3);
    let p = muladd::<FMA>(p, r, 8.333_452e-3);
    let p = muladd::<FMA>(p, r, 4.166_579_6e-2);
    let p = muladd::<FMA>(p, r, 1.666_666_5e-1);
    let p = muladd::<FMA>(p, r, 0.5);
    let y = muladd::<FMA>(p * r, r, r) + 1.0;
    // In two steps, so that neither factor overflows or underflows before the product does.
    let half = i >> 1;
    let pow2 = |e: i32| f32::from_bits((e.wrapping_add(127) as u32) << 23);
    y * pow2(half) * pow2(i.wrapping_sub(half))
}

/// eˣ of numbers that are at most 0, as [`exp`] but with one factor: it is 0 where that is below the least normal number.
#[inline(always)]
pub fn exp_below<const FMA: bool>(x: f32) -> f32 {
    const LN2_HI: f32 = 0.693_359_4;
    const LN2_LO: f32 = -2.121_944_4e-4;
    // Its exponent is that of zero.
    let clamped = if x < -88.0 { -88.0 } else { x };
    let shifted = muladd::<FMA>(clamped, std::f32::consts::LOG2_E, ROUNDER);
    let n = shifted - ROUNDER;
    let r = muladd::<FMA>(n, -LN2_LO, muladd::<FMA>(n, -LN2_HI, clamped));
    let p = 1.987_569_1e-4f32;
    let p = muladd::<FMA>(p, r, 1.398_2e-3);
    let p = muladd::<FMA>(p, r, 8.333_452e-3);
    let p = muladd::<FMA>(p, r, 4.166_579_6e-2);
    let p = muladd::<FMA>(p, r, 1.666_666_5e-1);
    let p = muladd::<FMA>(p, r, 0.5);
    let y = muladd::<FMA>(p * r, r, r) + 1.0;
    y * f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23))
}

/// The arc sine of a magnitude by the Cephes polynomial; above a half it is that of the root of half of what is missing to 1, twice.
#[inline(always)]
fn arc_sine<const FMA: bool>(a: f32) -> (bool, f32) {
    let large = a > 0.5;
    let z = if large { 0.5 * (1.0 - a) } else { a * a };
    let s = if large { z.sqrt() } else { a };
    let p = 4.216_32e-2f32;
    let p = muladd::<FMA>(p, z, 2.418_131_1e-2);
    let p = muladd::<FMA>(p, z, 4.547_002_6e-2);
    let p = muladd::<FMA>(p, z, 7.495_300_3e-2);
    let p = muladd::<FMA>(p, z, 1.666_675_2e-1);
    (large, muladd::<FMA>(p * z, s, s))
}

/// asin within a few units in the last place.
#[inline(always)]
pub fn asin<const FMA: bool>(x: f32) -> f32 {
    let (large, y) = arc_sine::<FMA>(x.abs());
    let all = if large { std::f32::consts::FRAC_PI_2 - 2.0 * y } else { y };
    all.copysign(x)
}

/// acos within a few units in the last place.
#[inline(always)]
pub fn acos<const FMA: bool>(x: f32) -> f32 {
    let (large, y) = arc_sine::<FMA>(x.abs());
    let far = if x < 0.0 { std::f32::consts::PI - 2.0 * y } else { 2.0 * y };
    let near = std::f32::consts::FRAC_PI_2 - y.copysign(x);
    if large { far } else { near }
}

/// tanh within a few units in the last place: a quotient of polynomials, for which numbers are cut at 9, where tanh is 1 in f32.
#[inline(always)]
pub fn tanh<const FMA: bool>(x: f32) -> f32 {
    let low = if x < -9.0 { -9.0 } else { x };
    let x = if low > 9.0 { 9.0 } else { low };
    let s = x * x;
    let p = -2.760_768_4e-16f32;
    let p = muladd::<FMA>(p, s, 2.000_188e-13);
    let p = muladd::<FMA>(p, s, -8.604_672e-11);
    let p = muladd::<FMA>(p, s, 5.122_297_3e-8);
    let p = muladd::<FMA>(p, s, 1.485_722_35e-5);
    let p = muladd::<FMA>(p, s, 6.372_619_5e-4);
    let p = muladd::<FMA>(p, s, 4.893_524_6e-3);
    let q = 1.198_258_4e-6f32;
    let q = muladd::<FMA>(q, s, 1.185_347_1e-4);
    let q = muladd::<FMA>(q, s, 2.268_434_7e-3);
    let q = muladd::<FMA>(q, s, 4.893_525e-3);
    x * (p / q)
}

/// 1/(1 + e^−x) within a few units in the last place; 0 where that is below the least normal number.
#[inline(always)]
pub fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    let e = exp_below::<FMA>(-x.abs());
    let y = 1.0 / (1.0 + e);
    if x < 0.0 { e * y } else { y }
}

/// The error function within a few units in the last place; beyond 4 it is 1 in f32.
#[inline(always)]
pub fn erf<const FMA: bool>(x: f32) -> f32 {
    let a = x.abs();
    let t = if a > 4.0 { 4.0 } else { a };
    let s = t * t;
    let p = (-1.728_534_7e-5 * t + 3.831_972e-4) * s + (-3.883_964_4e-3 * t + 2.425_462_2e-2);
    let p = muladd::<FMA>(p, t, -1.067_778_8e-1);
    let p = muladd::<FMA>(p, t, -6.348_466_9e-1);
    let p = muladd::<FMA>(p, t, -1.287_175_1e-1);
    let large = 1.0 - exp::<FMA>(p * t - t);
    let p = muladd::<FMA>(-5.967_617e-4, s, 4.991_194e-3);
    let p = muladd::<FMA>(p, s, -2.676_813_5e-2);
    let p = muladd::<FMA>(p, s, 1.128_199_2e-1);
    let p = muladd::<FMA>(p, s, -3.761_253_4e-1);
    let p = muladd::<FMA>(p, s, 1.283_791_7e-1);
    let small = muladd::<FMA>(p, x, x);
    let y = if a > 0.927_734_4 { large.copysign(x) } else { small };
    if x.is_nan() { x } else { y }
}

/// The natural logarithm within 2 units in the last place, by the Cephes polynomial.
#[inline(always)]
pub fn log<const FMA: bool>(x: f32) -> f32 {
    const HALF_ROOT: f32 = std::f32::consts::FRAC_1_SQRT_2;
    // Subnormal numbers are made normal first.
    let tiny = x < f32::MIN_POSITIVE;
    let scaled = if tiny { x * 8_388_608.0 } else { x };
    let bits = scaled.to_bits() as i32;
    let exponent = (bits >> 23).wrapping_sub(if tiny { 126 + 23 } else { 126 });
    let m = f32::from_bits(((bits & 0x007f_ffff) | 0x3f00_0000) as u32);
    let low = m < HALF_ROOT;
    let e = exponent.wrapping_sub(i32::from(low)) as f32;
    let r = if low { m + m - 1.0 } else { m - 1.0 };
    let z = r * r;
    let p = 7.037_683_6e-2f32;
    let p = muladd::<FMA>(p, r, -1.151_461e-1);
    let p = muladd::<FMA>(p, r, 1.167_699_9e-1);
    let p = muladd::<FMA>(p, r, -1.242_014_1e-1);
    let p = muladd::<FMA>(p, r, 1.424_932_3e-1);
    let p = muladd::<FMA>(p, r, -1.666_805_8e-1);
    let p = muladd::<FMA>(p, r, 2.000_071_5e-1);
    let p = muladd::<FMA>(p, r, -2.499_999_4e-1);
    let p = muladd::<FMA>(p, r, 3.333_333e-1);
    let y = p * r * z - 2.121_944_4e-4 * e - 0.5 * z;
    let y = r + y + 0.693_359_4 * e;
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    let y = if x < 0.0 { f32::NAN } else { y };
    // Infinity and NaN are their own logarithms.
    if x < f32::INFINITY { y } else { x }
}

/// ln(1 + x): the logarithm of the rounded sum, and what rounding took from it.
#[inline(always)]
pub fn log1p<const FMA: bool>(x: f32) -> f32 {
    let u = 1.0 + x;
    let y = log::<FMA>(u) + (x - (u - 1.0)) / u;
    let y = if u == 0.0 { f32::NEG_INFINITY } else { y };
    // Infinity, and numbers so small that they are their own results.
    if (u == f32::INFINITY) | (x.abs() < 1e-8) { x } else { y }
}

/// Functions computed in f64, so that their results in f32 are correct but for rare roundings.
pub mod wide {
    /// As the one of f32, with 1.5·2⁵².
    const ROUNDER: f64 = 6_755_399_441_055_744.0;
    /// Beyond it, sine and cosine need more digits of π.
    pub const PERIODIC: f32 = 1e6;

    /// eˣ within 10⁻¹¹, clamped to e^±700.
    #[inline(always)]
    fn exp(x: f64) -> f64 {
        const LN2_HI: f64 = 6.931_471_803_691_238e-1;
        const LN2_LO: f64 = 1.908_214_929_270_587_7e-10;
        let low = if x < -700.0 { -700.0 } else { x };
        let x = if low > 700.0 { 700.0 } else { low };
        let shifted = x * std::f64::consts::LOG2_E + ROUNDER;
        let n = shifted - ROUNDER;
        let i = (shifted.to_bits() as i64).wrapping_sub(ROUNDER.to_bits() as i64);
        let r = x - n * LN2_HI - n * LN2_LO;
        let p = 1.0 / 362_880.0;
        let p = p * r + 1.0 / 40_320.0;
        let p = p * r + 1.0 / 5_040.0;
        let p = p * r + 1.0 / 720.0;
        let p = p * r + 1.0 / 120.0;
        let p = p * r + 1.0 / 24.0;
        let p = p * r + 1.0 / 6.0;
        let p = p * r + 0.5;
        let y = p * r * r + r + 1.0;
        y * f64::from_bits((i.wrapping_add(1023) as u64) << 52)
    }

    /// ln x within 10⁻¹²; of no subnormal numbers, which no f32 becomes.
    #[inline(always)]
    fn log(x: f64) -> f64 {
        let bits = x.to_bits() as i64;
        // The exponent as a float, by the bits of 2⁵² + exponent.
        let biased = ((bits >> 52) & 0x7ff) as u64;
        let m = f64::from_bits((bits as u64 & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
        let high = m > std::f64::consts::SQRT_2;
        let m = if high { m * 0.5 } else { m };
        let e = f64::from_bits(biased | 0x4330_0000_0000_0000) - 4_503_599_627_370_496.0 - 1023.0;
        let e = if high { e + 1.0 } else { e };
        let s = (m - 1.0) / (m + 1.0);
        let z = s * s;
        let p = 1.0 / 15.0;
        let p = p * z + 1.0 / 13.0;
        let p = p * z + 1.0 / 11.0;
        let p = p * z + 1.0 / 9.0;
        let p = p * z + 1.0 / 7.0;
        let p = p * z + 1.0 / 5.0;
        let p = p * z + 1.0 / 3.0;
        let y = 2.0 * (p * z * s + s) + e * std::f64::consts::LN_2;
        let y = if x == 0.0 { f64::NEG_INFINITY } else { y };
        let y = if x < 0.0 { f64::NAN } else { y };
        if x < f64::INFINITY { y } else { x }
    }

    /// Sine and cosine of numbers up to [`PERIODIC`].
    #[inline(always)]
    fn sin_cos(x: f64) -> (f64, f64) {
        // π/2 in parts of 33 bits: products with a quadrant's number are exact.
        const PARTS: [f64; 3] =
            [1.570_796_326_734_125_6, 6.077_100_506_303_966e-11, 2.022_266_248_795_950_6e-21];
        let shifted = x * std::f64::consts::FRAC_2_PI + ROUNDER;
        let n = shifted - ROUNDER;
        let quadrant = shifted.to_bits();
        let r = x - n * PARTS[0] - n * PARTS[1] - n * PARTS[2];
        let z = r * r;
        let p = 1.0 / 362_880.0 - z / 39_916_800.0;
        let p = p * z - 1.0 / 5_040.0;
        let p = p * z + 1.0 / 120.0;
        let p = p * z - 1.0 / 6.0;
        let sine = p * z * r + r;
        let p = z * (1.0 / 479_001_600.0) - 1.0 / 3_628_800.0;
        let p = p * z + 1.0 / 40_320.0;
        let p = p * z - 1.0 / 720.0;
        let p = p * z + 1.0 / 24.0;
        let cosine = p * z * z - 0.5 * z + 1.0;
        let odd = quadrant & 1 != 0;
        let (s, c) = (if odd { cosine } else { sine }, if odd { sine } else { cosine });
        let s = if quadrant & 2 != 0 { -s } else { s };
        let c = if quadrant.wrapping_add(1) & 2 != 0 { -c } else { c };
        (s, c)
    }

    /// The arc tangent within 10⁻¹⁰.
    #[inline(always)]
    fn arc_tangent(x: f64) -> f64 {
        use std::f64::consts::{FRAC_PI_2, FRAC_PI_4};
        let a = x.abs();
        // atan a = π/2 − atan 1/a, and π/4 + atan (a − 1)/(a + 1).
        let (inverse, middle) = (a > 2.414_213_562_373_095, a > 0.414_213_562_373_095_03);
        let top = if inverse { -1.0 } else { a - 1.0 };
        let below = if inverse { a } else { a + 1.0 };
        let quotient = top / below;
        let t = if middle { quotient } else { a };
        let from = if inverse { FRAC_PI_2 } else { FRAC_PI_4 };
        let from = if middle { from } else { 0.0 };
        let z = t * t;
        let p = 1.0 / 21.0 - z / 23.0;
        let p = 1.0 / 19.0 - p * z;
        let p = 1.0 / 17.0 - p * z;
        let p = 1.0 / 15.0 - p * z;
        let p = 1.0 / 13.0 - p * z;
        let p = 1.0 / 11.0 - p * z;
        let p = 1.0 / 9.0 - p * z;
        let p = 1.0 / 7.0 - p * z;
        let p = 1.0 / 5.0 - p * z;
        let p = 1.0 / 3.0 - p * z;
        (from + (t - t * z * p)).copysign(x)
    }

    macro_rules! functions {
        ($($(#[$m:meta])* $name:ident |$x:ident| $body:expr;)*) => {$(
            $(#[$m])*
            #[inline(always)]
            pub fn $name(x: f32) -> f32 {
                let $x = f64::from(x);
                let y: f64 = $body;
                y as f32
            }
        )*};
    }

    functions! {
        /// sin x up to [`PERIODIC`].
        sin |x| sin_cos(x).0;
        /// cos x up to [`PERIODIC`].
        cos |x| sin_cos(x).1;
        /// tan x up to [`PERIODIC`].
        tan |x| { let (s, c) = sin_cos(x); s / c };
        /// arctan x.
        atan |x| arc_tangent(x);
        /// sinh x.
        sinh |x| {
            let e = exp(x);
            if x.abs() < 1e-4 { x + x * x * x / 6.0 } else { 0.5 * (e - 1.0 / e) }
        };
        /// cosh x.
        cosh |x| { let e = exp(x); 0.5 * (e + 1.0 / e) };
        /// arsinh x.
        asinh |x| {
            let a = x.abs();
            let y = log(a + (x * x + 1.0).sqrt());
            if a < 1e-4 { x - x * x * x / 6.0 } else { y.copysign(x) }
        };
        /// arcosh x.
        acosh |x| {
            let y = log(x + ((x - 1.0) * (x + 1.0)).sqrt());
            if x < 1.0 { f64::NAN } else { y }
        };
        /// artanh x.
        atanh |x| if x.abs() < 1e-4 { x + x * x * x / 3.0 } else { 0.5 * log((1.0 + x) / (1.0 - x)) };
    }

    /// xʸ as `pow` of C has it.
    #[inline(always)]
    pub fn pow(x: f32, y: f32) -> f32 {
        let (a, b) = (f64::from(x.abs()), f64::from(y));
        let size = exp(b * log(a)) as f32;
        // From 2²⁴ on, all floats are even integers.
        let whole = y.trunc() == y;
        let half = y * 0.5;
        let odd = whole & (half.trunc() != half);
        let signed = if odd { size.copysign(x) } else { size };
        let r = if (x < 0.0) & !whole & (a < f64::INFINITY) { f32::NAN } else { signed };
        let one = (y == 0.0) | (x == 1.0) | ((a == 1.0) & (y.abs() == f32::INFINITY));
        if one { 1.0 } else { r }
    }

    /// ⌊a/b⌋.
    #[inline(always)]
    pub fn floor_div(a: f32, b: f32) -> f32 {
        (f64::from(a) / f64::from(b)).floor() as f32
    }

    /// Greatest quotient for which [`rem`] is exact.
    pub const EXACT: f32 = 1e8;

    /// The remainder with the sign of the dividend, of quotients up to [`EXACT`].
    #[inline(always)]
    pub fn rem(a: f32, b: f32) -> f64 {
        let (x, y) = (f64::from(a), f64::from(b));
        let r = x - (x / y).trunc() * y;
        // A quotient just below an integer may have been rounded up to it.
        let back = if (r < 0.0) != (x < 0.0) && r != 0.0 { r + y.abs().copysign(x) } else { r };
        let r = if y.abs() == f64::INFINITY && x.abs() < f64::INFINITY { x } else { back };
        if r == 0.0 { 0f64.copysign(x) } else { r }
    }

    /// The remainder with the sign of the divisor.
    #[inline(always)]
    pub fn modulo(r: f64, b: f32) -> f32 {
        let b = f64::from(b);
        let moved = if (r < 0.0) != (b < 0.0) { r + b } else { r };
        (if r == 0.0 { 0f64.copysign(b) } else { moved }) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ulps(found: f32, wanted: f64) -> f64 {
        if found.is_nan() || wanted.is_nan() {
            return if found.is_nan() && wanted.is_nan() { 0.0 } else { f64::INFINITY };
        }
        if f64::from(found) == f64::from(wanted as f32) {
            return 0.0;
        }
        let unit = f64::from(f32::EPSILON) * wanted.abs().max(f64::from(f32::MIN_POSITIVE));
        (f64::from(found) - wanted).abs() / unit
    }

    /// Special values, and numbers of all magnitudes and both signs.
    fn numbers() -> impl Iterator<Item = f32> {
        let special = [0.0, 1.0, 0.5, 1e-45, 1e-40, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY, f32::NAN];
        let spread = (0..0x7f80_0000u32).step_by(4099).map(f32::from_bits);
        let near = (0..20_000).map(|i| i as f32 * 0.0137);
        special.into_iter().chain(spread).chain(near).flat_map(|x| [x, -x])
    }

    type Pair = (&'static str, fn(f32) -> f32, fn(f64) -> f64, f64);

    #[test]
    fn exponentials_of_numbers_below_zero_are_those_of_all() {
        for i in 0..20_000 {
            let x = -(i as f32) * 0.005;
            let (found, wanted) = (exp_below::<true>(x), exp::<true>(x));
            let same = found == wanted || wanted < 2.0 * f32::MIN_POSITIVE && found < 2.0 * f32::MIN_POSITIVE;
            assert!(same, "{x}: {found} {wanted}");
            assert_eq!(exp_below::<false>(x) == 0.0, found == 0.0);
        }
        assert_eq!(
            [exp_below::<true>(0.0), exp_below::<true>(f32::NEG_INFINITY), exp_below::<true>(-88.5)],
            [1.0, 0.0, 0.0]
        );
        assert!(exp_below::<true>(f32::NAN).is_nan());
    }

    #[test]
    fn sigmoids_are_close_where_they_are_normal_numbers() {
        for x in numbers() {
            let wanted = 1.0 / (1.0 + libm::exp(-f64::from(x)));
            for found in [sigmoid::<false>(x), sigmoid::<true>(x)] {
                let tiny = wanted < 2.0 * f64::from(f32::MIN_POSITIVE) && found < 2.0 * f32::MIN_POSITIVE;
                assert!(tiny || ulps(found, wanted) <= 4.0, "{x:e}: {found:e}, not {wanted:e}");
            }
        }
    }

    #[test]
    fn functions_of_one_number_are_close_everywhere() {
        let all: &[Pair] = &[
            ("exp", exp::<false>, libm::exp, 2.0),
            ("exp", exp::<true>, libm::exp, 2.0),
            ("tanh", tanh::<false>, libm::tanh, 4.0),
            ("tanh", tanh::<true>, libm::tanh, 4.0),
            ("erf", erf::<false>, libm::erf, 4.0),
            ("erf", erf::<true>, libm::erf, 4.0),
            ("log", log::<false>, libm::log, 2.0),
            ("log", log::<true>, libm::log, 2.0),
            ("log1p", log1p::<false>, libm::log1p, 4.0),
            ("log1p", log1p::<true>, libm::log1p, 4.0),
            ("atan", wide::atan, libm::atan, 1.0),
            ("asin", asin::<false>, libm::asin, 4.0),
            ("asin", asin::<true>, libm::asin, 4.0),
            ("acos", acos::<false>, libm::acos, 4.0),
            ("acos", acos::<true>, libm::acos, 4.0),
            ("sinh", wide::sinh, libm::sinh, 1.0),
            ("cosh", wide::cosh, libm::cosh, 1.0),
            ("asinh", wide::asinh, libm::asinh, 1.0),
            ("acosh", wide::acosh, |x| if x < 1.0 { f64::NAN } else { libm::acosh(x) }, 1.0),
            ("atanh", wide::atanh, libm::atanh, 1.0),
        ];
        for (name, f, wanted, limit) in all {
            for x in numbers() {
                let (y, w) = (f(x), wanted(x.into()));
                assert!(ulps(y, w) <= *limit, "{name}({x:e}) is {y:e}, not {w:e}");
            }
        }
        let periodic: &[Pair] = &[
            ("sin", wide::sin, libm::sin, 1.0),
            ("cos", wide::cos, libm::cos, 1.0),
            ("tan", wide::tan, libm::tan, 1.0),
        ];
        for (name, f, wanted, limit) in periodic {
            for x in numbers().filter(|x| x.abs() <= wide::PERIODIC) {
                let (y, w) = (f(x), wanted(x.into()));
                assert!(ulps(y, w) <= *limit, "{name}({x:e}) is {y:e}, not {w:e}");
            }
        }
    }

    #[test]
    fn functions_of_two_numbers_are_close_everywhere() {
        let some = [0.0, 1.0, 0.5, 2.0, 3.0, 7.5, 1e-3, 1e-40, 1.000_001, 1e4, 3e38, f32::INFINITY, f32::NAN];
        let some: Vec<f32> = some.into_iter().chain((0..40).map(|i| i as f32 * 0.37 + 0.01)).collect();
        let some: Vec<f32> = some.iter().flat_map(|&x| [x, -x]).collect();
        for &a in &some {
            for &b in &some {
                let (y, w) = (wide::pow(a, b), libm::pow(a.into(), b.into()));
                assert!(ulps(y, w) <= 1.0, "{a:e}^{b:e} is {y:e}, not {w:e}");
                if (a / b).abs() < wide::EXACT || b == 0.0 || !a.is_finite() {
                    let (y, w) = (wide::rem(a, b) as f32, libm::fmod(a.into(), b.into()));
                    assert_eq!(ulps(y, w), 0.0, "{a:e} rem {b:e} is {y:e}, not {w:e}");
                }
            }
        }
    }
}
