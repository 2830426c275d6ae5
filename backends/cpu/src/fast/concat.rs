//! Rows that are made of parts side by side.

use super::short;
use crate::threads::{self, Parts};
use kiln_backend::stop::Checkpoints;

/// Bytes of rows that are made together, so that the cache holds them from part to part.
const BLOCK: usize = 8 << 10;
/// Bytes that one task copies at least.
const TASK: usize = 32 << 10;

/// Part of each row: the place of its first byte in the row, its length, and those of all rows one after the other.
pub type Part<'a> = (usize, usize, &'a [u8]);

/// Writes rows of so many bytes.
pub fn rows_of(parts: &[Part<'_>], row: usize, to: &mut [u8]) {
    // The widest elements that all parts consist of.
    let all = parts.iter().fold(row, |all, (_, n, _)| all | n);
    match all.trailing_zeros() {
        0 => rows::<1>(parts, row, to),
        1 => rows::<2>(parts, row, to),
        2 => rows::<4>(parts, row, to),
        _ => rows::<8>(parts, row, to),
    }
}

fn rows<const N: usize>(parts: &[Part<'_>], row: usize, to: &mut [u8]) {
    let (to, row) = (to.as_chunks_mut::<N>().0, row / N);
    if row == 0 {
        return;
    }
    let parts: Vec<(usize, usize, &[[u8; N]])> =
        parts.iter().map(|&(at, n, from)| (at / N, n / N, from.as_chunks().0)).collect();
    let (count, many) = (to.len() / row, (BLOCK / N / row).max(1));
    let (all, points) = (Parts::new(to), Checkpoints::here());
    threads::ranges(count.div_ceil(many), TASK.div_ceil(many * row * N), |blocks| {
        for first in blocks.map(|b| b * many) {
            points.pass();
            let end = count.min(first + many);
            // SAFETY: each block of rows belongs to one task.
            let to = unsafe { all.part(first * row, end * row) };
            for &(at, n, from) in &parts {
                spread(&from[first * n..end * n], (at, n), to, row);
            }
        }
    });
}

/// Writes a part of so many elements of each row.
fn spread<const N: usize>(from: &[[u8; N]], (at, n): (usize, usize), to: &mut [[u8; N]], row: usize) {
    match n {
        0 => {}
        1 => few::<N, 1>(from, at, to, row),
        2 => few::<N, 2>(from, at, to, row),
        3 => few::<N, 3>(from, at, to, row),
        4 => few::<N, 4>(from, at, to, row),
        _ => {
            for (to, from) in to.chunks_exact_mut(row).zip(from.chunks_exact(n)) {
                short::copy::<[u8; N], 4>(from, &mut to[at..at + n]);
            }
        }
    }
}

/// Writes parts of `M` elements.
fn few<const N: usize, const M: usize>(from: &[[u8; N]], at: usize, to: &mut [[u8; N]], row: usize) {
    for (to, from) in to.chunks_exact_mut(row).zip(from.as_chunks::<M>().0) {
        if let Some(to) = to[at..].first_chunk_mut() {
            *to = *from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_parts_in_order() {
        for lengths in [
            &[1usize, 1][..],
            &[4, 4],
            &[2, 6, 10, 2],
            &[4, 12, 0, 8],
            &[8, 24, 40],
            &[1, 5, 300, 17, 64],
            &[16, 3],
        ] {
            let (row, count) = (lengths.iter().sum::<usize>(), 37);
            let mut wanted = vec![0u8; row * count];
            let mut at = 0;
            let mut data = Vec::new();
            for (p, &n) in lengths.iter().enumerate() {
                let bytes: Vec<u8> = (0..n * count).map(|i| (i * 7 + p * 31) as u8).collect();
                for r in 0..count {
                    wanted[r * row + at..][..n].copy_from_slice(&bytes[r * n..][..n]);
                }
                data.push((at, n, bytes));
                at += n;
            }
            let parts: Vec<Part<'_>> = data.iter().map(|(at, n, bytes)| (*at, *n, &bytes[..])).collect();
            let mut found = vec![0u8; row * count];
            rows_of(&parts, row, &mut found);
            assert_eq!(found, wanted, "{lengths:?}");
        }
        rows_of(&[(0, 0, &[])], 0, &mut []);
    }
}
