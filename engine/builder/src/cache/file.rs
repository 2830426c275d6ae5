//! Reading and writing the cache: text, and files under a lock.

use super::{Entry, TimingCache};
use crate::BuildError;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Version of the file format.
const FORMAT: u32 = 1;
/// Larger files are refused.
const MAX_FILE: u64 = 1 << 30;

#[derive(Serialize, Deserialize)]
struct Header {
    kiln_timing_cache: u32,
}

#[derive(Serialize, Deserialize)]
struct Line {
    key: String,
    #[serde(flatten)]
    entry: Entry,
}

impl TimingCache {
    /// The cache as JSON lines; equal caches give equal text.
    pub fn to_text(&self) -> String {
        let mut s = format!("{{\"kiln_timing_cache\":{FORMAT}}}\n");
        for (key, entry) in self.iter() {
            // Keys, text and finite numbers always have a JSON form.
            if let Ok(line) = serde_json::to_string(&Line { key: key.to_owned(), entry: entry.clone() }) {
                s.push_str(&line);
                s.push('\n');
            }
        }
        s
    }

    /// Reads what [`TimingCache::to_text`] wrote, or what a person made of it. The error names the line.
    pub fn from_text(text: &str) -> Result<TimingCache, String> {
        let mut lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty());
        let header: Option<Header> = lines.next().and_then(|(_, l)| serde_json::from_str(l).ok());
        match header {
            Some(Header { kiln_timing_cache: FORMAT }) => {}
            Some(h) => {
                return Err(format!(
                    "format {} is not {FORMAT}, which this version reads",
                    h.kiln_timing_cache
                ));
            }
            None => return Err("the first line is not the header of a timing cache".into()),
        }
        let mut cache = TimingCache::new();
        for (i, l) in lines {
            let line: Line = serde_json::from_str(l).map_err(|e| format!("line {}: {e}", i + 1))?;
            let mut one = TimingCache::new();
            one.insert(&line.key, line.entry);
            cache.merge(&one);
        }
        Ok(cache)
    }

    /// Reads a file; an absent one is an empty cache.
    pub fn load(path: &Path) -> Result<TimingCache, BuildError> {
        let fail = |message: String| BuildError::Cache { path: path.display().to_string(), message };
        match std::fs::metadata(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(TimingCache::new()),
            Err(e) => return Err(fail(e.to_string())),
            Ok(m) if m.len() > MAX_FILE => {
                return Err(fail(format!("{} bytes are more than {MAX_FILE}", m.len())));
            }
            Ok(_) => {}
        }
        let text = std::fs::read_to_string(path).map_err(|e| fail(e.to_string()))?;
        TimingCache::from_text(&text).map_err(fail)
    }

    /// Merges into a file: under a lock reads what others wrote meanwhile, and replaces the file at once.
    pub fn save(&self, path: &Path) -> Result<(), BuildError> {
        let fail = |message: String| BuildError::Cache { path: path.display().to_string(), message };
        let lock = lock_file(path).map_err(|e| fail(format!("no lock: {e}")))?;
        let mut all = TimingCache::load(path)?;
        all.merge(self);
        let text = all.to_text();
        let done = write_atomically(path, text.as_bytes()).map_err(|e| fail(e.to_string()));
        drop(lock);
        done
    }
}

fn lock_file(path: &Path) -> std::io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let f = OpenOptions::new().create(true).truncate(false).write(true).open(name)?;
    f.lock()?;
    Ok(f)
}

fn write_atomically(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let mut f = File::create(&name)?;
    f.write_all(bytes)?;
    f.sync_all()?;
    std::fs::rename(&name, path)
}
