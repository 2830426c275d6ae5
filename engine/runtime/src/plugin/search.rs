//! Folders and files in which libraries are searched.

use kiln_files::environment;
use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Kind of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A backend.
    Backend,
    /// Layers.
    Layers,
}

impl Kind {
    /// The name in manifests.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Backend => "backend",
            Kind::Layers => "layers",
        }
    }

    /// The file name of a library of this kind and name.
    pub(super) fn file_name(self, name: &str) -> String {
        format!("{DLL_PREFIX}kiln_{}_{name}{DLL_SUFFIX}", self.name())
    }
}

/// The kind and the name of a library with this file name, if it is named as one.
pub(super) fn named(file: &str) -> Option<(Kind, &str)> {
    let name = file.strip_prefix(DLL_PREFIX)?.strip_prefix("kiln_")?.strip_suffix(DLL_SUFFIX)?;
    let (kind, name) = name.split_once('_')?;
    let kind = [Kind::Backend, Kind::Layers].into_iter().find(|k| k.name() == kind)?;
    Some((kind, name))
}

/// Source of a library's path, in the order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Path that the caller named.
    Explicit,
    /// `KILN_PLUGIN_PATH`.
    Environment,
    /// The user's data directory.
    User,
    /// Folder of the executable, or of the system.
    System,
}

/// Search for libraries: paths, environment and policy.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// Libraries, or directories of them, that the caller names. They come first.
    pub explicit: Vec<PathBuf>,
    /// The value of `KILN_PLUGIN_PATH`: absolute paths of libraries or directories.
    pub environment: Option<OsString>,
    /// The user's directory for plug-ins.
    pub user: Option<PathBuf>,
    /// Directories of the system.
    pub system: Vec<PathBuf>,
}

impl Search {
    /// The places of this process. What its environment says is ignored where it runs with more rights than its caller
    /// (`AT_SECURE`).
    pub fn from_env() -> Search {
        let mut search = Search { system: system(), ..Search::default() };
        if !environment::is_privileged() {
            let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/share"));
            let data = std::env::var_os("XDG_DATA_HOME").filter(|v| !v.is_empty()).map(PathBuf::from);
            search.environment = environment::trusted("KILN_PLUGIN_PATH");
            search.user =
                data.or_else(home).filter(|p| p.is_absolute()).map(|p| p.join("kiln").join("plugins"));
        }
        search
    }

    /// Adds libraries or directories that come first.
    pub fn with(mut self, explicit: impl IntoIterator<Item = PathBuf>) -> Search {
        self.explicit.extend(explicit);
        self
    }

    /// All places in the order of precedence.
    pub(super) fn places(&self) -> Vec<(Origin, PathBuf)> {
        let environment = self.environment.iter().flat_map(std::env::split_paths);
        let environment = environment.filter(|p| !p.as_os_str().is_empty());
        let explicit = self.explicit.iter().cloned().map(|p| (Origin::Explicit, p));
        explicit
            .chain(environment.map(|p| (Origin::Environment, p)))
            .chain(self.user.iter().cloned().map(|p| (Origin::User, p)))
            .chain(self.system.iter().cloned().map(|p| (Origin::System, p)))
            .collect()
    }
}

fn system() -> Vec<PathBuf> {
    let exe = std::env::current_exe().ok().and_then(|p| p.canonicalize().ok());
    let beside = exe.as_deref().and_then(Path::parent).map(Path::to_owned);
    let lib = beside.as_deref().and_then(Path::parent).map(|p| p.join("lib").join("kiln"));
    let fixed = ["/usr/local/lib/kiln", "/usr/lib/kiln"].map(PathBuf::from);
    let mut all: Vec<PathBuf> = beside.into_iter().chain(lib).chain(fixed).collect();
    all.dedup();
    all
}
