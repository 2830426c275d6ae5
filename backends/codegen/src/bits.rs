//! Bits of elements as another type: a copy, where the memory does not just get another name.

use crate::site::{Cx, Site};
use crate::template::section;
use crate::{Body, Entry, Grid, Kernel, Launch, word};
use kiln_backend::{BackendError, Tactic};

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel::alone("bitcast", &["bitcast"], source, launch)];

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let name = if site.out_dtype(0).bits() > 32 { "bits_wide" } else { "bits" };
    Ok(Body {
        code: section(site.text("moves"), name).to_owned(),
        entries: vec![Entry::Free("copy_bits")],
        inputs: Some(vec![0]),
        ..Body::default()
    })
}

/// A thread for every 32 bits. The word is the number of elements, or of bytes that elements share.
fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    if cx.aliased.contains(&(0, 0)) {
        return Ok(Vec::new());
    }
    let n: usize = cx.out_shape(0)?.iter().product();
    let bits = cx.outputs.first().map_or(8, |f| f.ty.dtype.bits()) as usize;
    let threads = (n * bits).div_ceil(32);
    let cells = if bits < 8 { (n * bits).div_ceil(8) } else { n };
    Ok(vec![Launch::map(0, vec![word(cells)?]).on(Grid::Threads(threads as u64))])
}
