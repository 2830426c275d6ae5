//! Assertions whose truth values are counted in spans.

use kiln_backend::BackendError;
use kiln_codegen::generate::assertion::counting;
use kiln_codegen::long::repeated;
use kiln_codegen::site::Cx;
use kiln_codegen::{Grid, Kernel, Launch};

pub const KERNELS: &[Kernel] =
    &[Kernel::alone("assertion", &["assertion"], |_, _| Ok(counting(64)), assertion)];

fn assertion(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let n: usize = cx.shape(0)?.iter().product();
    let launch = Launch { counts: true, ..Launch::map(0, Vec::new()).on(Grid::Groups(1)) };
    // Rounds of 64 elements; the last one of a launch adds up 64 threads.
    let all = repeated(cx, &launch, (n.div_ceil(64), 2), 0)?;
    let elements = |k: u32| (k as usize * 64).min(n) as u32;
    Ok(all.into_iter().map(|l| Launch { span: (elements(l.span.0), elements(l.span.1)), ..l }).collect())
}
