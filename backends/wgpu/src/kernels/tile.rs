//! Products of matrices in tiles of workgroup memory: sizes as data, loops unrolled as text.

use super::block::{cells, lines};
use super::cost::Work;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::long::state;
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::template::fill;
use kiln_codegen::{Body, Entry, Launch, long};
use std::fmt::Write;

/// A tile that one workgroup computes through its own memory, and the block of each of its threads.
#[derive(Clone, Copy)]
pub struct Tile {
    /// Rows and columns of the tile.
    pub m: usize,
    pub n: usize,
    /// How deep it is loaded at once.
    pub k: usize,
    /// Rows and columns of a thread, multiples of 4.
    pub tm: usize,
    pub tn: usize,
}

/// Tiles, the most useful first.
pub const TILES: &[Tile] =
    &[Tile { m: 64, n: 64, k: 16, tm: 4, tn: 4 }, Tile { m: 32, n: 32, k: 16, tm: 4, tn: 4 }];

impl Tile {
    /// Threads of the workgroup.
    pub fn threads(&self) -> usize {
        self.m / self.tm * (self.n / self.tn)
    }

    /// Iterations for each depth of the tile.
    pub fn cost(&self) -> usize {
        2 + self.k / UNROLLED
    }

    /// Workgroups for so many results.
    pub fn groups(&self, rows: usize, cols: usize, batch: usize) -> u64 {
        rows.div_ceil(self.m) as u64 * cols.div_ceil(self.n) as u64 * batch as u64
    }
}

fn param(t: &Tactic, name: &str) -> usize {
    t.params.get(name).map_or(0, |&v| v.max(0) as usize)
}

/// The tile that a tactic names.
pub fn tile_of(t: &Tactic) -> Result<Tile, BackendError> {
    let same = |x: &&Tile| (x.m, x.n, x.k) == (param(t, "m"), param(t, "n"), param(t, "k"));
    TILES.iter().find(same).copied().map_or_else(|| unsupported(format!("{}: no such tile", t.id())), Ok)
}

/// A tactic for every tile that the device has room for; floats only.
pub fn tile_tactics(site: &Site<'_>, name: &str) -> Result<Vec<Tactic>, BackendError> {
    if !site.out_dtype(0).is_float() {
        return unsupported("tiles of integers");
    }
    let threads = site.target.numbers.get("workgroup_threads").copied().unwrap_or(0);
    let fits = TILES.iter().filter(|t| t.threads() as u64 <= threads);
    let (work, software) = (Work::of(site), site.target.has("software"));
    let named = |t: &Tile| {
        let tactic = Tactic::plain(name).with("m", t.m as i64).with("n", t.n as i64).with("k", t.k as i64);
        Tactic { estimate_ns: work.map(|w| w.tile_ns(software, (t.m, t.n), (t.tm, t.tn))), ..tactic }
    };
    let found: Vec<Tactic> = fits.map(named).collect();
    if found.is_empty() { unsupported(format!("workgroups of {threads} threads")) } else { Ok(found) }
}

/// Products beyond which one thread an element is not offered where blocks are: the tuner would wait for it in vain.
const MANY_PRODUCTS: usize = 1 << 26;

/// One thread an element, unless the depth of the results is so great that blocks are sure to be faster.
pub fn direct_tactic(site: &Site<'_>, name: &str) -> Result<Vec<Tactic>, BackendError> {
    let work = Work::of(site);
    let products =
        work.map(|w| w.rows.saturating_mul(w.cols).saturating_mul(w.batch).saturating_mul(w.depth));
    match products {
        Some(n) if n > MANY_PRODUCTS => unsupported(format!("{n} products by one thread an element")),
        _ => {
            let estimate_ns = work.map(|w| w.direct_ns(site.target.has("software")));
            Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
        }
    }
}

/// Fills `sums` with what the elements of a block have before this launch. A loop, so that the text stays small.
fn begin_all(m: usize, n: usize, i: &str, j: &str) -> String {
    format!(
        "    var sums: array<ACC, {0}>;\n    for (var q = 0u; q < {0}u; q++) {{\n        sums[q] = begin(batch, {i} + q / \
         {n}u, {j} + q % {n}u);\n    }}\n",
        m * n
    )
}

/// Stores `sums`.
fn finish_all(m: usize, n: usize, i: &str, j: &str) -> String {
    format!(
        "    for (var q = 0u; q < {}u; q++) {{\n        finish_sum(batch, {i} + q / {n}u, {j} + q % {n}u, sums[q]);\n    \
         }}\n",
        m * n
    )
}

/// Rounds of the innermost loop of a tile that are written out; a divisor of its depth.
const UNROLLED: usize = 4;

/// A body of tiles: `text` has the entry `tiled` and functions `load_a`, `load_b` (which takes `args` too), `begin` and
/// `finish_sum`.
pub fn tile_body(site: &Site<'_>, text: &str, t: Tile, args: &str, more: &[(&str, &str)]) -> Body {
    let threads = t.threads();
    let (va, vb) = (t.m / 4 + 1, t.n / 4 + 1);
    let loads = lines((0..(t.m * t.k).div_ceil(threads)).map(|q| {
        let e = format!("{}u + l", q * threads);
        format!("load_a({e}, k0, i0, base_a, rows, depth);")
    })) + &lines(
        (0..(t.n * t.k).div_ceil(threads))
            .map(|q| format!("load_b({}u + l, k0, j0, base_b, cols, depth{args});", q * threads)),
    );
    let sums = begin_all(t.tm, t.tn, "i", "j")
        + &lines(cells(t.tm, t.tn / 4).map(|(r, c)| {
            let at = |x: usize| format!("sums[{}]", r * t.tn + c * 4 + x);
            format!("var s{r}_{c} = vec4<f32>({}, {}, {}, {});", at(0), at(1), at(2), at(3))
        }));
    let mut products = format!("for (var k = 0u; k < {}u; k += {UNROLLED}u) {{\n", t.k);
    for k in 0..UNROLLED {
        for r in 0..t.tm / 4 {
            let _ = writeln!(
                products,
                "    let a{k}_{r} = tile_a[(k + {k}u) * {va}u + {r}u + ti * {}u];",
                t.tm / 4
            );
        }
        for c in 0..t.tn / 4 {
            let _ = writeln!(
                products,
                "    let b{k}_{c} = tile_b[(k + {k}u) * {vb}u + {c}u + tj * {}u];",
                t.tn / 4
            );
        }
        for (r, c) in cells(t.tm, t.tn / 4) {
            let x = ["x", "y", "z", "w"][r % 4];
            let _ = writeln!(products, "    s{r}_{c} += a{k}_{}.{x} * b{k}_{c};", r / 4);
        }
    }
    products.push_str("}\n");
    let stores = lines(cells(t.tm, t.tn).map(|(r, c)| {
        let x = ["x", "y", "z", "w"][c % 4];
        format!("sums[{}] = s{r}_{}.{x};", r * t.tn + c, c / 4)
    })) + &finish_all(t.tm, t.tn, "i", "j");
    let number = |n: usize| format!("{n}u");
    let (m, n, k, across) = (number(t.m), number(t.n), number(t.k), number(t.n / t.tn));
    let (tm, tn, size_a, size_b) =
        (number(t.tm), number(t.tn), (va * t.k).to_string(), (vb * t.k).to_string());
    let (row_a, row_b, threads) = (number(va), number(vb), number(threads));
    let mut pairs =
        vec![("SUMS", &*sums), ("LOADS", &*loads), ("PRODUCTS", &*products), ("STORES", &*stores)];
    pairs.extend([("ACC", "f32"), ("ZERO", "0.0"), ("TILE_M", &*m), ("TILE_N", &*n), ("TILE_K", &*k)]);
    pairs.extend([("ACROSS", &*across), ("THREAD_M", &*tm), ("THREAD_N", &*tn)]);
    pairs.extend([("SIZE_A", &*size_a), ("SIZE_B", &*size_b), ("ROW_A", &*row_a), ("ROW_B", &*row_b)]);
    pairs.extend(more);
    let text = text.replace("THREAD_COUNT", &threads);
    let code = state(site, site.out_dtype(0)) + &fill(&text, &pairs);
    Body { code, entries: vec![Entry::Free("tiled")], scratch: true, ..Body::default() }
}

/// Launches over the depth of the product, of `cost` iterations for each `step` of it.
pub fn launches(
    cx: &Cx<'_>,
    launch: Launch,
    depth: usize,
    (step, cost): (usize, usize),
) -> Result<Vec<Launch>, BackendError> {
    let results: usize = cx.out_shape(0)?.iter().product();
    let all = long::repeated(cx, &launch, (depth.div_ceil(step), cost), results as u64 * 8)?;
    let scaled = |n: u32| (n as usize * step).min(depth) as u32;
    Ok(all.into_iter().map(|l| Launch { span: (scaled(l.span.0), scaled(l.span.1)), ..l }).collect())
}
