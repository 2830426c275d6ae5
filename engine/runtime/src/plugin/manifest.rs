//! The optional manifest beside a library: `<name>.kilnplugin.toml`.

use super::search::Kind;
use super::{Level, PluginError};
use kiln_abi::{KILN_ABI_MAJOR, KILN_ABI_MINOR};
use serde::Deserialize;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Manifests longer than this are refused.
const MAX_BYTES: u64 = 64 << 10;

/// Contents of a manifest. Missing fields are not checked; unknown ones are ignored.
#[derive(Debug, Default, Deserialize)]
struct Manifest {
    /// The file name of the library.
    file: Option<String>,
    /// "backend" or "layers".
    kind: Option<String>,
    /// Version of the ABI: "1.0".
    abi: Option<String>,
    /// BLAKE3 hash of the library, in hexadecimal.
    blake3: Option<String>,
}

/// The manifest is named after the backend or the layers, or like a library that is not named as one.
fn path_of(library: &Path) -> PathBuf {
    let file = library.file_name().unwrap_or_default().to_string_lossy();
    let stem = library.file_stem().unwrap_or_default().to_string_lossy();
    let name = super::search::named(&file).map_or(&*stem, |(_, name)| name);
    library.with_file_name(format!("{name}.kilnplugin.toml"))
}

/// Checks the library against its manifest.
pub(super) fn check(library: &Path, level: Level) -> Result<(), PluginError> {
    let manifest = path_of(library);
    if !manifest.exists() {
        return match level {
            Level::Manifest => Err(PluginError::NoManifest { path: library.to_owned(), wanted: manifest }),
            _ => Ok(()),
        };
    }
    super::trust::check(&manifest)?;
    let m = read(library, &manifest)?;
    let wrong = |field, found: &str, wanted: String| {
        Err(PluginError::Manifest { path: library.to_owned(), field, found: format!("\"{found}\""), wanted })
    };
    let file = library.file_name().unwrap_or_default().to_string_lossy();
    if let Some(f) = m.file.filter(|f| *f != file) {
        return wrong("file", &f, format!("\"{file}\""));
    }
    // A library that is not named as one of a kind may be of any.
    let kinds = match super::search::named(&file) {
        Some((kind, _)) => vec![kind.name()],
        None => vec![Kind::Backend.name(), Kind::Layers.name()],
    };
    if let Some(kind) = m.kind.filter(|k| !kinds.contains(&k.as_str())) {
        return wrong("kind", &kind, format!("\"{}\"", kinds.join("\" or \"")));
    }
    if let Some(abi) = m.abi.filter(|a| a.split('.').next() != Some(&KILN_ABI_MAJOR.to_string())) {
        let wanted = format!("{KILN_ABI_MAJOR}.{KILN_ABI_MINOR}");
        return Err(PluginError::Major { path: library.to_owned(), found: abi, wanted });
    }
    match m.blake3 {
        Some(hash) => check_hash(library, &hash),
        None if level == Level::Manifest => wrong("blake3", "", "the hash of the library".into()),
        None => Ok(()),
    }
}

fn check_hash(library: &Path, hash: &str) -> Result<(), PluginError> {
    let wanted = digest(library)?;
    if hash.eq_ignore_ascii_case(&wanted) {
        return Ok(());
    }
    Err(PluginError::Manifest {
        path: library.to_owned(),
        field: "blake3",
        found: format!("\"{hash}\""),
        wanted: format!("\"{wanted}\", the hash of the file"),
    })
}

/// The BLAKE3 hash of a library, in hexadecimal.
pub(super) fn digest(library: &Path) -> Result<String, PluginError> {
    let file = |source| PluginError::File { path: library.to_owned(), source };
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(kiln_files::open_regular(library).map_err(file)?).map_err(file)?;
    Ok(hasher.finalize().to_hex().to_string())
}

fn read(library: &Path, manifest: &Path) -> Result<Manifest, PluginError> {
    let file = |source| PluginError::File { path: manifest.to_owned(), source };
    let mut text = String::new();
    let handle = kiln_files::open_regular(manifest).map_err(file)?;
    handle.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(file)?;
    let wrong = |found: String, wanted: &str| PluginError::Manifest {
        path: library.to_owned(),
        field: "in all",
        found,
        wanted: wanted.to_owned(),
    };
    if text.len() as u64 > MAX_BYTES {
        return Err(wrong("more than 64 KiB".into(), "a short TOML table"));
    }
    toml::from_str(&text)
        .map_err(|e| wrong(e.message().to_owned(), "a TOML table of file, kind, abi, blake3"))
}
