//! Finds the libraries in the search path.

use super::search::{Kind, named};
use super::{Origin, Plugin, PluginError, PluginInfo, Policy, Search, load};
use kiln_abi::{KILN_KIND_BACKEND, KILN_KIND_LAYERS};
use kiln_ops::plugin::record::LayerRecord;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A library of layers that was found, and what came of it.
#[derive(Debug)]
pub struct FoundLayers {
    /// The library, or the place in the search path that is refused.
    pub path: PathBuf,
    /// Place where it was found.
    pub origin: Origin,
    /// Description of the plug-in and its layers, or the reason why they are not used.
    pub outcome: Result<(PluginInfo, Vec<Arc<LayerRecord>>), PluginError>,
}

/// A library that was found, and what came of it.
#[derive(Debug)]
pub struct Found {
    /// The library, or the place in the search path that is refused.
    pub path: PathBuf,
    /// Place where it was found.
    pub origin: Origin,
    /// Description of the plug-in, or the reason why it is not used.
    pub outcome: Result<PluginInfo, PluginError>,
}

/// Loads every backend in the search path, in its order; of several of one name the first is used.
pub fn discover(search: &Search, policy: &Policy) -> Vec<Found> {
    let mut used: HashMap<String, PathBuf> = HashMap::new();
    let mut found = Vec::new();
    for (origin, place) in search.places() {
        for path in libraries(origin, &place, Kind::Backend) {
            if path.as_ref().is_ok_and(|p| origin == Origin::Explicit && is_only(p, policy, Kind::Layers)) {
                continue;
            }
            let outcome = path.and_then(|p| load_checked(&p, policy)).map(|p| p.info().clone());
            let outcome = outcome.and_then(|info| match used.get(&info.name) {
                Some(by) if *by == info.path => Ok(info),
                Some(by) => Err(PluginError::Shadowed { path: info.path, name: info.name, by: by.clone() }),
                None => {
                    used.insert(info.name.clone(), info.path.clone());
                    Ok(info)
                }
            });
            let path = match &outcome {
                Ok(info) => info.path.clone(),
                Err(e) => e.path().unwrap_or(&place).to_owned(),
            };
            if found.iter().all(|f: &Found| f.path != path) {
                found.push(Found { path, origin, outcome });
            }
        }
    }
    found
}

/// Loads the first library in the search path that is named as the library of this backend. A place that can't be searched
/// is an error if the caller named it, and passed over else.
pub fn find(name: &str, search: &Search, policy: &Policy) -> Result<Arc<Plugin>, PluginError> {
    let file = Kind::Backend.file_name(name);
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    for (origin, place) in search.places().into_iter().filter(|_| plain) {
        for path in libraries(origin, &place, Kind::Backend) {
            let path = match path {
                Ok(path) => path,
                Err(e) if origin == Origin::Explicit => return Err(e),
                Err(e) => {
                    tracing::warn!("{e}");
                    continue;
                }
            };
            if path.file_name().is_some_and(|f| f == file.as_str()) {
                return load_checked(&path, policy);
            }
        }
    }
    let searched: Vec<String> = search.places().iter().map(|(_, p)| p.display().to_string()).collect();
    Err(PluginError::NotFound { name: name.to_owned(), file, searched: searched.join(", ") })
}

/// Loads every library of layers in the search path, in its order, and registers its layers in this process.
pub fn discover_layers(search: &Search, policy: &Policy) -> Vec<FoundLayers> {
    let mut found: Vec<FoundLayers> = Vec::new();
    for (origin, place) in search.places() {
        for path in libraries(origin, &place, Kind::Layers) {
            if path.as_ref().is_ok_and(|p| origin == Origin::Explicit && is_only(p, policy, Kind::Backend)) {
                continue;
            }
            let outcome =
                path.and_then(|p| load(&p, policy)).and_then(|p| Ok((p.info().clone(), p.layers()?)));
            let path = match &outcome {
                Ok((info, _)) => info.path.clone(),
                Err(e) => e.path().unwrap_or(&place).to_owned(),
            };
            if found.iter().all(|f| f.path != path) {
                found.push(FoundLayers { path, origin, outcome });
            }
        }
    }
    found
}

/// Whether a library that the caller names is of this kind alone, by its file name or by what it says once it is loaded.
fn is_only(path: &Path, policy: &Policy, other: Kind) -> bool {
    if let Some((kind, _)) = path.file_name().and_then(|f| named(f.to_str()?)) {
        return kind == other;
    }
    let kind = if other == Kind::Layers { KILN_KIND_LAYERS } else { KILN_KIND_BACKEND };
    load(path, policy).is_ok_and(|p| p.info().kinds & (KILN_KIND_BACKEND | KILN_KIND_LAYERS) == kind)
}

/// The libraries of a place: itself if it is a file, else those in it that are named as this kind, sorted. A place that
/// does not exist has none, unless the caller named it.
fn libraries(origin: Origin, place: &Path, kind: Kind) -> Vec<Result<PathBuf, PluginError>> {
    if origin != Origin::Explicit && !place.is_absolute() {
        return vec![Err(PluginError::Relative { path: place.to_owned() })];
    }
    let entries = match std::fs::read_dir(place) {
        Ok(entries) => entries,
        Err(_) if place.is_file() => return vec![Ok(place.to_owned())],
        Err(source) if origin == Origin::Explicit => {
            return vec![Err(PluginError::File { path: place.to_owned(), source })];
        }
        Err(_) => return Vec::new(),
    };
    let mut paths: Vec<PathBuf> =
        entries.filter_map(|e| Some(e.ok()?.path())).filter(|p| is_named(p, kind)).collect();
    paths.sort();
    paths.into_iter().map(Ok).collect()
}

fn is_named(path: &Path, kind: Kind) -> bool {
    path.file_name().and_then(|f| named(f.to_str()?)).is_some_and(|(k, _)| k == kind)
}

/// Loads a library and checks that what it offers is complete.
fn load_checked(path: &Path, policy: &Policy) -> Result<Arc<Plugin>, PluginError> {
    let plugin = load(path, policy)?;
    plugin.backend_table()?;
    Ok(plugin)
}
