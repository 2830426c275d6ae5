//! Results whose innermost dimension is not that of the input, by tiles of two dimensions.

use super::divisor::Divisors;
use kiln_backend::BackendError;
use kiln_codegen::shape::Walk;
use kiln_codegen::{Grid, Launch};

/// Threads of a block.
pub const THREADS: u32 = 256;
/// The entry point of tiles among those of a kernel.
const ENTRY: usize = 2;
/// Elements of a tile's side.
const SIDE: usize = 64;
/// Smaller dimensions are not worth a tile.
const LEAST_SIDE: usize = 16;

kiln_codegen::params! {
    /// Tiles of two dimensions: p is dense in x, q in the result. Lists have the other dimensions, the innermost first.
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
        /// Sizes of the other dimensions.
        sizes: [u32],
        /// Factors of divisions by them.
        factors: [u32],
        /// Shifts of divisions by them.
        shifts: [u32],
        /// Their strides in x.
        strides: [u32],
        /// Their strides in the result.
        own_strides: [u32],
    }
}

/// The dimension that is dense in x and the last one, if they differ and are large.
pub fn sides(walk: &Walk) -> Option<(usize, usize)> {
    let q = walk.dims.len().checked_sub(1)?;
    let p = walk.strides.iter().position(|&s| s == 1)?;
    let large = |d: usize| walk.dims.get(d).is_some_and(|&n| n >= LEAST_SIDE);
    (p != q && large(p) && large(q)).then_some((p, q))
}

/// Launches blocks of the tiles of dimensions `p` and `q`.
pub fn launch(walk: &Walk, p: usize, q: usize) -> Result<Vec<Launch>, BackendError> {
    let Walk { offset, dims, strides } = walk;
    let own = kiln_ops::util::strides(dims);
    let tiles = [p, q].map(|d| dims[d].div_ceil(SIDE));
    let rest: Vec<usize> = (0..dims.len()).rev().filter(|d| *d != p && *d != q).collect();
    let groups = tiles[0] * tiles[1] * rest.iter().map(|&d| dims[d]).product::<usize>();
    let Divisors { sizes, factors, shifts } = Divisors::new(rest.iter().map(|&d| dims[d]), usize::MAX)?;
    let params = TransposeTilesParams {
        offset: *offset as usize,
        size_p: dims[p],
        size_q: dims[q],
        stride_q: strides[q] as usize,
        own_stride_p: own[p],
        tiles_p: tiles[0],
        tiles_q: tiles[1],
        sizes,
        factors,
        shifts,
        strides: rest.iter().map(|&d| strides[d] as usize).collect(),
        own_strides: rest.iter().map(|&d| own[d]).collect(),
    };
    Ok(vec![Launch::map(ENTRY, params.words()?).on(Grid::Groups(groups as u64))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_of_large_dimensions() {
        let walk =
            |dims: &[usize], strides: &[u32]| Walk { offset: 0, dims: dims.into(), strides: strides.into() };
        assert_eq!(sides(&walk(&[40, 30], &[1, 40])), Some((0, 1)));
        assert_eq!(sides(&walk(&[40, 3], &[1, 40])), None);
        assert_eq!(sides(&walk(&[40, 30], &[30, 1])), None);
    }
}
