//! Determinants by elimination, a workgroup a matrix, columns in spans.

use kiln_backend::BackendError;
use kiln_codegen::long::repeated;
use kiln_codegen::matmul::det::matrices;
use kiln_codegen::site::Cx;
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch};

pub const KERNELS: &[Kernel] = &[Kernel::of(
    "det",
    &["det"],
    |_, _| Ok(Body { scratch: true, ..Body::of("matmul/det", vec![Entry::blocks("det", 64)]) }),
    launch,
)];

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (params, count, elements) = matrices(cx)?;
    let (n, bytes) = (params.rows, (elements + count) as u64 * 4);
    let launch = Launch::map(0, params.words()?).on(Grid::Groups(count as u64)).scratch(bytes);
    // A column takes a search, a swap, and the rows of a thread; the copy before the first one takes less.
    let cost = n + n / 64 + 2 + n.div_ceil(64) * (n + 1);
    repeated(cx, &launch, (n, cost * 2), 0)
}
