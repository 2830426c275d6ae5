//! Transposes of small square blocks, as many elements wide as a vector of 16 bytes has.

/// Writes columns from element `r` on as rows from element `c` on. There are as many of both, and as many elements of each are written, as
/// 16 bytes hold of 1, 2, 4 or 8 bytes.
#[inline(always)]
pub fn turned<const N: usize>(columns: &[&[[u8; N]]], r: usize, rows: &mut [&mut [[u8; N]]], c: usize) {
    match N {
        1 => block::<N, 16>(columns, r, rows, c),
        2 => block::<N, 8>(columns, r, rows, c),
        4 => block::<N, 4>(columns, r, rows, c),
        _ => block::<N, 2>(columns, r, rows, c),
    }
}

#[inline(always)]
fn block<const N: usize, const K: usize>(
    columns: &[&[[u8; N]]],
    r: usize,
    rows: &mut [&mut [[u8; N]]],
    c: usize,
) {
    let mut all = [[0u8; 16]; K];
    for (to, column) in all.iter_mut().zip(columns) {
        if let Some(from) = column[r..].as_flattened().first_chunk() {
            *to = *from;
        }
    }
    for (from, row) in turn::<N, K>(all).iter().zip(rows) {
        if let Some(to) = row[c..].as_flattened_mut().first_chunk_mut() {
            *to = *from;
        }
    }
}

/// Each round weaves the first half of the vectors with the second; after as many rounds as bits count them they are turned.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn turn<const N: usize, const K: usize>(all: [[u8; 16]; K]) -> [[u8; 16]; K] {
    use std::arch::x86_64::*;
    // SAFETY: the array has 16 bytes; loads need no alignment.
    let mut v = all.map(|x| unsafe { _mm_loadu_si128(x.as_ptr().cast()) });
    for _ in 0..K.trailing_zeros() {
        let old = v;
        for i in 0..K / 2 {
            let (a, b) = (old[i], old[i + K / 2]);
            // SAFETY: every processor of the architecture has SSE2.
            (v[2 * i], v[2 * i + 1]) = unsafe {
                match N {
                    1 => (_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b)),
                    2 => (_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b)),
                    4 => (_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b)),
                    _ => (_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b)),
                }
            };
        }
    }
    v.map(|x| {
        let mut to = [0; 16];
        // SAFETY: as above.
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), x) };
        to
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn turn<const N: usize, const K: usize>(all: [[u8; 16]; K]) -> [[u8; 16]; K] {
    let byte = |i: usize, b: usize| all[b / N][i * N + b % N];
    std::array::from_fn(|i| std::array::from_fn(|b| byte(i, b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<const N: usize>() {
        let k = 16 / N;
        let element = |i: usize, j: usize| -> [u8; N] {
            std::array::from_fn(|b| i.wrapping_mul(61).wrapping_add(j * 7 + b) as u8)
        };
        let columns: Vec<Vec<[u8; N]>> =
            (0..k).map(|j| (0..k + 3).map(|i| element(i.wrapping_sub(3), j)).collect()).collect();
        let columns: Vec<&[[u8; N]]> = columns.iter().map(Vec::as_slice).collect();
        let mut rows = vec![vec![[0u8; N]; k + 1]; k];
        let mut to: Vec<&mut [[u8; N]]> = rows.iter_mut().map(Vec::as_mut_slice).collect();
        turned(&columns, 3, &mut to, 1);
        for (i, row) in rows.iter().enumerate() {
            assert!(row[1..].iter().enumerate().all(|(j, x)| *x == element(i, j)), "{row:?}");
        }
    }

    #[test]
    fn rows_become_columns() {
        check::<1>();
        check::<2>();
        check::<4>();
        check::<8>();
    }
}
