//! Exceptions of C++ that leave a function of a library: errors with layer and path, and the process lives.
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

use crate::devices::devices;
use crate::examples::{f32s, net_of, reference, run_on, run_with};
use crate::kernels::Only;
use crate::{abi, layers_of, library, loaded};
use kiln_backend::Backend;
use kiln_builder::BuildConfig;
use kiln_network::{Network, PluginSpec};
use kiln_runtime::plugin::{Policy, load};
use std::path::PathBuf;
use std::sync::Arc;

/// The library whose function at this place throws.
fn thrower(place: &str, what: &str) -> PathBuf {
    let source = abi::root().join("tests/tests/layers/thrower.cpp");
    let name = format!("{}_{}", place.to_lowercase(), what.len());
    let macros = [format!("-DWHERE={place}"), format!("-DLAYER=\"{name}\""), format!("-DWHAT={what}")];
    library(&format!("thrower_{name}"), &source, &macros.each_ref().map(String::as_str))
}

const ERROR: &str = "std::runtime_error(\"not today\")";

fn spec(place: &str, what: &str) -> PluginSpec {
    PluginSpec::new("thrower", &format!("{}_{}", place.to_lowercase(), what.len()))
}

fn adds(place: &str, what: &str) -> Result<Network, String> {
    layers_of(&thrower(place, what));
    let mut net = Network::new("n");
    let ty = kiln_ir::TensorType::new(kiln_ir::DType::F32, [3]);
    let x = net.add_input("x", ty).unwrap();
    let y = net.add_plugin(&[x], spec(place, what)).map_err(|e| e.to_string())?.output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    Ok(net)
}

#[test]
fn libraries_that_throw_when_they_start() {
    let path = thrower("INIT", ERROR);
    for _ in 0..2 {
        let e = load(&path, &Policy::default()).map(drop).unwrap_err().chain();
        assert!(e.contains("std::runtime_error") && e.contains(&path.display().to_string()), "{e}");
    }
    let path = thrower("INTERFACE", ERROR);
    let e = loaded(&path).layers().map(drop).unwrap_err().chain();
    assert!(e.contains("an exception of C++ (std::runtime_error)") && e.contains("kiln_layer.hpp"), "{e}");
}

/// Every kind of value; the next layer of the process is right.
#[test]
fn reference_forms_that_throw() {
    let x = f32s(&[3], &[1.0, 2.0, 3.0]);
    for what in [ERROR, "7", "std::pair<int, long>(1, 2)"] {
        for place in ["CREATE", "DESCRIBE"] {
            let e = adds(place, what).map(drop).unwrap_err();
            assert!(
                e.contains("an exception of C++ (") && e.contains("libkiln_layers_thrower_"),
                "{place}: {e}"
            );
        }
        let net = adds("RUN", what).unwrap();
        for _ in 0..3 {
            let e = run_on(&reference(), &net, std::slice::from_ref(&x)).unwrap_err();
            assert!(e.contains("an exception of C++ (") && e.contains("run_"), "{e}");
        }
        let net = adds("NOWHERE", what).unwrap();
        assert_eq!(run_on(&reference(), &net, std::slice::from_ref(&x)).unwrap(), [x.clone()]);
    }
    // A field that changes makes instances, of which most are given back.
    let net = adds("DESTROY", ERROR).unwrap();
    assert_eq!(run_on(&reference(), &net, std::slice::from_ref(&x)).unwrap(), [x]);
}

#[test]
fn native_forms_that_throw() {
    let x = f32s(&[3], &[1.0, 2.0, 3.0]);
    for b in devices().into_iter().filter(|b| b.name() == "wgpu") {
        let b: Arc<dyn Backend> = Arc::new(Only(b, "native.stream"));
        let config = || BuildConfig { estimates: true, search: false, ..BuildConfig::default() };
        for place in ["ATTACH", "ENQUEUE"] {
            layers_of(&thrower(place, ERROR));
            let net = net_of(spec(place, ERROR), std::slice::from_ref(&x));
            let e = run_with(&b, &net, std::slice::from_ref(&x), config()).unwrap_err();
            assert!(
                e.contains("std::runtime_error") && e.contains("libkiln_layers_thrower_"),
                "{place}: {e}"
            );
        }
        for place in ["DETACH", "NOWHERE"] {
            layers_of(&thrower(place, ERROR));
            let net = net_of(spec(place, ERROR), std::slice::from_ref(&x));
            let found = run_with(&b, &net, std::slice::from_ref(&x), config()).unwrap();
            assert_eq!(found, std::slice::from_ref(&x), "{place}");
        }
    }
}

/// A library that throws as the process ends.
#[test]
fn a_library_that_throws_when_it_ends() {
    layers_of(&thrower("DEINIT", ERROR));
    let x = f32s(&[1], &[1.0]);
    let net = net_of(spec("DEINIT", ERROR), std::slice::from_ref(&x));
    assert_eq!(run_on(&reference(), &net, std::slice::from_ref(&x)).unwrap(), [x]);
}
