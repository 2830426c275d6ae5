//! A cache file that times are added to while a build goes on.
//!
//! Each time is appended to the file as a line of its own as soon as it is taken. A killed build loses at
//! most the time that it was writing. The end of a build merges all lines into one sorted file. Nothing here
//! fails a build: a file that cannot be read or written is a warning.

use super::file::{CONTENT, header};
use super::{Entry, TimingCache};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time that the end of a build waits for another process that holds the file.
const PATIENCE: Duration = Duration::from_secs(10);
/// Name behind the cache's own of the file whose lock is the turn on the device.
const TURN: &str = ".device";

/// A timing cache in a file, shared with other processes by a lock.
#[derive(Debug)]
pub struct CacheStore {
    path: PathBuf,
    /// Taken and not yet in the file.
    pending: TimingCache,
    patience: Duration,
    /// Whether the file can be written, as far as is known.
    writable: bool,
}

impl CacheStore {
    /// The file with the times that it holds; an absent one holds none. What is wrong with it is a warning, and it is
    /// then left as it is.
    pub fn open(path: &Path) -> (CacheStore, TimingCache) {
        let mut store = CacheStore {
            path: path.to_owned(),
            pending: TimingCache::new(),
            patience: PATIENCE,
            writable: true,
        };
        let known = match store.read() {
            Ok(known) => known,
            Err(message) => {
                store.give_up(&message);
                TimingCache::new()
            }
        };
        (store, known)
    }

    /// Waits no longer than this for a lock that another process holds.
    pub fn with_patience(mut self, patience: Duration) -> CacheStore {
        self.patience = patience;
        self
    }

    /// The turn of this build on the device, until it is dropped: builds that share a cache do not time at once, which would
    /// disturb both. `None` where another build keeps it for too long, or no lock can be made; times are then taken all the same.
    pub fn turn(&self) -> Option<kiln_files::Lock> {
        let mut name = self.path.as_os_str().to_owned();
        name.push(TURN);
        kiln_files::lock(Path::new(&name), self.patience, || ()).ok().flatten()
    }

    /// Adds times, now if the file is free, else with the next ones.
    pub fn add(&mut self, key: &str, entry: Entry) {
        self.pending.insert(key, entry);
        if !self.writable {
            return;
        }
        match kiln_files::lock(&self.path, Duration::ZERO, || ()) {
            Ok(Some(_held)) => match append(&self.path, &self.pending.lines()) {
                Ok(()) => self.pending = TimingCache::new(),
                Err(e) => self.give_up(&e.to_string()),
            },
            Ok(None) => {}
            Err(e) => self.give_up(&format!("no lock: {e}")),
        }
    }

    /// Merges everything into one sorted file, which others may have added to meanwhile. Where another process holds the
    /// file for too long, the times that it lacks are stored beside it and merged by the next build.
    pub fn finish(mut self, known: &TimingCache) {
        if !self.writable {
            return;
        }
        let (path, seconds) = (self.path.clone(), self.patience.as_secs());
        let waiting = || {
            tracing::warn!("timing cache {}: waiting for another process, {seconds} s", path.display());
        };
        let done = match kiln_files::lock(&self.path, self.patience, waiting) {
            Ok(Some(_held)) => self.merge(known),
            Ok(None) if self.pending.is_empty() => Ok(()),
            Ok(None) => self.store_beside(),
            Err(e) => Err(format!("no lock: {e}")),
        };
        if let Err(message) = done {
            self.give_up(&message);
        }
    }

    /// Merges the file, those beside it, and what is known here. Under the lock.
    fn merge(&self, known: &TimingCache) -> Result<(), String> {
        let beside = self.beside();
        let mut all = self.read()?;
        all.merge(known);
        all.merge(&self.pending);
        let text = all.to_text();
        if TimingCache::read_file(&self.path).is_ok_and(|old| old == text.as_bytes()) && beside.is_empty() {
            return Ok(());
        }
        kiln_files::replace(&self.path, Some(CONTENT), text.as_bytes()).map_err(|e| e.to_string())?;
        for path in beside {
            // A file that stays is merged again, which changes nothing.
            drop(std::fs::remove_file(path));
        }
        Ok(())
    }

    fn read(&self) -> Result<TimingCache, String> {
        let mut all = match TimingCache::read_file(&self.path) {
            Ok(bytes) => recovered(&self.path, &bytes)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => TimingCache::new(),
            Err(e) => return Err(e.to_string()),
        };
        for path in self.beside() {
            let bytes = TimingCache::read_file(&path).map_err(|e| e.to_string());
            match bytes.and_then(|b| recovered(&path, &b)) {
                Ok(more) => all.merge(&more),
                Err(e) => tracing::warn!("timing cache {}: {e}; left out", path.display()),
            }
        }
        Ok(all)
    }

    fn store_beside(&self) -> Result<(), String> {
        let mut name = self.path.as_os_str().to_owned();
        let random =
            blake3::hash(format!("{:?}{}", std::time::SystemTime::now(), self.pending.lines()).as_bytes());
        name.push(format!("{BESIDE}{}", &random.to_hex()[..16]));
        let path = PathBuf::from(name);
        self.pending.replace_file(&path).map_err(|e| e.to_string())?;
        tracing::warn!(
            "timing cache {}: another process holds it; new times are in {}, which the next build merges",
            self.path.display(),
            path.display()
        );
        Ok(())
    }

    /// Files of times that [`CacheStore::store_beside`] wrote.
    fn beside(&self) -> Vec<PathBuf> {
        let (Some(name), Some(folder)) = (self.path.file_name(), self.path.parent()) else {
            return Vec::new();
        };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let prefix = format!("{}{BESIDE}", name.to_string_lossy());
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        let mut all: Vec<PathBuf> = entries
            .flatten()
            .filter(|e| e.file_name().to_str().and_then(|n| n.strip_prefix(&prefix)).is_some_and(is_random))
            .map(|e| e.path())
            .collect();
        all.sort();
        all
    }

    fn give_up(&mut self, message: &str) {
        self.writable = false;
        tracing::warn!(
            "timing cache {}: {message}; times of this build are not saved there",
            self.path.display()
        );
    }
}

/// Reads the valid lines of a file; the rest is a warning.
fn recovered(path: &Path, bytes: &[u8]) -> Result<TimingCache, String> {
    let (cache, lost) = TimingCache::recover(bytes)?;
    if let Some(lost) = lost {
        tracing::warn!("timing cache {}: {lost}", path.display());
    }
    Ok(cache)
}

/// Text between the name of the cache and a random number in the name of a pending file.
const BESIDE: &str = ".pending-";

fn is_random(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Appends whole lines; a torn line that a killed process left is ended first. Under the lock.
fn append(path: &Path, lines: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).append(true);
    let mut file = match kiln_files::open_regular(path).and_then(|_| options.open(path)) {
        Ok(f) => f,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            kiln_files::replace(path, Some(CONTENT), header().as_bytes())?;
            options.open(path)?
        }
        Err(e) => return Err(e),
    };
    let start = match file.metadata()?.len() {
        0 => header(),
        _ if ends_a_line(&mut file)? => String::new(),
        _ => "\n".to_owned(),
    };
    // One call, so that a signal tears as little as can be.
    file.write_all((start + lines).as_bytes())
}

fn ends_a_line(file: &mut File) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
