//! Finds the libraries in the search path.

use super::search::{backend_name, file_name};
use super::{Origin, Plugin, PluginError, PluginInfo, Policy, Search, load};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
        for path in libraries(origin, &place) {
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
    let file = file_name(name);
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    for (origin, place) in search.places().into_iter().filter(|_| plain) {
        for path in libraries(origin, &place) {
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

/// The libraries of a place: itself if it is a file, else those in it that are named as backends, sorted. A place that
/// does not exist has none, unless the caller named it.
fn libraries(origin: Origin, place: &Path) -> Vec<Result<PathBuf, PluginError>> {
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
        entries.filter_map(|e| Some(e.ok()?.path())).filter(|p| is_backend(p)).collect();
    paths.sort();
    paths.into_iter().map(Ok).collect()
}

fn is_backend(path: &Path) -> bool {
    path.file_name().and_then(|f| backend_name(f.to_str()?)).is_some()
}

/// Loads a library and checks that what it offers is complete.
fn load_checked(path: &Path, policy: &Policy) -> Result<Arc<Plugin>, PluginError> {
    let plugin = load(path, policy)?;
    plugin.backend_table()?;
    Ok(plugin)
}
