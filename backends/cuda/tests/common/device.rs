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

/// Which runs of a test are done: one of `KILN_SAMPLE`, by default all. Tools that watch every access of a kernel are slow.
pub struct Sample {
    every: usize,
    at: usize,
}

impl Sample {
    pub fn new() -> Sample {
        let every = std::env::var("KILN_SAMPLE").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
        Sample { every: usize::max(every, 1), at: 0 }
    }

    /// Is all of it done, so that it is worth compiling ahead?
    pub fn is_all(&self) -> bool {
        self.every == 1
    }

    /// Is the next run done?
    pub fn takes(&mut self) -> bool {
        self.at += 1;
        self.at.is_multiple_of(self.every)
    }
}
