//! Convolutions by cuDNN, with additions and relu as their epilogue.

use super::cudnn::{Api, Attribute, Descriptor, Execute, Kind, State, TITLE};
use super::library::{Blob, missing};
use super::tail::{Behind, chain, extra_dims, input_dims, output_dims};
use super::{Library, Places, RANKS, WORKSPACE, given, rank, ranked};
use crate::driver::{Call, DriverError, Gpu};
use cudarc::cudnn::sys::{
    cudnnBackendHeurMode_t as HeuristicMode, cudnnConvolutionMode_t as ConvolutionMode,
    cudnnDataType_t as DataType, cudnnPointwiseMode_t as PointwiseMode,
};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Site, op_error, unsupported};
use kiln_ir::DType;
use kiln_ops::conv::CONV;
use kiln_ops::conv::geometry;
use kiln_ops::conv::window::{dims, known};
use kiln_ops::layout::Layout;
use std::sync::Arc;

const TACTIC: &str = "cudnn.conv";
const MAGIC: &str = "kiln-cudnn-1";

/// Source of a tensor's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Input(usize),
    Extra(usize),
    Output,
    /// Without an address: the tensor is never stored.
    Nowhere,
}

/// A tensor, channels before spatial dimensions whatever its layout.
#[derive(Clone, Debug)]
struct Image {
    from: From,
    dims: Vec<i64>,
    strides: Vec<i64>,
}

/// A pointwise operator on the last result, with an operand if it has two.
#[derive(Clone, Debug)]
enum Then {
    Add(Image),
    Relu,
}

/// A convolution and what follows.
#[derive(Clone, Debug)]
struct Problem {
    dtype: DataType,
    x: Image,
    w: Image,
    y: Image,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    begin: Vec<i64>,
    end: Vec<i64>,
    then: Vec<Then>,
}

fn image(from: From, shape: &[usize], layout: Layout) -> Image {
    let row: Vec<i64> = (0..shape.len()).map(|i| shape[i + 1..].iter().product::<usize>() as i64).collect();
    let sizes: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
    Image { from, dims: layout.to_linear(&sizes), strides: layout.to_linear(&row) }
}

/// A number for each channel.
fn of_channels(from: From, channels: i64, rank: usize) -> Image {
    let one = |i: usize, n| if i == 1 { n } else { 1 };
    let dims: Vec<i64> = (0..rank).map(|i| one(i, channels)).collect();
    let strides = (0..rank).map(|i| if i == 0 { channels } else { 1 }).collect();
    Image { from, dims, strides }
}

fn problem(site: &Site<'_>) -> Result<Problem, BackendError> {
    let op = site.op()?;
    if !op.is(CONV) {
        return unsupported("convolutions alone");
    }
    let dtype = match site.first_dtype() {
        DType::F16 => DataType::CUDNN_DATA_HALF,
        DType::BF16 => DataType::CUDNN_DATA_BFLOAT16,
        DType::F32 if site.target.has("tf32") => DataType::CUDNN_DATA_FLOAT,
        t => return unsupported(format!("convolutions of {t}")),
    };
    let (Some(x), Some(w), Some(y)) = (input_dims(site, 0), input_dims(site, 1), output_dims(site)) else {
        return unsupported("shapes that are not fixed");
    };
    if x.len() < 4 || x.iter().chain(&w).chain(&y).any(|&d| d == 0 || i32::try_from(d).is_err()) {
        return unsupported("fewer than two spatial dimensions, sizes of none or beyond 32 bits");
    }
    let layout = Layout::of(op.attrs());
    let axes = geometry(op.attrs(), &dims(&x), &dims(&w)).and_then(|a| known(&a)).map_err(op_error)?;
    let y = image(From::Output, &y, layout);
    let (rank, channels) = (y.dims.len(), y.dims.get(1).copied().unwrap_or(0));
    let mut then = Vec::new();
    if site.dtype(2).is_some() {
        then.push(Then::Add(of_channels(From::Input(2), channels, rank)));
    }
    let Some(behind) = chain(site) else {
        return unsupported("other operators than additions and relu behind it");
    };
    for b in behind {
        then.push(match b {
            Behind::Relu => Then::Relu,
            Behind::Add(e) => Then::Add(operand(site, e, &y, layout)?),
        });
    }
    Ok(Problem {
        dtype,
        x: image(From::Input(0), &x, layout),
        w: image(From::Input(1), &w, layout),
        y,
        strides: axes.iter().map(|a| a.stride).collect(),
        dilations: axes.iter().map(|a| a.dilation).collect(),
        begin: axes.iter().map(|a| a.begin).collect(),
        end: axes.iter().map(|a| a.end).collect(),
        then,
    })
}

/// Operand of an addition: an image like the result, or a number for each channel.
fn operand(site: &Site<'_>, extra: usize, y: &Image, layout: Layout) -> Result<Image, BackendError> {
    let shape = extra_dims(site, extra).unwrap_or_default();
    let whole = image(From::Extra(extra), &shape, layout);
    if whole.dims == y.dims {
        return Ok(whole);
    }
    let (rank, channels) = (y.dims.len(), y.dims[1]);
    let mut padded = vec![1i64; rank.saturating_sub(shape.len())];
    padded.extend(shape.iter().map(|&d| d as i64));
    let across = of_channels(From::Extra(extra), channels, rank);
    if padded.len() == rank && layout.to_linear(&padded) == across.dims {
        return Ok(across);
    }
    unsupported("an addition that is neither an image nor a bias of the channels")
}

/// Type that sums are made in.
const FLOAT: DataType = DataType::CUDNN_DATA_FLOAT;

/// Descriptors of a problem, in the order in which they are made.
struct Graph {
    api: &'static Api,
    dtype: DataType,
    tensors: Vec<(From, Descriptor)>,
    operations: Vec<Descriptor>,
    /// The library reads descriptors that others name; all are kept.
    rest: Vec<Descriptor>,
}

impl Graph {
    fn tensor(&mut self, image: &Image) -> Result<usize, DriverError> {
        let nowhere = image.from == From::Nowhere;
        let dtype = if nowhere { FLOAT } else { self.dtype };
        let t = Descriptor::new(self.api, Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?
            .one_of(Attribute::CUDNN_ATTR_TENSOR_DATA_TYPE, dtype)?
            .ints(Attribute::CUDNN_ATTR_TENSOR_DIMENSIONS, &image.dims)?
            .ints(Attribute::CUDNN_ATTR_TENSOR_STRIDES, &image.strides)?
            .ints(Attribute::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[self.tensors.len() as i64 + 1])?
            .ints(Attribute::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[16])?
            .flag(Attribute::CUDNN_ATTR_TENSOR_IS_VIRTUAL, nowhere)?
            .done()?;
        self.tensors.push((image.from, t));
        Ok(self.tensors.len() - 1)
    }

    fn result(&mut self, p: &Problem, last: bool) -> Result<usize, DriverError> {
        let from = if last { From::Output } else { From::Nowhere };
        self.tensor(&Image { from, ..p.y.clone() })
    }

    fn new(api: &'static Api, p: &Problem) -> Result<Graph, DriverError> {
        let mut g =
            Graph { api, dtype: p.dtype, tensors: Vec::new(), operations: Vec::new(), rest: Vec::new() };
        let (x, w) = (g.tensor(&p.x)?, g.tensor(&p.w)?);
        let mut y = g.result(p, p.then.is_empty())?;
        let conv = Descriptor::new(api, Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?
            .one_of(Attribute::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, FLOAT)?
            .one_of(Attribute::CUDNN_ATTR_CONVOLUTION_CONV_MODE, ConvolutionMode::CUDNN_CROSS_CORRELATION)?
            .ints(Attribute::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[p.strides.len() as i64])?
            .ints(Attribute::CUDNN_ATTR_CONVOLUTION_DILATIONS, &p.dilations)?
            .ints(Attribute::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &p.strides)?
            .ints(Attribute::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &p.begin)?
            .ints(Attribute::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &p.end)?
            .done()?;
        let forward = Descriptor::new(api, Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)?
            .float(Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0)?
            .float(Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0)?
            .parts(Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, &[&conv])?
            .parts(Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, &[&g.tensors[x].1])?
            .parts(Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, &[&g.tensors[w].1])?
            .parts(Attribute::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, &[&g.tensors[y].1])?
            .done()?;
        g.rest.push(conv);
        g.operations.push(forward);
        for (i, then) in p.then.iter().enumerate() {
            y = g.then(p, then, y, i + 1 == p.then.len())?;
        }
        Ok(g)
    }

    /// One pointwise operator; the place of its result.
    fn then(&mut self, p: &Problem, then: &Then, from: usize, last: bool) -> Result<usize, DriverError> {
        let mode = match then {
            Then::Relu => PointwiseMode::CUDNN_POINTWISE_RELU_FWD,
            Then::Add(_) => PointwiseMode::CUDNN_POINTWISE_ADD,
        };
        let what = Descriptor::new(self.api, Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?
            .one_of(Attribute::CUDNN_ATTR_POINTWISE_MODE, mode)?
            .one_of(Attribute::CUDNN_ATTR_POINTWISE_MATH_PREC, FLOAT)?
            .done()?;
        let operand = match then {
            Then::Add(image) => Some(self.tensor(image)?),
            Then::Relu => None,
        };
        let y = self.result(p, last)?;
        let mut op = Descriptor::new(self.api, Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?
            .parts(Attribute::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[&what])?
            .parts(Attribute::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &[&self.tensors[from].1])?
            .parts(Attribute::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &[&self.tensors[y].1])?;
        if let Some(b) = operand {
            op = op.parts(Attribute::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &[&self.tensors[b].1])?;
        }
        self.operations.push(op.done()?);
        self.rest.push(what);
        Ok(y)
    }

    /// Plans in the order in which the library expects them to be fast, which need no more than [`WORKSPACE`].
    fn plans(&mut self, state: &State, most: usize) -> Result<Vec<Descriptor>, DriverError> {
        const CONFIGS: usize = 16;
        let operations: Vec<&Descriptor> = self.operations.iter().collect();
        let handle = state.handle();
        let graph = Descriptor::new(self.api, Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?
            .handle(Attribute::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, &handle)?
            .parts(Attribute::CUDNN_ATTR_OPERATIONGRAPH_OPS, &operations)?
            .done()?;
        let heuristic = Descriptor::new(self.api, Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
            .parts(Attribute::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[&graph])?
            .one_of(Attribute::CUDNN_ATTR_ENGINEHEUR_MODE, HeuristicMode::CUDNN_HEUR_MODE_A)?
            .done()?;
        let mut plans = Vec::new();
        for config in heuristic.found(
            Attribute::CUDNN_ATTR_ENGINEHEUR_RESULTS,
            Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
            CONFIGS,
        )? {
            let plan = Descriptor::new(self.api, Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?
                .handle(Attribute::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, &handle)?
                .parts(Attribute::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[&config])?
                .done();
            // A proposal may turn out not to be supported.
            let Ok(plan) = plan else { continue };
            if plan.int(Attribute::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)? > WORKSPACE as i64 {
                continue;
            }
            self.rest.push(config);
            plans.push(plan);
            if plans.len() == most {
                break;
            }
        }
        self.rest.extend([graph, heuristic]);
        Ok(plans)
    }
}

pub fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    problem(site)?;
    let version = Api::get().map_err(missing)?.version();
    Ok(ranked(TACTIC, &format!("{TITLE} {version}")))
}

pub fn compile(site: &Site<'_>, tactic: &Tactic, gpu: &Arc<Gpu>) -> Result<Vec<u8>, BackendError> {
    let p = problem(site)?;
    let api = Api::get().map_err(missing)?;
    let rank = rank(tactic);
    let mut graph = Graph::new(api, &p)?;
    let plans = graph.plans(&*State::of(api, gpu)?, rank + 1)?;
    let Some(last) = plans.len().checked_sub(1) else {
        return unsupported(format!("{TITLE} {} has no plan for {p:?}", api.version()));
    };
    Ok(Blob { version: api.version(), words: vec![last as u64] }.write(MAGIC))
}

pub fn load(site: &Site<'_>, blob: &[u8], gpu: &Arc<Gpu>) -> Result<Arc<dyn Library>, BackendError> {
    let p = problem(site)?;
    let api = Api::get().map_err(missing)?;
    let words = Blob::read(blob, MAGIC, TITLE, api.version(), 1)?.words;
    let rank = words.first().map_or(0, |&w| (w as usize).min(RANKS as usize));
    let state = State::of(api, gpu)?;
    let mut graph = Graph::new(api, &p)?;
    let mut plans = graph.plans(&state, rank + 1)?;
    if plans.len() != rank + 1 {
        return Err(BackendError::Incompatible(format!(
            "{TITLE} proposes {} plans, the engine uses number {rank}; build it again",
            plans.len()
        )));
    }
    let plan = plans.pop().ok_or_else(|| BackendError::Internal("no plan".into()))?;
    let workspace =
        u64::try_from(plan.int(Attribute::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?).unwrap_or(0);
    Ok(Arc::new(Loaded { state, plan: Arc::new(plan), graph, workspace }))
}

struct Loaded {
    state: Arc<State>,
    plan: Arc<Descriptor>,
    graph: Graph,
    workspace: u64,
}

impl Library for Loaded {
    fn workspace(&self) -> u64 {
        self.workspace
    }

    fn prepare(&self, places: &Places) -> Result<Arc<dyn Call>, BackendError> {
        let (mut ids, mut pointers) = (Vec::new(), Vec::new());
        for (i, (from, _)) in self.graph.tensors.iter().enumerate() {
            pointers.push(match *from {
                From::Nowhere => continue,
                From::Output => places.output,
                From::Input(k) => given(places, k)?,
                From::Extra(e) => *places
                    .extras
                    .get(e)
                    .ok_or_else(|| BackendError::Internal(format!("extra {e} has no place")))?,
            });
            ids.push(i as i64 + 1);
        }
        let pack = Descriptor::new(self.state.api, Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?
            .ints(Attribute::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &ids)?
            .pointers(Attribute::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &pointers)?
            .pointers(Attribute::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[places.scratch])?
            .done()?;
        Ok(Arc::new(Execute { state: self.state.clone(), plan: self.plan.clone(), pack }))
    }
}
