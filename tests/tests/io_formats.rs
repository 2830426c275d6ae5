//! Inputs and outputs in all formats: engines read and write what `pack` makes of linear tensors.

#![allow(clippy::unwrap_used, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, BuildError, Builder, Built, IoSpec};
use kiln_ir::format::{pack, unpack};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Dim, Packing, Tensor, TensorFormat, TensorType};
use kiln_network::Network;
use kiln_plan::{IoMode, Plan, Profile};
use kiln_runtime::{Engine, ExecutionContext};
use kiln_tests::backends::{cpu, cuda, reference, wgpu};
use std::sync::Arc;

fn config() -> BuildConfig {
    BuildConfig { estimates: true, ..BuildConfig::default() }
}

fn build(net: &Network, backend: &Arc<dyn Backend>, config: BuildConfig) -> Result<Built, BuildError> {
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target);
    builder.config = config;
    builder.build(net)
}

/// y = −x of floats; of other types y = x.
fn network(dtype: DType, dims: &[Dim], formats: [TensorFormat; 2]) -> Network {
    let mut net = Network::new("formats");
    let x = net.add_input("x", TensorType { dtype, dims: dims.to_vec() }).unwrap();
    let op = if matches!(dtype, DType::F32 | DType::F16 | DType::BF16) { "neg" } else { "identity" };
    let y = net.add_layer("layer", op, Attrs::new(), &[Some(x)]).unwrap()[0];
    net.mark_output(y, "y").unwrap();
    net.set_allowed_formats(x, formats[0]).unwrap();
    net.set_allowed_formats(y, formats[1]).unwrap();
    net
}

/// The tensor in its format, with ones in all bits of what fills up vectors.
fn dirty(x: &Tensor, format: TensorFormat) -> Vec<u8> {
    let mut packed = pack(x, format).unwrap();
    let ones = Tensor::from_bytes(x.dtype(), packed.shape(), vec![0xff; packed.bytes().len()]).unwrap();
    let used = pack(&unpack(&ones, format, x.shape()).unwrap(), format).unwrap();
    let bytes = packed.bytes().iter().zip(used.bytes()).map(|(b, u)| b | !u).collect::<Vec<u8>>();
    packed = Tensor::from_bytes(x.dtype(), packed.shape(), bytes).unwrap();
    packed.bytes().to_vec()
}

fn context(built: Built, profiles: Vec<Profile>, backend: &Arc<dyn Backend>) -> ExecutionContext {
    Engine::from_program(built.program, profiles, backend.clone()).unwrap().create_context().unwrap()
}

/// Runs x through both engines at one shape, and compares memory with what `pack` makes.
fn same(
    linear: &mut ExecutionContext,
    formatted: &mut ExecutionContext,
    x: &Tensor,
    formats: [TensorFormat; 2],
) {
    let wanted = linear.run(&[("x", x.clone())]).unwrap().take("y").unwrap();
    let packed = pack(&wanted, formats[1]).unwrap();
    let what = format!("{formats:?} {} {:?}", x.dtype(), x.shape());
    formatted.clear_inputs();
    formatted.set_packed_input("x", x.shape(), dirty(x, formats[0])).unwrap();
    formatted.enqueue().unwrap();
    let found = formatted.packed_outputs().unwrap().take("y").unwrap();
    assert_eq!((found.shape(), found.bytes()), (packed.shape(), packed.bytes()), "{what}");
    // Linear tensors go in and out as well.
    let found = formatted.run(&[("x", x.clone())]).unwrap().take("y").unwrap();
    assert_eq!((found.shape(), found.bytes()), (wanted.shape(), wanted.bytes()), "{what}");
}

fn shape_for(format: TensorFormat, rng: &mut Rng) -> Vec<usize> {
    let mut one = |most: i64| rng.int(1, most) as usize;
    let volume = matches!(format, TensorFormat::Dhwc | TensorFormat::Dhwc8 | TensorFormat::Cdhw32);
    match volume {
        true => vec![one(2), one(37), one(3), one(4), one(5)],
        false => vec![one(3), one(70), one(5), one(6)],
    }
}

/// Tensors without elements have formats, too.
#[test]
fn no_elements_in_every_format() {
    for format in TensorFormat::ALL {
        let dtype = types(format).next().unwrap();
        for zero in [0, 2, 3] {
            let mut shape = shape_for(format, &mut Rng::new(3));
            shape[zero] = 0;
            let x = Tensor::zeros(dtype, &shape).unwrap();
            let of = |formats| {
                let net = network(dtype, &dims(&shape), formats);
                context(build(&net, &cpu(), config()).unwrap(), Vec::new(), &cpu())
            };
            same(&mut of([TensorFormat::Linear; 2]), &mut of([format; 2]), &x, [format; 2]);
        }
    }
}

fn dims(shape: &[usize]) -> Vec<Dim> {
    shape.iter().map(|&d| Dim::new(d as i64)).collect()
}

/// The types of a format that graphs of moves are made of.
fn types(format: TensorFormat) -> impl Iterator<Item = DType> {
    format.types().iter().copied().filter(move |&t| format != TensorFormat::Linear || t == DType::F32)
}

fn every_format_and_type(backend: &Arc<dyn Backend>, rounds: usize) {
    let mut rng = Rng::new(17);
    for format in TensorFormat::ALL {
        for dtype in types(format) {
            for _ in 0..rounds {
                let shape = shape_for(format, &mut rng);
                let others: Vec<TensorFormat> = TensorFormat::ALL
                    .into_iter()
                    .filter(|&f| Packing::of_shape(f, dtype, &shape).is_ok())
                    .collect();
                let other = others[rng.int(0, others.len() as i64 - 1) as usize];
                let linear = [TensorFormat::Linear; 2];
                let net = network(dtype, &dims(&shape), linear);
                let mut plain = context(build(&net, backend, config()).unwrap(), Vec::new(), backend);
                for formats in [[format, format], [format, other], [other, format]] {
                    let net = network(dtype, &dims(&shape), formats);
                    let built = build(&net, backend, config()).unwrap();
                    let mut packed = context(built, Vec::new(), backend);
                    same(&mut plain, &mut packed, &rng.tensor(dtype, &shape), formats);
                }
            }
        }
    }
}

#[test]
fn every_format_and_type_on_cpu() {
    every_format_and_type(&cpu(), 3);
}

#[test]
fn every_format_and_type_on_reference() {
    every_format_and_type(&reference(), 2);
}

#[test]
fn every_format_and_type_on_wgpu() {
    wgpu().unwrap().iter().for_each(|b| every_format_and_type(b, 1));
}

#[test]
fn every_format_and_type_on_cuda() {
    cuda().unwrap().iter().for_each(|b| every_format_and_type(b, 2));
}

/// All dimensions but the channels vary.
fn shapes_vary(backend: &Arc<dyn Backend>) {
    let mut rng = Rng::new(23);
    for format in TensorFormat::ALL.into_iter().filter(|&f| f != TensorFormat::Linear) {
        let dtype = format.types()[0];
        let example = shape_for(format, &mut rng);
        let rank = example.len();
        // Formats without vectors let the channels vary, too.
        let fixed = |axis: usize| axis == 1 && format.is_vectorized();
        let open: Vec<Dim> = (0..rank)
            .map(|i| if fixed(i) { Dim::new(example[i] as i64) } else { Dim::host(format!("d{i}")) })
            .collect();
        let at = |n: i64| -> Vec<i64> {
            (0..rank).map(|i| if fixed(i) { example[i] as i64 } else { n + i as i64 % 2 }).collect()
        };
        let mut profile = Profile::new();
        profile.set_shape("x", &at(1), &at(3), &at(6)).unwrap();
        let config = BuildConfig { profiles: vec![profile.clone()], ..config() };
        let of = |formats| {
            let built = build(&network(dtype, &open, formats), backend, config.clone()).unwrap();
            context(built, vec![profile.clone()], backend)
        };
        let (mut linear, mut packed) = (of([TensorFormat::Linear; 2]), of([format; 2]));
        for n in [3, 1, 6, 2] {
            let shape: Vec<usize> = at(n).into_iter().map(|d| d as usize).collect();
            same(&mut linear, &mut packed, &rng.tensor(dtype, &shape), [format; 2]);
        }
    }
}

#[test]
fn shapes_vary_on_cpu() {
    shapes_vary(&cpu());
}

#[test]
fn shapes_vary_on_wgpu() {
    wgpu().unwrap().iter().for_each(shapes_vary);
}

#[test]
fn shapes_vary_on_cuda() {
    cuda().unwrap().iter().for_each(shapes_vary);
}

#[test]
fn engines_and_plans_tell_their_formats() {
    let formats = [TensorFormat::Chw32, TensorFormat::Hwc8];
    let net = network(DType::F16, &dims(&[2, 35, 3, 5]), formats);
    let backend = cpu();
    let built = build(&net, &backend, config()).unwrap();
    let target = backend.targets().unwrap().remove(0);
    let bytes = Plan::new(built.program, Vec::new(), target).write().unwrap();
    let plan = Plan::read(bytes.clone()).unwrap();
    assert_eq!(plan.write().unwrap(), bytes);
    let engine = Engine::from_plan(plan, backend).unwrap();
    let (x, y) = (engine.io_tensor("x").unwrap().clone(), engine.io_tensor("y").unwrap().clone());
    assert_eq!((x.mode, x.format(), x.dims_or_minus_one()), (IoMode::Input, formats[0], vec![2, 35, 3, 5]));
    assert_eq!(
        (x.vectorized_dim(), x.components_per_element(), x.bytes_per_component()),
        (Some(1), Some(32), Some(2))
    );
    assert_eq!(x.format_description(), "Thirty-two wide channel vectorized row major FP16 format");
    assert_eq!(x.strides(&[2, 35, 3, 5]).unwrap(), [30, 15, 5, 1]);
    assert_eq!(x.bytes(&[2, 35, 3, 5]), Some(2 * 64 * 15 * 2));
    assert_eq!((x.bytes(&[2, 35]), x.strides(&[1])), (None, None));
    assert_eq!((y.format(), y.components_per_element()), (formats[1], Some(8)));
    assert_eq!(y.strides(&[2, 35, 3, 5]).unwrap(), [75, 1, 25, 5]);
    let mut context = engine.create_context().unwrap();
    let e = context.set_packed_input("x", &[2, 35, 3, 5], vec![0; 7]).unwrap_err().to_string();
    assert!(e.contains("\"x\"") && e.contains("7 bytes") && e.contains("3840"), "{e}");
    let shapes = context.infer_shapes().unwrap();
    assert_eq!(shapes[0].1, TensorType::new(DType::F16, [2, 35, 3, 5]));
}

#[test]
fn what_no_format_fits_is_refused_by_name() {
    let backend = cpu();
    let refused = |net: &Network| build(net, &backend, config()).unwrap_err().to_string();
    let four = dims(&[1, 3, 4, 4]);
    let e = refused(&network(DType::F32, &four, [TensorFormat::Hwc8, TensorFormat::Linear]));
    assert!(e.contains("\"x\" (f32[1,3,4,4])") && e.contains("f16, bf16"), "{e}");
    let e = refused(&network(DType::F32, &four, [TensorFormat::Linear, TensorFormat::Chw4]));
    assert!(e.contains("\"y\" (f32[1,3,4,4])") && e.contains("f16, i8"), "{e}");
    let open = [Dim::new(1), Dim::host("c"), Dim::new(4), Dim::new(4)];
    let mut profile = Profile::new();
    profile.set_shape("x", &[1, 1, 4, 4], &[1, 2, 4, 4], &[1, 8, 4, 4]).unwrap();
    let net = network(DType::F32, &open, [TensorFormat::Chw32, TensorFormat::Linear]);
    let e =
        build(&net, &backend, BuildConfig { profiles: vec![profile], ..config() }).unwrap_err().to_string();
    assert!(e.contains("fixed number of channels") && e.contains("dimension 1"), "{e}");
    let short = network(DType::F32, &dims(&[3, 4]), [TensorFormat::Hwc, TensorFormat::Linear]);
    let e = refused(&short);
    assert!(e.contains("wants 3 dimensions or more, found 2"), "{e}");
}

#[test]
fn networks_refuse_formats_of_inner_tensors_and_of_none() {
    let mut net = Network::new("inner");
    let x = net.add_input("x", TensorType::new(DType::F32, [1, 3, 4, 4])).unwrap();
    let h = net.add_layer("h", "neg", Attrs::new(), &[Some(x)]).unwrap()[0];
    let e = net.set_allowed_formats(h, TensorFormat::Hwc).unwrap_err().to_string();
    assert!(e.contains("\"h\"") && e.contains("mark it as an output"), "{e}");
    let e = net.set_allowed_formats(x, kiln_ir::Formats::default()).unwrap_err().to_string();
    assert!(e.contains("no format is allowed"), "{e}");
    assert_eq!(net.allowed_formats(x), TensorFormat::Linear.into());
    net.set_allowed_formats(x, TensorFormat::Hwc).unwrap();
    assert!(net.allowed_formats(x).contains(TensorFormat::Hwc));
}

#[test]
fn settings_go_before_the_network_and_name_what_is_not_there() {
    let net = network(DType::F32, &dims(&[1, 3, 4, 4]), [TensorFormat::Linear; 2]);
    let spec = IoSpec { dtype: Some(DType::F16), formats: Some(TensorFormat::Hwc8.into()) };
    let with = |name: &str, spec: &IoSpec| {
        let io = [(name.to_owned(), spec.clone())].into();
        build(&net, &cpu(), BuildConfig { io, ..config() })
    };
    let built = with("y", &spec).unwrap();
    let io = kiln_plan::io_tensors(&built.program);
    assert_eq!((io[1].dtype, io[1].format(), io[0].dtype), (DType::F16, TensorFormat::Hwc8, DType::F32));
    let e = with("z", &spec).unwrap_err().to_string();
    assert!(e.contains("\"z\"") && e.contains("inputs are x") && e.contains("outputs y"), "{e}");
    let codes = IoSpec { dtype: Some(DType::I8), formats: None };
    let e = with("x", &codes).unwrap_err().to_string();
    assert!(e.contains("\"x\" is f32") && e.contains("range"), "{e}");
    let e = with("x", &IoSpec { dtype: Some(DType::I64), formats: None }).unwrap_err().to_string();
    assert!(e.contains("cannot be i64"), "{e}");
}

/// A convolution whose input and output may be linear or have channels last.
fn convolution() -> Network {
    let mut net = Network::new("conv");
    let mut rng = Rng::new(2);
    let x = net.add_input("x", TensorType::new(DType::F32, [1, 8, 9, 9])).unwrap();
    let w = net.add_weights(Some("w"), rng.tensor_in(DType::F32, &[16, 8, 3, 3], -1.0, 1.0, 0)).unwrap();
    let y = net.add_layer("conv", "conv", Attrs::new(), &[Some(x), Some(w)]).unwrap()[0];
    net.mark_output(y, "y").unwrap();
    let both: kiln_ir::Formats = [TensorFormat::Linear, TensorFormat::Hwc].into_iter().collect();
    net.set_allowed_formats(x, both).unwrap();
    net.set_allowed_formats(y, both).unwrap();
    net
}

#[test]
fn the_fastest_of_several_formats_is_taken_and_warm_builds_take_the_same() {
    let backend = cpu();
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target.clone());
    builder.config = BuildConfig { samples: 1, max_tactics: 2, ..BuildConfig::default() };
    let bytes = |built: Built| Plan::new(built.program, Vec::new(), target.clone()).write().unwrap();
    let cold = builder.build(&convolution()).unwrap();
    assert!(cold.timed > 0);
    let tried: Vec<_> = cold.considered.iter().filter(|c| c.rewrite == "formats").cloned().collect();
    assert_eq!(tried.iter().map(|c| c.layer.as_str()).collect::<Vec<_>>(), ["x", "y"], "{tried:?}");
    let io = kiln_plan::io_tensors(&cold.program);
    for (c, t) in tried.iter().zip(&io) {
        assert_eq!(c.taken, t.format() == TensorFormat::Hwc, "{c:?}");
        let faster = c.with_ns.unwrap() < c.without_ns.unwrap() * 0.98;
        assert_eq!(c.taken, faster, "{c:?}");
    }
    let warm = builder.build(&convolution()).unwrap();
    assert_eq!(warm.timed, 0);
    assert!(bytes(warm) == bytes(cold), "the warm build differs");
}

#[test]
fn plans_whose_formats_fit_no_tensor_are_refused() {
    let formats = [TensorFormat::Chw32, TensorFormat::Hwc8];
    let backend = cpu();
    let built = build(&network(DType::F16, &dims(&[2, 35, 3, 5]), formats), &backend, config()).unwrap();
    let target = backend.targets().unwrap().remove(0);
    let other = Packing::of_shape(TensorFormat::Hwc8, DType::F16, &[2, 70, 3, 5]).unwrap();
    for (name, packing) in [("y", other), ("z", other), ("x", Packing::default())] {
        let mut program = built.program.clone();
        program.graph.packings.insert(name.to_owned(), packing);
        let bytes = Plan::new(program, Vec::new(), target.clone()).write().unwrap();
        match name {
            // In linear memory it is a tensor of five dimensions.
            "x" => assert!(Plan::read(bytes).is_ok()),
            _ => {
                let e = Plan::read(bytes).unwrap_err().to_string();
                assert!(e.contains(&format!("\"{name}\"")) && e.contains("hwc8"), "{e}");
            }
        }
    }
}
