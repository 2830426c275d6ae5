//! The examples of `docs/cli.md`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use common::{Folder, calibration_images, command, data, digits};
use std::process::Command;

#[test]
fn the_examples_of_the_page_run() {
    let f = Folder::new();
    std::fs::copy(digits("lenet_a.onnx"), f.path("model.onnx")).unwrap();
    calibration_images(&f);
    let page = std::fs::read_to_string(data("../../docs/cli.md")).unwrap();
    let (mut lines, mut fenced) = (Vec::new(), false);
    for line in page.lines() {
        match line {
            "```sh" => fenced = true,
            "```" => fenced = false,
            line if fenced => lines.push(line),
            _ => {}
        }
    }
    assert!(lines.len() >= 15, "{lines:?}");
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words.first(), Some(&"kiln"), "{line}");
        let mut args = words[1..].to_vec();
        // A machine may have other backends, which would make the run longer.
        if ["build", "report"].contains(&args[0]) && args.iter().any(|a| a.ends_with("model.onnx")) {
            args.splice(1..1, ["--backend", "cpu"]);
        }
        let done = Command::new(command()).args(&args).current_dir(f.path("")).output().unwrap();
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        assert!(done.status.success(), "{line}: {}{}", text(&done.stdout), text(&done.stderr));
    }
    for file in ["runs.pftrace", "build.pftrace", "report.html", "pair.html", "part.onnx", "times.json"] {
        assert!(f.path(file).exists(), "{file}");
    }
}
