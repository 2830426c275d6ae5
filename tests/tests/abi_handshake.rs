//! Libraries that are wrong in one way each are refused with an error of their own, before any of their code runs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use kiln_abi::{KILN_FLAG_PANIC_ABORT, KILN_KIND_LAYERS, KILN_MAGIC, TARGET};
use kiln_backend::BackendError;
use kiln_runtime::plugin::{Plugin, PluginError, Policy, load};
use std::path::Path;
use std::sync::Arc;

mod abi;

use abi::mutant;

/// Tries a library whose code aborts the process if any of it runs, and checks that the message says what it must.
fn refused(name: &str, wrongs: &[&str], says: &[&str]) -> PluginError {
    let path = mutant(name, &[&["NO_CODE"], wrongs].concat());
    refusal(&path, says)
}

fn refusal(path: &Path, says: &[&str]) -> PluginError {
    let e = load(path, &Policy::default()).map(drop).unwrap_err();
    let text = e.chain();
    assert_eq!(e.path(), Some(path), "{text}");
    assert!(text.starts_with(&format!("{}: ", path.display())), "{text}");
    for s in says {
        assert!(text.contains(s), "{text:?} lacks {s:?}");
    }
    e
}

fn accepted(path: &Path) -> Arc<Plugin> {
    load(path, &Policy::default()).unwrap_or_else(|e| panic!("{}", e.chain()))
}

#[test]
fn what_is_no_plugin() {
    let dir = abi::folder("no_plugin");
    let text = dir.join("libkiln_backend_text.so");
    std::fs::write(&text, "no library").unwrap();
    let e = refusal(&text, &["not a library that can be opened", "file too short"]);
    assert!(matches!(e, PluginError::Open { .. }));
    let source = dir.join("empty.c");
    std::fs::write(&source, "int kiln_something_else = 1;\n").unwrap();
    let empty = abi::library("empty", &[source], &[]);
    let e = refusal(&empty, &["exports no \"kiln_plugin_descriptor\"", "undefined symbol"]);
    assert!(matches!(e, PluginError::NoDescriptor { .. }));
    let e = load(&dir.join("nowhere.so"), &Policy::default()).map(drop).unwrap_err();
    assert!(matches!(e, PluginError::File { .. }), "{e}");
    assert!(matches!(load(&dir, &Policy::default()).map(drop).unwrap_err(), PluginError::File { .. }));
}

#[test]
fn the_frozen_prefix() {
    let e = refused("magic", &["MAGIC=0x1122334455667788"], &["0x1122334455667788", "0x47554c504e4c494b"]);
    assert!(
        matches!(e, PluginError::Magic { found: 0x1122_3344_5566_7788, wanted, .. } if wanted == KILN_MAGIC)
    );
    // An old major whose descriptor is short: only the prefix is read of it.
    let e = refused("old_major", &["MAJOR=0", "MINOR=9", "SIZE=32"], &["0.9", "1.13", "rebuild it"]);
    assert!(matches!(e, PluginError::Major { found, wanted, .. } if (&*found, &*wanted) == ("0.9", "1.13")));
    let e = refused("new_major", &["MAJOR=2", "MINOR=0"], &["2.0", "1.13"]);
    assert!(matches!(e, PluginError::Major { .. }));
    let e = refused("min_host", &["MINOR=14", "MIN_HOST=14"], &["1.14", "1.13", "upgrade Kiln"]);
    assert!(matches!(e, PluginError::HostTooOld { .. }));
}

#[test]
fn sizes_of_the_descriptor() {
    for (name, size) in [("absurd", "0xFFFFFFFFu"), ("none", "0"), ("prefix_only", "32"), ("cut", "135")] {
        let e = refused(name, &[&format!("SIZE={size}")], &["descriptor has", "wanted 136 to 4096"]);
        assert!(matches!(e, PluginError::TableSize { table: "descriptor", .. }), "{e}");
    }
}

#[test]
fn a_newer_minor_version_runs() {
    let path = mutant("newer", &["MINOR=99", "SIZE=sizeof(larger)", "KINDS=0xFF01", "FLAGS=0x7FFFFFF0"]);
    let plugin = accepted(&path);
    assert_eq!((plugin.info().abi, plugin.info().vendor.as_str()), ((1, 99), ""));
    let backend = plugin.backend().unwrap();
    assert_eq!(kiln_backend::Backend::targets(&backend), Ok(vec![]));
}

#[test]
fn another_target() {
    let e = refused("target", &["TARGET=KILN_STR(\"pdp11-dec-unix\")"], &["pdp11-dec-unix", TARGET]);
    assert!(matches!(e, PluginError::Target { wanted, .. } if wanted == TARGET));
}

#[test]
fn broken_texts() {
    for (name, text, says) in [
        ("latin1", "KILN_STR(\"na\\xefve\")", "not UTF-8"),
        ("endless", "{\"x\", UINT64_MAX}", "18446744073709551615 bytes, at most 256"),
        ("long", "{\"x\", 257}", "257 bytes, at most 256"),
        ("null", "{NULL, 5}", "a null view of 5"),
    ] {
        let e = refused(name, &[&format!("VENDOR={text}")], &["vendor", says, "wanted UTF-8"]);
        assert!(matches!(e, PluginError::Text { field: "vendor", .. }), "{e}");
    }
    for (name, text) in [("nameless", "{NULL, 0}"), ("path_name", "KILN_STR(\"../x\")")] {
        let e = refused(name, &[&format!("NAME={text}")], &["name", "1 to 64 letters"]);
        assert!(matches!(e, PluginError::Text { field: "name", .. }), "{e}");
    }
}

#[test]
fn flags_and_kinds() {
    let path = mutant("aborts", &[&format!("FLAGS={KILN_FLAG_PANIC_ABORT}")]);
    let e = refusal(&path, &["panic=abort", "panic=unwind"]);
    assert!(matches!(e, PluginError::Flags { .. }));
    let allowed = Policy { allow_abort: true, ..Policy::default() };
    assert_eq!(load(&path, &allowed).unwrap().info().flags, KILN_FLAG_PANIC_ABORT);
    let e =
        load(&mutant("cuda", &["NO_CODE", "FLAGS=4"]), &Policy { allow_cuda: false, ..Policy::default() });
    assert!(matches!(e.map(drop).unwrap_err(), PluginError::Flags { .. }));
    let plugin = accepted(&mutant("layers", &[&format!("KINDS={KILN_KIND_LAYERS}")]));
    let e = plugin.backend().map(drop).unwrap_err();
    assert!(matches!(e, PluginError::Kind { found: KILN_KIND_LAYERS, wanted: "backend", .. }), "{e}");
}

#[test]
fn required_slots() {
    let e = refused("no_init", &["INIT=NULL"], &["no init", "null pointer", "rebuild"]);
    assert!(matches!(e, PluginError::MissingSlot { table: "descriptor", wanted: "init", .. }));
    let e = refused("no_get", &["GET=NULL"], &["no get_interface"]);
    assert!(matches!(e, PluginError::MissingSlot { wanted: "get_interface", .. }));
    for (name, wrong, slot, found) in [
        ("no_create", "CREATE=NULL", "backend_create", "a null pointer"),
        ("no_outputs", "OUTPUTS=NULL", "context_outputs", "a null pointer"),
        ("cut_table", "TABLE_SIZE=56", "device_destroy", "a table of 56 bytes, which ends before it"),
        ("no_table", "GET=no_table", "table: get_interface gave none", "a null pointer"),
    ] {
        let e = accepted(&mutant(name, &[wrong])).backend().map(drop).unwrap_err();
        assert!(e.to_string().contains("kiln.backend/1"), "{e}");
        match e {
            PluginError::MissingSlot { wanted, found: f, .. } => assert_eq!((wanted, &*f), (slot, found)),
            other => panic!("{other}"),
        }
    }
    for (name, size) in [("table_0", "0"), ("table_huge", "0xFFFFFFFFu")] {
        let plugin = accepted(&mutant(name, &[&format!("TABLE_SIZE={size}")]));
        assert!(matches!(plugin.backend().map(drop), Err(PluginError::TableSize { .. })), "{name}");
    }
}

#[test]
fn a_library_that_refuses_to_start_is_not_asked_again() {
    let path = mutant("refuses", &["INIT=init_fails"]);
    for _ in 0..2 {
        let e = refusal(&path, &["refuses to start", "no such device"]);
        assert!(matches!(e, PluginError::Init { source: BackendError::Io(_), .. }));
    }
    let e = accepted(&mutant("creates_nothing", &["CREATE=create_nothing"])).backend().map(drop).unwrap_err();
    assert!(e.chain().contains("reports success but made no object"), "{}", e.chain());
}

#[test]
fn a_library_is_started_once() {
    let path = mutant("once", &[]);
    let link = abi::folder("links").join("libkiln_backend_link.so");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(Arc::ptr_eq(&accepted(&path), &accepted(&link)));
}
