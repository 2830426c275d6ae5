//! Copies by index maps. Each element of the result is an element of one tensor, or a fill value. Its place is a sum over dimensions.
//! Slices, transposes, broadcasts, pads, tiles and resizes by nearest elements are such copies.

mod blocks;
mod maps;
mod rows;
mod runs;

use super::{NodeCx, short};
use crate::threads;
use crate::value::Out;
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
pub use maps::Map;
use maps::{SHORT, TASK, merged, widened};
use rows::Copy;

/// Elements of a block up to which copies of it are made by doubling.
const DOUBLED: usize = 512;

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
    copy_maps(from, to, base, maps, value);
}

fn copy_maps<const N: usize>(
    from: &[[u8; N]],
    to: &mut [[u8; N]],
    base: isize,
    maps: Vec<Map>,
    fill: [u8; N],
) {
    let Some((base, mut maps)) = merged(base, maps) else { return to.fill(fill) };
    let again = |m: &Map| matches!(m, Map::Step { step: 0, .. });
    let short = maps.last().is_some_and(|m| m.len() < SHORT && !again(m));
    if let Some(at) = maps[..maps.len() - 1].iter().position(again).filter(|_| short) {
        let times = maps.remove(at).len();
        let block = maps[at..].iter().map(Map::len).product();
        let mut once = vec![[0; N]; to.len() / times];
        copy_maps(from, &mut once, base, maps, fill);
        return repeated(&once, block, times, to);
    }
    if N <= 8
        && let Some((base, maps)) = widened(base, &maps)
    {
        let twice = [fill, fill].concat();
        return match N {
            1 => copy_maps::<2>(wide(from), wide_mut(to), base, maps, short::array(&twice)),
            2 => copy_maps::<4>(wide(from), wide_mut(to), base, maps, short::array(&twice)),
            4 => copy_maps::<8>(wide(from), wide_mut(to), base, maps, short::array(&twice)),
            _ => copy_maps::<16>(wide(from), wide_mut(to), base, maps, short::array(&twice)),
        };
    }
    let job = Copy { from, base, maps, fill };
    match job.transposed() {
        _ if job.woven(to) || job.stretched(to) => {}
        Some(other) => job.blocks(other, to),
        None => job.rows(to),
    }
}

/// Elements as others that are larger; those that do not fill one are left out.
fn wide<const N: usize, const M: usize>(x: &[[u8; N]]) -> &[[u8; M]] {
    x.as_flattened().as_chunks().0
}

fn wide_mut<const N: usize, const M: usize>(x: &mut [[u8; N]]) -> &mut [[u8; M]] {
    x.as_flattened_mut().as_chunks_mut().0
}

/// Writes each block of elements so many times.
fn repeated<const N: usize>(once: &[[u8; N]], block: usize, times: usize, to: &mut [[u8; N]]) {
    let points = Checkpoints::here();
    if block <= DOUBLED {
        return threads::chunks(to, block * times, TASK.div_ceil(block * times), |i, to| {
            let (first, rest) = to.split_at_mut(block);
            short::copy::<[u8; N], 16>(&once[i * block..(i + 1) * block], first);
            if rest.len() < DOUBLED {
                return rest.chunks_exact_mut(block).for_each(|to| short::copy::<[u8; N], 16>(first, to));
            }
            let mut done = block;
            while done < to.len() {
                let more = done.min(to.len() - done);
                to.copy_within(..more, done);
                done += more;
            }
        });
    }
    threads::chunks(to, block, TASK.div_ceil(block), |i, to| {
        points.pass();
        to.copy_from_slice(&once[i / times * block..][..block]);
    });
}

#[cfg(test)]
mod tests {
    use super::maps::OUTSIDE;
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
        let padded = |n: isize, by: isize| {
            let inner = (0..n).map(|i| i * by);
            Map::Table([OUTSIDE; 2].into_iter().chain(inner).chain([OUTSIDE]).collect())
        };
        check(6000, 0, &[step(12, 0), padded(30, 100), padded(99, 1)]);
        check(6000, 5, &[padded(2, 2500), step(40, 0), padded(20, 110), padded(70, 1)]);
        check(6000, 0, &[step(60, 100), padded(90, 1)]);
        check(6000, 0, &[table(&[700, 0, 0, 300, 900, 900, 1100]), padded(90, 1)]);
        check(60, 2, &[table(&[OUTSIDE; 3]), step(4, 1)]);
        check(60, 2, &[step(0, 1), step(4, 1)]);
        check(60, 7, &[]);
        let edged = |before: &[isize], first, len, step, after: &[isize]| Map::Edged {
            before: before.to_vec(),
            first,
            len,
            step,
            after: after.to_vec(),
        };
        check(60, 0, &[step(3, 20), edged(&[OUTSIDE, 4], 0, 5, 4, &[3, 3, OUTSIDE]), step(4, 1)]);
        check(60, 2, &[edged(&[OUTSIDE], 7, 5, 1, &[])]);
        check(60, 2, &[step(2, 30), edged(&[], 7, 5, 3, &[])]);
        check(80_000, 0, &[edged(&[OUTSIDE, 5, 5], 0, 80_000, 1, &[OUTSIDE])]);
        check(80_000, 0, &[step(2, 0), edged(&[7; 40_000], 0, 40_000, 2, &[])]);
        check(60, 0, &[step(3, 20), step(7, 0), step(5, 2)]);
        check(60, 0, &[step(3, 0), step(2, 30), step(7, 0), step(13, 1)]);
        check(60, 0, &[step(300, 0), step(13, 1)]);
        check(6000, 0, &[step(3, 0), step(6000, 1)]);
        check(60, 0, &[step(40, 0), step(20, 1), step(3, 0)]);
        check(60, 0, &[step(3, 20), step(20, 1), step(4, 0)]);
        check(60, 59, &[step(3, -20), step(5, -4)]);
        check(60, 2, &[step(5, 4), table(&[0, OUTSIDE, 30]), step(6, 1)]);
        check(60, 2, &[step(3, 8), step(2, 20), step(8, 1)]);
        check(600, 2, &[step(6, 16), step(3, 100), step(16, 1)]);
        check(600, 3, &[step(6, 16), step(3, 100), step(9, 1)]);
        check(6000, 0, &[step(3, 2000), step(50, 1), step(40, 50)]);
        check(6000, 0, &[step(30, 100), step(5, 1), step(3, 30)]);
        check(60, 7, &[step(1, 3), table(&[4]), step(1, 1)]);
        check(400, 0, &[table(&[300, 0, 100]), step(10, 1), step(9, 10)]);
        check(400, 0, &[step(10, 1), table(&[300, OUTSIDE, 100]), step(9, 10)]);
    }
}
