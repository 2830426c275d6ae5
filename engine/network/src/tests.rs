//! Helpers of the network's tests, and tests of the network as a whole.

use super::*;
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::{DType, Dim, TensorType};

pub(super) fn f32s(shape: &[usize], v: &[f64]) -> Tensor {
    Tensor::from_elems(DType::F32, shape, &Elems::F(v.to_vec())).unwrap()
}

pub(super) fn ints(dtype: DType, shape: &[usize], v: &[i64]) -> Tensor {
    Tensor::from_elems(dtype, shape, &Elems::I(v.to_vec())).unwrap()
}

pub(super) fn ty(dtype: DType, dims: &[i64]) -> TensorType {
    TensorType::new(dtype, dims.to_vec())
}

/// An input of this type.
pub(super) fn input(net: &mut Network, name: &str, dtype: DType, dims: &[i64]) -> TensorId {
    net.add_input(name, ty(dtype, dims)).unwrap()
}

/// A constant.
pub(super) fn constant(net: &mut Network, t: Tensor) -> TensorId {
    net.add_weights(None, t).unwrap()
}

/// An integer scalar.
pub(super) fn int(net: &mut Network, dtype: DType, n: i64) -> TensorId {
    constant(net, ints(dtype, &[], &[n]))
}

/// The outputs of the lowered network on the oracle.
pub(super) fn run(net: &Network, inputs: &[Tensor]) -> Vec<Tensor> {
    let mut g = net.lower().unwrap();
    let out = g.eval(inputs).unwrap();
    // Inference again, through the whole graph, agrees with what was found layer by layer.
    let before: Vec<usize> = g.outputs.iter().map(|&v| g.ty(v).rank()).collect();
    g.refresh().unwrap();
    for ((&v, t), rank) in g.outputs.iter().zip(&out).zip(before) {
        assert_eq!((g.ty(v).dtype, g.ty(v).rank(), rank), (t.dtype(), t.shape().len(), t.shape().len()));
    }
    out
}

/// Runs a network of one layer: inputs of the tensors' types, and what `f` makes of them.
pub(super) fn through(
    inputs: &[Tensor],
    f: impl FnOnce(&mut Network, &[TensorId]) -> Result<TensorId, NetworkError>,
) -> Result<Tensor, NetworkError> {
    let mut net = Network::new("test");
    let ids: Vec<_> =
        inputs.iter().enumerate().map(|(i, t)| net.add_input(&format!("x{i}"), t.ty()).unwrap()).collect();
    let y = f(&mut net, &ids)?;
    net.mark_output(y, "y")?;
    Ok(run(&net, inputs).swap_remove(0))
}

/// The text of an error.
#[track_caller]
pub(super) fn refused<T, E: std::fmt::Display>(r: Result<T, E>, says: &str) {
    let text = match r {
        Ok(_) => panic!("accepted, wanted a refusal with \"{says}\""),
        Err(e) => e.to_string(),
    };
    assert!(text.contains(says), "\"{text}\" does not say \"{says}\"");
}

fn sum(net: &mut Network, a: TensorId, b: TensorId) -> TensorId {
    net.add_elementwise(a, b, ElementwiseOp::Sum).unwrap().output(0).unwrap()
}

#[test]
fn inputs_of_negative_size_are_refused() {
    let mut n = Network::new("n");
    let e = n.add_input("x", TensorType::new(DType::F32, [2, -3])).unwrap_err().to_string();
    assert!(e.contains("\"x\"") && e.contains("size -3 of axis 1"), "{e}");
}

#[test]
fn names_are_unique_and_short() {
    let mut net = Network::new("n");
    let x = input(&mut net, "x", DType::F32, &[2]);
    assert_eq!(net.add_input("x", ty(DType::F32, &[1])), Err(IrError::DuplicateName("x".into()).into()));
    refused(net.add_input(&"y".repeat(4096), ty(DType::F32, &[1])), "4096 bytes");
    refused(net.add_input("", ty(DType::F32, &[1])), "0 bytes");
    let a = net.add_unary(x, UnaryOp::Neg).unwrap().set_name("a").unwrap().output(0).unwrap();
    assert_eq!(net.tensor_name(a), "a");
    refused(net.add_unary(x, UnaryOp::Neg).unwrap().set_name("a"), "\"a\" is used twice");
    net.set_tensor_name(a, "b").unwrap();
    assert_eq!(net.find("b"), Some(a));
    refused(net.set_tensor_name(a, "x"), "\"x\" is used twice");
}

#[test]
fn outputs_are_marked_and_unmarked() {
    let mut net = Network::new("n");
    let x = input(&mut net, "x", DType::F32, &[2]);
    refused(net.mark_output(x, "y"), "\"x\" is an input of the network");
    let a = net.add_unary(x, UnaryOp::Neg).unwrap().output(0).unwrap();
    net.mark_output(a, "y").unwrap();
    refused(net.mark_output(a, "y"), "used twice");
    net.mark_output(a, "z").unwrap();
    let out = run(&net, &[f32s(&[2], &[1.0, -2.0])]);
    assert_eq!(out, [f32s(&[2], &[-1.0, 2.0]), f32s(&[2], &[-1.0, 2.0])]);
    net.unmark_output(a).unwrap();
    assert_eq!(net.outputs().len(), 1);
    refused(net.unmark_output(a), "not marked");
}

#[test]
fn only_loose_tensors_are_removed() {
    let mut net = Network::new("n");
    let x = input(&mut net, "x", DType::F32, &[2]);
    let spare = input(&mut net, "spare", DType::F32, &[2]);
    let y = net.add_unary(x, UnaryOp::Neg).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    refused(net.remove_tensor(x), "\"unary\" uses it");
    refused(net.remove_tensor(y), "\"unary\" uses it");
    net.remove_tensor(spare).unwrap();
    refused(net.add_unary(spare, UnaryOp::Neg).map(|l| l.id()), "not a tensor of this network");
    assert_eq!(net.lower().unwrap().inputs.len(), 1);
}

#[test]
fn a_change_infers_what_depends_on_it_or_changes_nothing() {
    let mut net = Network::new("n");
    let x = input(&mut net, "x", DType::F32, &[2, 3]);
    let w = input(&mut net, "w", DType::F32, &[2, 3]);
    let neg = net.add_unary(x, UnaryOp::Neg).unwrap();
    let (id, y) = (neg.id(), neg.output(0).unwrap());
    let s = sum(&mut net, y, w);
    let long = input(&mut net, "long", DType::F32, &[1, 3]);
    net.set_input(id, 0, long).unwrap();
    assert_eq!((net.ty(y).to_string(), net.ty(s).to_string()), ("f32[1,3]".into(), "f32[2,3]".into()));
    let bad = input(&mut net, "bad", DType::F32, &[5, 3]);
    refused(net.set_input(id, 0, bad), "layer \"elementwise\"");
    assert_eq!(net.ty(y).to_string(), "f32[1,3]");
    refused(net.set_input(id, 0, s), "close a cycle");
    refused(net.set_input(id, 1, x), "takes 1 inputs");
    refused(net.layer_of::<Unary>(id).unwrap().set_operation(UnaryOp::Not), "wants bool");
    assert_eq!(net.layer_of::<Unary>(id).unwrap().params().unwrap().operation(), UnaryOp::Neg);
    refused(net.layer_of::<Select>(id), "of kind unary, not Select");
}

#[test]
fn preferences_travel_unless_types_are_strong() {
    let mut net = Network::new("n");
    let x = input(&mut net, "x", DType::F32, &[2]);
    let l = net.add_unary(x, UnaryOp::Exp).unwrap().set_precision(DType::F16).unwrap();
    let l = l.set_output_type(0, DType::F16).unwrap().set_metadata("note");
    assert_eq!((l.precision(), l.output_type(0)), (Some(DType::F16), Some(DType::F16)));
    let y = l.output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    let g = net.lower().unwrap();
    let meta = &g.nodes().next().unwrap().1.meta;
    assert_eq!(meta.precision, Some(DType::F16));
    assert_eq!(meta.output_types, [Some(DType::F16)]);
    assert_eq!(meta.metadata, "note");
    let id = net.find_layer("unary").unwrap();
    let l = net.layer(id).unwrap().reset_precision().reset_output_type(0).unwrap();
    assert_eq!((l.precision(), l.output_type(0)), (None, None));

    let mut net = Network::strongly_typed("n");
    let x = input(&mut net, "x", DType::F32, &[2]);
    refused(net.add_unary(x, UnaryOp::Exp).unwrap().set_precision(DType::F16), "strongly typed");
    refused(net.add_unary(x, UnaryOp::Exp).unwrap().set_output_type(0, DType::F16), "strongly typed");
    let y = net.add_unary(x, UnaryOp::Exp).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    assert!(net.lower().unwrap().strong_types && !g.strong_types);
}

#[test]
fn an_output_type_makes_an_identity_a_cast() {
    let mut net = Network::new("n");
    let one = net.add_constant(ints(DType::I32, &[], &[1])).unwrap().output(0).unwrap();
    let l = net.add_identity(one).unwrap().set_output_type(0, DType::Bool).unwrap();
    let y = l.output(0).unwrap();
    assert_eq!(net.ty(y).dtype, DType::Bool);
    net.set_tensor_type(y, DType::Bool).unwrap();
    refused(net.set_tensor_type(y, DType::F32), "add a cast");
    net.mark_output(y, "y").unwrap();
    net.set_tensor_type(y, DType::I32).unwrap();
    assert_eq!(run(&net, &[]), [ints(DType::I32, &[], &[1])]);
}

#[test]
fn weights_have_names_of_their_own() {
    let mut net = Network::new("n");
    let a =
        net.add_constant(f32s(&[1], &[1.0])).unwrap().set_weights_name(WeightsRole::Constant, "w").unwrap();
    let (a, ta) = (a.id(), a.output(0).unwrap());
    let b = net.add_constant(f32s(&[1], &[2.0])).unwrap();
    refused(b.set_weights_name(WeightsRole::Constant, "w"), "\"w\" is used twice");
    refused(net.set_weights_name(a, WeightsRole::Kernel, "k"), "no weights in the role kernel");
    net.set_weights_name(a, WeightsRole::Constant, "w").unwrap();
    net.mark_output(ta, "y").unwrap();
    let g = net.lower().unwrap();
    assert_eq!(g.weight(g.outputs[0]).unwrap().name.as_deref(), Some("w"));
}

#[test]
fn equal_dimension_names_are_equal_dimensions() {
    let mut net = Network::new("n");
    let any = |n: &str| TensorType::new(DType::F32, [Dim::host(n), 3.into()]);
    let a = net.add_input("a", any("p")).unwrap();
    let b = net.add_input("b", any("q")).unwrap();
    let y = sum(&mut net, a, b);
    net.set_dimension_name(a, 0, "batch").unwrap();
    net.set_dimension_name(b, 0, "batch").unwrap();
    assert_eq!(net.ty(y).to_string(), "f32[batch,3]");
    refused(net.set_dimension_name(a, 1, "c"), "no unknown dimension 1");
}

#[test]
fn new_dimensions_of_an_input_reach_everything() {
    let mut net = Network::new("n");
    let x = input(&mut net, "x", DType::F32, &[2, 3]);
    let w = input(&mut net, "w", DType::F32, &[1, 3]);
    let y = sum(&mut net, x, w);
    net.set_dimensions(x, [Dim::host("n"), 3.into()]).unwrap();
    assert_eq!(net.ty(y).to_string(), "f32[n,3]");
    refused(net.set_dimensions(x, [Dim::new(2), 4.into()]), "layer \"elementwise\"");
    assert_eq!((net.ty(x).to_string(), net.ty(y).to_string()), ("f32[n,3]".into(), "f32[n,3]".into()));
    refused(net.set_dimensions(y, [Dim::new(2)]), "no input \"elementwise\"");
}

#[test]
fn outputs_for_shapes_are_integers_that_the_host_knows() {
    let mut net = Network::new("n");
    let x = net.add_input("x", TensorType::new(DType::F32, [Dim::host("n"), 3.into()])).unwrap();
    let shape = net.add_shape(x).unwrap().output(0).unwrap();
    net.mark_output_for_shapes(shape).unwrap();
    assert_eq!(net.outputs_for_shapes(), [shape]);
    refused(net.mark_output_for_shapes(shape), "used twice");
    refused(net.mark_output_for_shapes(x), "\"x\" is an input of the network");
    let y = net.add_unary(x, UnaryOp::Neg).unwrap().output(0).unwrap();
    refused(net.mark_output_for_shapes(y), "\"unary\" (f32[n,3]) can't be an output for shapes");
    let found = net.add_non_zero(x).unwrap().output(0).unwrap();
    let counted = net.add_shape(found).unwrap().output(0).unwrap();
    refused(net.mark_output_for_shapes(counted), "can't be an output for shapes");
    net.mark_output(y, "y").unwrap();
    let out = run(&net, &[f32s(&[2, 3], &[0.0; 6])]);
    assert_eq!(out[1], ints(DType::I64, &[2], &[2, 3]));
    assert!(net.unmark_output_for_shapes(shape) && !net.unmark_output_for_shapes(shape));
    assert_eq!(net.lower().unwrap().outputs.len(), 1);
}

#[test]
fn layers_keep_their_number_of_inputs() {
    let mut net = Network::new("n");
    let x = input(&mut net, "x", DType::F32, &[2]);
    let c = net.add_concatenation(&[x, x]).unwrap().id();
    net.set_input(c, 1, x).unwrap();
    refused(net.set_input(c, 2, x), "takes 2 inputs, none with index 2");
    let e = net.add_einsum(&[x], "i->i").unwrap().id();
    refused(net.set_input(e, 1, x), "takes 1 inputs, none with index 1");
}

#[test]
fn a_hundred_thousand_layers_are_written_changed_and_lowered_quickly() {
    let start = std::time::Instant::now();
    let mut net = Network::new("long");
    let x = input(&mut net, "x", DType::F32, &[2]);
    let mut y = x;
    for _ in 0..100_000 {
        let l = net.add_unary(y, UnaryOp::Neg).unwrap().set_operation(UnaryOp::Abs).unwrap();
        y = l.output(0).unwrap();
    }
    assert_eq!(net.tensor_name(y), "unary.100000");
    net.set_dimensions(x, [Dim::new(3)]).unwrap();
    assert_eq!(net.ty(y).to_string(), "f32[3]");
    net.mark_output(y, "y").unwrap();
    assert_eq!(net.lower().unwrap().nodes().count(), 100_000);
    // A search of all names or all layers for each takes many minutes.
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

#[test]
fn ids_of_other_networks_are_refused() {
    let mut a = Network::new("a");
    let x = input(&mut a, "x", DType::F32, &[2]);
    let y = a.add_unary(x, UnaryOp::Neg).unwrap();
    let (id, y) = (y.id(), y.output(0).unwrap());
    let mut b = Network::new("b");
    refused(b.add_identity(y).map(|l| l.id()), "not a tensor of this network");
    refused(b.layer(id).map(|l| l.id()), "no layer number 0");
    refused(a.layer(id).unwrap().output(1), "has 1 outputs");
}
