//! `kiln report`: what its pages hold, and that they load nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use common::{Folder, data, digits, kiln, lenet, ok};
use kiln_onnx::proto::*;
use kiln_tests::mutants::models::encoded;
use serde_json::Value;

/// The page that a line of the command writes.
fn page(f: &Folder, args: &[&str]) -> String {
    let path = f.name("report.html");
    ok(&[&["report"], args, &["-o", &path]].concat());
    let text = std::fs::read_to_string(&path).unwrap();
    for word in ["http", "src=", "@import", "url(", "<link", "<iframe"] {
        assert!(!text.contains(word), "the page has {word}");
    }
    assert!(text.starts_with("<!doctype html>") && text.ends_with("</html>\n"));
    let count = |words: &str| text.matches(words).count();
    for tag in ["table", "tr", "td", "section", "svg", "g", "details", "script"] {
        let opened = count(&format!("<{tag}>")) + count(&format!("<{tag} "));
        assert_eq!(opened, count(&format!("</{tag}>")), "<{tag}> is not closed");
    }
    text
}

/// The data that the page holds for programs.
fn held(page: &str) -> Value {
    let start = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    serde_json::from_str(&page[start..start + page[start..].find("</script>").unwrap()]).unwrap()
}

/// Rows of a table of the page.
fn rows<'a>(page: &'a str, id: &str) -> Vec<&'a str> {
    let start = page.find(&format!("id=\"{id}\"")).unwrap_or_else(|| panic!("no table {id}"));
    let body = &page[start..start + page[start..].find("</table>").unwrap()];
    body.lines().filter(|l| l.starts_with("<tr") && l.contains("<td")).collect()
}

#[test]
fn a_page_of_a_model_has_layers_times_alternatives_memory_and_rewrites() {
    let f = Folder::new();
    let model = digits("lenet_a.onnx");
    let text = page(&f, &[&model, "--backend", "cpu", "--measure", "--ceilings", "10,100"]);
    let layers = rows(&text, "layers");
    assert_eq!(layers.len(), held(&text)["layers"].as_array().unwrap().len());
    let conv = layers.iter().find(|r| r.contains("/conv1/Conv + /Relu")).unwrap();
    for part in ["conv + relu", " f32 ", " timed</summary>", "×)</div>", " %</td>"] {
        assert!(conv.contains(part), "no {part} in {conv}");
    }
    let data = held(&text);
    let conv =
        data["layers"].as_array().unwrap().iter().find(|l| l["name"] == "/conv1/Conv + /Relu").unwrap();
    assert_eq!(conv["origins"], serde_json::json!(["/conv1/Conv", "/Relu"]));
    assert!(conv["ns"].as_f64() > Some(0.0) && conv["bytes"].as_u64() > Some(0), "{conv}");
    assert!(!conv["alternatives"].as_array().unwrap().is_empty(), "{conv}");
    assert!(text.contains("of roofline") && text.contains("GB/s") && text.contains("latency, median of"));
    // The picture has a box for each layer, the memory a rectangle for each value.
    assert_eq!(text.matches("<g class=\"box").count(), layers.len());
    assert!(text.matches("<rect class=\"life").count() >= 4 && text.contains("the step that writes it"));
    for part in ["reformats", "host", "memory-over-time"] {
        assert!(text.contains(&format!("<section id=\"{part}\">")), "{part}");
    }
    assert!(!rows(&text, "rewrites").is_empty() && !rows(&text, "by-operators").is_empty());
}

#[test]
fn a_page_of_an_engine_says_what_it_does_not_know_until_it_is_given() {
    let f = Folder::new();
    let cache = f.name("cache.json");
    let engine = lenet(&f, &["--timing-cache", &cache]);
    let text = page(&f, &[&engine]);
    assert!(text.contains("Times are not known") && !text.contains("GB/s"), "{text}");
    assert!(held(&text)["layers"][1]["ns"].is_null());
    assert!(rows(&text, "profiles")[0].contains("16x1x28x28"));
    let build = ok(&[
        "build",
        &digits("lenet_a.onnx"),
        "-o",
        &f.name("b.kiln"),
        "--backend",
        "cpu",
        "--json",
        "--timing-cache",
        &cache,
    ]);
    std::fs::write(f.path("build.json"), &build.stdout).unwrap();
    let known =
        page(&f, &[&f.name("b.kiln"), "--build-report", &f.name("build.json"), "--timing-cache", &cache]);
    assert!(known.contains("Times are those of the build") && known.contains(" timed</summary>"));
    let without = page(&f, &[&f.name("b.kiln"), "--build-report", &f.name("build.json")]);
    assert!(!without.contains(" timed</summary>"));
    let r = kiln(&["report", &engine, "-o", &f.name("x.html"), "--build-report", &digits("expected.json")]);
    assert_eq!((r.code, f.path("x.html").exists()), (1, false));
    assert!(r.stderr.contains("kiln build --json"), "{}", r.stderr);
    let terse = f.name("terse.kiln");
    ok(&[
        "build",
        &digits("lenet_a.onnx"),
        "-o",
        &terse,
        "--backend",
        "cpu",
        "--no-timing",
        "--verbosity",
        "none",
    ]);
    let text = page(&f, &[&terse]);
    assert!(text.contains("--verbosity detailed") && !text.contains("<svg class=\"graph\""), "{text}");
    let r = kiln(&["report", &engine, "-o", &f.name("x.html"), "--fp16"]);
    assert!(r.code == 1 && r.stderr.contains("--fp16 says how to build"), "{}", r.stderr);
    let r = kiln(&["report", &engine, "-o", &f.name("x.html"), "--timing-cache", &cache]);
    assert!(r.code == 1 && r.stderr.contains("--timing-cache says how to build"), "{}", r.stderr);
    let wide = page(&f, &[&engine, "--measure", "--shapes", "input:9x1x28x28"]);
    assert!(wide.contains("GB/s"));
    let r = kiln(&["report", &engine, "-o", &f.name("x.html"), "--measure", "--shapes", "input:17x1x28x28"]);
    assert_eq!(r.code, 1, "{}", r.stderr);
    let same = kiln(&["report", &engine, "-o", &engine]);
    assert_eq!(same.code, 1, "{}", same.stderr);
}

#[test]
fn two_engines_are_aligned_by_the_layers_of_the_network() {
    let f = Folder::new();
    let (model, fused, single) = (digits("lenet_a.onnx"), f.name("fused.kiln"), f.name("single.kiln"));
    ok(&["build", &model, "-o", &fused, "--backend", "cpu", "--no-timing"]);
    ok(&["build", &model, "-o", &single, "--backend", "cpu", "--no-timing", "--no-fuse", "--no-search"]);
    let text = page(&f, &[&fused, &single, "--measure"]);
    let found = rows(&text, "layers");
    let conv = found.iter().find(|r| r.contains("/conv1/Conv + /Relu (conv + relu)")).unwrap();
    assert!(
        conv.contains("/conv1/Conv (conv) by") && conv.contains("/Relu (relu) by") && conv.contains("×"),
        "{conv}"
    );
    assert!(text.contains("Layers take "));
    let data = held(&text);
    let sides = |i: usize| data["engines"][i]["layers"].as_array().unwrap().len();
    assert!(sides(0) < sides(1));
    let grouped: usize =
        data["groups"].as_array().unwrap().iter().map(|g| g[1].as_array().unwrap().len()).sum();
    assert_eq!(grouped, sides(1));
}

#[test]
fn a_transformer_and_bodies_of_control_flow_are_shown() {
    let f = Folder::new();
    let text =
        page(&f, &[&data("exports/bert.onnx").display().to_string(), "--backend", "cpu", "--no-timing"]);
    assert!(text.contains("matmul") && rows(&text, "layers").len() > 10);
    let loops = data("control_flow/nested_loops.onnx").display().to_string();
    let text = page(&f, &[&loops, "--backend", "cpu", "--no-timing", "--measure"]);
    assert!(text.contains("<details><summary>body of ") && text.matches("<svg class=\"graph\"").count() > 1);
}

/// A model of so many layers in scopes, whose names would be marks of a page.
fn long(layers: usize) -> Vec<u8> {
    use tensor_shape_proto::dimension::Value;
    let node = |i: usize| NodeProto {
        op_type: if i.is_multiple_of(2) { "Exp" } else { "Sigmoid" }.into(),
        name: format!("block{}/l{i}<b>&", i / 10),
        input: vec![format!("v{i}")],
        output: vec![format!("v{}", i + 1)],
        ..Default::default()
    };
    let dim = tensor_shape_proto::Dimension { value: Some(Value::DimValue(4)), ..Default::default() };
    let tensor = type_proto::Tensor { elem_type: 1, shape: Some(TensorShapeProto { dim: vec![dim] }) };
    let r#type = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..Default::default() };
    let value = |name: String| ValueInfoProto { name, r#type: Some(r#type.clone()), ..Default::default() };
    let graph = GraphProto {
        name: "<script>alert(1)</script>".into(),
        node: (0..layers).map(node).collect(),
        input: vec![value("v0".into())],
        output: vec![value(format!("v{layers}"))],
        ..Default::default()
    };
    let opset = OperatorSetIdProto { domain: String::new(), version: 17 };
    encoded(&ModelProto {
        ir_version: 8,
        opset_import: vec![opset],
        graph: Some(graph),
        ..Default::default()
    })
}

#[test]
fn two_thousand_layers_are_grouped_and_their_names_are_no_marks() {
    let f = Folder::new();
    let model = f.name("long.onnx");
    std::fs::write(&model, long(2000)).unwrap();
    let start = std::time::Instant::now();
    let options = ["--backend", "cpu", "--no-timing", "--no-fuse", "--no-search"];
    let text = page(&f, &[&[model.as_str()][..], &options].concat());
    assert_eq!(rows(&text, "layers").len(), 2000);
    let boxes = text.matches("<g class=\"box group\"").count();
    assert!((100..=300).contains(&boxes), "{boxes}");
    assert!(!text.contains("<b>") && !text.contains("<img") && text.contains("l7&lt;b&gt;&amp;"));
    assert!(text.len() < 4 << 20, "{} bytes", text.len());
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}
