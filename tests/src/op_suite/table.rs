//! Outcomes by operator and element type.

use super::refusals::Refusal;
use kiln_ir::DType;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Outcomes of the problems of one operator and type.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Number of problems that passed.
    pub passed: usize,
    /// Reasons of refusals, one for each problem.
    pub refused: Vec<String>,
    /// Descriptions of failures, one for each problem.
    pub failed: Vec<String>,
}

/// Outcomes of one backend.
#[derive(Clone, Debug, Default)]
pub struct Table(BTreeMap<(&'static str, DType), Row>);

impl Table {
    /// The row of an operator and type.
    pub fn row(&mut self, op: &'static str, dtype: DType) -> &mut Row {
        self.0.entry((op, dtype)).or_default()
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, DType, &Row)> {
        self.0.iter().map(|(&(op, dtype), row)| (op, dtype, row))
    }

    /// All refusals, each reason once for an operator and type.
    pub fn refusals(&self) -> BTreeSet<Refusal> {
        let of = |(&(op, dtype), row): (&(&str, DType), &Row)| {
            let some = row.passed + row.failed.len() > 0 || row.refused.iter().any(|r| *r != row.refused[0]);
            let whys: BTreeSet<&String> = row.refused.iter().collect();
            whys.into_iter()
                .map(|why| Refusal { op: op.to_owned(), dtype, some, why: why.clone() })
                .collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of).collect()
    }

    /// Numbers of problems passed, refused and failed.
    pub fn totals(&self) -> (usize, usize, usize) {
        let sum = |f: fn(&Row) -> usize| self.0.values().map(f).sum();
        (sum(|r| r.passed), sum(|r| r.refused.len()), sum(|r| r.failed.len()))
    }
}

/// Operators with the numbers of each type, then what failed.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ops: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (&(op, dtype), r) in &self.0 {
            let mut cell = format!("{dtype} {}", r.passed);
            for (n, what) in [(r.refused.len(), "refused"), (r.failed.len(), "FAILED")] {
                if n > 0 {
                    cell += &format!(", {n} {what}");
                }
            }
            ops.entry(op).or_default().push(cell);
        }
        for (op, cells) in ops {
            writeln!(f, "{op:<22} {}", cells.join(" | "))?;
        }
        for (&(op, dtype), r) in &self.0 {
            for why in r.failed.iter().take(3) {
                writeln!(f, "FAILED {op} {dtype}: {why:.1500}")?;
            }
        }
        Ok(())
    }
}
