//! An engine for a GPU that is not here: with NVRTC, a known target, and estimates in the place of times.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test")]

mod common;

use common::{Folder, digits};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// NVRTC where the environment or scripts/setup.sh has it, and the backend's library beside the command.
fn parts() -> Option<(PathBuf, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/nvrtc");
    let nvrtc = std::env::var_os("KILN_NVRTC").map(PathBuf::from).or(folder.is_dir().then_some(folder));
    let library = Path::new(env!("CARGO_BIN_EXE_kiln")).with_file_name("libkiln_backend_cuda.so");
    let found = nvrtc.zip(library.is_file().then_some(library));
    if found.is_none() {
        let required = std::env::var_os("KILN_REQUIRE_NVRTC").is_some_and(|v| v == "1");
        assert!(!required, "NVRTC or the CUDA backend's library is missing");
        println!("skipped: NVRTC or the CUDA backend's library is missing");
    }
    found
}

fn kiln(nvrtc: &Path, args: &[&str]) -> Output {
    with(nvrtc, Some("h200"), None, args)
}

/// The command, with a GPU to build for and a folder of kernels.
fn with(nvrtc: &Path, gpu: Option<&str>, kernels: Option<&str>, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.args(args).env("KILN_NVRTC", nvrtc).env_remove("KILN_CUDA_TARGET");
    gpu.map(|g| command.env("KILN_CUDA_TARGET", g));
    kernels.map(|k| command.env("KILN_KERNEL_CACHE", k));
    command.output().unwrap()
}

/// A build for the engine of another machine, with the kernels that were compiled there, needs neither a GPU
/// nor a compiler.
#[test]
fn a_build_for_the_target_of_an_engine_takes_kernels_from_the_cache() {
    let Some((nvrtc, library)) = parts() else { return };
    let f = Folder::new();
    let (model, first, again) = (digits("lenet_a.onnx"), f.name("first.kiln"), f.name("again.kiln"));
    let (library, kernels) = (library.to_string_lossy().into_owned(), f.name("kernels"));
    let build = |to: &str, more: &[&str], nvrtc: &Path, gpu: Option<&str>| {
        let args =
            ["build", &model, "-o", to, "--plugin", &library, "--shapes", "input:1x1x28x28", "--no-timing"];
        with(nvrtc, gpu, Some(&kernels), &[&args[..], more].concat())
    };
    let words = |o: &Output| String::from_utf8_lossy(&o.stderr).into_owned();
    let record = f.name("tactics.jsonl");
    let done = build(&first, &["--backend", "cuda", "--record-tactics", &record], &nvrtc, Some("h200"));
    assert!(done.status.success(), "{}", words(&done));
    let nowhere = Path::new("/nonexistent");
    let replay = ["build", &model, "-o", &again, "--plugin", &library, "--shapes", "input:1x1x28x28"];
    let replay = [&replay[..], &["--target", &first, "--replay-tactics", &record]].concat();
    let done = with(nowhere, None, Some(&kernels), &replay);
    assert!(done.status.success(), "{}", words(&done));
    assert!(std::fs::read(&first).unwrap() == std::fs::read(&again).unwrap(), "a replay differs");
    let done = build(&again, &["--target", &first], nowhere, None);
    assert!(done.status.success(), "{}", words(&done));
    assert_eq!(std::fs::read(&first).unwrap(), std::fs::read(&again).unwrap(), "builds differ");
    let refused = build(&again, &["--target", &first, "--backend", "cpu"], nowhere, None);
    assert_eq!(refused.status.code(), Some(1));
    assert!(words(&refused).contains("of the backend \"cuda\""), "{}", words(&refused));
    let refused = build(&again, &["--target", &model], nowhere, None);
    assert_eq!(refused.status.code(), Some(1), "a model is no engine");
}

#[test]
fn a_build_for_another_machine_needs_no_device() {
    let Some((nvrtc, library)) = parts() else { return };
    let f = Folder::new();
    let (model, engine, again) = (digits("lenet_a.onnx"), f.name("e.kiln"), f.name("again.kiln"));
    let library = library.to_string_lossy().into_owned();
    let build = |to: &str, more: &[&str]| {
        let args = [
            "build",
            &model,
            "-o",
            to,
            "--plugin",
            &library,
            "--backend",
            "cuda",
            "--shapes",
            "input:1x1x28x28",
        ];
        kiln(&nvrtc, &[&args[..], more].concat())
    };
    let timed = build(&engine, &[]);
    assert_eq!(timed.status.code(), Some(1), "times are asked for where there is no device");
    assert!(!Path::new(&engine).exists());
    for to in [&engine, &again] {
        let done = build(to, &["--no-timing"]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    assert_eq!(std::fs::read(&engine).unwrap(), std::fs::read(&again).unwrap(), "builds differ");
    let told = kiln(&nvrtc, &["inspect", &engine]);
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("H200") && told.contains("sm_90"), "{told}");
}

/// Engines for Ampere and later hold PTX of what all of them have, on whatever device they are built.
#[test]
fn engines_for_many_architectures_hold_code_for_the_least_of_them() {
    let Some((nvrtc, library)) = parts() else { return };
    let f = Folder::new();
    let library = library.to_string_lossy().into_owned();
    let build = |model: &str, to: &str, more: &[&str]| {
        let args = ["build", model, "-o", to, "--plugin", &library, "--no-timing"];
        kiln(&nvrtc, &[&args[..], more].concat())
    };
    let wide = ["--backend", "cuda", "--fp16", "--hardware-compatibility", "ampere-plus"];
    let has = |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).any(|w| w == text);
    for model in ["lenet_a.onnx", "lenet_a_qdq.onnx"] {
        let model = digits(model);
        let (own, engine, again) = (f.name("own.kiln"), f.name("e.kiln"), f.name("again.kiln"));
        for (to, options) in [(&own, &wide[..3]), (&engine, &wide[..]), (&again, &wide[..])] {
            let done = build(&model, to, options);
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        let bytes = std::fs::read(&engine).unwrap();
        assert!(bytes == std::fs::read(&again).unwrap(), "builds differ");
        assert!(has(&bytes, b".target sm_80") && !has(&bytes, b"\x7fELF"));
        assert!(
            has(&std::fs::read(&own).unwrap(), b"\x7fELF"),
            "without the option code is the device's own"
        );
        let told = kiln(&nvrtc, &["inspect", &engine]);
        assert!(String::from_utf8_lossy(&told.stdout).contains("sm_80+"));
    }
    let refused = build(&digits("lenet_a.onnx"), &f.name("no.kiln"), &["--backend", "cpu", wide[3], wide[4]]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        refused.status.code() == Some(1) && told.contains("makes code for") && told.contains("cuda"),
        "{told}"
    );
}

/// An engine for a part of a GPU has other kernels than one for all of it, and says what it is for.
#[test]
fn engines_are_built_for_a_part_of_a_device() {
    let Some((nvrtc, library)) = parts() else { return };
    let f = Folder::new();
    let library = library.to_string_lossy().into_owned();
    let (model, whole, part) = (digits("lenet_a.onnx"), f.name("whole.kiln"), f.name("part.kiln"));
    let build = |to: &str, more: &[&str]| {
        let shape = "input:64x1x28x28";
        let args = ["build", &model, "-o", to, "--plugin", &library, "--backend", "cuda", "--shapes", shape];
        kiln(&nvrtc, &[&args[..], more].concat())
    };
    let done = build(&whole, &["--no-timing"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    // Under a limit of multiprocessors nothing is timed, so that no device is needed.
    let done = build(&part, &["--limit", "sms=4,memory=1G"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let inspected = |engine: &str| {
        let told = kiln(&nvrtc, &["inspect", engine, "--layers", "--json"]);
        serde_json::from_slice::<serde_json::Value>(&told.stdout).unwrap()
    };
    let (all, few) = (inspected(&whole), inspected(&part));
    assert_eq!(few["limit"], serde_json::json!({"sms": 4, "memory": 1 << 30}));
    assert_eq!(few["target"]["numbers"]["sm_count"], 4);
    assert_ne!(all["layers"], few["layers"], "kernels and tiles follow the limit");
    let refused = build(&part, &["--no-timing", "--limit", "memory=100000"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && told.contains("memory=100000"), "{told}");
}

/// The variable of NVIDIA's libraries that forbids TF32 does what the option does.
#[test]
fn tf32_is_forbidden_by_an_option_or_a_variable() {
    let Some((nvrtc, library)) = parts() else { return };
    let f = Folder::new();
    let (model, engine) = (digits("lenet_a.onnx"), f.name("e.kiln"));
    let library = library.to_string_lossy().into_owned();
    let built = |more: &[&str], value: &str| {
        let args = ["build", &model, "-o", &engine, "--plugin", &library, "--backend", "cuda", "--no-timing"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        command.args([&args[..], more].concat()).env("KILN_NVRTC", &nvrtc).env("KILN_CUDA_TARGET", "h200");
        let done = command.env("NVIDIA_TF32_OVERRIDE", value).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        std::fs::read(&engine).unwrap()
    };
    let (with, without) = (built(&[], "1"), built(&["--no-tf32"], "1"));
    assert!(with != without, "TF32 makes no difference");
    assert!(built(&[], "0") == without, "the variable is not obeyed");
}

/// Notes on layers of a model of the test data, from a build without times for a GPU: as text, and in JSON.
fn notes(model: &str, gpu: &str) -> Option<(String, Vec<String>)> {
    let (nvrtc, library) = parts()?;
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(model);
    let (f, library) = (Folder::new(), library.to_string_lossy().into_owned());
    let (model, engine) = (model.to_string_lossy().into_owned(), f.name("e.kiln"));
    let args =
        ["build", &model, "-o", &engine, "--plugin", &library, "--backend", "cuda", "--no-timing", "--json"];
    let done = with(&nvrtc, Some(gpu), None, &args);
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{told}");
    let value: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let notes = value["layers"].as_array().unwrap().iter().map(|l| l["note"].as_str().unwrap().to_owned());
    Some((told, notes.filter(|n| !n.is_empty()).collect()))
}

/// A GPU whose blocks don't reach into each other's memory has no room for the weights of a recurrence of 512 units: the build
/// says so, to people and to programs. Those of 128 units stay in the registers of one block.
#[test]
fn a_build_says_which_weights_do_not_stay_on_the_chip() {
    let f = Folder::new();
    let network = "graph \"units\" {\n  input %x: f32[5,1,64]\n  input %w: f32[1,2048,64]\n  input %r: f32[1,2048,512]\n  \
                   %y: f32[5,1,1,512], %h: f32[1,1,512], %c: f32[1,1,512] = lstm(%x, %w, %r)\n  output %y\n}\n";
    let large = f.name("units.kir");
    std::fs::write(&large, network).unwrap();
    let Some((told, found)) = notes(&large, "a10") else { return };
    assert!(found.iter().all(|n| n.contains("at each step") && told.contains(n)), "{found:?}: {told}");
    assert!(!found.is_empty(), "{told}");
    for (network, gpu) in [(large.as_str(), "h200"), ("charrnn/h128_lstm.onnx", "a10")] {
        let Some((told, found)) = notes(network, gpu) else { return };
        assert!(found.is_empty() && !told.contains("at each step"), "{network} for {gpu}: {told}");
    }
}

/// A loop that stacks for as long as a condition holds, whatever the shapes: its memory is left to the host.
#[test]
fn a_build_says_which_loops_wait_for_the_host() {
    let Some((told, found)) = notes("control_flow/while_collatz.onnx", "h200") else { return };
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("waits for the host") && told.contains(&found[0]), "{found:?}: {told}");
    let Some((_, found)) = notes("control_flow/while_newton_bounded.onnx", "h200") else { return };
    assert!(found.is_empty(), "{found:?}");
}
