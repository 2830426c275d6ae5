//! Models that contradict the specification are refused at import, or by the run where only that knows the sizes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

mod common;

use common::{body, check, graph, int, model, node, tensor, typed};
use kiln_ir::{DType, Tensor};
use kiln_onnx::proto::tensor_proto::DataType::{self, Bool, Double, Float, Int64};
use kiln_onnx::proto::*;
use kiln_onnx::{ImportOptions, Imported, OnnxError, import};

fn i64s(name: &str, values: &[i64]) -> TensorProto {
    TensorProto { int64_data: values.to_vec(), ..tensor(name, Int64, &[values.len() as i64]) }
}

fn bools(name: &str, value: bool) -> TensorProto {
    TensorProto { int32_data: vec![value.into()], ..tensor(name, Bool, &[]) }
}

fn imported(graph: GraphProto, version: i64) -> Result<Imported, OnnxError> {
    let model = ModelProto { opset_import: vec![common::opset("", version)], ..model(graph) };
    import(&check(&model).unwrap(), &ImportOptions::default())
}

fn refused(graph: GraphProto, version: i64, wanted: &[&str]) {
    let Err(e) = imported(graph, version) else { panic!("imported; wanted {wanted:?}") };
    let e = e.to_string();
    assert!(wanted.iter().all(|part| e.contains(part)), "{e}\nwants: {wanted:?}");
}

fn of(nodes: Vec<NodeProto>, inputs: Vec<ValueInfoProto>, outputs: &[&str]) -> GraphProto {
    GraphProto { input: inputs, ..graph(&[], nodes, outputs) }
}

#[test]
fn sizes_of_a_split_are_checked() {
    let split = |sizes: &[i64]| GraphProto {
        initializer: vec![i64s("s", sizes)],
        ..of(vec![node("Split", &["x", "s"], &["a", "b"])], vec![typed("x", Float, &["2", "4"])], &["a", "b"])
    };
    let with_axis = |sizes| {
        let mut g = split(sizes);
        g.node[0].attribute = vec![int("axis", 1)];
        g
    };
    assert!(imported(with_axis(&[1, 3]), 13).is_ok());
    for sizes in [&[1, 2][..], &[-1, 5], &[2, 3], &[4], &[1, 1, 2], &[i64::MAX, i64::MAX]] {
        refused(
            with_axis(sizes),
            13,
            &["'Split_a' (Split, version 13)", &format!("{sizes:?}"), "f32[2,4] along axis 1"],
        );
    }
    let mut old = of(vec![node("Split", &["x"], &["a", "b"])], vec![typed("x", Float, &["4"])], &["a", "b"]);
    old.node[0].attribute = vec![common::ints("split", &[3, 3])];
    refused(old, 11, &["[3, 3]", "whose sum is 4"]);
}

#[test]
fn sizes_of_a_split_that_only_the_run_knows_are_checked_by_it() {
    let inputs = || vec![typed("x", Float, &["n"]), typed("s", Int64, &["2"])];
    let g = of(vec![node("Split", &["x", "s"], &["a", "b"])], inputs(), &["a", "b"]);
    let lowered = imported(g, 13).unwrap().network.lower().unwrap();
    let x = Tensor::f32(&[4], &[1.0, 2.0, 3.0, 4.0]).unwrap();
    let run = |s: &[i64]| lowered.eval(&[x.clone(), Tensor::i64(&[2], s).unwrap()]);
    assert_eq!(run(&[1, 3]).unwrap()[1].to_f64(), [2.0, 3.0, 4.0]);
    for (sizes, wanted) in
        [([1, 2], "do not add up to axis 0"), ([-1, 5], "is negative"), ([5, -1], "is negative")]
    {
        let e = run(&sizes).unwrap_err().to_string();
        assert!(e.contains("Split_a") && e.contains(wanted), "{e}");
    }
    // Constant sizes of an axis that is not known.
    let g = GraphProto {
        initializer: vec![i64s("s", &[1, 3])],
        ..of(vec![node("Split", &["x", "s"], &["a", "b"])], vec![typed("x", Float, &["n"])], &["a", "b"])
    };
    let lowered = imported(g, 13).unwrap().network.lower().unwrap();
    assert!(lowered.eval(&[x]).is_ok());
    let e = lowered.eval(&[Tensor::f32(&[5], &[0.0; 5]).unwrap()]).unwrap_err().to_string();
    assert!(e.contains("Split_a") && e.contains("[1, 3]"), "{e}");
}

#[test]
fn ranks_that_the_operators_fix_are_checked() {
    let cases: &[(&str, &[(&str, DataType, &[&str])], &str)] = &[
        (
            "Gemm",
            &[("a", Float, &["2", "2", "2"]), ("b", Float, &["2", "2"])],
            "input 0 (A) is f32[2,2,2]: the operator wants 2",
        ),
        (
            "Gemm",
            &[("a", Float, &["2", "2"]), ("b", Float, &["2"])],
            "input 1 (B) is f32[2]: the operator wants 2",
        ),
        (
            "Gemm",
            &[("a", Float, &["2", "2"]), ("b", Float, &["2", "2"]), ("c", Float, &["1", "2", "2"])],
            "input 2 (C)",
        ),
        ("DepthToSpace", &[("a", Float, &["4", "2", "2"])], "wants 4 dimensions"),
        ("Conv", &[("a", Float, &["1", "1", "4"]), ("b", Float, &["1", "1", "2", "2"])], "as many as X has"),
        ("GlobalAveragePool", &[("a", Float, &["2", "3"])], "wants 3 or more"),
        (
            "LSTM",
            &[("a", Float, &["2", "3"]), ("b", Float, &["1", "8", "3"]), ("c", Float, &["1", "8", "2"])],
            "input 0 (X)",
        ),
        (
            "ScatterElements",
            &[("a", Float, &["3"]), ("b", Int64, &["1"]), ("c", Float, &["1", "1"])],
            "as many as data has",
        ),
        ("Det", &[("a", Float, &["2"])], "2 or more"),
    ];
    for (op, inputs, wanted) in cases {
        let names: Vec<&str> = inputs.iter().map(|i| i.0).collect();
        let given = inputs.iter().map(|(name, ty, dims)| typed(name, *ty, dims)).collect();
        let mut call = node(op, &names, &["y"]);
        if *op == "DepthToSpace" {
            call.attribute = vec![int("blocksize", 2)];
        }
        refused(of(vec![call], given, &["y"]), 17, &[&format!("({op}, version 17)"), wanted]);
    }
}

#[test]
fn declarations_of_outputs_that_contradict_are_refused() {
    let declared = |ty, dims: &[&str]| GraphProto {
        output: vec![typed("y", ty, dims)],
        ..of(vec![node("Relu", &["x"], &["y"])], vec![typed("x", Float, &["2", "n"])], &[])
    };
    for dims in [&["2", "n"][..], &["2", "3"], &["m", "k"]] {
        assert!(imported(declared(Float, dims), 17).is_ok());
    }
    // DOUBLE is held in f32.
    assert!(imported(declared(Double, &["2", "n"]), 17).is_ok());
    refused(declared(Int64, &["2", "n"]), 17, &["output 'y' is f32[2,n]", "declares INT64[2,n]"]);
    refused(declared(Float, &["3", "n"]), 17, &["output 'y' is f32[2,n]", "declares FLOAT[3,n]"]);
    refused(declared(Float, &["2"]), 17, &["output 'y' is f32[2,n]"]);
}

#[test]
fn declarations_of_outputs_are_stale_where_other_input_sizes_are_given() {
    let g = GraphProto {
        output: vec![typed("y", Float, &["2"])],
        ..of(vec![node("Relu", &["x"], &["y"])], vec![typed("x", Float, &["2"])], &[])
    };
    let checked = check(&model(g)).unwrap();
    let options = ImportOptions { shapes: [("x".to_owned(), vec![5])].into() };
    assert!(import(&checked, &options).is_ok());
}

#[test]
fn declarations_inside_are_refused_by_type_and_noted_by_shape() {
    let declared = |ty, dims: &[&str]| GraphProto {
        value_info: vec![typed("v", ty, dims)],
        ..of(
            vec![node("Relu", &["x"], &["v"]), node("Abs", &["v"], &["y"])],
            vec![typed("x", Float, &["2"])],
            &["y"],
        )
    };
    refused(
        declared(Int64, &["2"]),
        17,
        &["'Relu_v' (Relu, version 17): 'v' is f32[2]", "declares INT64[2]"],
    );
    let notes = imported(declared(Float, &["3"]), 17).unwrap().report.notes;
    assert!(notes.iter().any(|n| n.contains("'v' is f32[2]") && n.contains("FLOAT[3]")), "{notes:?}");
    assert!(imported(declared(Float, &["2"]), 17).unwrap().report.notes.is_empty());
}

fn branches(then: ValueInfoProto, other: ValueInfoProto, to: &str, constant: bool) -> GraphProto {
    let mut cast = node("Cast", &["x"], &["e"]);
    cast.attribute = vec![int("to", if to == "INT64" { 7 } else { 1 })];
    let mut call = node("If", &["c"], &["y"]);
    let of_then = GraphProto { output: vec![then], ..graph(&[], vec![node("Neg", &["x"], &["t"])], &[]) };
    let of_else = GraphProto { output: vec![other], ..graph(&[], vec![cast], &[]) };
    call.attribute = vec![body("then_branch", of_then), body("else_branch", of_else)];
    let x = typed("x", Float, &["3"]);
    match constant {
        true => GraphProto { initializer: vec![bools("c", true)], ..of(vec![call], vec![x], &["y"]) },
        false => of(vec![call], vec![x, typed("c", Bool, &[])], &["y"]),
    }
}

#[test]
fn branches_of_different_types_are_refused() {
    let plain = |name| common::info(name);
    assert!(imported(branches(plain("t"), plain("e"), "FLOAT", false), 17).is_ok());
    refused(branches(plain("t"), plain("e"), "INT64", false), 17, &["If_y", "f32", "i64"]);
    // The branch that a constant condition leaves out counts, too.
    let (t, e) = (typed("t", Float, &["3"]), typed("e", Int64, &["3"]));
    refused(branches(t.clone(), e.clone(), "INT64", true), 17, &["'If_y'", "else_branch", "INT64", "FLOAT"]);
    // Declared otherwise than made.
    refused(branches(t, typed("e", Float, &["3"]), "INT64", false), 17, &["'If_y'", "'e' is i64[3]"]);
}

fn scan(
    inputs: &[(&str, &[&str])],
    body_inputs: &[&str],
    body_outputs: &[&str],
    outputs: &[&str],
) -> GraphProto {
    let names: Vec<&str> = inputs.iter().map(|i| i.0).collect();
    let mut call = node("Scan", &names, outputs);
    let inner = graph(body_inputs, vec![node("Add", &["p", "q"], &["r"])], body_outputs);
    call.attribute = vec![int("num_scan_inputs", inputs.len() as i64), body("body", inner)];
    of(vec![call], inputs.iter().map(|(n, dims)| typed(n, Float, dims)).collect(), outputs)
}

#[test]
fn scan_inputs_are_of_one_length() {
    let of = |a, b| scan(&[("a", &[a]), ("b", &[b])], &["p", "q"], &["r"], &["y"]);
    assert!(imported(of("4", "4"), 17).is_ok());
    refused(
        of("4", "5"),
        17,
        &["'Scan_y' (Scan, version 17)", "different length", "4 in input 0", "5 in input 1"],
    );
    let lowered = imported(of("4", "n"), 17).unwrap().network.lower().unwrap();
    let zeros = |n: usize| Tensor::zeros(DType::F32, &[n]).unwrap();
    assert_eq!(lowered.eval(&[zeros(4), zeros(4)]).unwrap()[0].shape(), [4]);
    for n in [3, 5] {
        let e = lowered.eval(&[zeros(4), zeros(n)]).unwrap_err().to_string();
        assert!(e.contains("Scan_y") && e.contains("differ in length"), "{e}");
    }
}

#[test]
fn bodies_have_the_inputs_and_outputs_that_their_nodes_need() {
    let two: [(&str, &[&str]); 2] = [("a", &["4"]), ("b", &["4"])];
    refused(
        scan(&two, &["p", "q", "z"], &["r"], &["y"]),
        17,
        &["'Scan_y'", "'body' has 3 inputs", "wanted 2"],
    );
    refused(
        scan(&two, &["p", "q"], &["r"], &["y", "z"]),
        17,
        &["'Scan_y'", "'body' has 1 outputs: wanted 2"],
    );
    let looped = |outputs: &[&str], inside: &[&str]| {
        let mut call = node("Loop", &["n", "", "x"], outputs);
        let nodes = vec![node("Identity", &["go"], &["on"]), node("Neg", &["v"], &["w"])];
        call.attribute = vec![body("body", graph(&["i", "go", "v"], nodes, inside))];
        of(vec![call], vec![typed("n", Int64, &[]), typed("x", Float, &["3"])], outputs)
    };
    assert!(imported(looped(&["y"], &["on", "w"]), 17).is_ok());
    refused(looped(&["y", "z"], &["on", "w"]), 17, &["'Loop_y'", "'body' has 2 outputs: wanted 3"]);
    refused(looped(&["y"], &["on"]), 17, &["'Loop_y'", "1 outputs: wanted 3 and at least 2"]);
}
