//! Pointwise layers over several slices read these where they are: gates, differences of neighbours, halves of channels.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Tensor, TensorType};
use kiln_network::{Network, TensorId};
use kiln_runtime::Engine;
use kiln_tests::backends::{cpu, cuda, reference, wgpu};
use std::sync::Arc;

const CASES: u64 = 60;

/// A network with its inputs.
struct Case {
    net: Network,
    inputs: Vec<(&'static str, Tensor)>,
    text: String,
}

/// Two slices of one input along an axis, and one of another input that may have a single element along an axis.
fn case(seed: u64, narrow: bool) -> Case {
    let mut rng = Rng::new(seed);
    let mut below = |n: i64| rng.int(0, n - 1);
    let rank = 1 + below(4) as usize;
    let mut dims: Vec<i64> = (0..rank).map(|_| 1 + below(7)).collect();
    dims[rank - 1] = if below(2) == 0 { 1 + below(40) } else { 8 * (1 + below(5)) };
    let axis = below(rank as i64) as usize;
    let types = [DType::F32, DType::I32, DType::F16];
    let t = types[below(if narrow { 3 } else { 2 }) as usize];
    // Slices of so many elements, from any place on.
    let count = 1 + below(dims[axis]);
    let starts = [below(dims[axis] - count + 1), below(dims[axis] - count + 1)];
    let from_end = below(2) == 1;
    let mut part = dims.clone();
    part[axis] = count;
    let one = below(rank as i64 + 1) as usize;
    let other: Vec<i64> = part.iter().enumerate().map(|(d, &n)| if d == one { 1 } else { n + 2 }).collect();

    let mut net = Network::new("sliced");
    let x = net.add_input("x", TensorType::new(t, dims.iter().copied())).unwrap();
    let z = net.add_input("z", TensorType::new(t, other.iter().copied())).unwrap();
    let cut = |net: &mut Network, v: TensorId, bounds: &[(usize, i64, i64)]| {
        let list = |net: &mut Network, of: &dyn Fn(&(usize, i64, i64)) -> i64| {
            let values: Vec<i64> = bounds.iter().map(of).collect();
            net.add_constant(Tensor::i64(&[values.len()], &values).unwrap()).unwrap().output(0).unwrap()
        };
        let inputs = [list(net, &|b| b.1), list(net, &|b| b.2), list(net, &|b| b.0 as i64)];
        let inputs = [v].into_iter().chain(inputs).map(Some).collect::<Vec<_>>();
        net.add_layer("slice", "slice", Attrs::new(), &inputs).unwrap()[0]
    };
    let place = |start: i64| match from_end {
        true if start + count < dims[axis] => (axis, start - dims[axis], start + count - dims[axis]),
        _ => (axis, start, start + count),
    };
    let [a, b] = starts.map(|s| cut(&mut net, x, &[place(s)]));
    let inner: Vec<(usize, i64, i64)> =
        (0..rank).filter(|&d| d != one).map(|d| (d, 1, 1 + part[d])).collect();
    let c = if inner.is_empty() { z } else { cut(&mut net, z, &inner) };
    let both = |net: &mut Network, op: &str, a: TensorId, b: TensorId| {
        net.add_layer(op, op, Attrs::new(), &[Some(a), Some(b)]).unwrap()[0]
    };
    let m = both(&mut net, "sub", a, b);
    let m = both(&mut net, "mul", m, c);
    let y = both(&mut net, "max", m, b);
    net.mark_output(y, "y").unwrap();
    let tensor = |seed, d: &[i64]| {
        let shape: Vec<usize> = d.iter().map(|&n| n as usize).collect();
        Rng::new(seed).tensor(t, &shape)
    };
    let inputs = vec![("x", tensor(seed + 1000, &dims)), ("z", tensor(seed + 2000, &other))];
    let text = format!("seed {seed}: {t} {dims:?} by {starts:?}, {count} along {axis}, and {other:?}");
    Case { net, inputs, text }
}

/// The number of kernels that a network becomes, and its output.
fn run(backend: &Arc<dyn Backend>, case: &Case) -> (usize, Tensor) {
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target.clone());
    builder.config = BuildConfig { estimates: true, ..BuildConfig::default() };
    let program = builder.build(&case.net).unwrap().program;
    let steps = program.steps.iter().filter(|s| !program.is_view(s)).count();
    let engine = Engine::on_target(program, Vec::new(), backend.as_ref(), target).unwrap();
    let mut outputs = engine.create_context().unwrap().run(&case.inputs).unwrap();
    (steps, outputs.remove(0).1)
}

/// Compares with the oracle; at least so many cases are one kernel.
fn check(backend: &Arc<dyn Backend>, least: u64) {
    let narrow = backend.name() != "wgpu" || backend.targets().unwrap()[0].has("f16");
    let mut fused = 0;
    for seed in 0..CASES {
        let case = case(seed, narrow);
        let ((steps, found), (_, wanted)) = (run(backend, &case), run(&reference(), &case));
        fused += u64::from(steps == 1);
        assert_eq!((found.dtype(), found.shape()), (wanted.dtype(), wanted.shape()), "{}", case.text);
        for (a, b) in found.to_f64().into_iter().zip(wanted.to_f64()) {
            let most = if found.dtype() == DType::F16 { 4e-3 } else { 1e-5 } * (1.0 + b.abs());
            assert!((a - b).abs() <= most || a == b, "{}: {a}, wanted {b}", case.text);
        }
    }
    assert!(fused >= least, "{fused} of {CASES} cases are one kernel");
}

#[test]
fn on_cpu() {
    check(&cpu(), 0);
}

#[test]
fn on_wgpu() {
    wgpu().unwrap().iter().for_each(|b| check(b, CASES));
}

#[test]
fn on_cuda() {
    // Eight neighbours at a time: those of short rows whose lengths are no multiples of eight are moved apart.
    cuda().unwrap().iter().for_each(|b| check(b, CASES / 4));
}
