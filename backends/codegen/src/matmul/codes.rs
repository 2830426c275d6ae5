//! Products by weights that stay codes of 4 or 8 bits: a kernel for few rows, which reads words of codes, and the kernels of other
//! products, whose weights are dequantized as they are loaded.

use crate::long::repeated;
use crate::scalar::{register, zero};
use crate::site::{Cx, Site, op_error, unsupported};
use crate::{Body, Entry, Grid, Kernel, Launch, Views, plain};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::{Attrs, DType};
use kiln_ops::matmul::codes::{MATMUL_CODES, shared};

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "matmul_codes.few",
        ops: &["matmul_codes"],
        epilogue: true,
        views: Views::Whole,
        side_results: false,
        tactics: |site| few_tactics(site, &[THREADS]),
        source: few_source,
        launch: few_launch,
    },
    Kernel {
        name: "matmul_codes.tiled",
        ops: &["matmul_codes"],
        epilogue: true,
        views: Views::Framed,
        side_results: false,
        tactics: |site| match site.target.numbers.get("workgroup_threads") {
            Some(&n) if n >= 256 => plain("matmul_codes.tiled"),
            _ => unsupported("workgroups of fewer than 256 threads"),
        },
        source: |site, _| {
            let code = super::TILE.constants(site) + &site.constant("SIDE", "bool", false) + &factor(site)?;
            Ok(Body::of(super::FILE, vec![Entry::blocks("matmul_tiled", 256)]).with(code))
        },
        launch: |cx| super::tiles(cx, super::product(cx)?),
    },
    Kernel {
        name: "matmul_codes.naive",
        ops: &["matmul_codes"],
        epilogue: true,
        views: Views::Framed,
        side_results: false,
        tactics: |_| plain("matmul_codes.naive"),
        source: |site, _| super::naive(site),
        launch: |cx| Ok(vec![Launch::map(0, super::product(cx)?.params.words()?)]),
    },
];

/// Threads of a block that reads the codes of some outputs.
const THREADS: usize = 128;
/// Outputs that a thread sums for.
const OUTPUTS: usize = 4;
/// Rows that it sums for.
const ROWS: &[usize] = &[1, 4];
/// More rows than these are products for tiles.
pub const FEW: i64 = 64;

crate::params! {
    /// A product of few rows by words of codes.
    pub struct CodesParams {
        /// Rows of the result.
        rows: u32,
        /// Its columns: outputs.
        columns: u32,
        /// Elements of a row.
        depth: u32,
        /// Words of an output's codes.
        length: u32,
        /// Scales of an output.
        scales: u32,
    }
}

/// Elements that share a scale along the depth and across outputs.
pub fn sharing(attrs: &Attrs) -> Result<[i64; 2], BackendError> {
    shared(attrs).map_err(op_error)
}

/// Codes of a word.
pub fn codes_of_word(t: Option<DType>) -> i64 {
    32 / i64::from(t.map_or(8, DType::bits))
}

/// The function `factor(at)`, element `at` of the second operand: of `matmul` as it is, of products by codes dequantized.
pub fn factor(site: &Site<'_>) -> Result<String, BackendError> {
    if !site.op()?.is(MATMUL_CODES) {
        let t = site.dtype(1).unwrap_or(DType::F32);
        return Ok(site.function("factor", &[("at", "u32")], register(t), "x1(at)"));
    }
    let [along, across] = sharing(site.op()?.attrs())?.map(|n| n.min(i64::from(u32::MAX / 2)));
    // Word 6 of the parameters is the step from output to output: the depth. That of no elements is never divided by.
    let scales = format!("((word(6u) + {}u) / {along}u)", along - 1);
    let part = format!("at / word(6u) / {across}u * {scales} + at % word(6u) / {along}u");
    let zero = if site.input(3).is_some() { format!("f32(x3({part}))") } else { zero(DType::F32).into() };
    Ok(site.function("factor", &[("at", "u32")], "f32", &format!("(f32(x1(at)) - {zero}) * x2({part})")))
}

/// Rows of the first operand, if their number is known.
pub fn rows(site: &Site<'_>) -> Option<i64> {
    let (_, above) = site.graph.ty(site.input(0)?).dims.split_last()?;
    above.iter().map(|d| d.as_const()).product()
}

/// Tactics of the kernel for few rows, for each of these numbers of threads that share the codes of an output.
pub fn few_tactics(site: &Site<'_>, sharers: &[usize]) -> Result<Vec<Tactic>, BackendError> {
    let per_word = codes_of_word(site.dtype(1));
    let [along, _] = sharing(site.op()?.attrs())?;
    let depth = site.input(1).and_then(|v| site.graph.ty(v).dims.last()?.as_const());
    let Some(depth) = depth.filter(|k| k % per_word == 0) else {
        return unsupported(format!("words of {per_word} codes that do not fill the depth"));
    };
    if along % per_word != 0 && along < depth {
        return unsupported(format!("blocks of {along} elements, which words of {per_word} codes cross"));
    }
    let rows = rows(site);
    if rows.is_some_and(|n| n > FEW) {
        return unsupported(format!("more than {FEW} rows"));
    }
    let useful = |&&n: &&usize| rows.is_none_or(|r| n == 1 && r <= 2 || n > 1 && r > 1);
    let named = |n: usize, threads: usize| {
        Tactic::plain("matmul_codes.few").with("rows", n as i64).with("threads", threads as i64)
    };
    let of = |n: usize| sharers.iter().map(move |&threads| named(n, threads));
    Ok(ROWS.iter().filter(useful).flat_map(|&n| of(n)).collect())
}

fn param(t: &Tactic, name: &str) -> Result<usize, BackendError> {
    let found = t.params.get(name).and_then(|&v| usize::try_from(v).ok());
    match found.filter(|&n| name != "rows" || ROWS.contains(&n)) {
        Some(n) if n > 0 => Ok(n),
        _ => unsupported(format!("{}: no such {name}", t.id())),
    }
}

/// The body of the kernel for few rows.
pub fn few_source(site: &Site<'_>, t: &Tactic) -> Result<Body, BackendError> {
    let number = |name: &str, n: i64| site.constant(name, "u32", format_args!("{n}u"));
    let [along, across] = sharing(site.op()?.attrs())?.map(|n| n.min(i64::from(u32::MAX / 2)));
    let of_codes = site.dtype(1).unwrap_or(DType::I8);
    let zero_at = if site.input(3).is_some() { "x3(at)" } else { "0" };
    let code = number("ROWS", param(t, "rows")? as i64)
        + &number("SHARERS", param(t, "threads")? as i64)
        + &number("CODES", codes_of_word(Some(of_codes)))
        + &number("ALONG", along)
        + &number("ACROSS", across)
        + &site.function("zero_at", &[("at", "u32")], "i32", zero_at)
        + &site.function(
            "code_of",
            &[("w", "u32"), ("lane", "u32")],
            "i32",
            &(site.dialect.decode)(of_codes, "w", "lane"),
        )
        + &crate::long::state(site, DType::F32);
    let threads = if site.cut() { 64 } else { THREADS as u32 };
    let scratch = site.cut();
    Ok(Body { scratch, ..Body::of("matmul/codes", vec![Entry::blocks("codes_few", threads)]).with(code) })
}

/// Launches of the kernel for few rows.
pub fn few_launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (codes, scale, out) = (cx.shape(1)?, cx.shape(2)?, cx.out_shape(0)?);
    let at = |shape: &[usize], i: usize| shape.get(i).copied().unwrap_or(0);
    let (columns, depth) = (at(&codes, 0), at(&codes, 1));
    let rows = out.iter().product::<usize>().checked_div(columns).unwrap_or(0);
    let per_word = codes_of_word(cx.inputs.get(1).copied().flatten().map(|f| f.ty.dtype)) as usize;
    let length = depth / per_word;
    let params = CodesParams { rows, columns, depth, length, scales: at(&scale, 1) };
    let (each, threads) = (param(cx.tactic, "rows")?, param(cx.tactic, "threads")?);
    // Blocks have 64 threads where loops are cut, of which so many share the outputs of one.
    let sharing = if cx.cut() { 64 / threads.min(64) } else { 1 };
    let blocks = rows.div_ceil(each) * columns.div_ceil(OUTPUTS * sharing);
    let launch = Launch::map(0, params.words()?).on(Grid::Groups(blocks as u64));
    // A round is a word of each of the outputs.
    let cost = OUTPUTS * (per_word + 2) + 2;
    let all = repeated(cx, &launch, (length.div_ceil(threads), cost), (rows * columns) as u64 * 8)?;
    let scaled = |n: u32| (n as usize * threads).min(length) as u32;
    Ok(all.into_iter().map(|l| Launch { span: (scaled(l.span.0), scaled(l.span.1)), ..l }).collect())
}
