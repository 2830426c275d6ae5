//! Copies of transposed dimensions, block by block.

use super::maps::{Map, OUTSIDE, TASK};
use super::rows::Copy;
use crate::fast::turn;
use crate::threads::{self, Parts};
use kiln_backend::stop::Checkpoints;
use kiln_ops::util::strides;

/// Rows and columns of the blocks that a transpose copies.
const BLOCK: usize = 16;
/// Rows that one task transposes: the memory of each of their columns is read in one stretch.
const BAND: usize = 128;

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

    /// A tile: element j of row i comes from `first + i + j·step`, or is filled in if that is outside.
    fn tile<'t>(&self, first: isize, step: isize, rows: usize, row: impl Fn(usize) -> &'t mut [[u8; N]]) {
        if first == OUTSIDE {
            return (0..rows).for_each(|i| row(i).fill(self.fill));
        }
        let columns = row(0).len();
        // Elements of a vector; those of 16 bytes are copied one by one.
        let whole = 16 / N;
        let (high, wide) = if N == 16 { (0, 0) } else { (rows - rows % whole, columns - columns % whole) };
        let mut to: [&mut [[u8; N]]; BLOCK] =
            std::array::from_fn(|i| if i < rows { row(i) } else { Default::default() });
        for c in (0..wide).step_by(whole) {
            let columns: [&[[u8; N]]; BLOCK] = std::array::from_fn(|j| {
                let from = (first + (c + j) as isize * step) as usize;
                if j < whole { &self.from[from..from + rows] } else { Default::default() }
            });
            for r in (0..high).step_by(whole) {
                turn::turned(&columns[..whole], r, &mut to[r..r + whole], c);
            }
        }
        let element = |i: usize, j: usize| self.from[(first + j as isize * step) as usize + i];
        for (i, to) in to.iter_mut().enumerate().take(rows) {
            let from = if i < high { wide } else { 0 };
            to.iter_mut().enumerate().skip(from).for_each(|(j, y)| *y = element(i, j));
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
        let bands = rows.div_ceil(BAND);
        let count: usize = lens.iter().product::<usize>() * bands;
        let points = Checkpoints::here();
        let parts = Parts::new(to);
        threads::ranges(count, TASK.div_ceil(BAND * columns), |range| {
            points.pass();
            for task in range {
                let (plane, band) = (task / bands, task % bands * BAND);
                let (mut start, mut rest) = (0, plane);
                for (n, s) in lens.iter().zip(&steps).rev() {
                    (start, rest) = (start + rest % n * s, rest / n);
                }
                self.each_row(&outer, plane..plane + 1, |_, place| {
                    let band = band..rows.min(band + BAND);
                    for c in (0..columns).step_by(BLOCK) {
                        let columns = c..columns.min(c + BLOCK);
                        for r in band.clone().step_by(BLOCK) {
                            let rows = r..band.end.min(r + BLOCK);
                            let first = if place == OUTSIDE {
                                OUTSIDE
                            } else {
                                place + (r as isize) + c as isize * step
                            };
                            // SAFETY: each row of a plane belongs to one task.
                            let row = |i: usize| unsafe {
                                let at = start + (rows.start + i) * row_step;
                                parts.part(at + columns.start, at + columns.end)
                            };
                            self.tile(first, step, rows.len(), row);
                        }
                    }
                });
            }
        });
    }
}
