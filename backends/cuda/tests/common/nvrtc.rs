//! Whether kernels can be compiled here.

use kiln_backend_cuda::compile::Nvrtc;
use std::path::Path;
use std::sync::Once;

/// Whether NVRTC is there. Looks into the folder of scripts/setup.sh, too.
pub fn nvrtc() -> bool {
    static SET: Once = Once::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/nvrtc");
    SET.call_once(|| {
        if std::env::var_os("KILN_NVRTC").is_none() && folder.is_dir() {
            // SAFETY: before this test's threads read the environment.
            unsafe { std::env::set_var("KILN_NVRTC", &folder) };
        }
    });
    match Nvrtc::get() {
        Ok(_) => true,
        Err(e) if std::env::var_os("KILN_REQUIRE_NVRTC").is_some_and(|v| v == "1") => panic!("{e}"),
        Err(e) => {
            println!("skipped: {e}");
            false
        }
    }
}
