//! Operators that the pattern of a plug-in layer describes become the layer, where the build asks for it.

use crate::example;
use crate::examples::{f32s, reference, run_with};
use kiln_builder::{BuildConfig, BuildError, Builder, Refit};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Tensor, TensorType};
use kiln_network::{Network, TensorId};

const SHAPE: [usize; 2] = [3, 4];

fn asks(name: &str) -> BuildConfig {
    BuildConfig { replace_by_plugins: vec![name.into()], ..BuildConfig::default() }
}

fn op(net: &mut Network, name: &str, inputs: &[TensorId]) -> TensorId {
    let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
    net.add_layer("", name, Attrs::new(), &inputs).unwrap()[0]
}

fn number(net: &mut Network, x: f32) -> TensorId {
    net.add_constant(Tensor::f32(&[], &[x]).unwrap()).unwrap().output(0).unwrap()
}

/// The fields `beta` of the plug-in layers that a build leaves.
fn betas(net: &Network, config: BuildConfig) -> Vec<f64> {
    let target = reference().targets().unwrap().remove(0);
    let mut builder = Builder::new(reference(), target);
    builder.config = config;
    let program = builder.build(net).unwrap().program;
    let mut found: Vec<f64> = program
        .graph
        .nodes()
        .filter(|(_, n)| n.op.is(kiln_ops::plugin::PLUGIN_POINTWISE))
        .map(|(_, n)| kiln_ops::plugin::fields(n.op.attrs()).unwrap().float("beta").unwrap())
        .collect();
    found.sort_by(f64::total_cmp);
    found
}

/// x · sigmoid(beta · x) with operands in this order, and perhaps a reader of what is inside.
fn written(net: &mut Network, x: TensorId, beta: Option<f32>, order: usize, read: bool) -> TensorId {
    let scaled = match beta {
        Some(beta) => {
            let b = number(net, beta);
            let both = if order & 1 == 0 { [x, b] } else { [b, x] };
            op(net, "mul", &both)
        }
        None => x,
    };
    let s = op(net, "sigmoid", &[scaled]);
    let both = if order & 2 == 0 { [x, s] } else { [s, x] };
    let y = op(net, "mul", &both);
    if read { op(net, "add", &[y, s]) } else { y }
}

#[test]
fn a_pattern_is_found_and_its_constant_becomes_a_field() {
    example("swish");
    for order in 0..4 {
        for (beta, wanted) in [(Some(0.75), 0.75), (None, 1.0)] {
            let mut net = Network::new("net");
            let x = net.add_input("x", TensorType::new(DType::F32, [3, 4])).unwrap();
            let y = written(&mut net, x, beta, order, false);
            net.mark_output(y, "y").unwrap();
            assert_eq!(betas(&net, asks("example::Swish")), [wanted], "{order}");
            assert_eq!(betas(&net, asks("Swish")), [wanted]);
            assert!(betas(&net, BuildConfig::default()).is_empty(), "only where it is asked for");
        }
    }
}

/// Near misses stay: an inner result that others read, another input, a vector for a scalar, another type, an output
/// inside, a weight that a refit may replace.
#[test]
fn near_misses_stay() {
    example("swish");
    let miss = |build: &dyn Fn(&mut Network, TensorId) -> TensorId, config: BuildConfig| {
        let mut net = Network::new("net");
        let x = net.add_input("x", TensorType::new(DType::F32, [3, 4])).unwrap();
        let y = build(&mut net, x);
        net.mark_output(y, "y").unwrap();
        betas(&net, config)
    };
    let config = || asks("Swish");
    assert!(miss(&|n, x| written(n, x, Some(2.0), 0, true), config()).is_empty());
    let other = |n: &mut Network, x| {
        let s = op(n, "sigmoid", &[x]);
        let z = op(n, "neg", &[x]);
        op(n, "mul", &[z, s])
    };
    assert!(miss(&other, config()).is_empty());
    let vector = |n: &mut Network, x| {
        let b = n.add_constant(f32s(&[4], &[1.0, 2.0, 3.0, 4.0])).unwrap().output(0).unwrap();
        let a = op(n, "mul", &[x, b]);
        let s = op(n, "sigmoid", &[a]);
        op(n, "mul", &[x, s])
    };
    assert!(miss(&vector, config()).is_empty());
    let weight = |n: &mut Network, x| {
        let b = n.add_weights(Some("beta"), Tensor::f32(&[], &[0.5]).unwrap()).unwrap();
        let a = op(n, "mul", &[x, b]);
        let s = op(n, "sigmoid", &[a]);
        op(n, "mul", &[x, s])
    };
    assert_eq!(miss(&weight, config()), [0.5]);
    assert!(miss(&weight, BuildConfig { refit: Refit::All, ..config() }).is_empty());
    let shown = |n: &mut Network, x| {
        let s = op(n, "sigmoid", &[x]);
        n.mark_output(s, "s").unwrap();
        op(n, "mul", &[x, s])
    };
    assert!(miss(&shown, config()).is_empty());
}

#[test]
fn a_name_without_a_pattern_is_refused() {
    example("swish");
    example("nms");
    for name in ["Swash", "BestBoxes", "other::Swish"] {
        let mut net = Network::new("net");
        let x = net.add_input("x", TensorType::new(DType::F32, [3, 4])).unwrap();
        let y = op(&mut net, "neg", &[x]);
        net.mark_output(y, "y").unwrap();
        let mut builder = Builder::new(reference(), reference().targets().unwrap().remove(0));
        builder.config = asks(name);
        let e = builder.build(&net).map(drop).unwrap_err();
        assert!(matches!(e, BuildError::NoPattern { .. }), "{e}");
        assert!(e.to_string().contains("example::Swish") && e.to_string().contains(name), "{e}");
    }
}

/// Random graphs, with what the pattern describes and what almost is: results are those without the layer.
#[test]
fn random_graphs_keep_their_results() {
    example("swish");
    let mut replaced = 0;
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut net = Network::new("random");
        let x = net.add_input("x", TensorType::new(DType::F32, SHAPE.map(|n| n as i64))).unwrap();
        let mut all = vec![x];
        for _ in 0..8 {
            let a = all[rng.int(0, all.len() as i64 - 1) as usize];
            let b = all[rng.int(0, all.len() as i64 - 1) as usize];
            let y = match rng.int(0, 6) {
                0 => op(&mut net, "mul", &[a, b]),
                1 => op(&mut net, "sigmoid", &[a]),
                2 => op(&mut net, "tanh", &[a]),
                3 => op(&mut net, "add", &[a, b]),
                kind => {
                    let beta = [None, Some(0.5), Some(-1.25)][rng.int(0, 2) as usize];
                    let order = rng.int(0, 3) as usize;
                    written(&mut net, a, beta, order, kind == 4)
                }
            };
            all.push(y);
        }
        for (i, &y) in all.iter().rev().take(2).enumerate() {
            net.mark_output(y, &format!("y{i}")).unwrap();
        }
        replaced += betas(&net, asks("Swish")).len();
        let values: Vec<f32> = (0..12).map(|_| rng.int(-400, 400) as f32 / 100.0).collect();
        let inputs = [f32s(&SHAPE, &values)];
        let wanted = run_with(&reference(), &net, &inputs, BuildConfig::default()).unwrap();
        let found = run_with(&reference(), &net, &inputs, asks("Swish")).unwrap();
        for (a, b) in found.iter().zip(&wanted) {
            let close = |(a, b): (f64, f64)| (a - b).abs() <= 1e-4 * b.abs().max(1.0);
            assert!(a.to_f64().into_iter().zip(b.to_f64()).all(close), "{seed}: {a:?} {b:?}");
        }
    }
    assert!(replaced >= 40, "{replaced}");
}
