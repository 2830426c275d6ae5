//! Linear attention: a thread for each column of a state, which no other column depends on, or a warp for eight.

use crate::site::{Cx, Site, op_error};
use crate::template::{fill, sections};
use crate::{Body, Entry, Grid, Kernel, Launch, long, word, words};
use kiln_backend::{BackendError, Tactic};
use kiln_ops::attention::linear::Rule;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel::alone("linear_attention", &["linear_attention"], source, launch)];

/// Rows of a state that a warp keeps in registers, by entry; longer columns stay in scratch memory.
const ROWS: [usize; 4] = [32, 64, 128, 256];
/// The entry of each of them in the text.
const WARPS: [&str; 4] = ["warps_1", "warps_2", "warps_4", "warps_8"];
/// Columns of a warp, and warps of a workgroup.
const COLUMNS: usize = 8;
const GROUP: usize = 4;

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let rule = Rule::of(site.op()?.attrs()).map_err(op_error)?;
    let past = if site.dtype(3).is_some() { "x3(at)" } else { "0.0f" };
    let flag = |on: bool| if on { "true" } else { "false" };
    let pairs = [
        ("PAST", past),
        ("GATED", flag(rule.gated)),
        ("DELTA", flag(rule.delta)),
        ("DECAY", if rule.gated { "kexp(x4(at))" } else { "1.0f" }),
        ("BETA", if rule.delta { "x5(at)" } else { "1.0f" }),
    ];
    // Warps know of each other's lanes in languages whose launches take any time.
    let warps = !site.cut();
    let names: &[&str] = if warps { &["common", "columns", "warps"] } else { &["common", "columns"] };
    let code = fill(&sections(site.text("linear_attention"), names), &pairs);
    let mut entries = vec![Entry::Free("columns")];
    if warps {
        entries.extend(WARPS.map(Entry::Free));
    }
    Ok(Body { code, entries, scratch: true, ..Body::default() })
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let attrs = cx.op()?.attrs();
    let (y, state) = (cx.out_shape(0)?, cx.out_shape(1)?);
    let (&[_, steps, _], &[batch, kv_heads, dk, dv]) = (&y[..], &state[..]) else {
        return Err(BackendError::Internal("a state that is not 4-D".into()));
    };
    let q_heads = attrs.int("q_heads").map_err(op_error)?.max(0) as usize;
    let parts = |i: usize| if cx.has(i) { cx.shape(i) } else { Ok(vec![0; 3]) };
    let (decay, beta) = (parts(4)?[2], parts(5)?[2]);
    let scale = match attrs.float("scale").map_err(op_error)? {
        0.0 => 1.0 / (dk as f64).sqrt(),
        scale => scale,
    };
    let mut w = words([steps, q_heads, kv_heads, dk, dv])?;
    w.push((scale as f32).to_bits());
    w.extend(words([decay / kv_heads.max(1), usize::from(beta != 1), batch])?);
    let columns = batch * kv_heads * dv;
    let entry = ROWS.iter().position(|rows| dk <= *rows).filter(|_| !cx.cut());
    if let Some(entry) = entry {
        let warps = batch * kv_heads * dv.div_ceil(COLUMNS);
        w.push(word(warps)?);
        let groups = warps.div_ceil(GROUP) as u64;
        return Ok(vec![Launch::map(entry + 1, w).on(Grid::Groups(groups))]);
    }
    let launch = Launch::map(0, w).on(Grid::Threads(columns as u64)).scratch((columns * dk) as u64 * 4);
    // Two walks over a column for a step and one for every query head; loading and storing it once takes no more.
    let cost = (dk + 1) * (4 + q_heads / kv_heads.max(1)) + 4;
    long::repeated(cx, &launch, (steps, cost), 0)
}
