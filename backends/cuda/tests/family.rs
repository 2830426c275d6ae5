//! Times of each tactic of products and convolutions where engines run it: a chain of launches with weights
//! of their own, as one graph. `benches/gpu/family.py` passes the shapes and times the libraries.
//!
//! `KILN_FAMILY=shapes.txt KILN_REQUIRE_CUDA=1 family --ignored --nocapture` prints a line of JSON for each tactic. A line of
//! shapes is `matmul TYPE M N K nk|kn LAYERS` or `conv TYPE BATCH SIDE CHANNELS OUTPUTS KERNEL STRIDE`, convolutions with bias and ReLU.
//! LAYERS, behind a product, are any of `bias`, `residual`, `relu`, `gelu` and `gelu_tanh`.
//! `KILN_FAMILY_TACTICS` limits how many of the most promising tactics are taken, by default 8;
//! `KILN_FAMILY_PICK` keeps those whose name ends with one of its parts, which commas separate.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a measurement")]

use kiln_backend::{Backend, Device, Program, Region, Step, Tactic, Target};
use kiln_backend_cuda::Cuda;
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, Bytes, DType, Fact, Graph, NodeId, Op, Tensor, ValueId};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that a chain goes through before it meets the same ones again: more than the L2.
const ROTATE: usize = 150 << 20;
/// Launches of a chain.
const LAUNCHES: usize = 48;
const RUNS: u32 = 15;

/// One shape, as many times as it takes.
struct Chain {
    label: String,
    graph: Graph,
    inputs: Vec<Tensor>,
    /// Nodes of each launch.
    nodes: Vec<Vec<NodeId>>,
    /// Operations of one launch.
    ops: f64,
}

/// A layer behind a product.
enum Behind {
    Added(Tensor),
    Function(&'static str, Attrs),
}

fn number(words: &[&str], at: usize) -> usize {
    words.get(at).and_then(|w| w.parse().ok()).unwrap_or_else(|| panic!("no number {at} in {words:?}"))
}

/// Elements without a pattern that matters: a block of random ones, again and again.
fn large(rng: &mut Rng, t: DType, shape: &[usize]) -> Tensor {
    let some = rng.tensor(t, &[1 << 16]);
    let bytes = shape.iter().product::<usize>() * t.bits() as usize / 8;
    let all: Vec<u8> = some.bytes().iter().copied().cycle().take(bytes).collect();
    Tensor::from_bytes(t, shape, all).unwrap()
}

impl Chain {
    fn of(line: &str) -> Chain {
        let words: Vec<&str> = line.split_whitespace().collect();
        let t = match words.get(1) {
            Some(&"f16") => DType::F16,
            Some(&"tf32") => DType::F32,
            Some(&"i8") => DType::I8,
            other => panic!("no type {other:?}"),
        };
        let mut rng = Rng::new(5);
        match words.first() {
            Some(&"matmul") => {
                let [m, n, k] = [2, 3, 4].map(|i| number(&words, i));
                let trans = words.get(5) == Some(&"nk");
                let x = large(&mut rng, t, &[m, k]);
                let w = large(&mut rng, t, &if trans { [n, k] } else { [k, n] });
                let op = Op::new("matmul", Attrs::new().with("trans_b", trans)).unwrap();
                let behind: Vec<Behind> = words[6.min(words.len())..]
                    .iter()
                    .map(|&layer| match layer {
                        "bias" => Behind::Added(rng.tensor(t, &[n])),
                        "residual" => Behind::Added(large(&mut rng, t, &[m, n])),
                        "relu" => Behind::Function("relu", Attrs::new()),
                        "gelu" => Behind::Function("gelu", Attrs::new()),
                        "gelu_tanh" => Behind::Function("gelu", Attrs::new().with("approximate", "tanh")),
                        other => panic!("no layer {other:?}"),
                    })
                    .collect();
                Chain::repeated(line, &op, &x, &[w], &[m, n], &behind, 2.0 * (m * n * k) as f64)
            }
            Some(&"conv") => {
                let [batch, side, c, out, kernel, stride] = [2, 3, 4, 5, 6, 7].map(|i| number(&words, i));
                let op = Attrs::new()
                    .with("layout", "channels_last")
                    .with("strides", vec![stride as i64; 2])
                    .with("pads", vec![kernel as i64 / 2; 4]);
                let op = Op::new("conv", op).unwrap();
                let x = large(&mut rng, t, &[batch, side, side, c]);
                let w = large(&mut rng, t, &[out, kernel, kernel, c]);
                let to = (side + 2 * (kernel / 2) - kernel) / stride + 1;
                let ops = 2.0 * (batch * to * to * out * kernel * kernel * c) as f64;
                let bias = rng.tensor(t, &[out]);
                Chain::repeated(
                    line,
                    &op,
                    &x,
                    &[w, bias],
                    &[batch, to, to, out],
                    &[Behind::Function("relu", Attrs::new())],
                    ops,
                )
            }
            other => panic!("no operator {other:?}"),
        }
    }

    fn repeated(
        line: &str,
        op: &Op,
        x: &Tensor,
        weights: &[Tensor],
        y: &[usize],
        behind: &[Behind],
        ops: f64,
    ) -> Chain {
        let own: usize = weights.iter().map(|w| w.bytes().len()).sum();
        let moved = x.bytes().len() + y.iter().product::<usize>() * x.dtype().bits() as usize / 8;
        // Large images take turns, small ones stay where the layer before them would have left them.
        let images = if moved > 8 << 20 { (ROTATE / moved).clamp(1, 8) } else { 1 };
        let sets = (ROTATE / own.max(1)).clamp(1, LAUNCHES);
        // All results are read back once, which takes long where they are large.
        let launches = match moved + own {
            n if n > 64 << 20 => images.max(3),
            n if n > 8 << 20 => LAUNCHES / 2,
            _ => LAUNCHES,
        };
        let mut graph = Graph::new("chain");
        let ids: Vec<ValueId> =
            (0..images).map(|i| graph.add_input(&format!("x{i}"), Fact::of(x.ty()))).collect();
        let constants: Vec<Vec<ValueId>> = (0..sets.min(launches))
            .map(|s| {
                let one = |(i, w): (usize, &Tensor)| graph.add_constant(&format!("w{s}_{i}"), w.clone());
                weights.iter().enumerate().map(one).collect()
            })
            .collect();
        let mut nodes = Vec::new();
        for i in 0..launches {
            let mut given = vec![Some(ids[i % images])];
            given.extend(constants[i % constants.len()].iter().map(|&v| Some(v)));
            let mut last = graph.add_node(&format!("y{i}"), op.clone(), &given).unwrap()[0];
            let mut own = vec![*graph.order().last().unwrap()];
            for (b, layer) in behind.iter().enumerate() {
                let name = format!("y{i}_{b}");
                last = match layer {
                    Behind::Added(term) => {
                        let term = graph.add_constant(&format!("{name}_term"), term.clone());
                        graph.add(&name, Op::new("add", Attrs::new()).unwrap(), &[last, term]).unwrap()
                    }
                    Behind::Function(op, attrs) => {
                        graph.add(&name, Op::new(op, attrs.clone()).unwrap(), &[last]).unwrap()
                    }
                };
                own.push(*graph.order().last().unwrap());
            }
            graph.outputs.push(last);
            nodes.push(own);
        }
        Chain { label: line.to_owned(), graph, inputs: vec![x.clone(); images], nodes, ops }
    }

    fn region(&self) -> Region {
        Region::extract(&self.graph, &self.nodes[0]).unwrap()
    }

    fn tactics(&self, target: &Target) -> Vec<Tactic> {
        let most = std::env::var("KILN_FAMILY_TACTICS").ok().and_then(|n| n.parse().ok()).unwrap_or(8);
        let mut found = Cuda.tactics(&self.region(), target).unwrap();
        found.sort_by(|a, b| a.estimate_ns.unwrap_or(1e12).total_cmp(&b.estimate_ns.unwrap_or(1e12)));
        let picked = std::env::var("KILN_FAMILY_PICK").unwrap_or_default();
        found.retain(|t| picked.split(',').any(|p| t.name.ends_with(p)));
        found.truncate(most);
        found
    }

    /// Nanoseconds of a launch, and the last result.
    fn time(&self, device: &Arc<dyn Device>, tactic: &Tactic, blob: &[u8]) -> (f64, Tensor) {
        let blob = Bytes::from(blob.to_vec());
        let step = |(i, n): (usize, &Vec<NodeId>)| {
            Step::new(format!("y{i}"), n.clone(), tactic.clone(), blob.clone())
        };
        let steps = self.nodes.iter().enumerate().map(step).collect();
        let program = Arc::new(Program::new(self.graph.clone(), steps, Default::default()));
        let mut cx = device.load(program.clone()).unwrap().context().unwrap();
        let shapes = Arc::new(program.shapes(&self.inputs).unwrap());
        cx.enqueue(&self.inputs, &shapes).unwrap();
        cx.outputs().unwrap();
        let mut times = cx.time_runs(RUNS).unwrap();
        times.sort_by(f64::total_cmp);
        // As the last of the graphs left it.
        let last = cx.observe(*self.graph.outputs.last().unwrap()).unwrap();
        (times[times.len() / 2] / self.nodes.len() as f64, last)
    }
}

/// Elements of a result's beginning and end that are compared.
const COMPARED: usize = 1 << 17;

/// The largest difference of two results' ends, in parts of the largest number of one.
fn apart(x: &Tensor, y: &Tensor) -> f64 {
    let ends = |t: &Tensor| {
        let width = t.dtype().bits() as usize / 8;
        let n = COMPARED.min(t.len()) * width;
        let all = [&t.bytes()[..n], &t.bytes()[t.bytes().len() - n..]].concat();
        Tensor::from_bytes(t.dtype(), &[all.len() / width], all).unwrap().to_f64()
    };
    let (x, y) = (ends(x), ends(y));
    let most = y.iter().fold(1e-30f64, |m, v| m.max(v.abs()));
    let worse = |d: f64, (a, b): (&f64, &f64)| {
        if (a - b).is_nan() { f64::INFINITY } else { d.max((a - b).abs() / most) }
    };
    x.iter().zip(&y).fold(0.0, worse)
}

/// Compiles what chains need, on all cores: by chain and tactic.
fn compiled(chains: &[(Chain, Vec<Tactic>)], target: &Target) -> Vec<Vec<Vec<u8>>> {
    let jobs: Vec<(usize, usize)> =
        chains.iter().enumerate().flat_map(|(c, (_, t))| (0..t.len()).map(move |k| (c, k))).collect();
    let next = AtomicUsize::new(0);
    let mut out: Vec<Vec<Vec<u8>>> = chains.iter().map(|(_, t)| vec![Vec::new(); t.len()]).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let done: Vec<(usize, usize, Vec<u8>)> = std::thread::scope(|s| {
        let work = || {
            let mut found = Vec::new();
            while let Some(&(c, k)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (chain, tactics) = &chains[c];
                found.push((c, k, Cuda.compile(&chain.region(), &tactics[k], target).unwrap()));
            }
            found
        };
        let running: Vec<_> = (0..threads).map(|_| s.spawn(work)).collect();
        running.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    for (c, k, blob) in done {
        out[c][k] = blob;
    }
    out
}

#[test]
#[ignore = "a measurement"]
fn chains() {
    let shapes =
        std::env::var("KILN_FAMILY").unwrap_or_else(|_| panic!("KILN_FAMILY names a file of shapes"));
    let shapes = std::fs::read_to_string(shapes).unwrap();
    let target = Cuda.targets().unwrap().remove(0);
    let device = Cuda.open(&target).unwrap();
    let lines = shapes.lines().filter(|l| !l.trim().is_empty());
    let chains: Vec<(Chain, Vec<Tactic>)> = lines
        .map(|l| {
            let chain = Chain::of(l);
            let tactics = chain.tactics(&target);
            (chain, tactics)
        })
        .collect();
    let blobs = compiled(&chains, &target);
    for ((chain, tactics), blobs) in chains.iter().zip(&blobs) {
        let mut first: Option<Tensor> = None;
        for (t, blob) in tactics.iter().zip(blobs) {
            let (ns, y) = chain.time(&device, t, blob);
            let differs = first.as_ref().map_or(0.0, |f| apart(&y, f));
            first.get_or_insert(y);
            let (us, rate) = (ns / 1e3, chain.ops / ns / 1e3);
            let expected = t.estimate_ns.unwrap_or(0.0) / 1e3;
            println!(
                "{{\"shape\": \"{}\", \"by\": \"{}\", \"us\": {us:.3}, \"tera\": {rate:.1}, \"expected_us\": {expected:.2}, \
                 \"differs\": {differs:.1e}}}",
                chain.label, t.name
            );
        }
    }
}
