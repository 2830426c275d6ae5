//! Convolutions on tensor cores, images with channels last.

pub mod depthwise;

use super::cost;
use super::mma::{Kind, TILES, Tile};
use crate::tiles;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::template::sections;
use kiln_codegen::window::conv_words;
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, word};
use kiln_ops::layout::Layout;

const TEXT: &str = include_str!("../../../../kernels/mma/conv.cuh");

const NAMES: [&str; TILES.len()] = [
    "conv.mma_256x128",
    "conv.mma_128x128",
    "conv.mma_128x128_w8",
    "conv.mma_128x64",
    "conv.mma_64x128",
    "conv.mma_64x64",
    "conv.mma_32x64",
    "conv.mma_16x128",
    "conv.mma_128x256",
];

pub const KERNELS: &[Kernel] = kernels_of!(mma[0 1 2 3 4 5 6 7 8]);

const fn mma<const T: usize>() -> Kernel {
    Kernel {
        name: NAMES[T],
        ops: &["conv"],
        epilogue: true,
        tactics: |site| tactics(site, NAMES[T], &TILES[T]),
        source: |site, _| source(site, &TILES[T]),
        launch: |cx| launch(cx, &TILES[T]),
    }
}

/// The table as a list.
pub fn tiles() -> Vec<tiles::Tile> {
    TILES.iter().zip(NAMES).map(|(t, name)| t.listed(name, 1)).collect()
}

const ALONG: (bool, bool) = (false, false);
/// A group of fewer output channels leaves most of a tile empty.
const LEAST_OUTPUTS: i64 = 8;

/// Channels and output channels of a group, which the weights tell.
pub fn of_group(site: &Site<'_>) -> Option<(i64, i64)> {
    let (_, n) = site.anchor?;
    let dims = &site.graph.ty((*n.inputs.get(1)?)?).dims;
    let groups = n.op.attrs().int("groups").ok()?.max(1);
    Some((dims.last()?.as_const()?, dims.first()?.as_const()? / groups))
}

fn tactics(site: &Site<'_>, name: &str, tile: &Tile) -> Result<Vec<Tactic>, BackendError> {
    if Layout::of(site.op()?.attrs()) != Layout::ChannelsLast {
        return unsupported("convolutions on tensor cores of images without channels last");
    }
    let kind = Kind::of(site)?;
    tile.check(site, kind, ALONG)?;
    match of_group(site) {
        None => return unsupported("convolutions on tensor cores with weights of unknown shape"),
        Some((0, _)) => return unsupported("convolutions without channels"),
        Some((_, m)) if m < LEAST_OUTPUTS => {
            return unsupported(format!("tiles for fewer than {LEAST_OUTPUTS} output channels of a group"));
        }
        _ => {}
    }
    let estimate_ns = cost::Product::of(site).map(|p| p.by_mma(site.target, tile, kind, 1));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
}

/// The i-th of eight values of the bias, in C++.
pub fn bias_value(site: &Site<'_>) -> String {
    site.dtype(2).map_or(String::new(), |t| crate::frame::load(t, "p.v", "i"))
}

/// Entries of a table of all taps, in whole stages, if it is small and the taps lie in a plane not far from each other.
fn table(site: &Site<'_>, tile: &Tile, kind: Kind) -> Option<usize> {
    const MOST: i64 = 1024;
    let (_, n) = site.anchor?;
    let weights = &site.graph.ty((*n.inputs.get(1)?)?).dims;
    let depth = weights.get(1..)?.iter().try_fold(1i64, |p, d| p.checked_mul(d.as_const()?))?;
    let far = n.op.attrs().ints("dilations").ok()?.iter().any(|&d| d > 8);
    let fits = depth <= MOST && !far && site.rank(0)? < 5;
    fits.then(|| (depth as usize).next_multiple_of(tile.bytes / kind.size))
}

fn source(site: &Site<'_>, tile: &Tile) -> Result<Body, BackendError> {
    let kind = Kind::of_types(site)?;
    let channels = of_group(site).map_or(1, |(c, _)| c);
    let table = table(site, tile, kind);
    let loader = match table {
        _ if channels % (16 / kind.size) as i64 == 0 => "vectors",
        Some(_) => "table",
        None => "elements",
    };
    let table = format!("{}u", table.unwrap_or(0));
    let bias = if site.dtype(2).is_some() { "bias" } else { "no_bias" };
    let deep = if site.rank(0) == Some(5) { "true" } else { "false" };
    let cell = |i| site.dtype(i).map_or("u8", crate::frame::cell);
    let value = bias_value(site);
    let pairs = [
        ("DEEP", deep),
        ("TABLE", &*table),
        ("CELL_A", cell(0)),
        ("CELL_B", cell(1)),
        ("CELL_C", cell(2)),
        ("BIAS_VALUE", &value),
    ];
    let code = tile.source(kind, ALONG, &sections(TEXT, &["conv", loader, "entry", bias]), &pairs);
    let shared = tile.shared(kind, ALONG) as u32;
    Ok(Body { code, entries: vec![Entry::Free("conv")], shared, ..Body::default() })
}

fn launch(cx: &Cx<'_>, tile: &Tile) -> Result<Vec<Launch>, BackendError> {
    let (mut words, y) = (conv_words(cx)?, cx.out_shape(0)?);
    let volume: usize = cx.shape(0)?.iter().product();
    if i32::try_from(volume).is_err() {
        return unsupported(format!("a convolution of an image with {volume} elements"));
    }
    let (_, outputs) = (word(volume)?, y.last().copied().unwrap_or(0));
    let windows: usize = y[..y.len().saturating_sub(1)].iter().product();
    words.push(word(windows)?);
    let &[.., per_group, _] = &words[..] else {
        return Err(BackendError::Internal("a convolution without words".into()));
    };
    let per_group = per_group as usize;
    let tiles = windows.div_ceil(tile.m) * per_group.div_ceil(tile.n) * (outputs / per_group.max(1));
    Ok(vec![Launch::map(0, words).on(Grid::Groups(tiles as u64))])
}
