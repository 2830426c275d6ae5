//! The different slices along an axis, found among sorted slices.

use super::{counts, list};
use crate::kernels::sort;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::select::unique::{MAPS, order};
use kiln_codegen::select::{counting, phases, slices};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch};

pub const KERNELS: &[Kernel] = &[Kernel::alone("unique", &["unique"], source, launch)];

kiln_codegen::params! {
    /// Different slices along an axis, which are sorted first.
    struct SortedUniqueParams {
        /// Slices of the input.
        count: u32,
        /// Words of the sorted slices in scratch memory.
        width: u32,
        /// Elements of a slice after the axis.
        inner: u32,
        /// Elements of a slice before the axis.
        outer: u32,
        /// Different slices; 0 until they are counted.
        different: u32,
    }
}

/// Positions of entries: those that sort come first, then those that list.
const LIST: usize = sort::ENTRIES.len();
const NUMBER: usize = LIST + super::ENTRIES.len();
const PLACE: usize = NUMBER + 1;
const COUNT_FIRSTS: usize = PLACE + 1;

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let own: &[&'static str] = match site.op()?.attrs().bool("sorted").map_err(op_error)? {
        true => &["number_slices", "place_sorted"],
        false => &["number_slices", "place_found", "count_firsts"],
    };
    let own = own.iter().map(|name| Entry::threads(name).silent());
    let entries = sort::ENTRIES.into_iter().chain(super::ENTRIES).chain(own).chain(MAPS).collect();
    let hooks = site.alias("Value", site.out_dtype(0)) + &order(site, "same", "less");
    Ok(counting(vec!["select/unique", super::FILE, sort::FILE], entries).with(hooks))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let [count, inner, outer] = slices(cx)?;
    let sorted = cx.op()?.attrs().bool("sorted").map_err(op_error)?;
    let params = SortedUniqueParams { count, width: sort::width(count), inner, outer, different: 0 };
    let w = params.words()?;
    let cost = inner * outer + 2;
    if 2 * cost > cx.rounds {
        return unsupported(format!("slices of {} elements, {} are possible", cost - 2, cx.rounds / 2));
    }
    let on = |entry| Launch::map(entry, w.clone()).on(Grid::Threads(count as u64));
    let mut first = sort::launches(cx, &w, (1, count), cost)?;
    let listed = list(cx, LIST, &w, count, cost)?;
    first.extend(listed.iter().cloned());
    first.push(on(NUMBER));
    if sorted {
        first.push(on(PLACE));
    } else {
        // The counts of first ones are added up like those of the list, and are as many.
        let entries = [COUNT_FIRSTS, LIST + 1, PLACE];
        first.extend(entries.into_iter().zip(listed).map(|(entry, l)| Launch { entry, ..l }));
    }
    let maps = || {
        let w = SortedUniqueParams { different: cx.out_shape(1)?.iter().product(), ..params }.words()?;
        let from = if sorted { COUNT_FIRSTS } else { COUNT_FIRSTS + 1 };
        Ok((from..from + MAPS.len()).map(|entry| Launch::map(entry, w.clone())).collect())
    };
    let scratch = sort::width(count) + 4 * count + counts(cx, count, cost);
    phases(cx, first, maps, scratch as u64 * 4)
}
