//! Runs the command.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The command: where Cargo built it, or, on another machine, in the current folder.
pub fn command() -> PathBuf {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_kiln"));
    if built.exists() { built } else { std::env::current_dir().unwrap_or_default().join("kiln") }
}

/// A path under `tests/data`: of the workspace, or, on another machine, of the current folder.
pub fn data(name: &str) -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    if built.exists() { built.join(name) } else { Path::new("tests/data").join(name) }
}

/// A number that an environment variable sets.
#[allow(dead_code, reason = "not every test file has a long run")]
pub fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|v| v.parse().ok())
}

/// A file of the digits' test data.
pub fn digits(name: &str) -> String {
    let path = data("digits").join(name);
    assert!(path.exists(), "{} is missing", path.display());
    path.display().to_string()
}

/// Outcome of a run of the command.
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

#[allow(dead_code, reason = "not every test file reads JSON")]
impl Ran {
    /// The output as JSON.
    pub fn json(&self) -> serde_json::Value {
        let parsed = serde_json::from_str(&self.stdout);
        assert!(parsed.is_ok(), "no JSON: {}{}", self.stdout, self.stderr);
        parsed.unwrap_or_default()
    }
}

/// Runs `kiln` with no plug-ins in its environment.
pub fn kiln(args: &[&str]) -> Ran {
    let Output { status, stdout, stderr } = Command::new(command())
        .args(args)
        .env_remove("KILN_PLUGIN_PATH")
        .env("NO_COLOR", "1")
        .output()
        .expect("the command starts");
    let text = |b: Vec<u8>| String::from_utf8(b).expect("it prints UTF-8");
    Ran { code: status.code().unwrap_or(-1), stdout: text(stdout), stderr: text(stderr) }
}

/// Runs `kiln` and wants success.
pub fn ok(args: &[&str]) -> Ran {
    let r = kiln(args);
    assert_eq!(r.code, 0, "kiln {args:?}: {}{}", r.stdout, r.stderr);
    r
}

/// A folder of its own with names in it.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn name(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

/// Builds LeNet A for the reference backend and up to 16 images.
#[allow(dead_code, reason = "not every test file builds an engine")]
pub fn lenet(folder: &Folder, more: &[&str]) -> String {
    let (model, engine) = (digits("lenet_a.onnx"), folder.name("lenet.kiln"));
    let mut args = vec!["build", &model, "-o", &engine, "--backend", "cpu"];
    args.extend(["--min-shapes", "input:1x1x28x28", "--max-shapes", "input:16x1x28x28"]);
    args.extend(more);
    ok(&args);
    engine
}

/// Images of the calibration set as an archive of the input's name.
#[allow(dead_code, reason = "not every test file calibrates")]
pub fn calibration_images(f: &Folder) -> String {
    let data = f.name("data.npz");
    let mut arrays = kiln_npz::read_npz(Path::new(&digits("digits_calib.npz"))).expect("the images");
    let images = [("input".to_owned(), arrays.remove("images").expect("an array"))];
    kiln_npz::write_npz(&data, &images.into(), kiln_npz::Compression::Deflated).expect("an archive");
    data
}
