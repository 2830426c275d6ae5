//! The kernels of recurrences with weights on the chip: their constants, and their launches.

use super::layout::{Layout, WARPS, most_columns, units};
use super::plan::{ALONG, Plan, SIDE, directions, gates, narrow, reset_first};
use crate::dialect::CUDA;
use crate::kernels::mma::Kind;
use kiln_backend::BackendError;
use kiln_codegen::recurrent::activation;
use kiln_codegen::site::{Cx, Site, op_error};
use kiln_codegen::{Blocks, Body, Entry, Grid, Launch};
use kiln_ir::DType;
use kiln_ops::recurrent::GRU;
use kiln_ops::recurrent::LSTM;
use kiln_ops::recurrent::activations;
use std::fmt::Write;

kiln_codegen::params! {
    /// A recurrence, and the product of its inputs with their weights.
    struct RecurrentChipParams {
        /// Rows of the inputs: those of all steps and sequences.
        rows: u32,
        /// Columns of the product: those of all directions, gates and units.
        columns: u32,
        /// Components of an input.
        depth: u32,
        /// Steps.
        steps: u32,
        /// Directions.
        directions: u32,
        /// Sequences.
        batch: u32,
        /// 1 where the batch is in front of the steps.
        batch_first: u32,
        /// 1 where the only direction is the reverse one.
        backward: u32,
        /// Bound that the sums of gates are clipped to; 0 where they are not.
        clip: f32,
        /// Sequences of a cluster.
        sequences: u32,
        /// Offset of a grid's counters in scratch memory, in words.
        counters_at: u32,
        /// Number of counters; the states of a grid are behind them.
        counters: u32,
        /// The first cluster of the launch.
        first_cluster: u32,
    }
}

/// Counters of a grid come in such groups: the states behind them begin at a multiple of 16 bytes.
const COUNTERS: usize = 64;
/// Threads of a block of the input's product in f32.
const THREADS: u32 = 256;

/// Less exact functions for types that are stored with fewer digits anyway: sums of exponentials in f32.
fn quick(text: &str) -> String {
    match text {
        "ktanh(v)" => "1.0f - __fdividef(2.0f, __expf(2.0f * v) + 1.0f)".into(),
        "1.0f / (1.0f + kexp(-v))" => "__fdividef(1.0f, 1.0f + __expf(-v))".into(),
        other => other.into(),
    }
}

/// The function that chooses an activation by its number, and how many numbers a direction has of its own: none where both directions
/// have the same activations.
fn chosen(site: &Site<'_>, narrow: bool) -> Result<String, BackendError> {
    let op = site.op()?;
    let mut all = activations(op).map_err(op_error)?;
    let dirs = directions(op.attrs());
    let per = all.len() / dirs;
    let alike = dirs == 2 && all[..per] == all[per..];
    if alike {
        all.truncate(per);
    }
    let mut value = String::new();
    for (i, &(name, a, b)) in all.iter().enumerate() {
        let one = activation(name, a, b);
        let one = if narrow { quick(&one) } else { one };
        let _ = write!(value, "which == {i}u ? {one} : ");
    }
    value += "v";
    let own = if dirs == 1 || alike { 0 } else { per };
    let arguments = [("which", "u32"), ("v", "f32"), ("relu", "f32")];
    Ok((CUDA.function)("activation", &arguments, "f32", &value)
        + &site.constant("PER_DIRECTION", "u32", format_args!("{own}u")))
}

/// The kernels of a plan.
pub fn source(site: &Site<'_>, plan: &Plan) -> Result<Body, BackendError> {
    let (op, narrow, reset_first) = (site.op()?, narrow(site)?, reset_first(site.op()?)?);
    let layout = Layout::of(site, plan)?;
    let has = |i: usize| site.dtype(i).is_some();
    let input_forget = op.is(LSTM) && op.attrs().bool("input_forget").map_err(op_error)?;
    let mut code = chosen(site, narrow)? + &layout.constants(plan);
    for (name, yes) in [
        ("GRID", plan.grid),
        ("NARROW", narrow),
        ("BF16", site.dtype(0) == Some(DType::BF16)),
        ("LSTM", op.is(LSTM)),
        ("GRU", op.is(GRU)),
        ("RESET_FIRST", reset_first),
        ("INPUT_FORGET", input_forget),
        ("BIAS", has(3)),
        ("LENGTHS", has(4)),
        ("STATE", has(5)),
        ("CELL", has(6)),
        ("PEEPHOLES", has(7)),
    ] {
        code += &site.constant(name, "bool", yes);
    }
    let mut shared = layout.shared;
    let inputs = match narrow {
        true => {
            let kind = Kind::of_types(site)?;
            shared = shared.max(plan.tile.shared(kind, ALONG));
            code += &plan.tile.constants(kind, ALONG);
            Entry::blocks("inputs_mma", plan.tile.threads() as u32)
        }
        false => Entry::blocks("inputs_f32", THREADS),
    };
    let recur = Blocks::of("recur", (WARPS * 32) as u32);
    let recur = match plan.grid {
        true => Blocks { together: true, ..recur },
        false => Blocks { cluster: plan.cluster as u32, ..recur },
    };
    let files = vec!["recurrent/inputs", "recurrent/chip"];
    let entries = vec![inputs, Entry::Blocks(recur)];
    Ok(Body { code, files, entries, shared: shared as u32, scratch: true, ..Body::default() })
}

/// The launches of a plan: the product of the inputs, then the recurrence.
pub fn launch(cx: &Cx<'_>, plan: &Plan) -> Result<Vec<Launch>, BackendError> {
    let op = cx.op()?;
    let a = op.attrs();
    let (x, r) = (cx.shape(0)?, cx.shape(2)?);
    let first = a.int("layout").map_err(op_error)? == 1;
    let (steps, batch) = if first { (x[1], x[0]) } else { (x[0], x[1]) };
    let (dirs, hidden) = (r[0], r[2]);
    let narrow = cx.inputs.first().copied().flatten().is_some_and(|f| f.ty.dtype != DType::F32);
    let backward = a.str("direction").map_err(op_error)? == "reverse";
    let sequences = plan.columns(dirs, batch, most_columns(units(hidden, plan.cluster), narrow));
    let (rows, columns) = (steps * batch, dirs * gates(op.name()) * hidden);
    // Results of the product are found by 32 bits.
    kiln_codegen::words([rows.saturating_mul(columns), rows.saturating_mul(x[2])])?;
    let (m, n) = if narrow { (plan.tile.m, plan.tile.n) } else { (SIDE, SIDE) };
    let tiles = rows.div_ceil(m) * columns.div_ceil(n);
    let clusters = dirs * batch.div_ceil(sequences);
    let (counters, states) = match plan.grid {
        true => {
            let layout = Layout::new(hidden, gates(op.name()), plan.cluster, narrow, 0);
            (clusters.next_multiple_of(COUNTERS), layout.state_bytes * 2 * clusters)
        }
        false => (0, 0),
    };
    let counters_at = (rows * columns).next_multiple_of(COUNTERS);
    let params = RecurrentChipParams {
        rows,
        columns,
        depth: x[2],
        steps,
        directions: dirs,
        batch,
        batch_first: usize::from(first),
        backward: usize::from(backward),
        clip: a.float("clip").map_err(op_error)? as f32,
        sequences,
        counters_at,
        counters,
        first_cluster: 0,
    };
    let scratch = ((counters_at + counters) * 4 + states) as u64;
    let mut all = vec![Launch::map(0, params.words()?).on(Grid::Groups(tiles as u64)).scratch(scratch)];
    let of_launch = if plan.grid { plan.at_once() } else { clusters.max(1) };
    for first_cluster in (0..clusters).step_by(of_launch) {
        let blocks = of_launch.min(clusters - first_cluster) * plan.cluster;
        let words = RecurrentChipParams { first_cluster, ..params.clone() }.words()?;
        all.push(Launch::map(1, words).on(Grid::Groups(blocks as u64)).scratch(scratch));
    }
    Ok(all)
}
