//! Copies of transposed dimensions, block by block.

use super::maps::{Map, OUTSIDE, TASK};
use super::rows::Copy;
use crate::fast::turn;
use crate::threads::{self, Parts};
use kiln_backend::stop::Checkpoints;
use kiln_ops::util::strides;

/// Rows of the tiles that a transpose copies, and columns at least.
const BLOCK: usize = 16;
/// Bytes of a tile's row: a line of the cache, where rows begin with one.
const WIDE: usize = 64;
/// Bytes of each column that one task transposes, which are read in one stretch.
const BAND: usize = 2 << 10;

impl<const N: usize> Copy<'_, N> {
    /// The dimension whose neighbours are neighbours in memory, if that is not the last.
    pub fn transposed(&self) -> Option<usize> {
        let (last, outer) = self.maps.split_last()?;
        let Map::Step { len, step } = last else { return None };
        if (0..=1).contains(step) || *len < 4 {
            return None;
        }
        outer.iter().position(|m| matches!(m, Map::Step { len, step: 1 } if *len >= 4))
    }

    /// A tile: element j of row i comes from `first + i + j·step`, or is filled in if that is outside. Rows are `pitch` elements apart.
    ///
    /// # Safety
    /// Nobody else has the tile's elements at `to` now.
    unsafe fn tile(
        &self,
        (first, step): (isize, isize),
        (rows, columns): (usize, usize),
        to: *mut [u8; N],
        pitch: usize,
    ) {
        // SAFETY: as the contract says.
        let row = |i: usize, j: usize, n: usize| unsafe {
            std::slice::from_raw_parts_mut(to.add(i * pitch + j), n)
        };
        if first == OUTSIDE {
            return (0..rows).for_each(|i| row(i, 0, columns).fill(self.fill));
        }
        let place = |i: usize, j: usize| (first + j as isize * step) as usize + i;
        // Places are a whole tensor's or part of it: those of the corners bound the others.
        let last = place(rows - 1, 0).max(place(rows - 1, columns - 1));
        assert!(first.min(place(0, columns - 1) as isize) >= 0 && last < self.from.len(), "a tile is inside");
        // Elements of a vector; those of 16 bytes are copied one by one.
        let whole = 16 / N;
        if N == 16 {
            for i in 0..rows {
                row(i, 0, columns).iter_mut().enumerate().for_each(|(j, y)| *y = self.from[place(i, j)]);
            }
            return;
        }
        let joined = pitch == columns && columns < whole;
        for c in (0..columns).step_by(whole) {
            let wide = whole.min(columns - c);
            for r in (0..rows).step_by(whole) {
                let high = whole.min(rows - r);
                if wide == whole && high == whole {
                    // SAFETY: the block is part of the tile, whose places are inside, as was checked.
                    unsafe {
                        let from = self.from.as_ptr().add(place(r, c));
                        turn::turned(from, step, to.add(r * pitch + c), pitch);
                    }
                    continue;
                }
                // Elements behind a column are read with it: a vector is loaded at once.
                let column = |j: usize| {
                    let at = place(r, c + j);
                    self.from.get(at..at + whole).unwrap_or_else(|| &self.from[at..at + high])
                };
                // Elements behind a row are those of the next ones, which are written later.
                let room = |i: usize| if joined { whole.min((rows - r - i) * pitch) } else { wide };
                turn::cut(wide, column, |i| row(r + i, c, room(i)), high);
            }
        }
    }

    /// Blocks of the last dimension and of another one, whose neighbours are neighbours in memory.
    pub fn blocks(&self, other: usize, to: &mut [[u8; N]]) {
        let [.., Map::Step { len: columns, step }] = &self.maps[..] else { return };
        let (columns, step) = (*columns, *step);
        let rows = self.maps[other].len();
        let mut outer = self.maps.clone();
        outer.pop();
        outer.remove(other);
        // Elements of the result from one index of each outer dimension to the next.
        let shape: Vec<usize> = self.maps.iter().map(Map::len).collect();
        let mut steps = strides(&shape);
        let row_step = steps[other];
        steps.pop();
        steps.remove(other);
        let lens: Vec<usize> = outer.iter().map(Map::len).collect();
        let (high, wide) = (BAND / N, BLOCK.max(WIDE / N));
        let bands = rows.div_ceil(high);
        // Columns of a task: few rows share their columns among tasks.
        let across = (TASK / rows.min(high)).next_multiple_of(wide).min(columns);
        let pieces = columns.div_ceil(across);
        let count: usize = lens.iter().product::<usize>() * bands * pieces;
        let points = Checkpoints::here();
        let parts = Parts::new(to);
        threads::ranges(count, TASK.div_ceil(rows.min(high) * across), |range| {
            points.pass();
            for task in range {
                let (plane, band) = (task / pieces / bands, task / pieces % bands * high);
                let piece = task % pieces * across;
                let (mut start, mut rest) = (0, plane);
                for (n, s) in lens.iter().zip(&steps).rev() {
                    (start, rest) = (start + rest % n * s, rest / n);
                }
                self.each_row(&outer, plane..plane + 1, |_, place| {
                    let band = band..rows.min(band + high);
                    let end = columns.min(piece + across);
                    for c in (piece..end).step_by(wide) {
                        let columns = c..end.min(c + wide);
                        for r in band.clone().step_by(BLOCK) {
                            let rows = r..band.end.min(r + BLOCK);
                            let first = if place == OUTSIDE {
                                OUTSIDE
                            } else {
                                place + (r as isize) + c as isize * step
                            };
                            let at = start + r * row_step + c;
                            let end = at + (rows.len() - 1) * row_step + columns.len();
                            if let Some(to) = parts.address(at, end) {
                                // SAFETY: each row and column of a plane belongs to one task.
                                unsafe {
                                    self.tile((first, step), (rows.len(), columns.len()), to, row_step);
                                }
                            }
                        }
                    }
                });
            }
        });
    }
}
