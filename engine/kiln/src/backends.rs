//! The backends that are available: the linked ones, and plug-ins.

use crate::Error;
use kiln_backend::Backend;
use kiln_backend_cpu::Cpu;
use kiln_reference::Reference;
use kiln_runtime::Backends;
use kiln_runtime::plugin::{
    Found, FoundLayers, LayerRecord, Level, PluginError, Policy, Search, discover, discover_layers, load,
};
use std::path::Path;
use std::sync::Arc;

/// Name of the linked backend that runs on the processor: the default where no other device is.
pub const CPU: &str = "cpu";

/// Name of the linked backend that is the oracle: slow and exact, to compare others with. Never a default.
pub const REFERENCE: &str = "reference";

/// Whether a backend of this name is linked in, so that no library is opened for it.
pub fn is_linked(name: &str) -> bool {
    [CPU, REFERENCE].contains(&name)
}

/// Backends in the order of preference where none is asked for; others come after, the processor last.
const PREFERRED: [&str; 2] = ["cuda", "wgpu"];

/// Places that plug-ins are looked for in, and the policy that they must satisfy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DiscoverOptions {
    /// The places.
    pub search: Search,
    /// Policy that a library must satisfy.
    pub policy: Policy,
    /// Load the libraries that plans hold. They are code that runs in this process: for plans of trusted authors.
    pub embedded: bool,
}

impl Default for DiscoverOptions {
    /// The search path of this process and the usual policy.
    fn default() -> Self {
        DiscoverOptions { search: Search::from_env(), policy: Policy::default(), embedded: false }
    }
}

impl DiscoverOptions {
    /// Looks for no plug-in at all.
    pub fn linked() -> DiscoverOptions {
        let policy = Policy { level: Level::Off, ..Policy::default() };
        DiscoverOptions { search: Search::default(), policy, embedded: false }
    }
}

/// The linked backends and every plug-in found, ready to use; and what came of each library.
pub fn backends(options: &DiscoverOptions) -> (Backends, Vec<Found>) {
    let mut all = Backends::new();
    let linked: [Arc<dyn Backend>; 2] = [Arc::new(Cpu::new()), Arc::new(Reference::new())];
    for backend in linked {
        if let Err(e) = all.register(backend) {
            tracing::error!("{e}");
        }
    }
    if options.policy.level == Level::Off {
        return (all, Vec::new());
    }
    let mut found = discover(&options.search, &options.policy);
    for f in &mut found {
        if let Err(e) = register(&mut all, f, &options.policy) {
            f.outcome = Err(e);
        }
    }
    (all, found)
}

/// Registers the plug-in layers of every library of layers that is found, for networks, models and plans of this process; and
/// returns what came of each library.
pub fn layers(options: &DiscoverOptions) -> Vec<FoundLayers> {
    if options.policy.level == Level::Off {
        return Vec::new();
    }
    discover_layers(&options.search, &options.policy)
}

/// Registers the plug-in layers of one library, for networks, models and plans of this process, and returns their definitions.
pub fn load_layers(path: impl AsRef<Path>, policy: &Policy) -> Result<Vec<Arc<LayerRecord>>, PluginError> {
    load(path.as_ref(), policy)?.layers()
}

fn register(all: &mut Backends, found: &Found, policy: &Policy) -> Result<(), PluginError> {
    let Ok(info) = &found.outcome else { return Ok(()) };
    let backend = load(&info.path, policy)?.backend()?;
    all.register(Arc::new(backend)).map_err(|_| PluginError::Shadowed {
        path: info.path.clone(),
        name: info.name.clone(),
        by: std::env::current_exe().unwrap_or_default(),
    })
}

/// The name of the best backend that has a device: those with hardware come first, the processor before software
/// drivers of graphics interfaces. The oracle is not among them.
pub fn best(backends: &Backends) -> Result<String, Error> {
    let mut names: Vec<&str> = backends.names().filter(|n| *n != REFERENCE).collect();
    let rank = |n: &str| match PREFERRED.iter().position(|p| *p == n) {
        Some(i) => i,
        None if n == CPU => usize::MAX,
        None => PREFERRED.len(),
    };
    names.sort_by_key(|n| (rank(n), n.to_string()));
    let mut reasons = Vec::new();
    for name in names {
        match backends.get(name)?.targets() {
            Ok(t) if t.first().is_some_and(|t| !t.has("software")) => return Ok(name.to_owned()),
            Ok(t) if t.is_empty() => reasons.push(format!("{name}: no device")),
            Ok(_) => reasons.push(format!("{name}: a software driver only; ask for it by name")),
            Err(e) => reasons.push(format!("{name}: {e}")),
        }
    }
    Err(Error::NoBackend { reasons: reasons.join("; ") })
}
