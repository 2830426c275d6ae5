//! Convolutions of images with channels last by `wgmma`.

use super::{Geometry, of_group, size};
use crate::kernels::mma::Kind;
use crate::kernels::wgmma::operands::{Lies, element_bytes, spread_map};
use crate::kernels::wgmma::{Files, STAGE_BYTES, Tile, has_wgmma};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Launch, Map, Windows};
use kiln_ops::layout::Layout;

kiln_codegen::params! {
    /// A convolution of images of two dimensions whose windows TMA copies.
    pub struct WgmmaConvParams {
        /// Windows along y.
        out_height: u32,
        /// Windows along x.
        out_width: u32,
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
        /// Windows of all images.
        windows: u32,
        /// Results of all images.
        results: u32,
        /// Whether the weights are constant.
        constant: u32,
    }
}

/// The parameters of a convolution of so many windows.
pub fn params(cx: &Cx<'_>, g: &Geometry, windows: usize) -> Result<WgmmaConvParams, BackendError> {
    let [_, y, x] = &g.axes;
    Ok(WgmmaConvParams {
        out_height: size(y.output),
        out_width: size(x.output),
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
        results: windows * g.outputs,
        constant: cx.constant(1),
    })
}

/// Whether a kernel of the table takes a side result.
pub const fn side_results(_: &Tile) -> bool {
    false
}

/// The tactic of a row of the table.
pub fn tactics(site: &Site<'_>, name: &str, tile: &Tile) -> Result<Vec<Tactic>, BackendError> {
    let (kind, channels) = windows(site)?;
    tile.check(weights_lie(channels, of_group(site).map_or(0, |(_, n)| n.max(0) as usize), kind.size))?;
    Ok(tile.tactic(site, name, kind))
}

/// Element kind and channels; refuses convolutions whose windows TMA cannot copy.
pub fn windows(site: &Site<'_>) -> Result<(Kind, usize), BackendError> {
    has_wgmma(site.target)?;
    let attrs = site.op()?.attrs();
    if Layout::of(attrs) != Layout::ChannelsLast || site.rank(0) != Some(4) {
        return unsupported("wgmma of other images than those of two dimensions with channels last");
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
    let side =
        kernel.and_then(|d| Some(d.get(1)?.as_const()?.max(d.get(2)?.as_const()?))).unwrap_or(i64::MAX);
    let reach = (side - 1).saturating_mul(most("dilations")?).saturating_add(most("strides")?);
    if reach > 127 || most("strides")? > 8 || most("pads")? > 127 {
        return unsupported("TMA of windows of more than 127 places or strides above 8");
    }
    Ok((kind, channels as usize))
}

/// Layout of a convolution's weights in stages: lines of whole taps may be spread.
fn weights_lie(channels: usize, outputs: usize, size: usize) -> Lies {
    if (channels * size).is_multiple_of(STAGE_BYTES) { Lies::along(outputs) } else { Lies::Along }
}

const FILES: Files = Files { name: "conv/wgmma", entry: "conv", sum: "conv_sum" };

/// Returns the body: kernel files, constants and entry points.
pub fn source(site: &Site<'_>, tile: &Tile) -> Result<Body, BackendError> {
    let kind = Kind::of_types(site)?;
    let Some((channels, outputs)) = of_group(site) else { return unsupported("weights of unknown shape") };
    let lies = weights_lie(channels.max(0) as usize, outputs.max(0) as usize, kind.size);
    Ok(tile.body(site, kind, lies, &FILES))
}

/// The map of an image x under the windows of the result y: a box has `rows` windows.
pub fn image(x: &[usize], y: &[usize], g: &Geometry, size: usize, rows: usize) -> Result<Map, BackendError> {
    let (&[images, height, width, channels], &[_, oh, ow, _]) = (x, y) else {
        return unsupported("wgmma of images of other than two dimensions");
    };
    // Innermost first: where the first window starts, and where the last one does, seen from the last element.
    let [_, over_y, over_x] = &g.axes;
    let lower = [-over_x.begin, -over_y.begin];
    let upper = [
        lower[0] + (ow as i64 - 1) * over_x.stride - (width as i64 - 1),
        lower[1] + (oh as i64 - 1) * over_y.stride - (height as i64 - 1),
    ];
    let row = width * channels;
    Ok(Map {
        input: 0,
        size,
        dims: [channels, width, height, images].map(|d| d as u64).to_vec(),
        strides: [channels, row, row * height].map(|d| d as u64).to_vec(),
        block: vec![(STAGE_BYTES / size) as u32, rows as u32],
        windows: Some(Windows {
            lower: lower.map(|n| n as i32),
            upper: upper.map(|n| n as i32),
            steps: [over_x.stride as u32, over_y.stride as u32],
        }),
    })
}

/// The convolution, then its sums where blocks share the depth.
pub fn launch(cx: &Cx<'_>, tile: &Tile) -> Result<Vec<Launch>, BackendError> {
    let (x, k, y) = (cx.shape(0)?, cx.shape(1)?, cx.out_shape(0)?);
    let g = Geometry::of(cx)?;
    let (&[_, kh, kw, channels], &[images, oh, ow, outputs]) = (&k[..], &y[..]) else {
        return unsupported("wgmma of images of other than two dimensions");
    };
    let rows = images * oh * ow;
    let size = element_bytes(cx);
    let image = image(&x, &y, &g, size, tile.m())?;
    let taps = kh * kw;
    let apart = || Map {
        input: 1,
        size,
        dims: [channels, taps, outputs].map(|d| d as u64).to_vec(),
        strides: [channels, channels * taps].map(|d| d as u64).to_vec(),
        block: vec![(STAGE_BYTES / size) as u32, 1, tile.n as u32],
        windows: None,
    };
    let weights = match weights_lie(channels, outputs, size) {
        Lies::Spread => spread_map(size, taps * channels, outputs, tile.n),
        _ => apart(),
    };
    let tiles = rows.div_ceil(tile.m()) * outputs.div_ceil(tile.n);
    let params = params(cx, &g, rows)?;
    Ok(tile.launches(tiles, rows * outputs, params.words()?, vec![image, weights]))
}
