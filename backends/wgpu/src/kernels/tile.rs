//! Products of matrices in tiles of workgroup memory, whose sizes are constants of `matmul/tiles.wgsl`.

use super::cost::Work;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::long::state;
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::{Body, Entry, Launch, long};
use kiln_ir::DType;

/// A tile that one workgroup computes through its own memory, a block of [`THREAD`] rows and columns a thread.
#[derive(Clone, Copy)]
pub struct Tile {
    /// Rows and columns of the tile.
    pub m: usize,
    pub n: usize,
    /// Depth that is loaded at once.
    pub k: usize,
}

/// Rows and columns of a thread.
const THREAD: usize = 4;

/// Rounds of the innermost loop of a tile that are written out, and elements that a round of loads copies.
const UNROLLED: usize = 4;
const LOADED: usize = 4;

/// Tiles, the most useful first.
pub const TILES: &[Tile] = &[Tile { m: 64, n: 64, k: 16 }, Tile { m: 32, n: 32, k: 16 }];

impl Tile {
    /// Threads of the workgroup.
    pub fn threads(&self) -> usize {
        self.m / THREAD * (self.n / THREAD)
    }

    /// Iterations for each depth of the tile.
    pub fn cost(&self) -> usize {
        let loads = |lines: usize| 1 + (lines * self.k).div_ceil(LOADED * self.threads());
        2 + self.k / UNROLLED + loads(self.m) + loads(self.n)
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
        Tactic { estimate_ns: work.map(|w| w.tile_ns(software, (t.m, t.n), (THREAD, THREAD))), ..tactic }
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

/// A body of tiles by an entry of a kernel file.
pub fn tile_body(site: &Site<'_>, file: &'static str, entry: &'static str, t: Tile) -> Body {
    let number = |name: &str, n: usize| site.constant(name, "u32", format_args!("{n}u"));
    let code = state(site, site.out_dtype(0))
        + &site.alias("Value", DType::F32)
        + &site.alias("Operand", DType::F32)
        + &number("TILE_M", t.m)
        + &number("TILE_N", t.n)
        + &number("TILE_K", t.k);
    let files = vec![file, "matmul/tiles", "matmul/quads"];
    let entries = vec![Entry::blocks(entry, t.threads() as u32)];
    Body { code, files, entries, scratch: true, ..Body::default() }
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
