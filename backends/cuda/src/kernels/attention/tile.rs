//! Tiles of attention, and the heads that they are for.

use crate::tiles;
use kiln_backend::BackendError;
use kiln_codegen::attention::Problem;
use kiln_codegen::site::{Site, unsupported};
use kiln_ir::{DType, Dim};

/// The input that is the mask.
pub const MASK: usize = 3;

/// Part of the result that a block computes.
pub struct Tile {
    /// Queries.
    pub rows: usize,
    /// Keys at a time.
    pub keys: usize,
    /// Warps that share the queries, and the keys.
    pub warps: (usize, usize),
    /// Buffers of keys.
    pub stages: usize,
    /// The largest heads, in bytes, for which sums stay in registers.
    pub most: usize,
    /// Greatest number of blocks that share the keys of a row.
    pub split: usize,
    /// Number of blocks of a multiprocessor that registers are to suffice for, where the compiler does not decide.
    pub beside: Option<usize>,
    /// The fewest and the most keys for which the tile has all of them at once; none where they come in steps.
    pub at_once: Option<(usize, usize)>,
    /// Whether warpgroups multiply, 64 queries each.
    pub groups: bool,
    /// When warpgroups weigh scores.
    pub order: Order,
    /// Whether one thread copies boxes of tensors, for which all sizes have to be known.
    pub boxes: bool,
}

/// When warpgroups weigh scores: after their products, after their products while another one's are computed, beside their own,
/// or beside their own and another one's.
#[derive(Clone, Copy, PartialEq)]
pub enum Order {
    After,
    InTurns,
    Beside,
    BesideBoth,
}

impl Order {
    /// Whether one of two warpgroups waits for the other one's products.
    pub fn in_turns(self) -> bool {
        matches!(self, Order::InTurns | Order::BesideBoth)
    }

    /// Whether a warpgroup weighs while its own sums are computed.
    pub fn beside(self) -> bool {
        matches!(self, Order::Beside | Order::BesideBoth)
    }
}

/// A tile whose keys go through `stages` buffers.
pub const fn tile(
    (rows, keys): (usize, usize),
    warps: (usize, usize),
    stages: usize,
    most: usize,
    split: usize,
) -> Tile {
    let (beside, at_once, groups, order, boxes) = (None, None, false, Order::After, false);
    Tile { rows, keys, warps, stages, most, split, beside, at_once, groups, order, boxes }
}

/// A tile for so few keys that all are in shared memory, `keys` of them in registers at a time.
pub const fn short((rows, keys): (usize, usize), warps: usize, beside: usize) -> Tile {
    Tile {
        rows,
        keys,
        warps: (warps, 1),
        stages: 1,
        most: 128,
        split: 1,
        beside: Some(beside),
        at_once: Some((0, MOST_KEYS)),
        groups: false,
        order: Order::After,
        boxes: false,
    }
}

/// A tile whose queries warpgroups share, 64 each.
pub const fn wide((rows, keys): (usize, usize), most: usize, split: usize) -> Tile {
    Tile {
        rows,
        keys,
        warps: (rows / 16, 1),
        stages: 2,
        most,
        split,
        beside: None,
        at_once: None,
        groups: true,
        order: Order::After,
        boxes: false,
    }
}

/// A tile of two warpgroups in another order.
pub const fn ordered((rows, keys): (usize, usize), most: usize, order: Order) -> Tile {
    Tile { order, ..wide((rows, keys), most, 1) }
}

/// A tile into which boxes of tensors are copied.
pub const fn boxed(size: (usize, usize), most: usize, order: Order) -> Tile {
    Tile { order, boxes: true, ..wide(size, most, 1) }
}

/// A tile into which boxes of all keys are copied, of which there are at least `least`; `beside` blocks of it share a multiprocessor.
pub const fn whole((rows, keys): (usize, usize), least: usize, most: usize, beside: usize) -> Tile {
    let at_once = Some((least, keys));
    Tile { stages: 1, beside: Some(beside), at_once, ..boxed((rows, keys), most, Order::After) }
}

/// Bytes of a head up to which boxes of a few hundred keys are copied at once.
pub const AT_ONCE_BYTES: usize = 128;
/// Keys that may be in shared memory together.
pub const MOST_KEYS: usize = 256;

/// Returns the element type of queries, keys and values, if tensor cores take it.
pub fn element_type(site: &Site<'_>) -> Result<DType, BackendError> {
    let types = [0, 1, 2].map(|i| site.dtype(i));
    let [Some(t), ..] = types else { return unsupported("attention without queries") };
    if types != [Some(t); 3] {
        return unsupported("queries, keys and values of several types");
    }
    match t {
        DType::F16 | DType::BF16 | DType::F32 => Ok(t),
        other => unsupported(format!("tensor cores for attention of {other}")),
    }
}

/// Components of queries and keys, and of values, as tiles hold them.
pub struct Heads {
    /// Bytes of an element.
    pub size: usize,
    /// Components of queries and keys.
    pub of_keys: usize,
    /// Components of values.
    pub of_values: usize,
    /// Whether several heads of queries may share one of keys.
    pub grouped: bool,
    /// Keys, if their number is known, with those that fill up an instruction.
    keys: Option<usize>,
}

impl Heads {
    /// Returns the heads of a site; refuses sizes that are not known.
    pub fn of(site: &Site<'_>) -> Result<Heads, BackendError> {
        let dim = |j: usize, d: usize| -> Option<i64> {
            let (_, node) = site.anchor?;
            site.graph.ty(*node.outputs.get(j)?).dims.get(d).and_then(Dim::as_const)
        };
        let whole = |j: usize| usize::try_from(dim(j, 3)?).ok()?.max(1).checked_next_multiple_of(16);
        match (whole(1), whole(2)) {
            (Some(of_keys), Some(of_values)) => Ok(Heads {
                size: element_type(site)?.bits() as usize / 8,
                of_keys,
                of_values,
                grouped: dim(1, 1).zip(dim(3, 1)).is_none_or(|(kv, q)| kv != q),
                keys: whole(3),
            }),
            _ => unsupported("a size of heads that is not known when the kernel is made"),
        }
    }

    /// The heads of a launch, of elements of so many bytes.
    pub fn launched(size: usize, p: &Problem) -> Heads {
        let [of_keys, of_values] = [p.size, p.v_size].map(|n| n.max(1).next_multiple_of(16));
        Heads { size, of_keys, of_values, grouped: p.heads != p.kv_heads, keys: None }
    }

    /// Steps over all keys, so many in each, if their number is known.
    pub fn steps(&self, keys: usize) -> Option<usize> {
        Some(self.keys?.div_ceil(keys))
    }

    /// Bytes of a line of keys and of values, with what keeps lines off each other's banks.
    fn pitches(&self) -> (usize, usize) {
        (self.of_keys * self.size + 16, self.of_values * self.size + 16)
    }
}

impl Tile {
    /// Threads of a block: those that compute, and a warpgroup that copies for others, or a warp for a single one. Where all
    /// keys come at once, a thread that computes copies, too.
    pub fn threads(&self) -> usize {
        let copying = match (self.groups, self.boxes) {
            (false, _) => 0,
            (true, true) if self.at_once.is_some() => 0,
            (true, true) if self.lent() == (0, 0) => 32,
            (true, _) => 128,
        };
        self.warps.0 * self.warps.1 * 32 + copying
    }

    /// Registers of threads that compute, and of those that lend them; zeros where all have the same.
    pub fn lent(&self) -> (usize, usize) {
        match (self.rows / 64, self.boxes) {
            _ if self.beside.is_some() => (0, 0),
            (2, false) => (208, 88),
            (2, true) => (232, 40),
            (3, true) => (160, 32),
            _ => (0, 0),
        }
    }

    /// Blocks that registers of a multiprocessor have to suffice for, where that is not left to the compiler.
    pub fn resident(&self) -> Option<usize> {
        match (self.groups, self.lent()) {
            (true, (0, 0)) if self.boxes => self.beside.or(Some(2)),
            (true, (1.., _)) => Some(1),
            _ => self.beside,
        }
    }

    /// Blocks that go on from tile to tile, as many as a device of so many multiprocessors has room for; none where each tile has its
    /// own. `shared` is the shared memory of a block.
    pub fn persistent(&self, multiprocessors: usize, shared: usize) -> Option<usize> {
        /// Bytes of a multiprocessor, and those that a block takes of them beside its own.
        const ROOM: usize = 228 << 10;
        const BESIDE: usize = 1 << 10;
        let beside = self.resident()?;
        let room = (ROOM / (shared + BESIDE)).max(1);
        (self.boxes && (beside == 1 || self.at_once.is_some())).then_some(beside.min(room) * multiprocessors)
    }

    /// Shared memory of a block in bytes; `masked` where it has stages of a mask.
    pub fn shared(&self, heads: &Heads, masked: bool) -> usize {
        let (k, v) = heads.pitches();
        let stages = match self.groups {
            true => {
                let boxes = |components: usize| components.div_ceil(64) * 128;
                let mask = if masked { self.keys * self.rows * heads.size } else { 0 };
                let stage = self.keys * (boxes(heads.of_keys) + boxes(heads.of_values)) + mask;
                // The next queries may be copied before results are written, which have a place of their own then.
                let own = if self.at_once.is_some() { self.rows * boxes(heads.of_values) } else { 0 };
                // With what aligns the first box, and barriers.
                1104 + self.rows * boxes(heads.of_keys) + own + self.stages * stage
            }
            false => {
                let lines = self.all_keys(heads).unwrap_or(self.stages * self.keys);
                self.rows * k + lines * (k + v)
            }
        };
        let own = self.rows * k.max(v);
        let stages = stages.max(own);
        let sums = self.warps.1 * self.rows * (heads.of_values + 6) * 4;
        // Results of rows that are wider than queries are gathered as floats.
        if self.groups && v <= k && self.split == 1 { stages } else { stages.max(sums) }
    }

    /// Keys that are in shared memory from the beginning, if all are.
    pub fn all_keys(&self, heads: &Heads) -> Option<usize> {
        let (least, most) = self.at_once?;
        heads.keys.filter(|n| (least..=most).contains(n))
    }

    /// Parts that the keys are cut into, and keys of one.
    pub fn parts(&self, keys: usize) -> (usize, usize) {
        let blocks = keys.div_ceil(self.keys).max(1);
        let share = blocks.div_ceil(self.split);
        (blocks.div_ceil(share), share * self.keys)
    }

    /// The tile as a row of the list of all.
    pub fn listed(&self, tactic: &'static str) -> tiles::Tile {
        tiles::Tile {
            tactic,
            rows: self.rows,
            columns: self.keys,
            threads: self.threads(),
            stages: Some(self.stages),
            stage_bytes: None,
            split: self.split,
            beside: if self.boxes { self.resident() } else { self.beside },
        }
    }
}
