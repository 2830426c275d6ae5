//! Convolutions of images with channels last.

use super::operands::{Lies, spread_map};
use super::{STAGE_BYTES, TEXT, Tile, has_wgmma, text, windows_text};
use crate::kernels::conv::{bias_value, of_group};
use crate::kernels::mma::Kind;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::template::{fill, section};
use kiln_codegen::window::conv_words;
use kiln_codegen::{Body, Launch, Map, Windows, words};
use kiln_ops::layout::Layout;

pub(super) fn tactics(site: &Site<'_>, tile: &Tile) -> Result<Vec<Tactic>, BackendError> {
    let (kind, channels) = windows(site)?;
    tile.check(weights_lie(channels, of_group(site).map_or(0, |(_, n)| n.max(0) as usize), kind.size))?;
    Ok(tile.tactic(site, tile.conv, kind))
}

/// How elements are taken, and the channels; refuses convolutions whose windows TMA cannot copy.
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

/// How the weights of a convolution lie in stages: lines of whole taps may be spread.
fn weights_lie(channels: usize, outputs: usize, size: usize) -> Lies {
    if (channels * size).is_multiple_of(STAGE_BYTES) { Lies::along(outputs) } else { Lies::Along }
}

pub(super) fn source(site: &Site<'_>, tile: &Tile) -> Result<Body, BackendError> {
    let bias = if site.dtype(2).is_some() { "bias" } else { "no_bias" };
    let text = windows_text().to_owned() + &text(&[bias, tile.end(), "stores"]) + section(TEXT, "conv");
    let kind = Kind::of_types(site)?;
    let Some((channels, outputs)) = of_group(site) else { return unsupported("weights of unknown shape") };
    let lies = weights_lie(channels.max(0) as usize, outputs.max(0) as usize, kind.size);
    let code = tile.source(site, kind, lies, &text);
    let cell = site.dtype(2).map_or("u8", crate::frame::cell);
    let code = fill(&code, &[("CELL_C", cell), ("BIAS_VALUE", &bias_value(site))]);
    Ok(tile.body(code, "conv"))
}

/// The map of an image x under the windows of the result y: a box has `rows` windows. `w` are the words of a convolution.
pub fn image(x: &[usize], y: &[usize], w: &[u32], size: usize, rows: usize) -> Result<Map, BackendError> {
    let (&[images, height, width, channels], &[_, oh, ow, _]) = (x, y) else {
        return unsupported("wgmma of images of other than two dimensions");
    };
    // Innermost first: where the first window starts, and where the last one does, seen from the last element.
    let at = |word: usize| w.get(word).map_or(0, |&n| n as i32);
    let lower = [-at(19), -at(12)];
    let upper = [
        lower[0] + (ow as i32 - 1) * at(17) - (width as i32 - 1),
        lower[1] + (oh as i32 - 1) * at(10) - (height as i32 - 1),
    ];
    let row = width * channels;
    Ok(Map {
        input: 0,
        size,
        dims: [channels, width, height, images].map(|d| d as u64).to_vec(),
        strides: [channels, row, row * height].map(|d| d as u64).to_vec(),
        block: vec![(STAGE_BYTES / size) as u32, rows as u32],
        windows: Some(Windows { lower, upper, steps: [at(17) as u32, at(10) as u32] }),
    })
}

pub(super) fn launch(cx: &Cx<'_>, tile: &Tile) -> Result<Vec<Launch>, BackendError> {
    let (x, k, y) = (cx.shape(0)?, cx.shape(1)?, cx.out_shape(0)?);
    let mut w = conv_words(cx)?;
    let (&[_, kh, kw, channels], &[images, oh, ow, outputs]) = (&k[..], &y[..]) else {
        return unsupported("wgmma of images of other than two dimensions");
    };
    let rows = images * oh * ow;
    let size = cx.inputs.first().copied().flatten().map_or(2, |f| f.ty.dtype.bits() as usize / 8);
    let image = image(&x, &y, &w, size, tile.m())?;
    w.extend(words([rows, rows * outputs, cx.constant(1)])?);
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
    Ok(tile.launches(tiles, rows * outputs, w, vec![image, weights]))
}
