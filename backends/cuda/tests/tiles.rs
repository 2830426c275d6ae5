//! The documentation of the tensor-core tiles is what the tables say. `KILN_BLESS=1` writes it.

#![allow(clippy::unwrap_used, reason = "a test")]

use kiln_backend_cuda::families;
use kiln_backend_cuda::tiles::{Family, Tile};
use std::path::Path;

const HEAD: &str = "\
# Tiles

What a block of each tensor-core tactic computes. The tables are those that tactics are made of
(`kiln_backend_cuda::families`, `backends/cuda/src/kernels`); the tuner times the ones that the cost model expects to be
within a factor of the best, and names of tactics are those of reports, plans and timing caches. *Stages* are buffers that
copies go ahead by (*fit*: as many as find room), *bytes* those of the depth of a line in one of them (*head*: all of a
head), *split* the blocks that share the depth, the keys, or the hidden units, *beside* the blocks of a multiprocessor that
registers are limited for.

Written by `KILN_BLESS=1 cargo test -p kiln-backend-cuda --test tiles`; do not edit.
";

fn line(t: &Tile) -> String {
    let or = |n: Option<usize>, none: &str| n.map_or_else(|| none.to_owned(), |n| n.to_string());
    let (stages, bytes) = (or(t.stages, "fit"), or(t.stage_bytes, "head"));
    let shape = format!("{} x {}", t.rows, t.columns);
    let beside = or(t.beside, "");
    format!("| `{}` | {shape} | {} | {stages} | {bytes} | {} | {beside} |\n", t.tactic, t.threads, t.split)
}

fn section(f: &Family) -> String {
    let rows: String = f.tiles.iter().map(line).collect();
    let head = "| tactic | rows x columns | threads | stages | bytes | split | beside |\n|---|---|---|---|---|---|---|\n";
    format!("\n## {}\n\n{}\n\n{head}{rows}", f.name, f.about)
}

#[test]
fn the_documentation_shows_the_tables() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tiles.md");
    let wanted: String = [HEAD.to_owned()].into_iter().chain(families().iter().map(section)).collect();
    if std::env::var_os("KILN_BLESS").is_some_and(|v| v == "1") {
        return std::fs::write(file, wanted).unwrap();
    }
    let found = std::fs::read_to_string(file).unwrap();
    let differs = found.lines().zip(wanted.lines()).find(|(f, w)| f != w);
    assert_eq!(differs, None, "docs/tiles.md is out of date; KILN_BLESS=1 writes it");
    assert_eq!(found.lines().count(), wanted.lines().count(), "docs/tiles.md is out of date");
}
