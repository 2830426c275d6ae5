//! Plan files whose hashes are right: read, verified, loaded and run, or refused.

#![no_main]

use kiln_plan::Plan;
use kiln_tests::mutants::repair;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|data: &[u8]| {
    kiln_fuzz::limit();
    let Ok(plan) = Plan::read(data.to_vec()) else { return };
    let _ = plan.layers.to_text();
    let _ = plan.write();
    kiln_fuzz::run(plan);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max: usize, _seed: u32| {
    let size = fuzzer_mutate(data, size, max);
    repair(&mut data[..size]);
    size
});
