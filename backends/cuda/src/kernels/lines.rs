//! Convolutions of images with few channels last, of f16 or bf16, by `mma.sync`: first layers, whose filters' lines are contiguous.

use super::conv::{bias_value, of_group};
use super::cost;
use super::mma::Kind;
use super::wgmma;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::template::{fill, section};
use kiln_codegen::window::conv_words;
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, words};
use kiln_ops::layout::Layout;
use std::fmt::Write;

const TEXT: &str = include_str!("../../../../kernels/mma/lines.cuh");

/// Windows side by side of a piece at most.
const WIDE: usize = 128;
/// Instructions along the depth at most: their weights stay in registers.
const MOST_DEEP: usize = 14;
/// Shared memory of a block at most, in bytes: there are several on a multiprocessor.
const MOST_SHARED: usize = 64 << 10;
/// Blocks that go on from piece to piece.
const BLOCKS: usize = 3 * 132;

pub const KERNELS: &[Kernel] =
    &[lines::<1>("conv.lines_1"), lines::<2>("conv.lines_2"), lines::<4>("conv.lines_4")];

/// A kernel whose pieces have `TALL` lines.
const fn lines<const TALL: usize>(name: &'static str) -> Kernel {
    Kernel {
        name,
        ops: &["conv"],
        epilogue: true,
        tactics: |site| tactics(site, TALL),
        source: |site, _| source(site, TALL),
        launch: |cx| launch(cx, TALL),
    }
}

const fn name(tall: usize) -> &'static str {
    match tall {
        1 => "conv.lines_1",
        2 => "conv.lines_2",
        _ => "conv.lines_4",
    }
}

/// What the text is written for.
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

fn tactics(site: &Site<'_>, tall: usize) -> Result<Vec<Tactic>, BackendError> {
    let form = Form::of(site)?;
    let kind = Kind::of(site)?;
    if kind.size != 2 {
        return unsupported("lines of other elements than f16 and bf16");
    }
    if form.shared(tall) > MOST_SHARED {
        return unsupported(format!("lines of {} bytes", form.shared(tall)));
    }
    let estimate_ns = cost::Product::of(site).map(|p| p.by_lines(site.target, tall, form.deep(), form.down));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name(tall)) }])
}

fn source(site: &Site<'_>, tall: usize) -> Result<Body, BackendError> {
    let (form, kind) = (Form::of(site)?, Kind::of_types(site)?);
    let mut code = String::new();
    for (name, n) in [
        ("TALL", tall),
        ("KERNEL_LINES", form.lines),
        ("LINE", form.line),
        ("STEP", form.step),
        ("DOWN", form.down),
        ("APART", form.apart),
        ("WARPS_N", form.warps_n()),
    ] {
        let _ = writeln!(code, "static constexpr u32 {name} = {n}u;");
    }
    code += &wgmma::text(&[if site.dtype(2).is_some() { "bias" } else { "no_bias" }]);
    code += section(TEXT, "lines");
    let cell = site.dtype(2).map_or("u8", crate::frame::cell);
    let value = bias_value(site);
    let pairs = [
        ("ACC", "f32"),
        ("CELL_C", cell),
        ("BIAS_VALUE", &*value),
        ("MMA_A", kind.types.0),
        ("MMA_B", kind.types.1),
    ];
    let shared = form.shared(tall) as u32;
    Ok(Body { code: fill(&code, &pairs), entries: vec![Entry::Free("lines")], shared, ..Body::default() })
}

fn launch(cx: &Cx<'_>, tall: usize) -> Result<Vec<Launch>, BackendError> {
    let mut w = conv_words(cx)?;
    let &[images, height, width, outputs] = &cx.out_shape(0)?[..] else {
        return unsupported("lines of images of other than two dimensions");
    };
    let beside = width.div_ceil(WIDE).max(1);
    let wide = width.div_ceil(beside).next_multiple_of(16);
    let pieces = images * height.div_ceil(tall) * beside;
    let columns = outputs.div_ceil(if outputs > 32 { 64 } else { 32 });
    w.extend(words([pieces, beside, wide, cx.constant(1)])?);
    let blocks = pieces.min((BLOCKS / columns.max(1)).max(1)) * columns;
    Ok(vec![Launch::map(0, w).on(Grid::Groups(blocks as u64))])
}
