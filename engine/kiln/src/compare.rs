//! A network on two backends: outputs and tensors between layers compared, and the layer at fault found.
//!
//! ```
//! # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/lenet_a.onnx");
//! use kiln::compare::Compare;
//! use kiln::{Engine, Tensor};
//!
//! let builder = Engine::builder().backend("cpu");
//! let image = Tensor::from_slice(&[1, 1, 28, 28], &[0.5f32; 784])?;
//! let found = builder.compare(model, &[("input", image)], &Compare::against(kiln::REFERENCE))?;
//! assert!(found.agrees() && found.layers.len() > 1, "{}", found.to_json());
//! # Ok::<(), kiln::Error>(())
//! ```

mod diff;

use crate::bisect::{Culprit, culprit};
use crate::build::{BuildOptions, BuildReport, Built};
use crate::{Engine, EngineBuilder, Error, Model};
use kiln_backend::{Program, Step};
use kiln_builder::{BuildConfig, BuildError, Narrowing, Progress};
use kiln_ir::{Tensor, ValueId};
use kiln_plan::Plan;
use kiln_runtime::{ExecutionContext, Outputs};
use serde_json::{Value, json};

pub use diff::{Diff, Tolerance};

/// Tensors that are compared, beside the outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compared {
    /// None.
    Outputs,
    /// Tensors of all layers: neither side fuses layers, so that both have the same ones.
    Layers,
    /// Tensors between the kernels of the engine as it ships, with all its optimizations.
    #[default]
    Kernels,
}

/// Settings of a comparison.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Compare {
    /// The backend that is right. It runs the network with a kernel for each layer, in the same types.
    pub against: String,
    /// Tensors that are compared, beside the outputs.
    pub compared: Compared,
    /// Look for the layers at fault inside of the first kernel that differs, by builds in which it is cut.
    pub bisect: bool,
    /// Tolerance of elements.
    pub tolerance: Tolerance,
    /// A plan that is compared, instead of one that the options build. It cannot be cut, and so `bisect` does nothing.
    pub plan: Option<Plan>,
}

impl Compare {
    /// Compares with the results of this backend, by the tensors between the kernels of the engine.
    pub fn against(backend: impl Into<String>) -> Compare {
        Compare {
            against: backend.into(),
            compared: Compared::default(),
            bisect: false,
            tolerance: Tolerance::default(),
            plan: None,
        }
    }

    /// Looks for the layers at fault inside of the first kernel that differs.
    #[must_use]
    pub fn bisect(mut self) -> Compare {
        self.bisect = true;
        self
    }

    /// Compares by another tolerance.
    #[must_use]
    pub fn tolerance(mut self, rtol: f64, atol: f64) -> Compare {
        self.tolerance = Tolerance { rtol, atol };
        self
    }
}

/// Result of a comparison.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Comparison {
    /// The backend that is right.
    pub wanted: String,
    /// The backend that was compared with it.
    pub found: String,
    /// Differences of outputs.
    pub outputs: Vec<Diff>,
    /// Differences of tensors between layers with the layer or kernel that computes each, in execution order.
    pub layers: Vec<(String, Diff)>,
    /// Tensors that could not be compared, with the reason.
    pub hidden: Vec<(String, String)>,
    /// The layers at fault, where they were looked for and a kernel differs.
    pub culprit: Option<Culprit>,
    /// Report of the build for the backend that is right.
    pub report: BuildReport,
}

impl Comparison {
    /// The first tensor between layers that differs, with its layer or kernel.
    pub fn first(&self) -> Option<&(String, Diff)> {
        self.layers.iter().find(|(_, d)| !d.ok())
    }

    /// Whether all tensors that were compared agree.
    pub fn agrees(&self) -> bool {
        self.outputs.iter().all(Diff::ok) && self.first().is_none()
    }

    /// The result as JSON, with the keys of `kiln compare --json`.
    pub fn to_json(&self) -> Value {
        let layer = |(layer, d): &(String, Diff)| {
            let mut v = d.to_json();
            v["layer"] = json!(layer);
            v
        };
        json!({
            "wanted": self.wanted,
            "found": self.found,
            "agrees": self.agrees(),
            "outputs": self.outputs.iter().map(Diff::to_json).collect::<Vec<_>>(),
            "layers": self.layers.iter().map(layer).collect::<Vec<_>>(),
            "first_layer_that_differs": self.first().map(layer),
            "at_fault": self.culprit.as_ref().map(|c| json!({
                "kernel": c.kernel, "layers": c.layers, "tensor": c.tensor, "builds": c.builds,
            })),
            "not_observed": self.hidden.iter().map(|(n, e)| json!({"name": n, "reason": e})).collect::<Vec<_>>(),
        })
    }
}

/// One side, after its run.
struct Side {
    backend: String,
    engine: Engine,
    context: ExecutionContext,
    outputs: Outputs,
}

impl EngineBuilder {
    /// Builds and runs the network by these options, and on a backend that is right. Compares the results. Inputs with dimensions that
    /// the options leave open have the shapes that are given.
    ///
    /// # Errors
    /// As [`EngineBuilder::build_plan`] and [`Engine::run`]. Differences are not errors: [`Comparison::agrees`].
    pub fn compare<M>(
        &self,
        model: M,
        inputs: &[(&str, Tensor)],
        settings: &Compare,
    ) -> Result<Comparison, Error>
    where
        M: TryInto<Model>,
        Error: From<M::Error>,
    {
        self.compare_with_progress(model, inputs, settings, &mut |_, _, _| true)
    }

    /// Compares as [`compare`](EngineBuilder::compare) does. `progress` is called as by
    /// [`build_plan_with_progress`](EngineBuilder::build_plan_with_progress), for each build.
    ///
    /// # Errors
    /// As [`compare`](EngineBuilder::compare).
    pub fn compare_with_progress<M>(
        &self,
        model: M,
        inputs: &[(&str, Tensor)],
        settings: &Compare,
        progress: Progress<'_>,
    ) -> Result<Comparison, Error>
    where
        M: TryInto<Model>,
        Error: From<M::Error>,
    {
        self.recorded(|| Trial { builder: self, model: model.try_into()?, inputs, settings }.run(progress))
    }
}

/// All that the builds and runs of a comparison share.
struct Trial<'a> {
    builder: &'a EngineBuilder,
    model: Model,
    inputs: &'a [(&'a str, Tensor)],
    settings: &'a Compare,
}

impl Trial<'_> {
    fn run(&self, progress: Progress<'_>) -> Result<Comparison, Error> {
        let Compare { against, compared, bisect, tolerance, plan } = self.settings;
        let mut found = self.builder.options.clone();
        // The plan runs as it is built.
        found.strip_weights = false;
        let open = found.profiles.is_empty() && found.config.profiles.is_empty();
        if open && !self.model.implicit_batch {
            let given = self.inputs.iter().map(|(name, x)| (*name, x));
            found.shapes.take_from(self.model.io_tensors(), given);
        }
        if *compared == Compared::Layers {
            unfused(&mut found.config);
        }
        let Built { plan: right, report, .. } = self.build(&self.right(&found, against), progress)?;
        let mut right = self.execute(right, false)?;
        let (plan, options) = match plan {
            Some(plan) => (plan.clone(), None),
            None => {
                let built = self.build(&found, progress)?;
                // Further builds take the times of this one.
                found.times = Some(built.times);
                (built.plan, Some(found))
            }
        };
        let mut other = self.execute(plan, true)?;
        let outputs = right.outputs.iter().filter_map(|(name, w)| {
            let f = other.outputs.get(name).ok()?;
            Some(Diff::of(name, f, w, tolerance))
        });
        let outputs = outputs.collect();
        let (layers, hidden) = match compared {
            Compared::Outputs => Default::default(),
            Compared::Layers => tensors(&mut right, &mut other, tolerance, true),
            Compared::Kernels => tensors(&mut right, &mut other, tolerance, false),
        };
        let mut all = Comparison {
            wanted: right.backend.clone(),
            found: other.backend.clone(),
            outputs,
            layers,
            hidden,
            culprit: None,
            report,
        };
        if let (true, Some((kernel, _)), Some(options)) = (*bisect, all.first(), options) {
            let mut cut = |tensor: &str| self.cut(&options, tensor, progress);
            let agree = |f: &Tensor, w: &Tensor| Diff::of("", f, w, tolerance).ok();
            let program = other.engine.program();
            all.culprit = culprit(kernel, &program, &mut right.context, &mut cut, &agree)?;
        }
        Ok(all)
    }

    /// Options of the side that is right: the network of the other side in its types, by nothing that chooses kernels.
    fn right(&self, found: &BuildOptions, backend: &str) -> BuildOptions {
        let mut config = found.config.clone();
        if self.settings.compared != Compared::Outputs {
            unfused(&mut config);
        }
        let d = BuildConfig::default();
        let config = BuildConfig {
            tactic_sources: d.tactic_sources,
            version_compatible: d.version_compatible,
            direct_io: d.direct_io,
            debug_tensors: d.debug_tensors,
            refit: d.refit,
            locked: d.locked,
            estimates: true,
            excluded_tactics: d.excluded_tactics,
            tactic_rules: d.tactic_rules,
            deterministic: d.deterministic,
            selector: d.selector,
            reject_empty: d.reject_empty,
            pools: d.pools,
            limit: d.limit,
            shape_buckets: d.shape_buckets,
            max_aux_streams: d.max_aux_streams,
            monitor: d.monitor,
            strict: d.strict,
            ..config
        };
        BuildOptions {
            backend: Some(backend.to_owned()),
            config,
            shapes: found.shapes.clone(),
            profiles: found.profiles.clone(),
            max_batch: found.max_batch,
            ..BuildOptions::default()
        }
    }

    fn build(&self, options: &BuildOptions, progress: Progress<'_>) -> Result<Built, Error> {
        let builder = self.builder.plain(false).options(options.clone());
        builder.build_plan_with_progress(self.model.clone(), progress)
    }

    /// The network, built so that a kernel ends at this tensor, after a run; `None` where a pass made the tensor.
    fn cut(
        &self,
        options: &BuildOptions,
        tensor: &str,
        progress: Progress<'_>,
    ) -> Result<Option<ExecutionContext>, Error> {
        let mut options = options.clone();
        options.config.debug_tensors.push(tensor.to_owned());
        options.config.locked = false;
        match self.build(&options, progress) {
            Err(Error::Build { source: BuildError::UnknownTensor { .. }, .. }) => Ok(None),
            built => Ok(Some(self.execute(built?.plan, true)?.context)),
        }
    }

    fn execute(&self, plan: Plan, tested: bool) -> Result<Side, Error> {
        let backend = plan.header.target.backend.clone();
        let own = self.builder.options.backend.as_ref().is_none_or(|b| *b == backend);
        let loader = self.builder.plain(tested && own);
        let engine = loader.build(plan)?;
        let mut context = engine.create_context()?;
        context.set_observable(self.settings.compared != Compared::Outputs);
        let outputs = context.run(self.inputs)?;
        Ok(Side { backend, engine, context, outputs })
    }
}

/// A kernel for each layer, in formats and types that do not depend on times.
fn unfused(config: &mut BuildConfig) {
    config.fuse = false;
    config.search = false;
    config.narrowing = Narrowing::Everywhere;
}

/// Differences by layer or kernel, and tensors that cannot be read with the reason.
type Tensors = (Vec<(String, Diff)>, Vec<(String, String)>);

/// Compares the tensors of all layers of the right side, or those between the kernels of the other side.
fn tensors(wanted: &mut Side, found: &mut Side, tolerance: &Tolerance, each_layer: bool) -> Tensors {
    let program = if each_layer { wanted.engine.program() } else { found.engine.program() };
    let (mut layers, mut hidden) = Tensors::default();
    for (step, name) in names(&program, each_layer) {
        let mut hide = |why: String| hidden.push((name.to_owned(), why));
        match (wanted.context.observe(name), found.context.observe(name)) {
            (Err(e), _) => hide(format!("{}: {e}", wanted.backend)),
            (_, Err(e)) => hide(format!("{}: {e}", found.backend)),
            (Ok(w), Ok(f)) if f.ty() != w.ty() && !each_layer => {
                hide(format!("it is {} in the engine, {} without optimizations", f.ty(), w.ty()))
            }
            (Ok(w), Ok(f)) => layers.push((step.to_owned(), Diff::of(name, &f, &w, tolerance))),
        }
    }
    (layers, hidden)
}

/// Tensors with the steps that compute them: all, or those that leave their step.
fn names(program: &Program, all: bool) -> Vec<(&str, &str)> {
    let (g, border) = (&program.graph, program.border());
    let of_step = |s: &Step| -> Vec<ValueId> {
        s.nodes.iter().filter_map(|&n| g.get(n)).flat_map(|n| n.outputs.iter().copied()).collect()
    };
    let mut found = Vec::new();
    for step in &program.steps {
        let leaving = of_step(step).into_iter().filter(|v| all || border.contains(v));
        found.extend(leaving.map(|v| (step.name.as_str(), g.value(v).name.as_str())));
    }
    found
}
