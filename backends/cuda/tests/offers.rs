//! Offers of the CUDA backend: each has a text, and finding them writes none.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend_cuda::{Cuda, planned, target, written};

#[path = "../../codegen/tests/common/launches.rs"]
mod launches;
#[path = "../../codegen/tests/common/offers.rs"]
mod offers;
#[path = "../../codegen/tests/common/snapshot.rs"]
mod snapshot;

#[test]
fn stored_launches_are_those_of_the_host() {
    let known = |name| target::known(name).unwrap();
    launches::check(&Cuda, &[known("h200"), known("a10")], usize::MAX, planned);
}

#[test]
fn what_is_offered_has_a_text() {
    let known = |name| target::known(name).unwrap();
    let mut without_tf32 = known("h200");
    without_tf32.features.retain(|f| f != "tf32");
    offers::check(&Cuda, &[known("h200"), without_tf32, known("a10")], |region, tactic, target| {
        Ok(written(region, tactic, target)?.0.into_bytes())
    });
}
