//! Results whose innermost dimension is not that of the input, by tiles of two dimensions: squares, rectangles where one dimension
//! is short, or all of a small dimension beside a part of a large one.

use super::divisor::{Divisor, Divisors, placed};

use kiln_backend::BackendError;
use kiln_codegen::shape::Walk;
use kiln_codegen::{Grid, Launch};

/// Threads of a block.
pub const THREADS: u32 = 256;
/// The entry points of blocks, in order.
pub const ENTRIES: [&str; 4] = ["tiles", "tiles_of_8", "few_last", "few_first"];
/// The entry points of threads behind them, which have 2, 3 or 4 elements of a place.
pub const WEAVES: [&str; 6] = ["weave_2", "weave_3", "weave_4", "part_2", "part_3", "part_4"];
/// Position of the first of them among those of a kernel.
const FIRST: usize = 3;
/// Elements of a square tile's side.
const SIDE: usize = 64;
/// Dimensions up to this size are the short side of a tile of as many elements.
const SHORT: usize = 32;
/// Smaller dimensions are worth a tile only where no other form takes them.
const LEAST_SIDE: usize = 16;
/// Smaller dimensions are not worth a tile.
const LEAST_SHORT: usize = 8;
/// Bytes of a large dimension that a block has beside a small one.
const FEW_BYTES: usize = 2048;
/// Dimensions beside those of a tile at most.
const MOST: usize = 5;
/// Elements of a place that threads have in registers.
const WOVEN: std::ops::RangeInclusive<usize> = 2..=4;
/// Large dimensions that are worth blocks.
const LEAST_LARGE: usize = 64;

kiln_codegen::params! {
    /// Tiles of two dimensions: p is dense in x, q in the result. Arrays have the other dimensions, the innermost first.
    struct TransposeTilesParams {
        /// Position of the first element in x.
        offset: u32,
        /// Size of p.
        size_p: u32,
        /// Size of q.
        size_q: u32,
        /// Stride of q in x; negative strides are wrapped to 32 bits.
        stride_q: u32,
        /// Stride of p in the result.
        own_stride_p: u32,
        /// Tiles along p.
        tiles_p: u32,
        /// Tiles along q.
        tiles_q: u32,
        /// Binary logarithm of a tile's side along p, where tiles have one.
        bits_p: u32,
        /// Whether vectors lie at multiples of 8 elements: in x 1, in the result 2.
        even: u32,
        /// Elements of q from one stride of its outer part to the next: q is one dimension where that is all of it.
        inner: u32,
        /// Factor of divisions by it.
        inner_factor: u32,
        /// Shift of divisions by it.
        inner_shift: u32,
        /// Stride of the outer part of q in x.
        stride_outer: u32,
        /// Number of other dimensions.
        rank: u32,
        /// Sizes of the other dimensions.
        sizes: [u32; 5],
        /// Factors of divisions by them.
        factors: [u32; 5],
        /// Shifts of divisions by them.
        shifts: [u32; 5],
        /// Their strides in x.
        strides: [u32; 5],
        /// Their strides in the result.
        own_strides: [u32; 5],
    }
}

/// A way to move elements by tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Tiles of both dimensions, square unless one of them is short.
    Squares,
    /// Tiles where the last two dimensions of the result are one side: they lie apart in x, and the last one is small.
    Pairs,
    /// The last dimension of the result is small, and the one that is dense in x is next to it.
    FewLast,
    /// The dimension that is dense in x is small, and the last one of the result is next to it in x.
    FewFirst,
}

/// The dimension that is dense in x and the last one, if they differ and are worth tiles.
fn sides(walk: &Walk) -> Option<(usize, usize, Form)> {
    let q = walk.dims.len().checked_sub(1)?;
    let p = walk.strides.iter().position(|&s| s == 1).filter(|p| *p != q)?;
    let (size_p, size_q) = (walk.dims[p], walk.dims[q]);
    let large =
        |few: usize, n: usize| few < LEAST_SIDE && (n >= LEAST_LARGE || (WOVEN.contains(&few) && n >= 8));
    let pair = q.checked_sub(1).filter(|&d| d != p).map_or(0, |d| walk.dims[d] * size_q);
    let form = if size_p.min(size_q) >= LEAST_SIDE {
        Form::Squares
    } else if size_p >= LEAST_SIDE && size_q > 1 && size_q < LEAST_SIDE && pair >= LEAST_SIDE {
        Form::Pairs
    } else if large(size_q, size_p) && p + 1 == q {
        Form::FewLast
    } else if large(size_p, size_q) && walk.strides[q] as usize == size_p {
        Form::FewFirst
    } else if size_p.min(size_q) >= LEAST_SHORT {
        Form::Squares
    } else {
        return None;
    };
    Some((p, q, form))
}

/// Launches blocks of tiles of elements of `bytes` bytes; `None` where dimensions are too small for them.
pub fn launch(walk: &Walk, bytes: usize) -> Result<Option<Launch>, BackendError> {
    let Some((p, q, form)) = sides(walk) else { return Ok(None) };
    let Walk { offset, dims, strides } = walk;
    let paired = usize::from(form == Form::Pairs);
    if dims.len() > MOST + 1 + paired {
        return Ok(None);
    }
    let own = kiln_ops::util::strides(dims);
    let outer = q.checked_sub(paired).filter(|d| *d < q);
    let size_q = dims[q] * outer.map_or(1, |d| dims[d]);
    let stride_outer = outer.map_or(0, |d| strides[d] as usize);
    let (few, large, few_strides) = match form {
        Form::FewLast => (dims[q], p, [8, 8 * dims[q]]),
        _ => (dims[p], q, [8 * dims[p], 8]),
    };
    let places = FEW_BYTES / bytes.max(4);
    let side = match form {
        Form::Squares | Form::Pairs if dims[p] <= SHORT => [SHORT, SIDE * SIDE / SHORT],
        Form::Squares | Form::Pairs if size_q <= SHORT => [SIDE * SIDE / SHORT, SHORT],
        Form::Squares | Form::Pairs => [SIDE, SIDE],
        Form::FewLast => [places, dims[q]],
        Form::FewFirst => [dims[p], places],
    };
    let tiles = [dims[p].div_ceil(side[0]), size_q.div_ceil(side[1])];
    let rest: Vec<usize> =
        (0..dims.len()).rev().filter(|d| *d != p && *d != q && Some(*d) != outer).collect();
    let groups = tiles[0] * tiles[1] * rest.iter().map(|&d| dims[d]).product::<usize>();
    let mut rest_strides: Vec<usize> = rest.iter().map(|&d| strides[d] as usize).collect();
    let mut own_strides: Vec<usize> = rest.iter().map(|&d| own[d]).collect();
    let whole = |all: &[usize]| all.iter().all(|n| n.is_multiple_of(8));
    let (reads, writes) = match form {
        Form::Squares | Form::Pairs => ([dims[p], strides[q] as usize, stride_outer], [size_q, own[p]]),
        Form::FewLast => ([dims[p], strides[q] as usize, 0], [0; 2]),
        Form::FewFirst => ([dims[q], 0, 0], [dims[q], own[p]]),
    };
    let reads = offset.is_multiple_of(8) && whole(&reads) && whole(&rest_strides);
    let writes = whole(&writes) && whole(&own_strides);
    let even = reads && writes;
    let square = matches!(form, Form::Squares | Form::Pairs);
    let woven = even && !square && WOVEN.contains(&few);
    let mut rest_dims: Vec<usize> = rest.iter().map(|&d| dims[d]).collect();
    if woven {
        rest_dims.insert(0, dims[large] / 8);
        rest_strides.insert(0, few_strides[0]);
        own_strides.insert(0, few_strides[1]);
    } else if !square && dims[large] < LEAST_LARGE {
        return Ok(None);
    }
    let rank = rest_dims.len();
    let threads = rest_dims.iter().product::<usize>();
    let Divisors { sizes, factors, shifts } = Divisors::new(rest_dims, groups.max(threads))?;
    let inner = Divisor::new(dims[q], size_q)?;
    let params = TransposeTilesParams {
        offset: *offset as usize,
        size_p: dims[p],
        size_q,
        stride_q: strides[q] as usize,
        own_stride_p: own[p],
        tiles_p: tiles[0],
        tiles_q: tiles[1],
        bits_p: side[0].ilog2() as usize,
        even: usize::from(reads) + 2 * usize::from(writes),
        inner: inner.size,
        inner_factor: inner.factor,
        inner_shift: inner.shift,
        stride_outer,
        rank,
        sizes: placed(&sizes),
        factors: placed(&factors),
        shifts: placed(&shifts),
        strides: placed(&rest_strides),
        own_strides: placed(&own_strides),
    };
    if woven {
        let entry = few - WOVEN.start() + if form == Form::FewLast { 0 } else { 3 };
        let launch = Launch::map(FIRST + ENTRIES.len() + entry, params.words()?);
        return Ok(Some(launch.on(Grid::Threads(threads as u64))));
    }
    let entry = match form {
        Form::Squares | Form::Pairs => usize::from(even),
        Form::FewLast => 2,
        Form::FewFirst => 3,
    };
    Ok(Some(Launch::map(FIRST + entry, params.words()?).on(Grid::Groups(groups as u64))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_of_large_dimensions() {
        let walk =
            |dims: &[usize], strides: &[u32]| Walk { offset: 0, dims: dims.into(), strides: strides.into() };
        assert_eq!(sides(&walk(&[40, 30], &[1, 40])), Some((0, 1, Form::Squares)));
        assert_eq!(sides(&walk(&[40, 5], &[1, 40])), None);
        assert_eq!(sides(&walk(&[2, 64, 3], &[192, 1, 64])), Some((1, 2, Form::FewLast)));
        assert_eq!(sides(&walk(&[2, 3, 64], &[192, 1, 3])), Some((1, 2, Form::FewFirst)));
        assert_eq!(sides(&walk(&[3, 2, 64], &[1, 192, 6])), None);
        assert_eq!(sides(&walk(&[40, 30], &[30, 1])), None);
        assert_eq!(sides(&walk(&[9, 12, 80], &[1, 720, 9])), Some((0, 2, Form::FewFirst)));
        assert_eq!(sides(&walk(&[9, 40, 12], &[1, 108, 9])), Some((0, 2, Form::Squares)));
        // The interleaved phases of an image with channels last.
        assert_eq!(sides(&walk(&[64, 33, 2], &[1, 256, 64])), Some((0, 2, Form::Pairs)));
        assert_eq!(sides(&walk(&[64, 3, 2], &[1, 256, 64])), None);
    }
}
