//! Products of matrices in blocks of registers: sizes as data, what is done for each row, column and pair as text.
//!
//! A thread loads `m + n` operands for `m * n` products, from global memory and without barriers. Drivers that run threads
//! as the lanes of a vector load lane by lane, for which large blocks pay; see [`super::cost`].

use super::cost::Work;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::long::state;
use kiln_codegen::scalar::{register, zero};
use kiln_codegen::site::{Site, unsupported};
use kiln_codegen::template::fill;
use kiln_codegen::{Body, Entry};
use std::fmt::Write;

/// Rows and columns of the result that one thread computes.
pub const BLOCKS: &[(usize, usize)] = &[(4, 4), (8, 4), (8, 8), (16, 8), (1, 4), (1, 8), (8, 1)];

/// The block that a tactic names.
pub fn block_of(t: &Tactic) -> Result<(usize, usize), BackendError> {
    let param = |name| t.params.get(name).map_or(0, |&v| v.max(0) as usize);
    let wanted = (param("m"), param("n"));
    let found = BLOCKS.iter().find(|b| **b == wanted).copied();
    found.map_or_else(|| unsupported(format!("{}: no such block", t.id())), Ok)
}

/// A tactic for every block that fits the result; always one of the first block. `share` is what a product costs of one of
/// a plain block.
pub fn block_tactics(site: &Site<'_>, name: &str, work: Option<Work>, share: f64) -> Vec<Tactic> {
    let software = site.target.has("software");
    let fits = |&(k, &(m, n)): &(usize, &(usize, usize))| {
        let part = |of: usize, size: Option<usize>| of == 1 || size.is_none_or(|s| s > of / 2);
        // Single rows and columns are for results that have few.
        let single = |of: usize, size: Option<usize>| of > 1 || size.is_some_and(|s| s < 4);
        let (rows, cols) = (work.map(|w| w.rows), work.map(|w| w.cols));
        k == 0 || part(m, rows) && part(n, cols) && single(m, rows) && single(n, cols)
    };
    let tactic = |&(m, n): &(usize, usize)| {
        let t = Tactic::plain(name).with("m", m as i64).with("n", n as i64);
        Tactic { estimate_ns: work.map(|w| w.block_ns(software, m, n) * share), ..t }
    };
    BLOCKS.iter().enumerate().filter(fits).map(|(_, b)| tactic(b)).collect()
}

/// Every pair of a row and a column of a block.
pub fn cells(m: usize, n: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..m).flat_map(move |r| (0..n).map(move |c| (r, c)))
}

/// Statements in lines.
pub fn lines(of: impl Iterator<Item = String>) -> String {
    of.fold(String::new(), |mut s, l| {
        let _ = writeln!(s, "    {l}");
        s
    })
}

/// What is written for every row, column and pair of a block; `#` is the number of the row or column.
pub struct Unrolled {
    /// What is known of a row, `a#`, and of a column, `b#`.
    pub row: &'static str,
    pub column: &'static str,
    /// Statements for each column wherever the text says PLACES.
    pub place: &'static str,
    /// The sum that a row starts from.
    pub start: &'static str,
    /// What is loaded of a row and of a column for each product.
    pub left: &'static str,
    pub right: &'static str,
    /// What a pair of them, LEFT and RIGHT, adds.
    pub product: &'static str,
}

/// Products that are summed by themselves before they join the sum of all: so rounding errors of long sums stay small.
pub const RUN: usize = 128;

/// A body of blocks: `text` has the entry `block`, in which the words ROWS, COLUMNS, PLACES, SUMS, LOADS, PRODUCTS and
/// STORES stand for what is unrolled, and FRESH and JOINED for the sums of a run before and after it. In scope are `i0`, `j0`, `rows`, `cols`, `depth`, `batch`, and where results lie:
/// `base_y`, `row_step`, `column_step`. `more` are further words, replaced before.
pub fn block_body(
    site: &Site<'_>,
    text: &str,
    (m, n): (usize, usize),
    of: &Unrolled,
    more: &[(&str, &str)],
) -> Body {
    let t = site.out_dtype(0);
    let each = |count: usize, text: &str| lines((0..count).map(|k| text.replace('#', &k.to_string())));
    let loads =
        each(m, &format!("let left# = {};", of.left)) + &each(n, &format!("let right# = {};", of.right));
    let products = lines(cells(m, n).map(|(r, c)| {
        let p = of.product.replace("LEFT", &format!("left{r}")).replace("RIGHT", &format!("right{c}"));
        format!("t{r}_{c} += {p};")
    }));
    let all = |text: &str| {
        lines(cells(m, n).map(|(r, c)| text.replace("{r}", &r.to_string()).replace("{c}", &c.to_string())))
    };
    let mut pairs = more.to_vec();
    let words = [
        ("ROWS", each(m, &format!("let a# = {};", of.row))),
        ("COLUMNS", each(n, &format!("let b# = {};", of.column))),
        ("PLACES", each(n, of.place)),
        ("SUMS", sums(m, n, of.start)),
        ("FRESH", all("var t{r}_{c} = ZERO;")),
        ("JOINED", all("s{r}_{c} += t{r}_{c};")),
        ("LOADS", loads),
        ("PRODUCTS", products),
        ("STORES", stores(m, n)),
        ("RUN", format!("{RUN}u")),
        ("BLOCK_M", format!("{m}u")),
        ("BLOCK_N", format!("{n}u")),
    ];
    pairs.extend(words.iter().map(|(k, v)| (*k, &**v)));
    pairs.extend([("ACC", register(t)), ("ZERO", zero(t))]);
    Body {
        code: state(site, t) + &fill(text, &pairs),
        entries: vec![Entry::Free("block")],
        scratch: true,
        ..Body::default()
    }
}

/// A loop over the block as text, so that what stores is written once. Its body sees `at`, and `q`, the number of the cell.
fn over_block(m: usize, n: usize, body: &str) -> String {
    format!(
        "    for (var q = 0u; q < {}u; q++) {{\n        let r = q / {n}u;\n        let c = q % {n}u;\n        \
         if (i0 + r < rows && j0 + c < cols) {{\n            let at = base_y + r * row_step + c * column_step;\n            \
         {body}\n        }}\n    }}\n",
        m * n
    )
}

/// Defines `s<row>_<column>`: the start, or what the launch before this one kept.
fn sums(m: usize, n: usize, start: &str) -> String {
    let begin =
        |r: usize| format!("let start{r} = {};", start.replace('#', &format!("min(i0 + {r}u, rows - 1u)")));
    let kept = lines(cells(m, n).map(|(r, c)| format!("    s{r}_{c} = sums[{}];", r * n + c)));
    lines((0..m).map(begin))
        + &lines(cells(m, n).map(|(r, c)| format!("var s{r}_{c} = start{r};")))
        + &format!("    var sums: array<ACC, {}>;\n    if (lo() > 0u) {{\n", m * n)
        + &over_block(m, n, "sums[q] = kept(at);")
        + &kept
        + "    }\n"
}

/// Stores the sums: as results, or for the next launch.
fn stores(m: usize, n: usize) -> String {
    lines(cells(m, n).map(|(r, c)| format!("sums[{}] = s{r}_{c};", r * n + c)))
        + "    let done = hi() >= depth;\n"
        + &over_block(m, n, "if (done) { emit0(at, sums[q]); } else { keep(at, sums[q]); }")
}
