//! Ranges reach a profiler that is attached by the environment.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend_cuda::nvtx::Range;
use std::path::Path;
use std::process::Command;

/// Says that this process is the profiled one.
const PROFILED: &str = "KILN_TEST_PROFILED";

#[test]
fn ranges_reach_the_profiler() {
    if std::env::var_os(PROFILED).is_some() {
        let _run = Range::of("run");
        drop(Range::of("conv + relu"));
        drop(Range::of("a name\0with a zero"));
        return;
    }
    let folder = std::env::temp_dir().join(format!("kiln-nvtx-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (library, ranges) = (folder.join("libinjected.so"), folder.join("ranges"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvtx/injected.c");
    // A host that only runs tests may have neither the source nor a compiler.
    if !source.is_file() {
        return;
    }
    let cc = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status().unwrap();
    assert!(cc.success());
    let run = |injected: &Path| {
        Command::new(std::env::current_exe().unwrap())
            .env(PROFILED, "1")
            .env("RANGES", &ranges)
            .env("NVTX_INJECTION64_PATH", injected)
            .status()
            .unwrap()
            .success()
    };
    assert!(run(&library));
    let told = std::fs::read_to_string(&ranges).unwrap();
    assert_eq!(told, "push run\npush conv + relu\npop\npush \npop\npop\n");
    // A profiler that is not there is no error.
    assert!(run(&folder.join("none.so")));
    std::fs::remove_dir_all(&folder).unwrap();
}
