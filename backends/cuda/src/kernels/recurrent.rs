//! Recurrences by blocks, of clusters or of a whole grid, that keep the recurrent weights on the chip: see `kernels/recurrent/core.cuh`.

mod layout;

use self::layout::{Layout, WARPS, most_columns, units};
use super::mma::{Kind, Tile};
use crate::target::capability;
use crate::tiles;
use kiln_backend::{BackendError, Tactic, Target};
use kiln_codegen::recurrent::{activation, forget_gate};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::template::{fill, section, sections};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, words};
use kiln_ir::{DType, Op};
use kiln_ops::recurrent::activations;
use std::fmt::Write;

const CORE: &str = include_str!("../../../../kernels/recurrent/core.cuh");
const PRODUCTS: &str = include_str!("../../../../kernels/recurrent/products.cuh");
const GEMM: &str = include_str!("../../../../kernels/mma/gemm.cuh");
const MATMUL: &str = include_str!("../../../../kernels/generic/matmul.cuh");

/// A way to run a recurrence: blocks of a cluster, the tile of the input's product.
#[derive(Debug)]
struct Plan {
    name: &'static str,
    cluster: usize,
    /// Are the blocks those of a grid that all run at once?
    grid: bool,
    tile: Tile,
}

const fn plan(name: &'static str, cluster: usize, large: bool) -> Plan {
    let tile = match large {
        true => Tile { m: 128, n: 128, bytes: 64, warps: (2, 4), stages: 4 },
        false => Tile { m: 64, n: 64, bytes: 128, warps: (2, 2), stages: 4 },
    };
    Plan { name, cluster, grid: false, tile }
}

const fn grid(name: &'static str, blocks: usize) -> Plan {
    Plan { grid: true, ..plan(name, blocks, false) }
}

const PLANS: [Plan; 11] = [
    plan("recurrent.cluster16", 16, false),
    plan("recurrent.cluster16_128x128", 16, true),
    plan("recurrent.cluster8", 8, false),
    plan("recurrent.cluster8_128x128", 8, true),
    plan("recurrent.cluster4", 4, false),
    plan("recurrent.cluster4_128x128", 4, true),
    plan("recurrent.cluster2", 2, false),
    plan("recurrent.cluster1", 1, false),
    grid("recurrent.grid128", 128),
    grid("recurrent.grid64", 64),
    grid("recurrent.grid32", 32),
];

pub const KERNELS: &[Kernel] = kernels_of!(kernel[0 1 2 3 4 5 6 7 8 9 10]);
const _: () = assert!(KERNELS.len() == PLANS.len());

/// The table as a list.
pub fn tiles() -> Vec<tiles::Tile> {
    let blocks = |p: &Plan| tiles::Tile { threads: WARPS * 32, ..p.tile.listed(p.name, p.cluster) };
    PLANS.iter().map(blocks).collect()
}

impl Plan {
    /// Clusters that run at once.
    fn at_once(&self) -> usize {
        (if self.grid { AT_ONCE } else { RESIDENT } / self.cluster).max(1)
    }

    fn entry(&self) -> Entry {
        match self.grid {
            true => Entry::Together("recur"),
            false => Entry::Cluster("recur", self.cluster as u32),
        }
    }

    /// Bytes of the states of a cluster that lie in scratch memory.
    fn states(&self, hidden: usize, gates: usize, narrow: bool) -> usize {
        match self.grid {
            true => Layout::new(hidden, gates, self.cluster, narrow, 0).state_bytes,
            false => 0,
        }
    }
}

const fn kernel<const P: usize>() -> Kernel {
    Kernel {
        name: PLANS[P].name,
        ops: &["rnn", "gru", "lstm"],
        epilogue: false,
        tactics: |site| tactics(site, &PLANS[P]),
        source: |site, _| source(site, &PLANS[P]),
        launch: |cx| launch(cx, &PLANS[P]),
    }
}

/// Blocks that run at once in clusters: a cluster lies in one part of the device, and not all parts have as many
/// multiprocessors as they may.
const RESIDENT: usize = 112;
/// Blocks of grids whose blocks wait for each other.
const AT_ONCE: usize = 128;
/// Units from which on a grid may be worth its exchange through memory.
const GRID_UNITS: usize = 640;
/// Counters of a grid come in such groups: the states behind them begin at a multiple of 16 bytes.
const COUNTERS: usize = 64;
/// Tiles of rows of a warp, pairs of a unit and a sequence of a thread: more would not find room in registers.
const MOST_TILES: usize = 3;
const MOST_PAIRS: usize = 3;
/// The side of the tile of the input's product in f32.
const SIDE: usize = 64;

fn gates(op: &str) -> usize {
    match op {
        "lstm" => 4,
        "gru" => 3,
        _ => 1,
    }
}

/// Does the reset gate of a GRU come before the product with the state?
fn reset_first(op: &Op) -> Result<bool, BackendError> {
    Ok(op.is("gru") && !op.attrs().bool("linear_before_reset").map_err(op_error)?)
}

/// The number of hidden units, which the weights tell.
fn hidden(site: &Site<'_>) -> Result<usize, BackendError> {
    let own = || site.graph.ty((*site.anchor?.1.inputs.get(2)?)?).dims.get(2)?.as_const();
    match own().and_then(|n| usize::try_from(n).ok()) {
        Some(n) if n > 0 => Ok(n),
        _ => unsupported("recurrent weights of unknown shape, or without units"),
    }
}

/// Do the products go by tensor cores?
fn narrow(site: &Site<'_>) -> Result<bool, BackendError> {
    match site.dtype(0) {
        Some(DType::F32) => Ok(false),
        Some(DType::F16 | DType::BF16) => Ok(true),
        _ => unsupported("recurrent weights on the chip of other types than f32, f16 and bf16"),
    }
}

/// The largest cluster of an architecture.
fn largest_cluster(target: &Target) -> usize {
    match capability(&target.arch) {
        90 | 100 | 103 => 16,
        n if n > 90 => 8,
        _ => 1,
    }
}

fn tactics(site: &Site<'_>, plan: &Plan) -> Result<Vec<Tactic>, BackendError> {
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
    if !narrow && plan.tile.n > SIDE {
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
        plan.tile.check(site, Kind::of_types(site)?, ALONG)?;
    }
    let exchanges = if reset_first { 2.0 } else { 1.0 };
    let estimate_ns = Some(estimate(site, plan, &layout, narrow, exchanges));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(plan.name) }])
}

/// Are there enough multiprocessors for blocks that wait for each other, and is it worth it?
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

/// Nanoseconds, dimensions that are not known taken for middling ones.
fn estimate(site: &Site<'_>, plan: &Plan, layout: &Layout, narrow: bool, exchanges: f64) -> f64 {
    let dims = site.anchor.and_then(|(_, n)| n.inputs.first().copied().flatten());
    let dims = dims.map(|v| site.graph.ty(v).dims.clone()).unwrap_or_default();
    let of = |i: usize| dims.get(i).and_then(|d| d.as_const()).map_or(32, |n| n.max(0) as usize);
    let attrs = site.op().ok().map(|o| o.attrs());
    let first = attrs.and_then(|a| a.int("layout").ok()) == Some(1);
    let (steps, batch) = if first { (of(1), of(0)) } else { (of(0), of(1)) };
    let dirs = attrs.map_or(1, directions);
    let columns = columns(plan, dirs, batch, layout.columns);
    let clusters = dirs * batch.div_ceil(columns);
    let waves = clusters.div_ceil(plan.at_once());
    let ghz = site.target.numbers.get("clock_mhz").map_or(1.5, |&m| m as f64 / 1000.0).max(0.1);
    let each = exchanges * layout.clocks(plan, columns, narrow);
    let (rows, cols) = (steps * batch, dirs * layout.gates * layout.hidden);
    let blocks = rows.div_ceil(plan.tile.m) * cols.div_ceil(plan.tile.n);
    // A tile's clocks: by its area where a wave of them fills the device.
    let rate = if !narrow {
        80.0
    } else if plan.tile.n > SIDE {
        900.0
    } else {
        450.0
    };
    let tile = 2.0 * (plan.tile.m * plan.tile.n * of(2)) as f64 / rate + 1500.0;
    let product = blocks.div_ceil(2 * RESIDENT) as f64 * tile;
    4000.0 + (waves as f64 * steps as f64 * each + product) / ghz
}

fn directions(a: &kiln_ir::Attrs) -> usize {
    if a.str("direction") == Ok("bidirectional") { 2 } else { 1 }
}

/// Sequences of one cluster, so that all clusters run at once if they can.
fn columns(plan: &Plan, dirs: usize, batch: usize, most: usize) -> usize {
    let clusters = (plan.at_once() / dirs.max(1)).max(1);
    batch.div_ceil(clusters).clamp(1, most)
}

const ALONG: (bool, bool) = (false, false);

/// Less exact functions for types that are stored with fewer digits anyway: sums of exponentials in f32.
fn quick(text: &str) -> String {
    match text {
        "ktanh(v)" => "1.0f - __fdividef(2.0f, __expf(2.0f * v) + 1.0f)".into(),
        "1.0f / (1.0f + kexp(-v))" => "__fdividef(1.0f, 1.0f + __expf(-v))".into(),
        other => other.into(),
    }
}

/// The body of a switch over activations, and how it is asked: one case for both directions where they are the same.
fn cases(site: &Site<'_>, narrow: bool) -> Result<(String, String), BackendError> {
    let op = site.op()?;
    let mut all = activations(op).map_err(op_error)?;
    let dirs = directions(op.attrs());
    let per = all.len() / dirs;
    let alike = dirs == 2 && all[..per] == all[per..];
    if alike {
        all.truncate(per);
    }
    let mut text = String::new();
    for (i, &(name, a, b)) in all.iter().enumerate() {
        let value = activation(name, a, b);
        let value = if narrow { quick(&value) } else { value };
        let _ = writeln!(text, "        case {i}u: {{ return {value}; }}");
    }
    let which = if dirs == 1 || alike { "k".to_owned() } else { format!("d * {per}u + k") };
    Ok((text, which))
}

fn source(site: &Site<'_>, plan: &Plan) -> Result<Body, BackendError> {
    let (op, narrow) = (site.op()?, narrow(site)?);
    let layout = Layout::of(site, plan)?;
    let has = |i: usize| site.dtype(i).is_some();
    let given = |i: usize, text: &'static str, default: &'static str| if has(i) { text } else { default };
    let reset_first = reset_first(op)?;
    let bias = match (has(3), op.is("gru") && !reset_first) {
        (false, _) => "0.0f",
        (true, false) => "x3(at) + x3(at + GATES * HIDDEN)",
        (true, true) => "g < 2u ? x3(at) + x3(at + GATES * HIDDEN) : x3(at + GATES * HIDDEN)",
    };
    let (cases, which) = cases(site, narrow)?;
    let cell = if reset_first { "gru_reset_first" } else { op.name() };
    let parts = [("CELL", section(CORE, cell)), ("CASES", &*cases), ("WHICH", &*which), ("BIAS", bias)];
    let to_cell = if site.dtype(0) == Some(DType::BF16) { "f32_to_bf16" } else { "f32_to_f16" };
    let pairs = [
        ("PEEP", given(7, "return x7((d * 3u + g) * HIDDEN + j) * c;", "return 0.0f;")),
        ("H0", given(5, "x5(row + j)", "0.0f")),
        ("C0", given(6, "x6(row + j)", "0.0f")),
        ("LEN", given(4, "u32(clamp(near4(b), 0, i32(steps)))", "steps")),
        ("INPUT_BIAS", given(3, "x3((d * 6u + 2u) * HIDDEN + j)", "0.0f")),
        ("FORGET", &*forget_gate(op, "x[2] + sum[2] + peep(d, 2u, j, c)")),
        ("LAST", if op.is("lstm") { "emit2(at, cell[q]);" } else { "" }),
        ("TO_CELL", to_cell),
    ];
    let products = section(PRODUCTS, if narrow { "mma" } else { "fma" });
    let own = [products, section(CORE, "core")].concat();
    let exchanges = format!("static constexpr u32 EXCHANGES = {}u;\n", if reset_first { 2 } else { 1 });
    let own = layout.constants(plan) + &exchanges + &fill(&fill(&own, &parts), &pairs);
    let mut shared = layout.shared;
    let (input, text) = match narrow {
        true => {
            let kind = Kind::of_types(site)?;
            shared = shared.max(plan.tile.shared(kind, ALONG));
            let text = sections(GEMM, &["gemm"]) + section(PRODUCTS, "kept");
            let cell = |i| site.dtype(i).map_or("u8", crate::frame::cell);
            let pairs = [("SPLIT", "1u"), ("CELL_A", cell(0)), ("CELL_B", cell(1)), ("WHOLE", "false")];
            ("gemm", plan.tile.source(kind, ALONG, &text, &pairs))
        }
        false => {
            let head = MATMUL.split_once("// ---- ").map_or("", |p| p.0);
            let text = head.to_owned() + section(MATMUL, "tiled") + section(PRODUCTS, "kept_one");
            ("tiled", fill(&text, &[("ACC", "f32"), ("emit0", "keep")]))
        }
    };
    let entries = vec![Entry::Free(input), plan.entry()];
    Ok(Body { code: own + &text, entries, shared: shared as u32, scratch: true, ..Body::default() })
}

fn launch(cx: &Cx<'_>, plan: &Plan) -> Result<Vec<Launch>, BackendError> {
    let op = cx.op()?;
    let a = op.attrs();
    let (x, r) = (cx.shape(0)?, cx.shape(2)?);
    let first = a.int("layout").map_err(op_error)? == 1;
    let (steps, batch) = if first { (x[1], x[0]) } else { (x[0], x[1]) };
    let (dirs, hidden) = (r[0], r[2]);
    let narrow = cx.inputs.first().copied().flatten().is_some_and(|f| f.ty.dtype != DType::F32);
    let backward = a.str("direction").map_err(op_error)? == "reverse";
    let columns = columns(plan, dirs, batch, most_columns(units(hidden, plan.cluster), narrow));
    let (rows, cols) = (steps * batch, dirs * gates(op.name()) * hidden);
    let mut w = words([rows, cols, x[2], x[2], 1, 1, x[2], 0])?;
    w.extend(words([steps, dirs, batch, usize::from(first), usize::from(backward)])?);
    w.push((a.float("clip").map_err(op_error)? as f32).to_bits());
    w.extend(words([columns])?);
    // Results of the product are found by 32 bits.
    words([rows.saturating_mul(cols), rows.saturating_mul(x[2])])?;
    let (m, n) = if narrow { (plan.tile.m, plan.tile.n) } else { (SIDE, SIDE) };
    let tiles = rows.div_ceil(m) * cols.div_ceil(n);
    let clusters = dirs * batch.div_ceil(columns);
    let counters = if plan.grid { clusters.next_multiple_of(COUNTERS) } else { 0 };
    let states = plan.states(hidden, gates(op.name()), narrow) * 2 * clusters;
    let at = (rows * cols).next_multiple_of(COUNTERS);
    w.extend(words([at, counters])?);
    let scratch = ((at + counters) * 4 + states) as u64;
    let mut all =
        vec![Launch::map(0, [w.clone(), vec![0]].concat()).on(Grid::Groups(tiles as u64)).scratch(scratch)];
    let of_launch = if plan.grid { plan.at_once() } else { clusters.max(1) };
    for first in (0..clusters).step_by(of_launch) {
        let blocks = of_launch.min(clusters - first) * plan.cluster;
        let w = [w.clone(), words([first])?].concat();
        all.push(Launch::map(1, w).on(Grid::Groups(blocks as u64)).scratch(scratch));
    }
    Ok(all)
}
