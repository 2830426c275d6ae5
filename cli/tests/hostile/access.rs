//! Folders that cannot be written, and processes with more rights than their caller. Only root can become another user: the
//! tests are skipped elsewhere.

use crate::common::{Folder, command, digits, ok};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

/// A user that owns nothing.
const USER: u32 = 54321;

/// Runs a command as a user; `None` if this process may not.
fn as_user(program: &Path, args: &[&str], variable: Option<(&str, &str)>) -> Option<(i32, String)> {
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--reuid", &USER.to_string(), "--clear-groups"]).arg(program).args(args);
    setpriv.env_remove("KILN_PLUGIN_PATH").env("HOME", "/nowhere").envs(variable);
    let out = setpriv.output().ok()?;
    let text = String::from_utf8_lossy(&out.stderr) + String::from_utf8_lossy(&out.stdout);
    (!text.contains("setpriv:")).then(|| (out.status.code().unwrap_or(-1), text.into_owned()))
}

fn open_to_all(folder: &Folder, mode: u32) {
    std::fs::set_permissions(folder.path("."), std::fs::Permissions::from_mode(mode)).unwrap();
}

fn names(folder: &Folder) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path(".")).unwrap();
    let mut all: Vec<_> = entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    all.sort();
    all
}

/// A folder that cannot be written is found before the work; a timing cache that cannot be written costs no
/// engine.
#[test]
fn folders_that_cannot_be_written_keep_their_files() {
    let (closed, mine) = (Folder::new(), Folder::new());
    let copy = closed.path("kiln");
    std::fs::copy(command(), &copy).unwrap();
    let (model, engine, cache) = (closed.name("m.onnx"), closed.name("e.kiln"), closed.name("c"));
    std::fs::copy(digits("lenet_a.onnx"), &model).unwrap();
    ok(&["build", &model, "-o", &engine, "--backend", "cpu", "--timing-cache", &cache]);
    let before = [&engine, &cache].map(|p| std::fs::read(p).unwrap());
    let all = names(&closed);
    open_to_all(&closed, 0o755);
    open_to_all(&mine, 0o777);
    let new = mine.name("e.kiln");
    let build = |to: &str, more: &[&str]| {
        let args = ["build", &model, "-o", to, "--backend", "cpu", "--timing-cache", &cache];
        as_user(&copy, &[&args, more].concat(), None)
    };
    let Some((code, text)) = build(&engine, &["--locked"]) else {
        return println!("skipped: wants setpriv and to be root");
    };
    assert!(code == 1 && text.contains("ermission denied") && text.contains("e.kiln"), "{text}");
    for timed in [false, true] {
        let (code, said) = build(&new, &[]).unwrap();
        assert!(code == 0 && said.contains("not saved"), "{said}");
        assert!(
            said.contains(" 0 tactics timed") != timed,
            "the cache is read as long as it is there: {said}"
        );
        ok(&["run", &new, "--random-inputs", "1"]);
        std::fs::remove_file(&cache).unwrap_or_default();
    }
    std::fs::write(&cache, &before[1]).unwrap();
    let outputs = closed.name("o.npz");
    let (code, text) =
        as_user(&copy, &["run", &engine, "--random-inputs", "1", "--save-outputs", &outputs], None).unwrap();
    assert!(code == 1 && text.contains("ermission denied"), "{text}");
    let (code, text) = as_user(&copy, &["cache", "merge", &cache, "-o", &cache], None).unwrap();
    assert!(code == 1 && text.contains("ermission denied"), "{text}");
    assert!([&engine, &cache].map(|p| std::fs::read(p).unwrap()) == before, "an old file was lost");
    assert_eq!(names(&closed), all);
}

/// A command with the set-user-id bit of another user obeys no variable that names libraries.
#[test]
fn raised_rights_ignore_variables_that_name_code() {
    let f = Folder::new();
    open_to_all(&f, 0o755);
    let (copy, plugins) = (f.path("kiln"), f.name("plugins"));
    std::fs::copy(command(), &copy).unwrap();
    std::fs::create_dir(&plugins).unwrap();
    std::fs::write(Path::new(&plugins).join("libkiln_backend_fuzz.so"), "no library").unwrap();
    let seen = || as_user(&copy, &["backends"], Some(("KILN_PLUGIN_PATH", &plugins)));
    let Some((_, text)) = seen() else { return println!("skipped: wants setpriv and to be root") };
    assert!(text.contains("libkiln_backend_fuzz"), "{text}");
    chown(&copy, Some(USER + 1), None).unwrap();
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let (code, text) = seen().unwrap();
    assert!(code == 0 && !text.contains("libkiln_backend_fuzz"), "{text}");
}
