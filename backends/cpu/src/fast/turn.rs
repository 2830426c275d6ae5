//! Transposes of small square blocks, as many elements wide as a vector of 16 bytes has.

/// Writes the columns of a block as its rows. Both have as many elements as 16 bytes hold, of 1, 2, 4 or 8 bytes.
#[inline(always)]
pub fn turned<'f, 't, const N: usize>(
    column: impl Fn(usize) -> &'f [[u8; N]],
    mut row: impl FnMut(usize) -> &'t mut [[u8; N]],
) {
    match N {
        1 => block::<N, 16>(&column, &mut row),
        2 => block::<N, 8>(&column, &mut row),
        4 => block::<N, 4>(&column, &mut row),
        _ => block::<N, 2>(&column, &mut row),
    }
}

#[inline(always)]
fn block<'f, 't, const N: usize, const K: usize>(
    column: &impl Fn(usize) -> &'f [[u8; N]],
    row: &mut impl FnMut(usize) -> &'t mut [[u8; N]],
) {
    let mut all = [[0u8; 16]; K];
    for (j, to) in all.iter_mut().enumerate() {
        if let Some(from) = column(j).as_flattened().first_chunk() {
            *to = *from;
        }
    }
    for (i, from) in turn::<N, K>(all).iter().enumerate() {
        if let Some(to) = row(i).as_flattened_mut().first_chunk_mut() {
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
        let element = |i: usize, j: usize| -> [u8; N] { std::array::from_fn(|b| (i * 61 + j * 7 + b) as u8) };
        let columns: Vec<Vec<[u8; N]>> = (0..k).map(|j| (0..k).map(|i| element(i, j)).collect()).collect();
        let mut rows = vec![vec![[0u8; N]; k]; k];
        {
            let mut parts: Vec<Option<&mut [[u8; N]]>> = rows.iter_mut().map(|r| Some(&mut r[..])).collect();
            turned(|j| &columns[j][..], |i| parts[i].take().unwrap());
        }
        for (i, row) in rows.iter().enumerate() {
            assert!(row.iter().enumerate().all(|(j, x)| *x == element(i, j)), "{row:?}");
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
