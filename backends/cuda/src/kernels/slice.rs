//! Layers whose elements are found by strides: eight neighbours at a time, or by tiles where another dimension becomes the
//! innermost.

pub mod concat;
pub mod pad;

use super::divisor::{Dims, WIDTH, copied, tactics};
use super::transpose;
use kiln_backend::BackendError;
use kiln_codegen::shape::Walk;
use kiln_codegen::site::{Cx, Site};
use kiln_codegen::{Body, Entry, FAMILIES, Grid, Kernel, Launch, Views};

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel {
    name: "move.vectors",
    ops: &[
        "reshape",
        "squeeze",
        "unsqueeze",
        "transpose",
        "slice",
        "expand",
        "tile",
        "depth_to_space",
        "space_to_depth",
    ],
    epilogue: true,
    views: Views::Whole,
    side_results: false,
    tactics: |site| tactics(site, "move.vectors"),
    source: |site, _| source(site),
    launch,
}];

kiln_codegen::params! {
    /// Vectors of a result whose elements are found by strides; arrays and lists begin with the innermost dimension.
    struct StridedVectorsParams {
        /// Elements of the result.
        total: u32,
        /// Position of the first element in x.
        offset: u32,
        /// Number of dimensions in arrays.
        rank: u32,
        /// Dimensions of the result, the innermost in vectors.
        sizes: [u32; 6],
        /// Factors of divisions by them.
        factors: [u32; 6],
        /// Shifts of divisions by them.
        shifts: [u32; 6],
        /// Strides in x; negative ones are wrapped to 32 bits.
        strides: [u32; 6],
        /// Further dimensions.
        more_sizes: [u32],
        /// Their strides.
        more_strides: [u32],
    }
}

fn source(site: &Site<'_>) -> Result<Body, BackendError> {
    let mut entries: Vec<Entry> = ["walk_8", "walk_1", "walk_lines"].map(Entry::threads).into();
    entries.extend(transpose::ENTRIES.map(|name| Entry::blocks(name, transpose::THREADS)));
    entries.extend(transpose::WEAVES.map(Entry::threads));
    let files = vec!["slice/vectors", "transpose/tiles"];
    Ok(Body { code: copied(site), files, entries, inputs: Some(vec![0]), ..Body::default() })
}

/// Returns how the generic kernel walks; `None` where it launches nothing.
fn walk(cx: &Cx<'_>) -> Result<Option<Walk>, BackendError> {
    let name = cx.op()?.name();
    let generic = FAMILIES.iter().flat_map(|f| f.iter()).find(|k| k.ops.contains(&name));
    let lost = || BackendError::Internal(format!("\"{name}\" does not say how it walks"));
    let Some(launch) = (generic.ok_or_else(lost)?.launch)(cx)?.pop() else { return Ok(None) };
    Walk::of(&launch).map(Some).ok_or_else(lost)
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let Some(walk) = walk(cx)? else { return Ok(Vec::new()) };
    let total: usize = walk.dims.iter().product();
    if total == 0 {
        return Ok(Vec::new());
    }
    if by_eights(&walk) {
        return vectors(&walk, Way::Eights);
    }
    let bytes = cx.outputs.first().map_or(4, |f| f.ty.dtype.bits() as usize / 8);
    match transpose::launch(&walk, bytes)? {
        Some(tiles) => Ok(vec![tiles]),
        None if walk.dims.last().is_some_and(|&n| n >= WIDTH) => vectors(&walk, Way::Lines),
        None => vectors(&walk, Way::Elements),
    }
}

/// Whether runs of eight neighbours of the result are neighbours in x.
fn by_eights(walk: &Walk) -> bool {
    let Some((last, outer)) = walk.strides.split_last() else { return false };
    let whole = |s: &u32| s.is_multiple_of(WIDTH as u32);
    *last == 1
        && walk.dims.last().is_some_and(|n| n.is_multiple_of(WIDTH))
        && outer.iter().all(whole)
        && whole(&walk.offset)
}

/// Work of a thread; the numbers are those of entry points.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Eight neighbours of the result that are neighbours in x.
    Eights = 0,
    /// An element.
    Elements = 1,
    /// Eight neighbours of the result, of two rows at most.
    Lines = 2,
}

fn vectors(walk: &Walk, way: Way) -> Result<Vec<Launch>, BackendError> {
    let width = if way == Way::Eights { WIDTH } else { 1 };
    let all = walk.dims.iter().product::<usize>();
    let total = all / width;
    let threads = if way == Way::Lines { all.div_ceil(WIDTH) } else { total };
    let mut dims = walk.dims.clone();
    let mut strides: Vec<usize> = walk.strides.iter().map(|&s| s as usize).collect();
    if let (Some(n), Some(stride)) = (dims.last_mut(), strides.last_mut()) {
        *n /= width;
        *stride *= width;
    }
    let (dims, strides): (Vec<usize>, Vec<usize>) = dims.into_iter().zip(strides).rev().unzip();
    let of = Dims::new(&dims, &strides, total)?;
    let params = StridedVectorsParams {
        total: all,
        offset: walk.offset as usize,
        rank: of.rank,
        sizes: of.sizes,
        factors: of.factors,
        shifts: of.shifts,
        strides: of.strides,
        more_sizes: of.more_sizes,
        more_strides: of.more_strides,
    };
    Ok(vec![Launch::map(way as usize, params.words()?).on(Grid::Threads(threads as u64))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_runs_go_by_eights() {
        let walk =
            |dims: &[usize], strides: &[u32]| Walk { offset: 0, dims: dims.into(), strides: strides.into() };
        assert!(by_eights(&walk(&[4, 24], &[48, 1])));
        assert!(!by_eights(&walk(&[4, 24], &[50, 1])));
        assert!(!by_eights(&walk(&[24], &[2])));
    }
}
