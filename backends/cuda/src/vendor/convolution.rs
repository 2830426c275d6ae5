//! Convolutions by cuDNN, with additions and relu behind them.

use super::cudnn::{Api, Descriptor, EnumType, Execute, Kind, State, TITLE};
use super::library::{Blob, missing};
use super::tail::{Behind, chain, extra_dims, input_dims, output_dims};
use super::{Library, Places, RANKS, WORKSPACE, given, rank, ranked};
use crate::driver::{Call, DriverError, Gpu};
use kiln_backend::{BackendError, Tactic};
use kiln_families::site::{Site, op_error, unsupported};
use kiln_ir::DType;
use kiln_ir::ops::conv::geometry;
use kiln_ir::ops::layout::Layout;
use kiln_ir::ops::window::{dims, known};
use std::sync::Arc;

const TACTIC: &str = "cudnn.conv";
const MAGIC: &str = "kiln-cudnn-1";

/// Where a tensor's address comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Input(usize),
    Extra(usize),
    Output,
    /// It never lies in memory.
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
    dtype: i32,
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
    if op.name() != "conv" {
        return unsupported("convolutions alone");
    }
    let dtype = match site.first_dtype() {
        DType::F16 => 2,
        DType::BF16 => 9,
        DType::F32 if site.target.has("tf32") => 0,
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

/// What is added: an image like the result, or a number for each channel.
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

mod attribute {
    pub const POINTWISE_MODE: i32 = 0;
    pub const POINTWISE_PRECISION: i32 = 1;
    pub const CONV_TYPE: i32 = 100;
    pub const CONV_MODE: i32 = 101;
    pub const CONV_DILATIONS: i32 = 102;
    pub const CONV_STRIDES: i32 = 103;
    pub const CONV_POST_PADDINGS: i32 = 104;
    pub const CONV_PRE_PADDINGS: i32 = 105;
    pub const CONV_SPATIAL_DIMS: i32 = 106;
    pub const HEURISTIC_MODE: i32 = 200;
    pub const HEURISTIC_GRAPH: i32 = 201;
    pub const HEURISTIC_RESULTS: i32 = 202;
    pub const PLAN_HANDLE: i32 = 400;
    pub const PLAN_CONFIG: i32 = 401;
    pub const PLAN_WORKSPACE: i32 = 402;
    pub const FORWARD_ALPHA: i32 = 700;
    pub const FORWARD_BETA: i32 = 701;
    pub const FORWARD_CONV: i32 = 702;
    pub const FORWARD_W: i32 = 703;
    pub const FORWARD_X: i32 = 704;
    pub const FORWARD_Y: i32 = 705;
    pub const POINTWISE: i32 = 750;
    pub const POINTWISE_X: i32 = 751;
    pub const POINTWISE_B: i32 = 752;
    pub const POINTWISE_Y: i32 = 753;
    pub const GRAPH_HANDLE: i32 = 800;
    pub const GRAPH_OPERATIONS: i32 = 801;
    pub const TENSOR_ALIGNMENT: i32 = 900;
    pub const TENSOR_TYPE: i32 = 901;
    pub const TENSOR_DIMS: i32 = 902;
    pub const TENSOR_STRIDES: i32 = 903;
    pub const TENSOR_ID: i32 = 906;
    pub const TENSOR_VIRTUAL: i32 = 907;
    pub const PACK_IDS: i32 = 1000;
    pub const PACK_POINTERS: i32 = 1001;
    pub const PACK_WORKSPACE: i32 = 1003;
}
use attribute as at;

/// `CUDNN_DATA_FLOAT`: what sums are made in.
const FLOAT: i32 = 0;

/// Descriptors of a problem, made one behind the other.
struct Graph {
    api: &'static Api,
    dtype: i32,
    tensors: Vec<(From, Descriptor)>,
    operations: Vec<Descriptor>,
    /// The library reads descriptors that others name; all are kept.
    rest: Vec<Descriptor>,
}

impl Graph {
    fn tensor(&mut self, image: &Image) -> Result<usize, DriverError> {
        let nowhere = image.from == From::Nowhere;
        let dtype = if nowhere { FLOAT } else { self.dtype };
        let t = Descriptor::new(self.api, Kind::Tensor)?
            .one_of(at::TENSOR_TYPE, EnumType::Data, dtype)?
            .ints(at::TENSOR_DIMS, &image.dims)?
            .ints(at::TENSOR_STRIDES, &image.strides)?
            .ints(at::TENSOR_ID, &[self.tensors.len() as i64 + 1])?
            .ints(at::TENSOR_ALIGNMENT, &[16])?
            .one_of(at::TENSOR_VIRTUAL, EnumType::Bool, i32::from(nowhere))?
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
        const CORRELATION: i32 = 1;
        let conv = Descriptor::new(api, Kind::Convolution)?
            .one_of(at::CONV_TYPE, EnumType::Data, FLOAT)?
            .one_of(at::CONV_MODE, EnumType::ConvolutionMode, CORRELATION)?
            .ints(at::CONV_SPATIAL_DIMS, &[p.strides.len() as i64])?
            .ints(at::CONV_DILATIONS, &p.dilations)?
            .ints(at::CONV_STRIDES, &p.strides)?
            .ints(at::CONV_PRE_PADDINGS, &p.begin)?
            .ints(at::CONV_POST_PADDINGS, &p.end)?
            .done()?;
        let forward = Descriptor::new(api, Kind::Forward)?
            .float(at::FORWARD_ALPHA, 1.0)?
            .float(at::FORWARD_BETA, 0.0)?
            .parts(at::FORWARD_CONV, &[&conv])?
            .parts(at::FORWARD_X, &[&g.tensors[x].1])?
            .parts(at::FORWARD_W, &[&g.tensors[w].1])?
            .parts(at::FORWARD_Y, &[&g.tensors[y].1])?
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
        const ADD: i32 = 0;
        const RELU: i32 = 100;
        let mode = if matches!(then, Then::Relu) { RELU } else { ADD };
        let what = Descriptor::new(self.api, Kind::Pointwise)?
            .one_of(at::POINTWISE_MODE, EnumType::PointwiseMode, mode)?
            .one_of(at::POINTWISE_PRECISION, EnumType::Data, FLOAT)?
            .done()?;
        let operand = match then {
            Then::Add(image) => Some(self.tensor(image)?),
            Then::Relu => None,
        };
        let y = self.result(p, last)?;
        let mut op = Descriptor::new(self.api, Kind::PointwiseOperation)?
            .parts(at::POINTWISE, &[&what])?
            .parts(at::POINTWISE_X, &[&self.tensors[from].1])?
            .parts(at::POINTWISE_Y, &[&self.tensors[y].1])?;
        if let Some(b) = operand {
            op = op.parts(at::POINTWISE_B, &[&self.tensors[b].1])?;
        }
        self.operations.push(op.done()?);
        self.rest.push(what);
        Ok(y)
    }

    /// Plans in the order in which the library expects them to be fast, which need no more than [`WORKSPACE`].
    fn plans(&mut self, state: &State, most: usize) -> Result<Vec<Descriptor>, DriverError> {
        const MODE_A: i32 = 3;
        const CONFIGS: usize = 16;
        let operations: Vec<&Descriptor> = self.operations.iter().collect();
        let handle = state.handle();
        let graph = Descriptor::new(self.api, Kind::Graph)?
            .handle(at::GRAPH_HANDLE, &handle)?
            .parts(at::GRAPH_OPERATIONS, &operations)?
            .done()?;
        let heuristic = Descriptor::new(self.api, Kind::Heuristic)?
            .parts(at::HEURISTIC_GRAPH, &[&graph])?
            .one_of(at::HEURISTIC_MODE, EnumType::HeuristicMode, MODE_A)?
            .done()?;
        let mut plans = Vec::new();
        for config in heuristic.found(at::HEURISTIC_RESULTS, Kind::EngineConfig, CONFIGS)? {
            let plan = Descriptor::new(self.api, Kind::Plan)?
                .handle(at::PLAN_HANDLE, &handle)?
                .parts(at::PLAN_CONFIG, &[&config])?
                .done();
            // A proposal may turn out not to be supported.
            let Ok(plan) = plan else { continue };
            if plan.int(at::PLAN_WORKSPACE)? > WORKSPACE as i64 {
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
    let workspace = u64::try_from(plan.int(at::PLAN_WORKSPACE)?).unwrap_or(0);
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
        let pack = Descriptor::new(self.state.api, Kind::VariantPack)?
            .ints(at::PACK_IDS, &ids)?
            .pointers(at::PACK_POINTERS, &pointers)?
            .pointers(at::PACK_WORKSPACE, &[places.scratch])?
            .done()?;
        Ok(Arc::new(Execute { state: self.state.clone(), plan: self.plan.clone(), pack }))
    }
}
