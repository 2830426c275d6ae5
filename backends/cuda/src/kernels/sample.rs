//! Resizing and sampling with several results a thread, and taps that are found once for all of them.

use super::divisor::{Divisor, Divisors};
use super::shape::{moving, traffic};
use crate::frame::element;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::sample::{Taps, grid_constants, resized_value};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Blocks, Body, Entry, Grid, Kernel, Launch, Views};
use kiln_ir::Attrs;
use kiln_ops::util::strides;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "resize.lines",
        ops: &["resize"],
        epilogue: true,
        views: Views::Whole,
        side_results: false,
        tactics,
        source: |site, _| source(site),
        launch,
    },
    Kernel {
        name: "grid_sample.channels",
        ops: &["grid_sample"],
        epilogue: true,
        views: Views::Whole,
        side_results: false,
        tactics: |site| {
            let estimate_ns = traffic(site).map(|bytes| moving(site.target, bytes, 3.0));
            Ok(vec![Tactic { estimate_ns, ..Tactic::plain("grid_sample.channels") }])
        },
        source: |site, _| {
            let body = Body::of("sample/grid_channels", vec![Entry::threads("grid_channels")]);
            let rank = site.rank(0).map_or(2, |r| r.clamp(3, 5) - 2);
            Ok(body.with(grid_constants(site)? + &site.constant("RANK", "u32", format_args!("{rank}u"))))
        },
        launch: grid,
    },
];

kiln_codegen::params! {
    /// Samples at the places of a grid, of several channels a thread.
    struct GridChannelsParams {
        /// Elements of the third dimension counted from the last, or 1.
        depth: u32,
        /// Elements of the second one, or 1.
        height: u32,
        /// Elements of the last one.
        width: u32,
        /// Places of a grid.
        points: u32,
        /// Factor of divisions by that.
        points_factor: u32,
        /// Shift of divisions by it.
        points_shift: u32,
        /// Channels of an image.
        channels: u32,
        /// Threads that have channels of a place.
        chunks: u32,
        /// Factor of divisions by that.
        chunks_factor: u32,
        /// Shift of divisions by it.
        chunks_shift: u32,
    }
}

kiln_codegen::params! {
    /// Resizing along lines, the innermost axis that is resized. All axes in front of it form rows; their lists begin with the
    /// innermost one.
    struct ResizeLinesParams {
        /// The result where it is outside of x.
        outside: f32,
        /// Start of the taps of a line in the table.
        places: u32,
        /// Taps of a place of a line.
        taps: u32,
        /// Places of a line, or vectors of them where nothing is behind the line.
        chunks: u32,
        /// Factor of divisions by that.
        chunks_factor: u32,
        /// Shift of divisions by it.
        chunks_shift: u32,
        /// Vectors of elements behind a line's element.
        inner: u32,
        /// Factor of divisions by that.
        inner_factor: u32,
        /// Shift of divisions by it.
        inner_shift: u32,
        /// Elements of x from one element of a line to the next.
        line: u32,
        /// Elements of a row of the result.
        result: u32,
        /// Number of rows.
        rows: u32,
        /// Rows of a thread.
        each: u32,
        /// Blocks that have parts of the same rows.
        parts: u32,
        /// Combinations of taps of a row.
        combinations: u32,
        /// Dimensions of rows.
        dims: [u32],
        /// Factors of divisions by them.
        factors: [u32],
        /// Shifts of divisions by them.
        shifts: [u32],
        /// Strides of x along them.
        strides: [u32],
        /// Taps of a place, 0 where elements are those of x.
        counts: [u32],
        /// Start of the taps of each in the table.
        starts: [u32],
        /// For every place in turn its taps: element and weight.
        table: [u32],
    }
}

kiln_codegen::params! {
    /// Resizing of planes along their last axis, the line, and others in front of it, the rows.
    struct ResizeRowsParams {
        /// The result where it is outside of x.
        outside: f32,
        /// Start of the taps of a line in the table.
        places: u32,
        /// Combinations of taps of a row.
        combinations: u32,
        /// Elements of a line of x.
        input: u32,
        /// Elements of a line of the result.
        output: u32,
        /// Threads of a line.
        chunks: u32,
        /// Number of planes.
        planes: u32,
        /// Planes that threads make results of at a time.
        slots: u32,
        /// Planes whose lines a block keeps at a time.
        held: u32,
        /// Floats from one of these to the next.
        pitch: u32,
        /// Rows of a plane of the result.
        rows: u32,
        /// Elements of a plane of x.
        plane_step: u32,
        /// Elements of a plane of the result.
        result_step: u32,
        /// Planes of a block.
        each: u32,
        /// Dimensions of rows, the innermost first.
        dims: [u32],
        /// Strides of x along them.
        strides: [u32],
        /// Taps of a place of each.
        counts: [u32],
        /// Start of the taps of each in the table.
        starts: [u32],
        /// For every place in turn its taps: element and weight.
        table: [u32],
    }
}

/// Taps of a place that stay in registers; `None` where shrinking takes any number.
fn fixed(attrs: &Attrs) -> Result<Option<usize>, BackendError> {
    let antialias = attrs.bool("antialias").map_err(op_error)?;
    Ok(match attrs.str("mode").map_err(op_error)? {
        "nearest" => Some(1),
        _ if antialias => None,
        "linear" => Some(2),
        _ => Some(4),
    })
}

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let t = site.first_dtype();
    if t.bits() < 8 {
        return unsupported(format!("lines of {t}, which shares bytes"));
    }
    let estimate_ns = traffic(site).map(|bytes| moving(site.target, bytes, 2.0));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain("resize.lines") }])
}

fn source(site: &Site<'_>) -> Result<Body, BackendError> {
    let taps = fixed(site.op()?.attrs())?.unwrap_or(1);
    let code = element("Cell", "wide", site.first_dtype())
        + &resized_value(site)
        + &site.constant("TAPS", "u32", format_args!("{taps}u"));
    let entries = ["resize_line_8", "resize_line_1", "resize_inner_8", "resize_inner_1"];
    let mut entries: Vec<Entry> = entries.map(Entry::threads).into();
    // Taps are not to be spilled.
    let beside = Some(if taps > 2 { 2 } else { 3 });
    let rows = |name| Entry::Blocks(Blocks { beside, ..Blocks::of(name, BLOCK as u32) });
    entries.extend(["resize_rows_8", "resize_rows_1"].map(rows));
    entries.extend(["resize_pixels_8", "resize_pixels_1"].map(|name| Entry::blocks(name, BLOCK as u32)));
    let body = Body::of("sample/resize_rows", entries).with(code);
    Ok(Body { inputs: Some(vec![0]), ..body })
}

/// Elements of a vector.
const WIDTH: usize = 8;
/// Rows of a thread at most, as long as there are this many threads.
const MOST_ROWS: usize = 8;
const THREADS: usize = 1 << 18;

/// Threads of a block of rows.
const BLOCK: usize = 256;
/// Floats that it keeps, and combinations of taps of a row.
const FLOATS: usize = 4096;
const COMBINATIONS: usize = 64;
/// Blocks that keep a large device busy.
const BLOCKS: usize = 1056;
/// Vectors of a block behind lines.
const VECTORS: usize = 1024;

/// Resizes by rows in shared memory. All axes that are resized have to be behind the others, and a block has to hold a line.
fn by_rows(p: &ResizeLinesParams, x: &[usize], output: usize) -> Result<Option<Launch>, BackendError> {
    let resized = p.counts.iter().take_while(|&&taps| taps > 0).count();
    let input = x.last().copied().unwrap_or(0);
    let pitch = input + input / 32 + 1;
    let vectors = output.is_multiple_of(WIDTH);
    let chunks = output.div_ceil(WIDTH);
    if resized + 1 < p.counts.len() || chunks > BLOCK || pitch > FLOATS || p.combinations > COMBINATIONS {
        return Ok(None);
    }
    let planes: usize = p.dims[resized..].iter().product();
    let rows: usize = p.dims[..resized].iter().product();
    let plane_step = p.strides.get(resized).copied().unwrap_or(0);
    let slots = (BLOCK / chunks).min(FLOATS / pitch).min(planes);
    let groups = (BLOCKS / rows).clamp(1, planes.div_ceil(slots));
    let each = planes.div_ceil(groups).next_multiple_of(slots);
    let held = (FLOATS / pitch / slots * slots).min(each);
    let params = ResizeRowsParams {
        outside: p.outside,
        places: p.places,
        combinations: p.combinations,
        input,
        output,
        chunks,
        planes,
        slots,
        held,
        pitch,
        rows,
        plane_step,
        result_step: rows * output,
        each,
        dims: p.dims[..resized].to_vec(),
        strides: p.strides[..resized].to_vec(),
        counts: p.counts[..resized].to_vec(),
        starts: p.starts[..resized].to_vec(),
        table: p.table.clone(),
    };
    let blocks = (rows * planes.div_ceil(each)) as u64;
    Ok(Some(Launch::map(4 + usize::from(!vectors), params.words()?).on(Grid::Groups(blocks))))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, y) = (cx.shape(0)?, cx.out_shape(0)?);
    let total: usize = y.iter().product();
    if total == 0 || x.is_empty() {
        return Ok(match total {
            0 => Vec::new(),
            _ => vec![Launch::map(3, one().words()?).on(Grid::Threads(1))],
        });
    }
    let (all, own) = (Taps::of(cx)?, strides(&x));
    let line = all.axes.iter().rposition(|a| !a.is_identity()).unwrap_or(x.len() - 1);
    let fixed = fixed(cx.op()?.attrs())?;
    let mut p = ResizeLinesParams {
        outside: cx.op()?.attrs().float("extrapolation").map_err(op_error)? as f32,
        combinations: 1,
        line: own[line],
        rows: y[..line].iter().product(),
        ..ResizeLinesParams::default()
    };
    p.taps = all.add(&all.axes[line], fixed.unwrap_or(1), &mut p.table);
    let mut sizes: Vec<usize> = Vec::new();
    for d in (0..line).rev() {
        let axis = &all.axes[d];
        match (axis.is_identity(), p.counts.last(), sizes.last_mut()) {
            (true, ..) if axis.output == 1 => {}
            (true, Some(0), Some(size)) => *size *= axis.output,
            (identity, ..) => {
                let start = p.table.len();
                let taps = if identity { 0 } else { all.add(axis, 1, &mut p.table) };
                p.combinations = p.combinations.saturating_mul(taps.max(1));
                sizes.push(axis.output);
                p.strides.push(own[d]);
                p.counts.push(taps);
                p.starts.push(start);
            }
        }
    }
    let lists = Divisors::new(sizes, total)?;
    (p.dims, p.factors, p.shifts) = (lists.sizes, lists.factors, lists.shifts);
    let behind: usize = y[line + 1..].iter().product();
    let innermost = behind == 1 && fixed.is_some_and(|t| t == p.taps);
    if let Some(rows) = if innermost { by_rows(&p, &x[..=line], y[line])? } else { None } {
        return Ok(vec![rows]);
    }
    let mut pixels = None;
    let (entry, threads) = if innermost {
        let vectors = y[line].is_multiple_of(WIDTH);
        let width = if vectors { WIDTH } else { 1 };
        p.result = y[line];
        p.chunks = y[line] / width;
        p.each = (p.rows * p.chunks / THREADS).clamp(1, MOST_ROWS);
        (usize::from(!vectors), p.rows.div_ceil(p.each) * p.chunks)
    } else {
        let vectors = behind.is_multiple_of(WIDTH);
        let width = if vectors { WIDTH } else { 1 };
        p.inner = behind / width;
        p.chunks = y[line];
        if p.combinations <= COMBINATIONS {
            // Rows of a block, and its parts: a thread has a few vectors.
            let row = p.inner * p.chunks;
            p.each = (VECTORS / row).clamp(1, COMBINATIONS / p.combinations).min(p.rows);
            p.parts = (row * p.each).div_ceil(VECTORS);
            pixels = Some((6 + usize::from(!vectors), p.rows.div_ceil(p.each) * p.parts));
        }
        (2 + usize::from(!vectors), total / width)
    };
    let (chunks, inner) = (Divisor::new(p.chunks, total)?, Divisor::new(p.inner.max(1), total)?);
    (p.chunks_factor, p.chunks_shift) = (chunks.factor, chunks.shift);
    (p.inner_factor, p.inner_shift) = (inner.factor, inner.shift);
    if let Some((entry, blocks)) = pixels {
        return Ok(vec![Launch::map(entry, p.words()?).on(Grid::Groups(blocks as u64))]);
    }
    Ok(vec![Launch::map(entry, p.words()?).on(Grid::Threads(threads as u64))])
}

fn grid(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, y) = (cx.shape(0)?, cx.out_shape(0)?);
    let total: usize = y.iter().product();
    if total == 0 {
        return Ok(Vec::new());
    }
    let from_end = |i: usize| if i + 2 < x.len() { x[x.len() - 1 - i] } else { 1 };
    let (points, chunks): (usize, usize) = (y[2..].iter().product(), x[1].div_ceil(WIDTH));
    let [by_points, by_chunks] = [Divisor::new(points, total)?, Divisor::new(chunks, total)?];
    let params = GridChannelsParams {
        depth: from_end(2),
        height: from_end(1),
        width: from_end(0),
        points,
        points_factor: by_points.factor,
        points_shift: by_points.shift,
        channels: x[1],
        chunks,
        chunks_factor: by_chunks.factor,
        chunks_shift: by_chunks.shift,
    };
    let threads = x[0] * chunks * points;
    Ok(vec![Launch::map(0, params.words()?).on(Grid::Threads(threads as u64))])
}

/// The parameters of a copy of one element.
fn one() -> ResizeLinesParams {
    ResizeLinesParams {
        taps: 1,
        chunks: 1,
        inner: 1,
        line: 1,
        rows: 1,
        combinations: 1,
        table: vec![0, 1.0f32.to_bits() as usize],
        ..ResizeLinesParams::default()
    }
}
