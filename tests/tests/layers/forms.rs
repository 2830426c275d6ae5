//! Forms that use what few layers need: formats in memory, outputs in place, sizes that are found; by kernels and by native forms.

use crate::devices::{built, devices};
use crate::examples::{f32s, net_of, reference, run_on};
use crate::kernels::Only;
use crate::{abi, compiled, example, layers_of, library};
use kiln_backend::{Backend, CompiledKernel, Region};
use kiln_builder::BuildConfig;
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Dim, Tensor, TensorType};
use kiln_network::{Network, PluginSpec};
use kiln_plan::{Profile, Range};
use std::sync::Arc;

fn forms() {
    layers_of(&library("forms", &abi::root().join("tests/tests/layers/forms.c"), &[]));
}

fn compact() {
    layers_of(&compiled("compact", &[]));
}

/// The backend with this tactic alone, where it has it.
fn only(b: &Arc<dyn Backend>, tactic: &'static str) -> Arc<dyn Backend> {
    Arc::new(Only(b.clone(), tactic))
}

fn tactics(b: &Arc<dyn Backend>, net: &Network) -> Vec<String> {
    built(b, net).program.steps.iter().map(|s| s.tactic.name.clone()).collect()
}

fn images(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    f32s(shape, &(0..n).map(|i| (i * 7 % 23) as f32 - 9.0).collect::<Vec<_>>())
}

/// y = relu(planes(x + x)): between the layers, tensors are brought into the formats and back.
#[test]
fn kernels_work_in_the_formats_of_the_layer() {
    forms();
    for shape in [&[2usize, 5, 3, 4][..], &[1, 32, 2, 2], &[3, 70, 1, 5], &[1, 1, 1, 1]] {
        let mut net = Network::new("net");
        let x = net.add_input("x", TensorType::new(DType::F32, shape.iter().map(|&d| d as i64))).unwrap();
        let twice = net.add_layer("", "add", Attrs::new(), &[Some(x), Some(x)]).unwrap()[0];
        let y = net.add_plugin(&[twice], PluginSpec::new("forms", "Planes")).unwrap().output(0).unwrap();
        let y = net.add_layer("", "relu", Attrs::new(), &[Some(y)]).unwrap()[0];
        net.mark_output(y, "y").unwrap();
        let x = images(shape);
        let channel = |i: usize| i / (shape[2] * shape[3]) % shape[1];
        let wanted: Vec<f64> = x
            .to_f64()
            .iter()
            .enumerate()
            .map(|(i, v)| (2.0 * v * (channel(i) + 1) as f64).max(0.0))
            .collect();
        for b in devices().into_iter().chain([reference()]) {
            let found = run_on(&b, &net, std::slice::from_ref(&x)).unwrap().remove(0);
            assert_eq!((found.shape(), found.to_f64()), (shape, wanted.clone()), "{} {shape:?}", b.name());
            let kernel = tactics(&b, &net).iter().any(|t| t == "plugin.vectors");
            assert_eq!(kernel, b.name() != "cpu", "{}", b.name());
        }
    }
}

/// Tensors that cannot have the formats are taken by the next combination, which the kernel is not for.
#[test]
fn a_combination_without_formats_is_the_next_choice() {
    forms();
    let x = f32s(&[5], &[1.0, 2.0, 3.0, 4.0, 5.0]);
    let net = net_of(PluginSpec::new("forms", "Planes"), std::slice::from_ref(&x));
    for b in devices().into_iter().chain([reference()]) {
        assert_eq!(run_on(&b, &net, std::slice::from_ref(&x)).unwrap(), [x.clone()], "{}", b.name());
        assert!(tactics(&b, &net).iter().all(|t| t != "plugin.vectors"), "{}", b.name());
    }
}

fn additions() -> [Tensor; 3] {
    let at = Tensor::from_elems(DType::I32, &[4], &kiln_ir::Elems::I(vec![2, 0, 2, 6])).unwrap();
    [images(&[7]), at, f32s(&[4], &[10.0, 20.0, 30.0, 40.0])]
}

#[test]
fn outputs_in_place_by_kernels_and_native_forms() {
    forms();
    let inputs = additions();
    let mut wanted = inputs[0].to_f64();
    for (at, v) in [(2, 40.0), (0, 20.0), (6, 40.0)] {
        wanted[at] += v;
    }
    // The table is an output as well: the layer may not change it.
    let mut net = Network::new("net");
    let ids: Vec<_> = ["t", "at", "v"]
        .iter()
        .zip(&inputs)
        .map(|(n, t)| {
            net.add_input(n, TensorType::new(t.dtype(), t.shape().iter().map(|&d| d as i64))).unwrap()
        })
        .collect();
    let table = net.add_layer("", "neg", Attrs::new(), &[Some(ids[0])]).unwrap()[0];
    let table = net.add_layer("", "neg", Attrs::new(), &[Some(table)]).unwrap()[0];
    let y = net.add_plugin(&[table, ids[1], ids[2]], PluginSpec::new("forms", "AddAt")).unwrap();
    let y = y.output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    net.mark_output(table, "kept").unwrap();
    for b in devices().into_iter().chain([reference()]) {
        for tactic in ["plugin.serial", "native.stream"] {
            let b = only(&b, tactic);
            let found = run_on(&b, &net, &inputs).unwrap();
            assert_eq!(found[0].to_f64(), wanted, "{} {tactic}", b.name());
            assert_eq!(found[1], inputs[0], "{} {tactic}", b.name());
            let runs = b.name() == "wgpu" || (b.name() == "cuda" && tactic == "plugin.serial");
            assert_eq!(tactics(&b, &net).iter().any(|t| t == tactic), runs, "{} {tactic}", b.name());
        }
    }
}

#[test]
fn wrong_calls_of_a_stream_are_errors_of_the_layer() {
    forms();
    let inputs = additions();
    for b in devices().into_iter().filter(|b| b.name() == "wgpu") {
        let b = only(&b, "native.stream");
        for (wrong, says) in [
            (1, "the kernel is refused"),
            (2, "no address of the call"),
            (3, "wants a multiple of 256"),
            (4, "70000 workgroups"),
            (5, "the kernel is refused"),
            (6, "null"),
            (7, "a dispatch"),
            (8, "wants multiples of 4 within it"),
            (9, "wants multiples of 4 within it"),
            (10, "not on a Monday"),
            (11, "panicked"),
        ] {
            let net = net_of(PluginSpec::new("forms", "AddAt").field("wrong", wrong), &inputs);
            // The tuner would leave out what fails.
            let config = BuildConfig { estimates: true, search: false, ..BuildConfig::default() };
            let e = crate::examples::run_with(&b, &net, &inputs, config).unwrap_err();
            assert!(e.contains(says), "{wrong}: {e}");
        }
        let net = net_of(PluginSpec::new("forms", "AddAt"), &inputs);
        assert!(run_on(&b, &net, &inputs).is_ok());
    }
}

#[test]
fn sizes_that_a_run_finds() {
    compact();
    for n in [0usize, 1, 7, 300, 5000] {
        let x = Rng::new(n as u64 + 1).tensor(DType::F32, &[n]);
        let mut net = Network::new("net");
        let v = net.add_input("x", TensorType::new(DType::F32, [Dim::host("n")])).unwrap();
        let twice = net.add_layer("", "add", Attrs::new(), &[Some(v), Some(v)]).unwrap()[0];
        let p = net.add_plugin(&[twice], PluginSpec::new("example", "Compact").field("limit", 0.25)).unwrap();
        let (kept, places) = (p.output(0).unwrap(), p.output(1).unwrap());
        let y = net.add_layer("", "exp", Attrs::new(), &[Some(kept)]).unwrap()[0];
        for (v, name) in [(kept, "kept"), (places, "places"), (y, "y")] {
            net.mark_output(v, name).unwrap();
        }
        let mut profile = Profile::default();
        profile.shapes.insert("x".into(), Range { min: vec![0], opt: vec![300], max: vec![5000] });
        let config = || BuildConfig { profiles: vec![profile.clone()], ..BuildConfig::default() };
        let inputs = std::slice::from_ref(&x);
        let wanted = crate::examples::run_with(&reference(), &net, inputs, config()).unwrap();
        assert!(n < 300 || (wanted[0].shape()[0] > 0 && wanted[0].shape()[0] < n));
        for b in devices() {
            for tactic in ["plugin.parts", "native.stream"] {
                let b = only(&b, tactic);
                let found = crate::examples::run_with(&b, &net, inputs, config()).unwrap();
                assert_eq!(found[..2], wanted[..2], "{} {tactic} {n}", b.name());
                assert_eq!(found[2].shape(), wanted[2].shape());
                let mut builder = kiln_builder::Builder::new(b.clone(), b.targets().unwrap().remove(0));
                builder.config = config();
                let program = builder.build(&net).unwrap().program;
                let runs = b.name() == "wgpu" || (b.name() == "cuda" && tactic == "plugin.parts");
                assert_eq!(
                    program.steps.iter().any(|s| s.tactic.name == tactic),
                    runs,
                    "{} {tactic}",
                    b.name()
                );
            }
        }
    }
}

/// A context runs again and again, with other sizes and with the same ones.
#[test]
fn found_sizes_change_from_run_to_run() {
    compact();
    let mut net = Network::new("net");
    let v = net.add_input("x", TensorType::new(DType::F32, [4])).unwrap();
    let p = net.add_plugin(&[v], PluginSpec::new("example", "Compact")).unwrap();
    let outputs = p.outputs().to_vec();
    for (i, y) in outputs.into_iter().enumerate() {
        net.mark_output(y, &format!("y{i}")).unwrap();
    }
    for b in devices() {
        for tactic in ["plugin.parts", "native.stream"] {
            let b = only(&b, tactic);
            let program = Arc::new(built(&b, &net).program);
            let target = b.targets().unwrap().remove(0);
            let mut c = b.open(&target).unwrap().load(program.clone()).unwrap().context().unwrap();
            for (values, kept) in [
                ([1.0, -1.0, 2.0, -2.0], vec![1.0, 2.0]),
                ([1.0, 3.0, 2.0, -2.0], vec![1.0, 3.0, 2.0]),
                ([-1.0; 4], vec![]),
                ([1.0, -1.0, 2.0, -2.0], vec![1.0, 2.0]),
                ([1.0, -1.0, 2.0, -2.0], vec![1.0, 2.0]),
            ] {
                let inputs = [f32s(&[4], &values)];
                let shapes = Arc::new(program.shapes(&inputs).unwrap());
                c.enqueue(&inputs, &shapes).unwrap();
                assert_eq!(c.outputs().unwrap()[0].to_f64(), kept, "{} {tactic}", b.name());
            }
        }
    }
}

#[test]
fn a_size_beyond_its_bound_is_an_error() {
    forms();
    let x = images(&[3]);
    for b in devices().into_iter().filter(|b| b.name() == "wgpu") {
        let config = || BuildConfig { estimates: true, search: false, ..BuildConfig::default() };
        let run = |wrong: i64| {
            let net =
                net_of(PluginSpec::new("forms", "Most").field("wrong", wrong), std::slice::from_ref(&x));
            crate::examples::run_with(&b, &net, std::slice::from_ref(&x), config())
        };
        assert_eq!(run(0).unwrap(), [f32s(&[3], &[1.0; 3])]);
        let e = run(4_000_000).unwrap_err();
        assert!(e.contains("4000003") && e.contains("at most 3"), "{e}");
    }
}

/// CUDA needs no device here: texts are compiled for GPUs that are named.
#[test]
fn cuda_texts_compile() {
    forms();
    compact();
    example("nms");
    example("scatter_add");
    if kiln_backend_cuda::compile::Nvrtc::get().is_err() && std::env::var_os("KILN_REQUIRE_NVRTC").is_none() {
        return;
    }
    let backend = kiln_backend_cuda::Cuda::new().unwrap();
    let target = kiln_backend_cuda::target::known("h100").unwrap();
    for (space, name, inputs, tactic, entries) in [
        (
            "forms",
            "AddAt",
            additions().to_vec(),
            "plugin.serial",
            vec!["kiln_plugin_layer", "kiln_plugin_copy0"],
        ),
        (
            "example",
            "Compact",
            vec![images(&[9])],
            "plugin.parts",
            vec!["kiln_plugin_layer", "kiln_plugin_count"],
        ),
        (
            "example",
            "BestBoxes",
            crate::examples::boxes().to_vec(),
            "plugin.rounds",
            vec!["kiln_plugin_layer", "kiln_plugin_count"],
        ),
        (
            "example",
            "ScatterAdd",
            vec![images(&[3, 2]), Tensor::i64(&[1], &[2]).unwrap(), images(&[1, 2])],
            "plugin.columns",
            vec!["kiln_plugin_layer", "kiln_plugin_copy0"],
        ),
    ] {
        let g = net_of(PluginSpec::new(space, name), &inputs).lower().unwrap();
        let region = Region::extract(&g, g.order()).unwrap();
        let all = backend.tactics(&region, &target).unwrap();
        let tactic = all.iter().find(|t| t.name == tactic).unwrap_or_else(|| panic!("{name}: {all:?}"));
        let kernel = CompiledKernel::from_blob(&backend.compile(&region, tactic, &target).unwrap()).unwrap();
        let found: Vec<&str> = kernel.entries.iter().map(|e| e.name.as_str()).collect();
        assert!(kernel.code.starts_with(b"\x7fELF") && found == entries, "{name}: {found:?}");
    }
}
