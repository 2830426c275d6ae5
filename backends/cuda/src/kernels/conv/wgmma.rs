//! Convolutions of images with channels last by `wgmma`, of one to three dimensions.

use super::{Geometry, of_group, size};
use crate::kernels::constants::constants;
use crate::kernels::cost::Product;
use crate::kernels::mma::Kind;
use crate::kernels::wgmma::operands::{Lies, element_bytes, spread_map};
use crate::kernels::wgmma::{Files, STAGE_BYTES, Tile, has_wgmma};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Launch, Map, Windows};
use kiln_ir::Dim;
use kiln_ops::layout::Layout;
use std::ops::Range;

kiln_codegen::params! {
    /// A convolution whose windows TMA copies. Images of three dimensions are planes that follow each other.
    pub struct WgmmaConvParams {
        /// Windows along y.
        out_height: u32,
        /// Windows along x.
        out_width: u32,
        /// Taps of a window.
        taps: u32,
        /// Taps of a window along y.
        taps_y: u32,
        /// Taps of a window along x.
        taps_x: u32,
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
        /// Channels of the image.
        channels: u32,
        /// Output channels.
        outputs: u32,
        /// Windows of all images, or of a plane of the result.
        windows: u32,
        /// Results of all images.
        results: u32,
        /// Whether the weights are constant.
        constant: u32,
        /// Planes of an image.
        depth: u32,
        /// Planes of its result.
        out_depth: u32,
        /// Planes from one window to the next.
        stride_z: i32,
        /// Planes from one tap to the next.
        dilation_z: u32,
        /// Padding before the first plane.
        pad_z: i32,
        /// Planes of all images.
        planes: u32,
    }
}

/// The parameters of a convolution of so many images, whose windows are counted together or by planes.
pub fn params(cx: &Cx<'_>, g: &Geometry, images: usize) -> Result<WgmmaConvParams, BackendError> {
    let [z, y, x] = &g.axes;
    let results = images * size(z.output) * size(y.output) * size(x.output) * g.outputs;
    let windows = size(y.output) * size(x.output) * if deep(cx.shape(0)?.len()) { 1 } else { images };
    Ok(WgmmaConvParams {
        out_height: size(y.output),
        out_width: size(x.output),
        taps: size(z.kernel) * size(y.kernel) * size(x.kernel),
        taps_y: size(y.kernel),
        taps_x: size(x.kernel),
        stride_y: y.stride,
        stride_x: x.stride,
        dilation_y: size(y.dilation),
        dilation_x: size(x.dilation),
        pad_y: y.begin,
        pad_x: x.begin,
        channels: g.channels,
        outputs: g.outputs,
        windows,
        results,
        constant: cx.constant(1),
        depth: size(z.input),
        out_depth: size(z.output),
        stride_z: z.stride,
        dilation_z: size(z.dilation),
        pad_z: z.begin,
        planes: images * size(z.input),
    })
}

/// Whether a kernel of the table takes a side result.
pub const fn side_results(_: &Tile) -> bool {
    false
}

/// Whether images of this rank have planes.
fn deep(rank: usize) -> bool {
    rank == 5
}

/// The tactic of a row of the table.
pub fn tactics(site: &Site<'_>, name: &str, tile: &Tile) -> Result<Vec<Tactic>, BackendError> {
    let (kind, channels) = windows(site, 3..6)?;
    tile.check(weights_lie(tile, channels, of_group(site).map_or(0, |(_, n)| n.max(0) as usize), kind.size))?;
    if tile.line < STAGE_BYTES && (channels * kind.size).div_ceil(tile.line).is_multiple_of(2) {
        return unsupported("half lines of channels that fill whole ones");
    }
    let stage = tile.line / kind.size;
    let filled = channels as f64 / channels.next_multiple_of(stage) as f64;
    Ok(tile.tactic(name, site.target, kind, product(site, filled)))
}

/// The product that a convolution is; tiles end with the planes of the result. Channels fill this share of the stages of a tap.
fn product(site: &Site<'_>, filled: f64) -> Option<Product> {
    let all = Product::of(site)?;
    let [m, n, k, count] = all.size;
    let k = k / filled;
    let (_, node) = site.anchor?;
    let dims = site.graph.ty(*node.outputs.first()?).static_dims()?;
    let planes = match dims[..] {
        [images, planes, _, _, _] => (images * planes).max(1) as f64,
        _ => 1.0,
    };
    Some(Product { size: [m / planes, n, k, count * planes], ..all })
}

/// Element kind and channels; refuses convolutions whose windows TMA cannot copy, and images of other ranks.
pub fn windows(site: &Site<'_>, ranks: Range<usize>) -> Result<(Kind, usize), BackendError> {
    has_wgmma(site.target)?;
    let attrs = site.op()?.attrs();
    if Layout::of(attrs) != Layout::ChannelsLast || !site.rank(0).is_some_and(|r| ranks.contains(&r)) {
        return unsupported("wgmma of images without channels last, or of other than two dimensions");
    }
    if attrs.int("groups").map_err(op_error)? != 1 {
        return unsupported("wgmma of groups");
    }
    let kind = Kind::of(site)?;
    let channels = of_group(site).map_or(0, |c| c.0);
    if channels == 0 || channels * kind.size as i64 % 16 != 0 {
        return unsupported("TMA of channels that are not known to be a multiple of 16 bytes");
    }
    // Corners of the box of windows, and taps, have eight bits.
    let most = |name: &str| -> Result<i64, BackendError> {
        Ok(attrs.ints(name).map_err(op_error)?.iter().copied().max().unwrap_or(1).max(1))
    };
    let Some((_, node)) = site.anchor else { return unsupported("a region without an anchor") };
    let kernel = node.inputs.get(1).copied().flatten().map(|w| site.graph.ty(w).dims.clone());
    let sides = |d: Vec<Dim>| d.get(1..d.len() - 1)?.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>();
    let side = kernel.and_then(sides).and_then(|s| s.into_iter().max()).unwrap_or(i64::MAX);
    let reach = (side - 1).saturating_mul(most("dilations")?).saturating_add(most("strides")?);
    if reach > 127 || most("strides")? > 8 || most("pads")? > 127 {
        return unsupported("TMA of windows of more than 127 places or strides above 8");
    }
    Ok((kind, channels as usize))
}

/// Layout of a convolution's weights in stages: lines of whole taps may be spread.
fn weights_lie(tile: &Tile, channels: usize, outputs: usize, size: usize) -> Lies {
    if (channels * size).is_multiple_of(tile.line) { Lies::along(outputs) } else { Lies::Along }
}

const FILES: Files = Files { name: "conv/wgmma", entry: "conv", sum: "conv_sum" };

/// Returns the body: kernel files, constants and entry points.
pub fn source(site: &Site<'_>, tile: &Tile) -> Result<Body, BackendError> {
    let kind = Kind::of_types(site)?;
    let Some((channels, outputs)) = of_group(site) else { return unsupported("weights of unknown shape") };
    let lies = weights_lie(tile, channels.max(0) as usize, outputs.max(0) as usize, kind.size);
    let body = tile.body(site, kind, lies, &FILES);
    Ok(body.with(constants(&[], &[("DEEP", site.rank(0).is_some_and(deep))])))
}

/// The map of so many images under the windows of a convolution: a box has `rows` windows, and `line` bytes of the channels of each.
/// Planes of images are images of their own.
pub fn image(images: usize, g: &Geometry, bytes: usize, rows: usize, line: usize) -> Map {
    let [over_z, over_y, over_x] = &g.axes;
    let (width, height, channels) = (size(over_x.input), size(over_y.input), g.channels);
    // Innermost first: where the first window starts, and where the last one does, seen from the last element.
    let lower = [-over_x.begin, -over_y.begin];
    let upper = [
        lower[0] + (over_x.output - 1) * over_x.stride - (over_x.input - 1),
        lower[1] + (over_y.output - 1) * over_y.stride - (over_y.input - 1),
    ];
    let row = width * channels;
    Map {
        input: 0,
        size: bytes,
        dims: [channels, width, height, images * size(over_z.input)].map(|d| d as u64).to_vec(),
        strides: [channels, row, row * height].map(|d| d as u64).to_vec(),
        block: vec![(line / bytes) as u32, rows as u32],
        windows: Some(Windows {
            lower: lower.map(|n| n as i32),
            upper: upper.map(|n| n as i32),
            steps: [over_x.stride as u32, over_y.stride as u32],
        }),
        scratch: false,
    }
}

/// The convolution, then its sums where blocks share the depth.
pub fn launch(cx: &Cx<'_>, tile: &Tile) -> Result<Vec<Launch>, BackendError> {
    let (images, g, bytes) = (cx.shape(0)?[0], Geometry::of(cx)?, element_bytes(cx));
    let (channels, outputs) = (g.channels, g.outputs);
    let taps = g.axes.iter().map(|a| size(a.kernel)).product::<usize>();
    let apart = || Map {
        input: 1,
        size: bytes,
        dims: [channels, taps, outputs].map(|d| d as u64).to_vec(),
        strides: [channels, channels * taps].map(|d| d as u64).to_vec(),
        block: vec![(tile.line / bytes) as u32, 1, tile.share() as u32],
        windows: None,
        scratch: false,
    };
    let weights = match weights_lie(tile, channels, outputs, bytes) {
        Lies::Spread => spread_map(bytes, taps * channels, outputs, tile.share(), tile.line),
        _ => apart(),
    };
    let params = params(cx, &g, images)?;
    let (windows, results) = (params.windows, params.results);
    let products = results.checked_div(windows * outputs).unwrap_or(0);
    let tiles = tile.count(windows, outputs, products);
    let maps = vec![image(images, &g, bytes, tile.m(), tile.line), weights];
    Ok(tile.launches(tiles, results, params.words()?, maps))
}
