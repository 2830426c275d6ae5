//! Where external data may lie: inside the model's folder and nowhere else.

use std::path::{Component, Path, PathBuf};

use crate::error::ExternalFault;

/// The true path of `location` below `folder`. Refuses absolute paths, `..` and symbolic links that lead out, before
/// anything is opened.
pub(crate) fn confine(folder: &Path, location: &str) -> Result<PathBuf, ExternalFault> {
    let mut components = Path::new(location).components().peekable();
    if components.peek().is_none() {
        return Err(ExternalFault::NoLocation);
    }
    for component in components {
        match component {
            Component::Normal(_) | Component::CurDir => {}
            Component::ParentDir => return Err(ExternalFault::Parent),
            Component::RootDir | Component::Prefix(_) => return Err(ExternalFault::Absolute),
        }
    }
    let folder = folder.canonicalize().map_err(ExternalFault::Io)?;
    let path = folder.join(location).canonicalize().map_err(ExternalFault::Io)?;
    if !path.starts_with(&folder) {
        return Err(ExternalFault::Escapes);
    }
    if !path.is_file() {
        return Err(ExternalFault::NotAFile);
    }
    Ok(path)
}
