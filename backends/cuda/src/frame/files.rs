//! The kernel files in `kernels/`, with what they include.

use kiln_backend::BackendError;

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Files with these prefixes are part of every unit.
const EVERYWHERE: &str = "prelude/";

fn file(name: &str) -> Result<&'static str, BackendError> {
    let found = FILES.binary_search_by_key(&name, |f| f.0).ok().map(|at| FILES[at].1);
    found.ok_or_else(|| BackendError::Internal(format!("there is no kernel file \"{name}.cuh\"")))
}

/// The text of files by name (`"norm/lrn"`), what they include in front of them, each once.
pub fn text(names: &[&str]) -> Result<String, BackendError> {
    let (mut out, mut done) = (String::new(), Vec::new());
    names.iter().try_for_each(|n| add(n, &mut out, &mut done))?;
    Ok(out)
}

fn add(name: &str, out: &mut String, done: &mut Vec<String>) -> Result<(), BackendError> {
    if done.iter().any(|d| d == name) {
        return Ok(());
    }
    done.push(name.to_owned());
    let text = file(name)?;
    let included = |line: &str| -> Option<String> {
        let path = line.strip_prefix("#include \"")?.strip_suffix("\"")?.strip_suffix(".cuh")?;
        let folder = name.rsplit_once('/').map_or("", |p| p.0);
        Some(match path.strip_prefix("../") {
            Some(above) => above.to_owned(),
            None => format!("{folder}/{path}"),
        })
    };
    for path in text.lines().filter_map(included).filter(|p| !p.starts_with(EVERYWHERE)) {
        add(&path, out, done)?;
    }
    for line in text.lines().filter(|l| !l.starts_with("#include ") && *l != "#pragma once") {
        out.push_str(line);
        out.push('\n');
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_codegen::params::{cuda, renewed};

    #[test]
    fn names_are_sorted_and_found() {
        assert!(FILES.is_sorted());
        assert!(text(&["norm/lrn"]).unwrap().contains("lrn"));
        assert!(text(&["norm/none"]).unwrap_err().to_string().contains("norm/none.cuh"));
    }

    /// `KILN_BLESS=1` writes the declared structures into the files.
    #[test]
    fn structures_of_parameters_are_those_that_are_declared() {
        let mut stale = Vec::new();
        for (name, text) in FILES {
            let new = renewed(text, cuda).unwrap_or_else(|e| panic!("{name}: {e}"));
            if new != *text {
                stale.push(name);
                if std::env::var_os("KILN_BLESS").is_some() {
                    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/");
                    std::fs::write(format!("{root}{name}.cuh"), &new).unwrap();
                }
            }
        }
        assert!(stale.is_empty(), "{stale:?}: run the test with KILN_BLESS=1");
    }

    /// Every file is CUDA C++ that a compiler accepts with nothing but what it includes.
    #[test]
    fn every_file_is_accepted_as_it_stands() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/nvrtc");
        if std::env::var_os("KILN_NVRTC").is_none() && folder.is_dir() {
            // SAFETY: no other thread of this test reads the environment.
            unsafe { std::env::set_var("KILN_NVRTC", folder) };
        }
        let Ok(nvrtc) = crate::compile::Nvrtc::get() else {
            assert!(std::env::var_os("KILN_REQUIRE_NVRTC").is_none(), "NVRTC is required and missing");
            return;
        };
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels");
        let mut refused = Vec::new();
        for (name, text) in FILES {
            let folder = name.rsplit_once('/').map_or(root.to_owned(), |p| format!("{root}/{}", p.0));
            let options = ["--gpu-architecture=sm_90a".into(), "--std=c++20".into(), format!("-I{folder}")];
            refused.extend(nvrtc.compile(text, &options).err().map(|e| format!("{name}: {e}")));
        }
        assert!(refused.is_empty(), "{}", refused.join("\n"));
    }
}
