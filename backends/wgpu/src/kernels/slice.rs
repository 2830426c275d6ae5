//! Concatenation: a thread stores eight neighbours.

use kiln_backend::BackendError;
use kiln_codegen::site::Cx;
use kiln_codegen::slice;
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch};

pub const KERNELS: &[Kernel] = &[Kernel::of(
    "concat",
    &["concat"],
    |_, _| Ok(Body { inputs: Some(vec![0]), ..Body::of("slice/concat", vec![Entry::threads("concat")]) }),
    launch,
)];

/// Neighbours of a thread.
const ELEMENTS: u64 = 8;

/// The generic launches, with fewer threads.
fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let Some(generic) = slice::KERNELS.iter().find(|k| k.name == "concat") else { return Ok(Vec::new()) };
    let fewer = |l: Launch| match l.grid {
        Grid::Threads(n) => l.on(Grid::Threads(n.div_ceil(ELEMENTS))).span(0, n as usize),
        _ => Ok(l),
    };
    (generic.launch)(cx)?.into_iter().map(fewer).collect()
}
