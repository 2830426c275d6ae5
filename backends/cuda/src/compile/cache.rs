//! Cubins by the hash of what they are made from.
//!
//! A file is named `<hash>.cubin` and holds the BLAKE3 hash of the cubin, then the cubin; a file that does
//! not agree is made again. Cubins are code. Files are read only if nobody but root and this user could have written them. A folder that the cache
//! makes is one that only this user can enter. They are replaced as a
//! whole, so that processes may share the folder. Beyond [`FOLDER_LIMIT`] the least recently used ones are
//! removed. A cache that can't be written or is not trusted is not used: nothing depends on it.

use super::CompileError;
use kiln_backend::Recent;
use kiln_files::environment::trusted;
use kiln_files::trust;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

/// Bytes of cubins that stay in memory.
const KEPT: u64 = 128 << 20;

/// Bytes of cubins that stay on disk.
const FOLDER_LIMIT: u64 = 2 << 30;

/// The folder's size is looked at after this many writes of a process, and after its first one.
const CHECKED: u32 = 64;

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

/// The folder: KILN_KERNEL_CACHE ("off" for none), or `kiln/kernels` in the user's cache; none if it is not trusted.
fn folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOLDER.get_or_init(|| {
        let wanted = match trusted("KILN_KERNEL_CACHE") {
            Some(v) if v == "off" => return None,
            Some(v) => PathBuf::from(v),
            None => {
                let user = trusted("XDG_CACHE_HOME").map(PathBuf::from);
                let user = user.or_else(|| Some(PathBuf::from(trusted("HOME")?).join(".cache")));
                user?.join("kiln").join("kernels")
            }
        };
        let made = trust::create_private_folder(&wanted);
        made.map_err(|e| tracing::warn!("kernels are not cached in {}: {e}", wanted.display())).ok()
    });
    found.as_deref()
}

/// The cubin of a key, if it is on disk.
pub fn known(key: &str) -> Option<Arc<[u8]>> {
    read(&folder()?.join(format!("{key}.cubin"))).map(Into::into)
}

/// The cubin of a key, from memory, from disk, or made now.
pub fn get(
    key: &str,
    make: impl FnOnce() -> Result<Vec<u8>, CompileError>,
) -> Result<Arc<[u8]>, CompileError> {
    static KNOWN: OnceLock<Recent<String, [u8]>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| Recent::new(KEPT));
    if let Some(c) = known.get(&key.to_owned()) {
        return Ok(c);
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
    known.insert(key.to_owned(), cubin.clone(), cubin.len() as u64);
    Ok(cubin)
}

/// The cubin of a file that only root and this user could have written, if it is whole; the file counts as used now.
fn read(file: &Path) -> Option<Vec<u8>> {
    if !file.exists() {
        return None;
    }
    let real = trust::file(file).map_err(|e| tracing::warn!("{} is not used: {e}", file.display())).ok()?;
    let bytes = kiln_files::read_regular(&real, MAX_FILE).ok()?;
    let (hash, cubin) = bytes.split_first_chunk::<32>()?;
    let whole = (blake3::hash(cubin).as_bytes() == hash).then(|| cubin.to_vec())?;
    if let Ok(f) = std::fs::File::open(&real) {
        // A folder of another owner stays in the order of its writes.
        drop(f.set_modified(SystemTime::now()));
    }
    Some(whole)
}

fn write(file: &Path, cubin: &[u8]) -> std::io::Result<()> {
    static WRITES: AtomicU32 = AtomicU32::new(0);
    let mut bytes = blake3::hash(cubin).as_bytes().to_vec();
    bytes.extend_from_slice(cubin);
    kiln_files::replace(file, None, &bytes)?;
    if WRITES.fetch_add(1, Ordering::Relaxed).is_multiple_of(CHECKED)
        && let Some(folder) = file.parent()
    {
        shrink(folder, FOLDER_LIMIT)?;
    }
    Ok(())
}

/// Removes the cubins of a folder that were not used the longest, until the rest has this many bytes at most.
fn shrink(folder: &Path, limit: u64) -> std::io::Result<()> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        // Another process may have removed it meanwhile.
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_file() && entry.path().extension().is_some_and(|e| e == "cubin") {
            files.push((meta.modified().unwrap_or(SystemTime::UNIX_EPOCH), meta.len(), entry.path()));
        }
    }
    files.sort();
    let mut total: u64 = files.iter().map(|f| f.1).sum();
    for (_, bytes, path) in files {
        if total <= limit {
            break;
        }
        if std::fs::remove_file(&path).is_ok() {
            total -= bytes;
        }
    }
    Ok(())
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

    /// A folder of this test's own, which is removed when it is dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("kiln-cubins-{}-{name}", std::process::id()));
            Folder(trust::create_private_folder(&path).unwrap())
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn damaged_files_are_not_read() {
        let folder = Folder::new("damaged");
        let file = folder.0.join("a.cubin");
        write(&file, b"code").unwrap();
        assert_eq!(read(&file).unwrap(), b"code");
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[33] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        assert_eq!(read(&file), None);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(read(&file), None);
    }

    #[cfg(unix)]
    #[test]
    fn files_that_others_may_write_are_not_read() {
        use std::os::unix::fs::PermissionsExt;
        let mode =
            |p: &Path, m: u32| std::fs::set_permissions(p, std::fs::Permissions::from_mode(m)).unwrap();
        let folder = Folder::new("open");
        assert_eq!(std::fs::metadata(&folder.0).unwrap().permissions().mode() & 0o777, 0o700);
        let file = folder.0.join("a.cubin");
        write(&file, b"code").unwrap();
        for m in [0o666, 0o620] {
            mode(&file, m);
            assert_eq!(read(&file), None, "{m:o}");
        }
        mode(&file, 0o644);
        assert_eq!(read(&file).unwrap(), b"code");
        for m in [0o777, 0o770, 0o1777] {
            mode(&folder.0, m);
            assert_eq!(read(&file), None, "{m:o}");
            assert!(trust::create_private_folder(&folder.0).is_err(), "{m:o}");
        }
        mode(&folder.0, 0o755);
        assert_eq!(read(&file).unwrap(), b"code");
    }

    #[test]
    fn the_files_that_were_not_used_the_longest_are_removed() {
        let folder = Folder::new("limit");
        let file = |n: u64| folder.0.join(format!("{n}.cubin"));
        for n in 0..4 {
            write(&file(n), &[0; 68]).unwrap();
            let past = SystemTime::now() - std::time::Duration::from_secs(100 - n);
            std::fs::File::open(file(n)).unwrap().set_modified(past).unwrap();
        }
        std::fs::write(folder.0.join("other"), [0; 500]).unwrap();
        // Reading is a use.
        assert!(read(&file(0)).is_some());
        shrink(&folder.0, 250).unwrap();
        let left: Vec<bool> = (0..4).map(|n| file(n).exists()).collect();
        assert_eq!(left, [true, false, false, true]);
        assert!(folder.0.join("other").exists());
        shrink(&folder.0, 200).unwrap();
        assert!(file(0).exists() && file(3).exists(), "what fits stays");
    }
}
