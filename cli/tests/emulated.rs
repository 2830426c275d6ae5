//! Engines on emulated GPUs of several architectures: run by `scripts/emulate.sh`, skipped elsewhere.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

mod common;

use common::{Folder, digits};
use std::process::Command;

/// Runs the command on an emulated GPU of this compute capability, times ten.
fn kiln(capability: &str, args: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    let done = command.args(args).env("KILN_EMULATED_CAPABILITY", capability).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

fn emulated() -> bool {
    let found = std::env::var_os("KILN_EMULATOR").is_some();
    if !found {
        println!("skipped: scripts/emulate.sh starts it with an emulated GPU");
    }
    found
}

/// The driver of each device translates the engine's code, which is for the least of them: the outputs have equal bits.
#[test]
fn an_engine_for_ampere_and_later_gives_equal_outputs_on_all() {
    if !emulated() {
        return;
    }
    let f = Folder::new();
    let (engine, model) = (f.name("lenet.kiln"), digits("lenet_a.onnx"));
    let shapes = "input:16x1x28x28";
    let build = [
        "build",
        &model,
        "--backend",
        "cuda",
        "--fp16",
        "--shapes",
        shapes,
        "--optimization-level",
        "0",
        "-o",
        &engine,
    ];
    kiln("90", &[&build[..], &["--hardware-compatibility", "ampere-plus"]].concat());
    let outputs = ["80", "89", "120"].map(|capability| {
        let to = f.name(&format!("{capability}.npz"));
        kiln(capability, &["run", &engine, "--random-inputs", "3", "--save-outputs", &to]);
        std::fs::read(&to).unwrap()
    });
    assert!(outputs.iter().all(|o| o == &outputs[0]));
    let wanted = f.name("wanted.npz");
    kiln(
        "90",
        &[
            "run",
            &model,
            "--backend",
            "reference",
            "--shapes",
            shapes,
            "--random-inputs",
            "3",
            "--save-outputs",
            &wanted,
        ],
    );
    let tolerance = ["--atol", "0.02", "--rtol", "0.02"];
    kiln("89", &[&["run", &engine, "--random-inputs", "3", "--expect", &wanted][..], &tolerance].concat());
}

/// Each architecture has tiles of its own: an engine that is built for it is right there.
#[test]
fn engines_are_right_on_every_architecture() {
    if !emulated() {
        return;
    }
    let f = Folder::new();
    let (model, wanted) = (digits("lenet_a_qdq.onnx"), f.name("wanted.npz"));
    let inputs = ["--shapes", "input:3x1x28x28", "--random-inputs", "5"];
    kiln(
        "90",
        &[&["run", &model, "--backend", "reference", "--save-outputs", &wanted][..], &inputs].concat(),
    );
    for capability in ["80", "86", "89", "90", "100", "120"] {
        let run = ["run", &model, "--backend", "cuda", "--optimization-level", "0", "--expect", &wanted];
        kiln(capability, &[&run[..], &inputs, &["--atol", "0.05", "--rtol", "0.05"]].concat());
    }
}
