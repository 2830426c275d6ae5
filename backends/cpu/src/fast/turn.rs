//! Transposes of small square blocks, as many elements wide as a vector of 16 bytes has, and of those that an edge cuts.

use super::short;

/// Writes a block of columns as rows: as many of both as 16 bytes hold elements of 1, 2, 4 or 8 bytes. Columns are `step` elements apart, and
/// rows `pitch`.
///
/// # Safety
/// All elements of the block are readable at `from`, and writable at `to`.
#[inline(always)]
pub unsafe fn turned<const N: usize>(from: *const [u8; N], step: isize, to: *mut [u8; N], pitch: usize) {
    // SAFETY: as the contract says.
    unsafe {
        match N {
            1 => block::<N, 16>(from, step, to, pitch),
            2 => block::<N, 8>(from, step, to, pitch),
            4 => block::<N, 4>(from, step, to, pitch),
            _ => block::<N, 2>(from, step, to, pitch),
        }
    }
}

/// # Safety
/// As of [`turned`].
#[inline(always)]
unsafe fn block<const N: usize, const K: usize>(
    from: *const [u8; N],
    step: isize,
    to: *mut [u8; N],
    pitch: usize,
) {
    // SAFETY: as the contract says; arrays of bytes need no alignment.
    let all = std::array::from_fn(|j| unsafe { from.offset(j as isize * step).cast::<[u8; 16]>().read() });
    for (i, row) in turn::<N, K>(all).into_iter().enumerate() {
        // SAFETY: as above.
        unsafe { to.add(i * pitch).cast::<[u8; 16]>().write(row) };
    }
}

/// As [`turned`], of fewer columns or rows. Columns begin with the elements that are written, and rows have room for one of each column at
/// least. More room is overwritten up to a whole vector.
#[inline(always)]
pub fn cut<'a, 't, const N: usize>(
    wide: usize,
    columns: impl Fn(usize) -> &'a [[u8; N]],
    rows: impl Fn(usize) -> &'t mut [[u8; N]],
    high: usize,
) {
    match N {
        1 => edge::<N, 16>(wide, columns, rows, high),
        2 => edge::<N, 8>(wide, columns, rows, high),
        4 => edge::<N, 4>(wide, columns, rows, high),
        _ => edge::<N, 2>(wide, columns, rows, high),
    }
}

#[inline(always)]
fn edge<'a, 't, const N: usize, const K: usize>(
    wide: usize,
    columns: impl Fn(usize) -> &'a [[u8; N]],
    rows: impl Fn(usize) -> &'t mut [[u8; N]],
    high: usize,
) {
    let all = std::array::from_fn(|j| {
        if j >= wide {
            return [0; 16];
        }
        let column = columns(j).as_flattened();
        column.first_chunk().copied().unwrap_or_else(|| short::padded(column, 0))
    });
    for (i, from) in turn::<N, K>(all).iter().enumerate().take(high) {
        let to = rows(i).as_flattened_mut();
        match to.first_chunk_mut() {
            Some(to) => *to = *from,
            None => short::put(from, &mut to[..wide * N]),
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
        let columns: Vec<[u8; N]> =
            (0..k).flat_map(|j| (0..k + 3).map(move |i| element(i.wrapping_sub(3), j))).collect();
        let mut rows = vec![[0u8; N]; k * (k + 1)];
        // SAFETY: columns have 3 elements more than the block, and rows one.
        unsafe { turned(columns[3..].as_ptr(), k as isize + 3, rows[1..].as_mut_ptr(), k + 1) };
        for (i, row) in rows.chunks(k + 1).enumerate() {
            assert!(row[1..].iter().enumerate().all(|(j, x)| *x == element(i, j)), "{row:?}");
        }
    }

    /// Blocks of fewer columns and rows, where columns end with their elements and where others follow.
    fn check_edges<const N: usize>() {
        let k = 16 / N;
        let element =
            |i: usize, j: usize| -> [u8; N] { std::array::from_fn(|b| (i * 61 + j * 7 + b + 1) as u8) };
        // Rows end with their elements, or have room for a vector.
        for (wide, high, more) in (1..=k).flat_map(|w| (1..=k).flat_map(move |h| [(w, h, 0), (w, h, k)])) {
            let columns: Vec<Vec<[u8; N]>> =
                (0..wide).map(|j| (0..high + more).map(|i| element(i, j)).collect()).collect();
            let mut rows = vec![[0u8; N]; (wide + more) * high];
            let parts = crate::threads::Parts::new(&mut rows);
            // SAFETY: each row is taken once.
            let row = |i: usize| unsafe { parts.part(i * (wide + more), (i + 1) * (wide + more)) };
            cut(wide, |j| &columns[j][..], row, high);
            for (i, row) in rows.chunks(wide + more).enumerate() {
                assert!(row[..wide].iter().enumerate().all(|(j, x)| *x == element(i, j)), "{row:?}");
                assert!(row[wide.max(k.min(wide + more))..].iter().all(|x| *x == [0; N]), "{row:?}");
            }
        }
    }

    #[test]
    fn edges_become_columns() {
        check_edges::<1>();
        check_edges::<2>();
        check_edges::<4>();
        check_edges::<8>();
    }

    #[test]
    fn rows_become_columns() {
        check::<1>();
        check::<2>();
        check::<4>();
        check::<8>();
    }
}
