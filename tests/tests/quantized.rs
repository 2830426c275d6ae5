//! Networks with quantization and dequantization layers: their codes go through integer kernels, and mean what the layers say.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Builder, Built};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Elems, Fact, Graph, Op, Tensor, TensorType, ValueId};
use kiln_plan::Profile;
use kiln_runtime::Engine;
use kiln_tests::backends::{cpu, cuda, wgpu};
use kiln_tests::models::engine;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn build(backend: &Arc<dyn Backend>, g: Graph) -> Result<Built, String> {
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target);
    builder.config = BuildConfig { estimates: true, ..BuildConfig::default() };
    builder.build_graph(g, &mut |_, _, _| true).map_err(|e| e.to_string())
}

/// A random network of quantized layers.
struct Maker {
    g: Graph,
    rng: Rng,
    /// Scales are powers of two, so that floats hold every sum exactly.
    exact: bool,
    count: usize,
}

impl Maker {
    fn add(&mut self, op: &str, attrs: Attrs, inputs: &[ValueId]) -> ValueId {
        self.count += 1;
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        let op = Op::new(op, attrs).unwrap();
        self.g.add_node(&format!("n{}", self.count), op, &inputs).unwrap()[0]
    }

    fn constant(&mut self, t: Tensor) -> ValueId {
        self.count += 1;
        self.g.add_constant(&format!("c{}", self.count), t)
    }

    fn below(&mut self, n: i64) -> i64 {
        self.rng.int(0, n - 1)
    }

    fn scales(&mut self, shape: &[usize]) -> ValueId {
        let n = shape.iter().product();
        let one = |m: &mut Maker| match m.exact {
            true => 0.5f64.powi(m.below(3) as i32 + 3),
            false => m.rng.float(0.01, 0.1),
        };
        let v = (0..n).map(|_| one(self)).collect();
        let t = Tensor::from_elems(DType::F32, shape, &Elems::F(v)).unwrap();
        self.constant(t)
    }

    fn codes(&mut self, dtype: DType, shape: &[usize], lo: i64, hi: i64) -> Tensor {
        let v = (0..shape.iter().product()).map(|_| self.rng.int(lo, hi)).collect();
        Tensor::from_elems(dtype, shape, &Elems::I(v)).unwrap()
    }

    /// Type and zero point of activations: signed or not, about 0 or not.
    fn zero(&mut self) -> (DType, Option<ValueId>) {
        let dtype = if self.below(2) == 0 { DType::I8 } else { DType::U8 };
        let zero = (self.below(3) > 0).then(|| self.codes(dtype, &[], 0, 100));
        (dtype, zero.map(|z| self.constant(z)))
    }

    /// Quantized and dequantized.
    fn through(&mut self, x: ValueId) -> ValueId {
        let (dtype, zero) = self.zero();
        let scale = self.scales(&[]);
        let by: Vec<ValueId> = [scale].into_iter().chain(zero).collect();
        let all = |x| [x].into_iter().chain(by.iter().copied()).collect::<Vec<_>>();
        let q = self.add("quantize", Attrs::new().with("to", dtype), &all(x));
        self.add("dequantize", Attrs::new(), &all(q))
    }

    /// Dequantized weights, with a scale a channel (dimension `axis`) or one for all.
    fn weights(&mut self, shape: &[usize], axis: usize) -> ValueId {
        let dtype = if self.below(3) > 0 { DType::I8 } else { DType::U8 };
        let (lo, hi) = if dtype == DType::I8 { (-128, 127) } else { (0, 255) };
        let codes = self.codes(dtype, shape, lo, hi);
        let codes = self.constant(codes);
        let channel: Vec<usize> = (0..shape.len()).map(|i| if i == axis { shape[i] } else { 1 }).collect();
        let scale = if self.below(2) == 0 { self.scales(&channel) } else { self.scales(&[]) };
        let zero = match (dtype, self.below(3)) {
            (DType::U8, 0) => Some(self.codes(dtype, &[], 1, 200)),
            (DType::U8, _) => Some(self.codes(dtype, &[], 128, 128)),
            _ => None,
        };
        let zero = zero.map(|z| self.constant(z));
        let inputs: Vec<ValueId> = [codes, scale].into_iter().chain(zero).collect();
        self.add("dequantize", Attrs::new(), &inputs)
    }

    fn dims(&self, v: ValueId) -> Vec<usize> {
        self.g.ty(v).static_dims().unwrap()
    }

    fn bias(&mut self, n: usize) -> ValueId {
        let v = (0..n).map(|_| self.rng.int(-64, 64) as f64 / 8.0).collect();
        let t = Tensor::from_elems(DType::F32, &[n], &Elems::F(v)).unwrap();
        self.constant(t)
    }

    /// Groups of a convolution of so many channels.
    fn groups(&mut self, channels: usize) -> usize {
        let grouped = channels.is_multiple_of(2) && self.below(4) == 0;
        if grouped { [2, channels][self.below(2) as usize] } else { 1 }
    }

    fn conv(&mut self, x: ValueId) -> ValueId {
        let dims = self.dims(x);
        let rank = dims.len();
        let groups = self.groups(dims[1]);
        let m = groups * (1 + self.below(5) as usize);
        let taps: Vec<usize> = (2..rank).map(|i| 1 + self.below(dims[i].min(3) as i64) as usize).collect();
        let shape: Vec<usize> = [m, dims[1] / groups].into_iter().chain(taps).collect();
        let w = self.weights(&shape, 0);
        let pads: Vec<i64> = (0..2 * (rank - 2)).map(|_| self.below(2)).collect();
        let strides: Vec<i64> = (2..rank).map(|_| 1 + self.below(2)).collect();
        let attrs = Attrs::new().with("pads", pads).with("strides", strides).with("groups", groups as i64);
        match self.below(2) {
            0 => self.add("conv", attrs, &[x, w]),
            _ => {
                let b = self.bias(m);
                self.add("conv", attrs, &[x, w, b])
            }
        }
    }

    /// Codes in i32, less a zero point if there is one.
    fn centred(&mut self, codes: ValueId, zero: Option<ValueId>) -> ValueId {
        let wide = |m: &mut Maker, v| m.add("cast", Attrs::new().with("to", DType::I32), &[v]);
        let x = wide(self, codes);
        match zero {
            Some(zero) => {
                let zero = wide(self, zero);
                self.add("sub", Attrs::new(), &[x, zero])
            }
            None => x,
        }
    }

    /// A convolution of codes in i32, as ONNX's operators of integers are read, and its sums times a scale.
    fn integer_conv(&mut self, x: ValueId) -> ValueId {
        let dims = self.dims(x);
        let rank = dims.len();
        let (dtype, zero) = self.zero();
        let by: Vec<ValueId> = [x, self.scales(&[])].into_iter().chain(zero).collect();
        let codes = self.add("quantize", Attrs::new().with("to", dtype), &by);
        let image = self.centred(codes, zero);
        let groups = self.groups(dims[1]);
        let m = groups * (1 + self.below(6) as usize);
        let taps = (2..rank).map(|i| 1 + self.below(dims[i].min(3) as i64) as usize);
        let shape: Vec<usize> = [m, dims[1] / groups].into_iter().chain(taps).collect();
        let w = self.codes(DType::I8, &shape, -128, 127);
        let w = self.constant(w);
        let column: Vec<usize> = (0..rank).map(|i| if i == 0 { m } else { 1 }).collect();
        let zeros = self.codes(DType::I8, &column, 0, 0);
        let zeros = if self.below(2) == 0 { Some(self.constant(zeros)) } else { None };
        let w = self.centred(w, zeros);
        let pads: Vec<i64> = (0..2 * (rank - 2)).map(|_| self.below(2)).collect();
        let attrs = Attrs::new().with("pads", pads).with("groups", groups as i64);
        let sums = self.add("conv", attrs, &[image, w]);
        let along: Vec<usize> = (0..rank).map(|i| if i == 1 { m } else { 1 }).collect();
        let bias = self.codes(DType::I32, &along, -1000, 1000);
        let bias = self.constant(bias);
        let sums = self.add("add", Attrs::new(), &[sums, bias]);
        let sums = self.add("cast", Attrs::new().with("to", DType::F32), &[sums]);
        let scale = if self.below(2) == 0 { self.scales(&along) } else { self.scales(&[]) };
        self.add("mul", Attrs::new(), &[sums, scale])
    }

    fn product(&mut self, x: ValueId) -> ValueId {
        let dims = self.dims(x);
        let (k, n) = (dims[dims.len() - 1], 1 + self.below(9) as usize);
        if self.below(3) == 0 {
            let w = self.weights(&[n, k], 0);
            let w = self.add("transpose", Attrs::new().with("perm", vec![1i64, 0]), &[w]);
            return self.add("matmul", Attrs::new(), &[x, w]);
        }
        let w = self.weights(&[k, n], 1);
        let y = self.add("matmul", Attrs::new(), &[x, w]);
        let b = self.bias(n);
        self.add("add", Attrs::new(), &[y, b])
    }

    fn transposed(&mut self, x: ValueId) -> ValueId {
        let dims = self.dims(x);
        let groups = if dims[1].is_multiple_of(2) && self.below(4) == 0 { 2 } else { 1 };
        let m = 1 + self.below(4) as usize;
        let taps: Vec<usize> = (2..dims.len()).map(|_| 1 + self.below(3) as usize).collect();
        let shape: Vec<usize> = [dims[1], m].into_iter().chain(taps.iter().copied()).collect();
        let w = self.weights(&shape, 1);
        let front: Vec<i64> = taps.iter().map(|&k| self.below(k.min(2) as i64)).collect();
        let pads: Vec<i64> = front.into_iter().chain(taps.iter().map(|_| 0)).collect();
        let strides: Vec<i64> = taps.iter().map(|_| 1 + self.below(2)).collect();
        let attrs = Attrs::new().with("pads", pads).with("strides", strides).with("groups", groups as i64);
        let mut inputs = vec![x, w];
        if self.below(2) == 0 {
            inputs.push(self.bias(groups * m));
        }
        self.add("conv_transpose", attrs, &inputs)
    }

    /// Twice as large in every spatial dimension.
    fn resize(&mut self, x: ValueId) -> ValueId {
        let dims = self.dims(x);
        let scales: Vec<f32> = (0..dims.len()).map(|i| if i < 2 { 1.0 } else { 2.0 }).collect();
        let scales = self.constant(Tensor::f32(&[dims.len()], &scales).unwrap());
        let mode = ["nearest", "linear"][self.below(2) as usize];
        let coord = ["half_pixel", "asymmetric"][self.below(2) as usize];
        self.count += 1;
        let op = Op::new("resize", Attrs::new().with("mode", mode).with("coord", coord)).unwrap();
        self.g.add_node(&format!("n{}", self.count), op, &[Some(x), None, Some(scales)]).unwrap()[0]
    }

    fn pool(&mut self, x: ValueId) -> ValueId {
        let kernel: Vec<i64> = self.dims(x)[2..].iter().map(|&d| (d as i64).min(2)).collect();
        let op = ["max", "average"][self.below(2) as usize];
        self.add("pool", Attrs::new().with("op", op).with("kernel", kernel), &[x])
    }

    fn layer(&mut self, x: ValueId) -> ValueId {
        let dims = self.dims(x);
        let grows = dims.iter().product::<usize>() < 1000;
        match self.below(if grows { 10 } else { 8 }) {
            0..=1 => self.conv(x),
            2 => self.integer_conv(x),
            3 => self.product(x),
            4 => self.add("relu", Attrs::new(), &[x]),
            5 => self.pool(x),
            8 => self.transposed(x),
            9 => self.resize(x),
            6 => {
                let perm: Vec<i64> = (0..dims.len() as i64).rev().collect();
                let t = self.add("transpose", Attrs::new().with("perm", perm.clone()), &[x]);
                let t = self.through(t);
                self.add("transpose", Attrs::new().with("perm", perm), &[t])
            }
            _ => {
                let y = self.add("relu", Attrs::new(), &[x]);
                let (a, b) = (self.through(x), self.through(y));
                match self.below(2) {
                    0 => self.add("add", Attrs::new(), &[a, b]),
                    _ => self.add("concat", Attrs::new().with("axis", 1), &[a, b]),
                }
            }
        }
    }
}

/// A network of random quantized layers with its input.
fn network(seed: u64, exact: bool) -> (Graph, Tensor) {
    let mut m = Maker { g: Graph::new("quantized"), rng: Rng::new(seed), exact, count: 0 };
    let spatial = 1 + m.below(3) as usize;
    let mut dims = vec![1 + m.below(2) as usize, 1 + m.below(6) as usize];
    dims.extend((0..spatial).map(|_| 3 + m.below(5) as usize));
    let x = m.g.add_input("x", Fact::of(TensorType::new(DType::F32, dims.iter().map(|&d| d as i64))));
    let mut y = m.through(x);
    for _ in 0..2 + m.below(4) {
        y = m.layer(y);
        y = m.through(y);
    }
    m.g.outputs = vec![y];
    let values = (0..dims.iter().product()).map(|_| m.rng.int(-400, 400) as f64 / 32.0).collect();
    let given = Tensor::from_elems(DType::F32, &dims, &Elems::F(values)).unwrap();
    (m.g, given)
}

/// Products of networks, layers among these, pools and resizes that read no codes, and differences from the oracle.
#[derive(Default)]
struct Counts {
    products: usize,
    wide: usize,
    wrong: Vec<String>,
}

impl Counts {
    fn add(&mut self, more: Counts) {
        self.products += more.products;
        self.wide += more.wide;
        self.wrong.extend(more.wrong);
    }
}

/// Pools and resizes that read floats.
fn sampling_floats(g: &Graph) -> usize {
    let reads = |n: &kiln_ir::Node| n.inputs[0].is_some_and(|v| g.ty(v).dtype.is_float());
    g.nodes().filter(|(_, n)| matches!(n.op.name(), "pool" | "resize") && reads(n)).count()
}

/// One random network against the oracle.
fn random_network(backend: &Arc<dyn Backend>, seed: u64) -> Counts {
    let (g, x) = network(seed, true);
    let wanted = g.eval(std::slice::from_ref(&x)).unwrap();
    let heavy = |g: &Graph, wide: bool| {
        let counts = |n: &kiln_ir::Node| !wide || n.inputs[0].is_some_and(|v| g.ty(v).dtype.bits() > 8);
        g.nodes().filter(|(_, n)| matches!(n.op.name(), "conv" | "matmul") && counts(n)).count()
    };
    let mut counts = Counts { products: heavy(&g, false), ..Counts::default() };
    let found = build(backend, g).and_then(|b| {
        counts.wide += heavy(&b.program.graph, true) + sampling_floats(&b.program.graph);
        let target = backend.targets().unwrap().remove(0);
        let engine = Engine::on_target(b.program, vec![Profile::new()], backend.as_ref(), target);
        let engine = engine.map_err(|e| e.to_string())?;
        let mut context = engine.create_context().map_err(|e| e.to_string())?;
        let mut run = || context.run(&[("x", x.clone())]).map_err(|e| e.to_string());
        // The second run multiplies by weights that the first one packed.
        let (first, second) = (run()?, run()?);
        if first == second { Ok(second) } else { Err(format!("{second:?}, but {first:?} at first")) }
    });
    match found {
        Ok(found) if found[0].1 == wanted[0] => {}
        Ok(found) => counts.wrong.push(format!("seed {seed}: {:?}, wanted {:?}", found[0].1, wanted[0])),
        Err(e) => counts.wrong.push(format!("seed {seed}: {e}")),
    }
    counts
}

/// Random networks against the oracle's evaluation of their layers, one by one. With scales that floats hold exactly the results are
/// equal bit for bit. `KILN_QUANTIZED_CASES` and `KILN_QUANTIZED_SEED` draw more and others.
fn random_networks(backend: &Arc<dyn Backend>, cases: u64) {
    let number =
        |name: &str, default: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let first = number("KILN_QUANTIZED_SEED", 1);
    let cases = number("KILN_QUANTIZED_CASES", cases);
    // Most of the time goes into compiling kernels, which threads do side by side.
    let next = AtomicU64::new(first);
    let of_thread = || {
        let mut sum = Counts::default();
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= first + cases {
                return sum;
            }
            sum.add(random_network(backend, seed));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let Counts { products, wide, wrong } = std::thread::scope(|s| {
        let all: Vec<_> = (0..threads).map(|_| s.spawn(of_thread)).collect();
        let mut sum = Counts::default();
        all.into_iter().for_each(|t| sum.add(t.join().unwrap()));
        sum
    });
    println!(
        "{}: {products} products, {wide} layers on more than codes, seeds {first}..{}",
        backend.name(),
        first + cases
    );
    assert!(
        wrong.is_empty(),
        "{} of {cases} are wrong: {}",
        wrong.len(),
        wrong[..wrong.len().min(3)].join("\n")
    );
    assert!(products > 0 && wide == 0, "{products} products, {wide} layers on more than codes");
}

#[test]
fn random_networks_mean_what_their_layers_say_on_cpu() {
    random_networks(&cpu(), 100);
}

#[test]
fn random_networks_mean_what_their_layers_say_on_wgpu() {
    wgpu().unwrap().iter().for_each(|b| random_networks(b, 20));
}

#[test]
fn random_networks_mean_what_their_layers_say_on_cuda() {
    cuda().unwrap().iter().for_each(|b| random_networks(b, 200));
}

/// Nearest resizes move codes, and transposed convolutions of codes are of integers where the backend has a kernel for them.
fn resizes_and_transposed(backend: &Arc<dyn Backend>, integers: bool) {
    for seed in 1..12 {
        let mut m = Maker { g: Graph::new("quantized"), rng: Rng::new(seed), exact: true, count: 0 };
        let x = m.g.add_input("x", Fact::of(TensorType::new(DType::F32, [2, 3, 4, 5])));
        let y = m.through(x);
        let y = m.transposed(y);
        let y = m.through(y);
        let scales = m.constant(Tensor::f32(&[4], &[1.0, 1.0, 2.0, 2.0]).unwrap());
        let op = Op::new("resize", Attrs::new()).unwrap();
        let y = m.g.add_node("larger", op, &[Some(y), None, Some(scales)]).unwrap()[0];
        m.g.outputs = vec![m.through(y)];
        let built = build(backend, m.g).unwrap();
        let g = &built.program.graph;
        let types = |names: &[&str]| -> Vec<DType> {
            let of = g.nodes().filter(|(_, n)| names.contains(&n.op.name()));
            of.map(|(_, n)| g.ty(n.outputs[0]).dtype).collect()
        };
        assert!(types(&["resize"]).iter().all(|t| t.bits() == 8), "{}", g.to_text());
        let sums = types(&["conv_transpose", "conv"]);
        let wanted = if integers { DType::I32 } else { DType::F32 };
        assert!(!sums.is_empty() && sums.iter().all(|t| *t == wanted), "{sums:?}\n{}", g.to_text());
    }
}

#[test]
fn resizes_work_on_codes_on_cpu() {
    resizes_and_transposed(&cpu(), false);
}

#[test]
fn resizes_and_transposed_convolutions_work_on_codes_on_wgpu() {
    wgpu().unwrap().iter().for_each(|b| resizes_and_transposed(b, true));
}

#[test]
fn resizes_and_transposed_convolutions_work_on_codes_on_cuda() {
    cuda().unwrap().iter().for_each(|b| resizes_and_transposed(b, true));
}

/// The convolutions of a network that was quantized with Q/DQ layers run on integers.
fn lenet_is_integer(backend: &Arc<dyn Backend>) {
    for model in ["lenet_a_qdq", "lenet_a_qdq_ort"] {
        let shapes: kiln_tests::models::Shapes<'_> =
            &[("input", [&[1, 1, 28, 28], &[4, 1, 28, 28], &[4, 1, 28, 28]])];
        let config = BuildConfig { estimates: true, ..BuildConfig::default() };
        let e = engine(&format!("digits/{model}.onnx"), backend, shapes, config).unwrap();
        let g = &e.program().graph;
        let products = g.nodes().filter(|(_, n)| matches!(n.op.name(), "conv" | "matmul"));
        let types: Vec<DType> = products.map(|(_, n)| g.ty(n.outputs[0]).dtype).collect();
        assert!(
            types.len() >= 4 && types.iter().all(|t| *t == DType::I32),
            "{model}: {types:?}\n{}",
            g.to_text()
        );
    }
}

#[test]
fn convolutions_of_a_quantized_network_are_integer_on_cpu() {
    lenet_is_integer(&cpu());
}

#[test]
fn convolutions_of_a_quantized_network_are_integer_on_wgpu() {
    wgpu().unwrap().iter().for_each(lenet_is_integer);
}

#[test]
fn convolutions_of_a_quantized_network_are_integer_on_cuda() {
    cuda().unwrap().iter().for_each(lenet_is_integer);
}
