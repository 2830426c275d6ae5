//! Cubins by the hash of what they are made from.
//!
//! A file is named `<hash>.cubin` and holds the BLAKE3 hash of the cubin, then the cubin; what does not agree is made
//! again. Files are written beside and renamed, so that processes may share the folder. A cache that can't be written is
//! none: nothing depends on it.

use super::CompileError;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Larger files are not of this cache.
const MAX_FILE: u64 = 256 << 20;

/// The hash of everything that a cubin depends on.
pub fn key(version: (i32, i32), options: &[String], source: &str) -> String {
    let mut h = blake3::Hasher::new();
    h.update(format!("{} {}\n", version.0, version.1).as_bytes());
    for o in options {
        h.update(o.as_bytes());
        h.update(b"\n");
    }
    h.update(b"\n");
    h.update(source.as_bytes());
    h.finalize().to_hex().to_string()
}

/// The folder: KILN_KERNEL_CACHE ("off" for none), or `kiln/kernels` in the user's cache.
fn folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let var = |name: &str| std::env::var_os(name).filter(|v: &OsString| !v.is_empty());
    let found = FOLDER.get_or_init(|| match var("KILN_KERNEL_CACHE") {
        Some(v) if v == "off" => None,
        Some(v) => Some(PathBuf::from(v)),
        None => {
            let user = var("XDG_CACHE_HOME").map(PathBuf::from);
            let user = user.or_else(|| Some(PathBuf::from(var("HOME")?).join(".cache")));
            Some(user?.join("kiln").join("kernels"))
        }
    });
    found.as_deref()
}

/// The cubin of a key, if it lies on disk.
pub fn known(key: &str) -> Option<Arc<[u8]>> {
    read(&folder()?.join(format!("{key}.cubin"))).map(Into::into)
}

/// The cubin of a key, from memory, from disk, or made now.
pub fn get(
    key: &str,
    make: impl FnOnce() -> Result<Vec<u8>, CompileError>,
) -> Result<Arc<[u8]>, CompileError> {
    static KNOWN: OnceLock<Mutex<HashMap<String, Arc<[u8]>>>> = OnceLock::new();
    let known = KNOWN.get_or_init(Mutex::default);
    let lock = || known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(c) = lock().get(key) {
        return Ok(c.clone());
    }
    let file = folder().map(|f| f.join(format!("{key}.cubin")));
    let cubin = match file.as_deref().and_then(read) {
        Some(c) => c,
        None => {
            let c = make()?;
            if let Some(f) = &file
                && let Err(e) = write(f, &c)
            {
                tracing::debug!("{} can't be written: {e}", f.display());
            }
            c
        }
    };
    let cubin: Arc<[u8]> = cubin.into();
    lock().insert(key.to_owned(), cubin.clone());
    Ok(cubin)
}

fn read(file: &Path) -> Option<Vec<u8>> {
    if std::fs::metadata(file).ok()?.len() > MAX_FILE {
        return None;
    }
    let bytes = std::fs::read(file).ok()?;
    let (hash, cubin) = bytes.split_first_chunk::<32>()?;
    (blake3::hash(cubin).as_bytes() == hash).then(|| cubin.to_vec())
}

fn write(file: &Path, cubin: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let beside = file.with_extension(format!("{}.part", std::process::id()));
    let mut bytes = blake3::hash(cubin).as_bytes().to_vec();
    bytes.extend_from_slice(cubin);
    std::fs::write(&beside, bytes)?;
    std::fs::rename(&beside, file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn every_part_changes_the_key() {
        let base = key((13, 0), &["-a".into()], "x");
        assert_ne!(base, key((13, 1), &["-a".into()], "x"));
        assert_ne!(base, key((13, 0), &["-b".into()], "x"));
        assert_ne!(base, key((13, 0), &["-a".into()], "y"));
        assert_ne!(key((13, 0), &["-a".into(), "-b".into()], ""), key((13, 0), &["-a".into()], "-b\n"));
    }

    #[test]
    fn damaged_files_are_not_read() {
        let file = std::env::temp_dir().join(format!("kiln-cubin-{}.cubin", std::process::id()));
        write(&file, b"code").unwrap();
        assert_eq!(read(&file).unwrap(), b"code");
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[33] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        assert_eq!(read(&file), None);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(read(&file), None);
    }
}
