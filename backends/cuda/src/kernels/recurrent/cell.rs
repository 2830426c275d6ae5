//! Parameters and constants that the kernels of all recurrences with weights on the chip have: see `kernels/recurrent/units.cuh`.

use super::plan::{ALONG, SIDE, directions, gates, narrow, reset_first};
use crate::dialect::CUDA;
use crate::kernels::mma::{Kind, Tile};
use kiln_backend::BackendError;
use kiln_codegen::recurrent::activation;
use kiln_codegen::site::{Cx, Site, op_error};
use kiln_codegen::{Entry, Grid, Launch};
use kiln_ir::DType;
use kiln_ops::recurrent::{GRU, LSTM, activations};
use std::fmt::Write;

kiln_codegen::params! {
    /// A recurrence, and the product of its inputs with their weights.
    pub struct RecurrentChipParams {
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

/// The function that chooses an activation by its number, and the count of numbers that a direction has of its own: none where both
/// directions have the same activations.
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

/// Constants of a site, whatever its plan.
pub fn constants(site: &Site<'_>, grid: bool) -> Result<String, BackendError> {
    let (op, narrow, reset_first) = (site.op()?, narrow(site)?, reset_first(site.op()?)?);
    let has = |i: usize| site.dtype(i).is_some();
    let input_forget = op.is(LSTM) && op.attrs().bool("input_forget").map_err(op_error)?;
    let clips = op.attrs().float("clip").map_err(op_error)? > 0.0;
    let mut code = chosen(site, narrow)?;
    for (name, yes) in [
        ("GRID", grid),
        ("NARROW", narrow),
        ("BF16", site.dtype(0) == Some(DType::BF16)),
        ("LSTM", op.is(LSTM)),
        ("GRU", op.is(GRU)),
        ("RESET_FIRST", reset_first),
        ("INPUT_FORGET", input_forget),
        ("CLIP", clips),
        ("BIAS", has(3)),
        ("LENGTHS", has(4)),
        ("STATE", has(5)),
        ("CELL", has(6)),
        ("PEEPHOLES", has(7)),
    ] {
        code += &site.constant(name, "bool", yes);
    }
    Ok(code)
}

/// The product of the inputs: its file, entry point, constants, and bytes of shared memory.
pub fn inputs(site: &Site<'_>, tile: &Tile) -> Result<(&'static str, Entry, String, usize), BackendError> {
    if !narrow(site)? {
        return Ok(("recurrent/inputs_f32", Entry::blocks("inputs_f32", THREADS), String::new(), 0));
    }
    let kind = Kind::of_types(site)?;
    let entry = Entry::blocks("inputs_mma", tile.threads() as u32);
    Ok(("recurrent/inputs", entry, tile.constants(kind, ALONG), tile.shared(kind, ALONG)))
}

/// A recurrence at launch.
pub struct Sizes {
    /// Parameters of all launches, of one sequence at a time.
    pub params: RecurrentChipParams,
    pub dirs: usize,
    pub batch: usize,
    pub hidden: usize,
    pub gates: usize,
    /// Whether the products go by tensor cores.
    pub narrow: bool,
    /// Numbers that the product of the inputs leaves in scratch memory.
    pub products: usize,
    /// Tiles of that product.
    tiles: usize,
}

impl Sizes {
    /// The sizes, with tiles of this shape where tensor cores make the product.
    pub fn of(cx: &Cx<'_>, tile: &Tile) -> Result<Sizes, BackendError> {
        let op = cx.op()?;
        let a = op.attrs();
        let (x, r) = (cx.shape(0)?, cx.shape(2)?);
        let first = a.int("layout").map_err(op_error)? == 1;
        let (steps, batch) = if first { (x[1], x[0]) } else { (x[0], x[1]) };
        let (dirs, hidden, gates) = (r[0], r[2], gates(op.name()));
        let narrow = cx.inputs.first().copied().flatten().is_some_and(|f| f.ty.dtype != DType::F32);
        let backward = a.str("direction").map_err(op_error)? == "reverse";
        let (rows, columns) = (steps * batch, dirs * gates * hidden);
        // Results of the product are found by 32 bits.
        kiln_codegen::words([rows.saturating_mul(columns), rows.saturating_mul(x[2])])?;
        let (m, n) = if narrow { (tile.m, tile.n) } else { (SIDE, SIDE) };
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
            sequences: 1,
            counters_at: 0,
            counters: 0,
            first_cluster: 0,
        };
        let tiles = rows.div_ceil(m) * columns.div_ceil(n);
        Ok(Sizes { params, dirs, batch, hidden, gates, narrow, products: rows * columns, tiles })
    }

    /// The launch of the product, which with all that follow has so many bytes of scratch memory.
    pub fn product(&self, scratch: u64) -> Result<Launch, BackendError> {
        let launch = Launch::map(0, self.params.words()?);
        Ok(launch.on(Grid::Groups(self.tiles as u64)).scratch(scratch))
    }
}
