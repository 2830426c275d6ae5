//! Estimated times of products, from the target's numbers: they decide which candidates are worth timing.
//! Kernels estimate their tiles themselves.

use kiln_backend::Target;
use kiln_codegen::site::Site;
use kiln_ir::{Node, TensorType};
use kiln_ops::conv::CONV;
use kiln_ops::matmul::MATMUL;
use kiln_ops::matmul::codes::MATMUL_CODES;
use kiln_ops::matmul::gated::GATED_MATMUL;
use kiln_ops::matmul::normed::NORM_MATMUL;
use kiln_ops::matmul::sparse::MATMUL_SPARSE;

/// A matrix product, or a convolution as one.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// Rows, columns, depth, and how many of them (batch, groups).
    pub size: [f64; 4],
    /// Bytes of operands and result.
    pub bytes: f64,
    /// Whether the rows of each operand are known not to be whole vectors of 16 bytes.
    pub uneven: [bool; 2],
}

/// Nanoseconds that a kernel takes if it does nothing.
pub const LAUNCH_NS: f64 = 2000.0;
/// Nanoseconds of a block before its first and after its last product.
pub const BLOCK_NS: f64 = 1500.0;
/// Bandwidth of the L2 as a multiple of the memory's.
const L2_SPEED: f64 = 1.5;

/// The numbers of a device that estimates take, each at least 1.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// Multiprocessors.
    pub sm_count: f64,
    /// Clocks in a nanosecond.
    pub ghz: f64,
    /// Bandwidth of memory, in bytes a nanosecond.
    pub bandwidth: f64,
}

impl Device {
    /// The numbers of a target, middling ones where it has none.
    pub fn of(target: &Target) -> Device {
        let number =
            |name: &str, default: f64| target.numbers.get(name).map_or(default, |&n| n as f64).max(1.0);
        Device {
            sm_count: number("sm_count", 50.0),
            ghz: number("clock_mhz", 1500.0) / 1000.0,
            bandwidth: number("bandwidth_gbs", 500.0),
        }
    }
}

fn volume(t: &TensorType) -> Option<f64> {
    t.static_volume().map(|n| n as f64)
}

/// The share of an image that windows read: strides may be larger than they are. Weights lie as [outputs, taps.., channels].
fn read(node: &Node, weights: &TensorType) -> f64 {
    if !node.op.is(CONV) {
        return 1.0;
    }
    let strides = node.op.attrs().ints("strides").unwrap_or_default();
    let taps = weights.dims.iter().skip(1).map(|d| d.as_const().unwrap_or(1));
    strides.iter().zip(taps).map(|(&s, taps)| (taps as f64 / s.max(1) as f64).min(1.0)).product()
}

impl Product {
    /// The product that a site's anchor computes, if all sizes are known.
    pub fn of(site: &Site<'_>) -> Option<Product> {
        let (_, node) = site.anchor?;
        let ty = |i: usize| Some(site.graph.ty((*node.inputs.get(i)?)?));
        let (a, b, y) = (ty(0)?, ty(1)?, site.graph.ty(*node.outputs.first()?));
        let (outs, weights) = (volume(y)?, volume(b)?);
        let (n, k, count) = match node.op.id() {
            CONV => {
                let channels = b.dims.first()?.as_const()? as f64;
                let groups = node.op.attrs().int("groups").ok()?.max(1) as f64;
                (channels / groups, weights / channels.max(1.0), groups)
            }
            MATMUL | NORM_MATMUL | GATED_MATMUL => {
                let trans = node.op.attrs().bool("trans_b").ok()?;
                let dim = |from_end: usize| b.dims.iter().rev().nth(from_end).and_then(|d| d.as_const());
                let (k, n) = match (b.rank(), trans) {
                    (0 | 1, _) => (dim(0)?, 1),
                    (_, true) => (dim(0)?, dim(1)?),
                    (_, false) => (dim(1)?, dim(0)?),
                };
                (n as f64, k as f64, (weights / (n as f64 * k as f64).max(1.0)).max(1.0))
            }
            MATMUL_CODES => (b.dims.first()?.as_const()? as f64, b.dims.last()?.as_const()? as f64, 1.0),
            MATMUL_SPARSE => {
                let columns = b.dims.first()?.as_const()? as f64;
                (columns, a.dims.last()?.as_const()? as f64, 1.0)
            }
            _ => return None,
        };
        let bytes = |t: &TensorType| Some(volume(t)? * f64::from(t.dtype.bits()) / 8.0);
        // A result of a gated product has two sums.
        let sums = if node.op.is(GATED_MATMUL) { 2.0 } else { 1.0 };
        let m = sums * outs / (n * count).max(1.0);
        let uneven = [a, b].map(|t| {
            let row = t.dims.last().and_then(|d| d.as_const());
            row.is_some_and(|n| n.unsigned_abs() * u64::from(t.dtype.bits()) % 128 != 0)
        });
        let bytes = bytes(a)? * read(node, b) + bytes(b)? + bytes(y)?;
        Some(Product { size: [m, n, k, count], bytes, uneven: uneven.map(|u| u && node.op.is(MATMUL)) })
    }

    /// Number of its tiles of so many rows and columns.
    pub fn tiles(&self, rows: usize, cols: usize) -> f64 {
        let [m, n, _, count] = self.size;
        (m / rows as f64).ceil() * (n / cols as f64).ceil() * count
    }

    /// By a generic kernel that makes tiles of 64 x 64, or one element a thread.
    pub fn by_generic(&self, target: &Target, tiled: bool) -> f64 {
        let [m, n, k, count] = self.size;
        // Products of f32: 256 a clock, of which loads and index arithmetic leave some.
        let (side, rate) = if tiled { (64.0, 80.0) } else { (16.0, 10.0) };
        let tiles = (m / side).ceil() * (n / side).ceil() * count;
        self.by_blocks(target, tiles, 2.0 * side * side * k / rate, 0.0, 0.0)
    }

    /// The nanoseconds of blocks of `each` clocks, not faster than memory and L2 give their bytes.
    pub fn by_blocks(&self, target: &Target, blocks: f64, each: f64, traffic: f64, more: f64) -> f64 {
        let device = Device::of(target);
        let waves = (blocks / device.sm_count).ceil();
        let memory = (self.bytes + more) / device.bandwidth;
        let busy = waves * each / device.ghz + BLOCK_NS;
        LAUNCH_NS + busy.max(memory).max(traffic / (device.bandwidth * L2_SPEED))
    }
}
