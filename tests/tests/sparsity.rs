//! 2:4 sparse weights as a choice of the build: which layers are eligible, what is taken, what pruning does, and refits.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::{Backend, BackendError, Device, Region, SPARSE_WEIGHTS, Tactic, Target};
use kiln_builder::{BuildConfig, Builder, Built, Narrowing, Refit, Sparsity};
use kiln_ir::problem::Rng;
use kiln_ir::{DType, Elems, Graph, Tensor};
use kiln_ops::matmul::sparse::random_sparse;
use kiln_plan::Plan;
use kiln_runtime::{Engine, Refitter, RuntimeError, verify_recipes};
use kiln_tests::backends::{cpu, cuda, reference};
use kiln_tests::models::{Shapes, archive, engine, rows};
use std::sync::Arc;

/// The oracle as a backend with sparse kernels; a product by packed weights takes so many microseconds, one by others 10.
struct Sparse(f64);

impl Backend for Sparse {
    fn name(&self) -> &str {
        "sparse"
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        let mut all = reference().targets()?;
        all.iter_mut().for_each(|t| t.features.push(SPARSE_WEIGHTS.into()));
        Ok(all)
    }

    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        let has = |op: &str| region.graph.nodes().any(|(_, n)| n.op.name() == op);
        let us = match (has("matmul_sparse"), has("matmul") || has("conv")) {
            (true, _) => self.0,
            (_, true) => 10.0,
            _ => 1.0,
        };
        let mut all = reference().tactics(region, target)?;
        all.iter_mut().for_each(|t| t.estimate_ns = Some(us * 1e3));
        Ok(all)
    }

    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError> {
        reference().compile(region, tactic, target)
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        reference().open(target)
    }
}

/// A network of products, each of an input of its own; weights come as text of their elements.
fn network(dtype: DType, weights: &[(&str, &Tensor, bool)], rows: usize) -> Graph {
    let k = weights[0].1.shape()[usize::from(weights[0].2)];
    let mut text = "graph \"g\" {\n".to_owned();
    for (i, (name, w, trans)) in weights.iter().enumerate() {
        let elems: Vec<String> = w.to_f64().iter().map(f64::to_string).collect();
        let shape: Vec<String> = w.shape().iter().map(usize::to_string).collect();
        text += &format!(
            "input %x{i}: {dtype}[{rows},{k}] weight %w{i}: {dtype}[{}] = [{}] name \"{name}\"\n%{name} = matmul(%x{i}, %w{i}) {{trans_b={trans}}} output %{name}\n",
            shape.join(","),
            elems.join(", ")
        );
    }
    Graph::from_text(&(text.clone() + "}")).unwrap_or_else(|e| panic!("{e}"))
}

/// Weights of f16 of a depth of 64: sparse, dense, sparse when read along the columns, sparse of a depth of 62.
fn layers() -> (Graph, Graph) {
    let mut rng = Rng::new(6);
    let sparse = random_sparse(&mut rng, DType::F16, 24, 64);
    let dense = rng.tensor(DType::F16, &[24, 64]);
    let turned = transposed(&random_sparse(&mut rng, DType::F16, 40, 64));
    let odd = random_sparse(&mut rng, DType::F16, 8, 62);
    let g = network(
        DType::F16,
        &[("sparse", &sparse, true), ("dense", &dense, true), ("turned", &turned, false)],
        5,
    );
    (g, network(DType::F16, &[("odd", &odd, true)], 5))
}

fn transposed(t: &Tensor) -> Tensor {
    let (n, k) = (t.shape()[0], t.shape()[1]);
    let v = t.to_f64();
    let turned = (0..k).flat_map(|j| (0..n).map(move |i| (i, j))).map(|(i, j)| v[i * k + j]).collect();
    Tensor::from_elems(t.dtype(), &[k, n], &Elems::F(turned)).unwrap()
}

fn build(backend: &Arc<dyn Backend>, g: &Graph, config: BuildConfig) -> Built {
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target);
    builder.config = BuildConfig { estimates: true, ..config };
    builder.build_graph(g.clone(), &mut |_, _, _| true).unwrap()
}

fn with(sparsity: Sparsity) -> BuildConfig {
    BuildConfig { sparsity, ..BuildConfig::default() }
}

fn sparse(us: f64) -> Arc<dyn Backend> {
    Arc::new(Sparse(us))
}

fn count(built: &Built, op: &str) -> usize {
    built.program.graph.nodes().filter(|(_, n)| n.op.name() == op).count()
}

fn notes(built: &Built) -> Vec<&str> {
    built.notes.iter().map(String::as_str).filter(|n| n.starts_with("(Sparsity)")).collect()
}

fn run(built: &Built, backend: &Arc<dyn Backend>, x: &Tensor) -> Vec<Tensor> {
    let target = backend.targets().unwrap().remove(0);
    let plan = Plan::new(built.program.clone(), Vec::new(), target);
    let engine = Engine::from_plan(Plan::read(plan.write().unwrap()).unwrap(), backend.clone()).unwrap();
    results(&engine, x)
}

fn results(engine: &Engine, x: &Tensor) -> Vec<Tensor> {
    let g = &engine.program().graph;
    let inputs: Vec<(&str, Tensor)> =
        g.inputs.iter().map(|&v| (g.value(v).name.as_str(), x.clone())).collect();
    let mut cx = engine.create_context().unwrap();
    cx.run(&inputs).unwrap().into_iter().map(|(_, t)| t).collect()
}

/// The oracle's results with the same tensor as every input.
fn wanted(g: &Graph, x: &Tensor) -> Vec<Tensor> {
    g.eval(&vec![x.clone(); g.inputs.len()]).unwrap()
}

#[test]
fn sparse_kernels_are_taken_where_they_are_faster() {
    let (g, odd) = layers();
    let x = Rng::new(2).tensor(DType::F16, &[5, 64]);
    let backend = sparse(4.0);
    let built = build(&backend, &g, with(Sparsity::Enable));
    assert_eq!((count(&built, "matmul_sparse"), count(&built, "matmul")), (2, 1));
    let told = notes(&built).join("\n");
    assert!(told.contains("Layers eligible for sparse math: sparse, turned"), "{told}");
    assert!(told.contains("picked sparse implementation for layers: sparse, turned"), "{told}");
    assert!(
        told.contains("10.00 us dense, 4.00 us sparse") || told.contains("11.00 us dense, 5.00 us sparse"),
        "{told}"
    );
    let both = built.considered.iter().filter(|c| c.rewrite == "sparse-weights");
    assert!(
        both.clone().count() == 2 && both.clone().all(|c| c.taken && c.without_ns > c.with_ns),
        "{both:?}"
    );
    assert_eq!(run(&built, &backend, &x), wanted(&g, &x));
    // A depth that groups of four do not fill.
    let built = build(&backend, &odd, with(Sparsity::Enable));
    let told = notes(&built).join("\n");
    assert!(told.contains("No layer is eligible") && told.contains("depth of 62"), "{told}");
}

#[test]
fn slower_ones_are_left_and_disabled_ones_not_tried() {
    let (g, _) = layers();
    let built = build(&sparse(20.0), &g, with(Sparsity::Enable));
    assert_eq!(count(&built, "matmul_sparse"), 0);
    let told = notes(&built).join("\n");
    assert!(told.contains("not faster") && told.contains("for layers: none"), "{told}");
    let built = build(&sparse(4.0), &g, with(Sparsity::Disable));
    assert_eq!((count(&built, "matmul_sparse"), notes(&built).len()), (0, 0));
    assert!(built.considered.iter().all(|c| c.rewrite != "sparse-weights"));
}

#[test]
fn backends_without_such_kernels_say_so() {
    let (g, _) = layers();
    let x = Rng::new(2).tensor(DType::F16, &[5, 64]);
    let built = build(&cpu(), &g, with(Sparsity::Enable));
    assert_eq!(notes(&built), ["(Sparsity) not used: backend cpu has no kernels for 2:4 sparse weights"]);
    assert_eq!(count(&built, "matmul_sparse"), 0);
    assert_eq!(run(&built, &cpu(), &x).len(), 3);
}

#[test]
fn forced_sparsity_prunes_by_magnitude() {
    let w = |v: &[f64]| Tensor::from_elems(DType::F32, &[1, 8], &Elems::F(v.to_vec())).unwrap();
    let (whole, pruned) =
        (w(&[1.0, -4.0, 3.0, 2.0, 0.5, 0.0, 0.25, -0.5]), w(&[0.0, -4.0, 3.0, 0.0, 0.5, 0.0, 0.0, -0.5]));
    let of = |w: &Tensor| network(DType::F32, &[("fc", w, true)], 3);
    let x = Rng::new(3).tensor(DType::F32, &[3, 8]);
    for backend in [cpu(), sparse(4.0)] {
        let built = build(&backend, &of(&whole), with(Sparsity::Force));
        let found = run(&built, &backend, &x);
        let wanted = wanted(&of(&pruned), &x);
        found[0]
            .to_f64()
            .iter()
            .zip(wanted[0].to_f64())
            .for_each(|(f, w)| assert!((f - w).abs() < 1e-5, "{f} {w}"));
        let told = notes(&built).join("\n");
        // Three of eight are lost: 1, 2 and 0.25 of a norm of 5.528.
        assert!(told.contains("pruned the weights of layer \"fc\"") && told.contains("37.5 %"), "{told}");
        assert!(told.contains("40.7 % of their norm"), "{told}");
        let built = build(&backend, &of(&whole), with(Sparsity::Enable));
        assert!(!notes(&built).join("\n").contains("pruned"));
    }
}

#[test]
fn codes_of_quantized_weights_are_pruned_and_packed() {
    let mut rng = Rng::new(8);
    let text = |w: &Tensor| {
        let w: Vec<String> = w.to_i64().iter().map(i64::to_string).collect();
        let text = format!(
            "graph \"g\" {{ input %x: f32[4,32] weight %s: f32[] = [0.05] weight %w: i8[16,32] = [{}] name \"w\"\n\
             %q = quantize(%x, %s) {{to=i8}} %a = dequantize(%q, %s) %b = dequantize(%w, %s)\n\
             %y = matmul(%a, %b) {{trans_b=true}} output %y }}",
            w.join(", ")
        );
        Graph::from_text(&text).unwrap_or_else(|e| panic!("{e}"))
    };
    let x = rng.tensor(DType::F32, &[4, 32]);
    let backend = sparse(4.0);
    let g = text(&rng.tensor(DType::I8, &[16, 32]));
    let built = build(&backend, &g, with(Sparsity::Force));
    assert_eq!(count(&built, "matmul_sparse"), 1, "{:?}", notes(&built));
    let values =
        built.program.graph.nodes().find(|(_, n)| n.op.name() == "matmul_sparse").unwrap().1.inputs[1];
    assert_eq!(built.program.graph.ty(values.unwrap()).dtype, DType::I8);
    assert_eq!(run(&built, &backend, &x).len(), 1);
    let g = text(&random_sparse(&mut rng, DType::I8, 16, 32));
    let built = build(&backend, &g, with(Sparsity::Enable));
    assert_eq!(count(&built, "matmul_sparse"), 1);
    let (found, wanted) = (run(&built, &backend, &x), wanted(&g, &x));
    // Sums of integers are exact; those of the layers one by one are of rounded floats.
    found[0]
        .to_f64()
        .iter()
        .zip(wanted[0].to_f64())
        .for_each(|(f, w)| assert!((f - w).abs() < 1e-4, "{f} {w}"));
}

#[test]
fn convolutions_of_one_element_are_products() {
    let mut rng = Rng::new(12);
    let w = random_sparse(&mut rng, DType::F16, 12, 16);
    let elems: Vec<String> = w.to_f64().iter().map(f64::to_string).collect();
    let of = |attrs: &str| {
        let text = format!(
            "graph \"g\" {{ input %x: f16[2,5,6,16] weight %w: f16[12,1,1,16] = [{}] weight %b: f16[12] = [{}]\n\
             %y = conv(%x, %w, %b) {{layout=\"channels_last\"{attrs}}} output %y }}",
            elems.join(", "),
            ["0.5"; 12].join(", ")
        );
        Graph::from_text(&text).unwrap_or_else(|e| panic!("{e}"))
    };
    let backend = sparse(4.0);
    let x = rng.tensor(DType::F16, &[2, 5, 6, 16]);
    let built = build(&backend, &of(""), with(Sparsity::Enable));
    assert_eq!((count(&built, "matmul_sparse"), count(&built, "conv")), (1, 0), "{:?}", notes(&built));
    let (found, wanted) = (run(&built, &backend, &x), wanted(&of(""), &x));
    found[0]
        .to_f64()
        .iter()
        .zip(wanted[0].to_f64())
        .for_each(|(f, w)| assert!((f - w).abs() < 1e-2, "{f} {w}"));
    for other in [", strides=[2,2]", ", pads=[1,0,0,0]"] {
        let built = build(&backend, &of(other), with(Sparsity::Enable));
        assert_eq!((count(&built, "matmul_sparse"), count(&built, "conv")), (0, 1), "{other}");
    }
}

#[test]
fn a_refit_takes_sparse_weights_and_refuses_others() {
    let (g, _) = layers();
    let backend = sparse(4.0);
    let x = Rng::new(2).tensor(DType::F16, &[5, 64]);
    let mut rng = Rng::new(31);
    let new = random_sparse(&mut rng, DType::F16, 24, 64);
    let dense = rng.tensor(DType::F16, &[24, 64]);
    let plan = |sparsity| {
        let built = build(&backend, &g, BuildConfig { refit: Refit::All, ..with(sparsity) });
        assert_eq!(count(&built, "matmul_sparse"), if sparsity == Sparsity::Force { 3 } else { 2 });
        let plan = Plan::new(built.program, Vec::new(), backend.targets().unwrap().remove(0));
        assert!(verify_recipes(&plan.program).unwrap().different.is_empty());
        plan
    };
    let engine = Engine::from_plan(plan(Sparsity::Enable), backend.clone()).unwrap();
    let before = results(&engine, &x);
    let mut refit = engine.refitter().unwrap();
    refit.set("sparse", dense.clone()).unwrap();
    match refit.refit() {
        Err(RuntimeError::Refit(why)) => assert!(why.contains("not 2:4 sparse"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(results(&engine, &x), before);
    refit.set("sparse", new.clone()).unwrap();
    refit.refit().unwrap();
    let with_new = network(DType::F16, &[("sparse", &new, true)], 5);
    let after = results(&engine, &x);
    assert_eq!(after[0], wanted(&with_new, &x)[0]);
    assert_eq!(after[1..], before[1..]);
    // Forced sparsity prunes whatever comes.
    let mut forced = Refitter::of_plan(plan(Sparsity::Force)).unwrap();
    forced.set("sparse", dense).unwrap();
    forced.refit().unwrap();
}

/// LeNet with pruned weights, in f16: the layers behind the images run on packed weights.
fn digits(backend: &Arc<dyn Backend>, taken: bool) {
    let shapes: Shapes = &[("input", [&[1, 1, 28, 28], &[100, 1, 28, 28], &[100, 1, 28, 28]])];
    let config = |sparsity| BuildConfig {
        reduced: vec![DType::F16],
        narrowing: Narrowing::Everywhere,
        ..with(sparsity)
    };
    let data = archive("digits/digits_test.npz").unwrap();
    let labels = data["labels"].to_i64();
    let correct = |e: &Engine| {
        let mut cx = e.create_context().unwrap();
        let mut right = 0;
        for first in (0..500).step_by(100) {
            let images = rows(&data["images"], first, first + 100).unwrap();
            let logits = cx.run(&[("input", images)]).unwrap().remove(0).1.to_f64();
            let best = |l: &[f64]| (0..10).max_by(|&a, &b| l[a].total_cmp(&l[b])).unwrap() as i64;
            right += logits.chunks(10).zip(&labels[first..]).filter(|(l, want)| best(l) == **want).count();
        }
        right
    };
    let enabled = engine("digits/lenet_a_sparse24.onnx", backend, shapes, config(Sparsity::Enable)).unwrap();
    let packed = enabled.program().graph.nodes().filter(|(_, n)| n.op.name() == "matmul_sparse").count();
    assert!(!taken || packed > 0, "no layer runs on packed weights");
    let dense = engine("digits/lenet_a_sparse24.onnx", backend, shapes, config(Sparsity::Disable)).unwrap();
    assert_eq!((correct(&enabled), correct(&dense)), (498, 498), "{}", backend.name());
    let forced = engine("digits/lenet_a.onnx", backend, shapes, config(Sparsity::Force)).unwrap();
    let right = correct(&forced);
    assert!(right >= 480, "{right} of 500 after pruning without training");
}

#[test]
fn pruned_digits_are_recognized() {
    digits(&cpu(), false);
}

#[test]
fn pruned_digits_are_recognized_on_cuda() {
    cuda().unwrap().iter().for_each(|b| digits(b, false));
}
