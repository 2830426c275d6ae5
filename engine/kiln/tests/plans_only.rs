//! The library without its feature `build`: it loads and runs plans, and says so where it is asked for more.
//! `cargo test -p kiln --no-default-features --test plans_only` runs it; builds with all features leave it out.

#![cfg(not(feature = "build"))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln::{DiscoverOptions, Engine, Error, Tensor};
use std::path::PathBuf;

fn data(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data")).join(name)
}

#[test]
fn plans_are_loaded_and_run() {
    let engine =
        Engine::builder().plugins(DiscoverOptions::linked()).build(data("stored/4/reference/dense.kiln"));
    let engine = engine.unwrap();
    let x = Tensor::from_slice(&[2, 24], &[0.5f32; 48]).unwrap();
    let outputs = engine.run([("x", x)]).unwrap();
    let rows: Vec<f32> = outputs.get("s").unwrap().to_vec().unwrap();
    for row in rows.chunks(16) {
        assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5, "a softmax: {row:?}");
    }
    assert!(rows[..16] == rows[16..], "both rows are the same");
}

#[test]
fn models_are_refused_with_what_to_do() {
    let e = Engine::open(data("digits/lenet_a.onnx")).unwrap_err();
    assert!(matches!(e, Error::NoPlan { .. }), "{e:?}");
    let says = ["lenet_a.onnx", "feature \"build\"", "kiln build"];
    assert!(says.iter().all(|s| e.to_string().contains(s)), "{e}");
    let other = Engine::builder().backend("cuda").build(data("stored/4/reference/dense.kiln")).unwrap_err();
    assert!(matches!(other, Error::Built { option: "backend", .. }), "{other:?}");
}
