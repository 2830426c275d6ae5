//! Changes of entries by hand: queries, times, tactics that are pinned, and files that are changed under their lock.

use super::{Candidate, TimingCache};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Time that a change waits for another process that holds the file.
const PATIENCE: Duration = Duration::from_secs(10);
/// Names that a refusal lists.
const LISTED: usize = 10;

impl TimingCache {
    /// The only key that begins with this text. The error says how many do.
    pub fn key_of(&self, start: &str) -> Result<String, String> {
        let found: Vec<&str> = self.iter().map(|(k, _)| k).filter(|k| k.starts_with(start)).collect();
        match found[..] {
            [key] => Ok(key.to_owned()),
            [] => Err(format!("no key begins with \"{start}\"; see `kiln cache show`")),
            _ => Err(format!("{} keys begin with \"{start}\": {}", found.len(), listed(&found))),
        }
    }

    /// Lets builds take this tactic for a region whatever its time is; `None`: the fastest again.
    ///
    /// # Errors
    /// A text if the key has no entry, or the entry no such candidate.
    pub fn pin(&mut self, key: &str, tactic: Option<&str>) -> Result<(), String> {
        if let Some(tactic) = tactic {
            self.candidate(key, tactic)?;
        }
        let entry = self.entries.get_mut(key).ok_or_else(|| format!("there is no entry {key}"))?;
        entry.pinned = tactic.map(str::to_owned);
        Ok(())
    }

    /// Replaces the samples of a candidate, in nanoseconds.
    ///
    /// # Errors
    /// As [`TimingCache::pin`]; also if a sample is negative or not a number.
    pub fn set_samples(&mut self, key: &str, tactic: &str, samples: Vec<f64>) -> Result<(), String> {
        if let Some(bad) = samples.iter().find(|s| !(**s >= 0.0 && s.is_finite())) {
            return Err(format!("{bad} is not a time: wanted nanoseconds, 0 or more"));
        }
        self.candidate(key, tactic)?.samples = samples;
        Ok(())
    }

    /// Removes a candidate, which the next build times again; the entry with the last one.
    ///
    /// # Errors
    /// As [`TimingCache::pin`].
    pub fn remove_candidate(&mut self, key: &str, tactic: &str) -> Result<(), String> {
        self.candidate(key, tactic)?;
        let Some(entry) = self.entries.get_mut(key) else { return Ok(()) };
        entry.candidates.remove(tactic);
        entry.pinned.take_if(|p| p == tactic);
        if entry.candidates.is_empty() {
            self.entries.remove(key);
        }
        Ok(())
    }

    fn candidate(&mut self, key: &str, tactic: &str) -> Result<&mut Candidate, String> {
        let entry = self.entries.get_mut(key).ok_or_else(|| format!("there is no entry {key}"))?;
        let known: Vec<&str> = entry.candidates.keys().map(String::as_str).collect();
        let none = format!("{key} has no candidate \"{tactic}\"; it has {}", listed(&known));
        entry.candidates.get_mut(tactic).ok_or(none)
    }

    /// Whether any entry is of the target with this fingerprint.
    pub fn is_of(&self, fingerprint: &str) -> bool {
        self.iter().any(|(_, e)| e.target == fingerprint)
    }

    /// The entries of these keys.
    pub fn part<'k>(&self, keys: impl IntoIterator<Item = &'k String>) -> TimingCache {
        let known = |k: &'k String| Some((k.clone(), self.get(k)?.clone()));
        TimingCache { entries: keys.into_iter().filter_map(known).collect() }
    }

    /// The bytes of the cache: [`TimingCache::to_text`].
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_text().into_bytes()
    }

    /// The cache of bytes that [`TimingCache::to_bytes`] wrote. No bytes are an empty cache.
    ///
    /// # Errors
    /// A text that names the line.
    pub fn from_bytes(bytes: &[u8]) -> Result<TimingCache, String> {
        if bytes.is_empty() {
            return Ok(TimingCache::new());
        }
        let text = std::str::from_utf8(bytes).map_err(|e| format!("it is not text: {e}"))?;
        TimingCache::from_text(text)
    }

    /// Changes a file under its lock, as a whole or not at all. An absent file is an empty cache.
    ///
    /// # Errors
    /// Errors of the file; what `change` refuses leaves the file as it was.
    pub fn update_file<T>(
        path: &Path,
        change: impl FnOnce(&mut TimingCache) -> Result<T, String>,
    ) -> io::Result<T> {
        let held = kiln_files::lock(path, PATIENCE, || {
            tracing::warn!("timing cache {}: waiting for another process", path.display());
        })?;
        let Some(_held) = held else {
            let seconds = PATIENCE.as_secs();
            return Err(io::Error::other(format!(
                "another process holds it for more than {seconds} s; try again"
            )));
        };
        let mut cache = match TimingCache::read_file(path) {
            Ok(bytes) => {
                let (cache, lost) = TimingCache::recover(&bytes).map_err(io::Error::other)?;
                if let Some(lost) = lost {
                    tracing::warn!("timing cache {}: {lost}", path.display());
                }
                cache
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => TimingCache::new(),
            Err(e) => return Err(e),
        };
        let done = change(&mut cache).map_err(io::Error::other)?;
        cache.replace_file(path)?;
        Ok(done)
    }
}

fn listed(names: &[&str]) -> String {
    let shown: Vec<&str> = names.iter().copied().take(LISTED).collect();
    let more = if names.len() > LISTED { ", …" } else { "" };
    shown.join(", ") + more
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test panics")]
mod tests {
    use super::super::Entry;
    use super::*;
    use std::collections::BTreeMap;

    fn cache() -> TimingCache {
        let candidate = |t: f64| Candidate { source_hash: "h".into(), samples: vec![t] };
        let entry = Entry {
            region: "r".into(),
            target: "t".into(),
            device: "d".into(),
            driver: "v".into(),
            candidates: BTreeMap::from([
                ("slow".to_owned(), candidate(2.0)),
                ("fast".to_owned(), candidate(1.0)),
            ]),
            pinned: None,
        };
        let mut c = TimingCache::new();
        c.insert("abcd", entry.clone());
        c.insert("abef", entry);
        c
    }

    #[test]
    fn entries_are_found_changed_and_removed() {
        let mut c = cache();
        assert_eq!(c.key_of("abc").unwrap(), "abcd");
        assert!(c.key_of("ab").unwrap_err().contains("2 keys") && c.key_of("x").is_err());
        c.pin("abcd", Some("slow")).unwrap();
        let e = c.pin("abcd", Some("none")).unwrap_err();
        assert!(e.contains("it has fast, slow"), "{e}");
        assert!(c.pin("zz", None).is_err());
        c.set_samples("abcd", "fast", vec![5.0, 6.0]).unwrap();
        assert!(c.set_samples("abcd", "fast", vec![f64::NAN]).is_err());
        assert_eq!(c.get("abcd").unwrap().candidates["fast"].samples, [5.0, 6.0]);
        let read = TimingCache::from_bytes(&c.to_bytes()).unwrap();
        assert_eq!(read, c);
        assert_eq!(read.get("abcd").unwrap().pinned.as_deref(), Some("slow"));
        c.remove_candidate("abcd", "slow").unwrap();
        assert_eq!(c.get("abcd").unwrap().pinned, None);
        c.remove_candidate("abcd", "fast").unwrap();
        assert_eq!((c.len(), c.is_of("t"), c.is_of("u")), (1, true, false));
        assert!(TimingCache::from_bytes(&[]).unwrap().is_empty());
    }

    #[test]
    fn files_change_as_a_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        TimingCache::update_file(&path, |c| {
            c.merge(&cache());
            Ok(())
        })
        .unwrap();
        let before = std::fs::read(&path).unwrap();
        let refused = TimingCache::update_file(&path, |c| {
            c.remove("abcd");
            c.pin("zz", None)
        });
        assert!(refused.unwrap_err().to_string().contains("no entry zz"));
        assert_eq!(std::fs::read(&path).unwrap(), before);
        std::thread::scope(|s| {
            for n in 0..8 {
                let path = &path;
                s.spawn(move || {
                    TimingCache::update_file(path, |c| {
                        let entry = c.get("abcd").cloned().ok_or("no entry")?;
                        c.insert(&format!("thread {n}"), entry);
                        Ok(())
                    })
                    .unwrap();
                });
            }
        });
        let all = TimingCache::from_bytes(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(all.len(), 10, "no change is lost");
    }
}
