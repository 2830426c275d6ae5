//! Rows of a region's result with their side results: a block computes rows, and reduces each one to an element of a second
//! output.
//!
//! A kernel with [`side_results`](crate::Kernel::side_results) computes the same elements whether there is a
//! [side result](Site::side) or not. What changes is its last launch: blocks of `reduce/side` in the place of a map of output 0.
//! The threads of a row store its elements, and reduce them as they are stored, so that both outputs are those of two steps.

use crate::reduce::{accumulator, by, functions};
use crate::site::{Site, op_error, unsupported};
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

crate::params! {
    /// Rows of a result, in words behind those of the kernel.
    pub struct SideParams {
        /// Elements of a row.
        count: u32,
        /// Number of rows.
        row_count: u32,
        /// Threads of a row, a power of two.
        width: u32,
    }
}

impl Body {
    /// The body with a block for each row instead of a map of output 0, where there is a side result.
    pub(crate) fn with_side_result(mut self, site: &Site<'_>) -> Result<Body, BackendError> {
        if site.side.is_none() {
            return Ok(self);
        }
        let lost = || BackendError::Internal("a side result of a kernel that does not map output 0".into());
        let first = self.entries.first_mut().filter(|e| e.mapped() == Some(0)).ok_or_else(lost)?;
        *first = Entry::Rows(first.element());
        self.files.push(FILE);
        self.code += &hooks(site, &self)?;
        Ok(self)
    }
}

/// The types and functions that the kernel file calls.
fn hooks(site: &Site<'_>, body: &Body) -> Result<String, BackendError> {
    let Some((_, node)) = site.side else { return Ok(String::new()) };
    let op = ReduceOp::of(node.op.attrs()).map_err(op_error)?;
    let t = site.out_dtype(1);
    // Compilers lose truth values that a loop carries as booleans.
    let acc = match accumulator(op, t, site.target.has("i64")) {
        DType::Bool => DType::I32,
        acc => acc,
    };
    let mut code = site.alias("SideSum", acc)
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
