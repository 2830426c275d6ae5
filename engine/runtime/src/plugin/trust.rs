//! Refuses libraries that anyone could replace.

use super::PluginError;
use std::path::{Path, PathBuf};

/// The library's real path, if neither it nor its folder may be written by others, nor a folder above replaced.
pub(super) fn check(path: &Path) -> Result<PathBuf, PluginError> {
    let at = |path: &Path, source| PluginError::File { path: path.to_owned(), source };
    let real = path.canonicalize().map_err(|e| at(path, e))?;
    let meta = real.metadata().map_err(|e| at(&real, e))?;
    if !meta.is_file() {
        let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is no regular file");
        return Err(at(&real, source));
    }
    for (depth, p) in real.ancestors().enumerate() {
        let meta = p.metadata().map_err(|e| at(p, e))?;
        if let Some(how) = open_to_others(&meta, depth) {
            let found = format!("{} is {how} (mode {:o})", p.display(), mode(&meta) & 0o7777);
            return Err(PluginError::Untrusted { path: real, found });
        }
    }
    Ok(real)
}

#[cfg(unix)]
fn mode(meta: &std::fs::Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::mode(meta)
}

#[cfg(not(unix))]
fn mode(_: &std::fs::Metadata) -> u32 {
    0
}

/// The library is at depth 0, its folder at 1. In a sticky folder further up nobody can rename what is another's.
fn open_to_others(meta: &std::fs::Metadata, depth: usize) -> Option<&'static str> {
    let (others, sticky) = (mode(meta) & 0o002 != 0, mode(meta) & 0o1000 != 0);
    (others && !(depth > 1 && sticky)).then_some("writable by anyone")
}
