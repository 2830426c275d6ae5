//! The plug-in layers that this process has loaded.
//!
//! The host registers layers of libraries. A backend that is a library itself asks its host instead: [`ask`].

use super::native::{NativeCall, NativeDevice, NativeRun};
use super::record::{LayerName, LayerRecord};
use kiln_ir::error::OpError;
use kiln_ir::op::Op;
use kiln_ir::tensor::Tensor;
use std::cmp::Ordering;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

static LAYERS: RwLock<Vec<Arc<LayerRecord>>> = RwLock::new(Vec::new());

/// Functions of the host of this library.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Runs the reference form of the layer that an operator names.
    pub run: fn(&Op, &[Tensor]) -> Result<Vec<Tensor>, OpError>,
    /// Makes a native form of it ready for a context.
    pub attach: fn(&Op, NativeDevice, &str, &NativeCall) -> Result<Box<dyn NativeRun>, OpError>,
}

static HOST: OnceLock<Host> = OnceLock::new();

/// Adds a layer. One of the same name and another library is an error, which returns the one that is there.
pub fn register(record: LayerRecord) -> Result<Arc<LayerRecord>, Arc<LayerRecord>> {
    let mut all = LAYERS.write().unwrap_or_else(PoisonError::into_inner);
    match all.iter().find(|r| r.name == record.name) {
        Some(other) if other.library.path == record.library.path => Ok(other.clone()),
        Some(other) => Err(other.clone()),
        None => {
            let record = Arc::new(record);
            all.push(record.clone());
            all.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(record)
        }
    }
}

/// All layers, by name.
pub fn all() -> Vec<Arc<LayerRecord>> {
    LAYERS.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The layer of this name; without a version the newest one.
pub fn find(space: &str, name: &str, version: Option<&str>) -> Option<Arc<LayerRecord>> {
    let all = LAYERS.read().unwrap_or_else(PoisonError::into_inner);
    let named = all.iter().filter(|r| r.name.space == space && r.name.name == name);
    match version {
        Some(v) => named.into_iter().find(|r| r.name.version == v).cloned(),
        None => named.max_by(|a, b| by_number(&a.name.version, &b.name.version)).cloned(),
    }
}

/// The layer of this name, or the refusal that says what to install.
pub fn require(name: &LayerName, library: &str) -> Result<Arc<LayerRecord>, OpError> {
    find(&name.space, &name.name, Some(&name.version)).ok_or_else(|| missing(name, library))
}

/// The refusal of a layer that no library here has.
pub fn missing(name: &LayerName, library: &str) -> OpError {
    let others = all();
    let same = others.iter().filter(|r| r.name.space == name.space && r.name.name == name.name);
    let versions: Vec<&str> = same.map(|r| r.name.version.as_str()).collect();
    let here = if versions.is_empty() {
        String::new()
    } else {
        format!(" (loaded: version {})", versions.join(", "))
    };
    let of = if library.is_empty() { String::new() } else { format!(" of the library {library}") };
    OpError::Unsupported(format!(
        "plug-in layer {name}{of} is not loaded{here}; install the library and name its path (--plugin, KILN_PLUGIN_PATH)"
    ))
}

/// Lets layers that are not registered here be run by the host of this library.
pub fn ask(host: Host) {
    // A library has one host: the first stays.
    let _ = HOST.set(host);
}

/// The host, if this is a library that has one.
pub fn host() -> Option<Host> {
    HOST.get().copied()
}

/// Order of versions: their numbers, then their texts.
fn by_number(a: &str, b: &str) -> Ordering {
    let numbers = |s: &str| s.split(['.', '-', '+']).map(|p| p.parse::<u64>().ok()).collect::<Vec<_>>();
    numbers(a).cmp(&numbers(b)).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_numbers() {
        assert_eq!(by_number("10.2", "9.30"), Ordering::Greater);
        assert_eq!(by_number("1.2", "1.2.1"), Ordering::Less);
        assert_eq!(by_number("a", "b"), Ordering::Less);
    }

    #[test]
    fn a_missing_layer_says_what_to_install() {
        let name = LayerName { space: "nobody".into(), name: "Nothing".into(), version: "3".into() };
        let e = require(&name, "acme 1.2").map(drop).unwrap_err().to_string();
        assert!(e.contains("\"nobody::Nothing\", version 3 of the library acme 1.2 is not loaded"), "{e}");
    }
}
