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

mod again;
mod diff;
mod side;
mod tensors;

use crate::bisect::{Culprit, culprit};
use crate::build::{BuildOptions, BuildReport, Built};
use crate::{EngineBuilder, Error, Model};
use kiln_builder::{BuildConfig, BuildError, Narrowing, Progress};
use kiln_ir::Tensor;
use kiln_plan::Plan;
use kiln_runtime::ExecutionContext;
use serde_json::{Value, json};

pub use diff::{Diff, Tolerance};
use side::Side;
use tensors::Tensors;

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
    /// A plan that is compared, instead of one that the options build. To look for a fault inside of its kernels, the network is built
    /// again by these options with the tactics of the plan.
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
    /// Notes on the comparison.
    pub notes: Vec<String>,
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
                "kernels_in_front": c.in_front,
            })),
            "notes": self.notes,
            "not_observed": self.hidden.iter().map(|(n, e)| json!({"name": n, "reason": e})).collect::<Vec<_>>(),
        })
    }
}

/// The note where f32 is not all that a side multiplies in.
const TF32: &str = "products and convolutions of f32 may run in TF32, which has 10 bits behind the point: build without it (--no-tf32) to \
                    compare in f32";

/// The note where a plan differs, and a build with its tactics does not.
const OTHER_BUILD: &str = "the network was built again with the tactics of the engine, and agrees: give the options that the engine was \
                           built with, to find the layer at fault";

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
                (built.plan, Some(found.clone()))
            }
        };
        let mut other = self.execute(plan, true)?;
        let outputs = right.outputs.iter().filter_map(|(name, w)| {
            let f = other.outputs.get(name).ok()?;
            Some(Diff::of(name, f, w, tolerance))
        });
        let outputs = outputs.collect();
        let Tensors { layers, hidden, agreed } = match compared {
            Compared::Outputs => Tensors::default(),
            Compared::Layers => Tensors::of(&mut right, &mut other, tolerance, true),
            Compared::Kernels => Tensors::of(&mut right, &mut other, tolerance, false),
        };
        let mut all = Comparison {
            wanted: right.backend.clone(),
            found: other.backend.clone(),
            outputs,
            layers,
            hidden,
            culprit: None,
            notes: Vec::new(),
            report,
        };
        if !all.agrees() && self.builder.options.config.tf32 && other.engine.target().has("tf32") {
            all.notes.push(TF32.into());
        }
        let Some(first) = all.first().filter(|_| *bisect).map(|(_, d)| d.name.clone()) else {
            return Ok(all);
        };
        let (options, other, first, agreed) = match options {
            Some(options) => (options, other, first, agreed),
            None => {
                let (options, mut again) = self.again(&found, &other, progress)?;
                let found = Tensors::of(&mut right, &mut again, tolerance, false);
                let Some((_, first)) = found.layers.into_iter().find(|(_, d)| !d.ok()) else {
                    all.notes.push(OTHER_BUILD.into());
                    return Ok(all);
                };
                (options, again, first.name, found.agreed)
            }
        };
        let mut cut = |tensor: &str| self.cut(&options, tensor, progress);
        let agree = |f: &Tensor, w: &Tensor| Diff::of("", f, w, tolerance).ok();
        let program = other.engine.program();
        all.culprit = culprit(&first, &program, &agreed, &mut right.context, &mut cut, &agree)?;
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
        // A kernel that ends there was not timed, and is in no record.
        (options.config.locked, options.replay) = (false, None);
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
