//! Tiles of products of integers, whose sums wrap in 32 bits: pairs of 16-bit words, or four bytes, are multiplied and added at once.

use super::micro::{MAX_ROWS, Micro, Panel, Place, Run, Start, begin, end, kernels};
#[cfg(target_arch = "x86_64")]
use super::micro_amx;
use super::simd::{Level, level};

/// Two words of a row or a column, one after the other.
pub type Pair = [i16; 2];

/// Four bytes of a row, without sign, or of a column, with sign.
pub type Four = [u8; 4];

/// The kernels of words of the level.
pub fn words() -> Micro<Pair, i32> {
    words_of(level())
}

/// The kernels of bytes of the level, if it has instructions for them.
pub fn bytes() -> Option<Micro<Four, i32>> {
    bytes_of(level()).next().map(|[columns, _]| columns)
}

/// Bytes of a row of the matrix unit. Shorter sums leave it partly idle, while its results take as long.
const MATRIX_ROW: usize = 64;

/// The kernels of bytes of the level whose rows have a sign, and columns none, for sums of so many products.
pub fn columns_of_bytes(depth: usize) -> Option<Micro<Four, i32>> {
    let level = level();
    let by_vectors = depth < MATRIX_ROW && amx(level) && vnni(level);
    bytes_of(level).nth(usize::from(by_vectors)).map(|[_, rows]| rows)
}

/// Whether kernels of bytes cut sums of two products to 16 bits.
pub fn saturates() -> bool {
    !exact(level())
}

/// Whether the fastest kernels of bytes of a level add sums of four products in 32 bits.
fn exact(level: Level) -> bool {
    vnni(level) || amx(level)
}

/// Whether kernels of bytes run on the matrix unit.
pub fn has_matrix_unit() -> bool {
    amx(level())
}

fn amx(level: Level) -> bool {
    #[cfg(target_arch = "x86_64")]
    return level == Level::Avx512 && micro_amx::available();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Whether sums of four products are added in 32 bits.
fn vnni(level: Level) -> bool {
    #[cfg(target_arch = "x86_64")]
    return level == Level::Avx512 && std::is_x86_feature_detected!("avx512vnni");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Kernels of bytes: whose columns have a sign, and whose rows have one.
type Bytes = [Micro<Four, i32>; 2];

/// All kernels of bytes that a level has, the fastest first.
#[cfg(target_arch = "x86_64")]
fn bytes_of(level: Level) -> impl Iterator<Item = Bytes> {
    let micro = |mr, nr, run, half| Micro { mr, nr, run, half };
    let amx = amx(level).then(|| {
        [
            micro(micro_amx::ROWS, 32, micro_amx::BYTES, micro_amx::HALF_BYTES),
            micro(micro_amx::ROWS, 32, micro_amx::COLUMNS, micro_amx::HALF_COLUMNS),
        ]
    });
    let vnni = vnni(level).then(|| {
        [
            micro(12, 32, x86::BYTES_VNNI, x86::HALF_BYTES_VNNI),
            micro(12, 32, x86::COLUMNS_VNNI, x86::HALF_COLUMNS_VNNI),
        ]
    });
    let avx2 = (level >= Level::Avx2).then(|| {
        [
            micro(6, 16, x86::BYTES_AVX2, x86::HALF_BYTES_AVX2),
            micro(6, 16, x86::COLUMNS_AVX2, x86::HALF_COLUMNS_AVX2),
        ]
    });
    amx.into_iter().chain(vnni).chain(avx2)
}

#[cfg(not(target_arch = "x86_64"))]
fn bytes_of(_: Level) -> impl Iterator<Item = Bytes> {
    std::iter::empty()
}

fn words_of(level: Level) -> Micro<Pair, i32> {
    match level {
        #[cfg(target_arch = "x86_64")]
        _ if vnni(level) => Micro { mr: 12, nr: 32, run: x86::VNNI, half: x86::HALF_VNNI },
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Avx2 => Micro { mr: 6, nr: 16, run: x86::AVX2, half: x86::HALF_AVX2 },
        _ => Micro { mr: 4, nr: 4, run: BASE, half: HALF },
    }
}

const BASE: &[Run<Pair, i32>] = kernels!(base, 4; 1 2 3 4);
const HALF: &[Run<Pair, i32>] = kernels!(base, 2; 1 2 3 4);

/// # Safety
/// As of [`Run`].
unsafe fn base<const MR: usize, const W: usize>(
    rows: &[&[Pair]; MAX_ROWS],
    b: Panel<'_, Pair>,
    start: Start<'_, i32>,
    to: Place<i32>,
) {
    let rows: [&[Pair]; MR] = std::array::from_fn(|i| &rows[i][..b.depth]);
    // SAFETY: as the contract says.
    let mut c = unsafe { begin::<i32, MR, W>(0, start, to) };
    for (k, y) in b.data.chunks(b.pitch.max(1)).take(b.depth).enumerate() {
        for i in 0..MR {
            let x = rows[i][k].map(i32::from);
            for j in 0..W {
                // Products of words are below 2³⁰ but for one, so that only sums wrap.
                let pair = (x[0] * i32::from(y[j][0])).wrapping_add(x[1] * i32::from(y[j][1]));
                c[i][j] = c[i][j].wrapping_add(pair);
            }
        }
    }
    // SAFETY: as the contract says.
    unsafe { end(&c, to) }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use std::arch::x86_64::*;

    pub const AVX2: &[Run<Pair, i32>] = kernels!(avx2, 2; 1 2 3 4 5 6);
    pub const HALF_AVX2: &[Run<Pair, i32>] = kernels!(avx2, 1; 1 2 3 4 5 6);
    pub const VNNI: &[Run<Pair, i32>] = kernels!(vnni, 2; 1 2 3 4 5 6 7 8 9 10 11 12);
    pub const HALF_VNNI: &[Run<Pair, i32>] = kernels!(vnni, 1; 1 2 3 4 5 6 7 8 9 10 11 12);
    pub const BYTES_AVX2: &[Run<Four, i32>] = kernels!(bytes_avx2, 2; 1 2 3 4 5 6);
    pub const HALF_BYTES_AVX2: &[Run<Four, i32>] = kernels!(bytes_avx2, 1; 1 2 3 4 5 6);
    pub const BYTES_VNNI: &[Run<Four, i32>] = kernels!(bytes_vnni, 2; 1 2 3 4 5 6 7 8 9 10 11 12);
    pub const HALF_BYTES_VNNI: &[Run<Four, i32>] = kernels!(bytes_vnni, 1; 1 2 3 4 5 6 7 8 9 10 11 12);

    pub const COLUMNS_AVX2: &[Run<Four, i32>] = kernels!(columns_avx2, 2; 1 2 3 4 5 6);
    pub const HALF_COLUMNS_AVX2: &[Run<Four, i32>] = kernels!(columns_avx2, 1; 1 2 3 4 5 6);
    pub const COLUMNS_VNNI: &[Run<Four, i32>] = kernels!(columns_vnni, 2; 1 2 3 4 5 6 7 8 9 10 11 12);
    pub const HALF_COLUMNS_VNNI: &[Run<Four, i32>] = kernels!(columns_vnni, 1; 1 2 3 4 5 6 7 8 9 10 11 12);

    /// Defines tiles of `V` vectors of columns for one instruction set.
    macro_rules! tiles {
        ($name:ident, $group:ty, $features:literal, $vector:ident, $lanes:literal, $zero:ident, $all:ident, $load:ident, $store:ident,
         |$c:ident, $x:ident, $y:ident| $add:expr) => {
            /// # Safety
            /// As of [`Run`].
            #[target_feature(enable = $features)]
            unsafe fn $name<const MR: usize, const V: usize>(
                rows: &[&[$group]; MAX_ROWS],
                b: Panel<'_, $group>,
                start: Start<'_, i32>,
                to: Place<i32>,
            ) {
                let rows: [&[$group]; MR] = std::array::from_fn(|i| &rows[i][..b.depth]);
                let mut sums: [[$vector; V]; MR] = [[$zero(); V]; MR];
                for i in 0..MR {
                    for v in 0..V {
                        sums[i][v] = match start {
                            Start::Zero => $zero(),
                            // SAFETY: the slice has a vector of numbers; loads need no alignment.
                            Start::Columns(x) => unsafe {
                                $load(x[$lanes * v..$lanes * (v + 1)].as_ptr().cast())
                            },
                            Start::Rows(x) => $all(x[i]),
                            // SAFETY: rows of the place are `V` vectors.
                            Start::There => unsafe { $load(to.first.add(i * to.stride + $lanes * v).cast()) },
                        };
                    }
                }
                let mut line = b.data.as_ptr();
                for k in 0..b.depth {
                    let mut y = [$zero(); V];
                    for v in 0..V {
                        // SAFETY: rows of the panel have at least `V` vectors of groups.
                        y[v] = unsafe { $load(line.add($lanes * v).cast()) };
                    }
                    line = line.wrapping_add(b.pitch);
                    for i in 0..MR {
                        // SAFETY: rows are as long as the panel is deep, as was checked.
                        let $x = $all(bytemuck::cast(unsafe { *rows[i].get_unchecked(k) }));
                        for v in 0..V {
                            let ($c, $y) = (sums[i][v], y[v]);
                            sums[i][v] = $add;
                        }
                    }
                }
                for i in 0..MR {
                    for v in 0..V {
                        // SAFETY: rows of the place are `V` vectors; stores need no alignment.
                        unsafe { $store(to.first.add(i * to.stride + $lanes * v).cast(), sums[i][v]) };
                    }
                }
            }
        };
    }
    macro_rules! avx2 {
        ($name:ident, $group:ty, |$c:ident, $x:ident, $y:ident| $add:expr) => {
            tiles!(
                $name,
                $group,
                "avx2",
                __m256i,
                8,
                _mm256_setzero_si256,
                _mm256_set1_epi32,
                _mm256_loadu_si256,
                _mm256_storeu_si256,
                |$c, $x, $y| $add
            );
        };
    }
    macro_rules! vnni {
        ($name:ident, $group:ty, |$c:ident, $x:ident, $y:ident| $add:expr) => {
            tiles!(
                $name,
                $group,
                "avx512f,avx512bw,avx512vnni",
                __m512i,
                16,
                _mm512_setzero_si512,
                _mm512_set1_epi32,
                _mm512_loadu_si512,
                _mm512_storeu_si512,
                |$c, $x, $y| $add
            );
        };
    }

    avx2!(avx2, Pair, |c, x, y| _mm256_add_epi32(c, _mm256_madd_epi16(x, y)));
    vnni!(vnni, Pair, |c, x, y| _mm512_dpwssd_epi32(c, x, y));
    // Bytes without sign are those of rows or those of columns. AVX2 cuts sums of two products to 16 bits, which those with small bytes of
    // sign fit.
    avx2!(bytes_avx2, Four, |c, x, y| add_fours(c, x, y));
    avx2!(columns_avx2, Four, |c, x, y| add_fours(c, y, x));
    vnni!(bytes_vnni, Four, |c, x, y| _mm512_dpbusd_epi32(c, x, y));
    vnni!(columns_vnni, Four, |c, x, y| _mm512_dpbusd_epi32(c, y, x));

    /// Adds sums of four products of bytes, the first ones without sign.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn add_fours(c: __m256i, x: __m256i, y: __m256i) -> __m256i {
        _mm256_add_epi32(c, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), _mm256_set1_epi16(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fast::micro::tests::check;

    #[test]
    fn tiles_of_any_size_are_exact_at_every_level() {
        let word = |i: usize| [(i * 37 % 511) as i16 - 255, (i * 91 % 511) as i16 - 255];
        for level in Level::all() {
            check(&words_of(level), (word, word, |i| i as i32 * 1000), |sum, x, y| {
                sum + i32::from(x[0]) * i32::from(y[0]) + i32::from(x[1]) * i32::from(y[1])
            });
        }
    }

    #[test]
    fn tiles_of_bytes_are_exact_where_those_with_a_sign_are_small() {
        let left = |i: usize| [i * 37, 255, i * 91, i * 13].map(|x| (x % 256) as u8);
        let right = |i: usize| [i * 5, i * 7 + 3, i * 11, i * 29].map(|x| (x as i32 % 129 - 64) as u8);
        let add = |sum: i32, x: Four, y: Four| {
            sum + (0..4).map(|i| i32::from(x[i]) * i32::from(y[i] as i8)).sum::<i32>()
        };
        for [columns, rows] in Level::all().flat_map(bytes_of) {
            check(&columns, (left, right, |i| i as i32 * 1000), add);
            check(&rows, (right, left, |i| i as i32 * 1000), |sum, x, y| add(sum, y, x));
        }
    }
}
