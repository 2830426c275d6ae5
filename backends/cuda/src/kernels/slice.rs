//! Layers whose elements are found by strides: eight neighbours at a time, or by tiles where another dimension becomes the
//! innermost.

pub mod concat;

use super::divisor::{Divisors, WIDTH, copied, tactics};
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
    /// Vectors of a result whose elements are found by strides; lists begin with the innermost dimension.
    struct StridedVectorsParams {
        /// Position of the first element in x.
        offset: u32,
        /// Dimensions of the result, the innermost in vectors.
        sizes: [u32],
        /// Factors of divisions by them.
        factors: [u32],
        /// Shifts of divisions by them.
        shifts: [u32],
        /// Strides in x; negative ones are wrapped to 32 bits.
        strides: [u32],
    }
}

fn source(site: &Site<'_>) -> Result<Body, BackendError> {
    let entries =
        vec![Entry::threads("walk_8"), Entry::threads("walk_1"), Entry::blocks("tiles", transpose::THREADS)];
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
    let rows = cx.out_shape(0)?.last().is_some_and(|n| n.is_multiple_of(WIDTH)) || !cx.fused;
    if rows && by_eights(&walk) {
        return vectors(&walk, WIDTH);
    }
    match transpose::sides(&walk) {
        Some((p, q)) => transpose::launch(&walk, p, q),
        None => vectors(&walk, 1),
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

fn vectors(walk: &Walk, width: usize) -> Result<Vec<Launch>, BackendError> {
    let total = walk.dims.iter().product::<usize>() / width;
    let mut dims = walk.dims.clone();
    let mut strides: Vec<usize> = walk.strides.iter().map(|&s| s as usize).collect();
    if let (Some(n), Some(stride)) = (dims.last_mut(), strides.last_mut()) {
        *n /= width;
        *stride *= width;
    }
    let Divisors { sizes, factors, shifts } = Divisors::new(dims.into_iter().rev(), total)?;
    let params = StridedVectorsParams {
        offset: walk.offset as usize,
        sizes,
        factors,
        shifts,
        strides: strides.into_iter().rev().collect(),
    };
    Ok(vec![Launch::map(usize::from(width == 1), params.words()?).on(Grid::Threads(total as u64))])
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
