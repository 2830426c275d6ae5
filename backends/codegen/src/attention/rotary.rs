//! Rotary embedding.

use crate::site::{Cx, Site, op_error};
use crate::{Body, Kernel, Launch};
use kiln_backend::{BackendError, Tactic};

/// The kernels.
pub const KERNELS: &[Kernel] =
    &[Kernel::of("rotary_embedding", &["rotary_embedding"], source, launch).framed()];

crate::params! {
    /// Rotary embedding.
    pub struct RotaryParams {
        /// Number of heads.
        heads: u32,
        /// Number of positions.
        positions: u32,
        /// Rows of the table from one of the batch to the next.
        of_batch: u32,
        /// Elements of a head.
        size: u32,
        /// Pairs of a head that turn.
        pairs: u32,
        /// Rows of the table.
        rows: u32,
        /// Whether x has three dimensions, with heads behind positions.
        flat: u32,
        /// Whether pairs are neighbours.
        interleaved: u32,
    }
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    Ok(Body::element("attention/rotary", "rotary_embedding").with(ids(site)))
}

/// Whether a table is read by positions' ids, as a constant of the kernel.
pub fn ids(site: &Site<'_>) -> String {
    site.constant("IDS", "bool", site.dtype(3).is_some())
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    Ok(vec![Launch::map(0, params(cx)?.words()?)])
}

/// The sizes of a launch.
pub fn params(cx: &Cx<'_>) -> Result<RotaryParams, BackendError> {
    let (x, table) = (cx.shape(0)?, cx.shape(1)?);
    let attrs = cx.op()?.attrs();
    let (heads, positions, size, flat) = match x[..] {
        [_, h, s, d] => (h, s, d, false),
        [_, s, hidden] => {
            let heads = attrs.int("num_heads").map_err(op_error)?.max(1) as usize;
            (heads, s, hidden / heads, true)
        }
        _ => return Err(BackendError::Internal("rotary embedding of neither 3-D nor 4-D".into())),
    };
    let shared = matches!(table[..], [1, _, _]);
    Ok(RotaryParams {
        heads,
        positions,
        of_batch: if shared { 0 } else { positions },
        size,
        pairs: table.last().copied().unwrap_or(0),
        rows: table[..table.len() - 1].iter().product(),
        flat: usize::from(flat),
        interleaved: usize::from(attrs.bool("interleaved").map_err(op_error)?),
    })
}
