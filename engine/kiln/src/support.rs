//! Whether a backend runs a network, layer by layer, without a build.

use crate::build::build;
use crate::implicit::batch_shapes;
use crate::{EngineBuilder, Error, Model};
use kiln_backend::{Backend, BackendError, Device, Region, Tactic, Target};
use kiln_builder::BuildConfig;
use kiln_runtime::Backends;
use std::sync::Arc;

/// Name of the tactic that stands for a refusal.
const REFUSED: &str = "kiln.refused";

/// Answer of a backend for each layer of a network.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NetworkSupport {
    /// The backend that was asked.
    pub backend: String,
    /// The layers in execution order. Layers that fold to constants are left out.
    pub layers: Vec<LayerSupport>,
}

/// Answer of a backend for one layer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LayerSupport {
    /// Name of the layer; several where they are one operator of the backend.
    pub layer: String,
    /// Its operators.
    pub operators: String,
    /// Reason of the refusal; `None` if the backend runs the layer.
    pub refused: Option<String>,
}

impl NetworkSupport {
    /// Whether the backend runs every layer.
    pub fn is_supported(&self) -> bool {
        self.refused().next().is_none()
    }

    /// The layers that the backend refuses.
    pub fn refused(&self) -> impl Iterator<Item = &LayerSupport> {
        self.layers.iter().filter(|l| l.refused.is_some())
    }
}

impl EngineBuilder {
    /// Asks the backend for each layer of a network whether it runs it, for the types and shapes of these options. Nothing is
    /// compiled or timed, and no device is opened; so a build may still fail, for lack of memory for example.
    ///
    /// ```
    /// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/lenet_a.onnx");
    /// let support = kiln::Engine::builder().backend("cpu").network_support(model)?;
    /// assert!(support.is_supported(), "{:?}", support.refused().collect::<Vec<_>>());
    /// # Ok::<(), kiln::Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of [`Model::open`] for a file, and errors of the build that are not refusals of a layer, such as shapes that do not fit.
    pub fn network_support<M>(&self, model: M) -> Result<NetworkSupport, Error>
    where
        M: TryInto<Model>,
        Error: From<M::Error>,
    {
        self.recorded(|| {
            self.load_layers();
            let model = model.try_into()?;
            let mut options = self.options.clone();
            if let Some(shapes) = batch_shapes(&model, &options)? {
                options.shapes = shapes;
            }
            // One layer a region, each asked about once.
            let config = &mut options.config;
            *config = BuildConfig {
                fuse: false,
                search: false,
                estimates: true,
                locked: false,
                strict: false,
                selector: None,
                monitor: None,
                tactic_rules: Vec::new(),
                excluded_tactics: Vec::new(),
                ..config.clone()
            };
            (options.fallback, options.replay, options.timing_cache, options.times) =
                (None, None, None, None);
            (options.embed_plugins, options.strip_weights) = (false, false);
            let (graph, notes) = model.into_network()?;
            let found = self.found();
            let mut asked = Backends::new();
            for name in found.names().map(str::to_owned).collect::<Vec<_>>() {
                asked.register(Arc::new(Asked(found.get(&name)?)))?;
            }
            let built = build(graph, notes, &options, &asked, &mut |_, _, _| true)?;
            let layer = |s: kiln_builder::StepReport| LayerSupport {
                refused: (s.tactic == REFUSED).then_some(s.note),
                layer: s.name,
                operators: s.ops,
            };
            let backend = built.report.backend;
            Ok(NetworkSupport { backend, layers: built.report.steps.into_iter().map(layer).collect() })
        })
    }

    /// Whether the backend runs every layer of a network: [`EngineBuilder::network_support`] has the reasons.
    ///
    /// # Errors
    /// As [`EngineBuilder::network_support`].
    pub fn is_network_supported<M>(&self, model: M) -> Result<bool, Error>
    where
        M: TryInto<Model>,
        Error: From<M::Error>,
    {
        Ok(self.network_support(model)?.is_supported())
    }
}

/// A backend that is asked only: a refusal of a layer is a tactic of its own, and nothing is compiled.
struct Asked(Arc<dyn Backend>);

impl Backend for Asked {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        self.0.targets()
    }

    fn supports(&self, region: &Region, target: &Target) -> Result<(), BackendError> {
        self.0.supports(region, target)
    }

    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        let refused = |note: String| Ok(vec![Tactic { note, ..Tactic::plain(REFUSED) }]);
        match self.0.tactics(region, target) {
            Ok(all) if all.is_empty() => refused(format!("no tactic for {}", region.label())),
            Ok(all) => Ok(all),
            Err(BackendError::Unsupported(why)) => refused(why),
            Err(e) => Err(e),
        }
    }

    fn compile(&self, _: &Region, _: &Tactic, _: &Target) -> Result<Vec<u8>, BackendError> {
        Ok(Vec::new())
    }

    fn open(&self, _: &Target) -> Result<Arc<dyn Device>, BackendError> {
        Err(BackendError::Unsupported("a backend that is asked only has no device".into()))
    }
}
