//! Symbols of the libraries: the functions of the headers and nothing else.

use super::data::root;
use super::install::{built, succeeded};
use std::collections::BTreeSet;
use std::process::Command;

fn exported(library: &str) -> BTreeSet<String> {
    let path = built().join(library);
    let out = Command::new("nm")
        .args(["-D", "--defined-only", "--format=just-symbols"])
        .arg(path)
        .output()
        .unwrap();
    succeeded(out, "nm").lines().map(|l| l.split('@').next().unwrap_or(l).to_owned()).collect()
}

/// Names of the functions that a header declares.
fn declared(header: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("capi/include").join(header)).unwrap();
    let text = text.split("extern \"C\" {").nth(1).unwrap();
    let code: String =
        text.lines().filter(|l| !l.starts_with(" *") && !l.starts_with("/*")).collect::<Vec<_>>().join(" ");
    let names = code.split(';').filter_map(|d| d.split_once('(').map(|(head, _)| head.to_owned()));
    let last = |head: String| head.rsplit([' ', '*']).next().unwrap_or_default().to_owned();
    names.map(last).filter(|n| n.starts_with("kiln_")).collect()
}

#[test]
fn libraries_export_the_functions_of_their_headers_and_nothing_else() {
    let run = declared("kiln_runtime.h");
    let mut all = declared("kiln.h");
    assert!(run.len() > 60 && all.len() > 30, "{} and {}", run.len(), all.len());
    assert_eq!(exported("libkiln_runtime.so"), run);
    all.extend(run);
    assert_eq!(exported("libkiln.so"), all);
}

#[test]
fn libraries_have_names_with_the_version_of_the_interface() {
    for name in ["libkiln", "libkiln_runtime"] {
        let path = built().join(format!("{name}.so"));
        let out = succeeded(Command::new("readelf").arg("-d").arg(&path).output().unwrap(), "readelf");
        assert!(out.contains(&format!("[{name}.so.0]")), "{out}");
    }
}
