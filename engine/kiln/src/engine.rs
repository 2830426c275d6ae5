//! An engine, and how one is made.

use crate::backends::layers;
#[cfg(feature = "build")]
use crate::build::{BuildOptions as Options, BuildReport, Built};
use crate::model::{Content, Model};
use crate::weights::set_from_file;
use crate::{DiscoverOptions, Error, backends};
use kiln_backend::DeviceChoice;
use kiln_ir::{ErrorRecorder, Tensor, describe};
use kiln_plan::{Plan, PlanHeader};
use kiln_runtime::{Backends, LoadOptions, Outputs, Refitter};
use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

/// Options of a program that builds nothing.
#[cfg(not(feature = "build"))]
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    backend: Option<String>,
}

/// A network on a device, ready to run. Dereferences to [`kiln_runtime::Engine`], which makes contexts and describes inputs,
/// outputs and layers. Cloning shares the weights.
///
/// ```
/// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/lenet_a.onnx");
/// use kiln::{Engine, Tensor};
///
/// let engine = Engine::builder().backend("cpu").build(model)?;
/// let image = Tensor::from_slice(&[1, 1, 28, 28], &[0.5f32; 784])?;
/// let outputs = engine.run([("input", image)])?;
/// assert_eq!(outputs.get("logits")?.shape(), [1, 10]);
/// # Ok::<(), kiln::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    inner: kiln_runtime::Engine,
    #[cfg(feature = "build")]
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
    #[cfg(feature = "build")]
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
/// let builder = Engine::builder().backend("cpu").shapes("input", &[1, 1, 28, 28], &[4, 1, 28, 28], &[8, 1, 28, 28]);
/// // A plan for a file, which another process loads.
/// builder.build_plan(model)?.plan.write_file(&file)?;
/// let engine = Engine::builder().backend("cpu").build(&file)?;
/// assert_eq!(engine.profiles()[0].shapes["input"].max, [8, 1, 28, 28]);
/// # Ok::<(), kiln::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct EngineBuilder {
    pub(crate) options: Options,
    plugins: DiscoverOptions,
    backends: Option<Backends>,
    recorder: Option<Recorder>,
    load: LoadOptions,
    external_weights: Vec<PathBuf>,
}

/// A recorder that builders share.
#[derive(Clone)]
struct Recorder(Arc<dyn ErrorRecorder>);

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ErrorRecorder")
    }
}

impl EngineBuilder {
    /// Runs on this backend instead of the best one that has a device.
    pub fn backend(mut self, name: impl Into<String>) -> Self {
        self.options.backend = Some(name.into());
        self
    }

    /// Builds for, and runs on, this device of the backend: its number, counted from 0, best first, or its UUID
    /// ([`Target::uuid`](crate::Target::uuid)). By default a build takes the best device, and a plan the first one that it runs on.
    ///
    /// ```
    /// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/lenet_a.onnx");
    /// use kiln::Engine;
    ///
    /// assert!(Engine::builder().backend("cpu").device(0).build(model).is_ok());
    /// assert!(Engine::builder().backend("cpu").device("GPU-6f1b3c2a").build(model).is_err());
    /// ```
    pub fn device(mut self, device: impl Into<DeviceChoice>) -> Self {
        self.load.device = Some(device.into());
        #[cfg(feature = "build")]
        self.options.device.clone_from(&self.load.device);
        self
    }

    /// Loads the engine with at most so many bytes of weights on the device at a time
    /// ([`set_weight_budget`](kiln_runtime::Engine::set_weight_budget)); by default all are there.
    pub fn weight_budget(mut self, bytes: u64) -> Self {
        self.load.weight_budget = Some(bytes);
        self
    }

    /// Loads the engine with the budget of weights that leaves room for a context on the device, if one is needed
    /// ([`automatic_weight_budget`](kiln_runtime::Engine::automatic_weight_budget)).
    pub fn automatic_weight_budget(mut self) -> Self {
        self.load.automatic_weight_budget = true;
        self
    }

    /// Takes weights from a file before the engine is loaded: an archive of NumPy, safetensors, or an ONNX model of the same graph. A
    /// stripped plan gets the weights that it leaves out, by name and hash; a refittable one those that the file has. Several files
    /// may have a part each.
    ///
    /// ```
    /// # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits");
    /// use kiln::Engine;
    ///
    /// let model = format!("{folder}/lenet_a.onnx");
    /// let plan = Engine::builder().backend("cpu").strip_weights(true).build_plan(model.as_str())?.plan;
    /// assert!(!plan.header.absent.is_empty());
    /// let engine = Engine::builder().external_weights(&model).build(plan)?;
    /// assert!(engine.plan().header.absent.is_empty());
    /// # Ok::<(), kiln::Error>(())
    /// ```
    pub fn external_weights(mut self, path: impl Into<PathBuf>) -> Self {
        self.external_weights.push(path.into());
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

    /// Reports errors of the build, of the engine and of its contexts to a recorder, beside returning them.
    ///
    /// ```
    /// use kiln::{Engine, ErrorCode, ErrorLog};
    /// use std::sync::Arc;
    ///
    /// let log = Arc::new(ErrorLog::new(16));
    /// let refused = Engine::builder().backend("none").error_recorder(log.clone()).build(&kiln::Network::new("net"));
    /// assert!(refused.is_err());
    /// assert_eq!(log.get(0).map(|(code, _)| code), Some(ErrorCode::InvalidArgument));
    /// ```
    pub fn error_recorder(mut self, recorder: Arc<dyn ErrorRecorder>) -> Self {
        self.recorder = Some(Recorder(recorder));
        self
    }

    /// A result, reported if it is an error.
    pub(crate) fn recorded<T>(&self, f: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        f().inspect_err(|e| {
            if let Some(Recorder(recorder)) = &self.recorder {
                recorder.report(e.code(), &describe(e));
            }
        })
    }

    /// Makes an engine: builds a network, or loads a plan on the backend that it names.
    ///
    /// # Errors
    /// Errors of [`Model::open`] for a file; `Error::Build` and its kin if the network cannot be built; [`Error::Built`] if the
    /// model is a plan and an option says how to build; [`Error::Runtime`] if it does not load on a device here.
    pub fn build<M>(&self, model: M) -> Result<Engine, Error>
    where
        M: TryInto<Model>,
        Error: From<M::Error>,
    {
        let engine = self.recorded(|| self.make(model.try_into()?))?;
        engine.set_error_recorder(self.recorder.clone().map(|Recorder(r)| r));
        Ok(engine)
    }

    fn make(&self, model: Model) -> Result<Engine, Error> {
        self.load_layers();
        if let Some(header) = model.plan() {
            self.check_built(header)?;
        }
        let backends = self.found();
        match model.content {
            #[cfg(feature = "build")]
            Content::Graph(_) => {
                let Built { plan, report, .. } = self.build_network(model, &backends, &mut |_, _, _| true)?;
                Ok(Engine {
                    report: Some(Box::new(report)),
                    ..load(self.with_external_weights(plan)?, &backends, &self.load)?
                })
            }
            Content::PlanFile(path, _) => self.load(Plan::open(&path)?, &backends),
            Content::Plan(plan) => self.load(*plan, &backends),
        }
    }

    /// Loads a plan, with the libraries that it holds where these are permitted.
    fn load(&self, plan: Plan, backends: &Backends) -> Result<Engine, Error> {
        if self.plugins.embedded {
            kiln_runtime::plugin::load_embedded(&plan, &self.plugins.policy)?;
        }
        load(self.with_external_weights(plan)?, backends, &self.load)
    }

    /// The plan with the weights of the files that were named.
    fn with_external_weights(&self, plan: Plan) -> Result<Plan, Error> {
        if self.external_weights.is_empty() {
            return Ok(plan);
        }
        let mut refitter = Refitter::of_plan(plan)?;
        for path in &self.external_weights {
            set_from_file(&mut refitter, path)?;
        }
        let report = refitter.refit()?;
        report.warnings.iter().for_each(|w| tracing::warn!("{w}"));
        Ok(refitter.into_plan())
    }

    /// Registers plug-in layers, which a model may name.
    pub(crate) fn load_layers(&self) {
        for f in layers(&self.plugins) {
            if let Err(e) = f.outcome {
                tracing::warn!("{}", e.chain());
            }
        }
    }

    /// A builder with the plug-ins and backends of this one, and what it says of loading an engine if that is asked for.
    #[cfg(feature = "build")]
    pub(crate) fn plain(&self, loading: bool) -> EngineBuilder {
        let load = if loading { self.load.clone() } else { LoadOptions::default() };
        let (plugins, backends) = (self.plugins.clone(), self.backends.clone());
        EngineBuilder { plugins, backends, load, ..EngineBuilder::default() }
    }

    pub(crate) fn found(&self) -> Backends {
        self.backends.clone().unwrap_or_else(|| backends(&self.plugins).0)
    }

    /// Refuses options that a plan cannot follow, as it is built.
    fn check_built(&self, header: &PlanHeader) -> Result<(), Error> {
        let other = self.options.backend.as_ref().is_some_and(|b| *b != header.target.backend);
        let option = if other { Some("backend") } else { self.set_option() };
        let Some(option) = option else { return Ok(()) };
        let (name, backend) = (header.name.clone(), header.target.backend.clone());
        Err(Error::Built { name, backend, option })
    }

    #[cfg(not(feature = "build"))]
    fn set_option(&self) -> Option<&'static str> {
        None
    }
}

fn load(plan: Plan, backends: &Backends, load: &LoadOptions) -> Result<Engine, Error> {
    let backend = backends.get(&plan.header.target.backend)?;
    let inner = kiln_runtime::Engine::from_plan_with(plan, backend, load)?;
    Ok(Engine {
        inner,
        #[cfg(feature = "build")]
        report: None,
    })
}
