//! Recurrences by blocks, of clusters or of a whole grid, that keep the recurrent weights on the chip: see `kernels/recurrent/chip.cuh`.

pub mod block;
mod cell;
mod chip;
mod cost;
mod layout;
mod plan;

use self::cost::Work;
use self::layout::{Layout, WARPS};
use self::plan::{ALONG, AT_ONCE, Plan, SMALL, cluster, cluster_large, grid, hidden, narrow, reset_first};
use super::mma::Kind;
use crate::target::capability;
use crate::tiles;
use kiln_backend::{BackendError, Tactic, Target};
use kiln_codegen::Kernel;
use kiln_codegen::site::{Site, unsupported};

/// The operators.
const OPS: &[&str] = &["rnn", "gru", "lstm"];

/// A table of plans, `"tactic" plan;`, and a kernel for each.
macro_rules! recurrent_kernels {
    ($($name:literal $plan:expr;)*) => {
        const PLANS: &[(&str, &Plan)] = &[$(($name, &$plan),)*];

        /// The kernels.
        pub const KERNELS: &[Kernel] = &[$({
            const PLAN: &Plan = &$plan;
            Kernel {
                tactics: |site| tactics(site, $name, PLAN),
                ..Kernel::alone($name, OPS, |site, _| chip::source(site, PLAN), |cx| chip::launch(cx, PLAN))
            }
        },)*];
    };
}

recurrent_kernels! {
    "recurrent.cluster16" cluster(16);
    "recurrent.cluster16_128x128" cluster_large(16);
    "recurrent.cluster8" cluster(8);
    "recurrent.cluster8_128x128" cluster_large(8);
    "recurrent.cluster4" cluster(4);
    "recurrent.cluster4_128x128" cluster_large(4);
    "recurrent.cluster2" cluster(2);
    "recurrent.cluster1" cluster(1);
    "recurrent.grid128" grid(128);
    "recurrent.grid64" grid(64);
    "recurrent.grid32" grid(32);
}

/// The table as a list.
pub fn tiles() -> Vec<tiles::Tile> {
    let blocks = |(name, plan): &(&'static str, &Plan)| tiles::Tile {
        threads: WARPS * 32,
        ..plan.tile.listed(name, plan.cluster)
    };
    PLANS.iter().map(blocks).collect()
}

/// Units from which on a grid may be worth its exchange through memory.
const GRID_UNITS: usize = 640;
/// Tiles of rows of a warp: more would not find room in registers.
const MOST_TILES: usize = 3;
/// Pairs of a unit and a sequence of a thread: more would not find room in registers.
const MOST_PAIRS: usize = 3;

/// The largest cluster of an architecture.
fn largest_cluster(target: &Target) -> usize {
    match capability(&target.arch) {
        90 | 100 | 103 => 16,
        n if n > 90 => 8,
        _ => 1,
    }
}

fn tactics(site: &Site<'_>, name: &str, plan: &Plan) -> Result<Vec<Tactic>, BackendError> {
    let most = largest_cluster(site.target);
    let (narrow, units, reset_first) = (narrow(site)?, hidden(site)?, reset_first(site.op()?)?);
    if plan.grid {
        fits_grid(site, units)?;
    } else if plan.cluster > most {
        return unsupported(format!("clusters of {} blocks, {most} are possible", plan.cluster));
    }
    if plan.cluster > 1 && units.div_ceil(plan.cluster) <= 4 {
        return unsupported("clusters with next to no unit in a block");
    }
    if !narrow && plan.tile.n > SMALL.n {
        return unsupported("large tiles of f32");
    }
    let layout = Layout::of(site, plan)?;
    let (tiles, pairs) = (layout.tiles_m, (layout.units * layout.columns).div_ceil(WARPS * 32));
    if tiles > MOST_TILES || pairs > MOST_PAIRS {
        return unsupported(format!(
            "{} units in each of {} blocks: too many for registers",
            layout.units, plan.cluster
        ));
    }
    if narrow {
        plan.tile.check(site, Kind::of_types(site)?, ALONG, 0)?;
    }
    let work = Work::of(site)?;
    let columns = plan.columns(work.dirs, work.batch, layout.columns);
    let waves = (work.dirs * work.batch.div_ceil(columns)).div_ceil(plan.at_once());
    let exchanges = if reset_first { 2.0 } else { 1.0 };
    let estimate_ns = Some(work.ns(&plan.tile, waves, exchanges * layout.clocks(plan, columns, narrow)));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
}

/// Refuses grids for which there are too few multiprocessors for blocks that wait for each other, or that do
/// not pay.
fn fits_grid(site: &Site<'_>, units: usize) -> Result<(), BackendError> {
    let there = site.target.numbers.get("sm_count").copied().unwrap_or(0);
    if there < AT_ONCE as u64 {
        return unsupported(format!("{AT_ONCE} blocks that wait for each other, on {there} multiprocessors"));
    }
    if units < GRID_UNITS {
        return unsupported(format!("a grid of blocks for fewer than {GRID_UNITS} units"));
    }
    Ok(())
}
