//! Products by weights that are dequantized: plans and devices hold their codes, of 4 or 8 bits, and kernels multiply by them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Builder, Built, Refit};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Elems, Fact, Graph, Op, Source, Tensor, TensorType, ValueId};
use kiln_plan::{LayerTable, Plan, Profile, Verbosity};
use kiln_runtime::{Engine, verify_recipes};
use kiln_tests::backends::{cpu, cuda, reference, wgpu};
use std::sync::Arc;

fn build(backend: &Arc<dyn Backend>, g: &Graph, config: BuildConfig) -> Built {
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target);
    builder.config = BuildConfig { estimates: true, ..config };
    builder.build_graph(g.clone(), &mut |_, _, _| true).unwrap_or_else(|e| panic!("{e}\n{}", g.to_text()))
}

fn engine(backend: &Arc<dyn Backend>, built: Built) -> Engine {
    let target = backend.targets().unwrap().remove(0);
    Engine::on_target(built.program, vec![Profile::new()], backend.as_ref(), target).unwrap()
}

fn run(engine: &Engine, x: &Tensor) -> Tensor {
    engine.create_context().unwrap().run(&[("x", x.clone())]).unwrap().remove(0).1
}

fn count(g: &Graph, op: &str) -> usize {
    g.nodes().filter(|(_, n)| n.op.name() == op).count()
}

/// A network of one product by dequantized weights.
struct Maker {
    g: Graph,
    rng: Rng,
    nodes: usize,
}

impl Maker {
    fn add(&mut self, op: &str, attrs: Attrs, inputs: &[ValueId]) -> ValueId {
        self.nodes += 1;
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        self.g.add_node(&format!("n{}", self.nodes), Op::new(op, attrs).unwrap(), &inputs).unwrap()[0]
    }

    fn weight(&mut self, name: &str, t: Tensor) -> ValueId {
        let v = self.g.add_constant(name, t);
        if let Source::Weight(w) = &mut self.g.value_mut(v).source {
            w.name = Some(name.into());
        }
        v
    }

    fn reshape(&mut self, x: ValueId, shape: &[i64]) -> ValueId {
        let shape =
            self.g.add_constant(&format!("shape{}", self.nodes), Tensor::i64(&[shape.len()], shape).unwrap());
        self.add("reshape", Attrs::new(), &[x, shape])
    }

    fn below(&mut self, n: i64) -> usize {
        self.rng.int(0, n - 1) as usize
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as i64)]
    }
}

/// Codes [d0, d1], of which `block` along `axis` share a scale (0: all of a row or column; the whole size of both: all).
struct Weights {
    dtype: DType,
    shape: [usize; 2],
    axis: usize,
    block: usize,
    zero: bool,
    one: bool,
}

/// The dequantized weights of a layer, as importers write them: blocks are a dimension of their own.
fn weights(m: &mut Maker, w: &Weights, to: DType) -> ValueId {
    let codes = m.rng.tensor_in(w.dtype, &w.shape, 0.0, 0.0, 120);
    let codes = m.weight("codes", codes);
    let [d0, d1] = w.shape;
    let (shape, scales): (Vec<usize>, Vec<usize>) = match (w.one, w.block, w.axis) {
        (true, ..) => (vec![d0, d1], vec![]),
        (_, 0, axis) => (vec![d0, d1], if axis == 0 { vec![d0, 1] } else { vec![d1] }),
        (_, b, 0) => (vec![d0 / b, b, d1], vec![d0 / b, 1, d1]),
        (_, b, _) => (vec![d0, d1 / b, b], vec![d0, d1 / b, 1]),
    };
    let scale = m.rng.tensor_in(to, &scales, 0.01, 0.1, 0);
    let scale = m.weight("scale", scale);
    let wide: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
    let split = if shape.len() > 2 { m.reshape(codes, &wide) } else { codes };
    let mut inputs = vec![split, scale];
    if w.zero {
        let zero = m.rng.tensor_in(w.dtype, &scales, 0.0, 0.0, 7);
        inputs.push(m.weight("zero", zero));
    }
    let y = m.add("dequantize", Attrs::new().with("to", to), &inputs);
    if shape.len() > 2 { m.reshape(y, &[d0 as i64, d1 as i64]) } else { y }
}

/// A product of `rows` by these weights, with a bias sometimes, and its input.
fn product(m: &mut Maker, w: &Weights, rows: &[usize], trans: bool, to: DType) -> Tensor {
    let [k, n] = if trans { [w.shape[1], w.shape[0]] } else { w.shape };
    let dims: Vec<usize> = rows.iter().copied().chain([k]).collect();
    let x = m.rng.tensor(to, &dims);
    let input = m.g.add_input("x", Fact::of(x.ty()));
    let w = weights(m, w, to);
    let mut y = m.add("matmul", Attrs::new().with("trans_b", trans), &[input, w]);
    if m.below(2) == 0 {
        let bias = m.rng.tensor(to, &[n]);
        let bias = m.weight("bias", bias);
        y = m.add("add", Attrs::new(), &[y, bias]);
    }
    m.g.outputs = vec![y];
    x
}

fn maker(seed: u64) -> Maker {
    Maker { g: Graph::new("weights"), rng: Rng::new(seed), nodes: 0 }
}

/// Some network, its input, and whether its weights stay codes.
fn random(seed: u64) -> (Graph, Tensor, Weights) {
    let mut m = maker(seed);
    let dtype = m.pick(&[DType::I4, DType::I4, DType::I4, DType::I8, DType::U8]);
    let block = m.pick(&[0, 0, 2, 3, 8, 16, 32]);
    let axis = m.below(2);
    let mut shape = [1 + m.below(70), 1 + m.below(70)];
    if block > 0 {
        shape[axis] = block * (1 + m.below(5));
    }
    let w = Weights { dtype, shape, axis, block, zero: m.below(2) == 0, one: block == 0 && m.below(3) == 0 };
    let rows: &[usize] = m.pick(&[&[1], &[1, 1], &[3], &[2, 3], &[11], &[40]]);
    let (trans, to) = (m.below(2) == 0, m.pick(&[DType::F32, DType::F32, DType::F16, DType::BF16]));
    let x = product(&mut m, &w, rows, trans, to);
    (m.g, x, w)
}

/// Fails where results differ by more than sums of this depth are rounded.
fn near(found: &Tensor, wanted: &Tensor, what: &str) {
    assert_eq!(found.shape(), wanted.shape(), "{what}");
    let step = match wanted.dtype() {
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        _ => 1e-4,
    };
    let largest = wanted.to_f64().iter().fold(1.0, |m: f64, x| m.max(x.abs()));
    for (i, (f, w)) in found.to_f64().iter().zip(wanted.to_f64()).enumerate() {
        assert!((f - w).abs() <= step * largest, "{what}: element {i} is {f}, wanted {w}");
    }
}

fn random_products(backend: &Arc<dyn Backend>, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let (g, x, w) = random(seed);
        let wanted = g.eval(std::slice::from_ref(&x)).unwrap().remove(0);
        let built = build(backend, &g, BuildConfig::default());
        let made = &built.program.graph;
        let what = format!("{} seed {seed}: {:?} by blocks of {}", backend.name(), w.shape, w.block);
        assert_eq!(
            (count(made, "matmul_codes"), count(made, "matmul")),
            (1, 0),
            "{what}\n{}",
            made.to_text()
        );
        near(&run(&engine(backend, built), &x), &wanted, &what);
    }
}

#[test]
fn random_weights_stay_codes_on_reference() {
    random_products(&reference(), 0..60);
}

#[test]
fn random_weights_stay_codes_on_cpu() {
    random_products(&cpu(), 0..200);
}

#[test]
fn random_weights_stay_codes_on_wgpu() {
    wgpu().unwrap().iter().for_each(|b| random_products(b, 0..40));
}

#[test]
fn random_weights_stay_codes_on_cuda() {
    cuda().unwrap().iter().for_each(|b| random_products(b, 0..100));
}

/// A product of 512 by 256 weights in blocks of 32.
fn larger(dtype: DType, rows: usize) -> (Graph, Tensor) {
    let mut m = maker(5);
    let w = Weights { dtype, shape: [512, 256], axis: 0, block: 32, zero: true, one: false };
    let x = product(&mut m, &w, &[rows], false, DType::F32);
    (m.g, x)
}

fn plan(backend: &Arc<dyn Backend>, g: &Graph, config: BuildConfig) -> Plan {
    Plan::new(build(backend, g, config).program, Vec::new(), backend.targets().unwrap().remove(0))
}

#[test]
fn plans_hold_packed_codes() {
    let size = |dtype: DType, rows: usize| {
        let (g, _) = larger(dtype, rows);
        plan(&cpu(), &g, BuildConfig::default()).write().unwrap().len()
    };
    let (weights, scales) = (512 * 256, 512 / 32 * 256 * 4);
    let room = 24 << 10;
    let packed = size(DType::I4, 100);
    assert!(packed < weights / 2 + scales + scales / 8 + room, "{packed} bytes of 4-bit weights");
    let bytes = size(DType::I8, 4);
    assert!(
        bytes >= weights && bytes < weights + scales + scales / 4 + room,
        "{bytes} bytes of 8-bit weights"
    );
    // Many rows take longer than their weights are read: then the weights are floats.
    assert!(size(DType::I8, 100) > 4 * weights);
}

#[test]
fn the_inspector_shows_packed_weights() {
    let (g, _) = larger(DType::I4, 3);
    let built = build(&cpu(), &g, BuildConfig::default());
    let text = LayerTable::of(&built.program, Verbosity::Detailed).to_json();
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    let wanted = serde_json::json!({"Type": "i4", "Count": 512 * 256, "Bytes": 512 * 256 / 2});
    fn holds(v: &serde_json::Value, wanted: &serde_json::Value) -> bool {
        match v {
            serde_json::Value::Object(o) => o.values().any(|v| v == wanted || holds(v, wanted)),
            serde_json::Value::Array(a) => a.iter().any(|v| holds(v, wanted)),
            _ => false,
        }
    }
    assert!(holds(&all, &wanted), "{text}");
}

#[test]
fn a_refit_takes_new_codes_and_scales() {
    for backend in [cpu(), reference()] {
        let (g, x) = larger(DType::I4, 3);
        let plan = plan(&backend, &g, BuildConfig { refit: Refit::All, ..BuildConfig::default() });
        assert!(verify_recipes(&plan.program).unwrap().different.is_empty());
        let engine = Engine::from_plan(plan, backend.clone()).unwrap();
        let mut rng = Rng::new(77);
        let mut other = g.clone();
        let mut refit = engine.refitter().unwrap();
        for name in ["codes", "scale", "zero"] {
            let v = other.find(name).unwrap();
            let old = other.weight(v).unwrap().tensor.clone();
            let new = rng.tensor_in(old.dtype(), old.shape(), 0.02, 0.3, 7);
            refit.set(name, new.clone()).unwrap();
            let def = other.value_mut(v);
            def.fact = Fact::constant(new.clone());
            if let Source::Weight(w) = &mut def.source {
                w.tensor = new;
            }
        }
        refit.refit().unwrap();
        let wanted = other.eval(std::slice::from_ref(&x)).unwrap().remove(0);
        near(&run(&engine, &x), &wanted, backend.name());
        assert_ne!(g.eval(std::slice::from_ref(&x)).unwrap()[0], wanted);
    }
}

#[test]
fn zero_points_that_a_refit_may_change_are_kept() {
    let mut m = maker(9);
    let x = m.rng.tensor(DType::F32, &[2, 8]);
    let input = m.g.add_input("x", Fact::of(TensorType { dtype: DType::F32, dims: x.ty().dims }));
    let codes = m.rng.tensor(DType::I4, &[8, 3]);
    let codes = m.weight("codes", codes);
    let scale = m.weight("scale", Tensor::f32(&[], &[0.5]).unwrap());
    let zero = m.weight("zero", Tensor::from_elems(DType::I4, &[], &Elems::I(vec![0])).unwrap());
    let w = m.add("dequantize", Attrs::new(), &[codes, scale, zero]);
    let y = m.add("matmul", Attrs::new(), &[input, w]);
    m.g.outputs = vec![y];
    let backend = cpu();
    let plan = plan(&backend, &m.g, BuildConfig { refit: Refit::All, ..BuildConfig::default() });
    let engine = Engine::from_plan(plan, backend).unwrap();
    let before = run(&engine, &x);
    let mut refit = engine.refitter().unwrap();
    refit.set("zero", Tensor::from_elems(DType::I4, &[], &Elems::I(vec![3])).unwrap()).unwrap();
    refit.refit().unwrap();
    let sums: Vec<f64> = x.to_f64().chunks(8).map(|row| row.iter().sum()).collect();
    let wanted: Vec<f64> = before.to_f64().iter().enumerate().map(|(i, y)| y - 1.5 * sums[i / 3]).collect();
    near(
        &run(&engine, &x),
        &Tensor::from_elems(DType::F32, &[2, 3], &Elems::F(wanted)).unwrap(),
        "zero points",
    );
}

#[test]
fn types_are_chosen_for_products_by_codes() {
    let (g, x) = larger(DType::I4, 3);
    let wanted = g.eval(std::slice::from_ref(&x)).unwrap().remove(0);
    let config = BuildConfig {
        reduced: vec![DType::F16],
        narrowing: kiln_builder::Narrowing::Everywhere,
        ..BuildConfig::default()
    };
    let built = build(&cpu(), &g, config);
    let made = &built.program.graph;
    let node = made.nodes().find(|(_, n)| n.op.name() == "matmul_codes").unwrap().1;
    assert_eq!(made.ty(node.inputs[0].unwrap()).dtype, DType::F16);
    assert_eq!(made.ty(node.inputs[1].unwrap()).dtype, DType::I4);
    let found = run(&engine(&cpu(), built), &x);
    let halves = |t: &Tensor| Tensor::from_elems(DType::F16, t.shape(), &t.elems()).unwrap();
    near(&halves(&found), &halves(&wanted), "f16");
}
