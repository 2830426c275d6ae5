//! Convolutions with few channels a group by `mma.sync`: several groups a block, whose part of the image is kept in shared memory.

use super::{Geometry, bias, size};
use crate::kernels::constants::structure;
use crate::kernels::cost::{Device, LAUNCH_NS};
use crate::kernels::mma::Kind;
use crate::kernels::shape::{input, moving, output, traffic};
use crate::kernels::wgmma::operands::element_bytes;
use crate::tiles;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Entry, Grid, Launch};
use kiln_ir::Op;
use kiln_ops::layout::Layout;

pub mod table;

kiln_codegen::params! {
    /// A convolution with few channels a group, by rectangles of windows.
    struct GroupsMmaParams {
        /// Lines of the image.
        height: u32,
        /// Elements of a line of it.
        width: u32,
        /// Windows along y.
        out_height: u32,
        /// Windows along x.
        out_width: u32,
        /// Channels of the image.
        channels: u32,
        /// Output channels.
        outputs: u32,
        /// Elements from one window to the next along y.
        stride_y: i32,
        /// Elements from one window to the next along x.
        stride_x: i32,
        /// Elements from one tap to the next along y.
        dilation_y: u32,
        /// Elements from one tap to the next along x.
        dilation_x: u32,
        /// Padding before the first element along y.
        pad_y: i32,
        /// Padding before the first element along x.
        pad_x: i32,
        /// Windows of a block along y.
        tile_y: u32,
        /// Windows of a block along x.
        tile_x: u32,
        /// Blocks along y.
        tiles_y: u32,
        /// Blocks along x.
        tiles_x: u32,
        /// Pixels of a block along y.
        halo_y: u32,
        /// Pixels of a block along x.
        halo_x: u32,
        /// Blocks that share the output channels of a window.
        parts: u32,
    }
}

/// Bytes of the channels that a block reads of a pixel, unless a bundle has more.
const PIXEL_BYTES: usize = 128;
/// The most output channels of a block, and the most groups of a bundle.
const MOST_OUTPUTS: usize = 64;
const MOST_BUNDLE: usize = 4;
/// The most bytes that a block shares, so that a multiprocessor has room for two.
const MOST_BYTES: usize = 112 << 10;

/// Warps of a block, tiles of 16 windows of each, and bytes of the image that have room.
#[derive(Debug)]
pub struct Row {
    pub warps: usize,
    pub parts: usize,
    pub image: usize,
}

/// Numbers that the text depends on.
struct Form {
    /// Bytes of an element.
    size: usize,
    /// Channels, and output channels of a group.
    channels: usize,
    outputs: usize,
    /// Groups of a bundle, and bundles of a block.
    bundle: usize,
    together: usize,
    taps: [usize; 2],
    strides: [usize; 2],
    dilations: [usize; 2],
}

/// The last two of the numbers of each spatial dimension, 1 where there is none.
fn last_two(all: &[i64], rank: usize) -> [usize; 2] {
    let own = |from_end: usize| {
        let at = rank.checked_sub(from_end)?;
        Some(all.get(at).map_or(1, |&n| size(n)))
    };
    [own(2).unwrap_or(1), own(1).unwrap_or(1)]
}

impl Form {
    /// The form of a site's convolution; refuses those without groups, or whose groups fill no vectors.
    fn of(site: &Site<'_>, kind: Kind) -> Result<Form, BackendError> {
        let op = site.op()?;
        if Layout::of(op.attrs()) != Layout::ChannelsLast || !matches!(site.rank(0), Some(3 | 4)) {
            return unsupported(
                "groups on tensor cores of images without channels last, or of three dimensions",
            );
        }
        match input(site, 1).and_then(|w| w.static_dims()) {
            Some(weights) => Form::new(op, &weights, kind.size),
            None => unsupported("groups with weights of unknown shape"),
        }
    }

    /// The form of a convolution by weights [outputs, taps.., channels] of so many bytes an element.
    fn new(op: &Op, weights: &[usize], size_of: usize) -> Result<Form, BackendError> {
        let list = |name: &str| op.attrs().ints(name).map_err(op_error);
        let groups = size(op.attrs().int("groups").map_err(op_error)?);
        let &[all, ref kernel @ .., channels] = weights else {
            return unsupported("groups with weights of no channels");
        };
        let outputs = all / groups.max(1);
        if groups < 2 || channels * outputs * kernel.iter().product::<usize>() == 0 {
            return unsupported("convolutions without groups, or without channels");
        }
        let fits = |b: &usize| {
            groups.is_multiple_of(*b)
                && (b * channels * size_of).is_multiple_of(16)
                && (b * outputs).is_multiple_of(8)
        };
        let Some(bundle) = [1, 2, MOST_BUNDLE].into_iter().find(fits) else {
            return unsupported(format!("groups of {channels} channels to {outputs}, which fill no vectors"));
        };
        let most = (PIXEL_BYTES / (bundle * channels * size_of)).min(MOST_OUTPUTS / (bundle * outputs));
        let bundles = groups / bundle;
        let together = (1..=most.max(1)).rev().find(|n| bundles.is_multiple_of(*n)).unwrap_or(1);
        if together * bundle * outputs > MOST_OUTPUTS {
            return unsupported(format!("{outputs} output channels of a group in one block"));
        }
        let rank = kernel.len();
        let kernel: Vec<i64> = kernel.iter().map(|&n| n as i64).collect();
        Ok(Form {
            size: size_of,
            channels,
            outputs,
            bundle,
            together,
            taps: last_two(&kernel, rank),
            strides: last_two(list("strides")?, rank),
            dilations: last_two(list("dilations")?, rank),
        })
    }

    /// Vectors of 16 bytes under a tap of a bundle.
    fn vectors(&self) -> usize {
        self.bundle * self.channels * self.size / 16
    }

    fn steps(&self) -> usize {
        (self.taps[0] * self.taps[1] * self.vectors()).div_ceil(2)
    }

    /// Output channels of a block.
    fn all(&self) -> usize {
        self.together * self.bundle * self.outputs
    }

    /// Bytes from one pixel to the next, and those of weights with the places of vectors.
    fn pitch(&self) -> usize {
        ((self.together * self.vectors()) | 1) * 16
    }

    fn weights(&self) -> usize {
        self.all() * ((self.steps() * 2) | 1) * 16 + self.steps() * 8
    }

    /// Pixels along an axis under so many windows.
    fn reach(&self, axis: usize, windows: usize) -> usize {
        (windows - 1) * self.strides[axis] + (self.taps[axis] - 1) * self.dilations[axis] + 1
    }
}

impl Row {
    /// The row as one of the list of all.
    pub fn listed(&self, tactic: &'static str) -> tiles::Tile {
        tiles::Tile {
            tactic,
            rows: self.windows(),
            columns: MOST_OUTPUTS,
            threads: self.warps * 32,
            stages: Some(1),
            stage_bytes: None,
            split: 1,
            beside: None,
        }
    }

    /// Windows of a block.
    fn windows(&self) -> usize {
        self.warps * self.parts * 16
    }

    /// Pixels that have room.
    fn halo(&self, f: &Form) -> usize {
        self.image / f.pitch()
    }

    /// Shared memory of a block in bytes: operands, then the sums of 16 windows of every warp.
    fn shared(&self, f: &Form) -> usize {
        let sums = self.warps * 16 * (f.all() + 4) * 4;
        (self.halo(f) * f.pitch() + f.weights()).max(sums)
    }

    /// Windows of a block along y and x, of those of an image: as few blocks as there can be, then as few pixels.
    fn tile(&self, f: &Form, high: usize, wide: usize) -> Option<(usize, usize)> {
        let most = |x: usize| -> Option<usize> {
            let lines = self.halo(f) / f.reach(1, x);
            let reach = f.reach(0, 1);
            let y = (lines.checked_sub(reach)? / f.strides[0] + 1).min(self.windows() / x).min(high);
            Some(high.div_ceil(high.div_ceil(y)))
        };
        let cost = |y: usize, x: usize| {
            let blocks = high.div_ceil(y) * wide.div_ceil(x);
            (blocks, blocks * f.reach(0, y) * f.reach(1, x))
        };
        let all = (1..=wide.min(self.windows())).filter_map(|x| Some((most(x)?, x)));
        all.min_by_key(|&(y, x)| cost(y, x))
    }

    /// The nanoseconds that a convolution is expected to take.
    fn estimate(&self, site: &Site<'_>, f: &Form) -> Option<f64> {
        /// Clocks of a block from its first copy to its last store.
        const BLOCK_CLOCKS: f64 = 5000.0;
        /// Clocks of a multiprocessor for an instruction of a warp, and bytes that it gets in one.
        const INSTRUCTION: f64 = 0.45;
        const INTAKE: f64 = 40.0;
        let device = Device::of(site.target);
        let dims = output(site, 0)?.static_dims()?;
        let [images, ref spatial @ .., outputs] = dims[..] else { return None };
        let [high, wide] = last_two(&spatial.iter().map(|&n| n as i64).collect::<Vec<_>>(), spatial.len());
        let (y, x) = self.tile(f, high, wide)?;
        let blocks = (images * high.div_ceil(y) * wide.div_ceil(x) * (outputs / f.all())) as f64;
        let tiles = (f.bundle * f.outputs / 8) as f64;
        let of_step = f.together as f64 * (self.parts as f64 * (2.0 + tiles * 2.0) + tiles);
        let busy = self.warps as f64 * (f.steps() as f64 * of_step + 100.0 * self.parts as f64) * INSTRUCTION;
        let bytes = f.reach(0, y) * f.reach(1, x) * f.pitch() + f.weights();
        let busy = busy + bytes as f64 / INTAKE;
        let room =
            (220.0 * 1024.0 / self.shared(f) as f64).min(2048.0 / (self.warps * 32) as f64).floor().max(1.0);
        let waves = (blocks / device.sm_count / room).ceil();
        let clocks = (blocks / device.sm_count * busy).max(waves * BLOCK_CLOCKS) + BLOCK_CLOCKS;
        Some((LAUNCH_NS + clocks / device.ghz).max(moving(site.target, traffic(site)?, 1.3)))
    }
}

/// Whether a kernel of the table takes a side result.
pub const fn side_results(_: &Row) -> bool {
    false
}

/// The tactic of a row of the table.
pub fn tactics(site: &Site<'_>, name: &str, row: &Row) -> Result<Vec<Tactic>, BackendError> {
    let form = Form::of(site, Kind::of(site)?)?;
    if form.reach(0, 1) * form.reach(1, 1) > row.halo(&form) {
        return unsupported(format!("windows that span more than {} pixels", row.halo(&form)));
    }
    let (needs, has) = (row.shared(&form), site.target.numbers.get("shared_memory"));
    if needs > MOST_BYTES || has.is_some_and(|&has| has < needs as u64) {
        return unsupported(format!("{needs} bytes of shared memory for groups on tensor cores"));
    }
    Ok(vec![Tactic { estimate_ns: row.estimate(site, &form), ..Tactic::plain(name) }])
}

/// Returns the body: kernel files, constants and the entry point.
pub fn source(site: &Site<'_>, row: &Row) -> Result<Body, BackendError> {
    let kind = Kind::of_types(site)?;
    let f = Form::of(site, kind)?;
    let numbers = [
        ("CHANNELS", f.channels),
        ("OUTPUTS", f.outputs),
        ("BUNDLE", f.bundle),
        ("TOGETHER", f.together),
        ("TAPS_Y", f.taps[0]),
        ("TAPS_X", f.taps[1]),
        ("WARPS", row.warps),
        ("PARTS", row.parts),
        ("HALO", row.halo(&f)),
    ];
    let mma = format!("    typedef {} Mma;\n", kind.instruction());
    let code = structure("Groups", &numbers, &[], &mma) + &bias(site);
    let entries = vec![Entry::blocks("conv_groups", (row.warps * 32) as u32)];
    Ok(Body { shared: row.shared(&f) as u32, ..Body::of("conv/mma_groups", entries) }.with(code))
}

/// The launch of a rectangle of windows a block.
pub fn launch(cx: &Cx<'_>, row: &Row) -> Result<Vec<Launch>, BackendError> {
    let (g, images) = (Geometry::of(cx)?, cx.shape(0)?.first().copied().unwrap_or(0));
    let [_, y, x] = &g.axes;
    let f = Form::new(cx.op()?, &cx.shape(1)?, element_bytes(cx))?;
    let (high, wide) = (size(y.output), size(x.output));
    let Some((tile_y, tile_x)) = row.tile(&f, high, wide).filter(|_| high * wide * images > 0) else {
        return Ok(Vec::new());
    };
    let (tiles_y, tiles_x, parts) = (high.div_ceil(tile_y), wide.div_ceil(tile_x), g.outputs / f.all());
    let params = GroupsMmaParams {
        height: size(y.input),
        width: size(x.input),
        out_height: high,
        out_width: wide,
        channels: g.channels,
        outputs: g.outputs,
        stride_y: y.stride,
        stride_x: x.stride,
        dilation_y: f.dilations[0],
        dilation_x: f.dilations[1],
        pad_y: y.begin,
        pad_x: x.begin,
        tile_y,
        tile_x,
        tiles_y,
        tiles_x,
        halo_y: f.reach(0, tile_y),
        halo_x: f.reach(1, tile_x),
        parts,
    };
    let blocks = images * tiles_y * tiles_x * parts;
    Ok(vec![Launch::map(0, params.words()?).on(Grid::Groups(blocks as u64))])
}
