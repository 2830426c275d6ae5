//! Replacement of files as a whole.

use crate::read::{not_regular, open_regular};
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The end of the names of temporary files.
const SUFFIX: &str = ".kiln-tmp";
/// Hexadecimal digits of the random part of their names.
const DIGITS: usize = 32;
/// Temporary names that are tried at most.
const ATTEMPTS: usize = 16;

/// Kind of file that may be replaced, by its first bytes, so that a mistyped path does not destroy a model or
/// an input.
#[derive(Clone, Copy, Debug)]
pub struct Content {
    /// Name in messages, with its article: "an engine".
    pub name: &'static str,
    /// The bytes that every file of the kind begins with.
    pub magic: &'static [u8],
}

/// The new contents of a file, written beside it and moved to its place by [`Replacement::commit`].
///
/// * The file has the old contents or the new, at any moment and after any crash: the contents and the folder are
///   flushed to the disk. Where writing fails (a full disk, a signal) the old file is untouched.
/// * The temporary file has a random name, is made with `O_EXCL` in the target's folder and never follows a link. It is
///   removed when the `Replacement` is dropped; what a killed process leaves is removed by the next one for the same
///   target, recognized by the lock that the kernel has released.
/// * Only a regular file is replaced: devices, pipes, sockets and folders are refused. A symbolic link stays, and the
///   file that it leads to is replaced; a link to nothing is refused. Hard links to the old file keep the old contents.
/// * A file that this user may not write, or that is neither empty nor of the [`Content`] wanted, is refused.
/// * The new file has the old file's permissions, or those of the umask.
///
/// All refusals come from [`Replacement::create`], before anything is computed that is to be written. Clones of one
/// target may be written at once; the last to commit is what stays.
#[derive(Debug)]
pub struct Replacement {
    target: PathBuf,
    temporary: PathBuf,
    file: Option<File>,
}

impl Replacement {
    /// Prepares the replacement of `path`, which need not exist but whose folder must.
    pub fn create(path: &Path, content: Option<Content>) -> io::Result<Replacement> {
        let target = resolve(path)?;
        let mode = match std::fs::metadata(&target) {
            Ok(meta) => {
                check_old(&target, &meta, content)?;
                Some(meta)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        remove_stale(&target);
        for _ in 0..ATTEMPTS {
            let temporary = temporary_name(&target)?;
            let file = match exclusive(&temporary, mode.as_ref()) {
                Ok(f) => f,
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(e),
            };
            // Somebody who cleans up may have taken the file for a leftover before it was locked.
            let taken = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
            if taken || is_gone(&file) {
                drop(std::fs::remove_file(&temporary));
                continue;
            }
            let made = Replacement { target, temporary, file: Some(file) };
            made.keep_permissions(mode.as_ref())?;
            return Ok(made);
        }
        Err(io::Error::other(format!("no name for a temporary file in {} attempts", ATTEMPTS)))
    }

    /// Path of the new contents until [`Replacement::commit`], to read them back.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// The file that is replaced, symbolic links resolved.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Refuses if the target is one of these files, by whatever name.
    pub fn refuse_inputs<'a>(&self, inputs: impl IntoIterator<Item = &'a Path>) -> io::Result<()> {
        for input in inputs {
            if same_file(&self.target, input) {
                let text = format!("it is {}, which is read: choose another path", input.display());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        }
        Ok(())
    }

    /// Flushes the contents and moves them to their place.
    pub fn commit(mut self) -> io::Result<()> {
        let file = self.file.take().ok_or_else(|| io::Error::other("nothing to commit"))?;
        let moved = file.sync_all().and_then(|()| std::fs::rename(&self.temporary, &self.target));
        moved.inspect_err(|_| {
            // The first error is the one to report.
            drop(std::fs::remove_file(&self.temporary));
        })?;
        sync_folder(&self.target);
        Ok(())
    }

    #[cfg(unix)]
    fn keep_permissions(&self, old: Option<&std::fs::Metadata>) -> io::Result<()> {
        match (old, &self.file) {
            (Some(old), Some(file)) => file.set_permissions(old.permissions()),
            _ => Ok(()),
        }
    }

    #[cfg(not(unix))]
    fn keep_permissions(&self, _: Option<&std::fs::Metadata>) -> io::Result<()> {
        Ok(())
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_mut().ok_or_else(|| io::Error::other("already committed"))?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Replacement {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.as_mut().ok_or_else(|| io::Error::other("already committed"))?.seek(to)
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // Nothing to be done if it fails; the next replacement removes it.
            drop(std::fs::remove_file(&self.temporary));
        }
    }
}

/// Replaces a file by these bytes, as [`Replacement`] does.
pub fn replace(path: &Path, content: Option<Content>, bytes: &[u8]) -> io::Result<()> {
    let mut new = Replacement::create(path, content)?;
    new.write_all(bytes)?;
    new.commit()
}

/// Removes the temporary files of a target that killed processes left. Those of living processes are locked and stay.
/// Failures are ignored: leftovers take room and do no other harm.
pub fn remove_stale(target: &Path) {
    let (Some(folder), Some(name)) = (folder_of(target), target.file_name()) else { return };
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if is_temporary_of(&entry.file_name(), name) && entry.file_type().is_ok_and(|t| t.is_file()) {
            let path = entry.path();
            if let Ok(file) = open_regular(&path)
                && is_mine(&file)
                && file.try_lock().is_ok()
            {
                drop(std::fs::remove_file(&path));
            }
        }
    }
}

/// The path with symbolic links resolved, in a folder that exists.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Ok(real) => return Ok(real),
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Err(_) => {}
    }
    // Another writer may have made the file since then.
    if path.symlink_metadata().is_ok_and(|m| m.is_symlink()) {
        let text = "it is a symbolic link to nothing: remove it or give the path it should lead to";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let name = path.file_name().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "the path does not end in the name of a file")
    })?;
    let folder = folder_of(path).unwrap_or(Path::new("."));
    let folder = folder.canonicalize().map_err(|e| {
        let why = match e.kind() {
            io::ErrorKind::NotFound => "its folder does not exist".to_owned(),
            _ => format!("its folder: {e}"),
        };
        io::Error::new(e.kind(), why)
    })?;
    if !folder.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::NotADirectory,
            "what stands for its folder is not a folder",
        ));
    }
    Ok(folder.join(name))
}

/// Whether the file that is there may be replaced.
fn check_old(target: &Path, meta: &std::fs::Metadata, content: Option<Content>) -> io::Result<()> {
    if !meta.is_file() {
        return Err(not_regular(meta));
    }
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK | libc::O_NOCTTY);
    if let Err(e) = options.open(target)
        && e.kind() == io::ErrorKind::PermissionDenied
    {
        return Err(e);
    }
    let Some(content) = content.filter(|_| meta.len() > 0) else { return Ok(()) };
    let mut start = Vec::new();
    open_regular(target)?.take(content.magic.len() as u64).read_to_end(&mut start)?;
    // A file that was torn at its very beginning is one of the kind, too.
    if !content.magic.starts_with(&start) {
        let text = format!("it exists and is not {}: choose another path or remove it first", content.name);
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    Ok(())
}

fn exclusive(path: &Path, old: Option<&std::fs::Metadata>) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
        // Never more open than the file that it replaces.
        options.mode(old.map_or(0o666, |m| m.mode() & 0o777 | 0o200)).custom_flags(libc::O_NOFOLLOW);
    }
    #[cfg(not(unix))]
    let _ = old;
    options.open(path)
}

/// `.NAME.RANDOM.kiln-tmp` beside the target; the name is cut where a file system's 255 bytes would not hold it.
fn temporary_name(target: &Path) -> io::Result<PathBuf> {
    let name = target
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
    let random = || RandomState::new().hash_one(std::time::SystemTime::now());
    let mut temporary = prefix(name);
    temporary.push(format!("{:016x}{:016x}{SUFFIX}", random(), random()));
    Ok(target.with_file_name(temporary))
}

fn prefix(name: &OsStr) -> OsString {
    let text = name.to_string_lossy();
    let mut prefix = OsString::from(".");
    let room = 250 - DIGITS - SUFFIX.len();
    match text.char_indices().map(|(i, c)| i + c.len_utf8()).take_while(|&end| end <= room).last() {
        Some(end) => prefix.push(&text[..end]),
        None => prefix.push("file"),
    }
    prefix.push(".");
    prefix
}

fn is_temporary_of(found: &OsStr, name: &OsStr) -> bool {
    let prefix = prefix(name);
    let random = found
        .to_str()
        .and_then(|f| f.strip_prefix(prefix.to_str()?))
        .and_then(|rest| rest.strip_suffix(SUFFIX));
    random.is_some_and(|r| r.len() == DIGITS && r.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn folder_of(path: &Path) -> Option<&Path> {
    match path.parent() {
        Some(p) if p.as_os_str().is_empty() => Some(Path::new(".")),
        other => other,
    }
}

/// Writes the folder's entry to the disk. Some file systems cannot; the rename is done all the same.
fn sync_folder(target: &Path) {
    if let Some(folder) = folder_of(target).and_then(|f| File::open(f).ok()) {
        drop(folder.sync_all());
    }
}

#[cfg(unix)]
fn same_file(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |p: &Path| std::fs::metadata(p).ok().map(|m| (m.dev(), m.ino()));
    id(a).is_some_and(|a| Some(a) == id(b))
}

#[cfg(not(unix))]
fn same_file(a: &Path, b: &Path) -> bool {
    a.canonicalize().ok().is_some_and(|a| b.canonicalize().ok() == Some(a))
}

#[cfg(unix)]
fn is_gone(file: &File) -> bool {
    file.metadata().is_ok_and(|m| std::os::unix::fs::MetadataExt::nlink(&m) == 0)
}

#[cfg(not(unix))]
fn is_gone(_: &File) -> bool {
    false
}

#[cfg(unix)]
fn is_mine(file: &File) -> bool {
    // SAFETY: reads an id of the process.
    let me = unsafe { libc::geteuid() };
    file.metadata().is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == me)
}

#[cfg(not(unix))]
fn is_mine(_: &File) -> bool {
    true
}

#[cfg(test)]
#[path = "replace_tests.rs"]
mod tests;
