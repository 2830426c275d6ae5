//! Least and greatest dimensions of a layer, which selectors are told.

use crate::points::Ranges;
use crate::selection::ShapeBounds;
use kiln_ir::dim::Symbol;
use kiln_ir::{Dim, Graph};
use std::sync::Arc;

/// The bounds of what a region reads and writes. Of several profiles the first one is taken whose usual shapes are those of `concrete`,
/// else the first one that has them between its ends.
pub fn bounds(region: &Graph, concrete: &Graph, profiles: &[Arc<Ranges>]) -> Vec<ShapeBounds> {
    let usual: Vec<Vec<i64>> = ends(concrete).map(|dims| dims.iter().map(or_open).collect()).collect();
    let at = |ranges: &Ranges, k: usize| -> Vec<Vec<i64>> {
        let point = |s: &Symbol| ranges.get(&s.name).map(|r| (r[k], r[k]));
        let number = |d: &Dim| {
            let i = d.interval(&point);
            i.lo().filter(|_| i.lo() == i.hi()).unwrap_or(-1)
        };
        ends(region).map(|dims| dims.iter().map(number).collect()).collect()
    };
    let known = |n: &i64| *n >= 0;
    let fits = |least: &[Vec<i64>], greatest: &[Vec<i64>]| {
        let all = least.iter().flatten().zip(greatest.iter().flatten()).zip(usual.iter().flatten());
        all.filter(|((a, b), u)| known(a) && known(b) && known(u)).all(|((a, b), u)| a <= u && u <= b)
    };
    let is_usual = |r: &&Arc<Ranges>| fits(&at(r, 1), &at(r, 1));
    let around = |r: &&Arc<Ranges>| fits(&at(r, 0), &at(r, 2));
    let profile = profiles.iter().find(is_usual).or_else(|| profiles.iter().find(around));
    let (least, greatest) = match profile {
        Some(r) => (at(r, 0), at(r, 2)),
        None => (usual.clone(), usual),
    };
    least.into_iter().zip(greatest).map(|(least, greatest)| ShapeBounds { least, greatest }).collect()
}

/// Dimensions of what a graph reads and writes.
fn ends(g: &Graph) -> impl Iterator<Item = &[Dim]> {
    g.inputs.iter().chain(&g.outputs).map(|&v| &g.ty(v).dims[..])
}

fn or_open(d: &Dim) -> i64 {
    d.as_const().unwrap_or(-1)
}
