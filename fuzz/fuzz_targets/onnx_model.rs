//! A model file from anywhere: read, checked, imported, lowered, built and run, or refused.

#![no_main]

use kiln_onnx::{ImportOptions, Model, ModelFile};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    kiln_fuzz::limit();
    let Ok(file) = ModelFile::from_bytes(data.to_vec(), None) else { return };
    let Ok(model) = Model::check(&file) else { return };
    let Ok(done) = kiln_onnx::import(&model, &ImportOptions::default()) else { return };
    if let Ok(graph) = done.network.lower() {
        kiln_fuzz::build_and_run(graph);
    }
});
