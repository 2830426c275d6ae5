//! The device that tests run on.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]
#![allow(dead_code, reason = "each test uses some")]

use kiln_backend::{Backend, Device, Target};
use kiln_backend_cuda::Cuda;
use std::sync::Arc;

/// The device, if there is one; panics without where `KILN_REQUIRE_CUDA=1`.
pub fn device() -> Option<(Arc<dyn Device>, Target)> {
    let target = match Cuda.targets() {
        Ok(mut t) => t.remove(0),
        Err(e) if std::env::var_os("KILN_REQUIRE_CUDA").is_some_and(|v| v == "1") => panic!("{e}"),
        Err(e) => {
            println!("skipped: {e}");
            return None;
        }
    };
    Some((Cuda.open(&target).unwrap(), target))
}
