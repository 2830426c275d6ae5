//! The first elements of each line in an order: by ranks, or from sorted lines. Sorting of numbers in scratch memory.

use kiln_backend::{BackendError, Tactic};
use kiln_codegen::scalar::register;
use kiln_codegen::site::{Cx, Site, op_error};
use kiln_codegen::sort::precedes;
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch};
use kiln_ir::DType;

pub const KERNELS: &[Kernel] = &[Kernel::of("topk", &["topk"], source, launch)];

/// The kernel file that sorts. Files that define `sorted_count`, `sorted_width` and `before` come in front of it.
pub const FILE: &str = "sort/bitonic";

/// Its entries, which come first in a body.
pub const ENTRIES: [Entry; 4] = [
    Entry::threads("number_all").silent(),
    Entry::threads("sort_step").silent(),
    Entry::blocks("sort_runs", THREADS as u32).silent(),
    Entry::blocks("sort_ends", THREADS as u32).silent(),
];

/// Threads of a workgroup that sorts a run, and the most numbers of a run.
const THREADS: usize = 256;
const RUN: usize = 2048;

/// Words of scratch memory of a row of `n` elements.
pub fn width(n: usize) -> usize {
    n.next_power_of_two()
}

/// Iterations of a thread that sorts a run, where a comparison takes `cost`.
fn run_cost(run: usize, cost: usize) -> usize {
    let steps = (run.ilog2() * (run.ilog2() + 3) / 2) as usize;
    (steps + 4) * (1 + (run / 2).div_ceil(THREADS).saturating_mul(1 + 2 * cost))
}

/// Launches that sort `rows` rows of `n` numbers, of which a comparison takes `cost` iterations.
pub fn launches(
    cx: &Cx<'_>,
    words: &[u32],
    (rows, n): (usize, usize),
    cost: usize,
) -> Result<Vec<Launch>, BackendError> {
    let width = width(n);
    let run = width.min(RUN);
    let all = |entry, threads: usize| Launch::map(entry, words.to_vec()).on(Grid::Threads(threads as u64));
    let runs =
        |entry| Launch::map(entry, words.to_vec()).on(Grid::Groups((rows as u64) * (width / run) as u64));
    let by_runs = run_cost(run, cost) <= cx.rounds;
    let mut out = match by_runs {
        true => vec![runs(2).span(run, run)?],
        false => vec![all(0, rows * width)],
    };
    let mut list = if by_runs { 2 * run } else { 2 };
    while list <= width {
        let mut apart = list / 2;
        while apart >= if by_runs { run } else { 1 } {
            out.push(all(1, rows * width / 2).span(apart, list)?);
            apart /= 2;
        }
        if by_runs {
            out.push(runs(3).span(run, list)?);
        }
        list *= 2;
    }
    Ok(out)
}

kiln_codegen::params! {
    /// The first elements of lines along an axis, which may be sorted.
    struct SortedTopkParams {
        /// Elements of a line.
        count: u32,
        /// Numbers of a sorted line.
        width: u32,
        /// Elements from one element of a line to the next.
        inner: u32,
        /// Elements of a line of the result.
        kept: u32,
        /// Words of scratch memory of a line.
        words: u32,
        /// The first of those that say which elements are kept.
        first: u32,
    }
}

/// Keys of elements, and the function `leads` that compares them: whole numbers of 32 bits, of which 0 comes last, or elements of 64 bits.
fn keys(site: &Site<'_>) -> Result<String, BackendError> {
    let t = site.out_dtype(0);
    let largest = site.op()?.attrs().bool("largest").map_err(op_error)?;
    let key = match (t, largest) {
        (DType::I64, _) => "v",
        (DType::Bool, true) => "select(1u, 2u, v)",
        (DType::Bool, false) => "select(2u, 1u, v)",
        (t, true) if t.is_float() => {
            "select(bitcast<u32>(order_key(v)) ^ 0x80000000u, 0xffffffffu, is_nan(v))"
        }
        (t, false) if t.is_float() => "select(bitcast<u32>(order_key(v)) ^ 0x7fffffffu, 0u, is_nan(v))",
        (_, true) => "bitcast<u32>(v) ^ 0x80000000u",
        (_, false) => "bitcast<u32>(v) ^ 0x7fffffffu",
    };
    let wide = t == DType::I64;
    let (of, leads) = if wide { ("i64", "precedes(v, w)") } else { ("u32", "v > w") };
    Ok(format!("alias Key = {of};\n")
        + &site.constant("KEYED", "bool", !wide)
        + &site.function("key_of", &[("v", register(t))], "Key", key)
        + &site.function("leads", &[("v", "Key"), ("w", "Key")], "bool", leads))
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let own = [
        Entry::threads("rank"),
        Entry::threads("take"),
        Entry::blocks("sort_heads", THREADS as u32).silent(),
    ];
    Ok(Body {
        code: precedes(site)? + &keys(site)?,
        files: vec!["sort/topk", FILE],
        entries: ENTRIES.into_iter().chain(own).collect(),
        scratch: true,
        ..Body::default()
    })
}

/// Positions of entries: those that sort come first.
const RANK: usize = ENTRIES.len();
const TAKE: usize = RANK + 1;
const HEADS: usize = TAKE + 1;

/// Elements of a line are compared with each other up to so many.
const RANKED: usize = 64;

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, out) = (cx.shape(0)?, cx.out_shape(0)?);
    let axis = cx.axis(x.len())?;
    let (n, kept, count) = (x[axis], out[axis], x.iter().product::<usize>());
    let taken = out.iter().product::<usize>() as u64;
    if taken == 0 {
        return Ok(Vec::new());
    }
    let inner = x[axis + 1..].iter().product();
    let p = SortedTopkParams { count: n, width: width(n), inner, kept, words: width(n), first: 0 };
    let heads = (kept <= RUN / 2 || n <= RUN) && run_cost(RUN, 0) + 4 * THREADS <= cx.rounds;
    if n <= cx.rounds && (n <= RANKED || !heads && n <= RUN) {
        return Ok(vec![Launch::map(RANK, p.words()?).on(Grid::Threads(count as u64))]);
    }
    let rows = count / n;
    let (mut all, p) = if heads { heads_of(p, rows)? } else { (launches(cx, &p.words()?, (rows, n), 0)?, p) };
    all.push(Launch::map(TAKE, p.words()?).on(Grid::Threads(taken)));
    let bytes = (rows * p.words) as u64 * 4;
    Ok(all.into_iter().map(|l| l.scratch(bytes)).collect())
}

/// Launches that sort runs of lines and keep the first numbers of each, until a line is one run.
fn heads_of(p: SortedTopkParams, rows: usize) -> Result<(Vec<Launch>, SortedTopkParams), BackendError> {
    let half = p.count.div_ceil(RUN) * p.kept;
    let lists = std::iter::successors(Some(p.count), |n| (*n > RUN).then(|| n.div_ceil(RUN) * p.kept));
    let lists: Vec<usize> = lists.collect();
    let p = SortedTopkParams { words: 2 * half, first: (lists.len() - 1) % 2 * half, ..p };
    let words = p.words()?;
    let launch = |(level, &list): (usize, &usize)| {
        let groups = Grid::Groups((rows * list.div_ceil(RUN)) as u64);
        Launch::map(HEADS, words.clone()).on(groups).span(list, level)
    };
    let all = lists.iter().enumerate().map(launch).collect::<Result<Vec<_>, _>>()?;
    Ok((all, p))
}
