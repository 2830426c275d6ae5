//! Finding shared libraries that are not part of the driver: NVRTC, and those of tactic sources.

use std::path::{Path, PathBuf};

/// Folders of toolkits.
const FOLDERS: [&str; 2] = ["/usr/local/cuda/lib64", "/opt/cuda/lib64"];

/// Files to try, in order: what a variable names (a file, or a folder of such files; ignored where the process has more
/// rights than its caller), beside this library, what the loader
/// finds, usual folders.
pub fn candidates(variable: &str, names: &[&str]) -> Vec<PathBuf> {
    let within = |folder: &Path| names.iter().map(|n| folder.join(n)).collect::<Vec<_>>();
    let mut all = Vec::new();
    if let Some(p) = kiln_files::environment::trusted(variable).map(PathBuf::from) {
        // A name that is given is the only one.
        return if p.is_dir() { within(&p) } else { vec![p] };
    }
    if let Some(folder) = crate::own_folder() {
        all.extend(within(&folder).into_iter().filter(|p| p.is_file()));
    }
    all.extend(names.iter().map(PathBuf::from));
    all.extend(FOLDERS.iter().flat_map(|f| within(Path::new(f))).filter(|p| p.is_file()));
    all
}

/// The first that opens, with its name.
pub fn open(tried: &[PathBuf]) -> Option<(libloading::Library, String)> {
    tried.iter().find_map(|path| {
        // SAFETY: NVIDIA's libraries may be loaded into any process.
        let library = unsafe { libloading::Library::new(path) }.ok()?;
        Some((library, path.display().to_string()))
    })
}
