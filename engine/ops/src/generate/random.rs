//! `random`: uniform and normal numbers from a counter-based generator, the same ones on every backend.
//!
//! The generator is Philox4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). The key is
//! the seed; the counter is the number of a block of four elements. So element i depends on the seed and on i alone, and any
//! number of threads draw the same tensor.

use crate::util::PLAIN;
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx};
use kiln_ir::op::{OpDef, Roles, Tolerance, Traits, attr, choice, input};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    RANDOM = "random",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: RANDOM,
    doc: "Random numbers of type `to` in the shape given by the 1-D tensor `shape`: uniform in [a, b), or normal with mean \
          a and standard deviation b. Element i is made of word i mod 4 of block ⌊i/4⌋ of Philox4x32-10 under the key `seed`, \
          so a seed gives the same numbers in every run, at every iteration of a loop and on every backend; a seed of 0 takes \
          another key at each evaluation. Uniform: with k the word's upper 24 bits, a + (b − a)·k/2²⁴ in f32, rounded to `to`; \
          what is rounded to b becomes the last number before it. Normal (Box–Muller): with k and m of words 0 and 1 for the \
          first two elements of a block, of 2 and 3 for the others, a + b·√(−2 ln((k + 1)/2²⁴))·cos(2πm/2²⁴), and the sine for \
          elements of odd number: 5.77 deviations at most.",
    inputs: &[input("shape").on_host()],
    attrs: &[
        choice("dist", || "uniform".into(), &["uniform", "normal"]),
        attr("a", || Attr::Float(0.0)),
        attr("b", || Attr::Float(1.0)),
        attr("seed", || Attr::Int(0)),
        attr("to", || Attr::DType(DType::F32)),
    ],
    infer,
    eval,
    traits: Traits { random: true, ..Traits::PURE },
    tolerance: Tolerance::Transcendental,
    problems,
    roles: Roles { keeps_f32: true, ..Roles::NONE },
    ..PLAIN
}];

/// Bits of a number that is drawn: all are exact in f32.
const BITS: u32 = 24;

/// One block of Philox4x32-10.
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let product = |a: u32, b: u32| {
        let p = u64::from(a) * u64::from(b);
        ((p >> 32) as u32, p as u32)
    };
    let (mut c, mut k) = (counter, key);
    for _ in 0..10 {
        let (high0, low0) = product(0xd251_1f53, c[0]);
        let (high1, low1) = product(0xcd9e_8d57, c[2]);
        c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0];
        k = [k[0].wrapping_add(0x9e37_79b9), k[1].wrapping_add(0xbb67_ae85)];
    }
    c
}

/// The key of a seed, low word first: its bits, or another one at each call for the seed 0.
pub fn key(seed: i64) -> [u32; 2] {
    let bits = if seed == 0 { fresh_seed() } else { seed as u64 };
    [bits as u32, (bits >> 32) as u32]
}

/// Seed from the standard library's randomly keyed hasher, another one at each call.
fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// Whether an operator draws other numbers at each evaluation.
pub fn is_fresh(op: &kiln_ir::Op) -> bool {
    op.def().traits.random && op.attrs().int("seed").is_ok_and(|s| s == 0)
}

/// The block of words that element `i` is made of.
fn block(i: usize, key: [u32; 2]) -> [u32; 4] {
    let block = i as u64 / 4;
    philox([block as u32, (block >> 32) as u32, 0, 0], key)
}

/// The numbers that a uniform draw is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uniform {
    /// The first end, which may be drawn.
    pub from: f32,
    /// The distance of the ends.
    pub width: f32,
    /// Upper end, which is not drawn.
    pub end: f32,
    /// The last number before it in the result's type.
    pub last: f32,
}

impl Uniform {
    /// Reads the ends from the attributes of the operator; an error where they or their distance are not
    /// finite in f32.
    pub fn of(attrs: &Attrs) -> Result<Uniform, OpError> {
        let (from, end) = (attrs.float("a")? as f32, attrs.float("b")? as f32);
        let width = end - from;
        if !(from.is_finite() && end.is_finite() && width.is_finite()) {
            return Err(OpError::Value(format!(
                "uniform numbers from {from} to {end}; wants ends whose distance is finite in f32"
            )));
        }
        Ok(Uniform { from, width, end, last: last_before(end, width, attrs.dtype("to")?) })
    }

    /// The number that 24 bits stand for.
    fn at(&self, bits: u32, to: DType) -> f64 {
        let y = rounded(self.from + self.width * (bits as f32 / (1u32 << BITS) as f32), to);
        let beyond = if self.width > 0.0 { y >= self.end } else { y <= self.end };
        f64::from(if beyond { self.last } else { y })
    }
}

/// A number rounded to a type.
fn rounded(x: f32, to: DType) -> f32 {
    let t = Tensor::from_elems(to, &[], &Elems::F(vec![f64::from(x)]));
    t.and_then(|t| t.scalar_f64()).map_or(x, |x| x as f32)
}

/// The number of a type that comes last on the way to `end` in the direction of `width`, `end` left out.
fn last_before(end: f32, width: f32, to: DType) -> f32 {
    let sign = if width < 0.0 { -1.0 } else { 1.0 };
    let y = rounded(end, to);
    if width == 0.0 || y * sign < end * sign {
        return y;
    }
    let bytes = Tensor::from_elems(to, &[], &Elems::F(vec![f64::from(y * sign)])).map(|t| t.bytes().to_vec());
    let Some(mut bytes) = bytes else { return y };
    // Numbers of one sign are ordered as their bits; below zero comes the least negative one.
    if y == 0.0 {
        bytes.fill(0);
        if let Some(first) = bytes.first_mut() {
            *first = 1;
        }
        if let Some(top) = bytes.last_mut() {
            *top |= 0x80;
        }
    } else {
        let down = y * sign > 0.0;
        let step = |b: &mut u8| {
            let (x, carry) = if down { b.overflowing_sub(1) } else { b.overflowing_add(1) };
            *b = x;
            carry
        };
        let _ = bytes.iter_mut().all(step);
    }
    let t = Tensor::from_bytes(to, &[], bytes);
    t.and_then(|t| t.scalar_f64()).map_or(y, |x| x as f32 * sign)
}

/// The standard normal number of a block's lane.
fn normal(words: [u32; 4], lane: usize) -> f64 {
    let pair = lane / 2 * 2;
    let (k, m) = (words[pair] >> (32 - BITS), words[pair + 1] >> (32 - BITS));
    let one = f64::from(1u32 << BITS);
    let radius = libm::sqrt(-2.0 * libm::log((f64::from(k) + 1.0) / one));
    // Quarters of a turn, and the angle from there, so that zeros are exact.
    let quarter = (m * 4 + (1 << (BITS - 1))) >> BITS;
    let angle = (f64::from(m * 4) - f64::from(quarter << BITS)) / one * std::f64::consts::FRAC_PI_2;
    let turned = match (quarter + u32::from(lane.is_multiple_of(2))) % 4 {
        0 => libm::sin(angle),
        1 => libm::cos(angle),
        2 => -libm::sin(angle),
        _ => -libm::cos(angle),
    };
    radius * turned
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let to = cx.attrs.dtype("to")?;
    if !to.is_float() {
        return Err(OpError::Attr {
            name: "to".into(),
            found: to.to_string(),
            wanted: "a float type".into(),
        });
    }
    if cx.attrs.str("dist")? == "uniform" {
        Uniform::of(cx.attrs)?;
    }
    cx.check_rank(0, 1)?;
    let dims = match cx.contents(0) {
        Some(v) if !v.iter().any(Dim::has_content) => v,
        _ => {
            let rank =
                cx.dims(0)?[0].as_const().ok_or_else(|| cx.bad_shape(0, "a known number of elements"))?;
            let size = |i| cx.fresh_from(0, &format!("d{i}"), crate::indices::size_bound(cx, 0, i as usize));
            (0..rank).map(size).collect()
        }
    };
    if let Some(d) = dims.iter().find(|d| d.as_const().is_some_and(|d| d < 0)) {
        return Err(OpError::Value(format!("the shape has a dimension {d}; wants 0 or more")));
    }
    Ok(vec![Fact::of(TensorType { dtype: to, dims })])
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let shape = cx.out_shape(0)?;
    let n: usize = shape.iter().product();
    let (attrs, key) = (cx.attrs(), key(cx.attrs().int("seed")?));
    let (a, b, to) = (attrs.float("a")?, attrs.float("b")?, attrs.dtype("to")?);
    let elems: Vec<f64> = match attrs.str("dist")? {
        "normal" => {
            let (mean, deviation) = (f64::from(a as f32), f64::from(b as f32));
            (0..n).map(|i| mean + deviation * normal(block(i, key), i % 4)).collect()
        }
        _ => {
            let u = Uniform::of(attrs)?;
            (0..n).map(|i| u.at(block(i, key)[i % 4] >> (32 - BITS), to)).collect()
        }
    };
    Ok(vec![cx.make(0, &shape, Elems::F(elems))?])
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for to in [DType::F32, DType::F16, DType::BF16] {
        for (dist, a, b, seed, shape) in [
            ("uniform", 0.0, 1.0, 7, &[3, 67][..]),
            ("uniform", -1.0, 3.0, -5, &[16, 256]),
            ("uniform", 0.1, 0.1003, 1i64 << 40, &[999]),
            ("uniform", 2.0, -7.0, 3, &[5]),
            ("normal", 0.0, 1.0, 7, &[16, 257]),
            ("normal", -1.0, 3.0, 2, &[16, 256]),
            ("normal", 0.0, 1.0, 1, &[0, 3]),
        ] {
            let attrs =
                Attrs::new().with("dist", dist).with("a", a).with("b", b).with("seed", seed).with("to", to);
            let shape: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
            let shape = rng.i64s(&[shape.len()], &shape);
            out.push(Problem::of(&format!("{dist} {a} {b} {to}"), "random", attrs, [Some(shape)]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ints, run, run_all};

    /// The known answers that come with the authors' implementation (Random123, `kat_vectors`).
    #[test]
    fn blocks_are_those_of_the_authors() {
        let max = u32::MAX;
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([max; 4], [max; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    fn drawn(dist: &str, a: f64, b: f64, seed: i64, to: DType, n: i64) -> Tensor {
        let attrs =
            Attrs::new().with("dist", dist).with("a", a).with("b", b).with("seed", seed).with("to", to);
        run("random", attrs, &[ints(DType::I64, &[1], &[n])])
    }

    /// Expected words by hand, from the known block of counter 0 and key 0 with its upper word set: seeds are
    /// keys.
    #[test]
    fn uniform_numbers_are_upper_bits() {
        let key = [7, 0];
        let words = philox([0; 4], key);
        let want: Vec<f64> = words.iter().map(|w| f64::from(w >> 8) / f64::from(1u32 << 24)).collect();
        assert_eq!(drawn("uniform", 0.0, 1.0, 7, DType::F32, 4).to_f64(), want);
        // A longer tensor begins with the shorter one.
        assert_eq!(&drawn("uniform", 0.0, 1.0, 7, DType::F32, 9).to_f64()[..4], want);
    }

    #[test]
    fn random_numbers_lie_in_their_range_and_repeat_with_their_seed() {
        for to in [DType::F32, DType::F16, DType::BF16, DType::F8E4M3] {
            let y = drawn("uniform", 2.0, 3.0, 7, to, 5000);
            assert_eq!(y, drawn("uniform", 2.0, 3.0, 7, to, 5000));
            assert!(y.to_f64().iter().all(|v| (2.0..3.0).contains(v)), "{to}");
        }
        let fresh = || drawn("uniform", 0.0, 1.0, 0, DType::F32, 100);
        assert_ne!(fresh(), fresh(), "a seed of 0 takes another key each time");
        assert_ne!(
            drawn("uniform", 0.0, 1.0, 1, DType::F32, 9),
            drawn("uniform", 0.0, 1.0, 1 << 32, DType::F32, 9)
        );
    }

    #[test]
    fn normal_numbers_have_their_mean_and_deviation() {
        let v = drawn("normal", 5.0, 2.0, 3, DType::F32, 40_000).to_f64();
        let mean = v.iter().sum::<f64>() / v.len() as f64;
        let spread = (v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / v.len() as f64).sqrt();
        assert!((mean - 5.0).abs() < 0.05 && (spread - 2.0).abs() < 0.05, "{mean} {spread}");
    }

    #[test]
    fn the_end_is_the_last_number_before_it() {
        let last = last_before;
        assert_eq!(last(2.0, 1.0, DType::F32), 2.0 - f32::EPSILON);
        assert_eq!(last(-2.0, 1.0, DType::F32), -2.0 - 2.0 * f32::EPSILON);
        assert_eq!(last(-2.0, -1.0, DType::F32), -2.0 + f32::EPSILON);
        assert_eq!(last(2.0, -1.0, DType::F32), 2.0 + 2.0 * f32::EPSILON);
        assert_eq!(last(2.0, 1.0, DType::F16), 2.0 - 2f32.powi(-10));
        assert_eq!(last(1e6, 1.0, DType::F16), 65504.0);
        assert_eq!(last(0.0, 1.0, DType::F32), -f32::from_bits(1));
        // 0.1 is rounded down in f16.
        assert!(last(0.1, 1.0, DType::F16) < 0.1 && last(0.1, 1.0, DType::F16) > 0.0999);
        assert_eq!(last(3.0, 0.0, DType::F32), 3.0);
    }

    #[test]
    fn ends_that_are_too_far_apart_are_refused() {
        let attrs = Attrs::new().with("a", -3e38).with("b", 3e38);
        let e = run_all("random", attrs, &[Some(ints(DType::I64, &[1], &[2]))]).unwrap_err();
        assert!(e.to_string().contains("finite in f32"), "{e}");
    }
}
