//! Slices, within a tensor and beyond.

use crate::NetworkError;
use crate::body::bad;
use crate::layer::{layer_def, setters};
use crate::{Body, Layer, Network, TensorId};
use kiln_ir::attr::Attrs;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;
use kiln_ir::infer::normalize_axis;
use kiln_ops::cast::IDENTITY;
use kiln_ops::gather::GATHER;
use kiln_ops::generate::{ASSERTION, RANGE};
use kiln_ops::pointwise::binary::{ADD, AND, GREATER_EQUAL, LESS, MAX, MIN, MOD, MUL, SUB};
use kiln_ops::pointwise::select::SELECT;
use kiln_ops::shape::RESHAPE;
use kiln_ops::slice::SLICE;
use kiln_ops::slice::concat::CONCAT;
use kiln_ops::slice::pad::PAD;

/// Elements that a slice reads beyond the bounds of its tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SampleMode {
    /// Error of the run: indices out of range are not allowed.
    #[default]
    StrictBounds,
    /// Elements of the other end, repeatedly.
    Wrap,
    /// The nearest element.
    Clamp,
    /// A value: input 4, or zero.
    Fill,
    /// The mirror image, the edge not repeated.
    Reflect,
}

/// See [`Network::add_slice`].
#[derive(Clone, Debug)]
pub struct Slice {
    pub start: Vec<i64>,
    pub size: Vec<i64>,
    pub stride: Vec<i64>,
    pub axes: Option<Vec<i64>>,
    pub mode: SampleMode,
}

impl Network {
    /// Elements start, start + stride, … of every axis, `size` of them. Strides may be negative or 0. An empty list
    /// stands for starts of 0, sizes of the tensor, strides of 1. Tensors for start, size, stride, the value to fill
    /// with and the (constant) axes are inputs 1 to 5, set by `set_input`.
    pub fn add_slice(
        &mut self,
        input: TensorId,
        start: &[i64],
        size: &[i64],
        stride: &[i64],
    ) -> Result<Layer<'_, Slice>, NetworkError> {
        let (start, size, stride) = (start.to_vec(), size.to_vec(), stride.to_vec());
        self.add_kind(Slice { start, size, stride, axes: None, mode: SampleMode::StrictBounds }, &[input])
    }
}

setters! { Slice {
    /// First elements.
    set_start(start: &[i64]) => start = start.to_vec();
    /// Numbers of elements.
    set_size(size: &[i64]) => size = size.to_vec();
    /// Distances.
    set_stride(stride: &[i64]) => stride = stride.to_vec();
    /// The axes that the lists speak of, instead of all.
    set_axes(axes: &[i64]) => axes = Some(axes.to_vec());
    /// Sets the elements that are read beyond the bounds.
    set_mode(mode: SampleMode) => mode = mode;
}}
layer_def!(Slice, "slice", 6, true);

const FILL: usize = 4;
const AXES: usize = 5;

/// A parameter of one axis, as far as it is a number, and how to read it otherwise.
#[derive(Clone, Copy)]
struct Param {
    known: Option<i64>,
    /// The 1-D input, and the position in it.
    from: Option<(ValueId, usize)>,
}

impl Param {
    fn number(n: i64) -> Param {
        Param { known: Some(n), from: None }
    }

    /// Value as a 1-D tensor of one i64.
    fn read(&self, b: &mut Body<'_>) -> Result<ValueId, OpError> {
        match (self.known, self.from) {
            (Some(n), _) => b.ints(&[n]),
            (None, Some((v, i))) => {
                let (at, end) = (b.ints(&[i as i64])?, b.ints(&[i as i64 + 1])?);
                let one = b.plain(SLICE, &[v, at, end])?;
                b.cast(one, DType::I64)
            }
            (None, None) => Err(OpError::Value("a parameter of a slice is not known".into())),
        }
    }

    fn scalar(&self, b: &mut Body<'_>) -> Result<ValueId, OpError> {
        let one = self.read(b)?;
        b.reshape(one, &[])
    }
}

/// Slice along one axis of the graph's tensor.
struct Cut {
    axis: usize,
    start: Param,
    size: Param,
    stride: Param,
    extent: Option<i64>,
}

impl Cut {
    /// Whether it leaves the axis as it is.
    fn is_whole(&self) -> bool {
        self.start.known == Some(0)
            && self.stride.known == Some(1)
            && self.size.known.is_some()
            && self.size.known == self.extent
    }

    /// First and last index, if they are numbers; `None` inside for no elements at all.
    fn ends(&self) -> Option<Option<(i64, i64)>> {
        let (start, size, stride) = (self.start.known?, self.size.known?, self.stride.known?);
        if size == 0 {
            return Some(None);
        }
        let last = stride.checked_mul(size - 1)?.checked_add(start)?;
        Some(Some((start.min(last), start.max(last))))
    }

    /// Whether indices can lie beyond the bounds, as far as is known.
    fn may_leave(&self) -> bool {
        match (self.ends(), self.extent) {
            (Some(None), _) => false,
            (Some(Some((least, most))), Some(n)) => least < 0 || most >= n,
            _ => true,
        }
    }
}

impl Slice {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let x = b.x(0)?;
        if b.has(FILL) {
            if self.mode != SampleMode::Fill {
                return Err(bad(
                    "mode",
                    format!("{:?}", self.mode),
                    "Fill, as there is a value to fill with",
                ));
            }
            b.same_dtype(0, FILL)?;
            b.check_rank(FILL, |r| r == 0, "no dimensions (a scalar)")?;
        }
        let cuts = self.cuts(b, x)?;
        let mut y = x;
        let plain = |c: &Cut| c.stride.known.is_some_and(|s| s > 0 || (s < 0 && c.ends().is_some()));
        let (simple, other): (Vec<_>, Vec<_>) = cuts
            .into_iter()
            .filter(|c| !c.is_whole())
            .partition(|c| plain(c) && (self.mode == SampleMode::StrictBounds || !c.may_leave()));
        if !simple.is_empty() {
            y = cut(b, y, &simple)?;
        }
        for c in other {
            y = self.sample(b, y, &c)?;
        }
        if y == x {
            y = b.plain(IDENTITY, &[x])?;
        }
        Ok(vec![y])
    }

    fn axes(&self, b: &Body<'_>, rank: usize) -> Result<Vec<usize>, OpError> {
        let own = rank - b.lead();
        let given = match b.has(AXES) {
            true => Some(b.need_ints(AXES, "axes")?),
            false => self.axes.clone(),
        };
        let Some(given) = given else { return Ok((0..own).collect()) };
        let axes = given.iter().map(|&a| normalize_axis(a, own, "axes")).collect::<Result<Vec<_>, _>>()?;
        let unique = axes.iter().collect::<std::collections::BTreeSet<_>>().len() == axes.len();
        if unique { Ok(axes) } else { Err(bad("axes", format!("{given:?}"), "without repetition")) }
    }

    fn cuts(&self, b: &Body<'_>, x: ValueId) -> Result<Vec<Cut>, OpError> {
        let dims = b.dims(x);
        let axes = self.axes(b, dims.len())?;
        let start = params(b, 1, "start", &self.start, axes.len(), |_| Some(0))?;
        let extents = |i: usize| dims.get(axes[i] + b.lead()).and_then(|d| d.as_const());
        let size = params(b, 2, "size", &self.size, axes.len(), extents)?;
        let stride = params(b, 3, "stride", &self.stride, axes.len(), |_| Some(1))?;
        let mut cuts = Vec::new();
        for (i, &axis) in axes.iter().enumerate() {
            if let Some(n) = size[i].known.filter(|&n| n < 0) {
                return Err(bad("size", n, "0 or more"));
            }
            let c = Cut {
                axis: axis + b.lead(),
                start: start[i],
                size: size[i],
                stride: stride[i],
                extent: extents(i),
            };
            self.check(&c)?;
            cuts.push(c);
        }
        Ok(cuts)
    }

    /// Refuses what is certainly out of bounds.
    fn check(&self, c: &Cut) -> Result<(), OpError> {
        let (Some(Some((least, most))), Some(n)) = (c.ends(), c.extent) else { return Ok(()) };
        let refuse = |found: String, wanted: &str| Err(bad("slice", found, wanted));
        match self.mode {
            SampleMode::StrictBounds if least < 0 || most >= n => refuse(
                format!("{least} to {most} along axis {}", c.axis),
                &format!("0 to {} with strict bounds", n - 1),
            ),
            SampleMode::Reflect | SampleMode::Wrap | SampleMode::Clamp if n == 0 => {
                refuse(format!("of an empty axis {}", c.axis), "at least one element to read")
            }
            _ => Ok(()),
        }
    }

    /// Reads one axis by computed indices.
    fn sample(&self, b: &mut Body<'_>, x: ValueId, c: &Cut) -> Result<ValueId, OpError> {
        let (zero, one) = (b.int(0)?, b.int(1)?);
        let size = c.size.scalar(b)?;
        let steps = b.plain(RANGE, &[zero, size, one])?;
        let (start, stride) = (c.start.read(b)?, c.stride.read(b)?);
        let steps = b.plain(MUL, &[steps, stride])?;
        let at = b.plain(ADD, &[steps, start])?;
        let (n, none, unit) = (b.dim(x, c.axis)?, b.ints(&[0])?, b.ints(&[1])?);
        let last = b.plain(SUB, &[n, unit])?;
        let read = |b: &mut Body<'_>, at: ValueId, x: ValueId| {
            b.op(GATHER, Attrs::new().with("axis", c.axis as i64), &[x, at])
        };
        match self.mode {
            SampleMode::Wrap => {
                let at = b.plain(MOD, &[at, n])?;
                read(b, at, x)
            }
            SampleMode::Reflect => {
                // The period is 2·(n−1); one element has the period 1.
                let there = b.plain(ADD, &[last, last])?;
                let period = b.plain(MAX, &[there, unit])?;
                let at = b.plain(MOD, &[at, period])?;
                let back = b.plain(SUB, &[there, at])?;
                let back = b.plain(MAX, &[back, none])?;
                let at = b.plain(MIN, &[at, back])?;
                read(b, at, x)
            }
            mode => {
                let inside = (b.plain(GREATER_EQUAL, &[at, none])?, b.plain(LESS, &[at, n])?);
                let inside = b.plain(AND, &[inside.0, inside.1])?;
                if mode == SampleMode::StrictBounds {
                    let text = format!("slice \"{}\" reads beyond axis {}", b.layer(), c.axis);
                    b.ops(ASSERTION, Attrs::new().with("message", text), &[Some(inside)])?;
                }
                let low = b.plain(MAX, &[at, none])?;
                if mode != SampleMode::Fill {
                    let near = b.plain(MIN, &[low, last])?;
                    return read(b, near, x);
                }
                // An axis that may be empty gets an element to read where nothing is inside.
                let (x, last) = match c.extent {
                    Some(1..) => (x, last),
                    _ => {
                        let mut pads = vec![0; 2 * b.rank(x)];
                        pads[b.rank(x) + c.axis] = 1;
                        let pads = b.ints(&pads)?;
                        (b.plain(PAD, &[x, pads])?, b.plain(MAX, &[last, none])?)
                    }
                };
                let near = b.plain(MIN, &[low, last])?;
                let y = read(b, near, x)?;
                let fill = match b.opt(FILL) {
                    Some(v) => v,
                    None => b.number(b.dtype(x), 0.0)?,
                };
                let mut shape = vec![1; b.rank(x)];
                shape[c.axis] = -1;
                let inside = b.reshape(inside, &shape)?;
                b.plain(SELECT, &[inside, y, fill])
            }
        }
    }
}

/// One parameter for every axis: from an input, the list, or what it is by default.
fn params(
    b: &Body<'_>,
    input: usize,
    name: &str,
    given: &[i64],
    n: usize,
    default: impl Fn(usize) -> Option<i64>,
) -> Result<Vec<Param>, OpError> {
    if let Some(v) = b.opt(input) {
        b.check_dtype(input, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64")?;
        let dims = b.dims(v);
        if b.lead() > 0 || dims.len() != 1 || !dims[0].is(n as i64) {
            return Err(b.bad_shape(input, &format!("[{n}], one number for each axis")));
        }
        let known = b.fact(v).as_const().map(|t| t.to_i64());
        let one = |i: usize| Param { known: known.as_ref().map(|k| k[i]), from: Some((v, i)) };
        return Ok((0..n).map(one).collect());
    }
    if given.is_empty() {
        let missing = || bad(name, "missing", "given, as the dimensions of the tensor are not constant");
        return (0..n).map(|i| default(i).map(Param::number).ok_or_else(missing)).collect();
    }
    if given.len() != n {
        return Err(bad(name, format!("{given:?}"), &format!("{n} numbers, one for each axis")));
    }
    Ok(given.iter().map(|&x| Param::number(x)).collect())
}

/// Cuts along axes within bounds; a slice that turns out shorter than asked for fails.
fn cut(b: &mut Body<'_>, x: ValueId, cuts: &[Cut]) -> Result<ValueId, OpError> {
    let join = |b: &mut Body<'_>, v: Vec<ValueId>| b.op(CONCAT, Attrs::new().with("axis", 0i64), &v);
    let (mut starts, mut ends, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
    for c in cuts {
        let (start, size, stride) = (c.start.read(b)?, c.size.read(b)?, c.stride.read(b)?);
        let end = match (c.start.known, c.size.known, c.stride.known) {
            // An end before the first element must not count from the end of the axis.
            (Some(a), Some(n), Some(s)) if s < 0 => {
                let end = a.saturating_add(s.saturating_mul(n));
                b.ints(&[if end < 0 { i64::MIN / 2 } else { end }])?
            }
            _ => {
                let length = b.plain(MUL, &[size, stride])?;
                b.plain(ADD, &[start, length])?
            }
        };
        starts.push(start);
        ends.push(end);
        sizes.push((c.axis, size));
    }
    let axes: Vec<i64> = cuts.iter().map(|c| c.axis as i64).collect();
    let steps: Vec<i64> = cuts.iter().filter_map(|c| c.stride.known).collect();
    let (starts, ends) = (join(b, starts)?, join(b, ends)?);
    let (axes, steps) = (b.ints(&axes)?, b.ints(&steps)?);
    let y = b.plain(SLICE, &[x, starts, ends, axes, steps])?;
    let right = |c: &Cut| c.size.known.is_some() && c.size.known == b.dims(y)[c.axis].as_const();
    if cuts.iter().all(right) {
        return Ok(y);
    }
    let mut shape = Vec::new();
    for axis in 0..b.rank(y) {
        shape.push(match sizes.iter().find(|(a, _)| *a == axis) {
            Some((_, size)) => *size,
            None => b.dim(y, axis)?,
        });
    }
    let shape = join(b, shape)?;
    b.op(RESHAPE, Attrs::new().with("allow_zero", true), &[y, shape])
}

#[cfg(test)]
impl Slice {
    /// Copies the settings to another range of a one-dimensional tensor.
    pub(super) fn with(self, start: i64, size: i64, stride: i64) -> Slice {
        Slice { start: vec![start], size: vec![size], stride: vec![stride], ..self }
    }

    /// Copies the settings to a slice along one axis only.
    pub(super) fn along(self, axis: i64, start: i64, size: i64) -> Slice {
        Slice { axes: Some(vec![axis]), ..self.with(start, size, 1) }
    }
}
