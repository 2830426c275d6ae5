//! An engine, and how one is made.

use crate::build::{BuildOptions, BuildReport, Built, build};
use crate::model::{Content, Model};
use crate::{DiscoverOptions, Error, backends};
use kiln_backend::Target;
use kiln_builder::{BuildConfig, Progress};
use kiln_ir::Tensor;
use kiln_plan::{Plan, PlanHeader};
use kiln_runtime::{Backends, Outputs};
use std::ops::Deref;
use std::path::PathBuf;

/// A network on a device, ready to run. Dereferences to [`kiln_runtime::Engine`], which makes contexts and describes inputs,
/// outputs and layers. Cloning shares the weights.
///
/// ```
/// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/lenet_a.onnx");
/// use kiln::{Engine, Tensor};
///
/// let engine = Engine::builder().backend("reference").build(model)?;
/// let image = Tensor::from_slice(&[1, 1, 28, 28], &[0.5f32; 784])?;
/// let outputs = engine.run([("input", image)])?;
/// assert_eq!(outputs.get("logits")?.shape(), [1, 10]);
/// # Ok::<(), kiln::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    inner: kiln_runtime::Engine,
    report: Option<Box<BuildReport>>,
}

impl Deref for Engine {
    type Target = kiln_runtime::Engine;

    fn deref(&self) -> &kiln_runtime::Engine {
        &self.inner
    }
}

impl Engine {
    /// Starts an engine with other options than the default ones.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    /// Makes an engine of a file (an ONNX model, a plan, a network as text) or of a network of the API. It
    /// runs on the best backend that has a device: CUDA, then wgpu, then the reference on the CPU.
    /// [`backend`](kiln_runtime::Engine::backend) and [`target`](kiln_runtime::Engine::target) report the
    /// choice. Dimensions that the network leaves open are 1.
    ///
    /// # Errors
    /// As [`EngineBuilder::build`].
    pub fn open<M>(model: M) -> Result<Engine, Error>
    where
        M: TryInto<Model>,
        Error: From<M::Error>,
    {
        Engine::builder().build(model)
    }

    /// Runs once in a context of its own: all inputs by name in any order. Programs that run often keep the context of
    /// [`create_context`](kiln_runtime::Engine::create_context), whose memory and launches are then used again.
    ///
    /// # Errors
    /// [`Error::Runtime`] with the input that is missing, unknown, or of another type or shape than the engine wants, or with
    /// what failed on the device.
    pub fn run<'a>(&self, inputs: impl IntoIterator<Item = (&'a str, Tensor)>) -> Result<Outputs, Error> {
        let inputs: Vec<(&str, Tensor)> = inputs.into_iter().collect();
        Ok(self.create_context()?.run(&inputs)?)
    }

    /// Report of the engine's build; `None` if it was loaded from a plan.
    pub fn report(&self) -> Option<&BuildReport> {
        self.report.as_deref()
    }
}

/// Options of an engine that is to be made: [`Engine::builder`].
///
/// ```
/// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/lenet_a.onnx");
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let file = folder.path().join("lenet.kiln");
/// use kiln::Engine;
///
/// let builder = Engine::builder().backend("reference").shapes("input", &[1, 1, 28, 28], &[4, 1, 28, 28], &[8, 1, 28, 28]);
/// // A plan for a file, which another process loads.
/// builder.build_plan(model)?.plan.write_file(&file)?;
/// let engine = Engine::builder().backend("reference").build(&file)?;
/// assert_eq!(engine.profiles()[0].shapes["input"].max, [8, 1, 28, 28]);
/// # Ok::<(), kiln::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct EngineBuilder {
    options: BuildOptions,
    plugins: DiscoverOptions,
    backends: Option<Backends>,
}

impl EngineBuilder {
    /// Runs on this backend instead of the best one that has a device.
    pub fn backend(mut self, name: impl Into<String>) -> Self {
        self.options.backend = Some(name.into());
        self
    }

    /// Runs the whole network on this backend if the first one refuses a layer. The report says if that happened.
    pub fn fallback(mut self, name: impl Into<String>) -> Self {
        self.options.fallback = Some(name.into());
        self
    }

    /// Takes this device of the backend, counted from 0, best first.
    pub fn device(mut self, ordinal: usize) -> Self {
        self.options.device = ordinal;
        self
    }

    /// Builds for this target, which need not be here if nothing is timed: of another plan's header, say.
    pub fn target(mut self, target: Target) -> Self {
        self.options.target = Some(target);
        self
    }

    /// Sets the only shape of a dynamic input.
    pub fn shape(mut self, input: &str, dims: &[i64]) -> Self {
        self.options.shapes.fixed(input, dims);
        self
    }

    /// Sets the least shape of a dynamic input, the one that kernels are chosen for, and its greatest one.
    pub fn shapes(mut self, input: &str, min: &[i64], opt: &[i64], max: &[i64]) -> Self {
        self.options.shapes.min(input, min).opt(input, opt).max(input, max);
        self
    }

    /// Reads times of kernels from this file before the build, and adds those that are taken.
    pub fn timing_cache(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.timing_cache = Some(path.into());
        self
    }

    /// Sets precision, folding, fusion, search, strictness and limits.
    pub fn config(mut self, config: BuildConfig) -> Self {
        self.options.config = config;
        self
    }

    /// Sets all options of the build at once.
    pub fn options(mut self, options: BuildOptions) -> Self {
        self.options = options;
        self
    }

    /// Looks for plug-ins there, by this policy.
    pub fn plugins(mut self, options: DiscoverOptions) -> Self {
        self.plugins = options;
        self
    }

    /// Takes these backends instead of looking for plug-ins.
    pub fn backends(mut self, backends: Backends) -> Self {
        self.backends = Some(backends);
        self
    }

    /// Makes an engine: builds a network, or loads a plan on the backend that it names.
    ///
    /// # Errors
    /// Errors of [`Model::open`] for a file; [`Error::Build`] and its kin if the network cannot be built; [`Error::Built`] if the
    /// model is a plan and an option says how to build; [`Error::Runtime`] if it does not load on a device here.
    pub fn build<M>(&self, model: M) -> Result<Engine, Error>
    where
        M: TryInto<Model>,
        Error: From<M::Error>,
    {
        let model = model.try_into()?;
        if let Some(header) = model.plan() {
            self.check_built(header)?;
        }
        let backends = self.found();
        match model.content {
            Content::Graph(_) => {
                let Built { plan, report } = self.build_network(model, &backends, &mut |_, _, _| true)?;
                load(plan, &backends, Some(report))
            }
            Content::PlanFile(path, _) => load(Plan::open(&path)?, &backends, None),
            Content::Plan(plan) => load(*plan, &backends, None),
        }
    }

    /// Builds a plan, to be written to a file or loaded later. A plan that stores its network is built again.
    ///
    /// # Errors
    /// Errors of [`Model::open`] for a file; [`Error::Build`] and its kin if the network cannot be built; [`Error::NotPortable`] if
    /// the model is a plan without its network.
    pub fn build_plan<M>(&self, model: M) -> Result<Built, Error>
    where
        M: TryInto<Model>,
        Error: From<M::Error>,
    {
        self.build_plan_with_progress(model, &mut |_, _, _| true)
    }

    /// Builds a plan as [`build_plan`](EngineBuilder::build_plan) does. `progress` receives the phase, its steps that are
    /// done and all its steps; it cancels the build by returning false.
    ///
    /// # Errors
    /// As [`build_plan`](EngineBuilder::build_plan).
    pub fn build_plan_with_progress<M>(&self, model: M, progress: Progress<'_>) -> Result<Built, Error>
    where
        M: TryInto<Model>,
        Error: From<M::Error>,
    {
        self.build_network(model.try_into()?, &self.found(), progress)
    }

    fn build_network(
        &self,
        model: Model,
        backends: &Backends,
        progress: Progress<'_>,
    ) -> Result<Built, Error> {
        let (graph, notes) = model.into_network()?;
        build(graph, notes, &self.options, backends, progress)
    }

    fn found(&self) -> Backends {
        self.backends.clone().unwrap_or_else(|| backends(&self.plugins).0)
    }

    /// Refuses options that a plan cannot follow, as it is built.
    fn check_built(&self, header: &PlanHeader) -> Result<(), Error> {
        let o = &self.options;
        let other_backend = o.backend.as_ref().is_some_and(|b| *b != header.target.backend);
        let set = [
            (other_backend, "backend"),
            (o.fallback.is_some(), "fallback"),
            (o.device != 0, "device"),
            (o.target.is_some(), "target"),
            (!o.shapes.is_empty(), "shapes"),
            (o.timing_cache.is_some(), "timing_cache"),
            (o.portable, "portable"),
        ];
        let Some((_, option)) = set.into_iter().find(|(set, _)| *set) else { return Ok(()) };
        let (name, backend) = (header.name.clone(), header.target.backend.clone());
        Err(Error::Built { name, backend, option })
    }
}

fn load(plan: Plan, backends: &Backends, report: Option<BuildReport>) -> Result<Engine, Error> {
    let backend = backends.get(&plan.header.target.backend)?;
    let inner = kiln_runtime::Engine::from_plan(plan, backend)?;
    Ok(Engine { inner, report: report.map(Box::new) })
}
