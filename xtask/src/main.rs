//! Maintenance tasks of the workspace: `cargo xtask TASK [--check]`. Each task has a file of its own.

use std::path::Path;
use std::process::ExitCode;

mod c_api;
mod header;
mod proto;

/// A task writes its files under the workspace root, or, with `check`, fails where they differ from what it would write.
type Task = fn(root: &Path, check: bool) -> anyhow::Result<()>;

const TASKS: &[(&str, &str, Task)] = &[
    (
        "header",
        "plugins/include/kiln_plugin.h from kiln-abi, the headers of capi/include from the crates of the C API",
        headers,
    ),
    ("proto", "engine/onnx/src/generated.rs from onnx.proto3", proto::run),
];

/// Writes both headers.
fn headers(root: &Path, check: bool) -> anyhow::Result<()> {
    header::run(root, check)?;
    c_api::run(root, check)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let names: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (name, check) = match names[..] {
        [name] => (name, false),
        [name, "--check"] => (name, true),
        _ => return usage(),
    };
    let Some((_, _, task)) = TASKS.iter().find(|(known, _, _)| *known == name) else { return usage() };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    match task(&root, check) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: cargo xtask TASK [--check]\n\ntasks:");
    for (name, what, _) in TASKS {
        eprintln!("  {name:8} writes {what}; --check compares only");
    }
    ExitCode::from(2)
}
