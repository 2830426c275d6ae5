//! Timing caches in memory: bytes in, bytes out; replays through the façade.
#![allow(clippy::panic, reason = "a test")]

use kiln::cache::TimingCache;
use kiln::selection::TacticRecord;
use kiln::{BuildConfig, Engine, EngineBuilder, Error, report::BuildError};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/lenet_a.onnx");

fn builder() -> EngineBuilder {
    let config = BuildConfig { samples: 1, ..BuildConfig::default() };
    Engine::builder().backend("cpu").config(config)
}

fn locked() -> EngineBuilder {
    let config = BuildConfig { locked: true, ..BuildConfig::default() };
    Engine::builder().backend("cpu").config(config)
}

#[test]
fn times_go_in_and_out_as_bytes() {
    let cold = builder()
        .times(TimingCache::from_bytes(&[]).expect("an empty cache"))
        .build_plan(MODEL)
        .expect("a build");
    assert!(cold.report.timed > 0 && !cold.times.is_empty());
    let bytes = cold.times.to_bytes();
    let times = TimingCache::from_bytes(&bytes).expect("the cache");
    let warm = locked().times(times.clone()).build_plan(MODEL).expect("a locked build");
    assert_eq!((warm.report.timed, warm.times.to_bytes()), (0, bytes));
    let written = |b: &kiln::Built| b.plan.write().expect("bytes");
    assert!(written(&warm) == written(&cold), "other bytes than the cold build");
    // Builds without a cache of their own return what they measured.
    assert!(!builder().build_plan(MODEL).expect("a build").times.is_empty());
    assert!(TimingCache::from_bytes(b"no cache").is_err());
}

#[test]
fn times_of_other_devices_are_refused_or_left() {
    let cold = builder().build_plan(MODEL).expect("a build");
    let (_, entry) = cold.times.iter().next().expect("an entry");
    let text = cold.times.to_text().replace(&entry.target, "0123456789abcdef0123456789abcdef");
    let foreign = TimingCache::from_text(&text).expect("a cache");
    let strict = builder().times(foreign).strict_times(true).build_plan(MODEL).map(drop);
    let Err(Error::Build { source, .. }) = strict else { panic!("{strict:?}") };
    assert!(matches!(source, BuildError::OtherCache { .. }), "{source}");
    builder().times(cold.times).strict_times(true).build_plan(MODEL).expect("times of this device");
}

#[test]
fn recorded_builds_are_replayed() {
    let first = builder().build_plan(MODEL).expect("a build");
    let record = TacticRecord::from_text(&first.record.to_text()).expect("a record");
    let again = builder().replay(record).build_plan(MODEL).expect("a replay");
    assert_eq!(again.report.timed, 0);
    assert!(
        again.plan.write().expect("bytes") == first.plan.write().expect("bytes"),
        "a replay has other bytes"
    );
}
