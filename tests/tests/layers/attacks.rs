//! Libraries of layers that are wrong in one way each: an error with the path and what to do, and the process lives.

use crate::examples::{f32s, net_of, reference, run_on};
use crate::{abi, layers_of, library, loaded};
use kiln_network::{Network, PluginSpec};
use kiln_runtime::plugin::PluginError;
use std::path::PathBuf;

/// `mutant.c` as a library of this name, wrong in the ways that these macros say.
fn mutant(name: &str, wrongs: &[&str]) -> PathBuf {
    let mut macros: Vec<String> = wrongs.iter().map(|w| format!("-D{w}")).collect();
    macros.push(format!("-DLAYER=\"{name}\""));
    let macros: Vec<&str> = macros.iter().map(String::as_str).collect();
    library(&format!("mutant_{name}"), &abi::root().join("tests/tests/layers/mutant.c"), &macros)
}

fn refused(name: &str, wrongs: &[&str], says: &[&str]) -> PluginError {
    let path = mutant(name, wrongs);
    let e = loaded(&path).layers().map(drop).unwrap_err();
    let text = e.chain();
    assert!(text.starts_with(&format!("{}: ", path.display())), "{text}");
    for s in says {
        assert!(text.contains(s), "{text:?} lacks {s:?}");
    }
    e
}

#[test]
fn tables_that_are_missing_or_of_impossible_sizes() {
    let e = refused("kinds", &["KINDS=KILN_KIND_BACKEND"], &["offers no layers", "use another plug-in"]);
    assert!(matches!(e, PluginError::Kind { wanted: "layers", .. }));
    let e = refused("no_table", &["GET=no_table"], &["kiln.layer/1", "get_interface gave none", "rebuild"]);
    assert!(matches!(e, PluginError::MissingSlot { .. }));
    for (name, wrong) in
        [("zero", "TABLE_SIZE=0"), ("huge", "TABLE_SIZE=0xFFFFFFFFu"), ("cut", "TABLE_SIZE=8")]
    {
        let e = refused(name, &[wrong], &["table of \"kiln.layer/1\"", "rebuild it"]);
        assert!(matches!(e, PluginError::TableSize { .. }), "{e}");
    }
    for (name, wrong) in [("layer_zero", "LAYER_SIZE=0"), ("layer_huge", "LAYER_SIZE=0xFFFFFFFFu")] {
        let e = refused(name, &[wrong], &["table of a layer", "rebuild it"]);
        assert!(matches!(e, PluginError::TableSize { .. }), "{e}");
    }
    refused("no_layers", &["COUNT=0"], &["0 layers, wants 1 to 1024"]);
    refused("many_layers", &["COUNT=UINT64_MAX"], &["18446744073709551615 layers"]);
    refused("null_layer", &["ENTRY=NULL"], &["layer number 0", "null pointer"]);
}

#[test]
fn layers_with_missing_slots_and_broken_texts() {
    for (name, wrong, says) in [
        ("no_run", "RUN=NULL", "it has no run, which is required"),
        ("cut_before_run", "LAYER_SIZE=offsetof(kiln_layer, run)", "ends before it"),
        ("no_destroy", "DESTROY=NULL", "it has no destroy"),
        ("no_shapes", "OUTPUTS={NULL, 0}", "it has no outputs or describe"),
        ("nameless", "NAME={NULL, 0}", "its name has 0 bytes"),
        ("latin1", "NAME=KILN_STR(\"na\\xefve\")", "not UTF-8"),
        ("endless", "TYPES={\"f32\", UINT64_MAX}", "types has 18446744073709551615 bytes"),
        ("null_text", "TYPES={NULL, 5}", "null view of 5"),
        ("types", "TYPES=KILN_STR(\"f99:f32\")", "\"f99\""),
        ("format", "TYPES=KILN_STR(\"f32@nchw:f32\")", "\"f32@nchw\""),
        ("format_type", "TYPES=KILN_STR(\"f32@hwc8:f32\")", "a format of f16, bf16"),
        ("count_entry", "COUNT_ENTRY=KILN_STR(\"a b\")", "entry point \"a b\" that finds sizes"),
        ("count_same", "COUNT_ENTRY=KILN_STR(\"k\")", "the name of another function"),
        ("count_block", "COUNT_ENTRY=KILN_STR(\"c\")", "a formula of its blocks"),
        ("outputs", "OUTPUTS=KILN_STR(\"[i0.d\")", "brackets"),
        ("two_shapes", "OUTPUTS=KILN_STR(\"[1]; [2]\")", "2 shapes of 1 outputs"),
        ("aliases", "ALIASES=KILN_STR(\"0\")", "alias \"0\""),
        ("alias_beyond", "ALIASES=KILN_STR(\"0:7\")", "output 7 of 1"),
        ("workspace", "WORKSPACE=KILN_STR(\"(\")", "wants a number"),
        ("expression", "EXPRESSION=KILN_STR(\"x0 +\")", "wants a number"),
        ("tolerance", "TOLERANCE=KILN_STR(\"wild\")", "\"wild\""),
        ("many_fields", "FIELD_COUNT=5000", "5000 fields"),
        ("field_kind", "FIELD_KIND=77", "kind 77"),
        ("field_count", "FIELD_VALUES=2", "2 values"),
        ("kernel_null", "KERNEL=NULL", "table of a kernel"),
        ("kernel_size", "KERNEL_SIZE=4", "table of a kernel"),
        ("kernel_grid", "GRID=KILN_STR(\"1 1\")", "kernel \"k\""),
        ("pattern", "PATTERNS=KILN_STR(\"nothing(i0)\")", "no operator \"nothing\""),
        ("pattern_field", "PATTERNS=KILN_STR(\"add(i0, $m)\")", "binds the field \"m\""),
        ("native_null", "NATIVE=NULL", "table of a native form"),
        ("native_size", "NATIVE_SIZE=4", "table of a native form"),
        ("native_cut", "NATIVE_SIZE=offsetof(kiln_layer_native, enqueue)", "has no enqueue"),
        ("native_enqueue", "ENQUEUE=NULL", "native form \"n\" has no enqueue"),
        ("native_detach", "DETACH=NULL", "native form \"n\" has no detach"),
        ("native_many", "NATIVE_COUNT=5000", "5000 native forms"),
        ("native_twice", "NATIVE_COUNT=2", "native form \"n\": another one has this tactic"),
        ("native_condition", "NATIVE_CONDITION=KILN_STR(\"1 +\")", "native form \"n\""),
        ("native_types", "NATIVE_TYPES=KILN_STR(\"f99:f32\")", "\"f99\""),
        ("kernel_params", "PARAMS=KILN_STR(\"u99 n = 1\")", "u32, i32 or f32"),
    ] {
        let e = refused(name, &[wrong], &[says, "correct the library"]);
        assert!(matches!(e, PluginError::Layer { .. }), "{e}");
    }
}

/// A kernel in a language of a later version is passed over; a newer and larger table is read as far as it is known.
#[test]
fn what_a_newer_version_adds_is_passed_over() {
    let layers = layers_of(&mutant("newer", &["MINOR=99", "LANGUAGE=99", "LAYER_SIZE=sizeof(larger)"]));
    assert!(layers[0].kernels.is_empty() && layers[0].natives.len() == 1);
    assert!(layers_of(&mutant("other_device", &["NATIVE_DEVICE=99"]))[0].natives.is_empty());
    // A library of version 1.8 has a shorter table.
    let older = layers_of(&mutant("older", &["MINOR=8", "LAYER_SIZE=offsetof(kiln_layer, natives)"]));
    assert!(older[0].natives.is_empty() && older[0].kernels.len() == 1);
    let x = f32s(&[2], &[1.0, 2.0]);
    let net = net_of(PluginSpec::new("mutant", "newer"), std::slice::from_ref(&x));
    assert_eq!(run_on(&reference(), &net, &[x]).unwrap(), [f32s(&[2], &[2.0, 4.0])]);
}

/// Faults of a layer in a run are errors that name it and its library; the next run of another layer is right.
#[test]
fn runs_that_break_the_contract() {
    let x = f32s(&[3], &[1.0, 2.0, 3.0]);
    for (name, wrong, says) in [
        ("status", "BAD=1", "the library gives no reason"),
        ("larger", "BAD=2", "left size 4 of dimension 0 of output 0, wants 3"),
        ("negative", "BAD=3", "left size -1"),
        ("behind", "BAD=4", "wrote outside of the memory of output 0"),
        ("before", "BAD=5", "wrote outside of the memory of output 0"),
        ("panicked", "BAD=6", "panicked: as a panic of Rust says; report it to its author"),
        ("unknown", "BAD=7", "plug-in layer"),
        ("into_input", "BAD=8", "wrote outside of the memory of input 0"),
        ("workspace_end", "BAD=9", "wrote outside of the memory of workspace"),
    ] {
        let path = mutant(name, &[wrong]);
        layers_of(&path);
        let net = net_of(PluginSpec::new("mutant", name), std::slice::from_ref(&x));
        let e = run_on(&reference(), &net, std::slice::from_ref(&x)).unwrap_err();
        assert!(e.contains(says) && e.contains(&path.display().to_string()), "{name}: {e}");
    }
    layers_of(&mutant("right", &[]));
    let net = net_of(PluginSpec::new("mutant", "right"), std::slice::from_ref(&x));
    assert_eq!(run_on(&reference(), &net, &[x]).unwrap(), [f32s(&[3], &[2.0, 4.0, 6.0])]);
}

#[test]
fn outputs_begin_as_nan_and_found_sizes_agree() {
    let x = f32s(&[3], &[1.0, 2.0, 3.0]);
    layers_of(&mutant("lazy", &["BAD=10"]));
    let net = net_of(PluginSpec::new("mutant", "lazy"), std::slice::from_ref(&x));
    assert!(
        run_on(&reference(), &net, std::slice::from_ref(&x)).unwrap()[0].to_f64().iter().all(|v| v.is_nan())
    );
    let found = ["OUTPUTS=KILN_STR(\"[n <= i0.d0, n <= i0.d0]\")", "BAD=11"];
    layers_of(&mutant("unequal", &found));
    let net = net_of(PluginSpec::new("mutant", "unequal"), std::slice::from_ref(&x));
    let e = run_on(&reference(), &net, &[x]).unwrap_err();
    assert!(e.contains("the same for one size"), "{e}");
}

#[test]
fn create_and_describe_that_break_the_contract() {
    let mut net = Network::new("n");
    let x = net.add_input("x", kiln_ir::TensorType::new(kiln_ir::DType::F32, [3])).unwrap();
    let describes = |text: &str| vec!["OUTPUTS={NULL, 0}".to_owned(), format!("DESCRIBE={text}")];
    for (name, wrongs, says) in [
        ("nothing", vec!["CREATE=create_nothing".to_owned()], "reports success but made no object"),
        ("refuses", vec!["CREATE=create_refuses".to_owned()], "not on a Monday"),
        ("no_text", describes("\"\""), "wants dimensions in brackets"),
        ("other_text", describes("\"[i7.d*]\""), "input 7 of 1"),
        ("no_utf8", describes("\"[\\xff]\""), "not UTF-8"),
        ("two_texts", describes("\"[1];[2]\""), "describes 2 shapes of 1 outputs"),
    ] {
        let wrongs: Vec<&str> = wrongs.iter().map(String::as_str).collect();
        layers_of(&mutant(name, &wrongs));
        let e = net.add_plugin(&[x], PluginSpec::new("mutant", name)).map(drop).unwrap_err().to_string();
        assert!(e.contains(says), "{name}: {e}");
    }
}

#[test]
fn two_libraries_with_one_layer() {
    let first = mutant("twice", &[]);
    layers_of(&first);
    let copy = abi::folder("layers-mutant_twice").join("libkiln_layers_other.so");
    std::fs::copy(&first, &copy).unwrap();
    let e = loaded(&copy).layers().map(drop).unwrap_err();
    assert!(matches!(&e, PluginError::LayerTaken { by, .. } if *by == first), "{e}");
    assert!(e.to_string().contains("defines already; remove one of them"), "{e}");
}
