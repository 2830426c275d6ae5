//! Direct I/O: what layers read and write in the format of the caller passes; what needs a kernel of its own is refused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, BuildError, Builder, Built, IoSpec};
use kiln_ir::format::pack;
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Tensor, TensorFormat, TensorType};
use kiln_network::Network;
use kiln_plan::IoMode;
use kiln_runtime::Engine;
use kiln_tests::backends::{cpu, cuda, wgpu};
use std::sync::Arc;

fn build(net: &Network, backend: &Arc<dyn Backend>, io: &[(&str, IoSpec)]) -> Result<Built, BuildError> {
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target);
    let io = io.iter().map(|(name, spec)| ((*name).to_owned(), spec.clone())).collect();
    builder.config = BuildConfig { estimates: true, direct_io: true, io, ..BuildConfig::default() };
    builder.build(net)
}

fn format(format: TensorFormat) -> IoSpec {
    IoSpec { dtype: None, formats: Some(format.into()) }
}

/// A convolution of 8 to 16 channels and a relu.
fn convolution(dtype: DType) -> Network {
    let mut net = Network::new("conv");
    let mut rng = Rng::new(2);
    let x = net.add_input("x", TensorType::new(dtype, [1, 8, 9, 9])).unwrap();
    let w = net.add_weights(Some("w"), rng.tensor_in(dtype, &[16, 8, 3, 3], -1.0, 1.0, 0)).unwrap();
    let h = net.add_layer("conv", "conv", Attrs::new(), &[Some(x), Some(w)]).unwrap()[0];
    let y = net.add_layer("relu", "relu", Attrs::new(), &[Some(h)]).unwrap()[0];
    net.mark_output(y, "y").unwrap();
    net
}

fn runs(built: Built, net: &Network, backend: &Arc<dyn Backend>, out: TensorFormat) {
    let x = Rng::new(4).tensor_in(DType::F32, &[1, 8, 9, 9], -1.0, 1.0, 0);
    let run = |built: Built, packed: bool| {
        let engine = Engine::from_program(built.program, Vec::new(), backend.clone()).unwrap();
        let mut context = engine.create_context().unwrap();
        context.set_input("x", x.clone()).unwrap();
        context.enqueue().unwrap();
        let outs = if packed { context.packed_outputs() } else { context.outputs() };
        outs.unwrap().take("y").unwrap()
    };
    let found = run(built, true);
    let plain = run(build(net, backend, &[]).unwrap(), false);
    let wanted: Tensor = pack(&plain, out).unwrap();
    assert_eq!(found.shape(), wanted.shape());
    let off = found.to_f64().iter().zip(wanted.to_f64()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(off < 1e-4, "off by {off}");
}

/// A convolution reads and writes channels last: no reformat is needed, even where the search would time it as slower.
fn channels_last_is_direct(backend: &Arc<dyn Backend>) {
    let net = convolution(DType::F32);
    let hwc = || format(TensorFormat::Hwc);
    let built = build(&net, backend, &[("x", hwc()), ("y", hwc())]).unwrap();
    let names: Vec<&str> = built.program.steps.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    runs(built, &net, backend, TensorFormat::Hwc);
}

#[test]
fn channels_last_is_direct_on_cpu() {
    channels_last_is_direct(&cpu());
}

#[test]
fn channels_last_is_direct_on_wgpu() {
    wgpu().unwrap().iter().for_each(channels_last_is_direct);
}

#[test]
fn channels_last_is_direct_on_cuda() {
    cuda().unwrap().iter().for_each(channels_last_is_direct);
}

fn refused(net: &Network, io: &[(&str, IoSpec)]) -> Vec<kiln_builder::Reformat> {
    match build(net, &cpu(), io) {
        Err(BuildError::DirectIo { backend, reformats }) => {
            assert_eq!(backend, "cpu");
            reformats
        }
        other => panic!("{:?}", other.map(|b| b.program.steps)),
    }
}

#[test]
fn formats_of_inputs_that_no_layer_reads_are_refused() {
    let net = convolution(DType::F32);
    let found = refused(&net, &[("x", format(TensorFormat::Chw32))]);
    let [r] = &found[..] else { panic!("{found:?}") };
    assert_eq!((r.tensor.as_str(), r.mode), ("x", IoMode::Input));
    assert!(r.layer.contains("conv") && r.found.starts_with("Thirty-two wide"), "{r}");
    assert!(r.wanted.contains("f32[1,8,9,9]") || r.wanted.contains("f32[1,9,9,8]"), "{r}");
    assert!(!r.kernels.is_empty(), "{r}");
}

#[test]
fn formats_of_outputs_that_no_layer_makes_are_refused() {
    let net = convolution(DType::F32);
    let found = refused(&net, &[("y", format(TensorFormat::Chw32))]);
    let [r] = &found[..] else { panic!("{found:?}") };
    assert_eq!((r.tensor.as_str(), r.mode), ("y", IoMode::Output));
    assert!(r.layer.contains("relu") && r.kernels.iter().any(|k| k.contains("pad")), "{r}");
}

#[test]
fn types_that_need_a_kernel_are_refused_and_others_are_not() {
    // A softmax reads the type that it computes in.
    let mut net = Network::new("types");
    let x = net.add_input("x", TensorType::new(DType::F32, [2, 3, 4])).unwrap();
    let y = net.add_layer("shares", "softmax", Attrs::new(), &[Some(x)]).unwrap()[0];
    net.mark_output(y, "y").unwrap();
    let half = || IoSpec { dtype: Some(DType::F16), formats: None };
    let found = refused(&net, &[("x", half())]);
    assert!(
        found[0].kernels.iter().any(|k| k.contains("cast")) && found[0].layer.contains("shares"),
        "{}",
        found[0]
    );
    assert!(build(&net, &cpu(), &[]).is_ok());
    // The type that a network gives an output is one of its border as well.
    let y = net.outputs()[0];
    net.set_tensor_type(y, DType::F16).unwrap();
    let backend = cpu();
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend, target);
    builder.config = BuildConfig { estimates: true, direct_io: true, fuse: false, ..BuildConfig::default() };
    let e = builder.build(&net).unwrap_err().to_string();
    assert!(e.contains("output \"y\"") && e.contains("makes f32[2,3,4]"), "{e}");
    // A pointwise layer converts as it reads.
    let mut net = Network::new("pointwise");
    let x = net.add_input("x", TensorType::new(DType::F32, [2, 3, 4])).unwrap();
    let y = net.add_layer("relu", "relu", Attrs::new(), &[Some(x)]).unwrap()[0];
    net.mark_output(y, "y").unwrap();
    build(&net, &cpu(), &[("x", half()), ("y", half())]).unwrap();
}

#[test]
fn linear_borders_and_moves_of_the_network_are_no_reformats() {
    let mut net = Network::new("moves");
    let x = net.add_input("x", TensorType::new(DType::F32, [2, 3, 4])).unwrap();
    let perm = Attrs::new().with("perm", vec![2i64, 0, 1]);
    let y = net.add_layer("move", "transpose", perm, &[Some(x)]).unwrap()[0];
    net.mark_output(y, "y").unwrap();
    build(&net, &cpu(), &[]).unwrap();
}

#[test]
fn messages_name_tensor_layer_and_kernels() {
    let net = convolution(DType::F32);
    let io = [("x", format(TensorFormat::Chw32)), ("y", format(TensorFormat::Chw32))];
    let e = build(&net, &cpu(), &io).unwrap_err().to_string();
    for part in [
        "direct I/O on backend cpu",
        "input \"x\"",
        "output \"y\"",
        "conv",
        "relu",
        "pad",
        "or build without",
    ] {
        assert!(e.contains(part), "{part}: {e}");
    }
}
