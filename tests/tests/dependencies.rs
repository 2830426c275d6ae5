//! The structure of the workspace: dependencies between crates point one way, files of operators have the names of families.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Dependencies that each crate may have, dev-dependencies aside.
const ALLOWED: &[(&str, &[&str])] = &[
    ("kiln-abi", &[]),
    ("kiln-files", &[]),
    ("kiln-layer", &["kiln-abi"]),
    ("kiln-ir", &[]),
    ("kiln-npz", &["kiln-files"]),
    ("kiln-ops", &["kiln-ir"]),
    ("kiln-recipes", &["kiln-ir", "kiln-ops"]),
    ("kiln-network", &["kiln-ir", "kiln-ops"]),
    ("kiln-kinds", &["kiln-network"]),
    ("kiln-backend", &["kiln-abi", "kiln-ir", "kiln-ops"]),
    ("kiln-onnx", &["kiln-files", "kiln-ir", "kiln-network"]),
    ("kiln-plan", &["kiln-files", "kiln-ir", "kiln-ops", "kiln-backend"]),
    (
        "kiln-runtime",
        &["kiln-abi", "kiln-files", "kiln-ir", "kiln-ops", "kiln-recipes", "kiln-backend", "kiln-plan"],
    ),
    (
        "kiln-builder",
        &["kiln-files", "kiln-ir", "kiln-ops", "kiln-recipes", "kiln-network", "kiln-backend", "kiln-plan"],
    ),
    ("kiln-backend-cpu", &["kiln-abi", "kiln-ir", "kiln-ops", "kiln-backend"]),
    ("kiln-reference", &["kiln-abi", "kiln-ir", "kiln-ops", "kiln-backend"]),
    ("kiln-codegen", &["kiln-ir", "kiln-ops", "kiln-backend"]),
    ("kiln-gpu", &["kiln-ir", "kiln-ops", "kiln-backend"]),
    ("kiln-backend-wgpu", &["kiln-abi", "kiln-ir", "kiln-ops", "kiln-backend", "kiln-codegen", "kiln-gpu"]),
    (
        "kiln-backend-cuda",
        &["kiln-abi", "kiln-files", "kiln-ir", "kiln-ops", "kiln-backend", "kiln-codegen", "kiln-gpu"],
    ),
    (
        "kiln",
        &[
            "kiln-abi",
            "kiln-files",
            "kiln-ir",
            "kiln-network",
            "kiln-npz",
            "kiln-backend",
            "kiln-plan",
            "kiln-runtime",
            "kiln-builder",
            "kiln-onnx",
            "kiln-backend-cpu",
            "kiln-reference",
        ],
    ),
    ("kiln-cli", &["kiln", "kiln-backend", "kiln-files", "kiln-ir", "kiln-npz", "kiln-onnx"]),
    ("kiln-python", &["kiln", "kiln-cli", "kiln-ir", "kiln-kinds", "kiln-network", "kiln-onnx", "kiln-ops"]),
];

/// The dependencies of each crate within the workspace; those of its examples and tests too where `dev` says so.
fn workspace(dev: impl Fn(&str) -> bool) -> BTreeMap<String, BTreeSet<String>> {
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
            .filter(|d| d["kind"].is_null() || d["kind"] == "dev" && p["name"].as_str().is_some_and(&dev))
            .filter_map(|d| d["name"].as_str())
            .filter(|n| names.contains(n))
            .map(str::to_owned)
            .collect()
    };
    packages.iter().filter_map(|p| Some((p["name"].as_str()?.to_owned(), deps(p)))).collect()
}

#[test]
fn dependencies_point_one_way() {
    let found = workspace(|_| false);
    for (name, allowed) in ALLOWED {
        let deps = found.get(*name).unwrap_or_else(|| panic!("{name} is no crate of the workspace"));
        let extra: Vec<_> = deps.iter().filter(|d| !allowed.contains(&d.as_str())).collect();
        assert!(extra.is_empty(), "{name} depends on {extra:?}; it may depend on {allowed:?} only");
    }
}

/// All crates of the workspace that a crate links.
fn reach(found: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::from([from.to_owned()]);
    loop {
        let next: BTreeSet<String> =
            all.iter().flat_map(|c| found.get(c).cloned().unwrap_or_default()).chain(all.clone()).collect();
        if next == all {
            return all;
        }
        all = next;
    }
}

/// The example `run_engine` of `kiln-runtime` may use its dev-dependencies too.
#[test]
fn a_program_that_only_runs_engines_links_neither_importer_nor_builder() {
    let linked = reach(&workspace(|name| name == "kiln-runtime"), "kiln-runtime");
    assert!(linked.contains("kiln-backend-cpu"), "the example has a backend: {linked:?}");
    for banned in ["kiln-onnx", "kiln-builder", "kiln-backend-wgpu", "kiln-backend-cuda", "kiln"] {
        assert!(!linked.contains(banned), "run_engine reaches {banned}: {linked:?}");
    }
}

/// The run-only form of the CUDA backend, as cargo resolves it for users who build it alone.
#[test]
fn a_cuda_backend_that_only_runs_plans_has_no_code_generation() {
    let linked = |features: &[&str]| linked("kiln-backend-cuda", features);
    let (full, run) = (linked(&[]), linked(&["--no-default-features", "--features", "run"]));
    assert!(full.contains("kiln-codegen") && run.contains("kiln-gpu"), "{full:?} {run:?}");
    for banned in ["kiln-codegen", "kiln-builder", "kiln-onnx", "kiln-network"] {
        assert!(!run.contains(banned), "the run-only form links {banned}");
    }
}

#[test]
fn the_library_without_its_feature_build_links_neither_importer_nor_builder() {
    let (full, run) = (linked("kiln", &[]), linked("kiln", &["--no-default-features"]));
    assert!(run.contains("kiln-runtime"), "{run:?}");
    for left_out in ["kiln-builder", "kiln-onnx", "kiln-network"] {
        assert!(full.contains(left_out) && !run.contains(left_out), "{left_out}: {run:?}");
    }
}

/// All crates that a crate links with these features.
fn linked(package: &str, features: &[&str]) -> BTreeSet<String> {
    let out = Command::new(env!("CARGO"))
        .args(["tree", "-p", package, "-e", "normal", "--prefix", "none", "--offline"])
        .args(features)
        // All crates of the workspace with the features of all others are another program.
        .env_remove("CARGO_RESOLVER_FEATURE_UNIFICATION")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo tree runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.lines().filter_map(|l| Some(l.split(' ').next()?.to_owned())).collect()
}

/// Files and folders among those of operators that are not families: what families share.
const SHARED: &[(&str, &[&str])] = &[
    ("engine/ops/src", &["indices", "layout", "lib", "reformat", "testing", "util"]),
    ("engine/onnx/src/ops", &["contrib", "mod"]),
    ("kernels", &["checks", "mma", "prelude", "wgmma"]),
    ("shaders", &["checks", "halves", "integer", "launch", "math", "runs", "spans", "storage"]),
];

#[test]
fn operators_are_in_files_named_by_family() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (folder, shared) in SHARED {
        let names: Vec<String> = std::fs::read_dir(root.join(folder))
            .expect("the folder exists")
            .map(|e| {
                e.expect("it is readable")
                    .path()
                    .file_stem()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        assert!(names.len() > 20, "{folder} holds the operators");
        for name in names {
            let known = kiln_ops::FAMILY_NAMES.contains(&name.as_str()) || shared.contains(&name.as_str());
            assert!(
                known,
                "{folder}/{name} is neither a family of kiln_ops::FAMILY_NAMES nor listed as shared"
            );
        }
    }
}

/// A kernel's file names the structure of its parameters, and a program may link all backends.
#[test]
fn structures_of_parameters_have_unique_names() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    rust_files(&root.join("backends"), &mut files);
    let mut declared: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in &files {
        let text = std::fs::read_to_string(file).expect("it is text");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for part in code.split("params! {").skip(1) {
            let name = part.split_once("struct ").and_then(|p| p.1.split_once(" {")).map_or("", |p| p.0);
            declared.entry(name.to_owned()).or_default().push(file.display().to_string());
        }
    }
    assert!(declared.len() > 60, "only {} structures are found", declared.len());
    for (name, files) in declared {
        assert!(
            name.ends_with("Params"),
            "params! of {files:?} declares \"{name}\", wanted a name \"…Params\""
        );
        assert_eq!(files.len(), 1, "\"{name}\" is declared several times: {files:?}");
    }
}

/// Whether a line has a heading of a section that would have to be cut out, or reads a parameter by its position.
fn is_template(line: &str) -> bool {
    let positional = line.match_indices('(').any(|(at, _)| {
        let name = line[..at].rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
        let digits = line[at + 1..].trim_start_matches(|c: char| c.is_ascii_digit());
        ["m", "mi", "mf"].contains(&name) && digits.starts_with('u') && digits.len() < line.len() - at - 1
    });
    line.contains("// ---- ") || positional
}

/// Kernel files are read as they stand, by compilers as by people.
#[test]
fn kernel_files_are_not_templates() {
    assert!(is_template("// ---- tiled") && is_template("let n = m(30u);") && is_template("x + mf(1u + k)"));
    assert!(!is_template("let n = sum(30u) + self.m();") && !is_template("atom(3u)"));
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut open: Vec<_> = ["kernels", "shaders", "backends"].iter().map(|f| root.join(f)).collect();
    let (mut seen, mut found) = (0, Vec::new());
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(&path).expect("a folder").flatten().map(|e| e.path()));
        } else if path.extension().is_some_and(|e| e == "cuh" || e == "wgsl" || e == "rs") {
            let text = std::fs::read_to_string(&path).expect("it is readable");
            let lines = text.lines().filter(|l| is_template(l));
            found.extend(lines.map(|l| format!("{}: {l}", path.display())));
            seen += 1;
        }
    }
    assert!(seen > 200, "only {seen} files");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A name that is mistyped in a comparison is silently another operator; that of a constant does not compile.
#[test]
fn operators_are_compared_with_constants() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for folder in ["engine", "backends"] {
        rust_files(&root.join(folder), &mut files);
    }
    let mut seen = 0;
    let mut wrong = Vec::new();
    for file in &files {
        let name = file.strip_prefix(&root).expect("a file of the workspace").display().to_string();
        if !name.contains("/src/") || name.contains("/tests") {
            continue;
        }
        seen += 1;
        let text = std::fs::read_to_string(file).expect("a readable file");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (i, line) in code.lines().enumerate() {
            let compares = [
                "op.is(\"",
                "op.name() == \"",
                "op.name() != \"",
                "op()?.name() == \"",
                "op()?.name() != \"",
                "match op.name()",
                "match node.op.name()",
                "match n.op.name()",
            ];
            if compares.iter().any(|c| line.contains(c)) {
                wrong.push(format!("{name}:{}: {}", i + 1, line.trim()));
            }
        }
    }
    assert!(seen > 300, "{seen} files");
    assert!(wrong.is_empty(), "compared with text instead of constants:\n{}", wrong.join("\n"));
}

fn rust_files(folder: &std::path::Path, out: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder exists").flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}
