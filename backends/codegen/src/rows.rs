//! Rows of a region's result with their side results: a block computes rows, and reduces each one to an element of a second
//! output.
//!
//! A kernel with [`side_results`](crate::Kernel::side_results) computes the same elements whether there is a
//! [side result](Site::side) or not. Elements are reduced as they are stored, so that both outputs are those of two steps.
//!
//! * Where a launch maps output 0, blocks of `reduce/side` take its place: the threads of a row compute and store its elements,
//!   and reduce them.
//! * A kernel of tiles reduces the rows of a tile, by functions of the same file. Where a row has several tiles, one more
//!   launch joins what they have found.

use crate::reduce::{accumulator, by, functions};
use crate::side::SideParams;
use crate::site::{Cx, Site, op_error, unsupported};
use crate::{Blocks, Body, Entry, Grid, Launch};
use kiln_backend::BackendError;
use kiln_backend::launch::LaunchSite;
use kiln_ir::DType;
use kiln_ops::reduce::ReduceOp;

/// The blocks.
pub const BLOCKS: Blocks = Blocks::of("side_rows", THREADS as u32);

/// The kernel file.
const FILE: &str = "reduce/side";

/// Threads of a block, which the file for WGSL has too.
const THREADS: usize = 128;

/// Elements of a row at most where loops are cut into spans.
const LONGEST: usize = 512 * THREADS;

/// Iterations of an element's loops over dimensions, as a factor of those of its sum.
const AROUND: usize = 2;

/// The functions by which kernel files read [`SideParams`], and other hooks, begin with this.
const PREFIX: &str = "side_";

impl Body {
    /// The body with a block for each row instead of a map of output 0, where there is a side result.
    pub(crate) fn with_side_result(mut self, site: &Site<'_>) -> Result<Body, BackendError> {
        if site.side.is_none() {
            return Ok(self);
        }
        match self.entries.iter_mut().find(|e| e.mapped() == Some(0)) {
            Some(map) => *map = Entry::Rows(map.element()),
            None => {
                self.entries.push(Entry::threads("side_join"));
                self.scratch = true;
            }
        }
        self.files.push(FILE);
        self.code += &hooks(site, &self)?;
        Ok(self)
    }
}

/// The operation of a side result, and the type of sums.
fn sums(site: &Site<'_>) -> Result<Option<(ReduceOp, DType)>, BackendError> {
    let Some((_, node)) = site.side else { return Ok(None) };
    let op = ReduceOp::of(node.op.attrs()).map_err(op_error)?;
    // Compilers lose truth values that a loop carries as booleans.
    Ok(Some(match accumulator(op, site.out_dtype(1), site.target.has("i64")) {
        DType::Bool => (op, DType::I32),
        acc => (op, acc),
    }))
}

/// The types and functions that the kernel file calls.
fn hooks(site: &Site<'_>, body: &Body) -> Result<String, BackendError> {
    let Some((op, acc)) = sums(site)? else { return Ok(String::new()) };
    let t = site.out_dtype(1);
    let mut code = site.alias("SideSum", acc)
        + &site.alias("SideValue", t)
        + &site.constant("SIDE_SHIFTED", "bool", op == ReduceOp::LogSumExp)
        + &functions(site, &by(op, t, acc), t, PREFIX);
    let fields = SideParams::LAYOUT.fields;
    let views = body.framed.first().and_then(|&i| body.view_words(site, i)).unwrap_or(0);
    for (i, field) in fields.iter().enumerate() {
        let word = format!("word({} - {}u)", site.dialect.tail, views as usize + fields.len() - i);
        code += &site.function(&format!("{PREFIX}{}", field.name), &[], "u32", &word);
    }
    Ok(code)
}

/// A tile of a kernel, and how it finds rows.
#[derive(Clone, Copy, Debug)]
pub struct RowTile {
    /// Rows of the tile.
    pub rows: usize,
    /// Columns of the tile.
    pub columns: usize,
    /// Neighbouring columns that one thread stores.
    pub chunk: usize,
}

impl RowTile {
    /// Refuses side results that tiles of a matrix product can't find.
    pub fn check(site: &Site<'_>) -> Result<(), BackendError> {
        match sums(site)? {
            None => Ok(()),
            Some((ReduceOp::LogSumExp, _)) => unsupported("a shifted sum by tiles"),
            Some((_, acc)) if site.cut() && acc.bits() > 32 => unsupported("sums of 64 bits by tiles"),
            // The rows of the result are columns of the product.
            Some(_) if site.rank(1) == Some(1) => unsupported("reductions of a column by tiles"),
            Some(_) => Ok(()),
        }
    }

    /// The constants that the kernel file takes where there is a side result.
    pub fn constants(&self, site: &Site<'_>) -> String {
        if site.side.is_none() {
            return String::new();
        }
        let numbers = [("SIDE_ROWS", self.rows), ("SIDE_COLUMNS", self.columns), ("SIDE_CHUNK", self.chunk)];
        numbers.map(|(name, n)| site.constant(name, "u32", format_args!("{n}u"))).concat()
    }

    /// Bytes of what the threads of a block find, if they are shared by the block.
    pub fn shared(&self) -> usize {
        self.rows * (self.columns / self.chunk + 1) * 8
    }

    /// The launches of a kernel's tiles, and the one of `entry` that joins what the tiles of a row have found.
    pub fn launches(&self, cx: &Cx<'_>, entry: usize, mut tiles: Vec<Launch>) -> Vec<Launch> {
        let Some(side) = &cx.side else { return tiles };
        let parts = side.count.div_ceil(self.columns);
        if let Some(last) = tiles.last().filter(|_| parts != 1).cloned() {
            let join = Launch { entry, maps: Vec::new(), ..last.on(Grid::Threads(side.row_count as u64)) };
            tiles.push(join);
            tiles.iter_mut().for_each(|l| l.scratch += (parts * side.row_count * 8) as u64);
        }
        tiles
    }
}

/// Refuses rows that are known to be too long.
pub(crate) fn check(site: &Site<'_>) -> Result<(), BackendError> {
    let row = site.side.and_then(|_| site.graph.ty(*site.graph.outputs.first()?).dims.last()?.as_const());
    let count = row.and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    check_count(count, site.cut())
}

fn check_count(count: usize, cut: bool) -> Result<(), BackendError> {
    match cut && count > LONGEST {
        true => unsupported(format!("rows of {count} elements with a side result, {LONGEST} are possible")),
        false => Ok(()),
    }
}

impl SideParams {
    /// The rows of a launch; `None` where there is no side result. `cut`: whether loops are cut into spans.
    pub(crate) fn of(site: &LaunchSite<'_>, cut: bool) -> Result<Option<SideParams>, BackendError> {
        let Some(node) = site.side() else { return Ok(None) };
        let result = node.inputs.first().copied().flatten().map(|v| (site.fact)(v));
        let dims = result.and_then(|f| f.ty.static_dims());
        let (count, rows) = match dims.as_deref() {
            Some([rows @ .., count]) => (*count, rows.iter().product()),
            _ => return Err(BackendError::Internal("rows whose sizes are not known at launch".into())),
        };
        check_count(count, cut)?;
        Ok(Some(SideParams { count, row_count: rows, width: count.next_power_of_two().min(THREADS) }))
    }

    /// Iterations of a thread for each iteration of an element's sum.
    pub(crate) fn lanes(&self) -> usize {
        self.count.div_ceil(self.width) * AROUND
    }

    /// Adds the words to a launch, and makes a map of output 0 one over rows.
    pub(crate) fn apply(&self, launch: &mut Launch) -> Result<(), BackendError> {
        launch.words.extend(self.words()?);
        if launch.grid == Grid::Output {
            launch.grid = Grid::Groups(self.row_count.div_ceil(THREADS / self.width) as u64);
        }
        Ok(())
    }
}
