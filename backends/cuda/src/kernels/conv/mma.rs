//! Convolutions by `mma.sync`.

use super::{Geometry, bias, of_group, size};
use crate::frame::cell;
use crate::kernels::constants::{alias, constants};
use crate::kernels::cost;
use crate::kernels::mma::{Kind, Row, Tile};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::{Body, Entry, Grid, Launch};
use kiln_ops::layout::Layout;

kiln_codegen::params! {
    /// A convolution by tiles of `mma.sync`. Dimensions that an image does not have are of size 1.
    struct MmaConvParams {
        /// Elements of the image along z.
        depth: u32,
        /// Windows along z.
        out_depth: u32,
        /// Taps of a window along z.
        taps_z: u32,
        /// Elements from one window to the next along z.
        stride_z: i32,
        /// Elements from one tap to the next along z.
        dilation_z: i32,
        /// Padding before the first element along z.
        pad_z: i32,
        /// Lines of the image.
        height: u32,
        /// Windows along y.
        out_height: u32,
        /// Taps of a window along y.
        taps_y: u32,
        /// Elements from one window to the next along y.
        stride_y: i32,
        /// Elements from one tap to the next along y.
        dilation_y: i32,
        /// Padding before the first element along y.
        pad_y: i32,
        /// Elements of a line of the image.
        width: u32,
        /// Windows along x.
        out_width: u32,
        /// Taps of a window along x.
        taps_x: u32,
        /// Elements from one window to the next along x.
        stride_x: i32,
        /// Elements from one tap to the next along x.
        dilation_x: i32,
        /// Padding before the first element along x.
        pad_x: i32,
        /// Channels of the image.
        channels: u32,
        /// Output channels.
        outputs: u32,
        /// Channels of a group.
        group_channels: u32,
        /// Output channels of a group.
        group_outputs: u32,
        /// Windows of all images.
        windows: u32,
    }
}

const ALONG: (bool, bool) = (false, false);
/// A group of fewer output channels leaves most of a tile empty.
const LEAST_OUTPUTS: i64 = 8;

/// Whether a kernel of the table takes a side result.
pub const fn side_results(_: &Row) -> bool {
    false
}

/// The tactic of a row of the table.
pub fn tactics(site: &Site<'_>, name: &str, Row { tile, split }: &Row) -> Result<Vec<Tactic>, BackendError> {
    if Layout::of(site.op()?.attrs()) != Layout::ChannelsLast {
        return unsupported("convolutions on tensor cores of images without channels last");
    }
    let kind = Kind::of(site)?;
    tile.check(site, kind, ALONG, 0)?;
    match of_group(site) {
        None => return unsupported("convolutions on tensor cores with weights of unknown shape"),
        Some((0, _)) => return unsupported("convolutions without channels"),
        Some((_, m)) if m < LEAST_OUTPUTS => {
            return unsupported(format!("tiles for fewer than {LEAST_OUTPUTS} output channels of a group"));
        }
        _ => {}
    }
    let estimate_ns = cost::Product::of(site).map(|p| tile.estimate(&p, site.target, kind, *split));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
}

/// Entries of a table of all taps, in whole stages. Only if the table is small and the taps are near each
/// other in a plane.
fn table(site: &Site<'_>, tile: &Tile, kind: Kind) -> Option<usize> {
    const MOST: i64 = 1024;
    let (_, n) = site.anchor?;
    let weights = &site.graph.ty((*n.inputs.get(1)?)?).dims;
    let depth = weights.get(1..)?.iter().try_fold(1i64, |p, d| p.checked_mul(d.as_const()?))?;
    let far = n.op.attrs().ints("dilations").ok()?.iter().any(|&d| d > 8);
    let fits = depth <= MOST && !far && site.rank(0)? < 5;
    fits.then(|| (depth as usize).next_multiple_of(tile.bytes / kind.size))
}

/// Returns the body: kernel files, constants and entry points.
pub fn source(site: &Site<'_>, Row { tile, .. }: &Row) -> Result<Body, BackendError> {
    let kind = Kind::of_types(site)?;
    let channels = of_group(site).map_or(1, |(c, _)| c);
    let table = table(site, tile, kind).unwrap_or(0);
    let vectors = channels % (16 / kind.size) as i64 == 0;
    let of = |i| site.dtype(i).map_or("u8", cell);
    let code = tile.constants(kind, ALONG)
        + &constants(&[("TABLE", table)], &[("VECTORS", vectors), ("DEEP", site.rank(0) == Some(5))])
        + &alias("CellA", of(0))
        + &alias("CellB", of(1))
        + &bias(site);
    let entries = vec![Entry::blocks("conv", tile.threads() as u32)];
    let shared = tile.shared(kind, ALONG) as u32;
    Ok(Body { shared, ..Body::of("conv/mma", entries) }.with(code))
}

/// The launch of a tile a block.
pub fn launch(cx: &Cx<'_>, Row { tile, .. }: &Row) -> Result<Vec<Launch>, BackendError> {
    let (g, y) = (Geometry::of(cx)?, cx.out_shape(0)?);
    let volume: usize = cx.shape(0)?.iter().product();
    if i32::try_from(volume).is_err() {
        return unsupported(format!("a convolution of an image with {volume} elements"));
    }
    let outputs = y.last().copied().unwrap_or(0);
    let windows: usize = y[..y.len().saturating_sub(1)].iter().product();
    let [z, y, x] = &g.axes;
    let params = MmaConvParams {
        depth: size(z.input),
        out_depth: size(z.output),
        taps_z: size(z.kernel),
        stride_z: z.stride,
        dilation_z: z.dilation,
        pad_z: z.begin,
        height: size(y.input),
        out_height: size(y.output),
        taps_y: size(y.kernel),
        stride_y: y.stride,
        dilation_y: y.dilation,
        pad_y: y.begin,
        width: size(x.input),
        out_width: size(x.output),
        taps_x: size(x.kernel),
        stride_x: x.stride,
        dilation_x: x.dilation,
        pad_x: x.begin,
        channels: g.channels,
        outputs: g.outputs,
        group_channels: g.group_channels,
        group_outputs: g.group_outputs,
        windows,
    };
    let each = g.group_outputs;
    let tiles = windows.div_ceil(tile.m) * each.div_ceil(tile.n) * (outputs / each.max(1));
    Ok(vec![Launch::map(0, params.words()?).on(Grid::Groups(tiles as u64))])
}
