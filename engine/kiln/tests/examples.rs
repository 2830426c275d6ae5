//! The examples do what they say.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]
#![allow(clippy::duplicate_mod, reason = "each example reads its data by the same file")]

#[allow(dead_code, reason = "its main is what cargo runs")]
#[path = "../examples/algorithm_selector.rs"]
mod algorithm_selector;
#[allow(dead_code, reason = "its main is what cargo runs")]
#[path = "../examples/charrnn.rs"]
mod charrnn;
#[allow(dead_code, reason = "its main is what cargo runs")]
#[path = "../examples/from_onnx.rs"]
mod from_onnx;
#[path = "../examples/hello.rs"]
mod hello;
#[allow(dead_code, reason = "its main is what cargo runs")]
#[path = "../examples/io_formats.rs"]
mod io_formats;
#[allow(dead_code, reason = "its main is what cargo runs")]
#[path = "../examples/network_api.rs"]
mod network_api;
#[allow(dead_code, reason = "its main is what cargo runs")]
#[path = "../examples/refit.rs"]
mod refit;
#[path = "examples/samples.rs"]
mod samples;
#[path = "examples/support.rs"]
mod support;

use kiln::{Backends, DiscoverOptions, Engine};
use kiln_runtime::plugin::{Policy, load};
use std::path::Path;
use std::sync::Arc;

#[test]
fn an_onnx_model_is_built_and_run() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/digits/lenet_a.onnx");
    let builder = Engine::builder().backend("cpu");
    let (engine, outputs) = from_onnx::run_on_zeros(&model, &builder).unwrap();
    assert_eq!((outputs.len(), outputs.get("logits").unwrap().shape()), (1, &[1, 10][..]));
    assert_eq!((engine.backend(), engine.report().unwrap().backend.as_str()), ("cpu", "cpu"));
    // The best backend is that with hardware, else the reference.
    let backends = all_backends();
    let best = kiln::best(&backends).unwrap();
    let (engine, _) = from_onnx::run_on_zeros(&model, &Engine::builder().backends(backends)).unwrap();
    assert_eq!(engine.backend(), best);
}

#[test]
fn hello_world_has_six_lines_and_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let hello = std::fs::read_to_string(root.join("engine/kiln/examples/hello.rs")).unwrap();
    let body = hello.split_once("kiln::Error> {").unwrap().1.trim_end().strip_suffix('}').unwrap();
    assert!(body.trim().lines().count() <= 6, "{body}");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    assert!(readme.contains(body.trim_end()), "README shows another hello world than the example");
    // Its path is that of the repository's root.
    std::env::set_current_dir(root).unwrap();
    hello::main().unwrap();
}

#[test]
fn a_network_written_with_the_api_answers() {
    let pairs = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]];
    assert_eq!(network_api::answers(&pairs).unwrap(), [0.0, 1.0, 1.0, 0.0]);
}

fn digits(name: &str) -> String {
    format!("{}/../../tests/data/digits/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn recorded_algorithms_are_chosen_again() {
    let backends = all_backends();
    for name in backends.names().collect::<Vec<_>>() {
        let builder = Engine::builder().backends(backends.clone()).backend(name);
        let [first, second] =
            algorithm_selector::record_and_replay(&digits("lenet_a.onnx"), &builder).unwrap();
        assert!(!first.is_empty() && first == second, "{name}: {first:?}, {second:?}");
    }
}

#[test]
fn images_are_read_in_all_formats() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/digits");
    let (images, labels) = io_formats::digits(&folder, 40).unwrap();
    let backends = all_backends();
    for name in backends.names().collect::<Vec<_>>() {
        let builder = Engine::builder().backends(backends.clone()).backend(name);
        for format in io_formats::FORMATS {
            let found = io_formats::recognized(&folder.join("lenet_a.onnx"), &images, format, &builder);
            // The network recognizes all of them in f32.
            assert_eq!(found.unwrap(), labels, "{name}: {format:?}");
        }
    }
}

#[test]
fn an_engine_is_refitted_from_a_file_and_saved() {
    let backends = all_backends();
    for name in backends.names().collect::<Vec<_>>() {
        let builder = Engine::builder().backends(backends.clone()).backend(name);
        let (model, file) = (digits("lenet_a.onnx"), digits("lenet_b_weights.npz"));
        let (changed, engine) = refit::refitted(&model, &file, &builder).unwrap();
        assert!(changed && engine.plan().header.refittable, "{name}");
    }
}

/// The reference, and the plug-ins beside the test that have a device; an error where one that must be there is not.
fn all_backends() -> Backends {
    let (mut all, _) = kiln::backends(&DiscoverOptions::linked());
    for (name, required) in [("wgpu", "KILN_REQUIRE_WGPU"), ("cuda", "KILN_REQUIRE_CUDA")] {
        let exe = std::env::current_exe().unwrap();
        let file = format!("libkiln_backend_{name}{}", std::env::consts::DLL_SUFFIX);
        let library = exe.ancestors().skip(1).take(3).map(|d| d.join(&file)).find(|p| p.is_file());
        let backend = library.and_then(|p| load(&p, &Policy::default()).ok()?.backend().ok());
        match backend.filter(|b| kiln::Backend::targets(b).is_ok_and(|t| !t.is_empty())) {
            Some(b) => all.register(Arc::new(b)).unwrap(),
            None => {
                assert!(std::env::var_os(required).is_none(), "{name} must be there");
                eprintln!("skipped: {name} is not built or has no device");
            }
        }
    }
    all
}

#[test]
fn text_is_written_by_loops_of_the_api_and_of_onnx() {
    let backends = all_backends();
    let (folder, model) = (charrnn::folder(), charrnn::Model::read(&charrnn::folder(), "h128").unwrap());
    let expected: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("expected.json")).unwrap()).unwrap();
    let network = charrnn::network(&model).unwrap();
    let exported = folder.join("h128_generate.onnx");
    let names: Vec<String> = backends.names().map(str::to_owned).collect();
    for name in names {
        let by_hand = charrnn::engine(&network, &name, &backends).unwrap();
        let exported = charrnn::engine(exported.as_path(), &name, &backends).unwrap();
        let greedy = expected["h128"]["greedy"].as_array().unwrap();
        // The software driver of wgpu takes its time.
        let prompts = if name == kiln::CPU { greedy.len() } else { 3 };
        for g in &greedy[..prompts] {
            let (prompt, wanted) = (g["prompt"].as_str().unwrap(), g["generated"].as_str().unwrap());
            let max_new = g["max_new"].as_i64().unwrap();
            for engine in [&by_hand, &exported] {
                assert_eq!(
                    charrnn::write(engine, &model, prompt, max_new).unwrap(),
                    wanted,
                    "{name}: {prompt}"
                );
            }
        }
    }
}
