//! Norms of groups of channels: long groups are divided among many blocks, whose statistics the next launch merges.

use crate::frame::element;
use crate::kernels::divisor::Divisor;
use crate::kernels::shape::{moving, traffic};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::norm::channels;
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views};
use kiln_ops::layout::Layout;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "group_norm.parts",
        ops: &["group_norm"],
        epilogue: true,
        views: Views::Whole,
        side_results: false,
        tactics: |site| tactics(site, "group_norm.parts", Layout::Linear),
        source: |site, _| {
            let entries = ["whole_group_8", "whole_group_1", "apply_to_group_8", "apply_to_group_1"];
            source(site, "norm/group_parts", &entries, &["part_of_group_8", "part_of_group_1"])
        },
        launch: parts,
    },
    Kernel {
        name: "group_norm.columns",
        ops: &["group_norm"],
        epilogue: true,
        views: Views::Whole,
        side_results: false,
        tactics: |site| tactics(site, "group_norm.columns", Layout::ChannelsLast),
        source: |site, _| {
            let silent =
                ["columns_of_image_8", "columns_of_image_1", "group_of_columns_8", "group_of_columns_1"];
            source(site, "norm/group_columns", &["apply_to_columns_8", "apply_to_columns_1"], &silent)
        },
        launch: columns,
    },
];

kiln_codegen::params! {
    /// Groups of channels that are one stretch of memory each.
    struct GroupPartsParams {
        /// Elements of a group.
        count: u32,
        /// Summand of the variance.
        epsilon: f32,
        /// Parts of a group, a block each.
        parts: u32,
        /// Elements of a part.
        part: u32,
        /// Groups of an image.
        groups: u32,
        /// Channels of a group.
        width: u32,
        /// Elements of a channel.
        inner: u32,
        /// Factor of divisions by that.
        inner_factor: u32,
        /// Shift of divisions by it.
        inner_shift: u32,
    }
}

kiln_codegen::params! {
    /// Groups of channels of images whose channels are last.
    struct GroupColumnsParams {
        /// Pixels of an image.
        pixels: u32,
        /// Channels of an image.
        channels: u32,
        /// Summand of the variance.
        epsilon: f32,
        /// Groups of an image.
        groups: u32,
        /// Channels of a group.
        width: u32,
        /// Vectors of a pixel.
        columns: u32,
        /// Blocks beside each other.
        side: u32,
        /// Threads beside each other, a vector each.
        wide: u32,
        /// Pixels that a block has at once.
        high: u32,
        /// Parts of an image.
        parts: u32,
        /// Pixels of a part.
        part: u32,
        /// Groups that a block has channels of, at most.
        pieces: u32,
        /// Position in scratch memory of the statistics of groups.
        places: u32,
    }
}

/// Threads of a block.
const THREADS: usize = 256;
/// Blocks that a large device runs at once.
const BLOCKS: usize = 528;
/// Groups that keep it busy with a block each.
const MANY: usize = 256;
/// Elements of a group that are worth several blocks.
const LONG: usize = 16_384;
/// Elements of a vector.
const WIDTH: usize = 8;

fn tactics(site: &Site<'_>, name: &str, layout: Layout) -> Result<Vec<Tactic>, BackendError> {
    let t = site.first_dtype();
    if Layout::of(site.op()?.attrs()) != layout {
        return unsupported("groups of channels in another layout");
    }
    if t.bits() < 8 || !t.is_float() {
        return unsupported(format!("vectors of {t} as groups of channels"));
    }
    let estimate_ns = traffic(site).map(|bytes| moving(site.target, bytes, 1.6) + 2000.0);
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
}

fn source(
    site: &Site<'_>,
    file: &'static str,
    entries: &[&'static str],
    silent: &[&'static str],
) -> Result<Body, BackendError> {
    let block = |name: &&'static str| Entry::blocks(name, THREADS as u32);
    let all = entries.iter().map(block).chain(silent.iter().map(|n| block(n).silent())).collect();
    let body = Body::of(file, all).with(element("Cell", "wide", site.first_dtype()));
    Ok(Body { scratch: true, ..body })
}

/// Sizes of a launch.
struct Groups {
    images: usize,
    channels: usize,
    /// Elements of a channel of an image.
    inner: usize,
    /// Groups of an image.
    groups: usize,
    epsilon: f32,
}

impl Groups {
    /// `None` where there is nothing to normalize.
    fn of(cx: &Cx<'_>) -> Result<Option<Groups>, BackendError> {
        let (x, _) = channels(cx)?;
        let attrs = cx.op()?.attrs();
        let groups = match attrs.int("groups").map_err(op_error)? {
            0 => x[1],
            n => n as usize,
        };
        if x.contains(&0) {
            return Ok(None);
        }
        let epsilon = attrs.float("epsilon").map_err(op_error)? as f32;
        Ok(Some(Groups { images: x[0], channels: x[1], inner: x[2..].iter().product(), groups, epsilon }))
    }

    fn width(&self) -> usize {
        self.channels / self.groups
    }
}

fn parts(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let Some(g) = Groups::of(cx)? else { return Ok(Vec::new()) };
    let (count, rows) = (g.width() * g.inner, g.images * g.groups);
    let vectors = count.is_multiple_of(WIDTH);
    let least = THREADS * WIDTH;
    let inner = Divisor::new(g.inner, count)?;
    let parts = (BLOCKS / rows).min(count.div_ceil(least)).max(1);
    let part = count.div_ceil(parts).next_multiple_of(WIDTH);
    let parts = count.div_ceil(part);
    let params = GroupPartsParams {
        count,
        epsilon: g.epsilon,
        parts,
        part,
        groups: g.groups,
        width: g.width(),
        inner: g.inner,
        inner_factor: inner.factor,
        inner_shift: inner.shift,
    };
    let (w, odd) = (params.words()?, usize::from(!vectors));
    if rows >= MANY || count <= LONG {
        return Ok(vec![Launch::map(odd, w).on(Grid::Groups(rows as u64))]);
    }
    let scratch = (rows * parts * 8) as u64;
    let first = Launch::map(4 + odd, w.clone()).on(Grid::Groups((rows * parts) as u64));
    let second = Launch::map(2 + odd, w).on(Grid::Groups((rows * parts) as u64));
    Ok(vec![first.scratch(scratch), second.scratch(scratch)])
}

fn columns(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let Some(g) = Groups::of(cx)? else { return Ok(Vec::new()) };
    let vectors = g.channels.is_multiple_of(WIDTH);
    let columns = if vectors { g.channels / WIDTH } else { g.channels };
    let side = columns.div_ceil(THREADS);
    let wide = columns.div_ceil(side);
    let high = THREADS / wide;
    let parts = (BLOCKS / (g.images * side)).min(g.inner.div_ceil(high * 4)).max(1);
    let part = g.inner.div_ceil(parts);
    let parts = g.inner.div_ceil(part);
    // Channels of a block begin and end within groups.
    let block = wide * if vectors { WIDTH } else { 1 };
    let pieces = (block.div_ceil(g.width()) + 1).min(g.groups);
    let places = g.images * parts * side * pieces * 2;
    let params = GroupColumnsParams {
        pixels: g.inner,
        channels: g.channels,
        epsilon: g.epsilon,
        groups: g.groups,
        width: g.width(),
        columns,
        side,
        wide,
        high,
        parts,
        part,
        pieces,
        places,
    };
    let w = params.words()?;
    let odd = usize::from(!vectors);
    let scratch = ((places + g.images * g.groups * 2) * 4) as u64;
    let blocks = Grid::Groups((g.images * side * parts) as u64);
    let all = [
        Launch::map(2 + odd, w.clone()).on(blocks),
        Launch::map(4 + odd, w.clone()).on(Grid::Groups((g.images * g.groups) as u64)),
        Launch::map(odd, w).on(blocks),
    ];
    Ok(all.into_iter().map(|l| l.scratch(scratch)).collect())
}
