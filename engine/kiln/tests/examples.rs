//! The examples do what they say.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[allow(dead_code, reason = "its main is what cargo runs")]
#[path = "../examples/from_onnx.rs"]
mod from_onnx;
#[allow(dead_code, reason = "its main is what cargo runs")]
#[path = "../examples/network_api.rs"]
mod network_api;

use std::path::Path;

#[test]
fn an_onnx_model_is_built_and_run() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/digits/lenet_a.onnx");
    let outputs = from_onnx::build_and_run(&model, "reference").unwrap();
    assert_eq!(outputs.len(), 1);
    assert_eq!((outputs[0].0.as_str(), outputs[0].1.shape()), ("logits", &[1, 10][..]));
}

#[test]
fn a_network_written_with_the_api_answers() {
    let pairs = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]];
    assert_eq!(network_api::answers(&pairs).unwrap(), [0.0, 1.0, 1.0, 0.0]);
}
