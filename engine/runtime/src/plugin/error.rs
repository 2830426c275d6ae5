//! Reasons why a library is not used.

use ::kiln_backend::BackendError;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Reason why a library is not used: what was found, what was wanted, what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PluginError {
    /// Plug-ins are switched off.
    #[error("{}: plug-ins are switched off; allow them in the policy", path.display())]
    Disabled {
        /// The library.
        path: PathBuf,
    },
    /// The file can't be read.
    #[error("{}: cannot be read; check that it exists and that you may read it", path.display())]
    File {
        /// The library, its manifest or its folder.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// File that others may change.
    #[error("{}: not trusted, as others could put code there: {found}, or install it elsewhere", path.display())]
    Untrusted {
        /// The library.
        path: PathBuf,
        /// The file or folder that others may write or own, and what to do.
        found: String,
    },
    /// Missing manifest, which the policy wants.
    #[error("{}: has no manifest {}, which the policy wants; ask its author for one", path.display(), wanted.display())]
    NoManifest {
        /// The library.
        path: PathBuf,
        /// Path at which the manifest is expected.
        wanted: PathBuf,
    },
    /// The manifest does not parse or does not fit the library.
    #[error("{}: its manifest says {field} {found}, wanted {wanted}; install library and manifest of one release", path.display())]
    Manifest {
        /// The library.
        path: PathBuf,
        /// The field.
        field: &'static str,
        /// Value in the manifest.
        found: String,
        /// Value that the library needs.
        wanted: String,
    },
    /// Library that a plan holds and that cannot be loaded from there.
    #[error("{}: cannot be loaded from the plan: {why}; install the library and name its path", path.display())]
    Embedded {
        /// The library and its plan.
        path: PathBuf,
        /// Reason.
        why: String,
    },
    /// The system can't open it as a library.
    #[error("{}: is not a library that can be opened here; check its architecture and the libraries it needs (ldd)", path.display())]
    Open {
        /// The library.
        path: PathBuf,
        /// Error of the loader; its source holds the system's message.
        #[source]
        source: libloading::Error,
    },
    /// Library without a descriptor.
    #[error("{}: exports no \"kiln_plugin_descriptor\", so it is not a Kiln plug-in", path.display())]
    NoDescriptor {
        /// The library.
        path: PathBuf,
        /// Error of the loader; its source holds the system's message.
        #[source]
        source: libloading::Error,
    },
    /// The descriptor does not begin with the magic number.
    #[error("{}: its descriptor begins with {found:#018x}, wanted {wanted:#018x}; it is not a Kiln plug-in", path.display())]
    Magic {
        /// The library.
        path: PathBuf,
        /// The first eight bytes.
        found: u64,
        /// `KILN_MAGIC`.
        wanted: u64,
    },
    /// Library for another major version of the ABI.
    #[error("{}: speaks version {found} of the plug-in ABI, this Kiln speaks {wanted}; rebuild it against kiln-abi {wanted}", path.display())]
    Major {
        /// The library.
        path: PathBuf,
        /// Version of the library.
        found: String,
        /// The host's version.
        wanted: String,
    },
    /// Library that needs a newer host.
    #[error("{}: needs a host of version {wanted} of the plug-in ABI or newer, this Kiln has {found}; upgrade Kiln or use an older plug-in", path.display())]
    HostTooOld {
        /// The library.
        path: PathBuf,
        /// The host's version.
        found: String,
        /// The least version that it needs.
        wanted: String,
    },
    /// A table has an impossible size.
    #[error("{}: its {table} has {found} bytes, wanted {wanted}; rebuild it against kiln-abi", path.display())]
    TableSize {
        /// The library.
        path: PathBuf,
        /// The table.
        table: &'static str,
        /// Value of its `struct_size`.
        found: u32,
        /// The range allowed.
        wanted: String,
    },
    /// Library for another target.
    #[error("{}: was compiled for {found}, this Kiln for {wanted}; rebuild it for {wanted}", path.display())]
    Target {
        /// The library.
        path: PathBuf,
        /// Target triple of the library.
        found: String,
        /// The host's.
        wanted: String,
    },
    /// A text of the descriptor is broken.
    #[error("{}: its descriptor's {field}: {found}; wanted {wanted}", path.display())]
    Text {
        /// The library.
        path: PathBuf,
        /// The field.
        field: &'static str,
        /// Defect of the text.
        found: String,
        /// Allowed form of the text.
        wanted: String,
    },
    /// The policy refuses what its flags announce.
    #[error("{}: {found}; wanted: {wanted}", path.display())]
    Flags {
        /// The library.
        path: PathBuf,
        /// Meaning of the flags.
        found: String,
        /// Advice.
        wanted: String,
    },
    /// Library without the wanted interface.
    #[error("{}: offers no {wanted} (kinds {found:#x}); use another plug-in", path.display())]
    Kind {
        /// The library.
        path: PathBuf,
        /// Kind bits of the library.
        found: u32,
        /// Interface that was asked for.
        wanted: &'static str,
    },
    /// A required function is missing.
    #[error("{}: its {table} has no {wanted}, which is required; found {found}; rebuild it against kiln-abi", path.display())]
    MissingSlot {
        /// The library.
        path: PathBuf,
        /// The table.
        table: &'static str,
        /// The function.
        wanted: &'static str,
        /// A null pointer, or a table that ends before it.
        found: String,
    },
    /// Library that refuses to start.
    #[error("{}: refuses to start; see the reason", path.display())]
    Init {
        /// The library.
        path: PathBuf,
        /// The reason.
        #[source]
        source: BackendError,
    },
    /// A library of this name comes before it in the search path.
    #[error("{}: offers backend \"{name}\", which {} offers already; remove one of them", path.display(), by.display())]
    Shadowed {
        /// The library.
        path: PathBuf,
        /// The name.
        name: String,
        /// The library that is used.
        by: PathBuf,
    },
    /// A layer of the library is defined wrongly.
    #[error("{}: layer {layer}: {found}; correct the library, or ask its author", path.display())]
    Layer {
        /// The library.
        path: PathBuf,
        /// Name of the layer, or its number.
        layer: String,
        /// Defect of the definition.
        found: String,
    },
    /// Another library has defined a layer of this name and version.
    #[error("{}: defines layer {layer}, which {} defines already; remove one of them, or give one another version", path.display(), by.display())]
    LayerTaken {
        /// The library.
        path: PathBuf,
        /// Name of the layer.
        layer: String,
        /// The library whose layer is used.
        by: PathBuf,
    },
    /// An entry of the search path is not absolute.
    #[error("{}: is in KILN_PLUGIN_PATH but not absolute; wanted an absolute path: the current directory is never searched", path.display())]
    Relative {
        /// The entry.
        path: PathBuf,
    },
    /// Name that no library in the search path has.
    #[error(
        "no backend \"{name}\": there is no {file} in {searched}; install it or name its path in KILN_PLUGIN_PATH"
    )]
    NotFound {
        /// The name.
        name: String,
        /// The file name.
        file: String,
        /// The directories searched.
        searched: String,
    },
}

impl PluginError {
    /// The library that it is about, if it is about one.
    pub fn path(&self) -> Option<&Path> {
        use PluginError::*;
        match self {
            Disabled { path }
            | File { path, .. }
            | Untrusted { path, .. }
            | NoManifest { path, .. }
            | Embedded { path, .. }
            | Manifest { path, .. }
            | Open { path, .. }
            | NoDescriptor { path, .. }
            | Magic { path, .. }
            | Major { path, .. }
            | HostTooOld { path, .. }
            | TableSize { path, .. }
            | Target { path, .. }
            | Text { path, .. }
            | Flags { path, .. }
            | Kind { path, .. }
            | MissingSlot { path, .. }
            | Init { path, .. }
            | Shadowed { path, .. }
            | Layer { path, .. }
            | LayerTaken { path, .. }
            | Relative { path } => Some(path),
            NotFound { .. } => None,
        }
    }

    /// The message with those of its sources, which hold what the system said.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut next = std::error::Error::source(self);
        while let Some(e) = next {
            text.push_str(": ");
            text.push_str(&e.to_string());
            next = e.source();
        }
        text
    }
}
