//! Backends and plug-ins: where they are looked for, and what was found.

use crate::errors::{Raise, argument};
use crate::io::Target;
use crate::scope::{detached, lock};
use kiln::plugin::{LayerRecord, Level, Policy};
use kiln::{BackendError, DiscoverOptions, RuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Libraries of the package, which come behind those that the caller names.
static OWN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Adds libraries that every search looks at: those that the package brings.
#[pyfunction]
pub fn add_libraries(paths: Vec<PathBuf>) {
    lock(&OWN).extend(paths);
}

fn policy(level: &str) -> PyResult<Policy> {
    let level = match level {
        "any" => Level::Any,
        "manifest" => Level::Manifest,
        "off" => Level::Off,
        other => {
            return Err(argument(format!(
                "the policy of plug-ins is \"{other}\"; there are any, manifest, off"
            )));
        }
    };
    Ok(Policy { level, ..Policy::default() })
}

/// The search for plug-ins: these libraries, those of the package, and those of the environment.
pub fn discover(explicit: &[PathBuf], level: &str, embedded: bool) -> PyResult<DiscoverOptions> {
    let mut options = DiscoverOptions::default();
    let own = lock(&OWN).clone();
    options.search = options.search.with(explicit.iter().cloned().chain(own));
    options.policy = policy(level)?;
    options.embedded = embedded;
    Ok(options)
}

/// A backend that was found, or a library that was refused.
#[pyclass(frozen, get_all, module = "kiln")]
pub struct BackendInfo {
    name: String,
    path: Option<String>,
    targets: Vec<Target>,
    error: Option<String>,
}

#[pymethods]
impl BackendInfo {
    fn __repr__(&self) -> String {
        let devices: Vec<&str> = self.targets.iter().map(|t| t.0.device.as_str()).collect();
        match &self.error {
            Some(e) => format!("kiln.BackendInfo({:?}: {e})", self.name),
            None => format!("kiln.BackendInfo({:?}: {})", self.name, devices.join(", ")),
        }
    }
}

/// Support of each operator and element type by a device of a backend: "fast", "emulated" or "none".
#[pyfunction]
#[pyo3(signature = (backend, device = 0, plugins = Vec::new()))]
pub fn element_types(
    py: Python<'_>,
    backend: &str,
    device: usize,
    plugins: Vec<PathBuf>,
) -> PyResult<BTreeMap<&'static str, BTreeMap<&'static str, &'static str>>> {
    let options = discover(&plugins, "any", false)?;
    detached(py, || {
        let found = kiln::backends(&options).0.get(backend)?;
        let failed = |source| RuntimeError::Backend { backend: backend.to_owned(), source };
        let targets = found.targets().map_err(failed)?;
        let Some(target) = targets.get(device) else {
            let count = targets.len();
            let wrong = format!("{backend} has no device {device}: it has {count}, counted from 0");
            return Err(failed(BackendError::InvalidArgument(wrong)));
        };
        let all = kiln::capabilities(found.as_ref(), target).into_iter();
        let of = |types: Vec<(kiln::DType, kiln::Capability)>| {
            types.into_iter().map(|(t, c)| (t.name(), c.name())).collect()
        };
        Ok(all.map(|(operator, types)| (operator, of(types))).collect())
    })
}

/// Backends that are here, with their devices, and libraries that were refused.
#[pyfunction]
#[pyo3(signature = (plugins = Vec::new()))]
pub fn backends(py: Python<'_>, plugins: Vec<PathBuf>) -> PyResult<Vec<BackendInfo>> {
    let options = discover(&plugins, "any", false)?;
    let all = py.detach(|| {
        let (backends, found) = kiln::backends(&options);
        let mut all = Vec::new();
        for name in backends.names() {
            let from = found.iter().find(|f| f.outcome.as_ref().is_ok_and(|i| i.name == name));
            let targets = backends.get(name).map_err(|e| e.to_string());
            let targets = targets.and_then(|b| b.targets().map_err(|e| e.to_string()));
            let (targets, error) = match targets {
                Ok(targets) => (targets.into_iter().map(Target).collect(), None),
                Err(e) => (Vec::new(), Some(e)),
            };
            let path = from.map(|f| f.path.display().to_string());
            all.push(BackendInfo { name: name.to_owned(), path, targets, error });
        }
        for f in &found {
            if let Err(e) = &f.outcome {
                let name = f.path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
                let path = Some(f.path.display().to_string());
                all.push(BackendInfo { name, path, targets: Vec::new(), error: Some(e.to_string()) });
            }
        }
        all
    });
    Ok(all)
}

/// A layer that a plug-in defines.
#[pyclass(frozen, module = "kiln")]
pub struct PluginLayer(Arc<LayerRecord>);

#[pymethods]
impl PluginLayer {
    #[getter]
    fn namespace(&self) -> &str {
        &self.0.name.space
    }

    #[getter]
    fn name(&self) -> &str {
        &self.0.name.name
    }

    #[getter]
    fn version(&self) -> &str {
        &self.0.name.version
    }

    #[getter]
    fn library(&self) -> String {
        self.0.library.path.display().to_string()
    }

    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        use kiln_ir::attr::Attr;
        let one = |f: &kiln::plugin::FieldDef| {
            let all = PyDict::new(py);
            all.set_item("name", &f.name)?;
            all.set_item("doc", &f.doc)?;
            all.set_item("required", f.required)?;
            match &f.default {
                Attr::Int(v) => all.set_item("default", v)?,
                Attr::Float(v) => all.set_item("default", v)?,
                Attr::Bool(v) => all.set_item("default", v)?,
                Attr::Str(v) => all.set_item("default", v)?,
                Attr::Ints(v) => all.set_item("default", v)?,
                Attr::Floats(v) => all.set_item("default", v)?,
                Attr::Strs(v) => all.set_item("default", v)?,
                _ => all.set_item("default", py.None())?,
            }
            Ok(all)
        };
        self.0.fields.iter().map(one).collect()
    }

    fn __repr__(&self) -> String {
        format!("kiln.PluginLayer({})", self.0.name)
    }
}

/// Registers the layers of a library.
#[pyfunction]
#[pyo3(signature = (path, policy = "any"))]
pub fn load_plugin(py: Python<'_>, path: PathBuf, policy: &str) -> PyResult<Vec<PluginLayer>> {
    let policy = self::policy(policy)?;
    let layers = py.detach(|| kiln::plugin::load_layers(&path, &policy)).map_err(|e| e.raise(py))?;
    Ok(layers.into_iter().map(PluginLayer).collect())
}

/// Registers the layers of all libraries of the search path, and returns them.
#[pyfunction]
#[pyo3(signature = (plugins = Vec::new()))]
pub fn plugin_layers(py: Python<'_>, plugins: Vec<PathBuf>) -> PyResult<Vec<PluginLayer>> {
    let options = discover(&plugins, "any", false)?;
    let found = py.detach(|| kiln::plugin::layers(&options));
    Ok(found
        .into_iter()
        .filter_map(|f| f.outcome.ok())
        .flat_map(|(_, layers)| layers)
        .map(PluginLayer)
        .collect())
}
