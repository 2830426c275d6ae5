//! Convolutions and products between odd numbers of channels get whole vectors of them, and compute the same, on CUDA.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::cache::TimingCache;
use kiln_builder::{BuildConfig, Builder, Built, Narrowing, Refit};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Dim, Tensor, TensorType};
use kiln_network::{Network, TensorId};
use kiln_runtime::{Engine, Profile};
use kiln_tests::backends::{cuda, reference};
use kiln_tests::models::difference;
use std::sync::Arc;

/// Weights of the layers, as often as they are drawn from the same seed.
fn weights(seed: u64, shape: &[usize]) -> Tensor {
    let sum: usize = shape.iter().skip(1).product();
    let range = 1.5 / (sum as f64).sqrt();
    Rng::new(seed).tensor_in(DType::F32, shape, -range, range, 0)
}

fn layer(net: &mut Network, name: &str, op: &str, attrs: Attrs, inputs: &[TensorId]) -> TensorId {
    let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
    net.add_layer(name, op, attrs, &inputs).unwrap()[0]
}

/// Convolutions of 64 → 100 → 90 → 32 channels with what stands between such layers, and a second output of 100 channels.
fn images(seed: u64) -> Network {
    let mut net = Network::new("images");
    let dims = vec![Dim::host("n"), 64.into(), 16.into(), 16.into()];
    let x = net.add_input("x", TensorType { dtype: DType::F32, dims }).unwrap();
    let conv = |net: &mut Network, name: &str, x: TensorId, w: [usize; 4]| {
        let bias = net.add_weights(Some(&format!("{name}.bias")), weights(seed + 7, &[w[0]])).unwrap();
        let w = net.add_weights(Some(&format!("{name}.weight")), weights(seed, &w)).unwrap();
        layer(net, name, "conv", Attrs::new(), &[x, w, bias])
    };
    let a = conv(&mut net, "a", x, [100, 64, 1, 1]);
    let a = layer(&mut net, "swish", "sigmoid", Attrs::new(), &[a]);
    let b = conv(&mut net, "b", a, [90, 100, 1, 1]);
    let b = layer(&mut net, "relu", "relu", Attrs::new(), &[b]);
    let y = conv(&mut net, "c", b, [32, 90, 1, 1]);
    net.mark_output(y, "y").unwrap();
    net.mark_output(a, "a_out").unwrap();
    net
}

/// Two products with 341 hidden columns.
fn rows(seed: u64) -> Network {
    let mut net = Network::new("rows");
    let dims = vec![Dim::host("n"), 512.into(), 128.into()];
    let x = net.add_input("x", TensorType { dtype: DType::F32, dims }).unwrap();
    let up = net.add_weights(Some("up.weight"), weights(seed, &[128, 341])).unwrap();
    let down = net.add_weights(Some("down.weight"), weights(seed + 1, &[341, 128])).unwrap();
    let a = layer(&mut net, "up", "matmul", Attrs::new(), &[x, up]);
    let a = layer(&mut net, "relu", "relu", Attrs::new(), &[a]);
    let y = layer(&mut net, "down", "matmul", Attrs::new(), &[a, down]);
    net.mark_output(y, "y").unwrap();
    net
}

fn profile(x: &[i64]) -> Profile {
    let mut p = Profile::new();
    let (mut least, mut most) = (x.to_vec(), x.to_vec());
    (least[0], most[0]) = (1, x[0].max(4));
    p.set_shape("x", &least, x, &most).unwrap();
    p
}

fn build(backend: &Arc<dyn Backend>, net: &Network, x: &[i64], fold: bool) -> Built {
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target);
    builder.config = BuildConfig {
        reduced: vec![DType::F16],
        narrowing: Narrowing::Everywhere,
        estimates: true,
        refit: Refit::All,
        fold,
        profiles: vec![profile(x)],
        ..BuildConfig::default()
    };
    builder.build(net).unwrap()
}

fn engine(backend: &Arc<dyn Backend>, built: Built, x: &[i64]) -> Engine {
    let target = backend.targets().unwrap().remove(0);
    Engine::on_target(built.program, vec![profile(x)], backend.as_ref(), target).unwrap()
}

fn run(engine: &Engine, x: &Tensor) -> Vec<Tensor> {
    let mut cx = engine.create_context().unwrap();
    cx.run(&[("x", x.clone())]).unwrap().into_iter().map(|(_, t)| t).collect()
}

fn check(net: fn(u64) -> Network, shape: &[i64]) {
    let Some(backend) = cuda().unwrap() else { return };
    let built = build(&backend, &net(1), shape, true);
    let taken = built.considered.iter().filter(|c| c.rewrite == "padded-channels" && c.taken);
    assert!(taken.count() > 0, "{:?}", built.considered);
    let odd = build(&backend, &net(1), shape, false);
    assert!(odd.considered.iter().all(|c| c.rewrite != "padded-channels"), "weights could not be padded");
    let mut of = shape.to_vec();
    of[0] = 1;
    let of: Vec<usize> = of.iter().map(|&d| d as usize).collect();
    let x = Rng::new(3).tensor_in(DType::F32, &of, -1.0, 1.0, 0);
    let wanted = |seed: u64| {
        let target = reference().targets().unwrap().remove(0);
        let mut builder = Builder::new(reference(), target);
        builder.config.profiles = vec![profile(shape)];
        run(&engine(&reference(), builder.build(&net(seed)).unwrap(), shape), &x)
    };
    let engine = engine(&backend, built, shape);
    let near = |got: Vec<Tensor>, wanted: Vec<Tensor>| {
        assert_eq!(got.len(), wanted.len());
        for (a, b) in got.iter().zip(&wanted) {
            assert_eq!(a.shape(), b.shape());
            let d = difference(a, b);
            assert!(d < 4e-3, "differs by {d}");
        }
    };
    near(run(&engine, &x), wanted(1));
    // Padded weights are made anew of others.
    let other = net(20).lower().unwrap();
    let mut refit = engine.refitter().unwrap();
    for v in other.value_ids() {
        let Some(w) = other.weight(v) else { continue };
        if let Some(name) = w.name.as_deref() {
            refit.set(name, w.tensor.clone()).unwrap();
        }
    }
    refit.refit().unwrap();
    near(run(&engine, &x), wanted(20));
}

#[test]
fn of_convolutions_on_cuda() {
    check(images, &[64, 64, 16, 16]);
}

#[test]
fn of_products_on_cuda() {
    check(rows, &[16, 512, 128]);
}

/// The cache with times that say: kernels that copy odd numbers of channels by words are slower than those of planes, which are slower
/// than those of whole vectors.
fn retimed(cache: &TimingCache) -> TimingCache {
    let mut out = TimingCache::new();
    for (key, entry) in cache.iter() {
        let mut entry = entry.clone();
        for (id, candidate) in &mut entry.candidates {
            let ns = match id {
                id if id.contains("conv.mma") => 9e5,
                id if id.contains("conv.direct") => 2e5,
                id if id.contains("conv.wgmma") => 1e4,
                id if id.contains("conv") => 8e5,
                _ => 2e3,
            };
            candidate.samples = vec![ns; 3];
        }
        out.insert(key, entry);
    }
    out
}

/// Channels last alone make this layer slower, and only images with channels last can be padded.
#[test]
fn a_format_that_pays_with_padded_channels_alone_is_taken_on_cuda() {
    let Some(backend) = cuda().unwrap() else { return };
    let mut net = Network::new("window");
    let x = net.add_input("x", TensorType::new(DType::F16, [1, 30, 5, 5])).unwrap();
    let w = Rng::new(1).tensor_in(DType::F16, &[64, 30, 3, 3], -0.1, 0.1, 0);
    let w = net.add_weights(None, w).unwrap();
    let y = layer(&mut net, "conv", "conv", Attrs::new(), &[x, w]);
    net.mark_output(y, "y").unwrap();
    let mut cache = TimingCache::new();
    let mut taken = Vec::new();
    // Forms that a search does not come to have no times before the next one.
    for _ in 0..4 {
        let mut builder = Builder::new(backend.clone(), backend.targets().unwrap().remove(0));
        builder.config = BuildConfig { samples: 1, estimate_limit: f64::INFINITY, ..BuildConfig::default() };
        builder.cache = cache;
        let built = builder.build(&net).unwrap();
        cache = retimed(&builder.cache);
        taken = built.considered.iter().filter(|c| c.taken).map(|c| c.rewrite).collect();
    }
    assert!(taken.contains(&"channels-last") && taken.contains(&"padded-channels"), "{taken:?}");
}
