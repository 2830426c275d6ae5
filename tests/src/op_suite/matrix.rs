//! The support matrix of the documentation: what the problems cover, less what the lists of refusals say. The suite
//! keeps these lists true, in both directions, on every backend; so the matrix needs no device.

use super::refusals::{Refusal, listed};
use super::{UNTESTED, dtype_of, problems};
use kiln_ir::DType;
use std::collections::{BTreeMap, BTreeSet};

const HEAD: &str = "\
# Supported operators

Written by `KILN_BLESS=1 cargo test -p kiln-tests --test op_suite support_matrix`; do not edit.

Each cell has one sign for each backend, in this order: BACKENDS. **✓** all problems of the op suite for this
operator and element type agree with the oracle by every tactic; **◐** some of them are refused; **–** all are refused.
Refusals have their reasons below. An empty cell: the operator does not take the type, or the suite has no problem with it.
The type is that of the first data input, or of the output where there is none.
";

/// The text of `docs/support.md` for these backends.
pub fn matrix(backends: &[&str]) -> Result<String, String> {
    let mut refusals = Vec::new();
    for b in backends {
        refusals.push(listed(b)?);
    }
    let mut cells: BTreeMap<&str, BTreeSet<DType>> = BTreeMap::new();
    let all = problems();
    for p in &all {
        cells.entry(p.op.name()).or_default().insert(dtype_of(p));
    }
    let mut out = HEAD.replace("BACKENDS", &backends.join(", "));
    let columns: Vec<&str> = DType::ALL.iter().map(|t| t.name()).collect();
    out += &format!("\n| operator | {} |\n|---|{}\n", columns.join(" | "), ":-:|".repeat(columns.len()));
    for (op, types) in &cells {
        let cell = |t: &DType| match types.contains(t) {
            true => refusals.iter().map(|r| sign(r, op, *t)).collect::<Vec<_>>().join(" "),
            false => String::new(),
        };
        let row: Vec<String> = DType::ALL.iter().map(cell).collect();
        out += &format!("| `{op}` | {} |\n", row.join(" | "));
    }
    out += "\nNot in the suite:\n\n";
    for (op, why) in UNTESTED {
        out += &format!("* `{op}` {why}\n");
    }
    for (b, list) in backends.iter().zip(&refusals) {
        out += &notes(b, list);
    }
    Ok(out)
}

fn sign(list: &BTreeSet<Refusal>, op: &str, t: DType) -> &'static str {
    let mut of = list.iter().filter(|r| r.op == op && r.dtype == t).map(|r| r.some);
    match of.next() {
        None => "✓",
        Some(some) if some => "◐",
        Some(_) => "–",
    }
}

/// Reasons of a backend, each with the operators and types that it is given for.
fn notes(backend: &str, list: &BTreeSet<Refusal>) -> String {
    let mut whys: BTreeMap<&str, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for r in list {
        whys.entry(&r.why).or_default().entry(&r.op).or_default().push(r.dtype.name());
    }
    let mut out = format!("\n## What {backend} refuses\n\n");
    if list.is_empty() {
        out += "Nothing.\n";
    }
    for (why, ops) in whys {
        let ops: Vec<String> = ops.into_iter().map(|(op, t)| format!("`{op}` ({})", t.join(", "))).collect();
        out += &format!("* {why}: {}\n", ops.join(", "));
    }
    out
}
