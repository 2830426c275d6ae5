//! The cache as text, and its file.

use super::{Entry, TimingCache};
use kiln_files::Content;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Version of the file format.
const FORMAT: u32 = 1;
/// Larger files are refused.
const MAX_FILE: u64 = 1 << 30;
/// First bytes of a timing cache.
pub(super) const CONTENT: Content = Content { name: "a timing cache", magic: b"{\"kiln_timing_cache\":" };

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

/// The first line of a file.
pub(super) fn header() -> String {
    format!("{{\"kiln_timing_cache\":{FORMAT}}}\n")
}

impl TimingCache {
    /// The cache as JSON lines; equal caches give equal text.
    pub fn to_text(&self) -> String {
        header() + &self.lines()
    }

    /// The entries as JSON lines, without a header.
    pub(super) fn lines(&self) -> String {
        let mut s = String::new();
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
        match TimingCache::recover(text.as_bytes())? {
            (_, Some(lost)) => Err(lost),
            (_, None) if text.trim().is_empty() => Err("it is empty".into()),
            (cache, None) => Ok(cache),
        }
    }

    /// Reads what can be read: an empty file is an empty cache, damaged lines (a process was killed while it wrote, or a
    /// disk was full) are left out. The text says which were. An error if this is not a timing cache at all, or one of a
    /// newer format.
    pub fn recover(bytes: &[u8]) -> Result<(TimingCache, Option<String>), String> {
        let mut cache = TimingCache::new();
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty());
        let Some((_, first)) = lines.next() else { return Ok((cache, None)) };
        match serde_json::from_str(first) {
            Ok(Header { kiln_timing_cache: FORMAT }) => {}
            Ok(Header { kiln_timing_cache: found }) => {
                return Err(format!(
                    "format {found} is not {FORMAT}, which this version reads: give another file, and times are taken again"
                ));
            }
            // A header that was cut off while it was written, and nothing after it.
            Err(_) if header().starts_with(first) => {}
            Err(_) => return Err("the first line is not the header of a timing cache".into()),
        }
        let (mut lost, mut reason) = (0, None);
        for (i, l) in lines {
            match serde_json::from_str::<Line>(l) {
                Ok(line) => {
                    let mut one = TimingCache::new();
                    one.insert(&line.key, line.entry);
                    cache.merge(&one);
                }
                Err(e) => {
                    lost += 1;
                    reason.get_or_insert_with(|| format!("line {}: {e}", i + 1));
                }
            }
        }
        Ok((cache, reason.map(|r| format!("{lost} damaged lines are left out, the first: {r}"))))
    }

    /// The bytes of a file; anything but a regular file of usual size is refused.
    pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
        kiln_files::read_regular(path, MAX_FILE)
    }

    /// Replaces a file by this cache, as a whole or not at all. A file that is there must be a timing cache or empty.
    pub fn replace_file(&self, path: &Path) -> io::Result<()> {
        kiln_files::replace(path, Some(CONTENT), self.to_text().as_bytes())
    }
}
