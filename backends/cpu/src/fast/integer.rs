//! Products of integers: numbers of 8 bits as words of 16, whose products are exact in 32, and numbers of 32 bits. Sums
//! wrap in 32 bits.

use super::NodeCx;
use super::operand::{Operand, operand};
use super::simd::{Level, level};
use crate::threads::{self, Parts};
use crate::value::{Out, Val};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::DType;
use kiln_ops::util::{broadcast_strides, for_each_index, offset};

/// Vectors of either side that are multiplied at once.
const TILE: usize = 4;
/// Words of a vector register; lengths of vectors of 16 bits are multiples of it.
pub const STEP: usize = 32;

/// Vectors that are packed together where their words are side by side.
const BESIDE: usize = 32;

/// Integer type of a product's operands.
pub trait Word: Copy + Default + Send + Sync {
    /// Multiple of words that vectors are filled up to with zeros.
    const STEP: usize;
    /// The words of a tensor; `None` if its elements do not fit.
    fn read(v: &Val) -> Option<Vec<Self>>;
    /// The products of four vectors with four others.
    fn tile(a: [&[Self]; TILE], b: [&[Self]; TILE]) -> [[i32; TILE]; TILE];
}

impl Word for i16 {
    const STEP: usize = STEP;

    fn read(v: &Val) -> Option<Vec<i16>> {
        let bytes = v.bytes();
        match v.dtype() {
            DType::I8 => Some(bytes.iter().map(|&b| i16::from(b as i8)).collect()),
            DType::U8 => Some(bytes.iter().map(|&b| i16::from(b)).collect()),
            _ => None,
        }
    }

    fn tile(a: [&[i16]; TILE], b: [&[i16]; TILE]) -> [[i32; TILE]; TILE] {
        #[cfg(target_arch = "x86_64")]
        match level() {
            Level::Avx512 if std::is_x86_feature_detected!("avx512vnni") => {
                // SAFETY: the processor has VNNI and AVX-512, as was asked.
                return unsafe { x86::vnni(a, b) };
            }
            // SAFETY: the processor has AVX2, which both levels contain.
            Level::Avx512 | Level::Avx2 => return unsafe { x86::avx2(a, b) },
            Level::Base => {}
        }
        scalar(a, b)
    }
}

impl Word for i32 {
    const STEP: usize = 1;

    fn read(v: &Val) -> Option<Vec<i32>> {
        v.view::<i32>().filter(|_| v.dtype() == DType::I32).map(<[i32]>::to_vec)
    }

    fn tile(a: [&[i32]; TILE], b: [&[i32]; TILE]) -> [[i32; TILE]; TILE] {
        let dot = |a: &[i32], b: &[i32]| {
            a.iter().zip(b).fold(0, |s: i32, (&a, &b)| s.wrapping_add(a.wrapping_mul(b)))
        };
        a.map(|a| b.map(|b| dot(a, b)))
    }
}

fn scalar(a: [&[i16]; TILE], b: [&[i16]; TILE]) -> [[i32; TILE]; TILE] {
    let dot = |a: &[i16], b: &[i16]| {
        a.iter().zip(b).fold(0, |s: i32, (&a, &b)| s.wrapping_add(i32::from(a) * i32::from(b)))
    };
    a.map(|a| b.map(|b| dot(a, b)))
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{STEP, TILE};
    use std::arch::x86_64::*;

    /// Products by VNNI: two products of words are added to a sum of 32 bits at once.
    ///
    /// Loops by index: closures would stay functions of their own where vectors are passed in memory.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    pub fn vnni(a: [&[i16]; TILE], b: [&[i16]; TILE]) -> [[i32; TILE]; TILE] {
        let mut sums = [[_mm512_setzero_si512(); TILE]; TILE];
        for k in 0..steps(&a, &b, STEP) {
            let (mut x, mut y) = ([_mm512_setzero_si512(); TILE], [_mm512_setzero_si512(); TILE]);
            for i in 0..TILE {
                // SAFETY: each vector has so many registers of words; loads need no alignment.
                unsafe {
                    x[i] = _mm512_loadu_si512(a[i].as_ptr().add(k * STEP).cast());
                    y[i] = _mm512_loadu_si512(b[i].as_ptr().add(k * STEP).cast());
                }
            }
            for i in 0..TILE {
                for j in 0..TILE {
                    sums[i][j] = _mm512_dpwssd_epi32(sums[i][j], x[i], y[j]);
                }
            }
        }
        let mut out = [[0; TILE]; TILE];
        for i in 0..TILE {
            for j in 0..TILE {
                out[i][j] = _mm512_reduce_add_epi32(sums[i][j]);
            }
        }
        out
    }

    /// Registers of `step` words that all vectors have.
    #[inline(always)]
    fn steps(a: &[&[i16]; TILE], b: &[&[i16]; TILE], step: usize) -> usize {
        let mut least = a[0].len();
        for i in 0..TILE {
            least = least.min(a[i].len()).min(b[i].len());
        }
        least / step
    }

    /// Products by AVX2: pairs of products are added, then added to sums.
    #[target_feature(enable = "avx2")]
    pub fn avx2(a: [&[i16]; TILE], b: [&[i16]; TILE]) -> [[i32; TILE]; TILE] {
        const HALF: usize = STEP / 2;
        let mut out = [[0; TILE]; TILE];
        let steps = steps(&a, &b, HALF);
        for i in 0..TILE {
            let mut sums = [_mm256_setzero_si256(); TILE];
            for k in 0..steps {
                // SAFETY: each vector has so many registers of words; loads need no alignment.
                let x = unsafe { _mm256_loadu_si256(a[i].as_ptr().add(k * HALF).cast()) };
                for j in 0..TILE {
                    // SAFETY: as above.
                    let y = unsafe { _mm256_loadu_si256(b[j].as_ptr().add(k * HALF).cast()) };
                    sums[j] = _mm256_add_epi32(sums[j], _mm256_madd_epi16(x, y));
                }
            }
            for j in 0..TILE {
                let mut lanes = [0i32; 8];
                // SAFETY: the array is as long as a register; stores need no alignment.
                unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sums[j]) };
                out[i][j] = lanes.iter().fold(0i32, |s, &x| s.wrapping_add(x));
            }
        }
        out
    }
}

/// Vectors of words of one length, one after the other, each filled up with zeros.
pub struct Vectors<T> {
    words: Vec<T>,
    /// Words from one vector to the next.
    pub pitch: usize,
    pub count: usize,
}

impl<T: Word> Vectors<T> {
    /// So many vectors of zeros.
    pub fn zeros(count: usize, len: usize) -> Vectors<T> {
        let pitch = len.next_multiple_of(T::STEP);
        Vectors { words: vec![T::default(); count * pitch], pitch, count }
    }

    /// Vectors whose words are `step` apart, beginning `next` apart.
    fn packed(x: &[T], [count, next, len, step]: [usize; 4]) -> Vectors<T> {
        let mut v = Vectors::zeros(count, len);
        let pitch = v.pitch;
        if next == 1 && step != 1 {
            // Neighbours of several vectors are read together, in the order of memory.
            threads::chunks(&mut v.words, pitch * BESIDE, 1, |block, to| {
                let first = block * BESIDE;
                let many = BESIDE.min(count - first);
                for p in 0..len {
                    let from = &x[p * step + first..p * step + first + many];
                    for (to, &x) in to.chunks_exact_mut(pitch).zip(from) {
                        to[p] = x;
                    }
                }
            });
            return v;
        }
        threads::chunks(&mut v.words, pitch, 1 + 4096 / pitch.max(1), |i, to| match step {
            1 => to[..len].copy_from_slice(&x[i * next..i * next + len]),
            _ => to[..len].iter_mut().enumerate().for_each(|(p, to)| *to = x[i * next + p * step]),
        });
        v
    }

    /// The words of one vector, to write.
    pub fn vector_mut(&mut self, i: usize) -> &mut [T] {
        &mut self.words[i * self.pitch..(i + 1) * self.pitch]
    }

    fn four(&self, first: usize) -> [&[T]; TILE] {
        // The last vector stands for those that are missing.
        std::array::from_fn(|i| {
            let i = (first + i).min(self.count - 1);
            &self.words[i * self.pitch..(i + 1) * self.pitch]
        })
    }
}

/// Calls `put(i, j, product)` for each vector i of a and j of b.
pub fn multiply<T: Word>(a: &Vectors<T>, b: &Vectors<T>, mut put: impl FnMut(usize, usize, i32)) {
    for i in (0..a.count).step_by(TILE) {
        let left = a.four(i);
        for j in (0..b.count).step_by(TILE) {
            let tile = T::tile(left, b.four(j));
            for (r, tile) in tile.iter().enumerate().take(a.count - i) {
                for (c, &x) in tile.iter().enumerate().take(b.count - j) {
                    put(i + r, j + c, x);
                }
            }
        }
    }
}

pub fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    Ok(product::<i16>(cx)? || product::<i32>(cx)?)
}

fn product<T: Word>(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let (ta, tb) = (attrs.bool("trans_a").unwrap_or(false), attrs.bool("trans_b").unwrap_or(false));
    let (Some(Some(a)), Some(Some(b))) = (cx.args.first(), cx.args.get(1)) else { return Ok(false) };
    let (Some(x), Some(y)) = (T::read(a), T::read(b)) else { return Ok(false) };
    let operands = (operand(a.shape(), ta, true), operand(b.shape(), tb, false));
    let ((Some(l), Some(r)), Some(shape)) = (operands, cx.out_shape(0)) else { return Ok(false) };
    if cx.out_dtype(0) != Some(DType::I32) {
        return Ok(false);
    }
    let vectors = usize::from(a.shape().len() == 1) + usize::from(b.shape().len() == 1);
    let batch = &shape[..(shape.len() + vectors).saturating_sub(2).min(shape.len())];
    let (m, n, k) = (l.rows, r.cols, l.cols);
    let mut out = Out::new(cx.pool, DType::I32, &shape, &cx.node.name)?;
    let c = out.elems_mut::<i32>();
    if k == 0 {
        c.fill(0);
    } else if !c.is_empty() {
        let strides = [&l, &r].map(|o: &Operand| broadcast_strides(&o.batch, batch));
        let mut matrices = c.chunks_exact_mut(m * n);
        for_each_index(batch, |at| {
            let (from_a, from_b) = (offset(at, &strides[0]) * m * k, offset(at, &strides[1]) * k * n);
            let rows = Vectors::packed(&x[from_a..], [m, l.row, k, l.col]);
            let columns = Vectors::packed(&y[from_b..], [n, r.col, k, r.row]);
            if let Some(c) = matrices.next() {
                product_of(&rows, &columns, c);
            }
        });
    }
    cx.push(out.done());
    Ok(true)
}

/// Columns that a task multiplies with all rows: their words stay in the cache.
const COLUMNS: usize = 64;

/// c = a by b, row by row.
fn product_of<T: Word>(a: &Vectors<T>, b: &Vectors<T>, c: &mut [i32]) {
    let points = Checkpoints::here();
    let n = b.count;
    let parts = Parts::new(c);
    let bands = n.div_ceil(COLUMNS);
    let strips = a.count.div_ceil(TILE);
    threads::ranges(bands * strips, 1 + 65536 / (COLUMNS * TILE * a.pitch.max(1)), |range| {
        for task in range {
            points.pass();
            let (band, strip) = (task / strips, task % strips);
            let columns = band * COLUMNS..n.min((band + 1) * COLUMNS);
            let i = strip * TILE;
            let left = a.four(i);
            for j in columns.clone().step_by(TILE) {
                let tile = T::tile(left, b.four(j));
                for (r, tile) in tile.iter().enumerate().take(a.count - i) {
                    let end = columns.end.min(j + TILE);
                    // SAFETY: each block of rows and columns belongs to one task.
                    let to = unsafe { parts.part((i + r) * n + j, (i + r) * n + end) };
                    to.copy_from_slice(&tile[..end - j]);
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_words_are_exact_by_every_instruction_set() {
        let words =
            |seed: i32| -> Vec<i16> { (0..64).map(|i| ((i * 37 + seed * 11) % 511 - 255) as i16).collect() };
        let (a, b): (Vec<_>, Vec<_>) = ((0..4).map(words).collect(), (4..8).map(words).collect());
        let (x, y): ([&[i16]; 4], [&[i16]; 4]) =
            (std::array::from_fn(|i| &a[i][..]), std::array::from_fn(|i| &b[i][..]));
        assert_eq!(i16::tile(x, y), scalar(x, y));
        #[cfg(target_arch = "x86_64")]
        if level() >= Level::Avx2 {
            // SAFETY: the processor has AVX2.
            assert_eq!(unsafe { x86::avx2(x, y) }, scalar(x, y));
        }
    }
}
