//! The text form of graphs: what parses prints, and parses again to the same.

#![no_main]

use kiln_ir::Graph;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(g) = Graph::from_text(text) else { return };
    let _ = g.verify();
    let tensors = g.referred_tensors();
    let printed = g.to_text();
    let again = Graph::from_text_with(&printed, &|r| tensors.get(&r.hash).cloned());
    let again = again.unwrap_or_else(|e| panic!("{e}\n{printed}"));
    assert_eq!(again.to_text(), printed);
});
