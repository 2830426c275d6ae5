//! Plan files whose hashes are right: read, verified and loaded, or refused.

#![no_main]

use kiln_reference::Reference;
use kiln_runtime::Engine;
use kiln_runtime::plan::Plan;
use kiln_tests::mutants::repair;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use std::sync::Arc;

fuzz_target!(|data: &[u8]| {
    let Ok(plan) = Plan::read(data.to_vec()) else { return };
    let _ = plan.layers.to_text();
    let _ = plan.write();
    let Ok(engine) = Engine::from_plan(plan, Arc::new(Reference::new())) else { return };
    let Ok(mut context) = engine.create_context() else { return };
    let _ = context.infer_shapes();
});

fuzz_mutator!(|data: &mut [u8], size: usize, max: usize, _seed: u32| {
    let size = fuzzer_mutate(data, size, max);
    repair(&mut data[..size]);
    size
});
