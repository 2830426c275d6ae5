//! Estimated times of products of matrices. Only for the order of tactics, and for not timing hopeless ones.

use kiln_codegen::site::Site;
use kiln_ops::conv::CONV;
use kiln_ops::layout::Layout;
use kiln_ops::matmul::codes::MATMUL_CODES;

/// A product of matrices, several at once.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Rows and columns of a result.
    pub rows: usize,
    pub cols: usize,
    /// Number of results.
    pub batch: usize,
    /// Products of a result's element.
    pub depth: usize,
}

/// Nanoseconds before anything is computed.
const START_NS: f64 = 1000.0;

/// Times of a product and of an operand's load on a whole device, in nanoseconds. llvmpipe runs threads as
/// lanes of vectors, and loads them one by one.
fn rates(software: bool) -> (f64, f64) {
    if software { (0.15, 6.0) } else { (0.001, 0.004) }
}

/// Threads below which a device has less to do than it could.
fn busy(software: bool) -> usize {
    if software { 128 } else { 4096 }
}

/// Tiles below which a device has less to do than it could.
pub const BUSY_TILES: usize = 128;

impl Work {
    /// The products of the region's anchor, a convolution or product of matrices of known shapes.
    pub fn of(site: &Site<'_>) -> Option<Work> {
        let (_, node) = site.anchor?;
        let dims = |v| site.graph.ty(v).static_dims();
        let (a, b) = (dims(site.input(0)?)?, dims(site.input(1)?)?);
        let out = dims(*node.outputs.first()?)?;
        let attrs = node.op.attrs();
        if node.op.is(CONV) {
            let groups = usize::try_from(attrs.int("groups").ok()?).ok()?.max(1);
            let cols = Layout::of(attrs).spatial(&out).iter().product();
            let rows = b.first()? / groups;
            let depth = b.iter().skip(1).product();
            return Some(Work { rows, cols, batch: out.first()? * groups, depth });
        }
        if node.op.is(MATMUL_CODES) {
            let [cols, depth] = b[..] else { return None };
            let rows = a.split_last()?.1.iter().product();
            return Some(Work { rows, cols, batch: 1, depth });
        }
        let transposed = a.len() > 1 && attrs.bool("trans_a").ok()?;
        let depth = *a.iter().rev().nth(usize::from(transposed))?;
        let own = |operand: &[usize], from_end: usize| match operand.len() {
            0 | 1 => Some(1),
            _ => out.iter().rev().nth(from_end).copied(),
        };
        let cols = own(&b, 0)?;
        let rows = own(&a, usize::from(b.len() > 1))?;
        let all: usize = out.iter().product();
        Some(Work { rows, cols, batch: all.checked_div(rows * cols)?, depth })
    }

    /// Products, those of results that are none too, in blocks of these sizes.
    fn padded(&self, m: usize, n: usize) -> f64 {
        let whole = |size: usize, of: usize| (size.div_ceil(of) * of) as f64;
        whole(self.rows, m) * whole(self.cols, n) * self.batch as f64 * self.depth as f64
    }

    /// Factor of the time because few threads have work.
    fn idle(&self, software: bool, m: usize, n: usize) -> f64 {
        let threads = self.rows.div_ceil(m) * self.cols.div_ceil(n) * self.batch;
        (busy(software) as f64 / threads.max(1) as f64).clamp(1.0, if software { 2.0 } else { 1e3 })
    }

    /// Blocks of registers, their operands in global memory.
    pub fn block_ns(&self, software: bool, m: usize, n: usize) -> f64 {
        let (product, load) = rates(software);
        let loads = 1.0 / m as f64 + 1.0 / n as f64;
        START_NS + self.padded(m, n) * (product + load * loads) * self.idle(software, m, n)
    }

    /// Tiles of workgroup memory with blocks of `tm` and `tn` for each thread. A software device has no such memory, and
    /// switches threads at barriers.
    pub fn tile_ns(&self, software: bool, (m, n): (usize, usize), (tm, tn): (usize, usize)) -> f64 {
        let (product, load) = rates(software);
        let loads = (1.0 / tm as f64 + 1.0 / tn as f64) * if software { 4.0 } else { 0.25 };
        let (across, down) = (m / tm.max(1), n / tn.max(1));
        let groups = self.rows.div_ceil(m) * self.cols.div_ceil(n) * self.batch;
        let threads = groups * across * down;
        let idle = (busy(software) as f64 / threads.max(1) as f64).max(1.0);
        START_NS + self.padded(m, n) * (product + load * loads) * idle
    }

    /// Tiles of cooperative matrices. Software has no instructions for them.
    pub fn cooperative_ns(&self, software: bool, (m, n): (usize, usize)) -> f64 {
        let (product, _) = rates(software);
        let groups = self.rows.div_ceil(m) * self.cols.div_ceil(n) * self.batch;
        let idle = (BUSY_TILES as f64 / groups.max(1) as f64).max(1.0);
        START_NS + self.padded(m, n) * product * if software { 4.0 } else { 0.02 * idle }
    }

    /// Few rows: each element of the other operand is loaded once.
    pub fn rows_ns(&self, software: bool) -> f64 {
        let (product, load) = rates(software);
        let loaded = self.cols as f64 * self.batch as f64 * self.depth as f64;
        2.0 * START_NS + loaded * (product * self.rows as f64 * 0.5 + load * if software { 1.0 } else { 0.1 })
    }

    /// Threads of four neighbours, which share half of what they load.
    pub fn shared_ns(&self, software: bool) -> f64 {
        let (product, load) = rates(software);
        START_NS + self.padded(1, 1) * (product + load * 0.5) * self.idle(software, 1, 8)
    }

    /// One thread an element, which finds where its operands lie each time.
    pub fn direct_ns(&self, software: bool) -> f64 {
        let (product, load) = rates(software);
        START_NS + self.padded(1, 1) * (product + load * 3.0) * self.idle(software, 1, 1)
    }
}
