//! Regions, programs, tactics, targets and times as they cross the border to a backend. The first byte picks which.

#![no_main]

use kiln_backend::wire::{self, BlobList};
use kiln_backend::{Program, Region, Target};
use kiln_ir::Bytes;
use kiln_tests::mutants::Sized;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&which, data)) = data.split_first() else { return };
    match which % 4 {
        0 => {
            if let Ok(r) = Region::from_cbor(data, &Sized) {
                let _ = r.graph.verify();
                let _ = r.label();
            }
        }
        1 => {
            let blobs = BlobList::new(vec![Bytes::from(vec![1; 8])]);
            if let Ok(mut p) = Program::from_cbor(data, &Sized, &blobs) {
                let rules = kiln_backend_cpu::Cpu::target().memory;
                let _ = kiln_plan::verify(&p, &rules);
                let _ = p.compact();
            }
        }
        2 => {
            let _ = Target::from_cbor(data);
            let _ = wire::targets_from_cbor(data);
        }
        _ => {
            let _ = wire::tactics_from_cbor(data);
            let _ = wire::samples_from_cbor(data);
            let _ = wire::step_times_from_cbor(data);
            let _ = wire::host_steps_from_cbor(data);
        }
    }
});
