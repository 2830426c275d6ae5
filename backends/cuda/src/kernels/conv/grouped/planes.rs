//! Images with channels first: a block has rows of windows of some planes, whose lines it keeps in shared memory.

use super::super::size;
use super::{Form, blocks, body, divisor, members, nothing, sizes};
use crate::kernels::divisor::Divisor;
use kiln_backend::BackendError;
use kiln_codegen::site::{Cx, Site};
use kiln_codegen::{Body, Grid, Launch};
use kiln_ops::layout::Layout;

kiln_codegen::params! {
    /// A convolution with few channels a group, by rows of windows of planes. A plane is an image with OUT output channels.
    struct GroupedPlanesParams {
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
        /// Channels of a group.
        group_channels: u32,
        /// Output channels of a group.
        group_outputs: u32,
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
        /// Padding in front along z.
        pad_z: i32,
        /// Padding above.
        pad_y: i32,
        /// Padding on the left.
        pad_x: i32,
        /// Planes of all images.
        planes: u32,
        /// Planes of a block.
        slots: u32,
        /// Lines of windows of a block.
        rows: u32,
        /// Threads of a line.
        columns: u32,
        /// Blocks of a line.
        beside: u32,
        /// Blocks of a plane, one below another.
        below: u32,
        /// Lines of the kernel whose lines of the image are kept at once: all or one.
        at_once: u32,
        /// Lines of the image from one that is kept to the next: 1 or the stride.
        line_step: u32,
        /// Lines of the image of a plane that are kept.
        lines: u32,
        /// Words of such a line.
        pitch: u32,
        /// Vectors that are read for it.
        units: u32,
        /// Factor of divisions by that.
        units_factor: u32,
        /// Shift of divisions by it.
        units_shift: u32,
        /// Factor of divisions by the number of lines.
        lines_factor: u32,
        /// Shift of divisions by it.
        lines_shift: u32,
    }
}

/// Threads of a block.
const THREADS: usize = 256;
/// Neighbouring windows of a thread.
const RUN: usize = 8;
/// Output channels of a thread at most.
const MOST_OUT: usize = 8;
/// Words of lines, and of weights, that a block keeps.
const SLAB: usize = 6144;
const WEIGHTS: usize = 1536;

/// Output channels of a thread.
fn out(group_outputs: usize) -> usize {
    divisor(group_outputs, MOST_OUT)
}

fn common(mut a: usize, mut b: usize) -> usize {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Taps of a part of a line: whole segments of the image's lines.
fn part(stride: usize, dilation: usize) -> usize {
    let segment = RUN * stride;
    segment / common(segment, dilation)
}

/// Returns the body.
pub fn source(site: &Site<'_>) -> Result<Body, BackendError> {
    let form = Form::of(site, Layout::Linear)?;
    let numbers = [
        ("OUT", out(form.group_outputs)),
        ("STEP", form.stride),
        ("APART", form.dilation),
        ("TAPS_X", form.across),
        ("PART", part(form.stride, form.dilation)),
    ];
    Ok(body("conv/grouped_planes", blocks("grouped_planes", THREADS as u32, 2), members(site, &numbers)))
}

/// Sizes along a line: words and vectors of it for so many threads.
fn line(columns: usize, stride: usize, dilation: usize, across: usize) -> (usize, usize) {
    let tile = part(stride, dilation).min(across.max(1));
    let (segment, tiles) = (RUN * stride, across.div_ceil(tile));
    let last = columns * segment - stride + (tiles * tile - 1) * dilation;
    (last + last / segment + 1, (last + 1 + 7).div_ceil(8))
}

/// The launch of a part of some planes a block.
pub fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let Some((g, images)) = sizes(cx)? else { return nothing() };
    let [z, y, x] = &g.axes;
    let (stride, dilation, across) = (size(x.stride), size(x.dilation), size(x.kernel));
    let out = out(g.group_outputs);
    let pitch_of = |columns: usize| line(columns, stride, dilation, across).0;
    let (wide, high) = (size(x.output), size(y.output));
    // Threads of a line, as few as blocks beside each other need.
    let mut columns = wide.div_ceil(RUN).min(THREADS);
    while columns > 1 && pitch_of(columns) > SLAB {
        columns = columns.div_ceil(2);
    }
    let beside = wide.div_ceil(RUN).div_ceil(columns);
    let columns = wide.div_ceil(RUN).div_ceil(beside);
    let (pitch, units) = line(columns, stride, dilation, across);
    let most = SLAB / pitch;
    let (stride_y, reach_y) = (size(y.stride), (size(y.kernel) - 1) * size(y.dilation));
    let lines_of = |rows: usize| (rows - 1) * stride_y + reach_y + 1;
    let mut rows = (THREADS / columns).clamp(1, high);
    // All lines of the kernel at once, unless lines between taps or windows would be read in vain, or there is no room.
    let fits = lines_of(1) <= most && size(y.kernel) * across * out <= WEIGHTS;
    let all = fits && lines_of(rows) <= rows * size(y.kernel);
    let kept = |rows: usize| if all { lines_of(rows) } else { rows };
    while rows > 1 && kept(rows) > most {
        rows -= 1;
    }
    let below = high.div_ceil(rows);
    let rows = high.div_ceil(below);
    let lines = kept(rows);
    let at_once = if all { size(y.kernel) } else { 1 };
    let planes = images * (g.outputs / out);
    let room = (most / lines).min(WEIGHTS / (at_once * across * out).max(1)).max(1);
    let slots = (THREADS / (columns * rows)).clamp(1, room).min(planes);
    let most = slots * lines * units;
    let [by_units, by_lines] = [Divisor::new(units, most)?, Divisor::new(lines, most)?];
    let params = GroupedPlanesParams {
        depth: size(z.input),
        height: size(y.input),
        width: size(x.input),
        out_depth: size(z.output),
        out_height: high,
        out_width: wide,
        channels: g.channels,
        outputs: g.outputs,
        group_channels: g.group_channels,
        group_outputs: g.group_outputs,
        taps_z: size(z.kernel),
        taps_y: size(y.kernel),
        stride_z: z.stride,
        stride_y: y.stride,
        dilation_z: z.dilation,
        dilation_y: y.dilation,
        pad_z: z.begin,
        pad_y: y.begin,
        pad_x: x.begin,
        planes,
        slots,
        rows,
        columns,
        beside,
        below,
        at_once,
        line_step: if all { 1 } else { stride_y },
        lines,
        pitch,
        units,
        units_factor: by_units.factor,
        units_shift: by_units.shift,
        lines_factor: by_lines.factor,
        lines_shift: by_lines.shift,
    };
    let blocks = planes.div_ceil(slots) * size(z.output) * below * beside;
    Ok(vec![Launch::map(0, params.words()?).on(Grid::Groups(blocks as u64))])
}

#[cfg(test)]
mod tests {
    use super::super::{MOST_REACH, MOST_STRIDE, MOST_TAPS};
    use super::*;

    /// Whatever is offered fits a block: a line of one thread, and the weights of a line of the kernel.
    #[test]
    fn lines_and_weights_fit_a_block() {
        let mut longest = 0;
        for stride in 1..=MOST_STRIDE {
            for across in 1..=MOST_TAPS {
                let most = MOST_REACH / (across - 1).max(1);
                for dilation in (1..=most).filter(|d| *d < 20 || most - d < 20) {
                    let (pitch, units) = line(1, stride, dilation, across);
                    assert!(
                        pitch <= SLAB,
                        "stride {stride}, {across} taps, dilation {dilation}: {pitch} words"
                    );
                    // Vectors may start up to seven elements in front of the line.
                    let reach = (RUN - 1) * stride + (across - 1) * dilation + 1;
                    assert!(units * 8 >= reach + 7, "stride {stride}, {across} taps, dilation {dilation}");
                    longest = longest.max(pitch);
                }
            }
        }
        assert!(longest > SLAB / 3 && MOST_TAPS * MOST_OUT <= WEIGHTS, "{longest}");
    }

    #[test]
    fn parts_are_whole_segments() {
        for (stride, dilation, taps) in [(1, 1, 8), (1, 8, 1), (1, 12, 2), (2, 1, 16), (3, 2, 12), (5, 7, 40)]
        {
            assert_eq!(part(stride, dilation), taps);
            assert_eq!(taps * dilation % (RUN * stride), 0);
        }
    }
}
