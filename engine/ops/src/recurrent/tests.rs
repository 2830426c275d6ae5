use super::*;
use crate::testing::{assert_near, f32s, infer, ints, run_all};
use kiln_ir::tensor::Tensor;

fn strs(v: &[&str]) -> Attr {
    Attr::Strs(v.iter().map(|s| s.to_string()).collect())
}

fn linear(direction: &str) -> Attrs {
    let n = if direction == "bidirectional" { 2 } else { 1 };
    Attrs::new().with("direction", direction).with("activations", strs(&vec!["Affine"; n]))
}

fn run(name: &str, attrs: Attrs, ins: &[Option<Tensor>]) -> Vec<Tensor> {
    run_all(name, attrs, ins).unwrap()
}

/// h = x + 10·h: digits pile up.
#[test]
fn directions_lengths_and_layouts_of_a_linear_recurrence() {
    let x = f32s(&[3, 2, 1], &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    let weights = |v: f64, dirs: usize| Some(f32s(&[dirs, 1, 1], &vec![v; dirs]));
    let ins = |dirs| vec![Some(x.clone()), weights(1.0, dirs), weights(10.0, dirs)];
    let out = run("rnn", linear("forward"), &ins(1));
    assert_near(&out[0], &[3, 1, 2, 1], &[1.0, 4.0, 12.0, 45.0, 123.0, 456.0], 0.0);
    assert_near(&out[1], &[1, 2, 1], &[123.0, 456.0], 0.0);
    let out = run("rnn", linear("reverse"), &ins(1));
    assert_near(&out[0], &[3, 1, 2, 1], &[321.0, 654.0, 32.0, 65.0, 3.0, 6.0], 0.0);
    let lens = Some(ints(DType::I32, &[2], &[2, 0]));
    let h0 = Some(f32s(&[2, 2, 1], &[7.0, 8.0, 9.0, 0.5]));
    let mut both = ins(2);
    both.extend([None, lens, h0]);
    let out = run("rnn", linear("bidirectional"), &both);
    let y = [71.0, 0.0, 921.0, 0.0, 712.0, 0.0, 92.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    assert_near(&out[0], &[3, 2, 2, 1], &y, 0.0);
    assert_near(&out[1], &[2, 2, 1], &[712.0, 8.0, 921.0, 0.5], 0.0);
    let batch_first = linear("forward").with("layout", 1i64);
    let x = f32s(&[2, 3, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let out = run("rnn", batch_first, &[Some(x), weights(1.0, 1), weights(10.0, 1)]);
    assert_near(&out[0], &[2, 3, 1, 1], &[1.0, 12.0, 123.0, 4.0, 45.0, 456.0], 0.0);
    assert_near(&out[1], &[2, 1, 1], &[123.0, 456.0], 0.0);
}

#[test]
fn parameters_are_consumed_by_those_that_have_them() {
    // f1 = tanh has none; f2 = leaky_relu takes 0.5.
    let attrs = Attrs::new()
        .with("direction", "bidirectional")
        .with("activations", strs(&["tanh", "LeakyRelu"]))
        .with("alpha", vec![0.5]);
    let one = |v: f64| Some(f32s(&[2, 1, 1], &[v; 2]));
    let out = run("rnn", attrs, &[Some(f32s(&[1, 1, 1], &[-2.0])), one(1.0), one(0.0)]);
    assert_near(&out[1], &[2, 1, 1], &[(-2f64).tanh(), -1.0], 1e-6);
    let clipped = linear("forward").with("clip", 1.5).with("alpha", vec![2.0]).with("beta", vec![1.0]);
    let w = || Some(f32s(&[1, 1, 1], &[1.0]));
    let out = run("rnn", clipped, &[Some(f32s(&[1, 1, 1], &[9.0])), w(), w()]);
    assert_near(&out[1], &[1, 1, 1], &[4.0], 0.0);
}

/// Gates made constant by biases: sigmoid(0) = 1/2.
#[test]
fn a_gru_by_hand() {
    let attrs = |late: bool| {
        Attrs::new().with("linear_before_reset", late).with("activations", strs(&["sigmoid", "affine"]))
    };
    let x = Some(f32s(&[1, 1, 1], &[1.0]));
    let w = Some(f32s(&[1, 3, 1], &[0.0, 0.0, 6.0]));
    let r = Some(f32s(&[1, 3, 1], &[0.0, 0.0, 2.0]));
    let b = Some(f32s(&[1, 6], &[0.0, 0.0, 1.0, 0.0, 0.0, 4.0]));
    let h = Some(f32s(&[1, 1, 1], &[8.0]));
    let ins = [x, w, r, b, None, h];
    // n = 6 + 1 + (½·8)·2 + 4 = 19, or 6 + 1 + ½·(8·2 + 4) = 17; h = ½n + ½·8.
    assert_near(&run("gru", attrs(false), &ins)[1], &[1, 1, 1], &[13.5], 1e-6);
    assert_near(&run("gru", attrs(true), &ins)[1], &[1, 1, 1], &[12.5], 1e-6);
}

#[test]
fn an_lstm_by_hand() {
    let x = Some(f32s(&[1, 1, 1], &[1.0]));
    // Gates i o f c; all linear, so that i = 2, o = 3 + p, f = 5, c = 7.
    let w = Some(f32s(&[1, 4, 1], &[1.0, 1.0, 1.0, 1.0]));
    let r = Some(f32s(&[1, 4, 1], &[0.0; 4]));
    let b = Some(f32s(&[1, 8], &[1.0, 2.0, 3.0, 5.0, 0.0, 0.0, 1.0, 1.0]));
    let (h, c) = (Some(f32s(&[1, 1, 1], &[0.0])), Some(f32s(&[1, 1, 1], &[10.0])));
    let acts = Attrs::new().with("activations", strs(&["affine", "affine", "affine"]));
    let ins = [x, w, r, b, None, h, c];
    let out = run("lstm", acts.clone(), &ins);
    assert_near(&out[2], &[1, 1, 1], &[64.0], 1e-5); // 5·10 + 2·7
    assert_near(&out[0], &[1, 1, 1, 1], &[192.0], 1e-5); // 3·64
    let coupled = run("lstm", acts.clone().with("input_forget", true), &ins);
    assert_near(&coupled[2], &[1, 1, 1], &[4.0], 1e-5); // (1 − 2)·10 + 2·7
    let peep = [&ins[..], &[Some(f32s(&[1, 3], &[0.1, 0.5, -0.2]))]].concat();
    let out = run("lstm", acts, &peep);
    assert_near(&out[2], &[1, 1, 1], &[51.0], 1e-4); // (5 − 2)·10 + (2 + 1)·7
    assert_near(&out[1], &[1, 1, 1], &[51.0 * 28.5], 1e-3); // 3 + 0.5·51
}

#[test]
fn misfits_are_named() {
    let dims = |v: &[i64]| v.iter().map(|&n| Dim::new(n)).collect::<Vec<_>>();
    let f = DType::F32;
    let bad = |attrs: Attrs, w: &[i64]| {
        let ins = [(f, dims(&[4, 2, 3])), (f, dims(w)), (f, dims(&[1, 20, 5]))];
        infer("lstm", attrs, &ins).unwrap_err().to_string()
    };
    assert!(bad(Attrs::new(), &[1, 15, 3]).contains("[1,20,3]"));
    assert!(bad(Attrs::new().with("hidden", 6i64), &[1, 20, 3]).contains("0 or 5"));
    assert!(bad(Attrs::new().with("activations", strs(&["tanh"])), &[1, 20, 3]).contains("3 names"));
    assert!(
        bad(Attrs::new().with("activations", strs(&["tanh", "tan", "relu"])), &[1, 20, 3])
            .contains("\"tan\"")
    );
    assert!(bad(Attrs::new().with("layout", 2i64), &[1, 20, 3]).contains("layout"));
}
