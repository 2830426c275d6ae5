//! Allowed places of external data: inside the model's folder, or where hubs keep the model's own file.

/// The folders of a model.
#[derive(Debug, Clone)]
pub(crate) struct Folders {
    /// The folder that the model is opened in; locations are relative to it.
    pub(crate) named: PathBuf,
    /// The folder of the file itself, if the name is a symbolic link to it. Download caches of hubs have a folder of
    /// links, for the model and its data alike, into one folder of files.
    target: Option<PathBuf>,
}

impl Folders {
    /// A folder whose model is not a link.
    pub(crate) fn of(folder: &Path) -> Self {
        Self { named: folder.to_owned(), target: None }
    }

    /// The folders of a model file.
    pub(crate) fn of_file(path: &Path, named: &Path) -> Self {
        let linked = path.symlink_metadata().is_ok_and(|m| m.file_type().is_symlink());
        let file = linked.then(|| path.canonicalize().ok()).flatten();
        Self { named: named.to_owned(), target: file.and_then(|file| Some(file.parent()?.to_owned())) }
    }
}

use std::path::{Component, Path, PathBuf};

use crate::error::ExternalFault;

/// The true path of `location` in the folders of a model. Refuses absolute paths, `..` and symbolic links that lead out,
/// before anything is opened. A link may lead to a file beside the one that the model's own name leads to: the model,
/// opened there, could name it without a link.
pub(crate) fn confine(folders: &Folders, location: &str) -> Result<PathBuf, ExternalFault> {
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
    let folder = folders.named.canonicalize().map_err(ExternalFault::Io)?;
    let path = folder.join(location).canonicalize().map_err(ExternalFault::Io)?;
    let beside_target = folders.target.is_some() && path.parent() == folders.target.as_deref();
    if !path.starts_with(&folder) && !beside_target {
        return Err(ExternalFault::Escapes);
    }
    if !path.is_file() {
        return Err(ExternalFault::NotAFile);
    }
    Ok(path)
}
