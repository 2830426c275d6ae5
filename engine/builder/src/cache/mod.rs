//! The timing cache: measured times of tactics by what they ran.
//!
//! A file of JSON lines, so that it can be read, edited and merged: a header, then one entry a line, sorted by key.
//! An entry holds the samples of all candidates, so that the winner can be explained. The driver is recorded beside
//! and is not part of the key.

mod edit;
mod file;
mod key;
mod store;

pub use key::{describe, key};
pub use store::CacheStore;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of how times are taken; part of every key.
pub const TIMING_VERSION: u32 = 2;

/// Times of one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Hash of the kernel source that was timed.
    pub source_hash: String,
    /// Nanoseconds of each sample, in the order taken.
    pub samples: Vec<f64>,
}

impl Candidate {
    /// The middle sample; infinite if there is none.
    pub fn median(&self) -> f64 {
        let mut s: Vec<f64> = self.samples.iter().copied().filter(|x| x.is_finite()).collect();
        s.sort_by(f64::total_cmp);
        s.get(s.len() / 2).copied().unwrap_or(f64::INFINITY)
    }

    /// A total order that does not depend on which of two caches came first.
    fn rank(&self) -> (usize, &str, Vec<u64>) {
        (self.samples.len(), &self.source_hash, self.samples.iter().map(|x| x.to_bits()).collect())
    }
}

/// Times and choices of one region on one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The region as text, its shapes those that were timed.
    pub region: String,
    /// Fingerprint of the target.
    pub target: String,
    /// The device by name, for people.
    pub device: String,
    /// The driver that it was timed with.
    pub driver: String,
    /// Candidates by tactic name with parameters.
    pub candidates: BTreeMap<String, Candidate>,
    /// Candidate that builds take whatever the times are, by name with parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<String>,
}

/// Measured times by key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimingCache {
    entries: BTreeMap<String, Entry>,
}

impl TimingCache {
    /// An empty cache.
    pub fn new() -> TimingCache {
        TimingCache::default()
    }

    /// The entry of a key.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Keys and entries in the order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(k, e)| (k.as_str(), e))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// None at all?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds candidates to an entry, or makes it. Times of a changed kernel replace the old ones.
    pub fn insert(&mut self, key: &str, entry: Entry) {
        match self.entries.get_mut(key) {
            None => {
                self.entries.insert(key.to_owned(), entry);
            }
            Some(old) => {
                old.driver = entry.driver;
                old.pinned = entry.pinned.or_else(|| old.pinned.take());
                old.candidates.extend(entry.candidates);
            }
        }
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: &str) -> Option<Entry> {
        self.entries.remove(key)
    }

    /// Takes in another cache. Commutative and associative: where both have a candidate, the one with more samples
    /// stays, then the greater by source hash and by its samples. Of two pinned candidates the greater name stays.
    pub fn merge(&mut self, other: &TimingCache) {
        for (key, entry) in &other.entries {
            let Some(own) = self.entries.get_mut(key) else {
                self.entries.insert(key.clone(), entry.clone());
                continue;
            };
            for (id, c) in &entry.candidates {
                match own.candidates.get_mut(id) {
                    Some(mine) if mine.rank() < c.rank() => *mine = c.clone(),
                    Some(_) => {}
                    None => {
                        own.candidates.insert(id.clone(), c.clone());
                    }
                }
            }
            own.pinned = own.pinned.take().max(entry.pinned.clone());
            let pair = |e: &Entry| (e.driver.clone(), e.device.clone(), e.region.clone());
            if pair(own) < pair(entry) {
                (own.driver, own.device, own.region) = pair(entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(key: &str, id: &str, samples: &[f64]) -> TimingCache {
        let mut c = TimingCache::new();
        let candidate = Candidate { source_hash: "h".into(), samples: samples.to_vec() };
        c.insert(
            key,
            Entry {
                region: "r".into(),
                target: "t".into(),
                device: "d".into(),
                driver: "v".into(),
                candidates: BTreeMap::from([(id.to_owned(), candidate)]),
                pinned: None,
            },
        );
        c
    }

    #[test]
    fn merging_is_commutative_and_associative() {
        let all = [
            cache("k", "a", &[1.0, 2.0]),
            cache("k", "a", &[3.0, 1.0]),
            cache("k", "b", &[3.0]),
            cache("l", "a", &[0.1, 0.2, 0.3]),
        ];
        let merged = |order: &[usize]| {
            let mut c = TimingCache::new();
            order.iter().for_each(|&i| c.merge(&all[i]));
            c
        };
        assert_eq!(merged(&[0, 1, 2, 3]), merged(&[3, 1, 2, 0]));
        assert_eq!(merged(&[0, 1, 2, 3]), merged(&[1, 0, 0, 3, 2]));
    }

    /// Numbers of more digits than a time has, as a person may write them.
    #[test]
    fn what_was_written_is_read_to_the_last_bit() {
        let entry = r#"{"key":"k","region":"r","target":"t","device":"d","driver":"","candidates":{"a":{"source_hash":"h","samples":"#;
        let numbers =
            ["511111111111111111111111111111111111111272.0", "8.371160993642719e29", "-0.0", "5e-324"];
        for number in numbers {
            let line = format!("{entry}[{number}]}}}}}}\n");
            let read = TimingCache::from_text(&(TimingCache::new().to_text() + &line)).unwrap();
            let exact: f64 = number.parse().unwrap();
            let found = read.get("k").unwrap().candidates["a"].samples[0];
            assert_eq!(found.to_bits(), exact.to_bits(), "{number}");
            let text = read.to_text();
            assert_eq!(TimingCache::from_text(&text).unwrap().to_text(), text, "{number}");
        }
    }

    #[test]
    fn text_survives_a_round_trip_and_foreign_text_is_refused() {
        let mut c = cache("k", "a", &[1.25, f64::MAX, 0.1]);
        c.merge(&cache("l", "b", &[]));
        assert_eq!(TimingCache::from_text(&c.to_text()), Ok(c));
        assert!(TimingCache::from_text("{}").is_err());
        assert!(TimingCache::from_text("").is_err());
        assert!(TimingCache::from_text(&format!("{}{{broken", TimingCache::new().to_text())).is_err());
    }
}
