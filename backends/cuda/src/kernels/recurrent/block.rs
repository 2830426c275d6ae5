//! Recurrences of few units by blocks that run a sequence alone and keep its weights: see `kernels/recurrent/block.cuh`.

mod layout;

use self::layout::{Layout, Plan};
use super::OPS;
use super::cell::{self, Sizes};
use super::cost::Work;
use super::plan::{ALONG, gates, hidden, narrow, reset_first};
use crate::kernels::constants::constants;
use crate::kernels::cost::Device;
use crate::kernels::mma::{Kind, Tile};
use crate::tiles;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch};
use kiln_ops::recurrent::{LSTM, activations};

/// A table of plans, `"tactic" lanes quads;`, and a kernel for each.
macro_rules! block_kernels {
    ($($name:literal $lanes:literal $quads:literal;)*) => {
        const PLANS: &[(&str, Plan)] = &[$(($name, Plan { lanes: $lanes, quads: $quads }),)*];

        /// The kernels.
        pub const KERNELS: &[Kernel] = &[$({
            const PLAN: &Plan = &Plan { lanes: $lanes, quads: $quads };
            Kernel {
                tactics: |site| tactics(site, $name, PLAN),
                ..Kernel::alone($name, OPS, |site, _| source(site, PLAN), launch)
            }
        },)*];
    };
}

block_kernels! {
    "recurrent.block4" 4 1;
    "recurrent.block8" 8 1;
    "recurrent.block4x2" 4 2;
    "recurrent.block8x2" 8 2;
}

/// The tile of the input's product on tensor cores: a recurrence beside it has as much shared memory.
const TILE: Tile = Tile { m: 64, n: 64, bytes: 128, warps: (2, 2), stages: 3 };
/// Shared memory of a block where the target does not say: what all have.
const LEAST_SHARED: u64 = 48 << 10;

/// The table as a list.
pub fn tiles() -> Vec<tiles::Tile> {
    PLANS.iter().map(|(name, _)| TILE.listed(name, 1)).collect()
}

fn tactics(site: &Site<'_>, name: &str, plan: &Plan) -> Result<Vec<Tactic>, BackendError> {
    let memory = site.target.numbers.get("shared_memory").copied().unwrap_or(LEAST_SHARED) as usize;
    let layout = Layout::new(hidden(site)?, gates(site.op()?.name()), plan);
    layout.check(memory)?;
    if narrow(site)? {
        TILE.check(site, Kind::of_types(site)?, ALONG, 0)?;
    }
    // A group that is wider than it has depth has lanes without weights.
    if plan.lanes > 4 && hidden(site)? <= 2 * plan.lanes {
        return unsupported(format!("{} lanes for {} columns of weights", plan.lanes, hidden(site)?));
    }
    let work = Work::of(site)?;
    let blocks = (work.dirs * work.batch).div_ceil(Device::of(site.target).sm_count as usize);
    let beside = blocks.clamp(1, layout.beside(plan));
    let (busy, alone) = layout.clocks(reset_first(site.op()?)?);
    let clocks = alone.max(busy * beside as f64);
    let estimate_ns = Some(work.ns(&TILE, blocks.div_ceil(beside), clocks));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
}

/// Whether the gates of an LSTM are sigmoids and tanh, in all directions.
fn by_tanh(site: &Site<'_>) -> Result<bool, BackendError> {
    let op = site.op()?;
    let all = activations(op).map_err(op_error)?;
    let usual = |of: &[(&str, f64, f64)]| of[0].0 == "sigmoid" && of[1].0 == "tanh";
    Ok(op.is(LSTM) && all.chunks_exact(3).all(usual))
}

fn source(site: &Site<'_>, plan: &Plan) -> Result<Body, BackendError> {
    let (hidden, gates) = (hidden(site)?, gates(site.op()?.name()));
    let layout = Layout::new(hidden, gates, plan);
    let (file, inputs, tile, needs) = cell::inputs(site, &TILE)?;
    let numbers = layout.constants(hidden, gates, plan);
    let own = constants(&numbers, &[("BY_TANH", by_tanh(site)?)]);
    let code = cell::constants(site, false)? + &own + &tile;
    let files = vec![file, "recurrent/block"];
    let entries = vec![inputs, Entry::blocks("recur", layout.threads as u32)];
    let shared = layout.shared().max(needs) as u32;
    Ok(Body { code, files, entries, shared, scratch: true, ..Body::default() })
}

/// The product of the inputs, then the recurrence.
fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let sizes = Sizes::of(cx, &TILE)?;
    let scratch = 4 * sizes.products as u64;
    let blocks = (sizes.dirs * sizes.batch) as u64;
    let recur = Launch::map(1, sizes.params.words()?).on(Grid::Groups(blocks)).scratch(scratch);
    Ok(vec![sizes.product(scratch)?, recur])
}
