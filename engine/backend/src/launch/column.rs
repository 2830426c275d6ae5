//! Columns of tables: long lists of numbers that mostly grow by equal steps.

use minicbor::{Decode, Encode};

/// Numbers by row, stored as arithmetic progressions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct Column(#[n(0)] Vec<Progression>);

/// Numbers that grow by equal steps, up to the row at which the next progression starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
struct Progression {
    /// The first row.
    #[n(0)]
    row: u64,
    /// The number at that row.
    #[n(1)]
    first: u64,
    /// The difference between two rows; it wraps around.
    #[n(2)]
    step: i64,
}

impl Progression {
    fn at(&self, row: u64) -> u64 {
        self.first.wrapping_add(row.wrapping_sub(self.row).wrapping_mul(self.step as u64))
    }
}

impl Column {
    /// The column of these numbers.
    pub fn of(numbers: impl IntoIterator<Item = u64>) -> Column {
        let mut all: Vec<Progression> = Vec::new();
        for (row, n) in numbers.into_iter().enumerate() {
            let row = row as u64;
            match all.last_mut() {
                Some(p) if p.row + 1 == row => p.step = n.wrapping_sub(p.first) as i64,
                Some(p) if p.at(row) == n => {}
                _ => all.push(Progression { row, first: n, step: 0 }),
            }
        }
        Column(all)
    }

    /// The number at a row; `None` of a column without rows.
    pub fn at(&self, row: u64) -> Option<u64> {
        let next = self.0.partition_point(|p| p.row <= row);
        Some(self.0.get(next.checked_sub(1)?)?.at(row))
    }

    /// Whether progressions start at the first row and follow each other.
    pub fn is_whole(&self) -> bool {
        self.0.first().is_some_and(|p| p.row == 0) && self.0.is_sorted_by(|a, b| a.row < b.row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_again() {
        let constant = vec![7; 100];
        let ceilings: Vec<u64> = (1u64..1000).map(|n| n.div_ceil(128)).collect();
        let falling: Vec<u64> = (0..50).map(|n| 3u64.wrapping_sub(n)).collect();
        let wild: Vec<u64> =
            (0..300u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).map(|n| n >> 7).collect();
        for (numbers, most) in [(constant, 1), (ceilings, 16), (falling, 1), (wild, 150), (Vec::new(), 0)] {
            let column = Column::of(numbers.iter().copied());
            assert!(column.0.len() <= most, "{} progressions of {} numbers", column.0.len(), numbers.len());
            for (row, &n) in numbers.iter().enumerate() {
                assert_eq!(column.at(row as u64), Some(n), "row {row}");
            }
            assert_eq!(column.is_whole(), !numbers.is_empty());
        }
    }

    #[test]
    fn progressions_out_of_order_are_found() {
        let p = |row| Progression { row, first: 0, step: 0 };
        for (rows, whole) in
            [(vec![0, 5, 9], true), (vec![1], false), (vec![0, 5, 5], false), (vec![0, 9, 5], false)]
        {
            assert_eq!(Column(rows.iter().map(|&r| p(r)).collect()).is_whole(), whole, "{rows:?}");
        }
    }
}
