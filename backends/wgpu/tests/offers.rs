//! Offers of the wgpu backend: each has a text, and finding them writes none.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::{Backend, MemoryRules, Target};
use kiln_backend_wgpu::{Wgpu, planned};

#[path = "../../codegen/tests/common/launches.rs"]
mod launches;
#[path = "../../codegen/tests/common/offers.rs"]
mod offers;
#[path = "../../codegen/tests/common/snapshot.rs"]
mod snapshot;

fn target(features: &[&str], buffers: u64) -> Target {
    Target {
        backend: "wgpu".into(),
        version: "0".into(),
        arch: "vulkan".into(),
        device: "none".into(),
        driver: String::new(),
        features: features.iter().map(|f| (*f).to_owned()).collect(),
        numbers: std::collections::BTreeMap::from([
            ("shared_memory".into(), 32 << 10),
            ("workgroup_threads".into(), 1024),
            ("storage_buffers".into(), buffers),
            ("cooperative_part".into(), 16),
            ("subgroup_size".into(), 32),
        ]),
        memory: MemoryRules { alignment: 256, max_binding: 128 << 20, in_place: true, total: 0 },
        uuid: String::new(),
        traits: std::collections::BTreeMap::new(),
    }
}

#[test]
fn stored_launches_are_those_of_the_host() {
    // Iterations of a launch on a target that is no software.
    let rounds = 1 << 22;
    let software = target(&["i64", "software"], 32);
    launches::check(&Wgpu, &[target(&["cooperative_matrix", "f16", "i64", "subgroup"], 32)], rounds, planned);
    launches::check(&Wgpu, &[software], 50_000, planned);
}

#[test]
fn what_is_offered_has_a_text() {
    let cooperative = &["cooperative_matrix", "f16", "i64", "subgroup"][..];
    let targets = [(&["i64"][..], 32), (cooperative, 32), (&["i64", "subgroup"][..], 8), (&[][..], 4)];
    let targets = targets.map(|(features, buffers)| target(features, buffers));
    offers::check(&Wgpu, &targets, |region, tactic, target| Wgpu.compile(region, tactic, target));
}
