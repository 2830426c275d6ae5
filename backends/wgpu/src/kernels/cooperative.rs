//! Products by cooperative matrices, whose sizes are constants of `matmul/cooperative.wgsl`.
//!
//! A subgroup multiplies parts of tiles in workgroup memory by instructions of its own. The device says how large parts are.

use super::cost::{BUSY_TILES, Work};
use crate::adapter::{PART_SIZE, SUBGROUP_SIZE};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::long::state;
use kiln_codegen::site::{Site, unsupported};
use kiln_codegen::{Body, Entry};
use kiln_ir::DType;

/// Parts that a subgroup computes, down and across.
const OWN: (usize, usize) = (4, 2);

/// Subgroups of a workgroup, down and across, and parts of the depth that are loaded at once; the most useful first.
const TILES: &[(usize, usize, usize)] = &[(2, 4, 2), (2, 2, 1), (1, 4, 2), (1, 2, 1)];

/// A tile that one workgroup computes.
#[derive(Clone, Copy)]
pub struct CooperativeTile {
    /// Rows and columns of a part.
    part: usize,
    /// Threads of a subgroup.
    lanes: usize,
    /// Subgroups, down and across.
    down: usize,
    across: usize,
    /// Depth that is loaded at once.
    pub k: usize,
}

/// Rows of a part, and threads of a subgroup, of a device that has cooperative matrices.
pub fn part_and_lanes(site: &Site<'_>) -> Result<(usize, usize), BackendError> {
    let number = |name| site.target.numbers.get(name).map_or(0, |&n| n as usize);
    let (part, lanes) = (number(PART_SIZE), number(SUBGROUP_SIZE));
    let has = ["cooperative_matrix", "f16", "subgroup"].iter().all(|f| site.target.has(f));
    if !has || ![8, 16].contains(&part) || lanes == 0 {
        return unsupported("the device has no cooperative matrices of f16 that are summed in f32");
    }
    Ok((part, lanes))
}

/// The types of parts of A, B and sums.
pub fn part_types(site: &Site<'_>, part: usize) -> String {
    let matrix = |name: &str, of: &str, role: &str| {
        (site.dialect.alias)(name, &format!("coop_mat{part}x{part}<{of}, {role}>"))
    };
    matrix("PartA", "f16", "A") + &matrix("PartB", "f16", "B") + &matrix("Sums", "f32", "C")
}

/// Directions in which elements of operands and results are neighbours in memory.
pub struct Lines {
    /// Whether A's are along the depth.
    pub a: bool,
    /// Whether B's are along the depth.
    pub b: bool,
    /// Whether those of the result are down its columns.
    pub by_columns: bool,
}

impl CooperativeTile {
    /// The tiles of a device; refuses types that it does not multiply so.
    fn all(site: &Site<'_>) -> Result<Vec<CooperativeTile>, BackendError> {
        if [site.dtype(0), site.dtype(1)] != [Some(DType::F16); 2] || !site.out_dtype(0).is_float() {
            return unsupported("cooperative matrices of other types than f16");
        }
        let (part, lanes) = part_and_lanes(site)?;
        let number = |name| site.target.numbers.get(name).map_or(0, |&n| n as usize);
        let (threads, memory) = (number("workgroup_threads"), number("shared_memory"));
        let fits = |t: &CooperativeTile| t.threads() <= threads && t.memory() <= memory;
        Ok(CooperativeTile::sized(part, lanes).filter(fits).collect())
    }

    /// The tiles of a device with such parts and subgroups.
    fn sized(part: usize, lanes: usize) -> impl Iterator<Item = CooperativeTile> {
        let of = move |&(down, across, k): &_| CooperativeTile { part, lanes, down, across, k: k * part };
        TILES.iter().map(of)
    }

    /// Rows of the tile.
    pub fn m(&self) -> usize {
        OWN.0 * self.part * self.down
    }

    /// Its columns.
    pub fn n(&self) -> usize {
        OWN.1 * self.part * self.across
    }

    fn threads(&self) -> usize {
        self.down * self.across * self.lanes
    }

    /// Bytes of workgroup memory at most.
    fn memory(&self) -> usize {
        let padded = |lines: usize| lines * 2 * (self.k + 8) + self.k * 16;
        // Starts of windows, steps of taps, and those of a small kernel.
        let windows = 16 * (self.n() + self.k + 64);
        padded(self.m()) + padded(self.n()) + windows + self.down * self.across * 8 * self.part * self.part
    }

    /// Workgroups for so many results.
    pub fn groups(&self, rows: usize, cols: usize, batch: usize) -> u64 {
        rows.div_ceil(self.m()) as u64 * cols.div_ceil(self.n()) as u64 * batch as u64
    }

    /// Iterations for each depth of the tile: of the loop itself, of its parts, and of operands that are loaded one by one.
    pub fn cost(&self) -> usize {
        2 + self.k / self.part + 5 * (self.m() + self.n()) * self.k / (4 * self.threads()) + 40
    }

    /// The tile that a tactic names.
    pub fn of(t: &Tactic) -> Result<CooperativeTile, BackendError> {
        let param = |name| t.params.get(name).map_or(0, |&v| v.clamp(0, 1 << 10) as usize);
        let mut all = CooperativeTile::sized(param("part"), param("lanes"));
        let named = all.find(|x| x.tactic(&t.name).params == t.params && x.threads() > 0);
        named.map_or_else(|| unsupported(format!("{}: no such tile", t.id())), Ok)
    }

    /// The first tile that makes enough workgroups of products of these sizes, else the last one.
    pub fn fitting(
        site: &Site<'_>,
        (rows, cols, batch): (usize, usize, usize),
    ) -> Result<CooperativeTile, BackendError> {
        let all = CooperativeTile::all(site)?;
        let busy = all.iter().find(|t| t.groups(rows, cols, batch) >= BUSY_TILES as u64);
        match busy.or(all.last()) {
            Some(t) => Ok(*t),
            None => unsupported("tiles that are larger than workgroups"),
        }
    }

    /// The tactic that names the tile.
    pub fn tactic(&self, name: &str) -> Tactic {
        let (m, n) = (self.m() as i64, self.n() as i64);
        let (part, lanes) = (self.part as i64, self.lanes as i64);
        let sizes = Tactic::plain(name).with("m", m).with("n", n).with("k", self.k as i64);
        sizes.with("part", part).with("lanes", lanes)
    }

    /// A tactic for every tile.
    pub fn tactics(site: &Site<'_>, name: &str) -> Result<Vec<Tactic>, BackendError> {
        let (work, software) = (Work::of(site), site.target.has("software"));
        let named = |t: CooperativeTile| {
            let estimate_ns = work.map(|w| w.cooperative_ns(software, (t.m(), t.n())));
            Tactic { estimate_ns, ..t.tactic(name) }
        };
        let found: Vec<Tactic> = CooperativeTile::all(site)?.into_iter().map(named).collect();
        if found.is_empty() { unsupported("tiles that are larger than workgroups") } else { Ok(found) }
    }

    /// A body whose operands A and B, these inputs, a kernel file loads.
    pub fn body(
        &self,
        site: &Site<'_>,
        (operands, [a, b]): (&'static str, [usize; 2]),
        lines: &Lines,
    ) -> Body {
        let number = |name: &str, n: usize| site.constant(name, "u32", format_args!("{n}u"));
        let whole = |i: usize| site.moves.get(i).is_none_or(Vec::is_empty);
        let flags = [
            ("ALONG_A", lines.a),
            ("ALONG_B", lines.b),
            ("BY_COLUMNS", lines.by_columns),
            ("WHOLE_A", whole(a)),
            ("WHOLE_B", whole(b)),
        ];
        let run = |along: bool, across: usize| if along { self.k / 4 } else { across / 4 };
        let code = state(site, site.out_dtype(0))
            + &number("PART", self.part)
            + &number("LANES", self.lanes)
            + &number("DOWN", self.down)
            + &number("ACROSS", self.across)
            + &number("TILE_K", self.k)
            + &number("RUN_A", run(lines.a, self.m()))
            + &number("RUN_B", run(lines.b, self.n()))
            + &flags.map(|(name, v)| site.constant(name, "bool", v)).concat()
            + &part_types(site, self.part);
        let files = vec![operands, "matmul/cooperative"];
        let entries = vec![Entry::blocks("product_cooperative", self.threads() as u32)];
        Body { code, files, entries, scratch: true, ..Body::default() }
    }
}
