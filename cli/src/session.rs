//! The backends that a command uses, looked for no earlier and no further than it needs them.

use crate::failure::Failure;
use crate::options::{PluginLevel, PluginOptions};
use kiln::plugin::{Found, Level, Origin, Policy, Search};
use kiln::{Backends, DiscoverOptions, is_linked};

/// Backends and where they came from.
#[derive(Debug)]
pub struct Session {
    /// Ready to use.
    pub backends: Backends,
    /// Outcome of each library.
    pub found: Vec<Found>,
}

/// The search and the policy that options ask for.
pub fn discover(options: &PluginOptions) -> DiscoverOptions {
    let level = match options.plugins {
        PluginLevel::Off => Level::Off,
        PluginLevel::Manifest => Level::Manifest,
        PluginLevel::Any => Level::Any,
    };
    let mut discover = DiscoverOptions::default();
    discover.search = Search::from_env().with(options.plugin.iter().cloned());
    discover.embedded = options.embedded_plugins;
    discover.policy = Policy { level, ..Policy::default() };
    discover
}

/// Registers the layers of plug-ins, which models and plans may name: before either is opened. A library that the options
/// name is an error if it is refused; others are passed over with a warning.
pub fn load_layers(options: &PluginOptions) -> Result<(), Failure> {
    for f in kiln::plugin::layers(&discover(options)) {
        match f.outcome {
            Ok(_) => {}
            Err(e) if f.origin == Origin::Explicit => return Err(Failure::Input(e.chain())),
            Err(e) => tracing::warn!("{}", e.chain()),
        }
    }
    Ok(())
}

impl Session {
    /// All backends.
    pub fn all(options: &PluginOptions) -> Session {
        let (backends, found) = kiln::backends(&discover(options));
        Session { backends, found }
    }

    /// The backends of these names, and perhaps others. No library is opened if only linked ones are asked for.
    pub fn with<'a>(options: &PluginOptions, names: impl IntoIterator<Item = &'a str>) -> Session {
        if names.into_iter().any(|n| !is_linked(n)) {
            return Session::all(options);
        }
        let (backends, found) = kiln::backends(&DiscoverOptions::linked());
        Session { backends, found }
    }

    /// Reasons why libraries were refused, one a line: printed when a backend is missing.
    pub fn refusals(&self) -> Vec<String> {
        self.found.iter().filter_map(|f| f.outcome.as_ref().err()).map(|e| e.to_string()).collect()
    }
}
