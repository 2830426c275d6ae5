//! Equal networks and equal timing caches give equal plan files, and a cache that has every answer is not added to.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::{Backend, Target};
use kiln_builder::cache::{CacheStore, TimingCache};
use kiln_builder::{BuildConfig, BuildError, Builder, Built};
use kiln_network::Network;
use kiln_onnx::{ImportOptions, parse_file};
use kiln_plan::Plan;
use kiln_runtime::Profile;
use kiln_tests::backends::{all, cpu};
use kiln_tests::models::data;
use std::sync::Arc;
use std::time::Duration;

struct Case {
    network: Network,
    profile: Profile,
}

fn case(path: &str, inputs: &[&str], shapes: [&[i64]; 3]) -> Case {
    let network = parse_file(data(path), &ImportOptions::default()).unwrap().network;
    let mut profile = Profile::new();
    for name in inputs {
        profile.set_shape(name, shapes[0], shapes[1], shapes[2]).unwrap();
    }
    Case { network, profile }
}

fn cases() -> Vec<Case> {
    let images: [&[i64]; 3] = [&[1, 1, 28, 28], &[1, 1, 28, 28], &[4, 1, 28, 28]];
    vec![
        case("digits/lenet_a.onnx", &["input"], images),
        case("digits/lenet_a_bn.onnx", &["input"], images),
        case("nlp/bert_tiny.onnx", &["input_ids", "attention_mask"], [&[1, 1], &[1, 8], &[2, 32]]),
    ]
}

/// A builder of the CPU backend that starts from this cache.
fn builder(case: &Case, cache: TimingCache, locked: bool) -> Builder {
    builder_for(&cpu(), case, cache, locked)
}

fn builder_for(backend: &Arc<dyn Backend>, case: &Case, cache: TimingCache, locked: bool) -> Builder {
    let mut b = Builder::new(backend.clone(), backend.targets().unwrap().remove(0));
    b.config = BuildConfig {
        profiles: vec![case.profile.clone()],
        samples: 2,
        locked,
        estimate_limit: f64::INFINITY,
        ..Default::default()
    };
    b.cache = cache;
    b
}

fn file(case: &Case, built: Built, target: &Target) -> Vec<u8> {
    Plan::new(built.program, vec![case.profile.clone()], target.clone()).write().unwrap()
}

#[test]
fn warm_builds_time_nothing_and_give_the_bytes_of_the_cold_one() {
    for backend in all().unwrap() {
        // Cold builds of BERT take long on devices that software emulates.
        let count = if backend.name() == "cpu" { 3 } else { 2 };
        for case in cases().into_iter().take(count) {
            let label = format!("{} on {}", case.network.name(), backend.name());
            let mut cold = builder_for(&backend, &case, TimingCache::new(), false);
            let target = cold.target().clone();
            let built = cold.build(&case.network).unwrap();
            assert!(built.timed > 0, "{label}: there is nothing to time");
            let bytes = file(&case, built, &target);
            let stored = cold.cache.to_bytes();
            for locked in [false, true] {
                let cache = TimingCache::from_bytes(&stored).unwrap();
                let mut warm = builder_for(&backend, &case, cache, locked);
                let built = warm.build(&case.network).unwrap();
                assert_eq!(built.timed, 0, "{label}");
                assert!(file(&case, built, &target) == bytes, "{label}: the plans differ");
                assert_eq!(warm.cache.to_bytes(), stored, "{label}: a warm build leaves the cache as it was");
            }
        }
    }
}

#[test]
fn locked_builds_fail_on_the_first_miss() {
    for case in cases() {
        let mut locked = builder(&case, TimingCache::new(), true);
        let e = locked.build(&case.network).unwrap_err();
        let BuildError::CacheMiss { layer, key } = &e else { panic!("{e}") };
        assert!(!layer.is_empty() && !key.is_empty());
        assert!(locked.cache.is_empty(), "a locked build adds nothing");
    }
}

#[test]
fn caches_of_several_builds_merge_in_any_order() {
    let cases = cases();
    let caches: Vec<TimingCache> = [0, 0, 1]
        .iter()
        .map(|&i| {
            let mut b = builder(&cases[i], TimingCache::new(), false);
            b.build(&cases[i].network).unwrap();
            b.cache
        })
        .collect();
    let merged = |order: [usize; 3]| {
        let mut all = TimingCache::new();
        order.iter().for_each(|&i| all.merge(&caches[i]));
        all.to_text()
    };
    let one = merged([0, 1, 2]);
    for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        assert_eq!(merged(order), one);
    }
    for case in &cases[..2] {
        let mut b = builder(case, TimingCache::from_text(&one).unwrap(), true);
        assert_eq!(b.build(&case.network).unwrap().timed, 0);
    }
}

#[test]
fn builds_that_share_a_cache_take_turns() {
    let folder = tempfile::tempdir().unwrap();
    let case = &cases()[0];
    let turn_of = |name: &str| {
        let file = std::fs::File::create(folder.path().join(format!("{name}.device.lock"))).unwrap();
        file.try_lock().unwrap();
        file
    };
    let timed = |name: &str, patience: Duration| {
        let mut b = builder(case, TimingCache::new(), false);
        b.store = Some(CacheStore::open(&folder.path().join(name)).0.with_patience(patience));
        b.build(&case.network).unwrap().timed
    };
    let held = turn_of("patient");
    let path = folder.path().join("patient");
    let early = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(4));
        let known = std::fs::read_to_string(path).map_or(0, |text| text.lines().count());
        drop(held);
        known
    });
    assert!(timed("patient", Duration::from_secs(600)) > 0);
    assert_eq!(early.join().unwrap(), 0, "times were taken while another build had the device");
    let _held = turn_of("impatient");
    assert!(timed("impatient", Duration::ZERO) > 0);
}
