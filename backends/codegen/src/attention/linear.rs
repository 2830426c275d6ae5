//! Linear attention: a thread for each column of a state, which no other column depends on, or a warp for eight.

use crate::site::{Cx, Site, op_error};
use crate::{Body, Entry, Grid, Kernel, Launch, long};
use kiln_backend::{BackendError, Tactic};
use kiln_ops::attention::linear::Rule;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel::alone("linear_attention", &["linear_attention"], source, launch)];

/// Rows of a state that a warp keeps in registers, by entry; longer columns stay in scratch memory.
const ROWS: [usize; 4] = [32, 64, 128, 256];
/// The entry of each of them.
const WARPS: [&str; 4] = ["warps_1", "warps_2", "warps_4", "warps_8"];
/// Columns of a warp, and warps of a block.
const COLUMNS: usize = 8;
const BLOCK: usize = 4;

crate::params! {
    /// Linear attention.
    struct LinearAttentionParams {
        /// Number of steps.
        steps: u32,
        /// Heads of the queries.
        q_heads: u32,
        /// Heads of keys and values.
        kv_heads: u32,
        /// Rows of a state.
        rows: u32,
        /// Its columns.
        columns: u32,
        /// The factor of results.
        scale: f32,
        /// Decays of a head: one, or one a row.
        decays: u32,
        /// Whether every head has a beta.
        beta_heads: u32,
        /// Number of warps that run.
        warps: u32,
    }
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let rule = Rule::of(site.op()?.attrs()).map_err(op_error)?;
    let hook = |name: &str, value: &str| site.function(name, &[("at", "u32")], "f32", value);
    let code = site.constant("GATED", "bool", rule.gated)
        + &site.constant("DELTA", "bool", rule.delta)
        + &hook("past_state", if site.dtype(3).is_some() { "x3(at)" } else { "0.0f" })
        + &hook("decay", if rule.gated { "kexp(x4(at))" } else { "1.0f" })
        + &hook("beta", if rule.delta { "x5(at)" } else { "1.0f" });
    let mut entries = vec![Entry::threads("columns")];
    // Warps know of each other's lanes in languages whose launches take any time.
    if !site.cut() {
        entries.extend(WARPS.map(|name| Entry::blocks(name, BLOCK as u32 * 32)));
    }
    Ok(Body { scratch: true, ..Body::of("attention/linear", entries).with(code) })
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
    let warps = batch * kv_heads * dv.div_ceil(COLUMNS);
    let params = LinearAttentionParams {
        steps,
        q_heads,
        kv_heads,
        rows: dk,
        columns: dv,
        scale: scale as f32,
        decays: decay / kv_heads.max(1),
        beta_heads: usize::from(beta != 1),
        warps,
    };
    let w = params.words()?;
    let columns = batch * kv_heads * dv;
    let entry = ROWS.iter().position(|rows| dk <= *rows).filter(|_| !cx.cut());
    if let Some(entry) = entry {
        let blocks = warps.div_ceil(BLOCK) as u64;
        return Ok(vec![Launch::map(entry + 1, w).on(Grid::Groups(blocks))]);
    }
    let launch = Launch::map(0, w).on(Grid::Threads(columns as u64)).scratch((columns * dk) as u64 * 4);
    // Two walks over a column for a step and one for every query head; loading and storing it once takes no more.
    let cost = (dk + 1) * (4 + q_heads / kv_heads.max(1)) + 4;
    long::repeated(cx, &launch, (steps, cost), 0)
}
