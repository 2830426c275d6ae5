//! Launches as rows of numbers, so that tables can hold those of many shapes in columns.

use super::{Grid, Launch, Map, Windows};
use crate::BackendError;

/// The launches as numbers; lists have their length in front.
pub fn of(launches: &[Launch]) -> Vec<u64> {
    let mut row = vec![launches.len() as u64];
    for l in launches {
        let (form, count) = match l.grid {
            Grid::Output => (0, 0),
            Grid::Threads(n) => (1, n),
            Grid::Groups(n) => (2, n),
        };
        row.extend([l.entry as u64, l.scratch, l.counts.into(), form, count]);
        let swap = l.swap.map_or([0; 3], |(a, b)| [1, a as u64, b as u64]);
        row.extend(swap.into_iter().chain([l.span.0.into(), l.span.1.into(), l.words.len() as u64]));
        row.extend(l.words.iter().map(|&w| u64::from(w)));
        row.push(l.maps.len() as u64);
        l.maps.iter().for_each(|m| map(m, &mut row));
    }
    row
}

fn map(m: &Map, row: &mut Vec<u64>) {
    row.extend([m.input as u64, m.size as u64, m.dims.len() as u64]);
    row.extend(&m.dims);
    row.push(m.strides.len() as u64);
    row.extend(&m.strides);
    row.push(m.block.len() as u64);
    row.extend(m.block.iter().map(|&n| u64::from(n)));
    row.push(u64::from(m.windows.is_some()) | u64::from(m.scratch) << 1);
    if let Some(Windows { lower, upper, steps }) = m.windows {
        // Signed numbers keep their bits, so that neighbouring shapes have neighbouring numbers.
        row.extend([lower, upper].as_flattened().iter().map(|&n| n as u64));
        row.extend(steps.map(u64::from));
    }
}

/// The launches of a row; refuses rows that [`of`] did not make.
pub fn launches(row: &[u64]) -> Result<Vec<Launch>, BackendError> {
    let mut read = Reader { rest: row };
    let count = read.length()?;
    let all = (0..count).map(|_| read.launch()).collect::<Result<_, _>>()?;
    if read.rest.is_empty() { Ok(all) } else { Err(damaged()) }
}

fn damaged() -> BackendError {
    BackendError::Incompatible("a table of launches is damaged; build the plan again".into())
}

struct Reader<'a> {
    rest: &'a [u64],
}

impl Reader<'_> {
    fn next(&mut self) -> Result<u64, BackendError> {
        let (&first, rest) = self.rest.split_first().ok_or_else(damaged)?;
        self.rest = rest;
        Ok(first)
    }

    fn number<T: TryFrom<u64>>(&mut self) -> Result<T, BackendError> {
        T::try_from(self.next()?).map_err(|_| damaged())
    }

    fn signed(&mut self) -> Result<i32, BackendError> {
        i32::try_from(self.next()? as i64).map_err(|_| damaged())
    }

    /// The length of a list that the rest of the row can hold.
    fn length(&mut self) -> Result<usize, BackendError> {
        let n: usize = self.number()?;
        if n <= self.rest.len() { Ok(n) } else { Err(damaged()) }
    }

    fn list<T: TryFrom<u64>>(&mut self) -> Result<Vec<T>, BackendError> {
        let n = self.length()?;
        (0..n).map(|_| self.number()).collect()
    }

    fn launch(&mut self) -> Result<Launch, BackendError> {
        let (entry, scratch, counts) = (self.number()?, self.next()?, self.next()? != 0);
        let grid = match (self.next()?, self.next()?) {
            (0, _) => Grid::Output,
            (1, n) => Grid::Threads(n),
            (2, n) => Grid::Groups(n),
            _ => return Err(damaged()),
        };
        let swapped = self.next()? != 0;
        let places = (self.number()?, self.number()?);
        let span = (self.number()?, self.number()?);
        let words = self.list()?;
        let maps = self.length()?;
        let maps = (0..maps).map(|_| self.map()).collect::<Result<_, _>>()?;
        Ok(Launch { entry, words, grid, swap: swapped.then_some(places), span, scratch, counts, maps })
    }

    fn map(&mut self) -> Result<Map, BackendError> {
        let (input, size) = (self.number()?, self.number()?);
        let (dims, strides, block) = (self.list()?, self.list()?, self.list()?);
        let flags = match self.next()? {
            flags @ 0..4 => flags,
            _ => return Err(damaged()),
        };
        let windows = match flags & 1 {
            0 => None,
            _ => Some(Windows {
                lower: [self.signed()?, self.signed()?],
                upper: [self.signed()?, self.signed()?],
                steps: [self.number()?, self.number()?],
            }),
        };
        Ok(Map { input, size, dims, strides, block, windows, scratch: flags & 2 != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examples() -> Vec<Launch> {
        let windows = Windows { lower: [-1, 0], upper: [i32::MIN, 2], steps: [2, 1] };
        let map = Map {
            input: 1,
            size: 2,
            dims: vec![64, 1 << 33],
            strides: vec![64],
            block: vec![8],
            windows: None,
            scratch: false,
        };
        let maps =
            vec![Map { windows: Some(windows), ..map.clone() }, Map { scratch: true, ..map.clone() }, map];
        let base = Launch::map(1, vec![0, u32::MAX]).scratch(1 << 40);
        let full = Launch { swap: Some((0, 1)), span: (3, 9), counts: true, maps, ..base };
        vec![full.clone(), full.on(Grid::Groups(7)), Launch::map(0, Vec::new()).on(Grid::Threads(1 << 40))]
    }

    #[test]
    fn launches_are_read_back() {
        for all in [Vec::new(), examples()] {
            assert_eq!(launches(&of(&all)), Ok(all));
        }
    }

    #[test]
    fn rows_that_are_none_are_refused() {
        let row = of(&examples());
        for cut in 0..row.len() {
            assert!(launches(&row[..cut]).is_err(), "{cut} numbers");
        }
        for at in 0..row.len() {
            let mut other = row.clone();
            other[at] = u64::MAX / 2;
            // Numbers that say nothing of the form may be anything.
            let _ = launches(&other);
        }
        assert!(launches(&[1 << 60]).is_err() && launches(&[0, 0]).is_err());
    }
}
