//! Manifests of plug-ins, beside a file that is no library: never trusted, never a panic.

#![no_main]

use kiln_runtime::plugin::{Level, Policy, load};
use std::path::PathBuf;
use std::sync::OnceLock;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| tempfile::tempdir().expect("a folder").keep());
    let library = folder.join("libkiln_backend_fuzz.so");
    if !library.exists() {
        std::fs::write(&library, "no library").expect("a file is written");
    }
    std::fs::write(folder.join("fuzz.kilnplugin.toml"), data).expect("a file is written");
    for level in [Level::Manifest, Level::Any] {
        assert!(load(&library, &Policy { level, ..Policy::default() }).is_err());
    }
});
