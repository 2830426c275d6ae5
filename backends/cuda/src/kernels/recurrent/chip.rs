//! The kernels of recurrences by clusters and grids: their constants, and their launches.

use super::cell::{self, RecurrentChipParams, Sizes};
use super::layout::{Layout, WARPS, most_columns, units};
use super::plan::Plan;
use kiln_backend::BackendError;
use kiln_codegen::site::{Cx, Site};
use kiln_codegen::{Blocks, Body, Entry, Grid, Launch};

/// Counters of a grid come in such groups: the states behind them begin at a multiple of 16 bytes.
const COUNTERS: usize = 64;

/// The kernels of a plan.
pub fn source(site: &Site<'_>, plan: &Plan) -> Result<Body, BackendError> {
    let layout = Layout::of(site, plan)?;
    let (file, inputs, constants, needs) = cell::inputs(site, &plan.tile)?;
    let recur = Blocks::of("recur", (WARPS * 32) as u32);
    let recur = match plan.grid {
        true => Blocks { together: true, ..recur },
        false => Blocks { cluster: plan.cluster as u32, ..recur },
    };
    let code = cell::constants(site, plan.grid)? + &layout.constants(plan) + &constants;
    let files = vec![file, "recurrent/chip"];
    let entries = vec![inputs, Entry::Blocks(recur)];
    let shared = layout.shared.max(needs) as u32;
    Ok(Body { code, files, entries, shared, scratch: true, ..Body::default() })
}

/// The launches of a plan: the product of the inputs, then the recurrence.
pub fn launch(cx: &Cx<'_>, plan: &Plan) -> Result<Vec<Launch>, BackendError> {
    let mut sizes = Sizes::of(cx, &plan.tile)?;
    let most = most_columns(units(sizes.hidden, plan.cluster), sizes.narrow);
    let sequences = plan.columns(sizes.dirs, sizes.batch, most);
    let clusters = sizes.dirs * sizes.batch.div_ceil(sequences);
    let (counters, states) = match plan.grid {
        true => {
            let layout = Layout::new(sizes.hidden, sizes.gates, plan.cluster, sizes.narrow, 0);
            (clusters.next_multiple_of(COUNTERS), layout.state_bytes * 2 * clusters)
        }
        false => (0, 0),
    };
    let counters_at = sizes.products.next_multiple_of(COUNTERS);
    sizes.params = RecurrentChipParams { sequences, counters_at, counters, ..sizes.params };
    let scratch = ((counters_at + counters) * 4 + states) as u64;
    let mut all = vec![sizes.product(scratch)?];
    let of_launch = if plan.grid { plan.at_once() } else { clusters.max(1) };
    for first_cluster in (0..clusters).step_by(of_launch) {
        let blocks = of_launch.min(clusters - first_cluster) * plan.cluster;
        let words = RecurrentChipParams { first_cluster, ..sizes.params.clone() }.words()?;
        all.push(Launch::map(1, words).on(Grid::Groups(blocks as u64)).scratch(scratch));
    }
    Ok(all)
}
