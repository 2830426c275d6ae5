//! Long lines sorted by the digits of their keys, from the lowest one on.

use super::keyed::{check, keyed, sizes, slot_bytes};
use crate::kernels::alone;
use crate::kernels::shape::{moving, traffic};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch};
use kiln_ir::DType;

/// The kernels.
pub const KERNELS: &[Kernel] = &[alone("topk.radix", &["topk"], tactics, |site, _| source(site), launch)];

kiln_codegen::params! {
    /// The first elements of lines, sorted by digits.
    struct TopkRadixParams {
        /// Elements of a line.
        count: u32,
        /// Elements from one element of a line to the next.
        inner: u32,
        /// Elements of a line of the result.
        kept: u32,
        /// Number of lines.
        rows: u32,
        /// Tiles of a line.
        tiles: u32,
        /// Parts of a line's tiles whose counts are summed beside each other, a power of two.
        parts: u32,
        /// Bits of a key below the digit.
        shift: u32,
        /// The buffer that has the slots.
        odd: u32,
        /// Whether the digit is the first one, whose keys are those of the tensor.
        first: u32,
        /// Whether the digit is the last one, after which results are stored.
        last: u32,
    }
}

/// Values of a digit, and threads of a block.
const RADIX: usize = 256;
/// Bytes of the slots of a tile.
const ROOM: usize = 32 << 10;
/// Elements of a line that a block sorts faster.
const SHORT: usize = 8192;

/// Number of digits of a key.
fn digits(t: DType) -> usize {
    t.bits() as usize / 8
}

/// Tiles of a line of `count` elements.
fn tiles(t: DType, count: usize) -> usize {
    count.div_ceil(ROOM / slot_bytes(t))
}

/// Parts of a line's tiles, of several tiles each.
fn parts(tiles: usize) -> usize {
    1 << (tiles / 8).clamp(1, 32).ilog2()
}

/// Bytes of counts, and of as many buffers of slots as there are digits between others, two at most.
fn scratch(t: DType, rows: usize, count: usize) -> u64 {
    let counts = rows * (tiles(t, count) + 1) * RADIX * 4;
    let buffers = (digits(t) - 1).min(2);
    (counts + buffers * rows * count * slot_bytes(t)) as u64
}

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    check(site)?;
    let known = sizes(site);
    if let Some(count) = known.as_ref().map(|s| s.count).filter(|n| *n <= SHORT) {
        return unsupported(format!("a radix sort of lines of {count} elements, which a block sorts"));
    }
    let t = site.first_dtype();
    let digits = digits(t) as f64;
    let estimate_ns = known.zip(traffic(site)).map(|(s, bytes)| {
        // Each digit but the last stores the slots, and the next one reads them twice. A digit has three launches.
        let slots = (s.rows * s.count * slot_bytes(t)) as f64;
        moving(site.target, bytes + (digits - 1.0) * 3.0 * slots, 1.2) + digits * 7500.0
    });
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain("topk.radix") }])
}

const COUNT: usize = 0;
const SCAN: usize = 1;
const MOVE: usize = 2;

fn source(site: &Site<'_>) -> Result<Body, BackendError> {
    let block = |name| Entry::blocks(name, RADIX as u32);
    let entries = vec![block("radix_count").silent(), block("radix_scan").silent(), block("radix_move")];
    keyed(site, Body::of("sort/topk_radix", entries))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, out) = (cx.shape(0)?, cx.out_shape(0)?);
    let axis = cx.axis(x.len())?;
    let (count, kept) = (x[axis], out[axis]);
    let inner = x[axis + 1..].iter().product();
    let rows = x[..axis].iter().product::<usize>() * inner;
    if rows == 0 || kept == 0 {
        return Ok(Vec::new());
    }
    let t = cx.inputs.first().copied().flatten().map_or(DType::I64, |f| f.ty.dtype);
    let (tiles, digits, bytes) = (tiles(t, count), digits(t), scratch(t, rows, count));
    let parts = parts(tiles);
    let blocks = Grid::Groups((rows * tiles) as u64);
    let mut all = Vec::with_capacity(digits * 3);
    for digit in 0..digits {
        let (first, last) = (usize::from(digit == 0), usize::from(digit + 1 == digits));
        let (shift, odd) = (digit * 8, 1 - digit % 2);
        let p = TopkRadixParams { count, inner, kept, rows, tiles, parts, shift, odd, first, last };
        let words = p.words()?;
        all.push(Launch::map(COUNT, words.clone()).on(blocks));
        all.push(Launch::map(SCAN, words.clone()).on(Grid::Groups((rows * parts) as u64)));
        all.push(Launch::map(MOVE, words).on(blocks));
    }
    Ok(all.into_iter().map(|l| l.scratch(bytes)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_divide_the_values_of_a_digit() {
        for tiles in [1, 3, 8, 15, 16, 100, 255, 256, 708, 100_000] {
            let parts = parts(tiles);
            assert!(parts <= tiles && RADIX.is_multiple_of(parts) && parts <= 32, "{tiles}: {parts}");
        }
    }

    #[test]
    fn memory_is_that_of_the_buffers_which_the_digits_need() {
        let counts = |tiles: u64| 3 * (tiles + 1) * 1024;
        assert_eq!(scratch(DType::U8, 3, 4096), counts(1));
        assert_eq!(scratch(DType::F16, 3, 4097), counts(2) + 3 * 4097 * 8);
        assert_eq!(scratch(DType::F32, 3, 4097), counts(2) + 3 * 4097 * 16);
        assert_eq!(scratch(DType::I64, 3, 4097), counts(3) + 3 * 4097 * 32);
    }
}
