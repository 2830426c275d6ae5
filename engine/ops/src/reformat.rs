//! The way of a tensor between the linear format and another one, as layers.

use crate::shape::RESHAPE;
use crate::slice::SLICE;
use crate::slice::pad::PAD;
use crate::transpose::TRANSPOSE;
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::error::OpError;
use kiln_ir::format::Packing;
use kiln_ir::op::Op;
use kiln_ir::tensor::Tensor;

/// One layer of the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// Other order of the dimensions.
    Transpose(Vec<usize>),
    /// Other dimensions; 0 keeps the one at this place, −1 is what remains.
    Reshape(Vec<i64>),
    /// The first elements of an axis: axis and number.
    Cut(usize, u64),
    /// Zeros behind the elements of an axis: rank, axis and number.
    Pad(usize, usize, u64),
}

fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

impl Move {
    /// The operator, and its inputs behind the tensor.
    pub fn operator(&self) -> Result<(Op, Vec<Tensor>), OpError> {
        let ints = |v: &[i64]| {
            Tensor::i64(&[v.len()], v).ok_or_else(|| OpError::Value("a constant that cannot be made".into()))
        };
        let one = |n: u64| ints(&[number(n)]);
        let op = |name, attrs| Op::new(name, attrs).map_err(|e| OpError::Value(e.to_string()));
        Ok(match self {
            Move::Transpose(perm) => {
                let perm: Vec<i64> = perm.iter().map(|&p| p as i64).collect();
                (op(TRANSPOSE, Attrs::new().with("perm", perm))?, Vec::new())
            }
            Move::Reshape(shape) => {
                let attrs = Attrs::new().with("allow_zero", Attr::Bool(false));
                (op(RESHAPE, attrs)?, vec![ints(shape)?])
            }
            Move::Cut(axis, count) => {
                let inputs = vec![ints(&[0])?, one(*count)?, one(*axis as u64)?];
                (op(SLICE, Attrs::new())?, inputs)
            }
            Move::Pad(rank, axis, more) => {
                let mut pads = vec![0; 2 * rank];
                if let Some(p) = pads.get_mut(rank + axis) {
                    *p = number(*more);
                }
                (op(PAD, Attrs::new())?, vec![ints(&pads)?])
            }
        })
    }
}

/// Places of the dimensions of a tensor.
struct Axes {
    /// Dimensions in front of the channels.
    lead: usize,
    /// Dimensions behind the channels.
    spatial: usize,
}

impl Axes {
    fn of(packing: Packing, rank: usize) -> Axes {
        let spatial = packing.format.min_rank().saturating_sub(1);
        Axes { lead: rank.saturating_sub(spatial + 1), spatial }
    }

    /// From dimensions with the channels last to those with the channels first.
    fn to_first(&self) -> Vec<usize> {
        let Axes { lead, spatial } = *self;
        (0..lead).chain([lead + spatial]).chain(lead..lead + spatial).collect()
    }

    fn to_last(&self) -> Vec<usize> {
        let Axes { lead, spatial } = *self;
        (0..lead).chain(lead + 1..=lead + spatial).chain([lead]).collect()
    }
}

/// Dimensions as the shape of a reshape that leaves the leading ones where they are; `None` if more than one that moves is not
/// a number, or one is 0.
fn moved_shape(lead: usize, between: &[u64], spatial: &[Dim]) -> Option<Vec<i64>> {
    let mut shape = vec![0; lead];
    shape.extend(between.iter().map(|&n| number(n)));
    let sizes: Vec<i64> = spatial.iter().map(|d| d.as_const().unwrap_or(-1)).collect();
    shape.extend(&sizes);
    (!sizes.contains(&0) && sizes.iter().filter(|&&n| n < 0).count() <= 1).then_some(shape)
}

/// The way from the shape in memory to a tensor of these dimensions.
pub fn unpack(p: Packing, dims: &[Dim]) -> Vec<Move> {
    if p.is_linear() {
        return Vec::new();
    }
    let axes = Axes::of(p, dims.len());
    let (lead, spatial, width) = (axes.lead, axes.spatial, p.format.width() as u64);
    let channels = p.channels().filter(|_| p.has_padding());
    let blocked = p.format.is_vectorized() && !p.format.is_channels_last();
    let rest = dims.get(lead + 1..).unwrap_or_default();
    let joined = moved_shape(lead, &[p.padded()], rest).filter(|_| p.blocks() > 1);
    let mut all = Vec::new();
    match joined.filter(|_| blocked) {
        Some(shape) => {
            let behind = lead + 1 + spatial;
            all.push(Move::Transpose((0..=lead).chain([behind]).chain(lead + 1..behind).collect()));
            all.push(Move::Reshape(shape));
            all.extend(channels.map(|count| Move::Cut(lead, count)));
        }
        None => {
            if blocked {
                let (first, last) = (lead, lead + 1 + spatial);
                let perm = (0..lead).chain(first + 1..last).chain([first, last]).collect();
                all.push(Move::Transpose(perm));
                let kept = std::iter::repeat_n(0, lead + spatial);
                all.push(Move::Reshape(kept.chain([number(p.blocks() * width)]).collect()));
            }
            all.extend(channels.map(|count| Move::Cut(lead + spatial, count)));
            all.push(Move::Transpose(axes.to_first()));
        }
    }
    all
}

/// The way from a tensor of these dimensions to its shape in memory.
pub fn pack(p: Packing, dims: &[Dim]) -> Vec<Move> {
    if p.is_linear() {
        return Vec::new();
    }
    let rank = dims.len();
    let axes = Axes::of(p, rank);
    let (lead, spatial, width) = (axes.lead, axes.spatial, p.format.width() as u64);
    let more = p.channels().map(|c| p.padded() - c).filter(|&n| n > 0);
    let blocked = p.format.is_vectorized() && !p.format.is_channels_last();
    let rest = dims.get(lead + 1..).unwrap_or_default();
    let split = moved_shape(lead, &[p.blocks(), width], rest).filter(|_| p.blocks() > 1);
    let mut all = Vec::new();
    match split.filter(|_| blocked) {
        Some(shape) => {
            all.extend(more.map(|more| Move::Pad(rank, lead, more)));
            all.push(Move::Reshape(shape));
            let behind = lead + 2 + spatial;
            all.push(Move::Transpose((0..=lead).chain(lead + 2..behind).chain([lead + 1]).collect()));
        }
        None => {
            all.push(Move::Transpose(axes.to_last()));
            all.extend(more.map(|more| Move::Pad(rank, lead + spatial, more)));
            if blocked {
                let kept = std::iter::repeat_n(0, lead + spatial);
                let split = [p.blocks(), width].map(number);
                all.push(Move::Reshape(kept.chain(split).collect()));
                let blocks = lead + spatial;
                let perm = (0..lead).chain([blocks]).chain(lead..blocks).chain([blocks + 1]).collect();
                all.push(Move::Transpose(perm));
            }
        }
    }
    all
}
