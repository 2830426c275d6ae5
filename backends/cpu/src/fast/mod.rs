//! Kernels by operator.
//!
//! A kernel answers false where it does not cover a case. The oracle then computes the layer, which is reported.

mod affine_grid;
mod argreduce;
mod attention;
mod codes;
mod concat;
mod conv;
mod conv_any;
mod conv_exact;
mod conv_integer;
mod conv_last;
mod conv_second;
mod copy;
mod deformable;
mod depthwise;
mod einsum;
pub(crate) mod element;
mod facts;
mod few;
mod folds;
pub(crate) mod form;
pub(crate) mod gemm;
mod generate;
mod grid;
mod hardmax;
pub(crate) mod indices;
mod integer;
pub(crate) mod kept;
mod linear_attention;
mod lines;
mod loss;
mod lrn;
mod made;
mod matmul;
mod matrices;
mod micro;
#[cfg(target_arch = "x86_64")]
mod micro_amx;
mod micro_float;
mod micro_integer;
mod moves;
mod narrow;
mod nest;
mod nibbles;
mod nms;
mod norms;
mod operand;
pub(crate) mod panels;
mod plane;
pub(crate) mod pointwise;
mod pool;
mod pool_indices;
mod pool_planes;
mod pool_sums;
mod ragged;
mod random;
mod recurrent;
mod reduce;
mod reduce_folds;
mod resize_wide;
mod roi_align;
mod rotary;
mod rows;
mod sample;
mod scatter;
mod scatter_reduce;
mod short;
mod sides;
mod signal;
pub(crate) mod simd;
mod sort;
mod tfidf;
mod transposed;
mod turn;
mod unique;
mod vector;
mod wide;
mod windows;
mod words;

use crate::buffer::Pool;
use crate::threads;
use crate::value::{Out, Val};
use half::{bf16, f16};
use kept::{How, Kept};
use kiln_backend::{BackendError, Shapes};
use kiln_ir::float::f8e4m3_to_f64;
use kiln_ir::infer::normalize_axis;
use kiln_ir::{DType, Fact, Graph, Node, OpName, Tensor, TensorType};
use kiln_ops::attention::ATTENTION;
use kiln_ops::conv::CONV;
use kiln_ops::conv::transposed::CONV_TRANSPOSE;
use kiln_ops::gather::GATHER;
use kiln_ops::gather::each::{GATHER_ELEMENTS, GATHER_ND};
use kiln_ops::generate::ONE_HOT;
use kiln_ops::matmul::MATMUL;
use kiln_ops::matmul::einsum::EINSUM;
use kiln_ops::norm::batch_norm::{BATCH_NORM, GROUP_NORM};
use kiln_ops::norm::layer_norm::{LAYER_NORM, RMS_NORM};
use kiln_ops::pool::POOL;
use kiln_ops::recurrent::{GRU, LSTM, RNN};
use kiln_ops::reduce::REDUCE;
use kiln_ops::reduce::argreduce::{ARGMAX, ARGMIN};
use kiln_ops::reduce::cumulative::CUMULATIVE;
use kiln_ops::sample::grid_sample::GRID_SAMPLE;
use kiln_ops::sample::resize::RESIZE;
use kiln_ops::scatter::{SCATTER_ELEMENTS, SCATTER_ND};
use kiln_ops::select::{COMPRESS, NONZERO};
use kiln_ops::shape::RESHAPE;
use kiln_ops::shape::expand::{EXPAND, TILE};
use kiln_ops::shape::squeeze::{SQUEEZE, UNSQUEEZE};
use kiln_ops::signal::dft::DFT;
use kiln_ops::signal::stft::STFT;
use kiln_ops::slice::SLICE;
use kiln_ops::slice::concat::CONCAT;
use kiln_ops::slice::insert::INSERT_SLICE;
use kiln_ops::slice::pad::PAD;
use kiln_ops::softmax::{LOG_SOFTMAX, SOFTMAX};
use kiln_ops::sort::TOPK;
use kiln_ops::transpose::TRANSPOSE;
use kiln_ops::transpose::rearrange::{
    CENTER_CROP_PAD, DEPTH_TO_SPACE, REVERSE_SEQUENCE, SPACE_TO_DEPTH, TRILU,
};
use kiln_ops::util::is_real;
use pointwise::tail::{At, Tail};
use std::cell::Cell;
use std::sync::Arc;

pub(crate) type Path = fn(&mut NodeCx<'_>) -> Result<bool, BackendError>;

/// Kernels that their files register, after those of [`KERNELS`].
#[linkme::distributed_slice]
pub(crate) static TABLES: [&'static [Kernel]];

/// The kernel of an operator, and whether it covers a node.
pub(crate) struct Kernel {
    op: OpName,
    pub(crate) run: Path,
    covers: fn(&Types<'_>) -> bool,
}

/// Types of a node's operands and results, which decide whether a kernel covers it.
pub(crate) struct Types<'a> {
    pub(crate) node: &'a Node,
    graph: &'a Graph,
}

impl<'a> Types<'a> {
    /// The types around a node.
    pub(crate) fn new(graph: &'a Graph, node: &'a Node) -> Types<'a> {
        Types { node, graph }
    }
}

impl Types<'_> {
    /// The type of an input; `None` where it is absent.
    pub(crate) fn input(&self, i: usize) -> Option<&TensorType> {
        self.node.inputs.get(i).copied().flatten().map(|v| self.graph.ty(v))
    }

    /// Whether all inputs but those of the host, and all results, are f32, f16 or bf16.
    pub(crate) fn all_real(&self) -> bool {
        let real = |t: &TensorType| is_real(t.dtype);
        let given = (0..self.node.inputs.len()).filter_map(|i| Some((i, self.input(i)?)));
        let port = |i: usize| self.node.op.port(i).is_some_and(|p| p.host);
        given.filter(|(i, _)| !port(*i)).all(|(_, t)| real(t))
            && self.node.outputs.iter().all(|&v| real(self.graph.ty(v)))
    }

    /// Whether elements of the first input are whole bytes.
    pub(crate) fn whole_bytes(&self) -> bool {
        self.input(0).is_some_and(|t| t.dtype.bits() >= 8)
    }
}

const fn kernel(op: OpName, run: Path, covers: fn(&Types<'_>) -> bool) -> Kernel {
    Kernel { op, run, covers }
}

/// The kernels by operator.
const KERNELS: &[Kernel] = &[
    kernel(ATTENTION, attention::run, attention::covers),
    kernel(CONV, conv::run, conv::covers),
    kernel(MATMUL, matmul::run, matmul::covers),
    kernel(POOL, pool::run, pool::covers),
    kernel(SOFTMAX, rows::softmax, |t| t.all_real()),
    kernel(LOG_SOFTMAX, rows::softmax, |t| t.all_real()),
    kernel(LAYER_NORM, rows::layer_norm, rows::covers_norm),
    kernel(RMS_NORM, rows::layer_norm, rows::covers_norm),
    kernel(BATCH_NORM, rows::batch_norm, |t| t.all_real()),
    kernel(GROUP_NORM, rows::group_norm, |t| t.all_real()),
    kernel(REDUCE, reduce::run, reduce::covers),
    kernel(ARGMAX, argreduce::run, argreduce::covers),
    kernel(ARGMIN, argreduce::run, argreduce::covers),
    kernel(CUMULATIVE, argreduce::cumulative, argreduce::covers),
    kernel(TOPK, sort::topk, sort::covers),
    kernel(DFT, signal::dft, |t| t.all_real()),
    kernel(STFT, signal::stft, |t| t.all_real()),
    kernel(SCATTER_ELEMENTS, scatter::elements, scatter::covers),
    kernel(SCATTER_ND, scatter::nd, scatter::covers),
    kernel(NONZERO, scatter::nonzero, scatter::covers_nonzero),
    kernel(COMPRESS, scatter::compress, |t| t.whole_bytes()),
    kernel(ONE_HOT, generate::one_hot, generate::covers),
    kernel(CONV_TRANSPOSE, transposed::run, |t| t.all_real()),
    kernel(EINSUM, einsum::run, einsum::covers),
    kernel(RNN, recurrent::run, recurrent::covers),
    kernel(GRU, recurrent::run, recurrent::covers),
    kernel(LSTM, recurrent::run, recurrent::covers),
    kernel(RESIZE, sample::resize, sample::covers_resize),
    kernel(GRID_SAMPLE, sample::grid_sample, sample::covers_grid),
    kernel(RESHAPE, moves::reshape, |_| true),
    kernel(SQUEEZE, moves::reshape, |_| true),
    kernel(UNSQUEEZE, moves::reshape, |_| true),
    kernel(TRANSPOSE, moves::transpose, |t| t.whole_bytes()),
    kernel(EXPAND, moves::expand, |t| t.whole_bytes()),
    kernel(SLICE, moves::slice, |t| t.whole_bytes()),
    kernel(CONCAT, moves::concat, |t| t.whole_bytes()),
    kernel(INSERT_SLICE, moves::insert_slice, |t| t.input(1).is_some_and(|t| t.dtype.bits() >= 8)),
    kernel(GATHER, moves::gather, |t| t.whole_bytes()),
    kernel(GATHER_ELEMENTS, moves::gather_elements, |t| t.whole_bytes()),
    kernel(GATHER_ND, moves::gather_nd, |t| t.whole_bytes()),
    kernel(TILE, moves::tile, |t| t.whole_bytes()),
    kernel(PAD, moves::pad, |t| t.whole_bytes()),
    kernel(CENTER_CROP_PAD, moves::center_crop_pad, |t| t.whole_bytes()),
    kernel(DEPTH_TO_SPACE, moves::depth_to_space, |t| t.whole_bytes()),
    kernel(SPACE_TO_DEPTH, moves::space_to_depth, |t| t.whole_bytes()),
    kernel(TRILU, moves::trilu, |t| t.whole_bytes()),
    kernel(REVERSE_SEQUENCE, moves::reverse_sequence, |t| t.whole_bytes()),
];

/// The kernels that cover a node, the preferred one first.
fn all_of<'a>(graph: &'a Graph, node: &'a Node) -> impl Iterator<Item = &'static Kernel> + 'a {
    let all = KERNELS.iter().chain(TABLES.iter().flat_map(|table| table.iter()));
    all.filter(move |k| node.op.is(k.op) && (k.covers)(&Types { node, graph }))
}

/// The form in which a node reads its second input; `None` if that is not known yet, or it does not read panels.
pub(crate) fn form_of_weights(t: &Types<'_>) -> Option<form::Form> {
    let form = match () {
        _ if t.node.op.is(MATMUL) => matmul::form(t),
        _ if t.node.op.is(CONV) => conv_last::form(t),
        _ => None,
    };
    form.and_then(form::Form::not_empty)
}

/// The kernel that covers a node.
pub(crate) fn of(graph: &Graph, node: &Node) -> Option<&'static Kernel> {
    all_of(graph, node).next()
}

/// Runs a node by its path, products in blocks of this depth; `None` where the path does not cover the case. The results are those of the
/// tail where that is said.
pub(crate) fn run(
    path: Path,
    node: &Node,
    args: &mut Vec<Option<Val>>,
    cx: &RunCx<'_>,
    (depth, kept, tail, unused): (usize, Option<&Kept>, Option<&Tail<'_>>, &[bool]),
) -> Result<Option<(Vec<Val>, bool)>, BackendError> {
    let (outs, bytes, finished) = (Vec::new(), false, false);
    let mut n =
        NodeCx { node, args, pool: cx.pool, depth, kept, run: cx, outs, bytes, tail, finished, unused };
    if path(&mut n)? {
        return Ok(Some((n.outs, n.finished)));
    }
    for other in all_of(cx.graph, node).skip(1) {
        n.outs.clear();
        n.finished = false;
        if (other.run)(&mut n)? {
            return Ok(Some((n.outs, n.finished)));
        }
    }
    Ok(None)
}

/// Graph, shapes and memory that an operation runs with.
pub(crate) struct RunCx<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) shapes: &'a Shapes,
    pub(crate) pool: &'a Arc<Pool>,
    /// Set once the oracle computes a layer that has a kernel.
    pub(crate) fell_back: &'a Cell<bool>,
    /// Whether results that nobody reads are asked for too.
    pub(crate) observable: bool,
}

/// Node that a fast path computes, with its operands and results.
pub(crate) struct NodeCx<'a> {
    pub(crate) node: &'a Node,
    pub(crate) args: &'a mut Vec<Option<Val>>,
    pub(crate) pool: &'a Arc<Pool>,
    /// Depth of the blocks of products.
    pub(crate) depth: usize,
    /// Panels of the second input, where that is a weight.
    pub(crate) kept: Option<&'a Kept>,
    run: &'a RunCx<'a>,
    outs: Vec<Val>,
    /// Whether elements of four bits are held as bytes.
    bytes: bool,
    /// Pointwise layers that follow, and whether the kernel has taken them.
    tail: Option<&'a Tail<'a>>,
    finished: bool,
    /// Whether nobody reads each result.
    unused: &'a [bool],
}

impl<'a> NodeCx<'a> {
    /// Memory, depth and panels of the operation's `i`-th product.
    pub(crate) fn how(&self, i: usize) -> How<'a> {
        How { depth: self.depth, pool: self.pool, kept: self.kept.map(|k| (k, i)), tail: None }
    }

    /// The pointwise layers that follow: the kernel, which makes elements of this type, has to compute them as well. Floats take the
    /// place of floats.
    pub(crate) fn take_tail(&mut self, made: DType) -> Option<At<'a>> {
        let fits = |t: &&Tail<'_>| made != DType::F32 || t.result() == DType::F32;
        let tail = self.tail.filter(fits).filter(|_| self.out_dtype(0) == Some(made))?;
        self.finished = true;
        Some(tail.whole())
    }

    /// Whether somebody reads a result.
    pub(crate) fn wanted(&self, i: usize) -> bool {
        self.run.observable || !self.unused.get(i).copied().unwrap_or_default()
    }

    /// Stands for a result that nobody reads.
    pub(crate) fn skip(&mut self, i: usize) -> Result<(), BackendError> {
        let dtype = self.out_dtype(i).unwrap_or(DType::F32);
        self.outs.push(Out::new(self.pool, dtype, &[0], "a result that nobody reads")?.done());
        Ok(())
    }

    /// Whether the optional input is there.
    pub(crate) fn has(&self, i: usize) -> bool {
        self.args.get(i).is_some_and(Option::is_some)
    }

    /// The shape of an input; empty if it is absent.
    pub(crate) fn shape(&self, i: usize) -> &[usize] {
        self.args.get(i).and_then(Option::as_ref).map(Val::shape).unwrap_or_default()
    }

    /// The elements of an input of floats. The value is kept alive by the result, not by the arguments.
    pub(crate) fn floats(&self, i: usize) -> Option<Floats> {
        let v = self.args.get(i)?.as_ref()?;
        v.dtype().is_float().then(|| Floats::of(v.clone()))
    }

    /// The elements of the second input, an operation's weights; none of them where all of its products have their panels. So many products
    /// read nothing but panels.
    pub(crate) fn weights(&self, products: usize) -> Option<Floats> {
        let packed = |k: &Kept| k.is_whole() || products > 0 && (0..products).all(|i| k.get(i).is_some());
        match self.kept.is_some_and(packed) {
            true => Some(Floats::of(Val::Shared(Tensor::from_bytes(DType::F32, &[0], Vec::new())?))),
            false => self.floats(1),
        }
    }

    /// The integers of an input, as host ports hold them.
    pub(crate) fn ints(&self, i: usize) -> Option<Vec<i64>> {
        Some(self.args.get(i)?.as_ref()?.tensor().ok()?.to_i64())
    }

    /// The shape of an output.
    pub(crate) fn out_shape(&self, i: usize) -> Option<Vec<usize>> {
        let v = *self.node.outputs.get(i)?;
        self.run.shapes.shape(v).or_else(|| self.infer(i))
    }

    /// The element type of an output.
    pub(crate) fn out_dtype(&self, i: usize) -> Option<DType> {
        let dtype = self.run.graph.ty(*self.node.outputs.get(i)?).dtype;
        Some(if self.bytes { nibbles::held(dtype) } else { dtype })
    }

    /// The axis that an attribute names, in a tensor of this rank.
    pub(crate) fn axis(&self, name: &str, rank: usize) -> Option<usize> {
        normalize_axis(self.node.op.attrs().int(name).ok()?, rank, name).ok()
    }

    fn infer(&self, i: usize) -> Option<Vec<usize>> {
        let fact = |t: Tensor| Fact::constant(t);
        let facts: Option<Vec<_>> = self
            .args
            .iter()
            .map(|v| v.as_ref().map(|v| v.tensor().ok().map(fact)).map_or(Some(None), |f| f.map(Some)))
            .collect();
        let outs = self.node.op.infer(&facts?, &self.node.name).ok()?;
        outs.get(i)?.ty.static_dims()
    }

    /// Adds a finished output.
    pub(crate) fn push(&mut self, v: Val) {
        self.outs.push(v);
    }

    /// Makes the next output of floats: `f` writes f32, which are rounded to the output's type. Returns false
    /// if its type is not a covered float type.
    pub(crate) fn write_floats(
        &mut self,
        i: usize,
        shape: &[usize],
        f: impl FnOnce(&mut [f32]) -> Result<(), BackendError>,
    ) -> Result<bool, BackendError> {
        let Some(dtype) = self.out_dtype(i) else { return Ok(false) };
        let name = &self.node.name;
        match dtype {
            DType::F32 => {
                let mut out = Out::new(self.pool, dtype, shape, name)?;
                f(out.elems_mut())?;
                self.outs.push(out.done());
            }
            DType::F16 | DType::BF16 => {
                let mut wide = Out::new(self.pool, DType::F32, shape, name)?;
                f(wide.elems_mut())?;
                let mut out = Out::new(self.pool, dtype, shape, name)?;
                let wide: &[f32] = wide.elems_mut();
                let part = |i: usize, n: usize| &wide[i * CONVERTED..][..n];
                match dtype {
                    DType::F16 => threads::chunks(out.elems_mut::<f16>(), CONVERTED, 1, |i, y| {
                        narrow::to_f16(part(i, y.len()), y);
                    }),
                    _ => threads::chunks(out.elems_mut::<bf16>(), CONVERTED, 1, |i, y| {
                        narrow::to_bf16(part(i, y.len()), y);
                    }),
                }
                self.outs.push(out.done());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The elements of a float tensor as f32.
pub(crate) struct Floats {
    /// Holds the memory where no conversion was needed.
    val: Val,
    wide: Option<Vec<f32>>,
}

impl Floats {
    fn of(val: Val) -> Floats {
        let wide = match val.dtype() {
            DType::F32 if val.view::<f32>().is_some() => None,
            _ => Some(widen(&val)),
        };
        Floats { val, wide }
    }
}

impl std::ops::Deref for Floats {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        match &self.wide {
            Some(v) => v,
            None => self.val.view().unwrap_or_default(),
        }
    }
}

/// Elements that one task converts at least.
const CONVERTED: usize = 16 << 10;

/// A converted copy; also of f32 whose memory is not aligned.
fn widen(v: &Val) -> Vec<f32> {
    let b = v.bytes();
    match (v.dtype(), v.view::<f16>(), v.view::<bf16>()) {
        (DType::F16, Some(x), _) => converted(x, narrow::of_f16),
        (DType::BF16, _, Some(x)) => converted(x, narrow::of_bf16),
        (DType::F16, ..) => b.as_chunks().0.iter().map(|c| f16::from_le_bytes(*c).to_f32()).collect(),
        (DType::BF16, ..) => b.as_chunks().0.iter().map(|c| bf16::from_le_bytes(*c).to_f32()).collect(),
        (DType::F8E4M3, ..) => b.iter().map(|&c| f8e4m3_to_f64(c) as f32).collect(),
        _ => b.as_chunks().0.iter().map(|c| f32::from_le_bytes(*c)).collect(),
    }
}

fn converted<T: Sync>(x: &[T], convert: fn(&[T], &mut [f32])) -> Vec<f32> {
    let mut y = vec![0f32; x.len()];
    threads::chunks(&mut y, CONVERTED, 1, |i, y| convert(&x[i * CONVERTED..][..y.len()], y));
    y
}

/// Whether products of bytes run on the processor's matrix unit.
pub(crate) fn has_matrix_unit() -> bool {
    micro_integer::has_matrix_unit()
}

/// Whether there is a kernel for a node.
pub(crate) fn covers(g: &Graph, node: &Node) -> bool {
    of(g, node).is_some() || node.op.is_pointwise() && pointwise::covers(g, node)
}
