//! Timing caches: what can be read of them is written, and read again to the same; a cut file loses its last line at most.

#![no_main]

use kiln_builder::cache::TimingCache;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok((cache, _)) = TimingCache::recover(data) else { return };
    for (_, entry) in cache.iter() {
        entry.candidates.values().for_each(|c| {
            std::hint::black_box(c.median());
        });
    }
    let text = cache.to_text();
    let again = TimingCache::from_text(&text).expect("what was written is read");
    assert_eq!(again.to_text(), text);
    let mut twice = cache.clone();
    twice.merge(&cache);
    assert_eq!(twice.to_text(), text, "a cache merged with itself is the same");
    let cut = &text.as_bytes()[..text.len() * 3 / 4];
    let lines = cut.iter().filter(|&&b| b == b'\n').count();
    let (rest, _) = TimingCache::recover(cut).expect("a cut file is read");
    assert!(rest.len() + 1 >= lines);
});
