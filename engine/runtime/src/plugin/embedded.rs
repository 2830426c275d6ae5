//! Libraries that plans hold.

use super::{Level, Plugin, PluginError, Policy, library};
use kiln_ops::plugin::registry;
use kiln_plan::Plan;
use std::path::PathBuf;
use std::sync::Arc;

/// Larger libraries are refused.
const MOST_BYTES: u64 = 1 << 30;

/// Loads the libraries that a plan holds, and registers their layers. Those that this process has loaded are left out. Code of the
/// plan runs from here on: call this for plans of trusted authors only. Nothing else loads such libraries.
///
/// # Errors
/// [`PluginError::Disabled`] where plug-ins are switched off. [`PluginError::Embedded`] where the policy wants manifests, bytes have
/// another hash than the plan says, or the system makes no file in memory. Errors of [`load`](super::load) otherwise.
pub fn load_embedded(plan: &Plan, policy: &Policy) -> Result<Vec<Arc<Plugin>>, PluginError> {
    let mut loaded = Vec::new();
    for r in plan.header.plugins.iter().filter(|r| r.embedded > 0) {
        if registry::all().iter().any(|l| l.library.digest == r.digest) {
            continue;
        }
        let path = PathBuf::from(format!("{} {} in the plan \"{}\"", r.name, r.version, plan.header.name));
        let refuse = |why: String| Err(PluginError::Embedded { path: path.clone(), why });
        match policy.level {
            Level::Off => return Err(PluginError::Disabled { path }),
            Level::Manifest => return refuse("the policy wants a manifest beside each library".into()),
            Level::Any => {}
        }
        let Some(bytes) = plan.libraries.get(&r.digest) else {
            return refuse("its bytes are missing".into());
        };
        let found = blake3::hash(bytes.as_slice()).to_hex();
        if found.as_str() != r.digest {
            return refuse(format!("its bytes have the hash {found}, wants {}", r.digest));
        }
        let plugin = library::load_bytes(&path, &r.digest, bytes.as_slice(), policy)?;
        plugin.layers()?;
        loaded.push(plugin);
    }
    Ok(loaded)
}

/// Puts the libraries into a plan that its runs call, as this process has loaded them.
///
/// # Errors
/// [`PluginError::File`] if a library cannot be read, or is not the one that was loaded.
pub fn embed(mut plan: Plan) -> Result<Plan, PluginError> {
    let called = plan.header.plugins.iter().filter(|r| r.called && !r.digest.is_empty());
    let digests: Vec<String> = called.map(|r| r.digest.clone()).collect();
    for digest in digests {
        let Some(layer) = registry::all().into_iter().find(|l| l.library.digest == digest) else { continue };
        let path = layer.library.path.clone();
        let fail = |source| PluginError::File { path: path.clone(), source };
        let bytes = kiln_files::read_regular(&path, MOST_BYTES).map_err(fail)?;
        plan = plan.with_library(bytes).map_err(|e| fail(std::io::Error::other(e)))?;
    }
    Ok(plan)
}
