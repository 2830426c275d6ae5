//! Images with channels last: a thread has neighbouring windows of neighbouring output channels.

use super::super::size;
use super::{Form, blocks, body, divisor, members, nothing, sizes};
use kiln_backend::BackendError;
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::{Body, Grid, Launch};
use kiln_ops::layout::Layout;

kiln_codegen::params! {
    /// A convolution with few channels a group, by runs of neighbouring windows.
    struct GroupedLastParams {
        /// Elements of the image along z.
        depth: u32,
        /// Lines of the image.
        height: u32,
        /// Elements of a line of it.
        width: u32,
        /// Windows along z.
        out_depth: u32,
        /// Lines of the result.
        out_height: u32,
        /// Windows of a line.
        out_width: u32,
        /// Channels of the image.
        channels: u32,
        /// Output channels.
        outputs: u32,
        /// Taps along z.
        taps_z: u32,
        /// Taps along y.
        taps_y: u32,
        /// Elements from one window to the next along z.
        stride_z: i32,
        /// Lines from one window to the next.
        stride_y: i32,
        /// Elements from one tap to the next along z.
        dilation_z: i32,
        /// Lines from one tap to the next.
        dilation_y: i32,
        /// Elements of a line from one tap to the next.
        dilation_x: i32,
        /// Padding in front along z.
        pad_z: i32,
        /// Padding above.
        pad_y: i32,
        /// Padding on the left.
        pad_x: i32,
        /// Runs of a line.
        runs: u32,
        /// Runs of all lines.
        positions: u32,
        /// Blocks along output channels.
        along: u32,
        /// Blocks along positions.
        blocks: u32,
    }
}

/// Threads of a block.
const THREADS: usize = 128;
/// Floats of weights that a block keeps.
const MOST_WEIGHTS: usize = 10240;
/// Output channels of a thread at most.
const MOST_OUT: usize = 8;
/// Neighbouring windows of a thread.
const RUN: usize = 4;
/// Elements of the image that stay in registers.
const HELD: usize = 64;
/// As many blocks keep a large device busy.
const BLOCKS: usize = 2112;

/// Division of the work among threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Output channels of a thread, and the groups that they are of.
    out: usize,
    groups: usize,
    /// Channels that are read at once, and how often.
    piece: usize,
    pieces: usize,
    /// Taps along a line that are read at once.
    tile: usize,
    /// Threads side by side along output channels.
    side: usize,
}

impl Split {
    /// The division for a convolution; refuses those whose weights take too much room.
    pub fn of(f: &Form) -> Result<Split, BackendError> {
        let groups =
            if f.group_outputs <= MOST_OUT { divisor(f.groups, MOST_OUT / f.group_outputs) } else { 1 };
        let out = if groups > 1 { groups * f.group_outputs } else { divisor(f.group_outputs, MOST_OUT) };
        // Channels of one thread's groups: whole groups, or parts of one.
        let piece = match f.channels <= MOST_OUT {
            true => f.channels * divisor(groups, MOST_OUT / f.channels),
            false => divisor(f.channels, MOST_OUT),
        };
        let pieces = groups * f.channels / piece;
        let most = (HELD / piece).saturating_sub((RUN - 1) * f.stride).min(8);
        let shared = f.dilation == 1 && most >= 2 && f.across > 1;
        let tile = if shared { f.across.div_ceil(f.across.div_ceil(most)) } else { 1 };
        let depth = f.taps * f.channels;
        let fits = |side: &usize| side * out * depth <= MOST_WEIGHTS;
        let wanted = (f.outputs / out).next_power_of_two().min(8);
        let Some(side) = [8, 4, 2, 1].into_iter().filter(|s| *s <= wanted).find(fits) else {
            return unsupported(format!("{depth} weights of an output channel"));
        };
        Ok(Split { out, groups, piece, pieces, tile, side })
    }
}

/// Returns the body.
pub fn source(site: &Site<'_>) -> Result<Body, BackendError> {
    let form = Form::of(site, Layout::ChannelsLast)?;
    let split = Split::of(&form)?;
    // Vectors start at multiples of their size: channels of a thread follow those of the one in front.
    let most = 16 * 8 / site.first_dtype().bits() as usize;
    let vector = (1 << split.piece.trailing_zeros()).min(most);
    let numbers = [
        ("OUT", split.out),
        ("GROUPS", split.groups),
        ("GROUP_CHANNELS", form.channels),
        ("GROUP_OUTPUTS", form.group_outputs),
        ("PIECE", split.piece),
        ("PIECES", split.pieces),
        ("VECTOR", vector),
        ("RUN", RUN),
        ("STEP", form.stride),
        ("TILE", split.tile),
        ("TAPS_X", form.across),
        ("SIDE", split.side),
        ("UNROLL", if split.groups > 1 { split.pieces } else { 1 }),
        ("DEPTH", form.taps * form.channels),
    ];
    Ok(body("conv/grouped_last", blocks("grouped_last", THREADS as u32, 4), members(site, &numbers)))
}

/// The launch of blocks that go on from position to position.
pub fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let Some((g, images)) = sizes(cx)? else { return nothing() };
    let [z, y, x] = &g.axes;
    let form = Form {
        outputs: g.outputs,
        groups: g.outputs / g.group_outputs.max(1),
        channels: g.group_channels,
        group_outputs: g.group_outputs,
        across: size(x.kernel),
        taps: size(x.kernel) * size(y.kernel) * size(z.kernel),
        stride: size(x.stride),
        dilation: size(x.dilation),
    };
    let split = Split::of(&form)?;
    let runs = size(x.output).div_ceil(RUN);
    let positions = images * size(z.output) * size(y.output) * runs;
    let along = (g.outputs / split.out).div_ceil(split.side);
    let blocks = positions.div_ceil(THREADS / split.side).min((BLOCKS / along.max(1)).max(1));
    let params = GroupedLastParams {
        depth: size(z.input),
        height: size(y.input),
        width: size(x.input),
        out_depth: size(z.output),
        out_height: size(y.output),
        out_width: size(x.output),
        channels: g.channels,
        outputs: g.outputs,
        taps_z: size(z.kernel),
        taps_y: size(y.kernel),
        stride_z: z.stride,
        stride_y: y.stride,
        dilation_z: z.dilation,
        dilation_y: y.dilation,
        dilation_x: x.dilation,
        pad_z: z.begin,
        pad_y: y.begin,
        pad_x: x.begin,
        runs,
        positions,
        along,
        blocks,
    };
    Ok(vec![Launch::map(0, params.words()?).on(Grid::Groups((along * blocks) as u64))])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn split(groups: usize, channels: usize, group_outputs: usize, across: usize) -> Split {
        let outputs = groups * group_outputs;
        let taps = across * across;
        Split::of(&Form { outputs, groups, channels, group_outputs, across, taps, stride: 1, dilation: 1 })
            .unwrap()
    }

    #[test]
    fn threads_have_whole_groups_or_parts_of_one() {
        let four = Split { out: 8, groups: 2, piece: 8, pieces: 1, tile: 3, side: 8 };
        assert_eq!(split(32, 4, 4, 3), four);
        assert_eq!(split(96, 1, 1, 7), Split { out: 8, groups: 8, piece: 8, pieces: 1, tile: 4, side: 8 });
        assert_eq!(split(7, 1, 1, 3), Split { out: 7, groups: 7, piece: 7, pieces: 1, tile: 3, side: 1 });
        assert_eq!(split(32, 16, 16, 3), Split { out: 8, groups: 1, piece: 8, pieces: 2, tile: 3, side: 8 });
        assert_eq!(split(3, 12, 1, 2), Split { out: 3, groups: 3, piece: 6, pieces: 6, tile: 2, side: 1 });
        for (groups, channels, group_outputs) in [(12, 3, 2), (5, 7, 9), (8, 32, 1), (6, 10, 12)] {
            let s = split(groups, channels, group_outputs, 3);
            assert_eq!(s.piece * s.pieces, s.groups * channels);
            assert!(s.piece.is_multiple_of(channels) || channels.is_multiple_of(s.piece));
            assert_eq!(groups * group_outputs % s.out, 0);
        }
    }

    #[test]
    fn weights_that_do_not_fit_are_refused() {
        let form = Form {
            outputs: 64,
            groups: 8,
            channels: 32,
            group_outputs: 8,
            across: 11,
            taps: 121,
            stride: 1,
            dilation: 1,
        };
        assert!(Split::of(&form).is_err());
    }
}
