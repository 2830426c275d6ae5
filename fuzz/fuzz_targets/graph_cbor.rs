//! The CBOR form of graphs: what decodes encodes, and decodes again to the same bytes.

#![no_main]

use kiln_ir::Graph;
use kiln_tests::mutants::{BySize, Sized};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(g) = Graph::from_cbor(data, &Sized) else { return };
    let _ = g.verify();
    let bytes = g.to_cbor(&mut BySize).expect("a decoded graph encodes");
    let again = Graph::from_cbor(&bytes, &Sized).expect("what was encoded decodes");
    assert_eq!(again.to_cbor(&mut BySize).expect("twice"), bytes);
});
