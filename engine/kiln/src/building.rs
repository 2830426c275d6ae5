//! Options and results of a build.

use crate::build::{BuildOptions, Built, HardwareCompatibility, build};
use crate::implicit::batch_shapes;
use crate::model::Model;
use crate::plan_options::set_option;
use crate::{EngineBuilder, Error, ShapeRequest};
use kiln_backend::Target;
use kiln_builder::cache::TimingCache;
use kiln_builder::{
    AlgorithmSelector, BuildConfig, IoSpec, Monitor, Progress, ProgressMonitor, Refit, Selector, TacticRecord,
};
use kiln_plan::Verbosity;
use kiln_runtime::Backends;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

impl EngineBuilder {
    /// Runs the whole network on this backend if the first one refuses a layer. The report says if that happened.
    pub fn fallback(mut self, name: impl Into<String>) -> Self {
        self.options.fallback = Some(name.into());
        self
    }

    /// Makes kernels that other devices run as well.
    pub fn hardware_compatibility(mut self, level: HardwareCompatibility) -> Self {
        self.options.hardware_compatibility = level;
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

    /// Adds an optimization profile: shapes of dynamic inputs, and values of shape inputs.
    ///
    /// ```
    /// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/lenet_a.onnx");
    /// use kiln::{Engine, ShapeRequest};
    ///
    /// let mut one = ShapeRequest::default();
    /// one.fixed("input", &[1, 1, 28, 28]);
    /// let mut many = ShapeRequest::default();
    /// many.min("input", &[2, 1, 28, 28]).opt("input", &[32, 1, 28, 28]).max("input", &[64, 1, 28, 28]);
    /// let engine = Engine::builder().backend("cpu").profile(one).profile(many).build(model)?;
    /// assert_eq!(engine.profiles().len(), 2);
    /// # Ok::<(), kiln::Error>(())
    /// ```
    pub fn profile(mut self, shapes: ShapeRequest) -> Self {
        self.options.profiles.push(shapes);
        self
    }

    /// Sets the greatest batch of a network with an implicit batch. Its engine takes batches of 1 to this many entries, and its
    /// kernels are chosen for the greatest. Refused for networks with an explicit batch.
    ///
    /// ```
    /// use kiln::network::ActivationKind;
    /// use kiln::{DType, Engine, Network, Tensor, TensorType};
    ///
    /// let mut net = Network::with_implicit_batch("relu");
    /// let x = net.add_input("x", TensorType::new(DType::F32, [3]))?;
    /// let y = net.add_activation(x, ActivationKind::Relu)?.output(0)?;
    /// net.mark_output(y, "y")?;
    /// let engine = Engine::builder().backend("cpu").max_batch(8).build(&net)?;
    /// let outputs = engine.run([("x", Tensor::zeros(DType::F32, &[5, 3])?)])?;
    /// assert_eq!(outputs.get("y")?.shape(), [5, 3]);
    /// # Ok::<(), kiln::Error>(())
    /// ```
    pub fn max_batch(mut self, entries: i64) -> Self {
        self.options.max_batch = Some(entries);
        self
    }

    /// Sets the amount of information on layers in the plan: their names by default.
    pub fn verbosity(mut self, verbosity: Verbosity) -> Self {
        self.options.verbosity = verbosity;
        self
    }

    /// Reads times of kernels from this file before the build, and adds those that are taken.
    pub fn timing_cache(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.timing_cache = Some(path.into());
        self
    }

    /// Starts with these times. [`Built::times`] has them and those that the build takes.
    pub fn times(mut self, times: TimingCache) -> Self {
        self.options.times = Some(times);
        self
    }

    /// Refuses known times that are of other devices or settings alone, instead of timing anew.
    pub fn strict_times(mut self, strict: bool) -> Self {
        self.options.strict_times = strict;
        self
    }

    /// Asks this selector for the algorithms of each layer. Set after [`config`](EngineBuilder::config), which sets it, too.
    pub fn selector<S: AlgorithmSelector + 'static>(mut self, selector: Arc<Mutex<S>>) -> Self {
        self.options.config.selector = Some(Selector::new(selector));
        self
    }

    /// Chooses as a recorded build did, without timing anything.
    pub fn replay(mut self, record: TacticRecord) -> Self {
        self.options.replay = Some(record);
        self
    }

    /// Lets the plan's weights be replaced. Set after [`config`](EngineBuilder::config), which sets it, too.
    pub fn refit(mut self, refit: Refit) -> Self {
        self.options.config.refit = refit;
        self
    }

    /// Leaves weights out of the plan that a refit can supply.
    pub fn strip_weights(mut self, strip: bool) -> Self {
        self.options.strip_weights = strip;
        self
    }

    /// Reports the phases of the build to this monitor. Set after [`config`](EngineBuilder::config), which sets it, too.
    pub fn monitor<M: ProgressMonitor + 'static>(mut self, monitor: Arc<Mutex<M>>) -> Self {
        self.options.config.monitor = Some(Monitor::new(monitor));
        self
    }

    /// Sets precision, folding, fusion, search, strictness and limits.
    pub fn config(mut self, config: BuildConfig) -> Self {
        self.options.config = config;
        self
    }

    /// Sets type and formats of an input or output, as the caller has it in memory. Set after
    /// [`config`](EngineBuilder::config), which sets them, too.
    ///
    /// ```
    /// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/lenet_a.onnx");
    /// use kiln::{DType, Engine, IoSpec, TensorFormat};
    ///
    /// let halves = IoSpec { dtype: Some(DType::F16), formats: Some(TensorFormat::Hwc8.into()) };
    /// let engine = Engine::builder().backend("cpu").io("input", halves).build(model)?;
    /// let input = engine.io_tensor("input")?;
    /// assert_eq!(input.format_description(), "Channel major FP16 format where channel % 8 == 0");
    /// // One channel in vectors of eight halves.
    /// assert_eq!(input.bytes(&[1, 1, 28, 28]), Some(28 * 28 * 8 * 2));
    /// # Ok::<(), kiln::Error>(())
    /// ```
    pub fn io(mut self, name: impl Into<String>, spec: IoSpec) -> Self {
        self.options.config.io.insert(name.into(), spec);
        self
    }

    /// Refuses inputs and outputs that need a kernel of their own for their type or format. Set after
    /// [`config`](EngineBuilder::config), which sets it, too.
    pub fn direct_io(mut self, direct: bool) -> Self {
        self.options.config.direct_io = direct;
        self
    }

    /// Builds a plan that other versions of the backend run, and its run-only form. Set after
    /// [`config`](EngineBuilder::config), which sets it, too.
    pub fn version_compatible(mut self, compatible: bool) -> Self {
        self.options.config.version_compatible = compatible;
        self
    }

    /// Sets all options of the build at once.
    pub fn options(mut self, options: BuildOptions) -> Self {
        self.options = options;
        self
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
        self.recorded(|| {
            self.load_layers();
            self.build_network(model.try_into()?, &self.found(), progress)
        })
    }

    pub(crate) fn build_network(
        &self,
        model: Model,
        backends: &Backends,
        progress: Progress<'_>,
    ) -> Result<Built, Error> {
        let shapes = batch_shapes(&model, &self.options)?;
        let (graph, notes) = model.into_network()?;
        match shapes {
            None => build(graph, notes, &self.options, backends, progress),
            Some(shapes) => {
                let options = BuildOptions { shapes, ..self.options.clone() };
                build(graph, notes, &options, backends, progress)
            }
        }
    }

    /// An option that is set and says how to build, the backend aside.
    pub(crate) fn set_option(&self) -> Option<&'static str> {
        set_option(&self.options)
    }
}
