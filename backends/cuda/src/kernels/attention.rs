//! Attention on tensor cores, in one pass over the keys.

mod cost;

use crate::frame::cell;
use crate::tiles;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::attention::{Problem, hidden_score, is_positioned, unmoved};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::template::{fill, section};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, words};
use kiln_ir::{DType, Dim};

const INSTRUCTIONS: &str = include_str!("../../../../kernels/attention/instructions.cuh");
const TEXT: &str = include_str!("../../../../kernels/attention/flash.cuh");
const SCORES: &str = include_str!("../../../../kernels/attention/scores.cuh");
const MASK: usize = 3;
const PAST: usize = 4;
const NONPAD: usize = 6;

/// What a block computes.
struct Tile {
    name: &'static str,
    /// Queries.
    rows: usize,
    /// Keys at a time.
    keys: usize,
    /// Warps that share the queries, and the keys.
    warps: (usize, usize),
    /// Buffers of keys.
    stages: usize,
    /// The largest heads, in bytes, for which sums stay in registers.
    most: usize,
    /// How many blocks share the keys of a row at most.
    split: usize,
    /// Where all keys lie in shared memory at once: how many blocks of a multiprocessor registers are to suffice for.
    beside: Option<usize>,
}

const fn tile(
    name: &'static str,
    (rows, keys): (usize, usize),
    warps: (usize, usize),
    stages: usize,
    most: usize,
    split: usize,
) -> Tile {
    Tile { name, rows, keys, warps, stages, most, split, beside: None }
}

/// For so few keys that all lie in shared memory, `keys` of them in registers at a time.
const fn short(name: &'static str, (rows, keys): (usize, usize), warps: usize, beside: usize) -> Tile {
    Tile { name, rows, keys, warps: (warps, 1), stages: 1, most: 128, split: 1, beside: Some(beside) }
}

/// Keys that may lie in shared memory together.
const MOST_KEYS: usize = 256;

const TILES: [Tile; 16] = [
    tile("attention.mma_128x64", (128, 64), (4, 1), 2, 128, 1),
    tile("attention.mma_128x64_w8", (128, 64), (8, 1), 2, 256, 1),
    tile("attention.mma_64x64", (64, 64), (4, 1), 2, 256, 1),
    tile("attention.mma_64x64_s1", (64, 64), (4, 1), 1, 256, 1),
    tile("attention.mma_64x64_s3", (64, 64), (4, 1), 3, 256, 1),
    tile("attention.mma_64x128_s1", (64, 128), (4, 1), 1, 128, 1),
    tile("attention.mma_64x32", (64, 32), (4, 1), 2, 512, 1),
    tile("attention.mma_32x64", (32, 64), (2, 2), 3, 256, 1),
    tile("attention.mma_16x64", (16, 64), (1, 4), 3, 512, 1),
    tile("attention.mma_16x128", (16, 128), (1, 4), 2, 256, 1),
    tile("attention.mma_16x128_w8", (16, 128), (1, 8), 3, 256, 1),
    tile("attention.mma_64x64_split4", (64, 64), (4, 1), 2, 256, 4),
    tile("attention.mma_16x64_split8", (16, 64), (1, 4), 2, 512, 8),
    tile("attention.mma_16x128_split32", (16, 128), (1, 4), 2, 256, 32),
    short("attention.mma_128x64_all", (128, 64), 8, 2),
    short("attention.mma_64x64_all", (64, 64), 4, 4),
];

pub const KERNELS: &[Kernel] = kernels_of!(flash[0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15]);
const _: () = assert!(KERNELS.len() == TILES.len());

/// The table as a list.
pub fn tiles() -> Vec<tiles::Tile> {
    let listed = |t: &Tile| tiles::Tile {
        tactic: t.name,
        rows: t.rows,
        columns: t.keys,
        threads: t.threads(),
        stages: Some(t.stages),
        stage_bytes: None,
        split: t.split,
        beside: t.beside,
    };
    TILES.iter().map(listed).collect()
}

const fn flash<const T: usize>() -> Kernel {
    Kernel {
        name: TILES[T].name,
        ops: &["attention"],
        epilogue: false,
        tactics: |site| tactics(site, &TILES[T]),
        source: |site, _| source(site, &TILES[T]),
        launch: |cx| launch(cx, &TILES[T]),
    }
}

/// How elements go into instructions.
#[derive(Clone, Copy)]
struct Kind {
    size: usize,
    cell: &'static str,
    shape: &'static str,
    of: &'static str,
}

impl Kind {
    fn of(site: &Site<'_>) -> Result<Kind, BackendError> {
        let types = [0, 1, 2].map(|i| site.dtype(i));
        let [Some(t), ..] = types else { return unsupported("attention without queries") };
        if types != [Some(t); 3] {
            return unsupported("queries, keys and values of several types");
        }
        match t {
            DType::F16 => Ok(Kind { size: 2, cell: "u16", shape: "m16n8k16", of: "f16" }),
            DType::BF16 => Ok(Kind { size: 2, cell: "u16", shape: "m16n8k16", of: "bf16" }),
            DType::F32 => Ok(Kind { size: 4, cell: "f32", shape: "m16n8k8", of: "tf32" }),
            other => unsupported(format!("tensor cores for attention of {other}")),
        }
    }
}

/// Components of queries and keys, and of values, as tiles hold them.
struct Heads {
    of_keys: usize,
    of_values: usize,
    /// May several heads of queries share one of keys?
    grouped: bool,
    /// Keys, if their number is known, with those that fill up an instruction.
    keys: Option<usize>,
}

impl Heads {
    fn of(site: &Site<'_>) -> Result<Heads, BackendError> {
        let size = |j: usize| -> Option<usize> {
            let (_, node) = site.anchor?;
            let n = site.graph.ty(*node.outputs.get(j)?).dims.get(3).and_then(Dim::as_const)?;
            usize::try_from(n).ok().map(|n| n.max(1).next_multiple_of(16))
        };
        let grouped = site.anchor.and_then(|(_, node)| {
            let count = |j: usize| site.graph.ty(*node.outputs.get(j)?).dims.get(1)?.as_const();
            Some(count(1)? != count(3)?)
        });
        let keys = site.anchor.and_then(|(_, node)| {
            let n = site.graph.ty(*node.outputs.get(3)?).dims.get(3)?.as_const()?;
            usize::try_from(n).ok()?.max(1).checked_next_multiple_of(16)
        });
        match (size(1), size(2)) {
            (Some(of_keys), Some(of_values)) => {
                Ok(Heads { of_keys, of_values, grouped: grouped != Some(false), keys })
            }
            _ => unsupported("a size of heads that is not known when the kernel is made"),
        }
    }

    /// Bytes of a line of keys and of values, with what keeps lines off each other's banks.
    fn pitches(&self, kind: Kind) -> (usize, usize) {
        (self.of_keys * kind.size + 16, self.of_values * kind.size + 16)
    }
}

impl Tile {
    fn threads(&self) -> usize {
        self.warps.0 * self.warps.1 * 32
    }

    /// Shared memory of a block in bytes.
    fn shared(&self, kind: Kind, heads: &Heads) -> usize {
        let (k, v) = heads.pitches(kind);
        let lines = self.all_keys(heads).unwrap_or(self.stages * self.keys);
        let stages = self.rows * k + lines * (k + v);
        let sums = self.warps.1 * self.rows * (heads.of_values + 6) * 4;
        stages.max(sums)
    }

    /// Keys that lie in shared memory from the beginning, if all do.
    fn all_keys(&self, heads: &Heads) -> Option<usize> {
        heads.keys.filter(|&n| self.beside.is_some() && n <= MOST_KEYS)
    }

    /// Parts that the keys are cut into, and keys of one.
    fn parts(&self, keys: usize) -> (usize, usize) {
        let blocks = keys.div_ceil(self.keys).max(1);
        let share = blocks.div_ceil(self.split);
        (blocks.div_ceil(share), share * self.keys)
    }
}

fn tactics(site: &Site<'_>, tile: &Tile) -> Result<Vec<Tactic>, BackendError> {
    unmoved(site)?;
    let kind = Kind::of(site)?;
    let attrs = site.op()?.attrs();
    if kind.size == 4 && !site.target.has("tf32") {
        return unsupported("tensor cores for f32 without TF32");
    }
    if site.wanted(3) {
        return unsupported("scores that are an output");
    }
    if is_positioned(site)? {
        return unsupported("windows, or causal masks that begin where lengths tell");
    }
    if attrs.float("scale").map_err(op_error)? < 0.0 || attrs.float("softcap").map_err(op_error)? < 0.0 {
        return unsupported("a negative scale or cap");
    }
    let heads = Heads::of(site)?;
    let largest = heads.of_keys.max(heads.of_values) * kind.size;
    if largest > tile.most {
        return unsupported(format!("heads of {largest} bytes, {} are possible", tile.most));
    }
    let is_output = site.wanted(1) || site.wanted(2);
    if tile.beside.is_some() && (is_output || tile.all_keys(&heads).is_none()) {
        return unsupported(format!(
            "keys that are an output, or more than {MOST_KEYS}, in shared memory at once"
        ));
    }
    let (needs, has) = (tile.shared(kind, &heads) as u64, site.target.numbers.get("shared_memory"));
    if has.is_some_and(|&has| has < needs) {
        return unsupported(format!("{needs} bytes of shared memory, there are fewer"));
    }
    Ok(vec![Tactic {
        estimate_ns: cost::estimate(site, tile, kind, &heads),
        // The keys and values of a cache are written together.
        leaves_unread: site.wanted(1) == site.wanted(2),
        ..Tactic::plain(tile.name)
    }])
}

fn source(site: &Site<'_>, tile: &Tile) -> Result<Body, BackendError> {
    let (kind, heads) = (Kind::of(site)?, Heads::of(site)?);
    let attrs = site.op()?.attrs();
    let has = |i| site.dtype(i).is_some();
    let capped = attrs.float("softcap").map_err(op_error)? > 0.0;
    let present = site.wanted(1) || site.wanted(2);
    let mut code = String::new();
    for (name, n) in [
        ("BM", tile.rows),
        ("BN", tile.keys),
        ("WARPS_M", tile.warps.0),
        ("WARPS_K", tile.warps.1),
        ("STAGES", tile.stages),
        ("SIZE", kind.size),
        ("DQ", heads.of_keys),
        ("DV", heads.of_values),
        ("ALL_KEYS", tile.all_keys(&heads).unwrap_or(0)),
    ] {
        code += &format!("static constexpr u32 {name} = {n}u;\n");
    }
    let causal = attrs.bool("causal").map_err(op_error)?;
    let split = tile.split > 1;
    let mask = site.dtype(MASK);
    let hidden = hidden_score(site)?.is_some();
    let wide = matches!(mask, Some(DType::F32 | DType::BF16));
    for (name, yes) in [
        ("CAUSAL", causal),
        ("CAPPED", capped),
        ("PAST", has(PAST)),
        ("PRESENT", present),
        ("GROUPED", heads.grouped),
        ("SPLIT", split),
    ] {
        code += &format!("static constexpr bool {name} = {yes};\n");
    }
    code += section(TEXT, "shape");
    code += section(INSTRUCTIONS, if kind.size == 4 { "wide" } else { "narrow" });
    code += section(INSTRUCTIONS, "instructions");
    code += section(TEXT, "flash");
    for (name, yes) in [
        ("whole", !split),
        ("split", split),
        ("mask", mask.is_some()),
        ("no_mask", mask.is_none()),
        ("bool_mask", mask == Some(DType::Bool)),
        ("float_mask", mask.is_some_and(|t| t != DType::Bool)),
        ("cap", capped),
        ("no_cap", !capped),
        ("present", present),
    ] {
        code += if yes { section(SCORES, name) } else { "" };
    }
    let given = |yes: bool, text: &'static str| if yes { text } else { "" };
    let mut bounds = given(mask.is_some(), "n = ::min(n, m(8u));").to_owned();
    bounds += given(has(NONPAD), " n = ::min(n, u32(::max(near6(b), 0)));");
    let flag = |name| attrs.bool(name).map_err(op_error);
    let empty = match (flag("zero_nan")?, flag("zero_empty")?) {
        (true, _) => "0u",
        (false, true) => "n == 0.0f ? 0u : 0x7fc00000u",
        (false, false) => "0x7fc00000u",
    };
    let threads = tile.threads();
    let block = tile.beside.map_or_else(|| threads.to_string(), |n| format!("{threads},{n}"));
    let code = fill(
        &code,
        &[
            ("BOUNDS", &bounds),
            ("PAST_BASES", if has(PAST) { PAST_BASES } else { NO_PAST }),
            ("KEEP_STAGE", given(present, KEEP)),
            ("MASK_CELL", mask.map_or("", cell)),
            (
                "MASK_OF",
                match mask {
                    Some(DType::F16) => "f16_to_f32",
                    Some(DType::BF16) => "bf16_to_f32",
                    _ => "",
                },
            ),
            ("EMPTY", empty),
            // Whether the mask is applied to scores, instead of being what they begin with.
            ("LATE", if hidden { "true" } else { "CAPPED" }),
            ("HIDDEN", if hidden { "mf(45u)" } else { "cf(0xff800000u)" }),
            ("MASK_WIDE", if wide { "true" } else { "false" }),
            ("FAR", if wide || hidden { "true" } else { "false" }),
            ("CELL", kind.cell),
            ("MMA_SHAPE", kind.shape),
            ("MMA_TYPE", kind.of),
            ("PAIR_TYPE", if kind.of == "f16" { "f16x2" } else { "bf16x2" }),
            ("THREADS_OF_BLOCK", &block),
        ],
    );
    let mut entries = vec![Entry::Free("flash")];
    entries.extend(split.then_some(Entry::Map(0)));
    let unwritten = (1..4).filter(|&j| j == 3 || !present).collect();
    let shared = tile.shared(kind, &heads) as u32;
    Ok(Body { code, entries, shared, scratch: split, unwritten, ..Body::default() })
}

const PAST_BASES: &str = "const CELL* pk = bx4 + m(30u) + u64(b) * m(31u) + u64(kv) * m(32u);
    const CELL* pv = bx5 + m(34u) + u64(b) * m(35u) + u64(kv) * m(36u);";
const NO_PAST: &str = "const CELL* pk = nullptr;\n    const CELL* pv = nullptr;";
const KEEP: &str =
    "if (tile == 0u) { keep(keys_of(stage), values_of(stage), first + step * BN, last, b, kv); }";

fn launch(cx: &Cx<'_>, tile: &Tile) -> Result<Vec<Launch>, BackendError> {
    let p = Problem::of(cx)?;
    let mut w = words([p.batch, p.heads, p.kv_heads, p.queries, p.keys, p.size, p.v_size, p.past])?;
    w.extend(words([p.mask_len].into_iter().chain(p.mask))?);
    let log2e = std::f32::consts::LOG2_E;
    // Scores that are capped have their scale when the mask is added to them.
    let (mask, power, cap) = match p.cap > 0.0 {
        true => (1.0, log2e, p.scale / p.cap),
        false => (1.0 / p.scale, p.scale * log2e, 0.0),
    };
    w.extend([mask, power, p.cap, cap].map(f32::to_bits));
    let per_copy =
        16 / cx.inputs.first().copied().flatten().map_or(2, |f| (f.ty.dtype.bits() as usize / 8).max(1));
    let aligned = |n: &usize| n.is_multiple_of(per_copy);
    let whole = |i: usize, size: usize| aligned(&size) && p.inputs[i].iter().all(aligned);
    let [of_batch, of_head, of_query, of_key] = p.mask;
    let flags = [
        whole(0, p.size),
        whole(1, p.size) && whole(3, p.size),
        whole(2, p.v_size) && whole(4, p.v_size),
        aligned(&p.v_size),
        of_key == 1,
        of_key == 1 && [p.mask_offset, of_batch, of_head, of_query].iter().all(|n| n.is_multiple_of(2)),
    ];
    w.push(flags.iter().enumerate().map(|(i, yes)| u32::from(*yes) << i).sum());
    w.extend(words(p.inputs.into_iter().flatten())?);
    let (of_batch, of_head, of_query) =
        if p.flat { (p.queries * p.heads, 1, p.heads) } else { (p.heads * p.queries, p.queries, 1) };
    let (parts, share) = tile.parts(p.keys);
    w.extend(words([of_batch, of_head, of_query, parts, share, p.mask_offset])?);
    // Scores of this size are finite as powers of 2, whatever their factor.
    let least = -1e38 / power.max(1.0);
    w.extend([least, (p.hidden * mask).max(least)].map(f32::to_bits));
    let rows = p.heads.checked_div(p.kv_heads).unwrap_or(0) * p.queries;
    let blocks = p.batch * p.kv_heads * rows.div_ceil(tile.rows).max(1) * parts;
    let flash = Launch::map(0, w.clone()).on(Grid::Groups(blocks as u64));
    if tile.split == 1 {
        return Ok(vec![flash]);
    }
    let bytes = (p.batch * p.heads * p.queries * parts * (p.v_size + 2) * 4) as u64;
    Ok(vec![flash.scratch(bytes), Launch::map(1, w).scratch(bytes)])
}
