//! Loops of cells written with the network API become recurrent operators, whichever way they go through their tensors and put
//! together what they give.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend_cpu::Cpu;
use kiln_builder::BuildConfig;
use kiln_builder::passes::{self, PassCx, PassWork};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Graph, Tensor, TensorType};
use kiln_network::{LoopOutputKind, Network, TensorId, TripLimitKind};
use kiln_tests::filetests::near;

const STEPS: usize = 4;
const BATCH: usize = 2;
const SIZE: usize = 3;
const HIDDEN: usize = 5;

/// Direction of a loop, and the use of its states.
#[derive(Clone, Copy, Debug)]
struct Way {
    cell: &'static str,
    reverse: bool,
    axis: usize,
    kind: LoopOutputKind,
    out_axis: usize,
    /// The length of the output, or exactly as many as there are iterations.
    length: Option<i64>,
    /// Whether the products of the elements are computed for all of them before the loop.
    before: bool,
}

struct Body<'a> {
    net: &'a mut Network,
    rng: &'a mut Rng,
    /// Operands of the elements' products, gate by gate, where they are computed before the loop.
    given: Vec<TensorId>,
}

impl Body<'_> {
    fn op(&mut self, op: &str, attrs: Attrs, inputs: &[TensorId]) -> TensorId {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        self.net.add_layer(op, op, attrs, &inputs).unwrap()[0]
    }

    fn of(&mut self, op: &str, inputs: &[TensorId]) -> TensorId {
        self.op(op, Attrs::new(), inputs)
    }

    fn weight(&mut self, shape: &[usize]) -> TensorId {
        let t = self.rng.tensor_in(DType::F32, shape, -0.7, 0.7, 0);
        self.net.add_weights(None, t).unwrap()
    }

    /// A product with a matrix, by columns or by rows.
    fn product(&mut self, x: TensorId, depth: usize, width: usize) -> TensorId {
        match self.rng.int(0, 1) {
            0 => {
                let m = self.weight(&[depth, width]);
                self.of("matmul", &[x, m])
            }
            _ => {
                let m = self.weight(&[width, depth]);
                self.op("matmul", Attrs::new().with("trans_b", true), &[x, m])
            }
        }
    }

    /// x W + b, or what was computed before.
    fn given(&mut self, x: TensorId) -> TensorId {
        self.given.pop().unwrap_or_else(|| self.projected(x, HIDDEN))
    }

    fn projected(&mut self, x: TensorId, width: usize) -> TensorId {
        let (p, b) = (self.product(x, SIZE, width), self.weight(&[width]));
        self.of("add", &[p, b])
    }

    /// The columns of each gate.
    fn columns(&mut self, x: TensorId, gates: usize) -> Vec<TensorId> {
        let bounds = |k: usize| [k * HIDDEN, (k + 1) * HIDDEN, 1].map(|n| n as i64);
        let mut all = Vec::new();
        for k in 0..gates {
            let bounds = bounds(k).map(|n| Tensor::i64(&[1], &[n]).unwrap());
            let [from, to, axis] = bounds.map(|t| self.net.add_weights(None, t).unwrap());
            all.push(self.of("slice", &[x, from, to, axis]));
        }
        all
    }

    /// f(x W + b + h R).
    fn gate(&mut self, f: &str, x: TensorId, h: TensorId) -> TensorId {
        let (x, h) = (self.given(x), self.product(h, HIDDEN, HIDDEN));
        let sum = self.of("add", &[x, h]);
        self.of(f, &[sum])
    }

    /// The next values of what is carried.
    fn cell(&mut self, cell: &str, x: TensorId, old: &[TensorId]) -> Vec<TensorId> {
        let h = old[0];
        match cell {
            "lstm" => {
                let [i, f, o] = [0; 3].map(|_| self.gate("sigmoid", x, h));
                let g = self.gate("tanh", x, h);
                let (keep, add) = (self.of("mul", &[f, old[1]]), self.of("mul", &[i, g]));
                let c = self.of("add", &[keep, add]);
                let t = self.of("tanh", &[c]);
                vec![self.of("mul", &[o, t]), c]
            }
            "gru" | "gru reset first" => {
                let (z, r) = (self.gate("sigmoid", x, h), self.gate("sigmoid", x, h));
                let n = match cell {
                    "gru" => {
                        let (x, p, b) =
                            (self.given(x), self.product(h, HIDDEN, HIDDEN), self.weight(&[HIDDEN]));
                        let y = self.of("add", &[p, b]);
                        let y = self.of("mul", &[r, y]);
                        let sum = self.of("add", &[x, y]);
                        self.of("tanh", &[sum])
                    }
                    _ => {
                        let h = self.of("mul", &[r, h]);
                        self.gate("tanh", x, h)
                    }
                };
                let one = self.net.add_weights(None, Tensor::f32(&[], &[1.0]).unwrap()).unwrap();
                let rest = self.of("sub", &[one, z]);
                let (new, keep) = (self.of("mul", &[rest, n]), self.of("mul", &[z, h]));
                vec![self.of("add", &[new, keep])]
            }
            f => vec![self.gate(f, x, h)],
        }
    }
}

/// The operator that a cell is.
fn operator(cell: &str) -> &str {
    match cell {
        "lstm" => "lstm",
        "gru" | "gru reset first" => "gru",
        _ => "rnn",
    }
}

fn gates(cell: &str) -> usize {
    match operator(cell) {
        "lstm" => 4,
        "gru" => 3,
        _ => 1,
    }
}

fn looped(way: Way, rng: &mut Rng) -> Graph {
    let mut net = Network::new("loop");
    let shape = if way.axis == 0 { [STEPS, BATCH, SIZE] } else { [BATCH, STEPS, SIZE] };
    let x = net.add_input("x", TensorType::new(DType::F32, shape.map(|n| n as i64))).unwrap();
    let n = net.add_weights(None, Tensor::i64(&[], &[STEPS as i64]).unwrap()).unwrap();
    let states = if way.cell == "lstm" { 2 } else { 1 };
    let state = |net: &mut Network, k: usize| {
        net.add_input(&format!("h{k}"), TensorType::new(DType::F32, [BATCH, HIDDEN].map(|n| n as i64)))
            .unwrap()
    };
    let initial: Vec<_> = (0..states).map(|k| state(&mut net, k)).collect();
    let l = net.add_loop().unwrap();
    net.add_trip_limit(l, n, TripLimitKind::Count).unwrap();
    let each = net.add_iterator(l, x, way.axis, way.reverse).unwrap().output(0).unwrap();
    let (mut ids, mut old) = (Vec::new(), Vec::new());
    for h in initial {
        let r = net.add_recurrence(l, h).unwrap();
        ids.push(r.id());
        old.push(r.output(0).unwrap());
    }
    let mut body = Body { net: &mut net, rng, given: Vec::new() };
    let iterator = |body: &mut Body<'_>, width: usize| {
        let all = body.projected(x, width);
        body.net.add_iterator(l, all, way.axis, way.reverse).unwrap().output(0).unwrap()
    };
    body.given = match (way.before, body.rng.int(0, 1)) {
        (false, _) => Vec::new(),
        (true, 0) => (0..gates(way.cell)).map(|_| iterator(&mut body, HIDDEN)).collect(),
        (true, _) => {
            let all = iterator(&mut body, gates(way.cell) * HIDDEN);
            body.columns(all, gates(way.cell))
        }
    };
    let next = body.cell(way.cell, each, &old);
    for (id, v) in ids.iter().zip(&next) {
        net.set_input(*id, 1, *v).unwrap();
    }
    let out = net.add_loop_output(l, next[0], way.kind, way.out_axis).unwrap();
    let (out, all) = match way.length {
        None => {
            let out = out.set_exact_length().unwrap();
            (out.id(), out.output(0).unwrap())
        }
        Some(_) => (out.id(), out.output(0).unwrap()),
    };
    if let Some(n) = way.length {
        let n = net.add_weights(None, Tensor::i64(&[], &[n]).unwrap()).unwrap();
        net.set_input(out, 1, n).unwrap();
    }
    let last = net.add_loop_output(l, old[0], LoopOutputKind::LastValue, 0).unwrap().output(0).unwrap();
    net.mark_output(all, "all").unwrap();
    net.mark_output(last, "last").unwrap();
    net.lower().unwrap()
}

fn ways() -> Vec<Way> {
    use LoopOutputKind::{Concatenate, Reverse};
    let mut all = Vec::new();
    for cell in ["lstm", "gru", "gru reset first", "tanh", "relu"] {
        for k in 0..32 {
            let bit = |i: usize| k >> i & 1;
            let (reverse, axis) = (bit(0) == 1, bit(1));
            let (kind, out_axis) = (if bit(2) == 1 { Reverse } else { Concatenate }, bit(3) * 2);
            let length = (bit(4) == 1).then_some(STEPS as i64);
            all.push(Way { cell, reverse, axis, kind, out_axis, length, before: false });
        }
    }
    all
}

/// Applies the patterns, and compares; the graph that they give.
fn rewritten(g: &Graph, rng: &mut Rng, what: &str) -> Graph {
    let (backend, config, target) = (Cpu::new(), BuildConfig::default(), Cpu::target());
    let work = PassWork::new(&config);
    let cx = PassCx::new(&config, &backend, &target, &work);
    let mut after = g.clone();
    passes::run_one("patterns", &mut after, &cx).unwrap().unwrap();
    after.verify().unwrap();
    let shape = |&v: &kiln_ir::ValueId| g.ty(v).static_dims().unwrap();
    let inputs: Vec<Tensor> = g.inputs.iter().map(|v| rng.tensor(DType::F32, &shape(v))).collect();
    let (a, b) = (g.eval(&inputs).unwrap(), after.eval(&inputs).unwrap());
    assert_eq!(a.len(), 2);
    for (a, b) in a.iter().zip(&b) {
        near(a, b, 2e-5).unwrap_or_else(|e| panic!("{what}: {e}\n{}{}", g.to_text(), after.to_text()));
    }
    after
}

fn count(g: &Graph, op: &str) -> usize {
    g.nodes().filter(|(_, n)| n.op.name() == op).count()
}

#[test]
fn loops_of_cells_become_operators_whichever_way_they_go() {
    for (seed, way) in ways().into_iter().enumerate() {
        let (what, mut rng) = (format!("{way:?}"), Rng::new(seed as u64));
        let g = looped(way, &mut rng);
        assert_eq!(count(&g, "loop"), 1, "{what}");
        let after = rewritten(&g, &mut rng, &what);
        let found = (count(&after, "loop"), count(&after, operator(way.cell)));
        assert_eq!(found, (0, 1), "{what}\n{}{}", g.to_text(), after.to_text());
    }
}

#[test]
fn products_before_the_loop_are_found() {
    for (seed, way) in ways().into_iter().enumerate() {
        let (what, mut rng) = (format!("{way:?}"), Rng::new(seed as u64));
        let after = rewritten(&looped(Way { before: true, axis: 0, ..way }, &mut rng), &mut rng, &what);
        assert_eq!((count(&after, "loop"), count(&after, operator(way.cell))), (0, 1), "{what}");
        // Elements that lie along another axis are not looked through.
        rewritten(&looped(Way { before: true, axis: 1, ..way }, &mut rng), &mut rng, &what);
    }
}

/// An output that is longer than there are iterations ends in zeros, which no operator writes.
#[test]
fn longer_outputs_stay_loops() {
    for (seed, way) in ways().into_iter().filter(|w| w.length.is_some()).enumerate() {
        let (what, mut rng) = (format!("{way:?}"), Rng::new(seed as u64));
        let g = looped(Way { length: Some(STEPS as i64 + 2), ..way }, &mut rng);
        assert_eq!(count(&rewritten(&g, &mut rng, &what), "loop"), 1, "{what}");
    }
}
