use super::*;
use crate::cache::Candidate;
use std::collections::BTreeMap;

fn entry(id: &str, samples: &[f64]) -> Entry {
    let candidate = Candidate { source_hash: "h".into(), samples: samples.to_vec() };
    Entry {
        region: "r".into(),
        target: "t".into(),
        device: "d".into(),
        driver: "v".into(),
        candidates: BTreeMap::from([(id.to_owned(), candidate)]),
        pinned: None,
    }
}

fn read(path: &Path) -> TimingCache {
    TimingCache::from_text(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn times_are_in_the_file_before_the_build_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let (mut store, known) = CacheStore::open(&path);
    assert!(known.is_empty());
    store.add("k", entry("a", &[1.0]));
    store.add("l", entry("a", &[2.0]));
    store.add("k", entry("b", &[3.0]));
    let during = read(&path);
    assert_eq!((during.len(), during.get("k").map(|e| e.candidates.len())), (2, Some(2)));
    store.finish(&during);
    assert_eq!(read(&path), during);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), during.to_text());
}

/// Every prefix of a file is what a killed process may leave: it is read, and added to without a loss.
#[test]
fn torn_files_are_read_and_mended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let (mut store, _) = CacheStore::open(&path);
    store.add("k", entry("a", &[1.0]));
    store.add("l", entry("a", &[2.0]));
    let whole = std::fs::read(&path).unwrap();
    for cut in 0..=whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let (mut store, known) = CacheStore::open(&path);
        assert!(store.writable, "cut at {cut}");
        let ends = whole[..cut].iter().filter(|&&b| b == b'\n').count();
        assert!(known.len() + 1 >= ends, "cut at {cut}: {} of {ends} lines", known.len());
        store.add("m", entry("c", &[4.0]));
        let (_, after) = CacheStore::open(&path);
        assert_eq!(after.len(), known.len() + 1, "cut at {cut}");
        store.finish(&known);
        assert_eq!(read(&path).len(), known.len() + 1, "cut at {cut}");
    }
}

#[test]
fn a_held_lock_is_waited_for_and_times_are_stored_beside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    std::fs::write(&path, TimingCache::new().to_text()).unwrap();
    let held = kiln_files::lock(&path, Duration::ZERO, || ()).unwrap();
    let (store, known) = CacheStore::open(&path);
    let mut store = store.with_patience(Duration::from_millis(100));
    store.add("k", entry("a", &[1.0]));
    store.finish(&known);
    assert!(read(&path).is_empty());
    drop(held);
    let (store, known) = CacheStore::open(&path);
    assert_eq!(known.len(), 1);
    store.finish(&known);
    assert_eq!(read(&path).len(), 1);
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 2, "the cache and its lock");
}

#[test]
fn what_is_not_a_cache_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    for text in ["a model", "{\"kiln_timing_cache\":2}\n"] {
        std::fs::write(&path, text).unwrap();
        let (mut store, known) = CacheStore::open(&path);
        store.add("k", entry("a", &[1.0]));
        store.finish(&known);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    let (mut store, known) = CacheStore::open(folder.path());
    store.add("k", entry("a", &[1.0]));
    store.finish(&known);
    let (mut store, known) = CacheStore::open(&folder.path().join("no/such/folder"));
    store.add("k", entry("a", &[1.0]));
    store.finish(&known);
}
