//! The different slices along an axis, found by a thread a slice.

use super::{LIST, counting, list, phases, slices};
use crate::scalar::register;
use crate::site::{Cx, Site, op_error};
use crate::{Body, Entry, Grid, Kernel, Launch};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel::alone("unique", &["unique"], source, launch)];

crate::params! {
    /// Different slices along an axis.
    struct UniqueParams {
        /// Slices of the input.
        count: u32,
        /// Elements of a slice after the axis.
        inner: u32,
        /// Elements of a slice before the axis.
        outer: u32,
        /// Different slices; 0 until they are counted.
        different: u32,
    }
}

/// The maps of the four outputs.
pub const MAPS: [Entry; 4] = [
    Entry::Element(0, "unique_value"),
    Entry::Element(1, "unique_first"),
    Entry::Element(2, "unique_place"),
    Entry::Element(3, "unique_count"),
];

/// The functions `same(a, b)` and `before(a, b)`, called by these names, of two elements. NaN equals nothing and comes last.
pub fn order(site: &Site<'_>, same: &str, before: &str) -> String {
    let t = site.out_dtype(0);
    let r = register(t);
    let (equal, less) = match t {
        DType::Bool => ("a == b", "!a && b"),
        _ if t.is_float() => ("feq(a, b)", "flt(a, b) || (!is_nan(a) && is_nan(b))"),
        _ => ("a == b", "a < b"),
    };
    [(same, equal), (before, less)].map(|(n, e)| site.function(n, &[("a", r), ("b", r)], "bool", e)).concat()
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let sorted = site.op()?.attrs().bool("sorted").map_err(op_error)?;
    let own = ["find_equals", "number_slices", "order_different"].map(|name| Entry::threads(name).silent());
    let entries = own.into_iter().chain(LIST).chain(MAPS).collect();
    // A slice that is the first of its kind equals itself; the first parameter is the number of slices.
    let first = site.function("is_kept", &[("i", "u32")], "bool", "scratch[word(0u) + i] == i");
    let hooks = order(site, "same", "before") + &site.constant("SORTED", "bool", sorted) + &first;
    Ok(counting(vec!["select/list", "select/unique"], entries).with(hooks))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let [count, inner, outer] = slices(cx)?;
    let params = UniqueParams { count, inner, outer, different: 0 };
    let w = params.words()?;
    let threads = |entry| Launch::map(entry, w.clone()).on(Grid::Threads(count as u64));
    let (lists, scratch) = list(count, 3, count * 4)?;
    let first = [threads(0)].into_iter().chain(lists).chain([threads(1), threads(2)]).collect();
    let maps = || {
        let w = UniqueParams { different: cx.out_shape(1)?.iter().product(), ..params }.words()?;
        Ok((5..9).map(|entry| Launch::map(entry, w.clone())).collect())
    };
    phases(cx, first, maps, scratch)
}
