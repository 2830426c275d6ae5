//! Bits of elements as another type: a copy, where the memory does not just get another name.

use crate::site::{Cx, Site};
use crate::{Body, Entry, Grid, Kernel, Launch};
use kiln_backend::{BackendError, Tactic};

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel::alone("bitcast", &["bitcast"], source, launch)];

crate::params! {
    /// Bits as another type.
    struct BitcastParams {
        /// Elements of the result, or bytes that elements share.
        cells: u32,
    }
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let (file, entry) = match site.out_dtype(0).bits() > 32 {
        true => ("cast/bitcast_wide", "copy_wide"),
        false => ("cast/bitcast", "copy_bits"),
    };
    Ok(Body { inputs: Some(vec![0]), ..Body::of(file, vec![Entry::threads(entry)]) })
}

/// A thread for every 32 bits.
fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    if cx.aliased(0, 0) {
        return Ok(Vec::new());
    }
    let n: usize = cx.out_shape(0)?.iter().product();
    let bits = cx.outputs.first().map_or(8, |f| f.ty.dtype.bits()) as usize;
    let threads = (n * bits).div_ceil(32);
    let cells = if bits < 8 { (n * bits).div_ceil(8) } else { n };
    Ok(vec![Launch::map(0, BitcastParams { cells }.words()?).on(Grid::Threads(threads as u64))])
}
