//! Tensor maps of attention: where queries, keys, values and a mask lie for copies of whole boxes.

use super::tile::{AT_ONCE_BYTES, Heads, MASK, Tile, element_type};
use crate::kernels::wgmma::STAGE_BYTES;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::attention::Problem;
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::views::View;
use kiln_codegen::{Dialect, Map};
use kiln_ir::{Fact, Node, ValueId};

/// Bytes of an element: copies of boxes are for types of 16 bits alone.
pub const SIZE: usize = 2;
/// Elements whose multiples strides have to be.
const UNIT: usize = 16 / SIZE;
/// Components of a box.
const WIDTH: usize = STAGE_BYTES / SIZE;
/// The input that is the past keys, and the one that is the number of keys that are not padding.
const ELSEWHERE: [usize; 2] = [4, 6];

/// The maps of a problem.
pub struct Boxes {
    /// Maps of queries, keys and values, and of the mask if that is copied by boxes.
    pub maps: Vec<Map>,
    /// The number of the first head in the maps of queries, keys and values.
    pub first: [usize; 3],
    /// Whether all queries share a line of the mask.
    pub mask_of_keys: bool,
}

impl Boxes {
    /// The maps of a tile, or why there are none. `mask`: whether the mask has the type of the queries.
    pub fn of(p: &Problem, tile: &Tile, mask: bool) -> Result<Boxes, BackendError> {
        let mut maps = Vec::new();
        let mut first = [0; 3];
        let operands = [
            (p.heads, p.queries, p.size, tile.rows),
            (p.kv_heads, p.keys, p.size, tile.keys),
            (p.kv_heads, p.keys, p.v_size, tile.keys),
        ];
        for (i, (heads, lines, components, rows)) in operands.into_iter().enumerate() {
            let [offset, batch, head, line] = p.inputs[i];
            // A single head of several is where the offset says.
            let head = if heads == 1 && offset > 0 { offset } else { head };
            if offset > 0 && (head == 0 || !offset.is_multiple_of(head)) {
                return unsupported("boxes of heads that begin between those of a wider tensor");
            }
            first[i] = offset.checked_div(head).unwrap_or(0);
            let sizes = [components, lines, first[i] + heads, p.batch];
            maps.push(map(i, sizes, [line, head, batch], rows)?);
        }
        if mask {
            maps.extend(mask_map(p, tile).ok());
        }
        Ok(Boxes { maps, first, mask_of_keys: p.mask[2] == 0 })
    }

    /// The maps of a site whose sizes are all known.
    pub fn at(site: &Site<'_>, tile: &Tile) -> Result<Boxes, BackendError> {
        let t = element_type(site)?;
        if t.bits() as usize != SIZE * 8 || ELSEWHERE.iter().any(|&i| site.dtype(i).is_some()) {
            return unsupported("boxes of elements of 32 bits, of a past, or of padded keys");
        }
        let heads = Heads::of(site)?;
        if heads.of_keys.max(heads.of_values) * heads.size > tile.most {
            return unsupported("boxes of larger heads than the tile's");
        }
        if heads.of_values.div_ceil(WIDTH) > heads.of_keys.div_ceil(WIDTH) {
            return unsupported("boxes of values that need more room than queries");
        }
        let p = problem(site)?;
        let boxes = Boxes::of(&p, tile, site.dtype(MASK) == Some(t))?;
        if !worth(&p, tile, site.dtype(MASK).is_some()) {
            return unsupported("a tile that others are always ahead of, for this size");
        }
        Ok(boxes)
    }

    /// Whether the mask is copied by boxes.
    pub fn masked(&self) -> bool {
        self.maps.len() > 3
    }

    /// The maps of a launch.
    pub fn launched(cx: &Cx<'_>, p: &Problem, tile: &Tile) -> Result<Boxes, BackendError> {
        let types = [0, MASK].map(|i| cx.inputs.get(i).copied().flatten().map(|f| f.ty.dtype));
        Boxes::of(p, tile, types[1].is_some() && types[0] == types[1])
    }
}

/// Tiles of 128 rows from which on smaller ones are never ahead: two for each multiprocessor.
const MANY_TILES: usize = 264;

/// Whether a tile may be the fastest one of those that copy boxes: each size of heads has a few.
fn worth(p: &Problem, tile: &Tile, mask: bool) -> bool {
    let (bytes, wide) = (p.size.max(p.v_size) * SIZE, p.size.max(p.v_size) > 128);
    let tiles = p.batch * p.heads * p.queries.div_ceil(128);
    match (tile.rows, tile.keys) {
        _ if tile.at_once.is_some() => bytes > AT_ONCE_BYTES || tile.most == AT_ONCE_BYTES,
        (192, _) => p.queries >= 2 * tile.rows && !mask,
        (128, 176) => !p.causal && !mask && p.keys > 3 * tile.keys,
        (128, 80) => wide && !mask,
        (128, 64) => wide || mask,
        (64, _) => mask || tiles < MANY_TILES,
        _ => !wide,
    }
}

/// The map of an input with these numbers of components, lines, heads and batch entries, and elements from one to the next.
fn map(input: usize, sizes: [usize; 4], steps: [usize; 3], rows: usize) -> Result<Map, BackendError> {
    if sizes.contains(&0) {
        return unsupported("boxes of nothing");
    }
    let mut strides = Vec::new();
    for (&n, step) in sizes[1..].iter().zip(steps) {
        if n > 1 && (step == 0 || !step.is_multiple_of(UNIT)) {
            return unsupported("boxes of lines that are not multiples of 16 bytes apart");
        }
        strides.push(if n > 1 { step } else { sizes[0].next_multiple_of(UNIT) } as u64);
    }
    Ok(Map {
        input,
        size: SIZE,
        dims: sizes.map(|n| n as u64).to_vec(),
        strides,
        block: vec![WIDTH as u32, rows as u32, 1, 1],
        windows: None,
        scratch: false,
    })
}

/// The map of a mask with a line for each query.
fn mask_map(p: &Problem, tile: &Tile) -> Result<Map, BackendError> {
    let [batch, head, query, key] = p.mask;
    let each = |step: usize, n: usize| if step > 0 { n } else { 1 };
    if p.mask_offset > 0
        || p.mask_len == 0
        || (p.mask_len > 1 && key != 1)
        || !tile.keys.is_multiple_of(WIDTH)
    {
        return unsupported("boxes of a mask that is a part of another, or whose keys are apart");
    }
    if query == 0 && p.queries > 1 {
        return unsupported("boxes of a mask whose line is that of all queries");
    }
    map(
        MASK,
        [p.mask_len, p.queries, each(head, p.heads), each(batch, p.batch)],
        [query, head, batch],
        tile.rows,
    )
}

/// The problem of a site, as its launch would have it.
fn problem(site: &Site<'_>) -> Result<Problem, BackendError> {
    let Some((_, anchor)) = site.anchor else { return unsupported("a region without an anchor") };
    let fact = |v: ValueId| &site.graph.value(v).fact;
    let all: Vec<&Node> = site.graph.nodes().map(|(_, n)| n).collect();
    let known =
        anchor.inputs.iter().flatten().chain(&anchor.outputs).all(|&v| fact(v).ty.static_dims().is_some());
    if !known {
        return unsupported("boxes of tensors whose shapes are not known");
    }
    let views = (0..anchor.inputs.len()).map(|i| {
        let moves = site.moves.get(i).map_or(&[][..], Vec::as_slice);
        view(&all, moves, &fact).transpose()
    });
    let tactic = Tactic::plain("");
    let dialect: &'static Dialect = site.dialect;
    Problem::of(&Cx {
        op: Some(&anchor.op),
        tactic: &tactic,
        inputs: anchor.inputs.iter().map(|v| v.map(fact)).collect(),
        outputs: anchor.outputs.iter().map(|&v| fact(v)).collect(),
        fused: false,
        side: None,
        holds: &|_| false,
        views: views.collect::<Result<_, _>>()?,
        wanted: Vec::new(),
        rounds: usize::MAX,
        lanes: 1,
        dialect,
        missed: Default::default(),
    })
}

/// The view of an input behind moves, at these positions among the nodes; none where there are no moves.
fn view<'a>(
    all: &[&'a Node],
    moves: &[usize],
    fact: &dyn Fn(ValueId) -> &'a Fact,
) -> Option<Result<View, BackendError>> {
    let shape = |v: Option<ValueId>| {
        let known = v.and_then(|v| fact(v).ty.static_dims());
        known.map_or_else(|| unsupported("boxes of tensors whose shapes are not known"), Ok)
    };
    let first = all.get(*moves.first()?)?;
    let whole = shape(first.inputs.first().copied().flatten()).map(|s| View::whole(&s));
    Some(moves.iter().filter_map(|&at| all.get(at)).fold(whole, |view, node| {
        let facts: Vec<Option<&Fact>> = node.inputs.iter().map(|v| v.map(fact)).collect();
        view?.through(&node.op, &facts, &shape(node.outputs.first().copied())?)
    }))
}
