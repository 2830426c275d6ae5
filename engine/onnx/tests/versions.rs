//! Operators whose form changed between versions: every form has the same result.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

mod common;

use common::{check, int, ints, node, tensor};
use kiln_ir::Tensor;
use kiln_onnx::proto::attribute_proto::AttributeType;
use kiln_onnx::proto::tensor_proto::DataType;
use kiln_onnx::proto::*;
use kiln_onnx::{ImportOptions, Imported, OnnxError, import};

fn f32s(dims: &[i64], values: &[f32]) -> TensorProto {
    TensorProto { float_data: values.to_vec(), ..tensor("", DataType::Float, dims) }
}

fn i64s(dims: &[i64], values: &[i64]) -> TensorProto {
    TensorProto { int64_data: values.to_vec(), ..tensor("", DataType::Int64, dims) }
}

fn bytes(dtype: DataType, dims: &[i64], values: &[i32]) -> TensorProto {
    TensorProto { int32_data: values.to_vec(), ..tensor("", dtype, dims) }
}

fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto { name: name.into(), f, r#type: AttributeType::Float as i32, ..Default::default() }
}

fn text(name: &str, s: &str) -> AttributeProto {
    let s = s.as_bytes().to_vec().into();
    AttributeProto { name: name.into(), s, r#type: AttributeType::String as i32, ..Default::default() }
}

/// The import of one node of this version on constant inputs; `None` stands for an absent input.
fn import_node(
    op: &str,
    version: i64,
    attributes: Vec<AttributeProto>,
    inputs: &[Option<TensorProto>],
    outputs: &[&str],
) -> Result<Imported, OnnxError> {
    let name = |i: usize| format!("in{i}");
    let names: Vec<String> =
        inputs.iter().enumerate().map(|(i, t)| if t.is_some() { name(i) } else { String::new() }).collect();
    let mut call = node(op, &names.iter().map(String::as_str).collect::<Vec<_>>(), outputs);
    call.attribute = attributes;
    let mut graph = common::graph(&[], vec![call], outputs);
    let named = inputs.iter().enumerate().filter_map(|(i, t)| Some((i, t.clone()?)));
    graph.initializer = named.map(|(i, t)| TensorProto { name: name(i), ..t }).collect();
    let model = ModelProto { opset_import: vec![common::opset("", version)], ..common::model(graph) };
    import(&check(&model).unwrap(), &ImportOptions::default())
}

/// The outputs of one node of this version on constant inputs; `None` stands for an absent input.
fn run_all(
    op: &str,
    version: i64,
    attributes: Vec<AttributeProto>,
    inputs: &[Option<TensorProto>],
    outputs: &[&str],
) -> Vec<Tensor> {
    let done = import_node(op, version, attributes, inputs, outputs);
    let done = done.unwrap_or_else(|e| panic!("{op} {version}: {e}"));
    done.network.lower().unwrap().eval(&[]).unwrap_or_else(|e| panic!("{op} {version}: {e}"))
}

fn run(op: &str, version: i64, attributes: Vec<AttributeProto>, inputs: &[TensorProto]) -> Tensor {
    let inputs: Vec<_> = inputs.iter().cloned().map(Some).collect();
    run_all(op, version, attributes, &inputs, &["y"]).remove(0)
}

fn assert_is(found: &Tensor, shape: &[usize], values: &[f64]) {
    assert_eq!(found.shape(), shape);
    for (a, b) in found.to_f64().iter().zip(values) {
        assert!((a - b).abs() < 1e-5, "{:?}, wanted {values:?}", found.to_f64());
    }
}

#[test]
fn axes_as_attribute_and_input() {
    let x = f32s(&[1, 2, 1], &[1.0, 2.0]);
    let axes = i64s(&[1], &[-1]);
    assert_is(&run("Squeeze", 11, vec![ints("axes", &[2])], &[x.clone()]), &[1, 2], &[1.0, 2.0]);
    assert_is(&run("Squeeze", 13, vec![], &[x.clone(), axes.clone()]), &[1, 2], &[1.0, 2.0]);
    assert_is(&run("Squeeze", 13, vec![], &[x.clone()]), &[2], &[1.0, 2.0]);
    assert_is(&run("Unsqueeze", 11, vec![ints("axes", &[0])], &[x.clone()]), &[1, 1, 2, 1], &[1.0, 2.0]);
    assert_is(&run("Unsqueeze", 13, vec![], &[x.clone(), axes]), &[1, 2, 1, 1], &[1.0, 2.0]);
    for (op, from) in [("ReduceSum", 13), ("ReduceMax", 18)] {
        let wanted = if op == "ReduceSum" { 3.0 } else { 2.0 };
        let old = run(op, from - 1, vec![ints("axes", &[1]), int("keepdims", 0)], &[x.clone()]);
        assert_is(&old, &[1, 1], &[wanted]);
        let new = run(op, from, vec![int("keepdims", 0)], &[x.clone(), i64s(&[1], &[1])]);
        assert_is(&new, &[1, 1], &[wanted]);
        assert_is(&run(op, from, vec![], &[x.clone()]), &[1, 1, 1], &[wanted]);
    }
    let kept = run("ReduceSum", 13, vec![int("noop_with_empty_axes", 1)], &[x]);
    assert_is(&kept, &[1, 2, 1], &[1.0, 2.0]);
}

#[test]
fn pads() {
    let x = f32s(&[1, 2], &[1.0, 2.0]);
    let wanted = [7.0, 1.0, 2.0, 7.0, 7.0];
    let (pads, value) = ([0, 1, 0, 2], float("value", 7.0));
    let first = run("Pad", 1, vec![ints("paddings", &pads), value.clone()], &[x.clone()]);
    assert_is(&first, &[1, 5], &wanted);
    assert_is(&run("Pad", 2, vec![ints("pads", &pads), value], &[x.clone()]), &[1, 5], &wanted);
    let inputs = [x.clone(), i64s(&[4], &pads), f32s(&[], &[7.0])];
    assert_is(&run("Pad", 11, vec![], &inputs), &[1, 5], &wanted);
    let inputs = [x, i64s(&[2], &[1, 2]), f32s(&[], &[7.0]), i64s(&[1], &[-1])];
    assert_is(&run("Pad", 18, vec![], &inputs), &[1, 5], &wanted);
}

#[test]
fn clips() {
    let x = f32s(&[3], &[-5.0, 0.5, 5.0]);
    let old = run("Clip", 6, vec![float("min", -1.0), float("max", 1.0)], &[x.clone()]);
    assert_is(&old, &[3], &[-1.0, 0.5, 1.0]);
    let bounds = [x.clone(), f32s(&[], &[-1.0]), f32s(&[], &[1.0])];
    assert_is(&run("Clip", 13, vec![], &bounds), &[3], &[-1.0, 0.5, 1.0]);
    let upper = run_all("Clip", 13, vec![], &[Some(x.clone()), None, Some(f32s(&[], &[1.0]))], &["y"]);
    assert_is(&upper[0], &[3], &[-5.0, 0.5, 1.0]);
    // A lower bound above the upper one: the upper one wins.
    let crossed = [x, f32s(&[], &[2.0]), f32s(&[], &[1.0])];
    assert_is(&run("Clip", 13, vec![], &crossed), &[3], &[1.0, 1.0, 1.0]);
    let whole = [i64s(&[2], &[-9, 9]), i64s(&[], &[0]), i64s(&[], &[4])];
    assert_eq!(run("Clip", 13, vec![], &whole), Tensor::i64(&[2], &[0, 4]).unwrap());
}

#[test]
fn topk_and_tile_and_split() {
    let x = f32s(&[4], &[3.0, 1.0, 4.0, 2.0]);
    let old = run_all("TopK", 1, vec![int("k", 2)], &[Some(x.clone())], &["v", "i"]);
    let new = run_all("TopK", 11, vec![], &[Some(x.clone()), Some(i64s(&[1], &[2]))], &["v", "i"]);
    for found in [old, new] {
        assert_is(&found[0], &[2], &[4.0, 3.0]);
        assert_eq!(found[1], Tensor::i64(&[2], &[2, 0]).unwrap());
    }
    let pair = f32s(&[1, 2], &[1.0, 2.0]);
    let old = run("Tile", 1, vec![], &[pair.clone(), f32s(&[1], &[2.0]), f32s(&[1], &[1.0])]);
    assert_is(&old, &[1, 4], &[1.0, 2.0, 1.0, 2.0]);
    let new = run("Tile", 13, vec![], &[pair, i64s(&[2], &[1, 2])]);
    assert_is(&new, &[1, 4], &[1.0, 2.0, 1.0, 2.0]);
    let parts = |version, attrs, inputs: &[Option<TensorProto>]| {
        let parts = run_all("Split", version, attrs, inputs, &["a", "b"]);
        assert_is(&parts[0], &[1], &[3.0]);
        assert_is(&parts[1], &[3], &[1.0, 4.0, 2.0]);
    };
    parts(11, vec![ints("split", &[1, 3])], &[Some(x.clone())]);
    parts(13, vec![], &[Some(x.clone()), Some(i64s(&[2], &[1, 3]))]);
    let uneven = run_all("Split", 18, vec![int("num_outputs", 3)], &[Some(x)], &["a", "b", "c"]);
    assert_eq!(uneven.iter().map(|t| t.shape()[0]).collect::<Vec<_>>(), [2, 2, 0]);
}

#[test]
fn group_normalization_scales_groups_then_channels() {
    // Two groups of two channels, one element each: every group normalizes to -1 and 1.
    let x = f32s(&[1, 4, 1], &[0.0, 2.0, 10.0, 30.0]);
    let groups = || vec![int("num_groups", 2), float("epsilon", 0.0)];
    let by_group = [x.clone(), f32s(&[2], &[1.0, 10.0]), f32s(&[2], &[0.0, 100.0])];
    assert_is(&run("GroupNormalization", 18, groups(), &by_group), &[1, 4, 1], &[-1.0, 1.0, 90.0, 110.0]);
    let by_channel = [x, f32s(&[4], &[1.0, 2.0, 3.0, 4.0]), f32s(&[4], &[0.0; 4])];
    assert_is(&run("GroupNormalization", 21, groups(), &by_channel), &[1, 4, 1], &[-1.0, 2.0, -3.0, 4.0]);
}

#[test]
fn masks_of_dropout_change_type() {
    for (version, dtype) in [(7, "f32"), (10, "bool"), (13, "bool")] {
        let out = run_all("Dropout", version, vec![], &[Some(f32s(&[2], &[3.0, 4.0]))], &["y", "m"]);
        assert_is(&out[0], &[2], &[3.0, 4.0]);
        assert_is(&out[1], &[2], &[1.0, 1.0]);
        assert_eq!(out[1].dtype().name(), dtype);
    }
}

#[test]
fn casts_by_name_and_number() {
    let x = f32s(&[2], &[1.9, -1.9]);
    for (version, to) in [(1, text("to", "INT64")), (9, int("to", 7))] {
        let y = run("Cast", version, vec![to], std::slice::from_ref(&x));
        assert_eq!(y, Tensor::i64(&[2], &[1, -1]).unwrap());
    }
}

#[test]
fn slopes_belong_to_channels_before_version_7() {
    let x = f32s(&[1, 2, 2], &[-1.0; 4]);
    let old = run("PRelu", 6, vec![], &[x.clone(), f32s(&[2], &[0.1, 0.2])]);
    assert_is(&old, &[1, 2, 2], &[-0.1, -0.1, -0.2, -0.2]);
    let new = run("PRelu", 7, vec![], &[x, f32s(&[2], &[0.1, 0.2])]);
    assert_is(&new, &[1, 2, 2], &[-0.1, -0.2, -0.1, -0.2]);
}

#[test]
fn quantization_by_axis_and_block() {
    let x = || f32s(&[2, 4], &[1.0, 2.0, 3.0, 4.0, 10.0, 20.0, 30.0, 40.0]);
    let zero = bytes(DataType::Int8, &[2], &[0, 1]);
    let by_row = [x(), f32s(&[2], &[1.0, 10.0]), zero];
    let y = run("QuantizeLinear", 13, vec![int("axis", 0)], &by_row);
    assert_is(&y, &[2, 4], &[1.0, 2.0, 3.0, 4.0, 2.0, 3.0, 4.0, 5.0]);
    let scales = f32s(&[2, 2], &[1.0, 0.5, 10.0, 5.0]);
    let attrs = || vec![int("axis", 1), int("block_size", 2), int("output_dtype", 3)];
    let y = run("QuantizeLinear", 21, attrs(), &[x(), scales.clone()]);
    assert_eq!((y.dtype().name(), y.to_i64()), ("i8", vec![1, 2, 6, 8, 1, 2, 6, 8]));
    let q = bytes(DataType::Int8, &[2, 4], &[1, 2, 6, 8, 1, 2, 6, 8]);
    let back = run("DequantizeLinear", 21, vec![int("axis", 1), int("block_size", 2)], &[q, scales]);
    assert_is(&back, &[2, 4], &[1.0, 2.0, 3.0, 4.0, 10.0, 20.0, 30.0, 40.0]);
}

#[test]
fn integer_products_subtract_zero_points_by_row_and_column() {
    let a = bytes(DataType::Uint8, &[2, 2], &[2, 3, 12, 13]);
    let b = bytes(DataType::Int8, &[2, 2], &[1, 5, 1, 6]);
    let inputs = [a, b, bytes(DataType::Uint8, &[2], &[1, 10]), bytes(DataType::Int8, &[2], &[0, 4])];
    // [[1, 2], [2, 3]] by [[1, 1], [1, 2]].
    assert_is(&run("MatMulInteger", 10, vec![], &inputs), &[2, 2], &[3.0, 5.0, 5.0, 8.0]);
}

#[test]
fn powers_keep_the_type_of_the_base() {
    let y = run("Pow", 12, vec![], &[i64s(&[2], &[2, 9]), f32s(&[2], &[3.0, 0.5])]);
    assert_eq!(y, Tensor::i64(&[2], &[8, 3]).unwrap());
    let y = run("Pow", 12, vec![], &[f32s(&[1], &[2.0]), i64s(&[1], &[-1])]);
    assert_is(&y, &[1], &[0.5]);
}

#[test]
fn upsampling_by_attribute_and_input() {
    let x = || f32s(&[1, 1, 1, 2], &[1.0, 2.0]);
    let wanted = [1.0, 1.0, 2.0, 2.0];
    let scales = |values: &[f32]| AttributeProto {
        name: "scales".into(),
        floats: values.to_vec(),
        r#type: AttributeType::Floats as i32,
        ..Default::default()
    };
    let first = run("Upsample", 1, vec![float("height_scale", 1.0), float("width_scale", 2.0)], &[x()]);
    assert_is(&first, &[1, 1, 1, 4], &wanted);
    assert_is(&run("Upsample", 7, vec![scales(&[1.0, 1.0, 1.0, 2.0])], &[x()]), &[1, 1, 1, 4], &wanted);
    let input = f32s(&[4], &[1.0, 1.0, 1.0, 2.0]);
    for op in [("Upsample", 9), ("Resize", 10)] {
        assert_is(&run(op.0, op.1, vec![], &[x(), input.clone()]), &[1, 1, 1, 4], &wanted);
    }
    let none = f32s(&[0], &[]);
    let newer = [x(), none.clone(), none, i64s(&[4], &[1, 1, 1, 4])];
    assert_is(&run("Resize", 13, vec![], &newer), &[1, 1, 1, 4], &wanted);
}

#[test]
fn what_a_version_does_not_have_is_refused_by_name() {
    let x = || f32s(&[1, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let refused = |op: &str, version, attributes, inputs: Vec<TensorProto>, outputs: &[&str]| {
        let inputs: Vec<_> = inputs.into_iter().map(Some).collect();
        match import_node(op, version, attributes, &inputs, outputs) {
            Ok(_) => panic!("{op} {version} is imported"),
            Err(e) => e.to_string(),
        }
    };
    let cases = [
        (
            refused("SpaceToDepth", 13, vec![int("blocksize", 2), text("mode", "CRD")], vec![x()], &["y"]),
            "node 'SpaceToDepth_y' (SpaceToDepth, version 13): attribute 'mode' does not exist in version 13",
        ),
        (
            refused("Attention", 24, vec![int("left_window_size", 1)], vec![x(), x(), x()], &["y"]),
            "attribute 'left_window_size' does not exist in version 24",
        ),
        (
            refused("Attention", 28, vec![int("next_window_size", 1)], vec![x(), x(), x()], &["y"]),
            "attribute 'next_window_size' does not exist in version 25",
        ),
        (refused("Swish", 23, vec![], vec![x()], &["y"]), "defined from operator set 24 on"),
        (refused("BitCast", 25, vec![int("to", 6)], vec![x()], &["y"]), "defined from operator set 26 on"),
        (
            refused("Upsample", 13, vec![], vec![x(), f32s(&[4], &[1.0; 4])], &["y"]),
            "removed in operator set 10",
        ),
        (
            refused("Relu", 14, vec![], vec![x(), x()], &["y"]),
            "2 inputs, where version 14 of the operator has 1 at most",
        ),
        (refused("Relu", 14, vec![], vec![x()], &["y", "z"]), "2 outputs, where version 14"),
        (refused("Add", 14, vec![], vec![x()], &["y"]), "input 1 (B) is missing"),
        (
            refused("Gather", 13, vec![], vec![x(), f32s(&[1], &[0.0])], &["y"]),
            "input 1 (indices) is f32, where version 13 of the operator wants one of int32, int64",
        ),
        (
            refused(
                "LayerNormalization",
                17,
                vec![int("stash_type", 16)],
                vec![x(), f32s(&[2], &[1.0; 2])],
                &["y"],
            ),
            "stash_type",
        ),
        (
            refused("Conv", 11, vec![ints("kernel_shape", &[3, 3])], vec![x(), x()], &["y"]),
            "attribute 'kernel_shape' is [3, 3], where the weights are",
        ),
        (
            refused(
                "BatchNormalization",
                6,
                vec![],
                vec![x(); 1].into_iter().chain((0..4).map(|_| f32s(&[1], &[1.0]))).collect(),
                &["y"],
            ),
            "training mode",
        ),
    ];
    for (found, wanted) in cases {
        assert!(found.contains(wanted), "{found}\nlacks: {wanted}");
    }
}

#[test]
fn modes_of_space_to_depth() {
    let x = f32s(&[1, 2, 2, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    let of =
        |mode: &str| run("SpaceToDepth", 28, vec![int("blocksize", 2), text("mode", mode)], &[x.clone()]);
    assert_is(&of("DCR"), &[1, 8, 1, 1], &[0.0, 4.0, 1.0, 5.0, 2.0, 6.0, 3.0, 7.0]);
    assert_is(&of("CRD"), &[1, 8, 1, 1], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
}

#[test]
fn remainders_that_are_zero_have_the_sign_of_the_divisor() {
    let (a, b) = (f32s(&[4], &[0.0, -0.0, 4.0, -4.0]), f32s(&[4], &[-2.0, 2.0, -2.0, 2.0]));
    let signs = |t: &Tensor| t.to_f64().iter().map(|x| x.is_sign_negative()).collect::<Vec<_>>();
    let y = run("Mod", 28, vec![int("fmod", 0)], &[a.clone(), b.clone()]);
    assert_eq!((y.to_f64(), signs(&y)), (vec![0.0; 4], vec![true, false, true, false]));
    let y = run("Mod", 28, vec![int("fmod", 1)], &[a, b]);
    assert_eq!(signs(&y), [false, true, false, true]);
}
