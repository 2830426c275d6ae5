//! `random`: numbers of a counter-based generator, a block of four at a time.

use super::made::fill;
use super::{Kernel, NodeCx, TABLES, kernel};
use crate::threads;
use kiln_backend::BackendError;
use kiln_ir::DType;
use kiln_ir::expr::Num;
use kiln_ir::float::{bf16_bits, f8e4m3_bits, f8e4m3_to_f64, f16_bits};
use kiln_ops::generate::random::{RANDOM, Uniform, key, philox};

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(RANDOM, random, |_| true)];

/// Elements of one task: a multiple of those of a block.
const TASK: usize = 1 << 12;
/// Numbers that 24 bits count.
const ONE: f64 = 16_777_216.0;

fn random(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let numbers = (attrs.float("a"), attrs.float("b"), attrs.int("seed"), attrs.dtype("to"));
    let (Some(shape), (Ok(a), Ok(b), Ok(seed), Ok(to))) = (cx.out_shape(0), numbers) else {
        return Ok(false);
    };
    let uniform = match attrs.str("dist") {
        Ok("normal") => None,
        _ => match Uniform::of(attrs) {
            Ok(u) => Some(u),
            Err(_) => return Ok(false),
        },
    };
    let (mean, deviation) = (f64::from(a as f32), f64::from(b as f32));
    let key = key(seed);
    let mut wide = vec![0f32; shape.iter().product()];
    threads::chunks(&mut wide, TASK, 1, |c, y| {
        for (k, y) in y.chunks_mut(4).enumerate() {
            let block = (c * TASK / 4 + k) as u64;
            let words = philox([block as u32, (block >> 32) as u32, 0, 0], key);
            for (lane, y) in y.iter_mut().enumerate() {
                *y = match &uniform {
                    Some(u) => drawn(u, words[lane] >> 8, to),
                    None => (mean + deviation * normal(words, lane)) as f32,
                };
            }
        }
    });
    fill(cx, &shape, |i| Num::F(wide[i].into()))
}

/// The number between the ends that 24 bits stand for.
fn drawn(u: &Uniform, bits: u32, to: DType) -> f32 {
    let y = rounded(u.from + u.width * (bits as f32 / ONE as f32), to);
    let beyond = if u.width > 0.0 { y >= u.end } else { y <= u.end };
    if beyond { u.last } else { y }
}

/// A number rounded to a type of floats.
fn rounded(x: f32, to: DType) -> f32 {
    match to {
        DType::F16 => half::f16::from_bits(f16_bits(x.into())).to_f32(),
        DType::BF16 => half::bf16::from_bits(bf16_bits(x.into())).to_f32(),
        DType::F8E4M3 => f8e4m3_to_f64(f8e4m3_bits(x.into())) as f32,
        _ => x,
    }
}

/// A standard normal number, by Box and Muller.
fn normal(words: [u32; 4], lane: usize) -> f64 {
    let pair = lane / 2 * 2;
    let (k, m) = (words[pair] >> 8, words[pair + 1] >> 8);
    let radius = libm::sqrt(-2.0 * libm::log((f64::from(k) + 1.0) / ONE));
    // Quarters of a turn, and the angle from there, so that zeros are exact.
    let quarter = (m * 4 + (1 << 23)) >> 24;
    let angle = (f64::from(m * 4) - f64::from(quarter << 24)) / ONE * std::f64::consts::FRAC_PI_2;
    radius
        * match (quarter + u32::from(lane.is_multiple_of(2))) % 4 {
            0 => libm::sin(angle),
            1 => libm::cos(angle),
            2 => -libm::sin(angle),
            _ => -libm::cos(angle),
        }
}
