//! Copies by index maps. Each element of the result is an element of one tensor, or a fill value. Its place is a sum over dimensions.
//! Slices, transposes, broadcasts, pads, tiles and resizes by nearest elements are such copies.

use super::NodeCx;
use crate::threads::{self, Parts};
use crate::value::Out;
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ops::util::strides;
use std::ops::Range;

/// A place outside of the tensor, where the fill value is taken.
pub const OUTSIDE: isize = isize::MIN;
/// Elements that one task copies at least.
const TASK: usize = 16 << 10;
/// Neighbours from which on they are copied by themselves.
const SHORT: usize = 64;
/// Rows and columns of the blocks that a transpose copies.
const BLOCK: usize = 16;
/// Rows that one task transposes: the memory of each of their columns is read in one stretch.
const BAND: usize = 128;

/// The places along one dimension of the result, relative to the first.
#[derive(Clone, Debug, PartialEq)]
pub enum Map {
    /// `len` places that are `step` apart.
    Step { len: usize, step: isize },
    /// One place each, or [`OUTSIDE`].
    Table(Vec<isize>),
}

impl Map {
    /// All elements along a dimension of this stride.
    pub fn all(len: usize, stride: usize) -> Map {
        Map::Step { len, step: stride as isize }
    }

    /// The elements at these indices of a dimension of this stride; `None` is outside.
    pub fn indices(stride: usize, all: impl Iterator<Item = Option<usize>>) -> Map {
        Map::Table(all.map(|i| i.map_or(OUTSIDE, |i| (i * stride) as isize)).collect())
    }

    fn len(&self) -> usize {
        match self {
            Map::Step { len, .. } => *len,
            Map::Table(t) => t.len(),
        }
    }

    fn at(&self, i: usize) -> isize {
        match self {
            Map::Step { step, .. } => i as isize * step,
            Map::Table(t) => t[i],
        }
    }
}

/// Makes output 0 of a node by copying from input `i`: the element at index p is that at `base` + Σ maps[d][p[d]].
pub fn run(
    cx: &mut NodeCx<'_>,
    i: usize,
    base: isize,
    maps: Vec<Map>,
    fill: &[u8],
) -> Result<bool, BackendError> {
    let shape: Vec<usize> = maps.iter().map(Map::len).collect();
    run_as(cx, i, base, maps, fill, &shape)
}

/// Copies as [`run`] does; dimensions of the maps are merged to those of `shape`.
pub fn run_as(
    cx: &mut NodeCx<'_>,
    i: usize,
    base: isize,
    maps: Vec<Map>,
    fill: &[u8],
    shape: &[usize],
) -> Result<bool, BackendError> {
    let (Some(size), Some(x)) = (element(cx, i), cx.args.get(i).cloned().flatten()) else { return Ok(false) };
    if shape.iter().product::<usize>() != maps.iter().map(Map::len).product() {
        return Ok(false);
    }
    let mut out = Out::new(cx.pool, x.dtype(), shape, &cx.node.name)?;
    bytes(size, x.bytes(), out.bytes_mut(), base, maps, fill);
    cx.push(out.done());
    Ok(true)
}

/// Copies elements of 1, 2, 4 or 8 bytes.
pub fn bytes(size: usize, from: &[u8], to: &mut [u8], base: isize, maps: Vec<Map>, fill: &[u8]) {
    match size {
        1 => copy::<1>(from, to, base, maps, fill),
        2 => copy::<2>(from, to, base, maps, fill),
        4 => copy::<4>(from, to, base, maps, fill),
        _ => copy::<8>(from, to, base, maps, fill),
    }
}

/// Bytes of an element of an input, if elements are whole bytes.
pub fn element(cx: &NodeCx<'_>, i: usize) -> Option<usize> {
    let bits = cx.args.get(i)?.as_ref()?.dtype().bits() as usize;
    (bits >= 8).then_some(bits / 8)
}

fn copy<const N: usize>(from: &[u8], to: &mut [u8], base: isize, maps: Vec<Map>, fill: &[u8]) {
    let (from, to) = (from.as_chunks::<N>().0, to.as_chunks_mut::<N>().0);
    if to.is_empty() {
        return;
    }
    let mut value = [0; N];
    value.iter_mut().zip(fill).for_each(|(v, f)| *v = *f);
    let Some((base, maps)) = merged(base, maps) else { return to.fill(value) };
    let job = Copy { from, base, maps, fill: value };
    match job.transposed() {
        _ if job.woven(to) => {}
        Some(other) => job.blocks(other, to),
        None => job.rows(to),
    }
}

/// Maps without dimensions of one element, neighbours that are walked as one merged; `None` if all is outside.
fn merged(mut base: isize, maps: Vec<Map>) -> Option<(isize, Vec<Map>)> {
    let mut out: Vec<Map> = Vec::new();
    for map in maps {
        let map = stepped(map, &mut base);
        match (out.last_mut(), map) {
            (_, Map::Step { len: 1, .. }) => {}
            (_, Map::Table(t)) if t.iter().all(|&t| t == OUTSIDE) => return None,
            (Some(Map::Step { len, step }), Map::Step { len: n, step: s }) if *step == s * n as isize => {
                (*len, *step) = (*len * n, s);
            }
            (Some(Map::Table(t)), Map::Step { len: n, step: 1 }) if continues(t, n) => {
                let each = |&p: &isize| (0..n as isize).map(move |i| if p == OUTSIDE { p } else { p + i });
                *t = t.iter().flat_map(each).collect();
            }
            (_, map) => out.push(map),
        }
    }
    if out.is_empty() {
        out.push(Map::Step { len: 1, step: 1 });
    }
    Some((base, out))
}

/// Whether a table, with `n` neighbours at each of its places, is mostly one stretch, and not long.
fn continues(t: &[isize], n: usize) -> bool {
    let joined = t.windows(2).filter(|w| w[0] != OUTSIDE && w[1] == w[0] + n as isize).count();
    n < SHORT && t.len() <= TASK && 2 * joined > t.len()
}

/// A table of equal steps as such; its first place moves to the base.
fn stepped(map: Map, base: &mut isize) -> Map {
    let Map::Table(t) = &map else { return map };
    let (Some(&first), false) = (t.first(), t.contains(&OUTSIDE)) else { return map };
    let step = t.get(1).map_or(1, |s| s - first);
    if t.windows(2).any(|w| w[1] - w[0] != step) {
        return map;
    }
    *base += first;
    Map::Step { len: t.len(), step }
}

/// A stretch of a row.
struct Run {
    /// First element of the row.
    at: usize,
    /// Place of that element, or [`OUTSIDE`].
    from: isize,
    len: usize,
    step: isize,
}

/// The stretches of equal steps of a row; `None` if most are short.
fn runs(map: &Map) -> Option<Vec<Run>> {
    let t = match map {
        Map::Step { len, step } => return Some(vec![Run { at: 0, from: 0, len: *len, step: *step }]),
        Map::Table(t) => t,
    };
    let mut all: Vec<Run> = Vec::new();
    for (i, &p) in t.iter().enumerate() {
        if let Some(r) = all.last_mut() {
            let fits = match (r.from, p) {
                (OUTSIDE, OUTSIDE) => true,
                (OUTSIDE, _) | (_, OUTSIDE) => false,
                _ if r.len == 1 => {
                    r.step = p - r.from;
                    (0..=1).contains(&r.step)
                }
                _ => p - r.from == r.step * r.len as isize,
            };
            if fits {
                r.len += 1;
                continue;
            }
        }
        all.push(Run { at: i, from: p, len: 1, step: 1 });
    }
    (all.len() * 6 <= t.len() || all.len() < 4).then_some(all)
}

/// Times that a table takes each of neighbouring places before the next one; `None` where the number varies.
fn repeats(map: &Map) -> Option<usize> {
    let Map::Table(t) = map else { return None };
    let first = *t.first().filter(|&&p| p != OUTSIDE)?;
    let many = t.iter().position(|&p| p != first)?;
    let fits = |(i, &p): (usize, &isize)| p == first + (i / many) as isize;
    (many > 1 && t.len().is_multiple_of(many) && t.iter().enumerate().all(fits)).then_some(many)
}

/// Writes each element so many times.
fn repeat<const N: usize>(from: &[[u8; N]], many: usize, to: &mut [[u8; N]]) {
    match many {
        2 => to.as_chunks_mut::<2>().0.iter_mut().zip(from).for_each(|(to, x)| *to = [*x; 2]),
        4 => to.as_chunks_mut::<4>().0.iter_mut().zip(from).for_each(|(to, x)| *to = [*x; 4]),
        _ => to.chunks_exact_mut(many).zip(from).for_each(|(to, x)| to.fill(*x)),
    }
}

/// The map along the rows of a copy, and its forms that are copied faster.
struct Row<'a> {
    map: &'a Map,
    runs: Option<Vec<Run>>,
    repeats: Option<usize>,
}

struct Copy<'a, const N: usize> {
    from: &'a [[u8; N]],
    base: isize,
    /// Never empty.
    maps: Vec<Map>,
    fill: [u8; N],
}

impl<const N: usize> Copy<'_, N> {
    /// The dimension whose neighbours are neighbours in memory, if that is not the last.
    fn transposed(&self) -> Option<usize> {
        let (last, outer) = self.maps.split_last()?;
        let Map::Step { len, step } = last else { return None };
        if (0..=1).contains(step) || *len < 4 {
            return None;
        }
        outer.iter().position(|m| matches!(m, Map::Step { len, step: 1 } if *len >= 4))
    }

    /// Copies where rows have two or three elements of lines that lie apart, as images with channels last are made; false otherwise.
    fn woven(&self, to: &mut [[u8; N]]) -> bool {
        let [outer @ .., Map::Step { len: wide, step: 1 }, Map::Step { len: lines @ 2..4, step }] =
            &self.maps[..]
        else {
            return false;
        };
        let (wide, lines) = (*wide, *lines);
        if wide < BLOCK || (0..=1).contains(step) {
            return false;
        }
        let (points, parts) = (Checkpoints::here(), Parts::new(to));
        let count = outer.iter().map(Map::len).product::<usize>();
        let pieces = wide.div_ceil(TASK);
        threads::each(count * pieces, |task| {
            points.pass();
            let (row, first) = (task / pieces, task % pieces * TASK);
            let end = wide.min(first + TASK);
            self.each_row(outer, row..row + 1, |row, place| {
                // SAFETY: each piece of a row belongs to one task.
                let to = unsafe { parts.part((row * wide + first) * lines, (row * wide + end) * lines) };
                if place == OUTSIDE {
                    return to.fill(self.fill);
                }
                let line = |j: isize| {
                    let at = (place + j * step) as usize + first;
                    &self.from[at..at + end - first]
                };
                let (a, b) = (line(0), line(1));
                match lines {
                    2 => to
                        .as_chunks_mut::<2>()
                        .0
                        .iter_mut()
                        .zip(a.iter().zip(b))
                        .for_each(|(to, (a, b))| *to = [*a, *b]),
                    _ => {
                        let all = a.iter().zip(b).zip(line(2));
                        to.as_chunks_mut::<3>()
                            .0
                            .iter_mut()
                            .zip(all)
                            .for_each(|(to, ((a, b), c))| *to = [*a, *b, *c]);
                    }
                }
            });
        });
        true
    }

    /// The place of the first element of each row in a range of rows.
    fn each_row(&self, outer: &[Map], rows: Range<usize>, mut f: impl FnMut(usize, isize)) {
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
    fn rows(&self, to: &mut [[u8; N]]) {
        let Some((last, outer)) = self.maps.split_last() else { return };
        let n = last.len();
        let line = Row { map: last, runs: runs(last), repeats: repeats(last) };
        let points = Checkpoints::here();
        let count = to.len() / n;
        let parts = Parts::new(to);
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
        for r in runs {
            let to = &mut to[r.at..r.at + r.len];
            if r.from == OUTSIDE {
                to.fill(self.fill);
                continue;
            }
            let start = place + r.from;
            match r.step {
                1 if r.len < 16 => {
                    let from = &self.from[start as usize..start as usize + r.len];
                    to.iter_mut().zip(from).for_each(|(y, x)| *y = *x);
                }
                1 => to.copy_from_slice(&self.from[start as usize..start as usize + r.len]),
                0 => to.fill(self.from[start as usize]),
                s => to.iter_mut().enumerate().for_each(|(i, y)| {
                    *y = self.from[(start + i as isize * s) as usize];
                }),
            }
        }
    }

    /// A tile: element j of row i comes from `first + i + j·step`, or is filled in if that is outside.
    fn tile<'t>(&self, first: isize, step: isize, rows: usize, row: impl Fn(usize) -> &'t mut [[u8; N]]) {
        if first == OUTSIDE {
            return (0..rows).for_each(|i| row(i).fill(self.fill));
        }
        let columns = row(0).len();
        let mut tile = [[[0u8; N]; BLOCK]; BLOCK];
        for (j, column) in tile.iter_mut().enumerate().take(columns) {
            let from = (first + j as isize * step) as usize;
            match self.from.get(from..from + BLOCK).filter(|_| rows == BLOCK) {
                Some(whole) => column.copy_from_slice(whole),
                None => column[..rows].copy_from_slice(&self.from[from..from + rows]),
            }
        }
        for i in 0..rows {
            let to = row(i);
            match <&mut [[u8; N]; BLOCK]>::try_from(&mut *to) {
                Ok(to) => {
                    for j in 0..BLOCK {
                        to[j] = tile[j][i];
                    }
                }
                Err(_) => to.iter_mut().zip(&tile).for_each(|(y, column)| *y = column[i]),
            }
        }
    }

    /// Blocks of the last dimension and of another one, whose neighbours are neighbours in memory.
    fn blocks(&self, other: usize, to: &mut [[u8; N]]) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ops::util::for_each_index;

    fn check(n: usize, base: isize, maps: &[Map]) {
        let from: Vec<u8> = (0..n * 2).map(|i| (i * 7) as u8).collect();
        let shape: Vec<usize> = maps.iter().map(Map::len).collect();
        let mut wanted = Vec::new();
        for_each_index(&shape, |at| {
            let places: Vec<isize> = at.iter().zip(maps).map(|(&i, m)| m.at(i)).collect();
            match places.contains(&OUTSIDE) {
                true => wanted.extend([9, 8]),
                false => {
                    let p = (base + places.iter().sum::<isize>()) as usize * 2;
                    wanted.extend([from[p], from[p + 1]]);
                }
            }
        });
        let mut found = vec![0; wanted.len()];
        for threads in [1, 3] {
            found.fill(0);
            threads::Threads::new(threads)
                .enter(|| copy::<2>(&from, &mut found, base, maps.to_vec(), &[9, 8]));
            assert_eq!(found, wanted, "{maps:?}");
        }
    }

    #[test]
    fn elements_come_from_where_the_maps_say() {
        let step = |len, step| Map::Step { len, step };
        let table = |t: &[isize]| Map::Table(t.to_vec());
        check(60, 0, &[step(3, 20), step(4, 5), step(5, 1)]);
        check(60, 0, &[step(5, 1), step(4, 5), step(3, 20)]);
        check(60, 0, &[step(3, 20), table(&[OUTSIDE, 0, 4, 8, 12, OUTSIDE]), step(4, 1)]);
        check(60, 0, &[table(&[5, 8, 11, 40, 43, 46, OUTSIDE]), step(3, 1), step(2, 3)]);
        check(60, 0, &[step(4, 5), step(5, 1), step(3, 20)]);
        check(6000, 0, &[step(40, 1), step(150, 40)]);
        check(6000, 3, &[step(7, 600), step(37, 1), step(15, 40)]);
        check(6000, 0, &[step(37, 1), step(7, 600), step(15, 40)]);
        check(60, 59, &[step(12, -5), step(5, -1)]);
        check(60, 0, &[table(&[OUTSIDE, 0, 20, OUTSIDE]), step(4, 0), table(&[1, OUTSIDE, 3, 3, 3, 4])]);
        check(60, 0, &[table(&[0, 0, 5, 5, 10]), table(&[0, 0, 1, 1, 2, 2, 3, 3, 4, 4])]);
        check(60, 3, &[step(4, 10), table(&[2, 2, 2, 3, 3, 3, 4, 4, 4])]);
        check(60, 0, &[step(4, 10), table(&[0, 0, 0, 0, 1, 1, 1, 1])]);
        check(60, 0, &[step(4, 10), table(&[5, 5, 6, 6, 7])]);
        check(60, 0, &[step(4, 10), table(&[5, 5, 6, 7])]);
        check(60, 2, &[table(&[OUTSIDE; 3]), step(4, 1)]);
        check(60, 2, &[step(0, 1), step(4, 1)]);
        check(60, 7, &[]);
        check(60, 7, &[step(1, 3), table(&[4]), step(1, 1)]);
        check(400, 0, &[table(&[300, 0, 100]), step(10, 1), step(9, 10)]);
        check(400, 0, &[step(10, 1), table(&[300, OUTSIDE, 100]), step(9, 10)]);
    }
}
