//! The backends that are available.

use crate::RuntimeError;
use kiln_backend::Backend;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Backends by name: those linked in and those that plug-ins registered.
#[derive(Clone, Default)]
pub struct Backends {
    by_name: BTreeMap<String, Arc<dyn Backend>>,
}

impl Backends {
    /// None.
    pub fn new() -> Backends {
        Backends::default()
    }

    /// Adds one; its name must be free.
    pub fn register(&mut self, backend: Arc<dyn Backend>) -> Result<(), RuntimeError> {
        let name = backend.name().to_owned();
        if self.by_name.contains_key(&name) {
            return Err(RuntimeError::DuplicateBackend(name));
        }
        self.by_name.insert(name, backend);
        Ok(())
    }

    /// The backend of this name.
    pub fn get(&self, name: &str) -> Result<Arc<dyn Backend>, RuntimeError> {
        self.by_name.get(name).cloned().ok_or_else(|| {
            let names: Vec<&str> = self.names().collect();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            RuntimeError::NoBackend { name: name.to_owned(), known }
        })
    }

    /// Names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }
}

impl std::fmt::Debug for Backends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
