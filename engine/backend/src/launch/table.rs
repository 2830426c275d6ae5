//! Tables of launches: those of every shape that the profiles of a plan allow.

use super::{Column, Condition, Launch, LaunchSite, flat};
use crate::BackendError;
use kiln_ir::ValueId;
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

/// The shapes that a table holds at most.
pub const MOST_POINTS: u64 = 1 << 18;

/// The variables, and the tables, of a step at most.
const MOST_TABLES: usize = 4096;

/// A number that only a run knows, and on which launches depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Variable {
    /// A dimension of an operand: the node of the step, its input and the axis, by position.
    #[n(0)]
    Size(#[n(0)] u32, #[n(1)] u32, #[n(2)] u32),
    /// An element of an operand that the host reads: the node of the step, its input and the element, by position.
    #[n(1)]
    Element(#[n(0)] u32, #[n(1)] u32, #[n(2)] u32),
}

impl Variable {
    /// Its value in a run; `None` where the host does not know it.
    fn value(self, site: &LaunchSite<'_>) -> Option<i64> {
        let operand = |node: u32, input: u32| -> Option<ValueId> {
            site.node(node)?.inputs.get(input as usize).copied().flatten()
        };
        match self {
            Variable::Size(node, input, axis) => {
                let fact = (site.fact)(operand(node, input)?);
                fact.ty.dims.get(axis as usize)?.as_const()
            }
            Variable::Element(node, input, at) => {
                let v = operand(node, input)?;
                let known = site.graph.weight(v).map(|w| &w.tensor).or((site.fact)(v).as_const())?;
                known.to_i64().get(at as usize).copied()
            }
        }
    }
}

/// Launches under some conditions, by the values of the variables: rows that are sorted by them.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct LaunchTable {
    /// The conditions, and whether each has to hold or not.
    #[n(0)]
    pub when: Vec<(Condition, bool)>,
    /// The number of rows.
    #[n(1)]
    pub rows: u64,
    /// The variables, in their order, then the numbers of the launches.
    #[n(2)]
    pub columns: Vec<Column>,
}

impl LaunchTable {
    /// Whether it has the columns of so many variables, and all of their rows.
    pub fn is_whole(&self, variables: usize) -> bool {
        (1..=MOST_POINTS).contains(&self.rows)
            && self.columns.len() > variables
            && self.columns.iter().all(Column::is_whole)
    }

    fn key(&self, row: u64, variables: usize) -> impl Iterator<Item = i64> {
        self.columns[..variables].iter().map(move |c| c.at(row).unwrap_or(0) as i64)
    }

    /// The launches at these values of the variables; `None` where they are not in the table.
    fn find(&self, values: &[i64]) -> Option<Result<Vec<Launch>, BackendError>> {
        let (mut low, mut high) = (0, self.rows);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.key(middle, values.len()).cmp(values.iter().copied()) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    let row: Option<Vec<u64>> =
                        self.columns[values.len()..].iter().map(|c| c.at(middle)).collect();
                    return Some(flat::launches(&row.unwrap_or_default()));
                }
            }
        }
        None
    }
}

/// The launches of a step at every shape.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct LaunchTables {
    /// Numbers of a run by which rows are found.
    #[n(0)]
    pub variables: Vec<Variable>,
    /// The tables; exactly one row of them is that of a run.
    #[n(1)]
    pub tables: Vec<LaunchTable>,
}

impl LaunchTables {
    /// Whether all tables have all rows and columns.
    pub fn is_whole(&self) -> bool {
        self.variables.len().max(self.tables.len()) <= MOST_TABLES
            && self.tables.iter().all(|t| t.is_whole(self.variables.len()))
    }

    /// The launches of a run.
    ///
    /// # Errors
    /// If the run has other shapes than the profiles allow.
    pub fn find(&self, site: &LaunchSite<'_>) -> Result<Vec<Launch>, BackendError> {
        let values: Option<Vec<i64>> = self.variables.iter().map(|v| v.value(site)).collect();
        let values = values.ok_or_else(|| {
            BackendError::Internal("a number on which stored launches depend is not known before them".into())
        })?;
        let holds = |t: &&LaunchTable| t.when.iter().all(|&(c, wanted)| (site.holds)(c) == wanted);
        self.tables.iter().filter(holds).find_map(|t| t.find(&values)).unwrap_or_else(|| {
            let sizes: Vec<String> = values.iter().map(i64::to_string).collect();
            Err(BackendError::InvalidArgument(format!(
                "the plan holds no launches for sizes of {}: they are outside of the profiles that it was built for",
                sizes.join(", ")
            )))
        })
    }
}

/// Rows of one table while they are gathered, by the values of the variables.
type Rows = BTreeMap<Vec<i64>, Vec<u64>>;

/// Gathers the launches at many values of the variables.
#[derive(Default)]
pub struct Recorder {
    /// By conditions and the length of rows; a table has rows of one length.
    tables: Vec<(Vec<(Condition, bool)>, usize, Rows)>,
}

impl Recorder {
    /// Adds the launches at these values under some conditions.
    pub fn add(&mut self, values: &[i64], when: Vec<(Condition, bool)>, launches: &[Launch]) {
        let row = flat::of(launches);
        let length = row.len();
        let at = self.tables.iter().position(|(w, n, _)| *w == when && *n == length).unwrap_or_else(|| {
            self.tables.push((when, length, Rows::new()));
            self.tables.len() - 1
        });
        self.tables[at].2.insert(values.to_vec(), row);
    }

    /// The tables of these variables.
    ///
    /// # Errors
    /// If there are too many.
    pub fn finish(self, variables: Vec<Variable>) -> Result<LaunchTables, BackendError> {
        if variables.len().max(self.tables.len()) > MOST_TABLES {
            let found = format!("{} variables and {} forms", variables.len(), self.tables.len());
            return Err(BackendError::Unsupported(format!(
                "launches of {found}, at most {MOST_TABLES} of each"
            )));
        }
        let table = |(when, length, rows): (Vec<(Condition, bool)>, usize, Rows)| {
            let keys = (0..variables.len()).map(|i| Column::of(rows.keys().map(|k| k[i] as u64)));
            let numbers = (0..length).map(|i| Column::of(rows.values().map(|r| r[i])));
            LaunchTable { when, rows: rows.len() as u64, columns: keys.chain(numbers).collect() }
        };
        let tables = self.tables.into_iter().map(table).collect();
        Ok(LaunchTables { variables, tables })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::super::Grid;
    use super::*;

    /// Launches whose number, words and grid depend on two sizes and a condition.
    fn launches(n: i64, m: i64, weight: bool) -> Vec<Launch> {
        let one = Launch::map(0, vec![n as u32, m as u32, (n * m) as u32 / 7]);
        let groups =
            Launch::map(1, vec![if weight { 3 } else { 4 }]).on(Grid::Groups((n as u64).div_ceil(32)));
        if n * m > 100 { vec![one, groups] } else { vec![one] }
    }

    #[test]
    fn every_shape_has_its_launches() {
        let mut recorder = Recorder::default();
        let shapes = || (-1..60).flat_map(|n| (1..20).map(move |m| (n, m)));
        for (n, m) in shapes() {
            for weight in [false, true] {
                recorder.add(&[n, m], vec![(Condition::Weight(1), weight)], &launches(n, m, weight));
            }
        }
        let sizes = [0, 1].map(|axis| Variable::Size(0, 0, axis)).to_vec();
        let LaunchTables { tables, .. } = recorder.finish(sizes).unwrap();
        let bytes = minicbor::to_vec(&tables).unwrap_or_default();
        assert_eq!(minicbor::decode(&bytes).ok(), Some(tables.clone()));
        assert!(tables.len() == 4 && tables.iter().all(|t| t.is_whole(2)), "{} tables", tables.len());
        for (n, m) in shapes() {
            for weight in [false, true] {
                let holding = tables.iter().filter(|t| t.when == [(Condition::Weight(1), weight)]);
                let found: Vec<_> = holding.filter_map(|t| t.find(&[n, m])).collect();
                assert_eq!(found, [Ok(launches(n, m, weight))], "{n} {m} {weight}");
            }
        }
        assert!(tables.iter().all(|t| t.find(&[60, 1]).is_none() && t.find(&[5, 0]).is_none()));
    }

    #[test]
    fn tables_with_lost_columns_are_found() {
        let mut recorder = Recorder::default();
        recorder.add(&[1], Vec::new(), &launches(1, 1, false));
        let table = recorder.finish(vec![Variable::Element(0, 1, 0)]).unwrap().tables.remove(0);
        assert!(table.is_whole(1));
        assert!(!LaunchTable { rows: 0, ..table.clone() }.is_whole(1));
        assert!(!LaunchTable { rows: u64::MAX, ..table.clone() }.is_whole(1));
        assert!(!LaunchTable { columns: vec![Column::default(); 5], ..table.clone() }.is_whole(1));
        assert!(!table.is_whole(table.columns.len()));
    }
}
