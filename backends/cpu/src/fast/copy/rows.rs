//! Copies row by row along the last dimension.

use super::maps::{Map, OUTSIDE, SHORT, TASK};
use super::runs::{Run, few, lines, repeat, repeats, runs};
use crate::fast::short;
use crate::threads::{self, Parts};
use kiln_backend::stop::Checkpoints;
use std::ops::Range;

/// The map along the rows of a copy, and its forms that are copied faster.
struct Row<'a> {
    map: &'a Map,
    runs: Option<Vec<Run>>,
    repeats: Option<usize>,
}

pub struct Copy<'a, const N: usize> {
    pub from: &'a [[u8; N]],
    pub base: isize,
    /// Never empty.
    pub maps: Vec<Map>,
    pub fill: [u8; N],
}

impl<const N: usize> Copy<'_, N> {
    /// Copies where rows have two or three elements of lines that lie apart, as images with channels last are made; false otherwise.
    pub fn woven(&self, to: &mut [[u8; N]]) -> bool {
        let [outer @ .., Map::Step { len: wide, step: 1 }, Map::Step { len: lines @ 2..4, step }] =
            &self.maps[..]
        else {
            return false;
        };
        let (wide, lines) = (*wide, *lines);
        if wide < 4 || (0..=1).contains(step) {
            return false;
        }
        let parts = Parts::new(to);
        self.pieces_of_rows(outer, wide, |row, place, piece| {
            let (first, end) = (piece.start, piece.end);
            // SAFETY: each piece of a row is made once.
            let to = unsafe { parts.part((row * wide + first) * lines, (row * wide + end) * lines) };
            if place == OUTSIDE {
                return to.fill(self.fill);
            }
            let line = |j: isize| {
                let at = (place + j * step) as usize + first;
                &self.from[at..at + end - first]
            };
            let (a, b) = (line(0), line(1));
            if lines == 2 {
                let to = to.as_chunks_mut::<2>().0.iter_mut();
                return to.zip(a.iter().zip(b)).for_each(|(to, (a, b))| *to = [*a, *b]);
            }
            let all = a.iter().zip(b).zip(line(2));
            let to = to.as_chunks_mut::<3>().0.iter_mut();
            to.zip(all).for_each(|(to, ((a, b), c))| *to = [*a, *b, *c]);
        });
        true
    }

    /// Copies where each element of a row comes several times; false otherwise.
    pub fn stretched(&self, to: &mut [[u8; N]]) -> bool {
        let [outer @ .., Map::Step { len: wide, step: 1 }, Map::Step { len: many, step: 0 }] = &self.maps[..]
        else {
            return false;
        };
        let (wide, many) = (*wide, *many);
        if many > SHORT {
            return false;
        }
        let parts = Parts::new(to);
        self.pieces_of_rows(outer, wide, |row, place, piece| {
            // SAFETY: each piece of a row is made once.
            let to =
                unsafe { parts.part((row * wide + piece.start) * many, (row * wide + piece.end) * many) };
            match place {
                OUTSIDE => to.fill(self.fill),
                _ => repeat(&self.from[place as usize + piece.start..place as usize + piece.end], many, to),
            }
        });
        true
    }

    /// Calls `f` with each row of so many elements, its first place, and each piece of it, shared among the threads.
    fn pieces_of_rows(&self, outer: &[Map], wide: usize, f: impl Fn(usize, isize, Range<usize>) + Sync) {
        let points = Checkpoints::here();
        let count = outer.iter().map(Map::len).product::<usize>();
        let pieces = wide.div_ceil(TASK);
        if pieces == 1 {
            return threads::ranges(count, TASK.div_ceil(2 * wide), |rows| {
                points.pass();
                self.each_row(outer, rows, |row, place| f(row, place, 0..wide));
            });
        }
        threads::each(count * pieces, |task| {
            points.pass();
            let (row, first) = (task / pieces, task % pieces * TASK);
            self.each_row(outer, row..row + 1, |row, place| f(row, place, first..wide.min(first + TASK)));
        });
    }

    /// The place of the first element of each row in a range of rows.
    pub fn each_row(&self, outer: &[Map], rows: Range<usize>, mut f: impl FnMut(usize, isize)) {
        if let [Map::Step { step, .. }] = outer {
            return rows.for_each(|row| f(row, self.base + row as isize * step));
        }
        let mut at = vec![0; outer.len()];
        let mut rest = rows.start;
        for (i, m) in at.iter_mut().zip(outer).rev() {
            (*i, rest) = (rest % m.len(), rest / m.len());
        }
        for row in rows {
            let mut place = self.base;
            for (m, &i) in outer.iter().zip(&at) {
                match m.at(i) {
                    OUTSIDE => {
                        place = OUTSIDE;
                        break;
                    }
                    p => place += p,
                }
            }
            f(row, place);
            for (i, m) in at.iter_mut().zip(outer).rev() {
                *i += 1;
                if *i < m.len() {
                    break;
                }
                *i = 0;
            }
        }
    }

    /// Row by row along the last dimension.
    pub fn rows(&self, to: &mut [[u8; N]]) {
        let Some((last, outer)) = self.maps.split_last() else { return };
        let n = last.len();
        let line = Row { map: last, runs: runs(last), repeats: repeats(last) };
        let points = Checkpoints::here();
        let count = to.len() / n;
        let parts = Parts::new(to);
        if let (Some(runs), true) = (&line.runs, count < 8 && n >= 2 * TASK) {
            // Few long rows: pieces of them are shared among the threads.
            let pieces = n.div_ceil(TASK);
            return threads::ranges(count * pieces, 1, |tasks| {
                for task in tasks {
                    points.pass();
                    let (row, first) = (task / pieces, task % pieces * TASK);
                    let end = n.min(first + TASK);
                    self.each_row(outer, row..row + 1, |row, place| {
                        // SAFETY: each piece of a row belongs to one task.
                        let to = unsafe { parts.part(row * n + first, row * n + end) };
                        self.stretches(runs, place, first, to);
                    });
                }
            });
        }
        if let (Map::Step { step: 1, .. }, true) = (last, n < SHORT) {
            return threads::ranges(count, TASK.div_ceil(n), |rows| {
                points.pass();
                self.each_row(outer, rows, |row, place| {
                    // SAFETY: each row belongs to one range.
                    let to = unsafe { parts.part(row * n, (row + 1) * n) };
                    match place {
                        OUTSIDE => to.fill(self.fill),
                        _ => few(&self.from[place as usize..place as usize + n], to),
                    }
                });
            });
        }
        if line.runs.as_ref().is_some_and(|runs| self.sheets(runs, count, &parts)) {
            return;
        }
        threads::ranges(count, TASK.div_ceil(n), |rows| {
            points.pass();
            let mut before: Option<(usize, isize)> = None;
            self.each_row(outer, rows, |row, place| {
                // SAFETY: each row belongs to one range; the row before it in the range is not written any more.
                let now = unsafe { parts.part(row * n, (row + 1) * n) };
                match before {
                    Some((other, same)) if same == place => {
                        // SAFETY: as above.
                        now.copy_from_slice(unsafe { parts.part(other * n, (other + 1) * n) });
                    }
                    _ => self.row(&line, place, now),
                }
                before = Some((row, place));
            });
        });
    }

    /// Copies so many rows that are stretches of neighbours and of the fill value, those of two dimensions at once; false otherwise.
    fn sheets(&self, runs: &[Run], count: usize, parts: &Parts<'_, [u8; N]>) -> bool {
        let [outer @ .., down, across] = &self.maps[..] else { return false };
        if runs.iter().any(|r| r.from != OUTSIDE && r.len > 1 && r.step != 1) {
            return false;
        }
        let (high, wide) = (down.len(), across.len());
        let (lines, points) = (lines(down), Checkpoints::here());
        threads::ranges(count, TASK.div_ceil(wide), |rows| {
            points.pass();
            let sheets = rows.start / high..rows.end.div_ceil(high);
            self.each_row(outer, sheets, |sheet, place| {
                for r in &lines {
                    let first = sheet * high + r.at;
                    let (start, end) = (first.max(rows.start), (first + r.len).min(rows.end));
                    if start >= end {
                        continue;
                    }
                    // SAFETY: each row belongs to one range.
                    let to = unsafe { parts.part(start * wide, end * wide) };
                    match place == OUTSIDE || r.from == OUTSIDE {
                        true => to.fill(self.fill),
                        false => {
                            let mut at = place + r.from + (start - first) as isize * r.step;
                            for to in to.chunks_exact_mut(wide) {
                                self.neighbours(runs, at, to);
                                at += r.step;
                            }
                        }
                    }
                }
            });
        });
        true
    }

    /// Writes a row whose stretches are neighbours or the fill value.
    #[inline(always)]
    fn neighbours(&self, runs: &[Run], place: isize, to: &mut [[u8; N]]) {
        for r in runs {
            let to = &mut to[r.at..r.at + r.len];
            match (r.from, &mut *to) {
                // One or two elements take less time than a call.
                (OUTSIDE, [x]) => *x = self.fill,
                (OUTSIDE, [x, y]) => (*x, *y) = (self.fill, self.fill),
                (OUTSIDE, _) => to.fill(self.fill),
                (from, _) => {
                    let at = (place + from) as usize;
                    short::copy::<[u8; N], 16>(&self.from[at..at + r.len], to);
                }
            }
        }
    }

    fn row(&self, row: &Row<'_>, place: isize, to: &mut [[u8; N]]) {
        if place == OUTSIDE {
            return to.fill(self.fill);
        }
        if let (Some(many), Map::Table(t)) = (row.repeats, row.map) {
            return repeat(&self.from[(place + t[0]) as usize..], many, to);
        }
        let Some(runs) = &row.runs else {
            let Map::Table(t) = row.map else { return };
            for (y, &p) in to.iter_mut().zip(t) {
                *y = if p == OUTSIDE { self.fill } else { self.from[(place + p) as usize] };
            }
            return;
        };
        self.stretches(runs, place, 0, to);
    }

    /// Writes the elements of a row from one on.
    fn stretches(&self, runs: &[Run], place: isize, first: usize, to: &mut [[u8; N]]) {
        let end = first + to.len();
        for r in runs {
            let (at, until) = (r.at.max(first), (r.at + r.len).min(end));
            if at >= until {
                continue;
            }
            let to = &mut to[at - first..until - first];
            if r.from == OUTSIDE || place == OUTSIDE {
                to.fill(self.fill);
                continue;
            }
            let start = place + r.from + (at - r.at) as isize * r.step;
            match r.step {
                1 => short::copy::<[u8; N], 16>(&self.from[start as usize..start as usize + to.len()], to),
                0 => to.fill(self.from[start as usize]),
                // By index: iterators that step divide before they begin.
                s => to.iter_mut().enumerate().for_each(|(i, y)| {
                    *y = self.from[(start + i as isize * s) as usize];
                }),
            }
        }
    }
}
