//! Whether others could have written a file that is about to be believed: a library, a compiled kernel.

use std::io;
use std::path::{Path, PathBuf};

/// Reason why a file is not trusted.
#[derive(Debug)]
pub enum Distrust {
    /// The file, or a folder above it, cannot be looked at.
    Io {
        /// File or folder that was examined.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// File or folder that others can replace or change.
    Open {
        /// The file's real path.
        path: PathBuf,
        /// The file or the folder above it that is at fault, how, and what to do.
        found: String,
    },
}

impl std::fmt::Display for Distrust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Distrust::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Distrust::Open { path, found } => write!(f, "{} is not trusted: {found}", path.display()),
        }
    }
}

impl std::error::Error for Distrust {}

/// The real path of a regular file that only root and this user can write: the file and every folder above it belong to
/// root or to the effective user, and neither group nor others may write them. Folders above the file's own may be
/// open to all if they are sticky, as `/tmp` is: nobody can rename there what belongs to another.
pub fn file(path: &Path) -> Result<PathBuf, Distrust> {
    let real = path.canonicalize().map_err(|source| Distrust::Io { path: path.to_owned(), source })?;
    let meta = metadata(&real)?;
    if !meta.is_file() {
        return Err(Distrust::Io { path: real, source: crate::read::not_regular(&meta) });
    }
    check(&real, 0)?;
    Ok(real)
}

/// The real path of a folder that only root and this user can write, by the rules of [`file`].
pub fn folder(path: &Path) -> Result<PathBuf, Distrust> {
    let real = path.canonicalize().map_err(|source| Distrust::Io { path: path.to_owned(), source })?;
    let meta = metadata(&real)?;
    if !meta.is_dir() {
        let source = io::Error::new(io::ErrorKind::NotADirectory, "it is not a folder");
        return Err(Distrust::Io { path: real, source });
    }
    check(&real, 1)?;
    Ok(real)
}

/// Makes a folder that only this user can enter (mode 0700), and those above it that are missing. An existing one stays
/// as it is. The result is trusted by the rules of [`folder`].
pub fn create_private_folder(path: &Path) -> Result<PathBuf, Distrust> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(|source| Distrust::Io { path: path.to_owned(), source })?;
    folder(path)
}

fn metadata(path: &Path) -> Result<std::fs::Metadata, Distrust> {
    path.metadata().map_err(|source| Distrust::Io { path: path.to_owned(), source })
}

/// `depth` is 0 for a file, 1 for the folder of files.
fn check(real: &Path, depth: usize) -> Result<(), Distrust> {
    for (above, path) in real.ancestors().enumerate() {
        if let Some(how) = open_to_others(&metadata(path)?, depth + above) {
            let found = format!("{} {how}", path.display());
            return Err(Distrust::Open { path: real.to_owned(), found });
        }
    }
    Ok(())
}

#[cfg(unix)]
fn open_to_others(meta: &std::fs::Metadata, depth: usize) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let (owner, mode) = (meta.uid(), meta.mode() & 0o7777);
    // SAFETY: reads an id of the process.
    let me = unsafe { libc::geteuid() };
    if owner != 0 && owner != me {
        return Some(format!("belongs to user {owner}, neither to root nor to user {me}: chown it"));
    }
    let sticky = depth > 1 && mode & 0o1000 != 0;
    if mode & 0o022 == 0 || sticky {
        return None;
    }
    let who = if mode & 0o002 != 0 { "writable by anyone" } else { "writable by its group" };
    Some(format!("is {who} (mode {mode:o}): chmod go-w it"))
}

#[cfg(not(unix))]
fn open_to_others(_: &std::fs::Metadata, _: usize) -> Option<String> {
    None
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, reason = "a failed test panics")]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn set(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn group_and_others_must_not_write_up_the_path() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("a/b");
        create_private_folder(&folder).unwrap();
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let path = folder.join("lib.so");
        std::fs::write(&path, "x").unwrap();
        set(&path, 0o644);
        assert!(file(&path).is_ok());
        for (at, mode, word) in [
            (&path, 0o664, "group"),
            (&path, 0o646, "anyone"),
            (&folder, 0o770, "group"),
            (&folder, 0o1777, "anyone"),
            (&base.path().join("a"), 0o775, "group"),
        ] {
            let old = at.metadata().unwrap().permissions().mode();
            set(at, mode);
            let e = file(&path).unwrap_err().to_string();
            assert!(e.contains(word) && e.contains("go-w"), "{mode:o}: {e}");
            set(at, old);
            assert!(file(&path).is_ok());
        }
        set(&base.path().join("a"), 0o1777);
        assert!(file(&path).is_ok(), "a sticky folder further up is as /tmp");
    }

    #[test]
    fn foreign_owners_are_refused() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("lib.so");
        std::fs::write(&path, "x").unwrap();
        set(&path, 0o644);
        // Only root can give files away.
        if std::os::unix::fs::chown(&path, Some(4321), None).is_ok() {
            let e = file(&path).unwrap_err().to_string();
            assert!(e.contains("belongs to user 4321"), "{e}");
        }
    }
}
