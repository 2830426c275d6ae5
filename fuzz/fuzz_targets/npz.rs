//! Archives and arrays of NumPy: what is read is written, and read again to the same.

#![no_main]

use kiln_npz::{Compression, read_npy, read_npz_bytes, write_npy, write_npz_bytes};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(array) = read_npy(data) {
        let again = read_npy(&write_npy(&array).expect("an array that was read is written"));
        assert_eq!(again.expect("what was written is read"), array);
    }
    let Ok(arrays) = read_npz_bytes(data) else { return };
    let bytes = write_npz_bytes(&arrays, Compression::Deflated).expect("arrays that were read are written");
    let again = read_npz_bytes(&bytes);
    assert_eq!(again.expect("what was written is read"), arrays);
});
