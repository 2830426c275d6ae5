//! Dependencies between the workspace's crates point one way.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// What each crate may depend on, dev-dependencies aside.
const ALLOWED: &[(&str, &[&str])] = &[
    ("kiln-abi", &[]),
    ("kiln-ir", &[]),
    ("kiln-npz", &[]),
    ("kiln-backend", &["kiln-abi", "kiln-ir"]),
    ("kiln-onnx", &["kiln-ir"]),
    ("kiln-runtime", &["kiln-abi", "kiln-ir", "kiln-backend"]),
    ("kiln-builder", &["kiln-ir", "kiln-backend", "kiln-runtime"]),
    ("kiln-reference", &["kiln-abi", "kiln-ir", "kiln-backend"]),
    ("kiln-backend-wgpu", &["kiln-abi", "kiln-ir", "kiln-backend"]),
    (
        "kiln",
        &[
            "kiln-abi",
            "kiln-ir",
            "kiln-backend",
            "kiln-runtime",
            "kiln-builder",
            "kiln-onnx",
            "kiln-reference",
        ],
    ),
    ("kiln-cli", &["kiln", "kiln-npz"]),
];

fn workspace() -> BTreeMap<String, BTreeSet<String>> {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo metadata runs");
    let meta: serde_json::Value = serde_json::from_slice(&out.stdout).expect("cargo metadata prints JSON");
    let packages = meta["packages"].as_array().expect("it lists packages");
    let names: BTreeSet<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    let deps = |p: &serde_json::Value| {
        let all = p["dependencies"].as_array().cloned().unwrap_or_default();
        all.iter()
            .filter(|d| d["kind"].is_null())
            .filter_map(|d| d["name"].as_str())
            .filter(|n| names.contains(n))
            .map(str::to_owned)
            .collect()
    };
    packages.iter().filter_map(|p| Some((p["name"].as_str()?.to_owned(), deps(p)))).collect()
}

#[test]
fn dependencies_point_one_way() {
    let found = workspace();
    for (name, allowed) in ALLOWED {
        let deps = found.get(*name).unwrap_or_else(|| panic!("{name} is no crate of the workspace"));
        let extra: Vec<_> = deps.iter().filter(|d| !allowed.contains(&d.as_str())).collect();
        assert!(extra.is_empty(), "{name} depends on {extra:?}; it may depend on {allowed:?} only");
    }
}

#[test]
fn a_runtime_only_program_links_neither_importer_nor_builder() {
    let found = workspace();
    let mut reach: BTreeSet<String> = BTreeSet::from(["kiln-runtime".to_owned()]);
    loop {
        let next: BTreeSet<String> = reach
            .iter()
            .flat_map(|c| found.get(c).cloned().unwrap_or_default())
            .chain(reach.clone())
            .collect();
        if next == reach {
            break;
        }
        reach = next;
    }
    for banned in ["kiln-onnx", "kiln-builder", "kiln-backend-wgpu"] {
        assert!(!reach.contains(banned), "kiln-runtime reaches {banned}");
    }
}
