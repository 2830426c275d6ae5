//! `kiln plugin`: libraries of layers are started, checked and listed; models and plans use them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

mod common;

use common::{Folder, kiln};
use std::path::{Path, PathBuf};
use std::process::Command;

fn compile(source: &Path, into: &Path, name: &str, more: &[&str]) -> PathBuf {
    let library = into.join(format!("libkiln_layers_{name}.so"));
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins/include");
    let cpp = source.extension().is_some_and(|e| e == "cpp");
    let done = Command::new(if cpp { "c++" } else { "cc" })
        .arg(if cpp { "-std=c++17" } else { "-std=c11" })
        .args(["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden", "-I"])
        .arg(header)
        .args(more)
        .arg("-o")
        .arg(&library)
        .arg(source)
        .arg("-lm")
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    library
}

fn example(name: &str, into: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../plugins/examples/{name}/{name}.c"));
    compile(&source, into, name, &[])
}

#[test]
fn a_new_library_passes_its_check() {
    let dir = Folder::new();
    let into = dir.path("soft_clip");
    let made = kiln(&["plugin", "new", "soft_clip", "--into", &into.display().to_string()]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert!(made.stdout.contains("cc -std=c11 -shared"), "{}", made.stdout);
    let library = compile(&into.join("soft_clip.c"), &into, "soft_clip", &[]);
    let checked = kiln(&["plugin", "check", &library.display().to_string(), "--cases", "5"]);
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
    for check in ["reference form", "strided views", "threads", "serialization", "expression"] {
        assert!(checked.stdout.contains(check), "{check}: {}", checked.stdout);
    }
    let listed = kiln(&["--json", "plugin", "list", "--plugin", &library.display().to_string()]).json();
    let layer = &listed["layers"][0];
    assert_eq!((layer["namespace"].as_str(), layer["name"].as_str()), (Some("custom"), Some("SoftClip")));
    assert_eq!(layer["fields"][0]["name"], "limit");
    let again = kiln(&["plugin", "new", "soft_clip", "--into", &into.display().to_string()]);
    assert!(again.code == 1 && again.stderr.contains("--into"), "{}", again.stderr);
    let wrong = kiln(&["plugin", "new", "Soft-Clip"]);
    assert!(wrong.code == 1 && wrong.stderr.contains("lower-case"), "{}", wrong.stderr);
}

/// An engine that holds a library runs in a process that has not loaded it, if that is permitted, and refuses another version.
#[test]
fn an_engine_holds_its_libraries() {
    let dir = Folder::new();
    let library = example("nms", &dir.path("")).display().to_string();
    let source = dir.path("boxes.onnx");
    std::fs::write(&source, boxes()).unwrap();
    let (model, engine, plain) = (source.display().to_string(), dir.path("e.kiln"), dir.path("p.kiln"));
    let (engine, plain) = (engine.display().to_string(), plain.display().to_string());
    let built = |out: &str, more: &[&str]| {
        let all = [&["build", &model, "-o", out, "--backend", "cpu", "--plugin", &library], more].concat();
        let made = kiln(&all);
        assert_eq!(made.code, 0, "{}", made.stderr);
    };
    built(&engine, &["--embed-plugins"]);
    built(&plain, &[]);
    let bytes = std::fs::metadata(&library).unwrap().len();
    for (path, held) in [(&engine, bytes), (&plain, 0)] {
        let told = kiln(&["--json", "inspect", path]).json();
        let plugin = &told["plugins"][0];
        assert_eq!((plugin["name"].as_str(), plugin["embedded"].as_u64()), (Some("nms"), Some(held)));
    }
    let shown = kiln(&["inspect", &engine]).stdout;
    assert!(shown.contains("in the engine") && shown.contains("KiB"), "{shown}");
    // Nothing of a plan is loaded that nobody has permitted.
    let refused = |args: &[&str], says: &str| {
        let refused = kiln(&[args, &["--random-inputs", "7"]].concat());
        let text = refused.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(refused.code == 1 && text.contains(says), "{args:?}: {text}");
    };
    refused(&["run", &engine], "the plan holds it: permit it (--embedded-plugins)");
    refused(&["run", &plain, "--embedded-plugins"], "no library here has it");
    refused(&["run", &engine, "--embedded-plugins", "--plugins", "off"], "plug-ins are switched off");
    refused(
        &["run", &engine, "--embedded-plugins", "--plugins", "manifest"],
        "wants a manifest beside each library",
    );
    let outputs = |args: &[&str]| {
        let out = dir.path("out.npz");
        let ran =
            kiln(&[args, &["--random-inputs", "7", "--save-outputs", &out.display().to_string()]].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        std::fs::read(out).unwrap()
    };
    let wanted = outputs(&["run", &plain, "--plugin", &library]);
    assert_eq!(outputs(&["run", &engine, "--embedded-plugins"]), wanted);
    // The library is here as well: it is loaded once.
    assert_eq!(outputs(&["run", &engine, "--embedded-plugins", "--plugin", &library]), wanted);
    let other = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins/examples/nms/nms.c");
    let other = compile(&other, &dir.path(""), "nms_other", &["-DOTHER", "-O2"]).display().to_string();
    refused(&["run", &engine, "--plugin", &other], "loaded is \"nms\" 1.0.0");
    refused(&["run", &engine, "--plugin", &other, "--embedded-plugins"], "defines already");
}

/// The commands of the first section of plugins/README.md, in a folder that has nothing but what they make.
#[test]
fn the_commands_of_the_readme_make_libraries() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let text = std::fs::read_to_string(root.join("plugins/README.md")).unwrap();
    let section = text.split("## Start").nth(1).unwrap().split("## Layers").next().unwrap();
    let blocks: Vec<&str> =
        section.split("```sh\n").skip(1).map(|b| b.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 3);
    let tool = Path::new(env!("CARGO_BIN_EXE_kiln")).parent().unwrap().display().to_string();
    let path = format!("{tool}:{}", std::env::var("PATH").unwrap());
    for commands in blocks {
        let dir = Folder::new();
        std::os::unix::fs::symlink(&root, dir.path("kiln")).unwrap();
        let done = Command::new("sh")
            .args(["-ec", commands])
            .current_dir(dir.path(""))
            .env("PATH", &path)
            .env_remove("CARGO_TARGET_DIR")
            .output()
            .unwrap();
        let said =
            String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && !said.contains("warning"), "{commands}{said}");
        for check in ["SoftClip", "strided views", "expression"] {
            assert!(said.contains(check), "{said}");
        }
    }
}

#[test]
fn a_new_library_in_rust_has_what_cargo_wants() {
    let dir = Folder::new();
    let into = dir.path("soft_clip");
    let made = kiln(&["plugin", "new", "soft_clip", "--lang", "rust", "--into", &into.display().to_string()]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let manifest = std::fs::read_to_string(into.join("Cargo.toml")).unwrap();
    assert!(
        manifest.contains("name = \"kiln_layers_soft_clip\"") && manifest.contains("cdylib"),
        "{manifest}"
    );
    let source = std::fs::read_to_string(into.join("src/lib.rs")).unwrap();
    assert!(source.contains("pub struct SoftClip") && !source.contains('@'), "{source}");
}

#[test]
fn examples_pass_their_checks() {
    let dir = Folder::new();
    for (name, shapes) in [("swish", None), ("nms", Some("6x4,6")), ("scatter_add", Some("5x3,4,4x3"))] {
        let library = example(name, &dir.path("")).display().to_string();
        let mut args = vec!["plugin", "check", &library, "--cases", "4"];
        args.extend(shapes.iter().flat_map(|s| ["--shapes", s]));
        let checked = kiln(&args);
        assert_eq!(checked.code, 0, "{name}: {}{}", checked.stdout, checked.stderr);
    }
}

/// The example with another factor in its expression than in its reference form, and one that writes beyond its output.
#[test]
fn a_wrong_kernel_fails_its_check() {
    let dir = Folder::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins/examples/swish/swish.c");
    let text = std::fs::read_to_string(source).unwrap();
    for (name, from, to, says) in [
        ("factor", "exp(-beta * x0)", "exp(-1.01 * beta * x0)", "expression"),
        ("beyond", "place(y, n)] =", "place(y, n) + 1] =", "wrote outside of the memory of output 0"),
        ("dense", "t->strides[axis];", "1;", "strided views"),
    ] {
        let wrong = dir.path(&format!("{name}.c"));
        let changed = text.replace(from, to);
        assert_ne!(changed, text);
        std::fs::write(&wrong, changed).unwrap();
        let library = compile(&wrong, &dir.path(""), name, &[]);
        let checked = kiln(&["--json", "plugin", "check", &library.display().to_string(), "--cases", "10"]);
        assert_eq!(checked.code, 1, "{name}: {}", checked.stdout);
        let failed: Vec<String> = checked.json()["checks"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|c| !c["failure"].is_null())
            .map(|c| format!("{} {}", c["check"], c["failure"]))
            .collect();
        assert!(failed.iter().any(|f| f.contains(says)), "{name}: {failed:?}");
    }
}

/// A library that ends its process ends that of the check alone, which says so; exceptions do not.
#[test]
fn a_library_that_ends_the_process_fails_its_check() {
    let dir = Folder::new();
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cmd/plugin/template.cpp"))
            .unwrap();
    let text = text.replace("@Name@", "Thrower").replace("@name@", "thrower");
    let run = "void run(const kiln_layer_call &call) const {";
    for (name, head, by, says) in [
        ("fault", run, "__builtin_trap();", "the library ended the process (signal"),
        (
            "no_throw",
            "void run(const kiln_layer_call &call) const noexcept {",
            "throw 7;",
            "the library ended the process (signal",
        ),
        ("inside", run, "throw std::runtime_error(\"not today\");", "not today"),
        ("number", run, "throw 7;", "an exception that is no std::exception"),
    ] {
        let changed = text.replace(run, &format!("{head} if (call.input_count > 0) {by}"));
        assert_ne!(changed, text);
        let source = dir.path(&format!("{name}.cpp"));
        std::fs::write(&source, changed).unwrap();
        let library = compile(&source, &dir.path(""), name, &["-Wno-terminate"]);
        let checked = kiln(&["plugin", "check", &library.display().to_string(), "--cases", "2"]);
        let said = format!("{}{}", checked.stdout, checked.stderr);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(checked.code, 1, "{name}: {said}");
        assert!(said.contains(says), "{name}: {said}");
    }
}

/// A file of the tests of layers.
fn of_tests(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/tests/layers").join(file)
}

/// Without the header for C++, an exception ends at the host.
#[test]
fn a_check_names_exceptions_that_leave_a_library() {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")) {
        return;
    }
    let dir = Folder::new();
    let macros = ["-DWHERE=RUN", "-DLAYER=\"Throws\""];
    let library = compile(&of_tests("thrower.cpp"), &dir.path(""), "thrower", &macros).display().to_string();
    let checked = kiln(&["plugin", "check", &library, "--cases", "2"]);
    let said = format!("{}{}", checked.stdout, checked.stderr);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(checked.code == 1 && said.contains("an exception of C++ (std::runtime_error)"), "{said}");
}

/// The failures of a check of `outside.c` with these macros, of forms on a backend.
fn failures(dir: &Folder, backend: &str, number: usize, place: &str, from: &str) -> Vec<String> {
    let macros = [format!("-DPLACE=\"{place}\""), format!("-DFROM=\"{from}\"")];
    let macros = macros.each_ref().map(String::as_str);
    let name = format!("outside{number}");
    let library = compile(&of_tests("outside.c"), &dir.path(""), &name, &macros).display().to_string();
    let checked = kiln(&["--json", "plugin", "check", &library, "--cases", "4", "--shapes", "19"]);
    let rows = checked.json()["checks"].as_array().unwrap().clone();
    let of: Vec<_> =
        rows.iter().filter(|c| c["check"].as_str().is_some_and(|w| w.starts_with(backend))).collect();
    assert_eq!(of.len(), 1, "one kernel on {backend}: {rows:?}");
    of.iter().filter_map(|c| c["failure"].as_str().map(str::to_owned)).collect()
}

/// Memory of the device has guards around it, and begins as NaN.
fn kernels_that_write_outside(backend: &str, places: &[(&str, &str, &str)]) {
    let dir = Folder::new();
    for (number, (place, from, says)) in places.iter().enumerate() {
        let failed = failures(&dir, backend, number, place, from);
        match says.is_empty() {
            true => assert!(failed.is_empty(), "{place}: {failed:?}"),
            false => assert!(failed.len() == 1 && failed[0].contains(says), "{place}: {failed:?}"),
        }
    }
}

#[test]
fn kernels_that_write_outside_of_their_memory_fail_their_check() {
    if std::env::var_os("KILN_REQUIRE_WGPU").is_none() {
        return;
    }
    kernels_that_write_outside(
        "wgpu",
        &[
            ("i", "0", ""),
            ("params.n", "0", "4 bytes behind it, the first 0 bytes away"),
            ("i + 20", "0", "a kernel wrote outside of the memory of"),
            ("params.n + 500", "0", "behind it, the first 2000 bytes away"),
            ("i", "3", "NaN"),
        ],
    );
}

/// `scripts/emulate.sh` runs it with an emulated GPU.
#[test]
fn kernels_on_an_emulated_gpu_fail_their_check() {
    if std::env::var_os("KILN_EMULATOR").is_none() {
        return;
    }
    kernels_that_write_outside(
        "cuda",
        &[
            ("i", "0", ""),
            ("params.n", "0", "4 bytes behind it, the first 0 bytes away"),
            ("i - 2", "0", "8 bytes in front of it, the first 8 bytes away"),
            ("i - 900", "0", "in front of it, the first 3600 bytes away"),
            ("params.n + 500", "0", "behind it, the first 2000 bytes away"),
            ("i", "3", "NaN"),
        ],
    );
    let dir = Folder::new();
    for (name, shapes) in [("swish", None), ("nms", Some("6x4,6")), ("scatter_add", Some("5x3,4,4x3"))] {
        let library = example(name, &dir.path("")).display().to_string();
        let mut args = vec!["plugin", "check", &library, "--cases", "3"];
        args.extend(shapes.iter().flat_map(|s| ["--shapes", s]));
        let checked = kiln(&args);
        assert_eq!(checked.code, 0, "{name}: {}{}", checked.stdout, checked.stderr);
    }
}

/// A plan whose runs call a library says what to install where it is missing.
#[test]
fn a_plan_without_its_library_is_refused() {
    let dir = Folder::new();
    let library = example("nms", &dir.path("")).display().to_string();
    let onnx = dir.path("boxes.onnx");
    std::fs::write(&onnx, boxes()).unwrap();
    let (onnx, plan) = (onnx.display().to_string(), dir.path("boxes.kiln").display().to_string());
    let none = kiln(&["build", &onnx, "-o", &plan, "--backend", "cpu"]);
    assert!(none.code == 1 && none.stderr.contains("--plugin"), "{}", none.stderr);
    let built = kiln(&["build", &onnx, "-o", &plan, "--backend", "cpu", "--plugin", &library]);
    assert_eq!(built.code, 0, "{}", built.stderr);
    let told = kiln(&["--json", "inspect", &plan, "--plugin", &library]).json();
    assert_eq!(
        (told["plugins"][0]["name"].as_str(), told["plugins"][0]["called"].as_bool()),
        (Some("nms"), Some(true))
    );
    let run = kiln(&["run", &plan, "--random-inputs", "1", "--plugin", &library]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let missing = kiln(&["run", &plan, "--random-inputs", "1"]);
    assert_eq!(missing.code, 1);
    let text = missing.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("example::BestBoxes") && text.contains("no library here has it"), "{text}");
}

/// The flags of TensorRT's tool load libraries and put them into engines.
#[test]
fn trtexec_loads_and_embeds_libraries() {
    let dir = Folder::new();
    let library = example("nms", &dir.path("")).display().to_string();
    std::fs::write(dir.path("boxes.onnx"), boxes()).unwrap();
    let (engine, plain) = (dir.name("e.plan"), dir.name("p.plan"));
    let trtexec = |args: &[&str]| {
        kiln(&[&["trtexec", "--warmUp=0", "--duration=0", "--iterations=1", "--backend=cpu"], args].concat())
    };
    let model = format!("--onnx={}", dir.name("boxes.onnx"));
    assert!(trtexec(&[&model]).stderr.contains("example"));
    for flag in ["staticPlugins", "plugins", "dynamicPlugins"] {
        let r = trtexec(&[&model, &format!("--{flag}={library}"), &format!("--saveEngine={plain}")]);
        assert_eq!(r.code, 0, "--{flag}: {}", r.stderr);
    }
    let r =
        trtexec(&[&model, &format!("--setPluginsToSerialize={library}"), &format!("--saveEngine={engine}")]);
    assert_eq!(r.code, 0, "{}", r.stderr);
    let run =
        |path: &str, more: &[&str]| trtexec(&[&[format!("--loadEngine={path}").as_str()], more].concat());
    assert_eq!(run(&plain, &["--embeddedPlugins"]).code, 1);
    assert_eq!(run(&engine, &[]).code, 1);
    let r = run(&engine, &["--embeddedPlugins"]);
    assert_eq!(r.code, 0, "{}", r.stderr);
}

/// A model with one node of the example's domain.
fn boxes() -> Vec<u8> {
    use kiln_onnx::proto::tensor_proto::DataType;
    use kiln_onnx::proto::*;
    let value = |name: &str, dims: &[i64]| {
        use tensor_shape_proto::{Dimension, dimension::Value};
        let dim = |d: &i64| Dimension { value: Some(Value::DimValue(*d)), ..Dimension::default() };
        let shape = TensorShapeProto { dim: dims.iter().map(dim).collect() };
        let tensor = type_proto::Tensor { elem_type: DataType::Float as i32, shape: Some(shape) };
        let ty = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..TypeProto::default() };
        ValueInfoProto { name: name.into(), r#type: Some(ty), ..ValueInfoProto::default() }
    };
    let node = NodeProto {
        name: "best".into(),
        domain: "example".into(),
        op_type: "BestBoxes".into(),
        input: vec!["b".into(), "s".into()],
        output: vec!["kept".into(), "rows".into()],
        ..NodeProto::default()
    };
    let graph = GraphProto {
        name: "g".into(),
        node: vec![node],
        input: vec![value("b", &[4, 4]), value("s", &[4])],
        output: vec![ValueInfoProto { name: "kept".into(), ..ValueInfoProto::default() }],
        ..GraphProto::default()
    };
    let opset = |domain: &str, version| OperatorSetIdProto { domain: domain.into(), version };
    let model = ModelProto {
        ir_version: 8,
        opset_import: vec![opset("", 18), opset("example", 1)],
        graph: Some(graph),
        ..ModelProto::default()
    };
    prost::Message::encode_to_vec(&model)
}
