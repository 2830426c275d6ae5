//! Options of builds, loads and refits of the library have names in C and in Python.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::collections::BTreeSet;
use std::path::Path;

/// An option by its type and name in Rust, the function or setting of C, and the name in Python.
type Row = (&'static str, &'static str, &'static str);

const BUILD_CONFIG: &[Row] = &[
    ("reduced", "kiln_builder_permit_type", "types"),
    ("ranges", "kiln_builder_set_range", "ranges"),
    ("narrowing", "\"narrowing\"", "narrowing"),
    ("layer_types", "kiln_builder_set_layer_types", "layer_types"),
    ("tf32", "\"tf32\"", "tf32"),
    ("tactic_sources", "\"tactic_source\"", "tactic_sources"),
    ("version_compatible", "kiln_builder_set_version_compatible", "version_compatible"),
    ("sparsity", "kiln_builder_set_sparsity", "sparsity"),
    ("strong_types", "\"strong_types\"", "strong_types"),
    ("io_type", "\"io_type\"", "io_type"),
    ("io", "kiln_builder_set_io", "io"),
    ("direct_io", "\"direct_io\"", "direct_io"),
    ("constraints", "kiln_builder_set_constraints", "constraints"),
    ("debug_tensors", "\"debug_tensor\"", "debug_tensors"),
    ("refit", "kiln_builder_set_refit", "refit"),
    ("fold", "\"fold\"", "fold"),
    ("fold_limit", "\"fold_limit\"", "fold_limit"),
    ("fold_budget", "\"fold_budget\"", "fold_budget"),
    ("fuse", "\"fuse\"", "fuse"),
    ("search", "\"search\"", "search"),
    ("locked", "\"locked\"", "locked"),
    ("estimates", "\"estimates\"", "estimates"),
    ("excluded_tactics", "\"excluded_tactic\"", "excluded_tactics"),
    ("tactic_rules", "\"tactic_rule\"", "tactic_rules"),
    ("deterministic", "\"deterministic\"", "deterministic"),
    ("selector", "kiln_builder_set_selector", "selector"),
    ("reject_empty", "\"reject_empty\"", "reject_empty"),
    ("share_times", "\"share_times\"", "share_times"),
    ("pools", "kiln_builder_set_memory_pool_limit", "pools"),
    ("limit", "\"limit_sms\"", "limit"),
    ("max_tactics", "\"max_tactics\"", "max_tactics"),
    ("estimate_limit", "\"estimate_limit\"", "estimate_limit"),
    ("samples", "\"samples\"", "samples"),
    ("shape_buckets", "\"shape_buckets\"", "shape_buckets"),
    ("max_aux_streams", "\"max_aux_streams\"", "max_aux_streams"),
    ("profiles", "kiln_builder_set_shape", "profiles"),
    ("monitor", "kiln_builder_set_monitor", "monitor"),
    ("strict", "\"strict\"", "strict"),
    ("replace_by_plugins", "\"replace_by_plugin\"", "replace_by_plugins"),
];

const BUILD_OPTIONS: &[Row] = &[
    ("backend", "kiln_builder_set_backend", "backend"),
    ("fallback", "\"fallback\"", "fallback"),
    ("device", "device_length", "device"),
    ("hardware_compatibility", "\"hardware_compatibility\"", "hardware_compatibility"),
    ("target", "kiln_builder_set_target", "target"),
    ("config", "kiln_builder_set", "BuildOptions"),
    ("shapes", "kiln_builder_set_shape", "shapes"),
    ("profiles", "kiln_builder_set_shape", "profiles"),
    ("max_batch", "\"max_batch\"", "max_batch"),
    ("timing_cache", "\"timing_cache_file\"", "timing_cache"),
    ("times", "kiln_builder_set_timing_cache", "timing_cache"),
    ("strict_times", "\"strict_times\"", "strict_times"),
    ("replay", "\"replay\"", "replay"),
    ("verbosity", "\"verbosity\"", "verbosity"),
    ("portable", "\"portable\"", "portable"),
    ("embed_plugins", "\"embed_plugins\"", "embed_plugins"),
    ("strip_weights", "kiln_builder_set_strip_weights", "strip_weights"),
];

const LOAD_OPTIONS: &[Row] = &[
    ("device", "device_length", "device"),
    ("weight_budget", "weight_budget", "weight_budget"),
    ("automatic_weight_budget", "KILN_WEIGHT_BUDGET_AUTOMATIC", "\"auto\""),
];

/// Functions of the refitter with names of their own in C: those that set something, begin the refit, or report on it.
const REFITTER: &[Row] = &[
    ("of_plan", "kiln_refitter_of_plan", "of_plan"),
    ("set", "kiln_refitter_set", "set"),
    ("set_weights", "kiln_refitter_set_role", "set_weights"),
    ("set_on_device", "kiln_refitter_set_on_device", "set_on_device"),
    ("set_weights_on_device", "kiln_refitter_set_on_device", "set_on_device"),
    ("set_stream", "kiln_refitter_set_stream", "set_stream"),
    ("set_dynamic_range", "kiln_refitter_set_dynamic_range", "set_dynamic_range"),
    ("set_validation", "kiln_refitter_set_validation", "set_validation"),
    ("unset", "kiln_refitter_unset", "unset"),
    ("unset_weights", "kiln_refitter_unset", "unset_weights"),
    ("get_missing", "kiln_refitter_missing", "get_missing"),
    ("refit", "kiln_refitter_refit", "refit"),
    ("refit_async", "kiln_refitter_start", "refit_async"),
    ("times", "kiln_refitter_times", "times"),
    ("into_plan", "kiln_refitter_plan", "plan"),
];

/// Functions of the refitter that only tell: JSON of `kiln_refitter_weights` in C, functions of the same names in Python.
const TOLD: [&str; 10] = [
    "weights",
    "get_all",
    "get_all_roles",
    "prototype",
    "prototype_of",
    "get",
    "is_current",
    "get_missing_roles",
    "dynamic_range",
    "tensors_with_dynamic_range",
];

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Names of the public fields of a structure.
fn fields(path: &str, name: &str) -> BTreeSet<String> {
    let text = read(path);
    let start = text.find(&format!("pub struct {name} {{")).unwrap_or_else(|| panic!("{path} has no {name}"));
    let body = &text[start..start + text[start..].find("\n}").unwrap()];
    let lines = body.lines().filter_map(|l| l.strip_prefix("    pub ")?.split_once(':'));
    lines.map(|(field, _)| field.to_owned()).collect()
}

/// Names of the public functions of all `impl Refitter` of the runtime.
fn refitter() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in ["mod.rs", "on_device.rs", "ranges.rs", "task.rs"] {
        let text = read(&format!("engine/runtime/src/refit/{file}"));
        for part in text.split("\nimpl Refitter {").skip(1) {
            let body = &part[..part.find("\n}").unwrap_or(part.len())];
            let functions = body.lines().filter_map(|l| {
                let l = l.strip_prefix("    pub ")?;
                l.strip_prefix("unsafe ").unwrap_or(l).strip_prefix("fn ")?.split_once('(')
            });
            found.extend(functions.map(|(name, _)| name.to_owned()));
        }
    }
    found
}

/// Whether a text has a name as a whole word.
fn has(text: &str, name: &str) -> bool {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(name).any(|(at, _)| {
        let (before, after) = (text[..at].chars().next_back(), text[at + name.len()..].chars().next());
        name.starts_with('"') || !part(before) && !part(after)
    })
}

fn check(of: &str, known: &BTreeSet<String>, rows: &[Row], told: &[&str]) {
    let listed: BTreeSet<String> =
        rows.iter().map(|r| r.0).chain(told.iter().copied()).map(str::to_owned).collect();
    let missing: Vec<_> = known.difference(&listed).collect();
    assert!(
        missing.is_empty(),
        "{of}: {missing:?} have no names in C and Python; add them, and rows to this table"
    );
    let gone: Vec<_> = listed.difference(known).filter(|n| rows.iter().any(|r| r.0 == n.as_str())).collect();
    assert!(gone.is_empty(), "{of}: {gone:?} are in the table, and not in the library");
    let c = read("capi/include/kiln_runtime.h")
        + &read("capi/include/kiln.h")
        + &read("capi/full/src/settings.rs");
    let python = read("python/kiln/_options.py") + &read("python/kiln/_kiln.pyi");
    for (name, in_c, in_python) in rows {
        assert!(has(&c, in_c), "{of}::{name}: C has no {in_c}");
        assert!(has(&python, in_python), "{of}::{name}: Python has no {in_python}");
    }
}

#[test]
fn options_have_names_in_c_and_python() {
    check("BuildConfig", &fields("engine/builder/src/config.rs", "BuildConfig"), BUILD_CONFIG, &[]);
    check("BuildOptions", &fields("engine/kiln/src/build.rs", "BuildOptions"), BUILD_OPTIONS, &[]);
    check("LoadOptions", &fields("engine/runtime/src/engine.rs", "LoadOptions"), LOAD_OPTIONS, &[]);
    check("Refitter", &refitter(), REFITTER, &TOLD);
}

#[test]
fn an_option_without_a_row_is_found() {
    let known = ["shape_buckets".to_owned(), "new_option".to_owned()].into();
    let rows: &[Row] = &[("shape_buckets", "\"shape_buckets\"", "shape_buckets")];
    let told = std::panic::catch_unwind(|| check("BuildConfig", &known, rows, &[])).unwrap_err();
    assert!(told.downcast_ref::<String>().unwrap().contains("new_option"));
    let wrong: &[Row] = &[("shape_buckets", "\"shape_bucket\"", "shape_buckets")];
    let known = ["shape_buckets".to_owned()].into();
    assert!(std::panic::catch_unwind(|| check("BuildConfig", &known, wrong, &[])).is_err());
}
