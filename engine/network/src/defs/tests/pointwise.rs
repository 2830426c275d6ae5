use crate::tests::{f32s, input, ints, refused, run, through};
use crate::*;
use kiln_ir::DType;
use kiln_ir::tensor::Tensor;

fn activate(
    kind: ActivationKind,
    x: Tensor,
    f: impl FnOnce(Layer<'_, Activation>) -> Result<Layer<'_, Activation>, NetworkError>,
) -> Result<Tensor, NetworkError> {
    through(&[x], |n, x| f(n.add_activation(x[0], kind)?)?.output(0))
}

#[test]
fn activations_follow_their_formulas() {
    use ActivationKind as K;
    // Kind, α and β, and what −2, 0 and 3 become.
    let cases: &[(K, Option<(f64, f64)>, [f64; 3])] = &[
        (K::Relu, None, [0.0, 0.0, 3.0]),
        (K::Sigmoid, None, [0.119_202_922, 0.5, 0.952_574_127]),
        (K::Tanh, None, [-0.964_027_58, 0.0, 0.995_054_754]),
        (K::LeakyRelu, Some((0.25, 0.0)), [-0.5, 0.0, 3.0]),
        (K::Elu, Some((2.0, 0.0)), [-1.729_329_433, 0.0, 3.0]),
        (K::Selu, Some((2.0, 3.0)), [-5.187_988_3, 0.0, 9.0]),
        (K::Softsign, None, [-2.0 / 3.0, 0.0, 0.75]),
        (K::Softplus, Some((2.0, 0.5)), [0.626_523_4, 1.386_294_36, 3.402_826_6]),
        (K::Clip, Some((-1.0, 2.0)), [-1.0, 0.0, 2.0]),
        (K::HardSigmoid, Some((0.25, 0.5)), [0.0, 0.5, 1.0]),
        (K::ScaledTanh, Some((2.0, 0.5)), [-1.523_188_3, 0.0, 1.810_296_5]),
        (K::ThresholdedRelu, Some((1.0, 0.0)), [0.0, 0.0, 3.0]),
        (K::GeluErf, None, [-0.045_500_264, 0.0, 2.995_950_3]),
        (K::GeluTanh, None, [-0.045_402_306, 0.0, 2.996_362_6]),
    ];
    for &(kind, params, want) in cases {
        let y = activate(kind, f32s(&[3], &[-2.0, 0.0, 3.0]), |l| match params {
            Some((a, b)) => l.set_alpha(a)?.set_beta(b),
            None => Ok(l),
        });
        for (y, want) in y.unwrap().to_f64().iter().zip(want) {
            assert!((y - want).abs() < 2e-6, "{kind:?}: {y}, wanted {want}");
        }
    }
}

#[test]
fn activations_refuse_integers_and_odd_parameters() {
    use ActivationKind as K;
    let n = ints(DType::I32, &[3], &[-2, 0, 3]);
    assert_eq!(activate(K::Relu, n.clone(), |l| Ok(l)).unwrap(), ints(DType::I32, &[3], &[0, 0, 3]));
    refused(activate(K::Tanh, n, |l| Ok(l)), "layer \"activation\" (activation): input 0 is i32");
    let x = f32s(&[1], &[1.0]);
    refused(activate(K::Elu, x.clone(), |l| l.set_alpha(f64::NAN)), "wants finite");
    refused(activate(K::ScaledTanh, x, |l| l.set_beta(f64::INFINITY)), "wants finite");
    refused(activate(K::Relu, ints(DType::Bool, &[1], &[1]), |l| Ok(l)), "is bool");
}

#[test]
fn unary_functions_have_their_types() {
    use UnaryOp as U;
    let go = |op, x: Tensor| through(&[x], |n, x| n.add_unary(x[0], op)?.output(0));
    let cases: &[(U, f64, f64)] = &[
        (U::Exp, 0.0, 1.0),
        (U::Log, 1.0, 0.0),
        (U::Sqrt, 9.0, 3.0),
        (U::Recip, 4.0, 0.25),
        (U::Abs, -2.0, 2.0),
        (U::Neg, 2.0, -2.0),
        (U::Sin, 0.5, 0.479_425_54),
        (U::Cos, 0.5, 0.877_582_56),
        (U::Tan, 0.5, 0.546_302_5),
        (U::Sinh, 0.5, 0.521_095_3),
        (U::Cosh, 0.5, 1.127_626),
        (U::Asin, 0.25, 0.252_680_26),
        (U::Acos, 0.25, 1.318_116_1),
        (U::Atan, 0.5, 0.463_647_6),
        (U::Asinh, 0.5, 0.481_211_8),
        (U::Acosh, 1.5, 0.962_423_65),
        (U::Atanh, 0.5, 0.549_306_15),
        (U::Ceil, 1.2, 2.0),
        (U::Floor, -1.2, -2.0),
        (U::Erf, 0.5, 0.520_499_9),
        (U::Sign, -3.5, -1.0),
        (U::Round, 2.5, 2.0),
        (U::Round, 3.5, 4.0),
    ];
    for &(op, x, want) in cases {
        let y = go(op, f32s(&[1], &[x])).unwrap().to_f64()[0];
        assert!((y - want).abs() < 1e-6, "{op:?}({x}) = {y}, wanted {want}");
    }
    let odd = f32s(&[3], &[f64::NAN, f64::INFINITY, 1.0]);
    assert_eq!(go(U::IsNan, odd.clone()).unwrap(), ints(DType::Bool, &[3], &[1, 0, 0]));
    assert_eq!(go(U::IsInf, odd.clone()).unwrap(), ints(DType::Bool, &[3], &[0, 1, 0]));
    assert_eq!(go(U::Not, ints(DType::Bool, &[2], &[0, 1])).unwrap().to_i64(), [1, 0]);
    assert_eq!(go(U::Abs, ints(DType::I64, &[1], &[-7])).unwrap().to_i64(), [7]);
    refused(go(U::Not, odd), "wants bool");
    refused(go(U::Exp, ints(DType::I32, &[1], &[1])), "wants a float type");
    refused(go(U::Abs, ints(DType::Bool, &[1], &[1])), "wants a signed type");
}

#[test]
fn elementwise_layers_stretch_ones_of_equal_rank() {
    use ElementwiseOp as E;
    let go = |op, a: Tensor, b: Tensor| through(&[a, b], |n, x| n.add_elementwise(x[0], x[1], op)?.output(0));
    let (a, b) = (f32s(&[2, 1], &[7.0, -7.0]), f32s(&[1, 2], &[2.0, 3.0]));
    let cases: &[(E, [f64; 4])] = &[
        (E::Sum, [9.0, 10.0, -5.0, -4.0]),
        (E::Prod, [14.0, 21.0, -14.0, -21.0]),
        (E::Max, [7.0, 7.0, 2.0, 3.0]),
        (E::Min, [2.0, 3.0, -7.0, -7.0]),
        (E::Sub, [5.0, 4.0, -9.0, -10.0]),
        (E::Div, [3.5, 7.0 / 3.0, -3.5, -7.0 / 3.0]),
        (E::Pow, [49.0, 343.0, 49.0, -343.0]),
        (E::FloorDiv, [3.0, 2.0, -4.0, -3.0]),
    ];
    for &(op, want) in cases {
        assert_eq!(go(op, a.clone(), b.clone()).unwrap(), f32s(&[2, 2], &want), "{op:?}");
    }
    for (op, want) in [(E::Equal, [0, 0, 0, 0]), (E::Greater, [1, 1, 0, 0]), (E::Less, [0, 0, 1, 1])] {
        assert_eq!(go(op, a.clone(), b.clone()).unwrap(), ints(DType::Bool, &[2, 2], &want), "{op:?}");
    }
    let (t, f) = (ints(DType::Bool, &[4], &[0, 0, 1, 1]), ints(DType::Bool, &[4], &[0, 1, 0, 1]));
    for (op, want) in [(E::And, [0, 0, 0, 1]), (E::Or, [0, 1, 1, 1]), (E::Xor, [0, 1, 1, 0])] {
        assert_eq!(go(op, t.clone(), f.clone()).unwrap().to_i64(), want, "{op:?}");
    }
    refused(go(E::Sum, t.clone(), f), "wants a number");
    refused(go(E::And, a.clone(), b.clone()), "wants bool");
    refused(go(E::Sum, a.clone(), f32s(&[2], &[1.0, 2.0])), "the same rank");
    refused(go(E::Sum, f32s(&[2], &[0.0; 2]), f32s(&[3], &[0.0; 3])), "equal or 1");
    refused(go(E::Sum, a, ints(DType::I32, &[1, 1], &[1])), "wants f32");
    // Zero is a length like any other: 0 beside 1 gives 0.
    assert_eq!(go(E::Sum, f32s(&[0, 3], &[]), f32s(&[1, 3], &[0.0; 3])).unwrap().shape(), [0, 3]);
    assert_eq!(
        go(E::Sum, f32s(&[1, 2, 1], &[0.0; 2]), f32s(&[3, 1, 1], &[0.0; 3])).unwrap().shape(),
        [3, 2, 1]
    );
}

#[test]
fn select_and_parametric_relu_stretch() {
    let c = ints(DType::Bool, &[2, 1], &[1, 0]);
    let go = |c: Tensor, a: Tensor, b: Tensor| {
        through(&[c, a, b], |n, x| n.add_select(x[0], x[1], x[2])?.output(0))
    };
    let y = go(c.clone(), f32s(&[1, 2], &[1.0, 2.0]), f32s(&[1, 1], &[9.0])).unwrap();
    assert_eq!(y, f32s(&[2, 2], &[1.0, 2.0, 9.0, 9.0]));
    assert_eq!(go(c.clone(), f32s(&[1, 0], &[]), f32s(&[1, 1], &[9.0])).unwrap().shape(), [2, 0]);
    refused(go(c.clone(), f32s(&[1], &[1.0]), f32s(&[1, 1], &[9.0])), "the same rank");
    refused(go(c.clone(), c, f32s(&[1, 1], &[9.0])), "wants bool, as input 1 is");
    refused(go(f32s(&[1], &[1.0]), f32s(&[1], &[1.0]), f32s(&[1], &[9.0])), "wants bool");

    let go = |a: Tensor, b: Tensor| through(&[a, b], |n, x| n.add_parametric_relu(x[0], x[1])?.output(0));
    let x = f32s(&[2, 2], &[-1.0, 2.0, -3.0, 4.0]);
    assert_eq!(go(x.clone(), f32s(&[2, 1], &[0.5, 2.0])).unwrap(), f32s(&[2, 2], &[-0.5, 2.0, -6.0, 4.0]));
    refused(go(f32s(&[2, 1], &[0.0; 2]), x), "second must broadcast to the first");
    let n = ints(DType::I32, &[1], &[1]);
    refused(go(n.clone(), n), "wants a float type");
}

#[test]
fn constants_conversions_shapes() {
    let mut net = Network::new("n");
    let c = net.add_constant(f32s(&[2], &[1.5, -2.5])).unwrap();
    let (id, c) = (c.id(), c.output(0).unwrap());
    let i = net.add_cast(c, DType::I32).unwrap().output(0).unwrap();
    let copy = net.add_identity(i).unwrap().output(0).unwrap();
    net.mark_output(copy, "y").unwrap();
    assert_eq!(run(&net, &[]), [ints(DType::I32, &[2], &[1, -2])]);
    net.layer_of::<Constant>(id).unwrap().set_weights(f32s(&[1], &[7.0])).unwrap();
    assert_eq!(run(&net, &[]), [ints(DType::I32, &[1], &[7])]);
    refused(net.add_constant(ints(DType::Bool, &[1], &[1])), "make it i32 and add a cast");
    refused(net.add_constant(ints(DType::U8, &[1], &[1])), "make it i32 and add a cast");
    let x = input(&mut net, "x", DType::F32, &[4, 5]);
    let s = net.add_shape(x).unwrap().output(0).unwrap();
    net.mark_output(s, "s").unwrap();
    assert_eq!(run(&net, &[f32s(&[4, 5], &[0.0; 20])])[1], ints(DType::I64, &[2], &[4, 5]));
}

#[test]
fn assertions_hold_or_stop() {
    let mut net = Network::new("n");
    let c = input(&mut net, "c", DType::Bool, &[2]);
    net.add_assertion(c, "both are needed").unwrap();
    let y = net.add_unary(c, UnaryOp::Not).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    let g = net.lower().unwrap();
    assert_eq!(g.eval(&[ints(DType::Bool, &[2], &[1, 1])]).unwrap()[0].to_i64(), [0, 0]);
    refused(g.eval(&[ints(DType::Bool, &[2], &[1, 0])]), "both are needed");
    let no = net.add_weights(None, ints(DType::Bool, &[], &[0])).unwrap();
    refused(net.add_assertion(no, "never"), "false already: never");
    let m = input(&mut net, "m", DType::Bool, &[1, 1]);
    refused(net.add_assertion(m, ""), "at most one dimension");
}
