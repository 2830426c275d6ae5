//! Products of 8-bit floats (e4m3) with scales: from quantization layers of a network, and by ranges.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use kiln::calibration::{Algorithm, Calibrator};
use kiln::{DType, Engine, Narrowing};
use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Builder, Built};
use kiln_ir::Graph;
use kiln_ir::problem::Rng;
use kiln_runtime::Profile;
use kiln_tests::backends::{cpu, cuda, reference, wgpu};
use kiln_tests::models::{Shapes, archive, argmax, data, engine, rows};
use std::sync::Arc;

const F8: DType = DType::F8E4M3;

fn build(backend: &Arc<dyn Backend>, g: Graph, config: BuildConfig) -> Built {
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target);
    builder.config = BuildConfig { estimates: true, ..config };
    builder.build_graph(g, &mut |_, _, _| true).unwrap()
}

/// Products and convolutions, and those whose operands are codes.
fn products(built: &Built) -> (usize, usize) {
    let g = &built.program.graph;
    let all = || g.nodes().filter(|(_, n)| matches!(n.op.name(), "conv" | "matmul"));
    let codes = all().filter(|(_, n)| n.inputs[..2].iter().all(|v| g.ty(v.unwrap()).dtype == F8));
    (all().count(), codes.count())
}

fn list(rng: &mut Rng, n: usize, lo: f64, hi: f64) -> String {
    let v: Vec<String> = (0..n).map(|_| format!("{:.4}", rng.float(lo, hi))).collect();
    v.join(", ")
}

/// Networks of quantized operands: text of the layers, with the shape of x.
fn networks(rng: &mut Rng) -> Vec<(String, Vec<usize>)> {
    let mut all = Vec::new();
    for (m, n, k) in [(5, 7, 33), (16, 64, 128), (1, 40, 260), (70, 9, 16)] {
        for (trans, scales) in [(false, format!("[1,{n}]")), (true, format!("[{n},1]")), (false, "[]".into())]
        {
            let shape = if trans { format!("{n},{k}") } else { format!("{k},{n}") };
            let w = list(rng, n * k, -3.0, 3.0);
            let s = list(rng, if scales == "[]" { 1 } else { n }, 0.005, 0.02);
            all.push((
                format!(
                    "input %x: f32[{m},{k}] weight %w: f8e4m3[{shape}] = [{w}] weight %s: f32{scales} = [{s}]\n\
                     weight %t: f32[] = [0.01] weight %z: f8e4m3[] = [0]\n\
                     %q = quantize(%x, %t) {{to=f8e4m3}} %a = dequantize(%q, %t, %z) %b = dequantize(%w, %s)\n\
                     %p = matmul(%a, %b) {{trans_b={trans}}} %y = relu(%p) output %y"
                ),
                vec![m, k],
            ));
        }
    }
    for (attrs, groups) in [("pads=[1,1,1,1]", 1), ("strides=[2,1], pads=[0,1,2,0]", 1), ("groups=2", 2)] {
        let w = list(rng, 12 * 8 / groups * 9, -3.0, 3.0);
        let (s, b) = (list(rng, 12, 0.005, 0.02), list(rng, 12, -1.0, 1.0));
        all.push((
            format!(
                "input %x: f32[2,8,9,11] weight %w: f8e4m3[12,{},3,3] = [{w}] weight %s: f32[12,1,1,1] = [{s}]\n\
                 weight %t: f32[] = [0.01] weight %c: f32[12] = [{b}]\n\
                 %q = quantize(%x, %t) {{to=f8e4m3}} %a = dequantize(%q, %t) %b = dequantize(%w, %s)\n\
                 %y = conv(%a, %b, %c) {{{attrs}}} output %y",
                8 / groups
            ),
            vec![2, 8, 9, 11],
        ));
    }
    all
}

/// Results are those of the layers one by one, up to roundings of sums: `eps` is the last place of these, relative to the sum of
/// magnitudes.
fn quantized(backend: &Arc<dyn Backend>, on_codes: bool, eps: f64) {
    let mut rng = Rng::new(3);
    for (text, shape) in networks(&mut rng) {
        let g =
            Graph::from_text(&format!("graph \"g\" {{ {text} }}")).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let x = rng.tensor(DType::F32, &shape);
        let wanted = g.eval(std::slice::from_ref(&x)).unwrap().remove(0);
        let built = build(backend, g, BuildConfig::default());
        let (all, codes) = products(&built);
        assert_eq!((all, codes), (1, usize::from(on_codes)), "{} {text}", backend.name());
        let target = backend.targets().unwrap().remove(0);
        let told = built.notes.iter().any(|n| n.contains("1 products of f8e4m3 are computed in f32"));
        assert_eq!(told, !target.has("f8"), "{:?}", built.notes);
        let e =
            kiln_runtime::Engine::on_target(built.program, vec![Profile::new()], backend.as_ref(), target)
                .unwrap();
        let found = e.create_context().unwrap().run(&[("x", x)]).unwrap().remove(0).1;
        assert_eq!((found.dtype(), found.shape()), (wanted.dtype(), wanted.shape()));
        // Codes are 200 by 3 at most, scales 0.01 by 0.02; 300 terms.
        let most = 200.0 * 3.0 * 0.01 * 0.02 * 300.0 * eps;
        for (f, w) in found.to_f64().iter().zip(wanted.to_f64()) {
            assert!((f - w).abs() <= most + 1e-5 * w.abs(), "{}: {f} for {w}\n{text}", backend.name());
        }
    }
}

#[test]
fn quantized_products_are_made_on_codes() {
    quantized(&reference(), true, 1e-6);
}

#[test]
fn quantized_products_are_made_on_codes_by_wgpu() {
    wgpu().unwrap().iter().for_each(|b| quantized(b, true, 1e-6));
}

#[test]
fn quantized_products_are_made_on_codes_by_cuda() {
    cuda().unwrap().iter().for_each(|b| quantized(b, true, 1.0 / 8192.0));
}

/// The CPU backend reads codes, multiplies the f32 that they stand for, and says so.
#[test]
fn quantized_products_are_right_without_kernels() {
    quantized(&cpu(), true, 1e-6);
}

/// A product with ranges on its input.
fn ranged(types: &[DType], ranged: bool) -> (Graph, BuildConfig) {
    let mut rng = Rng::new(5);
    let text = format!(
        "graph \"g\" {{ input %x: f32[6,48] weight %w: f32[48,20] = [{}] %y = matmul(%x, %w) output %y }}",
        list(&mut rng, 48 * 20, -1.0, 1.0)
    );
    let mut config =
        BuildConfig { reduced: types.to_vec(), narrowing: Narrowing::Everywhere, ..BuildConfig::default() };
    if ranged {
        config.ranges.insert("x".into(), [-2.0, 2.0]);
    }
    (Graph::from_text(&text).unwrap(), config)
}

#[test]
fn ranges_let_products_run_on_codes() {
    let run = |types: &[DType], with: bool| {
        let (g, config) = ranged(types, with);
        build(&reference(), g, config)
    };
    let built = run(&[F8], true);
    assert_eq!(products(&built), (1, 1));
    let x = Rng::new(7).tensor(DType::F32, &[6, 48]);
    let (g, _) = ranged(&[], false);
    let wanted = g.eval(std::slice::from_ref(&x)).unwrap().remove(0).to_f64();
    let found = built.program.graph.eval(&[x]).unwrap().remove(0).to_f64();
    // Three bits of fraction: an operand is off by a sixteenth at most.
    let off: f64 = found.iter().zip(&wanted).map(|(f, w)| (f - w).powi(2)).sum::<f64>().sqrt();
    let size: f64 = wanted.iter().map(|w| w * w).sum::<f64>().sqrt();
    assert!(off > 0.0 && off < size / 16.0, "{off} of {size}");
    let built = run(&[F8], false);
    assert_eq!(products(&built), (1, 0));
    assert!(
        built.notes.iter().any(|n| n.contains("cannot run in f8e4m3") && n.contains("\"x\"")),
        "{:?}",
        built.notes
    );
    assert_eq!(products(&run(&[], true)), (1, 0));
    // The first of several is taken everywhere.
    let built = run(&[DType::I8, F8], true);
    let g = &built.program.graph;
    let (_, n) = g.nodes().find(|(_, n)| n.op.name() == "matmul").unwrap();
    assert_eq!(g.ty(n.inputs[0].unwrap()).dtype, DType::I8);
}

const IMAGES: Shapes<'static> = &[("input", [&[1, 1, 28, 28], &[100, 1, 28, 28], &[100, 1, 28, 28]])];

/// 497 of 500 images are recognized in f32.
fn digits(backend: &Arc<dyn Backend>) {
    let builder = Engine::builder().backend("cpu").shape("input", &[50, 1, 28, 28]);
    let mut calibrator = Calibrator::new(data("digits/lenet_a.onnx"), &builder, Algorithm::MinMax).unwrap();
    let images = &archive("digits/digits_calib.npz").unwrap()["images"];
    calibrator.add_all(&[("input", rows(images, 0, 100).unwrap())]).unwrap();
    let config = BuildConfig {
        reduced: vec![F8],
        ranges: calibrator.table().unwrap().ranges(),
        narrowing: Narrowing::Everywhere,
        estimates: true,
        ..BuildConfig::default()
    };
    let e = engine("digits/lenet_a.onnx", backend, IMAGES, config).unwrap();
    let test = archive("digits/digits_test.npz").unwrap();
    let labels = test["labels"].to_i64();
    let mut context = e.create_context().unwrap();
    let mut right = 0usize;
    for at in (0..500).step_by(100) {
        let batch = rows(&test["images"], at, at + 100).unwrap();
        let logits = context.run(&[("input", batch)]).unwrap().remove(0).1;
        right += argmax(&logits).iter().zip(&labels[at..]).filter(|(p, l)| **p as i64 == **l).count();
    }
    assert!(right.abs_diff(497) <= 2, "{}: {right}", backend.name());
}

#[test]
fn calibrated_digits_are_recognized_on_cpu() {
    digits(&cpu());
}

#[test]
fn calibrated_digits_are_recognized_on_wgpu() {
    wgpu().unwrap().iter().for_each(digits);
}

#[test]
fn calibrated_digits_are_recognized_on_cuda() {
    cuda().unwrap().iter().for_each(digits);
}
