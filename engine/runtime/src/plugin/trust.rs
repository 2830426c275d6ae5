//! Refuses libraries that others could replace.

use super::PluginError;
use kiln_files::trust::Distrust;
use std::path::{Path, PathBuf};

/// The library's real path, if it and all folders above belong to root or to this user and only they may write them.
pub(super) fn check(path: &Path) -> Result<PathBuf, PluginError> {
    kiln_files::trust::file(path).map_err(|e| match e {
        Distrust::Io { path, source } => PluginError::File { path, source },
        Distrust::Open { path, found } => PluginError::Untrusted { path, found },
    })
}
