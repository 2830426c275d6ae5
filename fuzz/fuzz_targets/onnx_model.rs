//! A model file from anywhere: read, checked, imported and lowered, or refused.

#![no_main]

use kiln_onnx::{ImportOptions, Model, ModelFile};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(file) = ModelFile::from_bytes(data.to_vec(), None) else { return };
    let Ok(model) = Model::check(&file) else { return };
    if let Ok(done) = kiln_onnx::import(&model, &ImportOptions::default()) {
        let _ = done.network.lower();
    }
});
