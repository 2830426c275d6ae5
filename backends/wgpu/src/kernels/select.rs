//! Operators whose output sizes depend on data. A first pass lists what is kept in scratch memory and tells how much
//! it is; the rest runs when the host knows.

use super::sort;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::long::repeated;
use kiln_codegen::scalar::register;
use kiln_codegen::select::{nonzero_shape, nonzero_test, nonzero_words, phases, slices};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::template::{fill, section, sections};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, word, words};
use kiln_ir::DType;

const TEXT: &str = include_str!("../../../../shaders/select.wgsl");

pub const KERNELS: &[Kernel] = &[
    Kernel::alone("nonzero", &["nonzero"], nonzero_source, nonzero),
    Kernel::alone("compress", &["compress"], compress_source, compress),
    Kernel::alone("unique", &["unique"], unique_source, unique),
    Kernel::alone("nms", &["nms"], nms_source, nms),
    Kernel::alone("assertion", &["assertion"], assertion_source, assertion),
];

const SORTED: &str =
    "fn sorted_count() -> u32 { return m(0u); }\nfn sorted_width() -> u32 { return m(1u); }\n";

/// A body whose free entries run before the sizes are known, and whose maps run after that.
fn body(code: String, first: Vec<Entry>, maps: usize) -> Body {
    let entries = first.into_iter().chain((0..maps).map(Entry::Map)).collect();
    Body { code, entries, scratch: true, sizes: true, ..Body::default() }
}

/// The entries of `list`.
const LIST: [Entry; 3] =
    [Entry::Partial("count_runs"), Entry::Partial("add_up"), Entry::Partial("write_list")];

/// Numbers in a run of `n`.
fn run(cx: &Cx<'_>, n: usize) -> usize {
    // So that one workgroup can add up the counts.
    256.max(n >> 20).min(cx.rounds)
}

/// Launches of the entries of `list`, from number `entry` on, over `n` numbers that take `cost` iterations each.
fn list(cx: &Cx<'_>, entry: usize, w: &[u32], n: usize, cost: usize) -> Result<Vec<Launch>, BackendError> {
    let each = (run(cx, n) / cost).max(1);
    let runs = n.div_ceil(each);
    if each * cost > cx.rounds || runs.div_ceil(64) * 2 + 64 > cx.rounds {
        return unsupported(format!("{} over {n} elements of {cost} iterations", cx.op()?.name()));
    }
    let grids = [Grid::Threads(runs as u64), Grid::Groups(1), Grid::Threads(runs as u64)];
    let one = |(k, grid)| Launch::map(entry + k, w.to_vec()).on(grid).span(n, each);
    grids.into_iter().enumerate().map(one).collect()
}

/// Words of scratch memory for the counts of `list`.
fn counts(cx: &Cx<'_>, n: usize, cost: usize) -> usize {
    n.div_ceil((run(cx, n) / cost).max(1))
}

fn nonzero_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let keep = nonzero_test(site);
    Ok(body(keep + &fill(&sections(TEXT, &["list", "list_first", "nonzero"]), &[]), LIST.into(), 1))
}

fn nonzero(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = nonzero_shape(cx)?;
    let n: usize = x.iter().product();
    let first = list(cx, 0, &[], n, 1)?;
    let maps = || Ok(vec![Launch::map(3, nonzero_words(cx, &x)?)]);
    phases(cx, first, maps, (n + counts(cx, n, 1)) as u64 * 4)
}

fn compress_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let keep = "fn keep(i: u32) -> bool { return x1(i); }\n".to_owned();
    let pairs = [("REG", register(site.out_dtype(0)))];
    Ok(body(keep + &fill(&sections(TEXT, &["list", "list_first", "compress"]), &pairs), LIST.into(), 1))
}

fn compress(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let [n, inner, outer] = slices(cx)?;
    let n = n.min(cx.shape(1)?.iter().product());
    let first = list(cx, 0, &[], n, 1)?;
    let maps = || {
        let [whole, ..] = slices(cx)?;
        let kept = cx.out_shape(0)?.iter().product::<usize>().checked_div(inner * outer).unwrap_or(0);
        Ok(vec![Launch::map(3, words([inner, kept, whole])?)])
    };
    phases(cx, first, maps, (n + counts(cx, n, 1)) as u64 * 4)
}

fn unique_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let r = register(t);
    let (same, before) = match t {
        DType::Bool => ("a == b", "!a && b"),
        _ if t.is_float() => ("feq(a, b)", "flt(a, b) || (!is_nan(a) && is_nan(b))"),
        _ => ("a == b", "a < b"),
    };
    let order = format!(
        "fn same(a: {r}, b: {r}) -> bool {{ return {same}; }}\nfn less(a: {r}, b: {r}) -> bool {{ return {before}; }}\n"
    );
    let sorted = site.op()?.attrs().bool("sorted").map_err(op_error)?;
    let mut entries: Vec<Entry> = sort::ENTRIES.into_iter().chain(LIST).collect();
    entries.extend([Entry::Partial("tell_which"), Entry::Partial("arrange")]);
    entries.extend((!sorted).then_some(Entry::Partial("count_firsts")));
    let arranged = if sorted { "unique_sorted" } else { "unique_found" };
    let text = sections(TEXT, &["list", "unique", arranged, "unique_maps"]) + SORTED;
    let body = body(order + &fill(&text, &[("REG", r)]), entries, 4);
    Ok(Body { files: vec![sort::FILE], ..body })
}

fn unique(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let [n, inner, outer] = slices(cx)?;
    let sorted = cx.op()?.attrs().bool("sorted").map_err(op_error)?;
    let w = words([n, sort::width(n), inner, outer])?;
    let cost = inner * outer + 2;
    if 2 * cost > cx.rounds {
        return unsupported(format!("slices of {} elements, {} are possible", cost - 2, cx.rounds / 2));
    }
    let on = |entry, threads: usize| Launch::map(entry, w.clone()).on(Grid::Threads(threads as u64));
    let mut first = sort::launches(&w, 1, n)?;
    let listed = list(cx, 2, &w, n, cost)?;
    let spans = listed.first().map_or((0, 1), |l| l.span);
    first.extend(listed.iter().cloned());
    first.push(on(5, n));
    if sorted {
        first.push(on(6, n));
    } else {
        // The counts of first ones are added up like those of the list, and are as many.
        let again = listed.iter().map(|l| Launch { entry: [7, 3, 6][l.entry - 2], ..l.clone() });
        first.extend(again.map(|l| Launch { span: spans, ..l }));
    }
    let maps = || {
        let count = cx.out_shape(1)?.iter().product();
        let mut w = w.clone();
        w.push(word(count)?);
        let from = if sorted { 7 } else { 8 };
        Ok((from..from + 4).map(|entry| Launch::map(entry, w.clone())).collect())
    };
    let scratch = sort::width(n) + 4 * n + counts(cx, n, cost);
    phases(cx, first, maps, scratch as u64 * 4)
}

fn nms_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let corners = if site.op()?.attrs().bool("center_box").map_err(op_error)? {
        "return Rect(a - b / 2.0, a + b / 2.0);"
    } else {
        "return Rect(min(a.yx, b.yx), max(a.yx, b.yx));"
    };
    let place = |i: &str| {
        if site.rank(0) == Some(4) {
            format!("((t / m(3u) * n + {i}) * m(3u) + t % m(3u)) * 4u")
        } else {
            format!("(t / m(3u) * n + {i}) * 4u")
        }
    };
    let least = site.anchor.is_some_and(|(_, n)| n.inputs.get(4).is_some_and(Option::is_some));
    let pairs =
        [("CORNERS", corners), ("BOX", &place("i")), ("SCORE", if least { "s > mf(6u)" } else { "true" })];
    let entries = sort::ENTRIES.into_iter().chain([Entry::Partial("pick"), Entry::Partial("count")]);
    let text = section(TEXT, "nms").to_owned() + SORTED;
    Ok(Body { files: vec![sort::FILE], ..body(fill(&text, &pairs), entries.collect(), 1) })
}

fn nms(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let s = cx.shape(1)?;
    let &[batch, classes, count] = &s[..] else { return Ok(Vec::new()) };
    let one = |v: Option<Vec<f64>>| v.and_then(|v| v.first().copied());
    let most = cx.ints(2)?.and_then(|v| v.first().copied()).unwrap_or(0).clamp(0, count as i64) as usize;
    let topk = cx.op()?.attrs().int("topk_limit").map_err(op_error)?;
    let limit = if topk > 0 { (topk as usize).min(count) } else { count };
    let rows = batch * classes;
    let sorted = cx.op()?.attrs().bool("by_score").map_err(op_error)?;
    let of_entry = if sorted { classes * most } else { 0 };
    let lists = (rows * sort::width(count)).max(batch * sort::width(of_entry));
    let mut w = words([count, sort::width(count), batch, classes, most])?;
    w.push((one(cx.floats(3)?).unwrap_or(0.0) as f32).to_bits());
    w.push((one(cx.floats(4)?).unwrap_or(0.0) as f32).to_bits());
    w.extend(words([count, lists, 0])?);
    let mut first = sort::launches(&w, rows, count)?;
    let pick = Launch::map(2, w.clone()).on(Grid::Groups(rows as u64));
    // A candidate takes a round, and those of a thread over the picks.
    first.extend(repeated(cx, &pick, (limit, 2 + most.div_ceil(64)), 0)?);
    let add = Launch::map(3, w.clone()).on(Grid::Threads(1));
    first.extend(repeated(cx, &add, (rows, 1), 0)?);
    if sorted {
        w[..2].copy_from_slice(&words([of_entry, sort::width(of_entry)])?);
        w[9] = 1;
        first.extend(sort::launches(&w, batch, of_entry)?);
    }
    let scratch = lists + rows * (most + 2);
    phases(cx, first, || Ok(vec![Launch::map(4, w)]), scratch as u64 * 4)
}

fn assertion_source(_: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let text = "var<workgroup> starts: array<u32, 64>;\n".to_owned() + section(TEXT, "assertion");
    Ok(Body { code: fill(&text, &[]), entries: vec![Entry::Free("list")], sizes: true, ..Body::default() })
}

/// Counts what is false; the context reads the count and makes the error.
fn assertion(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let n: usize = cx.shape(0)?.iter().product();
    let launch = Launch { counts: true, ..Launch::map(0, Vec::new()).on(Grid::Groups(1)) };
    // Rounds of 64 elements; the last one of a launch adds up 64 threads.
    let all = repeated(cx, &launch, (n.div_ceil(64), 2), 0)?;
    let elements = |k: u32| (k as usize * 64).min(n) as u32;
    Ok(all.into_iter().map(|l| Launch { span: (elements(l.span.0), elements(l.span.1)), ..l }).collect())
}
