//! Attention: scores, softmax and weighted sum, one pass each, with the weights in scratch memory.

pub mod cooperative;

use kiln_backend::BackendError;
use kiln_codegen::attention::{Problem, body, unmoved};
use kiln_codegen::long::repeated;
use kiln_codegen::site::{Cx, unsupported};
use kiln_codegen::{Grid, Kernel, Launch, Views, plain};

pub const KERNELS: &[Kernel] = &[Kernel {
    name: "attention",
    ops: &["attention"],
    epilogue: true,
    views: Views::Framed,
    side_results: false,
    tactics: |site| {
        unmoved(site)?;
        plain("attention")
    },
    source: |site, _| body(site),
    launch,
}];

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let p = Problem::of(cx)?;
    let w = p.params().words()?;
    let (total, size) = (p.keys, p.size);
    let count = |shape: &[usize]| shape.iter().map(|&d| d as u64).product::<u64>();
    let rows = count(&[p.batch, p.heads, p.queries]);
    let scores = rows * total as u64;
    let cache = count(&[p.batch, p.kv_heads, total]);
    // Loops that are not split: over a head for each score, three over the keys of a row.
    let longest = size.max(total.div_ceil(64) * 3 + 128);
    if longest > cx.rounds {
        return unsupported(format!(
            "attention over {total} keys with heads of {size}: loops of {longest} iterations, {} are possible",
            cx.rounds
        ));
    }
    let threads = Grid::Threads;
    let grids = [
        threads(scores),
        Grid::Groups(rows),
        threads(rows * p.v_size as u64),
        threads(cache * size as u64),
        threads(cache * p.v_size as u64),
        threads(scores),
    ];
    let mut out = Vec::new();
    for (k, grid) in grids.into_iter().enumerate() {
        let launch = Launch::map(k, w.clone()).on(grid).scratch((scores * 4).max(4));
        if k == 2 {
            out.extend(repeated(cx, &launch, (total, 1), rows * p.v_size as u64 * 4)?);
        } else {
            out.push(launch);
        }
    }
    // All bind the scratch memory at its largest.
    let bytes = out.iter().map(|l| l.scratch).max().unwrap_or(0);
    Ok(out.into_iter().map(|l| l.scratch(bytes)).collect())
}
