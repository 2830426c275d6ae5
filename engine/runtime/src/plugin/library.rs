//! One library: opened, checked, started, and kept.

use super::contained::{Unwinding, contained};
use super::handshake::{self, Checked};
use super::memory_file::MemoryFile;
use super::{Level, PluginError, Policy, call, exit, host, manifest, trust};
use ::kiln_backend::BackendError;
use kiln_abi::*;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A library that is loaded and started.
pub struct Plugin {
    info: PluginInfo,
    descriptor: kiln_descriptor,
    /// BLAKE3 hash, where it was loaded from memory.
    digest: Option<String>,
    alive: AtomicBool,
}

/// Description of a library from its descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginInfo {
    /// Path of the library, with links resolved.
    pub path: PathBuf,
    /// Name of the plug-in.
    pub name: String,
    /// Name of the vendor; may be empty.
    pub vendor: String,
    /// Version of the library.
    pub version: String,
    /// Text that distinguishes builds of one version; may be empty.
    pub build_id: String,
    /// Version of the ABI that it was built with.
    pub abi: (u32, u32),
    /// Kinds of plug-in that it offers: `KILN_KIND_` bits.
    pub kinds: u32,
    /// `KILN_FLAG_` bits.
    pub flags: u32,
}

/// Libraries that were started, or refused to, by their real path: neither is asked again.
static KNOWN: Mutex<Option<HashMap<PathBuf, Result<Arc<Plugin>, BackendError>>>> = Mutex::new(None);

/// Opens a library, checks it and starts it; one that is loaded already is given again. It stays mapped until the process
/// ends.
pub fn load(path: &Path, policy: &Policy) -> Result<Arc<Plugin>, PluginError> {
    if policy.level == Level::Off {
        return Err(PluginError::Disabled { path: path.to_owned() });
    }
    let path = trust::check(path)?;
    manifest::check(&path, policy.level)?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    if let Some(outcome) = known.get(&path) {
        return outcome.clone().map_err(|source| PluginError::Init { path, source });
    }
    let checked = open(&path, &path, policy)?;
    let outcome = start(&path, checked, None);
    known.insert(path.clone(), outcome.clone());
    outcome.map_err(|source| PluginError::Init { path, source })
}

/// Loads a library from memory, once for each hash. `path` names it in messages.
pub(super) fn load_bytes(
    path: &Path,
    digest: &str,
    bytes: &[u8],
    policy: &Policy,
) -> Result<Arc<Plugin>, PluginError> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    let key = PathBuf::from(format!("memory:{digest}"));
    if let Some(outcome) = known.get(&key) {
        return outcome.clone().map_err(|source| PluginError::Init { path: path.to_owned(), source });
    }
    let file = MemoryFile::new(bytes).map_err(|e| PluginError::Embedded {
        path: path.to_owned(),
        why: format!("the system makes no file in memory: {e}"),
    })?;
    let checked = open(&file.path(), path, policy)?;
    let outcome = start(path, checked, Some(digest.to_owned()));
    known.insert(key, outcome.clone());
    outcome.map_err(|source| PluginError::Init { path: path.to_owned(), source })
}

/// Opens a library, for good, and checks its descriptor. `path` names it in messages.
fn open(file: &Path, path: &Path, policy: &Policy) -> Result<Checked, PluginError> {
    // SAFETY: opening runs the library's constructors; the caller trusts the library, whose file and folder only its
    // owner may write.
    let library =
        unsafe { open_now(file) }.map_err(|source| PluginError::Open { path: path.to_owned(), source })?;
    // SAFETY: the symbol is a constant, whose address is what is asked for here.
    let symbol = unsafe { library.get::<*const kiln_descriptor>(KILN_DESCRIPTOR_SYMBOL) };
    let descriptor =
        symbol.map(|s| *s).map_err(|source| PluginError::NoDescriptor { path: path.into(), source });
    // Never closed: threads, thread-local destructors and static destructors of the library may outlive any of its users.
    std::mem::forget(library);
    // SAFETY: the library is mapped for good.
    unsafe { handshake::check(descriptor?, path, policy) }
}

/// Binds all symbols now, for this library alone.
#[cfg(unix)]
unsafe fn open_now(path: &Path) -> Result<libloading::Library, libloading::Error> {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
    // SAFETY: as the caller says.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map(Into::into)
}

/// Looks for further libraries in the library's own folder and that of the system only.
#[cfg(windows)]
unsafe fn open_now(path: &Path) -> Result<libloading::Library, libloading::Error> {
    use libloading::os::windows::{LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR, LOAD_LIBRARY_SEARCH_SYSTEM32, Library};
    let flags = LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_SYSTEM32;
    // SAFETY: as the caller says.
    unsafe { Library::load_with_flags(path, flags) }.map(Into::into)
}

fn start(path: &Path, c: Checked, digest: Option<String>) -> Result<Arc<Plugin>, BackendError> {
    let init = c.table.init.ok_or_else(|| BackendError::Internal("no init".into()))?.unwinding();
    // SAFETY: the descriptor passed the checks; the host's table is constant.
    call::status(|err| unsafe { init(host::table(), err) })?;
    let info = PluginInfo {
        path: path.to_owned(),
        name: c.name,
        vendor: c.vendor,
        version: c.version,
        build_id: c.build_id,
        abi: (c.table.abi_major, c.table.abi_minor),
        kinds: c.table.kinds,
        flags: c.table.flags,
    };
    tracing::debug!(path = %path.display(), name = info.name, version = info.version, "plug-in started");
    let plugin = Arc::new(Plugin { info, descriptor: c.table, digest, alive: AtomicBool::new(true) });
    let started = plugin.clone();
    exit::started(Box::new(move || started.end()));
    Ok(plugin)
}

impl Plugin {
    /// Description of the library from its descriptor.
    pub fn info(&self) -> &PluginInfo {
        &self.info
    }

    /// BLAKE3 hash of the library, in hexadecimal.
    pub(super) fn digest(&self) -> Result<String, PluginError> {
        match &self.digest {
            Some(digest) => Ok(digest.clone()),
            None => manifest::digest(&self.info.path),
        }
    }

    /// The functions of the backend that it offers, the required ones all there.
    pub(super) fn backend_table(&self) -> Result<kiln_backend_v1, PluginError> {
        let table = self.interface(KILN_KIND_BACKEND, "backend", KILN_BACKEND_V1)?;
        // SAFETY: the library is mapped for good and gave this as the interface.
        unsafe { handshake::backend_table(table.cast(), &self.info.path) }
    }

    /// The table of an interface, null for an unknown one. Refused unless the library offers this kind.
    pub(super) fn interface(
        &self,
        kind: u32,
        wanted: &'static str,
        id: &str,
    ) -> Result<*const std::ffi::c_void, PluginError> {
        let get = self.descriptor.get_interface.filter(|_| self.info.kinds & kind != 0);
        let Some(get) = get else {
            let (path, found) = (self.info.path.clone(), self.info.kinds);
            return Err(PluginError::Kind { path, found, wanted });
        };
        let get = get.unwinding();
        // SAFETY: the library is started; the view lives for the call.
        let found = contained(|| unsafe { get(kiln_str::new(id)) });
        found.map_err(|source| PluginError::Init { path: self.info.path.clone(), source })
    }

    /// Whether it may still be called.
    pub(super) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Ends it, when the process ends.
    fn end(&self) {
        if self.alive.swap(false, Ordering::AcqRel)
            && let Some(deinit) = self.descriptor.deinit
        {
            let deinit = deinit.unwinding();
            // SAFETY: the library was started and is ended once.
            if let Err(e) = contained(|| unsafe { deinit() }) {
                tracing::warn!("{}: {e}", self.info.path.display());
            }
        }
    }
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Plugin").field(&self.info).finish()
    }
}
