//! C and C++ programs: examples with known answers, the page's commands, and programs that look for defects.

use super::data::{digits, expected, images, root};
use super::install::{Installed, built, succeeded};
use kiln::network::PluginSpec;
use kiln::plugin::{Policy, load_layers};
use kiln::{BuildOptions, DType, Engine, Network, TensorType};
use std::path::{Path, PathBuf};

/// Digits that a slow backend classifies.
const COUNT: usize = 20;

fn example(name: &str) -> PathBuf {
    root().join("capi/examples").join(name)
}

fn program(name: &str) -> PathBuf {
    root().join("capi/full/tests/c_api").join(name)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn lines(text: &str) -> Vec<i64> {
    text.lines().map(|l| l.parse().unwrap()).collect()
}

/// All examples on one backend.
fn examples(backend: &str) {
    let installed = Installed::new();
    let (plan, images) = (text(&installed.folder().join("lenet.kiln")), text(&images(installed.folder())));
    let model = text(&digits("lenet_a.onnx"));

    let exporter = installed.compile(&example("exporter.c"), "kiln");
    let said = installed.run(&exporter, &[&model, &plan, backend]);
    assert_eq!(said, "the second build timed nothing\n");

    let runner = installed.compile(&example("runner.c"), "kiln-runtime");
    let found = installed.run(&runner, &[&plan, &images, &COUNT.to_string()]);
    assert_eq!(lines(&found), expected("lenet_a", COUNT));

    let refit = installed.compile(&example("refit.c"), "kiln");
    let found = installed.run(&refit, &[&model, &text(&digits("lenet_b_weights.npz")), &images, backend]);
    assert_eq!(lines(&found), [expected("lenet_a", 1), expected("lenet_b", 1)].concat());

    let network = installed.compile(&example("network.c"), "kiln");
    let weights = text(&digits("lenet_a_weights.npz"));
    for more in [&[][..], &["int8"]] {
        let count = COUNT.to_string();
        let arguments = [&[weights.as_str(), &images, &count, backend], more].concat();
        assert_eq!(lines(&installed.run(&network, &arguments)), expected("lenet_a", COUNT), "{more:?}");
    }

    let dynamic = installed.compile(&example("dynamic_shapes.c"), "kiln");
    let found = installed.run(&dynamic, &[&model, &images, backend]);
    let digits = expected("lenet_a", 7);
    let batch = |n: usize| digits[..n].iter().map(i64::to_string).collect::<Vec<_>>().join(" ");
    let wanted = format!("at most 8 images, 320 bytes\n{}\n{}\n{}\n", batch(1), batch(4), batch(7));
    assert_eq!(found, wanted);

    let progress = installed.compile(&example("progress.cpp"), "kiln");
    let said = installed.run(&progress, &[&model, backend]);
    assert!(
        said.starts_with("the build told of its steps\ncancelled\n")
            && said.ends_with(&format!(" on {backend}\n")),
        "{said}"
    );
}

#[test]
fn examples_give_the_known_answers_on_cpu() {
    examples("cpu");
}

#[test]
fn examples_give_the_known_answers_on_reference() {
    examples("reference");
}

#[test]
fn examples_give_the_known_answers_on_wgpu() {
    let required = std::env::var_os("KILN_REQUIRE_WGPU").is_some();
    if !required && !built().join("libkiln_backend_wgpu.so").is_file() {
        return eprintln!("skipped: libkiln_backend_wgpu.so is not built");
    }
    // Found in the folder beside the library that was installed.
    examples("wgpu");
}

/// The commands of the page, as they stand there.
#[test]
fn the_commands_of_the_page_work() {
    let page = std::fs::read_to_string(root().join("docs/c-api.md")).unwrap();
    let blocks: Vec<&str> = page.split("```sh\n").skip(1).map(|b| b.split("```").next().unwrap()).collect();
    let blocks: Vec<&str> =
        blocks.into_iter().filter(|b| b.contains("pkg-config") || b.contains("cmake")).collect();
    assert!(blocks.len() >= 2, "{} blocks of commands", blocks.len());
    let installed = Installed::new();
    let out = succeeded(installed.shell(&blocks.join("\n")), "docs/c-api.md");
    let wanted = expected("lenet_a", 3).iter().map(|d| format!("{d}\n")).collect::<String>();
    assert!(out.ends_with(&wanted), "{out}");
}

/// The program of the page compiles, and prints what it says.
#[test]
fn the_program_of_the_page_runs() {
    let page = std::fs::read_to_string(root().join("docs/c-api.md")).unwrap();
    let installed = Installed::new();
    for (fence, name) in [("```c\n", "page.c"), ("```cpp\n", "page.cpp")] {
        let source = page.split(fence).nth(1).unwrap().split("```").next().unwrap();
        let file = installed.folder().join(name);
        std::fs::write(&file, source).unwrap();
        let made = installed.compile(&file, "kiln");
        let said = installed.run(&made, &[&text(&digits("lenet_a.onnx"))]);
        assert!(said.contains("1 x 10"), "{said}");
    }
    let networks = page.split("## Networks").nth(1).unwrap();
    let source = networks.split("```c\n").nth(1).unwrap().split("```").next().unwrap();
    let file = installed.folder().join("networks.c");
    std::fs::write(&file, source).unwrap();
    let said = installed.run(&installed.compile(&file, "kiln"), &[]);
    assert_eq!(said, "2 inputs and outputs\n");
}

#[test]
fn what_is_wrong_is_an_error() {
    let installed = Installed::new();
    let attacks = installed.compile(&program("attacks.c"), "kiln");
    installed.run(&attacks, &[&text(&digits("lenet_a.onnx"))]);
}

/// Networks by the names of kinds, with loops and conditionals, and calibration by batches.
#[test]
fn networks_are_written_layer_by_layer() {
    let installed = Installed::new();
    let network = installed.compile(&program("network.c"), "kiln");
    let layers = text(&built().join("libkiln_layers_row_norm.so"));
    let by_cpp = installed.compile(&program("network.cpp"), "kiln");
    for backend in ["cpu", "reference"] {
        installed.run(&network, &[backend, &layers]);
        installed.run(&by_cpp, &[backend]);
    }
}

#[test]
fn callbacks_are_called_and_freed() {
    let installed = Installed::new();
    let callbacks = installed.compile(&program("callbacks.c"), "kiln");
    for backend in ["cpu", "reference"] {
        installed.run(&callbacks, &[&text(&digits("lenet_a.onnx")), backend]);
    }
}

#[test]
fn every_other_function_does_what_it_says() {
    let installed = Installed::new();
    let surface = installed.compile(&program("surface.c"), "kiln");
    let layers = text(&built().join("libkiln_layers_row_norm.so"));
    installed.run(&surface, &[&text(&digits("lenet_a.onnx")), "cpu", &text(installed.folder()), &layers]);
}

/// A program that links the runtime alone loads the library that a plan holds, if it permits that.
#[test]
fn a_plan_brings_the_library_of_its_layer_to_the_runtime() {
    let installed = Installed::new();
    let library = installed.folder().join("libkiln_layers_roll.so");
    let script = format!(
        "cc -std=c11 -shared -fPIC -fvisibility=hidden -I plugins/include -o '{}' plugins/examples/roll/roll.c -lm -ldl",
        library.display()
    );
    succeeded(installed.shell(&script), &script);
    load_layers(&library, &Policy::default()).unwrap();
    let mut network = Network::new("rolled");
    let x = network.add_input("x", TensorType::new(DType::F32, [3, 2])).unwrap();
    let roll = PluginSpec::new("example", "Roll").field("by", 1);
    let y = network.add_plugin(&[x], roll).unwrap().output(0).unwrap();
    network.mark_output(y, "y").unwrap();
    let mut options = BuildOptions::default();
    options.embed_plugins = true;
    let built = Engine::builder().options(options).backend("cpu").build_plan(&network).unwrap();
    let plan = installed.folder().join("rolled.kiln");
    built.plan.write_file(&plan).unwrap();
    // Nothing but the plan brings it.
    std::fs::remove_file(&library).unwrap();
    let runner = installed.compile(&program("embedded.c"), "kiln-runtime");
    assert_eq!(installed.run(&runner, &[&text(&plan)]), "3 4 5 6 1 2\n");
}

#[test]
fn threads_run_side_by_side_and_never_in_one_context() {
    let installed = Installed::new();
    let threads = installed.compile(&program("threads.c"), "kiln");
    installed.run(&threads, &[&text(&digits("lenet_a.onnx")), "cpu"]);
}

#[test]
fn memory_is_flat_over_ten_thousand_runs() {
    let installed = Installed::new();
    let leaks = installed.compile(&program("leaks.c"), "kiln");
    let runs = if std::env::var_os("KILN_VALGRIND").is_some() { "100" } else { "10000" };
    println!("{}", installed.run(&leaks, &[&text(&digits("lenet_a.onnx")), runs]));
}

/// Every function of the headers is called by a program of these tests or an example.
#[test]
fn every_function_is_called_somewhere() {
    let read = |p: PathBuf| std::fs::read_to_string(p).unwrap();
    let mut programs = String::new();
    for folder in [root().join("capi/examples"), root().join("capi/full/tests/c_api")] {
        for file in std::fs::read_dir(folder).unwrap().flatten().map(|e| e.path()) {
            if file.extension().is_some_and(|e| e == "c" || e == "cpp" || e == "h") {
                programs += &read(file);
            }
        }
    }
    programs += &read(root().join("capi/include/kiln.hpp"));
    for header in ["kiln.h", "kiln_runtime.h"] {
        let text = read(root().join("capi/include").join(header));
        for name in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            let function = name.starts_with("kiln_") && text.contains(&format!("{name}("));
            assert!(
                !function || programs.contains(&format!("{name}(")) || programs.contains(&format!("({name}")),
                "{name}"
            );
        }
    }
}
