//! Names of files that would drive a terminal or flood it.

use crate::common::{Folder, Ran, kiln};
use kiln_onnx::proto::*;
use kiln_tests::mutants::models::encoded;

/// Sets the title of a window, clears it, erases the line, reverses the direction, and ends the line.
const HARM: &str = "a\u{1b}]0;x\u{7}\u{1b}[2J\r\u{9b}2K\u{202e}b\n";
/// Bytes of a name that is too long.
const LONG: usize = 1 << 20;
/// More than any output of these commands should have.
const OUTPUT: usize = 96 << 10;

fn tensor(name: &str, dim: tensor_shape_proto::dimension::Value) -> ValueInfoProto {
    let dim = tensor_shape_proto::Dimension { value: Some(dim), ..Default::default() };
    let tensor = type_proto::Tensor { elem_type: 1, shape: Some(TensorShapeProto { dim: vec![dim] }) };
    let r#type = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..Default::default() };
    ValueInfoProto { name: name.into(), r#type: Some(r#type), ..Default::default() }
}

/// A model all of whose names end in these: graph, tensors, dimension, layers, and the operator of the last layer.
fn model(op: &str, end: &str) -> Vec<u8> {
    use tensor_shape_proto::dimension::Value;
    let node = |op: &str, from: &str, to: &str| NodeProto {
        op_type: op.into(),
        name: format!("layer{to}{end}"),
        input: vec![format!("{from}{end}")],
        output: vec![format!("{to}{end}")],
        ..Default::default()
    };
    let graph = GraphProto {
        name: format!("graph{end}"),
        node: vec![node("Exp", "x", "h"), node("Softmax", "h", "p"), node(op, "p", "y")],
        input: vec![tensor(&format!("x{end}"), Value::DimParam(format!("n{end}")))],
        output: vec![ValueInfoProto { name: format!("y{end}"), ..Default::default() }],
        ..Default::default()
    };
    let opset = OperatorSetIdProto { domain: String::new(), version: 17 };
    let model = ModelProto {
        ir_version: 8,
        producer_name: format!("producer{end}"),
        opset_import: vec![opset],
        graph: Some(graph),
        ..Default::default()
    };
    encoded(&model)
}

/// Checks that nothing was printed that a terminal obeys, and not too much.
fn harmless(what: &[&str], r: &Ran) {
    for text in [&r.stdout, &r.stderr] {
        let bad = text.chars().find(|&c| c.is_control() && c != '\n' || c == '\u{202e}');
        assert!(bad.is_none(), "{what:?} prints {bad:?}: {text}");
    }
    let json = what.contains(&"--json");
    let size = r.stderr.len() + if json { 0 } else { r.stdout.len() };
    assert!(size < OUTPUT, "{what:?} prints {size} bytes");
}

/// Every command that prints names, with and without remarks.
#[test]
fn names_neither_drive_nor_flood_the_terminal() {
    let f = Folder::new();
    std::fs::write(f.path("long.onnx"), model("Neg", &"long".repeat(LONG / 4))).unwrap();
    let args = ["run", &f.name("long.onnx"), "--backend", "cpu", "--random-inputs", "1"];
    let r = kiln(&args);
    harmless(&args, &r);
    assert!(r.code == 1 && r.stderr.contains("wants 1 to 4095"), "{}", r.stderr);
    for end in [HARM.to_owned(), "long".repeat(1000)] {
        let (good, bad, cut) = (f.name("m.onnx"), f.name("bad.onnx"), f.name("cut.onnx"));
        std::fs::write(&good, model("Neg", &end)).unwrap();
        std::fs::write(&bad, model(&format!("No{end}"), &end)).unwrap();
        std::fs::write(&cut, model("Gather", &end)).unwrap();
        let (engine, outputs) = (f.name("e.kiln"), f.name("o.npz"));
        let (page, part, artifact) = (f.name("p.html"), f.name("part.onnx"), f.name("a.onnx"));
        let commands: &[(i32, &[&str])] = &[
            (0, &["build", &good, "-o", &engine, "--backend", "cpu", "--no-timing", "--layers"]),
            (0, &["inspect", &engine, "--layers"]),
            (0, &["inspect", &engine, "--layers", "--json"]),
            (0, &["run", &engine, "--random-inputs", "1", "--save-outputs", &outputs]),
            (0, &["run", &engine, "--random-inputs", "1", "--json"]),
            (1, &["run", &engine]),
            (
                0,
                &["bench", &engine, "--warm-up", "1", "--iterations", "2", "--duration", "0.01", "--profile"],
            ),
            (1, &["run", &bad, "--backend", "cpu", "--random-inputs", "1"]),
            (1, &["build", &cut, "-o", &engine, "--backend", "cpu", "--no-timing"]),
            (0, &["compare", &good, "--backends", "cpu,cpu", "--per-layer", "--random-inputs", "1"]),
            (0, &["check", &good, "--backends", "cpu", "--layers"]),
            (0, &["check", &good, "--backends", "cpu", "--json"]),
            (1, &["check", &bad, "--backends", "cpu"]),
            (0, &["report", &engine, "-o", &page]),
            (0, &["debug", "precision", &good, "--rtol", "1", "--atol", "1"]),
            (0, &["debug", "reduce", &good, "-o", &part, "--artifact", &artifact, "--check", "false"]),
        ];
        for (code, args) in commands {
            for more in [&[][..], &["-vv"]] {
                let r = kiln(&[args, more].concat());
                harmless(args, &r);
                assert_eq!(r.code, *code, "{args:?}: {}", r.stderr.chars().take(2000).collect::<String>());
            }
        }
        for (code, model) in [(0, &good), (1, &bad)] {
            let model = format!("--onnx={model}");
            let limits =
                ["--warmUp=0", "--duration=0", "--iterations=1", "--backend=cpu", "--cpuOnly", "--verbose"];
            let dumps = ["--dumpProfile", "--dumpLayerInfo", "--dumpOutput", "--profilingVerbosity=detailed"];
            let args = [&["trtexec", &model][..], &limits, &dumps].concat();
            let r = kiln(&args);
            harmless(&args, &r);
            assert_eq!(r.code, code, "{}", r.stderr);
        }
    }
}
