//! Stretches of equal steps along a row, and elements that come several times.

use super::maps::{Map, OUTSIDE};
use crate::fast::short;

/// A stretch of a row.
pub struct Run {
    /// First element of the row.
    pub at: usize,
    /// Place of that element, or [`OUTSIDE`].
    pub from: isize,
    pub len: usize,
    pub step: isize,
}

/// The stretches of equal steps of a row, of 0 or 1 where they are found in a table; `None` if most are short.
pub fn runs(map: &Map) -> Option<Vec<Run>> {
    let all = stretches(map, |step| (0..=1).contains(&step));
    match map {
        Map::Table(t) => (all.len() * 6 <= t.len() || all.len() < 4).then_some(all),
        _ => Some(all),
    }
}

/// The stretches of equal steps of rows.
pub fn lines(map: &Map) -> Vec<Run> {
    stretches(map, |_| true)
}

/// The stretches of a map whose steps fit.
fn stretches(map: &Map, fits: fn(isize) -> bool) -> Vec<Run> {
    match map {
        Map::Step { len, step } => vec![Run { at: 0, from: 0, len: *len, step: *step }],
        Map::Table(t) => of_table(t, 0, fits),
        Map::Edged { before, first, len, step, after } => {
            let mut all = of_table(before, 0, fits);
            all.push(Run { at: before.len(), from: *first, len: *len, step: *step });
            all.extend(of_table(after, before.len() + len, fits));
            all
        }
    }
}

/// The stretches of a table whose first place is that of the element `first` of a row.
fn of_table(t: &[isize], first: usize, steps: fn(isize) -> bool) -> Vec<Run> {
    let mut all: Vec<Run> = Vec::new();
    for (i, &p) in (first..).zip(t) {
        if let Some(r) = all.last_mut() {
            let fits = match (r.from, p) {
                (OUTSIDE, OUTSIDE) => true,
                (OUTSIDE, _) | (_, OUTSIDE) => false,
                _ if r.len == 1 => {
                    r.step = p - r.from;
                    steps(r.step)
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
    all
}

/// Times that a table takes each of neighbouring places before the next one; `None` where the number varies.
pub fn repeats(map: &Map) -> Option<usize> {
    let Map::Table(t) = map else { return None };
    let first = *t.first().filter(|&&p| p != OUTSIDE)?;
    let many = t.iter().position(|&p| p != first)?;
    let fits = |(i, &p): (usize, &isize)| p == first + (i / many) as isize;
    (many > 1 && t.len().is_multiple_of(many) && t.iter().enumerate().all(fits)).then_some(many)
}

/// Copies a short row by vectors of 16 bytes.
#[inline(always)]
pub fn few<const N: usize>(from: &[[u8; N]], to: &mut [[u8; N]]) {
    match N {
        1 => short::copy::<_, 16>(from, to),
        2 => short::copy::<_, 8>(from, to),
        4 => short::copy::<_, 4>(from, to),
        _ => short::copy::<_, 2>(from, to),
    }
}

/// Writes each element so many times.
pub fn repeat<const N: usize>(from: &[[u8; N]], many: usize, to: &mut [[u8; N]]) {
    match many {
        2 => to.as_chunks_mut::<2>().0.iter_mut().zip(from).for_each(|(to, x)| *to = [*x; 2]),
        4 => to.as_chunks_mut::<4>().0.iter_mut().zip(from).for_each(|(to, x)| *to = [*x; 4]),
        _ => to.chunks_exact_mut(many).zip(from).for_each(|(to, x)| to.fill(*x)),
    }
}
