//! Convolutions of images with few channels last, of f16 or bf16, by `mma.sync`: first layers, whose filters' lines are contiguous.

use super::{Geometry, bias, of_group, size};
use crate::kernels::constants::{alias, structure};
use crate::kernels::conv::lines as conv;
use crate::kernels::cost::{BLOCK_NS, Device, LAUNCH_NS, Product};
use crate::kernels::mma::Kind;
use kiln_backend::{BackendError, Tactic, Target};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Blocks, Body, Entry, Grid, Kernel, Launch};
use kiln_ops::layout::Layout;

kiln_codegen::params! {
    /// A convolution of an image with few channels.
    struct ConvLinesParams {
        /// Lines of the image.
        height: u32,
        /// Elements of a line.
        width: u32,
        /// Channels of the image.
        channels: u32,
        /// Output channels.
        outputs: u32,
        /// Windows along y.
        out_height: u32,
        /// Windows along x.
        out_width: u32,
        /// Elements from one window to the next along x.
        stride_x: i32,
        /// Padding before the first element along y.
        pad_y: i32,
        /// Padding before the first element along x.
        pad_x: i32,
        /// Pieces of all images.
        pieces: u32,
        /// Pieces side by side.
        beside: u32,
        /// Windows side by side of a piece.
        wide: u32,
        /// Whether the weights are constant.
        constant: u32,
    }
}

/// Windows side by side of a piece at most.
const WIDE: usize = 128;
/// Instructions along the depth at most: their weights stay in registers.
const MOST_DEEP: usize = 14;
/// Shared memory of a block at most, in bytes: there are several on a multiprocessor.
const MOST_SHARED: usize = 64 << 10;
/// Threads of a block.
const THREADS: u32 = 128;
/// Blocks that go on from piece to piece.
const BLOCKS: usize = 3 * 132;

/// A row of the table: lines of a piece.
pub struct Row {
    tall: usize,
}

tile_kernels! { Row, "lines_":
    "1" [conv] Row { tall: 1 };
    "2" [conv] Row { tall: 2 };
    "4" [conv] Row { tall: 4 };
}

/// Numbers that the text is written for.
#[derive(Clone, Copy, Debug)]
struct Form {
    /// Lines of a filter, and elements of one.
    lines: usize,
    line: usize,
    /// Elements from one window to the next.
    step: usize,
    /// Lines of the image from one line of windows to the next, and from one line of a filter to the next.
    down: usize,
    apart: usize,
    outputs: usize,
}

impl Form {
    fn of(site: &Site<'_>) -> Result<Form, BackendError> {
        let attrs = site.op()?.attrs();
        if Layout::of(attrs) != Layout::ChannelsLast || site.rank(0) != Some(4) {
            return unsupported("lines of other images than those of two dimensions with channels last");
        }
        let two = |name: &str| -> Result<[usize; 2], BackendError> {
            let all = attrs.ints(name).map_err(op_error)?;
            let at = |i: usize| all.get(i).map_or(1, |&n| usize::try_from(n).unwrap_or(usize::MAX));
            Ok([at(0), at(1)])
        };
        let (strides, dilations) = (two("strides")?, two("dilations")?);
        if attrs.int("groups").map_err(op_error)? != 1 || dilations[1] != 1 {
            return unsupported("lines of groups, or of filters whose taps lie apart");
        }
        let weights = site.anchor.and_then(|(_, n)| site.graph.ty((*n.inputs.get(1)?)?).static_dims());
        let Some(&[outputs, lines, width, channels]) = weights.as_deref() else {
            return unsupported("lines of weights of unknown shape");
        };
        if of_group(site).is_none()
            || channels > 64
            || width > 64
            || lines > 64
            || strides.iter().any(|&s| s > 8)
        {
            return unsupported("lines of many channels, or of large filters");
        }
        let line = width * channels;
        let form =
            Form { lines, line, step: strides[1] * channels, down: strides[0], apart: dilations[0], outputs };
        match form.deep() {
            1..=MOST_DEEP => Ok(form),
            _ => unsupported(format!("filters with {lines} lines of {line} elements")),
        }
    }

    fn parts(&self) -> usize {
        self.line.div_ceil(8)
    }

    /// Instructions along the depth.
    fn deep(&self) -> usize {
        (self.lines * self.parts()).div_ceil(2)
    }

    /// Bytes of the lines of an image under a piece.
    fn shared(&self, tall: usize) -> usize {
        let lines = (tall - 1) * self.down + (self.lines - 1).saturating_mul(self.apart).min(1 << 20) + 1;
        let pitch = ((WIDE - 1) * self.step + self.parts() * 8).div_ceil(2);
        lines * pitch * if self.step % 2 == 1 { 8 } else { 4 }
    }

    /// Columns of a block, in parts of 32.
    fn warps_n(&self) -> usize {
        if self.outputs > 32 { 2 } else { 1 }
    }
}

/// Whether a kernel of the table takes a side result.
pub const fn side_results(_: &Row) -> bool {
    false
}

fn tactics(site: &Site<'_>, name: &str, row: &Row) -> Result<Vec<Tactic>, BackendError> {
    let form = Form::of(site)?;
    let kind = Kind::of(site)?;
    if kind.size != 2 {
        return unsupported("lines of other elements than f16 and bf16");
    }
    let shared = form.shared(row.tall);
    if shared > MOST_SHARED {
        return unsupported(format!("lines of {shared} bytes"));
    }
    let estimate_ns = Product::of(site).map(|p| row.estimate(&p, site.target, &form));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
}

impl Row {
    /// The nanoseconds that a convolution is expected to take.
    fn estimate(&self, product: &Product, target: &Target, form: &Form) -> f64 {
        /// Clocks of a multiprocessor for 16 windows by 32 columns, beside those for each instruction along the depth.
        const AROUND: f64 = 110.0;
        /// Clocks for one of these.
        const EACH: f64 = 11.0;
        let [m, n, ..] = product.size;
        let (tall, device) = (self.tall as f64, Device::of(target));
        let again = 1.0 + 0.15 * form.down as f64 / tall;
        let clocks = (m / 16.0).ceil() * (n / 32.0).ceil() * (AROUND + EACH * form.deep() as f64) * again;
        let busy = clocks / device.sm_count / device.ghz;
        LAUNCH_NS + busy.max(product.bytes / device.bandwidth) + BLOCK_NS * tall / 2.0
    }
}

fn source(site: &Site<'_>, row: &Row) -> Result<Body, BackendError> {
    let (form, kind) = (Form::of(site)?, Kind::of_types(site)?);
    let numbers = [
        ("TALL", row.tall),
        ("FILTER_LINES", form.lines),
        ("LINE", form.line),
        ("STEP", form.step),
        ("DOWN", form.down),
        ("APART", form.apart),
        ("WARPS_N", form.warps_n()),
    ];
    let mma = alias("Mma", &kind.instruction());
    let code = structure("Form", &numbers, &[], &mma) + &bias(site);
    let entry = Entry::Blocks(Blocks { early: true, ..Blocks::of("lines", THREADS) });
    let shared = form.shared(row.tall) as u32;
    Ok(Body { shared, ..Body::of("conv/lines", vec![entry]) }.with(code))
}

fn launch(cx: &Cx<'_>, Row { tall }: &Row) -> Result<Vec<Launch>, BackendError> {
    let g = Geometry::of(cx)?;
    let [_, y, x] = &g.axes;
    let &[images, out_height, out_width, outputs] = &cx.out_shape(0)?[..] else {
        return unsupported("lines of images of other than two dimensions");
    };
    let beside = out_width.div_ceil(WIDE).max(1);
    let wide = out_width.div_ceil(beside).next_multiple_of(16);
    let pieces = images * out_height.div_ceil(*tall) * beside;
    let columns = outputs.div_ceil(if outputs > 32 { 64 } else { 32 });
    let params = ConvLinesParams {
        height: size(y.input),
        width: size(x.input),
        channels: g.channels,
        outputs: g.outputs,
        out_height,
        out_width,
        stride_x: x.stride,
        pad_y: y.begin,
        pad_x: x.begin,
        pieces,
        beside,
        wide,
        constant: cx.constant(1),
    };
    let blocks = pieces.min((BLOCKS / columns.max(1)).max(1)) * columns;
    Ok(vec![Launch::map(0, params.words()?).on(Grid::Groups(blocks as u64))])
}
