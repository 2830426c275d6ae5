//! A model file from anywhere: read, checked, imported, lowered, built and run, or refused. Every other change keeps the file
//! a model: it is one of attributes, shapes, operators or names.

#![no_main]

use kiln_ir::problem::Rng;
use kiln_onnx::{ImportOptions, Model, ModelFile};
use kiln_tests::mutants::models;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|data: &[u8]| {
    kiln_fuzz::limit();
    let Ok(file) = ModelFile::from_bytes(data.to_vec(), None) else { return };
    let Ok(model) = Model::check(&file) else { return };
    let Ok(done) = kiln_onnx::import(&model, &ImportOptions::default()) else { return };
    if let Ok(graph) = done.network.lower() {
        kiln_fuzz::build_and_run(graph);
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max: usize, seed: u32| {
    let changed = match seed % 4 {
        0 => None,
        _ => models::mutate(&data[..size], &mut Rng::new(seed.into())).filter(|m| m.len() <= max),
    };
    match changed {
        Some(model) => {
            data[..model.len()].copy_from_slice(&model);
            model.len()
        }
        None => fuzzer_mutate(data, size, max),
    }
});
