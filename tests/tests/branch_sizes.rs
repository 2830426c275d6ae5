//! Conditionals whose branches give other sizes: results and shapes as the oracle has them, on every backend; on CUDA without a
//! wait of the host.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::{Backend, Bound, Program};
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Dim, Fact, Graph, Op, Tensor, TensorType, ValueId};
use kiln_runtime::{Engine, ExecutionContext, Profile};
use kiln_tests::backends;
use kiln_tests::models::difference;
use std::sync::Arc;

fn truth(b: bool) -> Tensor {
    Tensor::from_bytes(DType::Bool, &[], vec![u8::from(b)]).unwrap()
}

/// Writes graphs of rank 2 whose sizes differ.
struct Writer {
    rng: Rng,
    names: usize,
}

impl Writer {
    fn name(&mut self) -> String {
        self.names += 1;
        format!("v{}", self.names)
    }

    fn add(&mut self, g: &mut Graph, op: &str, attrs: Attrs, inputs: &[ValueId]) -> ValueId {
        g.add(&self.name(), Op::new(op, attrs).unwrap(), inputs).unwrap()
    }

    fn ints(&mut self, g: &mut Graph, v: &[i64]) -> ValueId {
        g.add_constant(&self.name(), Tensor::i64(&[v.len()], v).unwrap())
    }

    /// Some rows of a tensor, perhaps none.
    fn rows(&mut self, g: &mut Graph, t: ValueId) -> ValueId {
        let from = self.rng.int(0, 2);
        let to = from + self.rng.int(0, 3);
        let [from, to, axis] = [from, to, 0].map(|n| self.ints(g, &[n]));
        self.add(g, "slice", Attrs::new(), &[t, from, to, axis])
    }

    fn layer(&mut self, g: &mut Graph, t: ValueId) -> ValueId {
        match self.rng.int(0, 6) {
            0 => self.add(g, "tanh", Attrs::new(), &[t]),
            1 | 2 => self.rows(g, t),
            3 => {
                let axis = self.rng.int(0, 1);
                self.add(g, "concat", Attrs::new().with("axis", axis), &[t, t])
            }
            4 => self.add(g, "transpose", Attrs::new().with("perm", vec![1i64, 0]), &[t]),
            5 => {
                let rows = self.rng.int(0, 4) as usize;
                let all = self.rng.tensor(DType::F32, &[rows, 2]);
                g.add_constant(&self.name(), all)
            }
            _ => {
                let axes = self.ints(g, &[0]);
                self.add(g, "reduce", Attrs::new().with("op", "sum"), &[t, axes])
            }
        }
    }

    /// The input itself, a weight, or what some layers make of it.
    fn value(&mut self, g: &mut Graph, x: ValueId) -> ValueId {
        (0..self.rng.int(0, 3)).fold(x, |t, _| self.layer(g, t))
    }

    /// A branch that reads x and the other condition. It yields a matrix, one as a list, and a list of
    /// numbers.
    fn branch(&mut self, x: &Fact, deep: bool) -> Graph {
        let mut g = Graph::new(&self.name());
        let (x, d) =
            (g.add_input("x", x.clone()), g.add_input("d", Fact::of(TensorType::scalar(DType::Bool))));
        let t = self.value(&mut g, x);
        let matrix = if deep && self.rng.int(0, 1) == 0 {
            let fact = g.value(t).fact.clone();
            let both = [(); 2].map(|()| self.branch(&fact, false));
            self.choice(&mut g, [d, t, d], both.into())[0]
        } else {
            t
        };
        let flat = self.ints(&mut g, &[-1]);
        let list = self.add(&mut g, "reshape", Attrs::new(), &[t, flat]);
        let n = self.rng.int(0, 3);
        let numbers = self.ints(&mut g, &(0..n).map(|k| 7 * k - n).collect::<Vec<_>>());
        g.outputs = vec![matrix, list, numbers];
        g
    }

    /// A conditional on the first value; the branches read the others.
    fn choice(&mut self, g: &mut Graph, [c, x, d]: [ValueId; 3], branches: Vec<Graph>) -> Vec<ValueId> {
        let op = Op::new("if", Attrs::new().with("then_captures", 2i64)).unwrap();
        let names: Vec<String> = (0..3).map(|_| self.name()).collect();
        g.add_control(&self.name(), op, &[c, x, d, x, d], branches, &names).unwrap()
    }
}

fn random(seed: u64) -> Graph {
    let mut w = Writer { rng: Rng::new(seed), names: 0 };
    let mut g = Graph::new("choices");
    let x = Fact::of(TensorType::new(DType::F32, [Dim::host("n"), Dim::new(3)]));
    let bit = || Fact::of(TensorType::scalar(DType::Bool));
    let (x, c, d) = (g.add_input("x", x), g.add_input("c", bit()), g.add_input("d", bit()));
    // The conditional reads what layers have made.
    let not = w.add(&mut g, "not", Attrs::new(), &[c]);
    let y = w.add(&mut g, "neg", Attrs::new(), &[x]);
    let fact = g.value(y).fact.clone();
    let branches = vec![w.branch(&fact, true), w.branch(&fact, true)];
    g.outputs = w.choice(&mut g, [not, y, d], branches);
    g.outputs.push(y);
    g
}

fn engine(g: &Graph, backend: &Arc<dyn Backend>) -> Engine {
    let mut profile = Profile::new();
    profile.set_shape("x", &[1, 3], &[4, 3], &[6, 3]).unwrap();
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target.clone());
    let profiles = vec![profile.clone()];
    builder.config = BuildConfig { estimates: true, search: false, profiles, ..BuildConfig::default() };
    let built = builder.build_graph(g.clone(), &mut |_, _, _| true).unwrap();
    Engine::on_target(built.program, vec![profile], backend.as_ref(), target).unwrap()
}

fn set(context: &mut ExecutionContext, inputs: &[Tensor]) {
    for (name, t) in ["x", "c", "d"].iter().zip(inputs) {
        context.set_input(name, t.clone()).unwrap();
    }
}

fn same(found: &[(String, Tensor)], wanted: &[Tensor], what: &str) {
    assert_eq!(found.len(), wanted.len());
    for (i, ((_, f), w)) in found.iter().zip(wanted).enumerate() {
        assert_eq!(f.ty(), w.ty(), "{what}, output {i}");
        assert!(difference(f, w) <= 1e-5, "{what}, output {i}: {:?} for {:?}", f.elems(), w.elems());
    }
}

fn programs(backend: &Arc<dyn Backend>, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let g = random(seed);
        let mut context = engine(&g, backend).create_context().unwrap();
        let mut rng = Rng::new(seed + 1000);
        for run in 0..10 {
            let rows = rng.pick(&[4, 6, 1]).unwrap();
            let bits = [rng.int(0, 1) == 0, rng.int(0, 1) == 0];
            let inputs = [rng.tensor(DType::F32, &[rows, 3]), truth(bits[0]), truth(bits[1])];
            set(&mut context, &inputs);
            // Sizes that the run before leaves open are not asked for.
            (0..=run % 2).for_each(|_| context.enqueue().unwrap());
            let what = format!("{}, seed {seed}, run {run}, {rows} rows, {bits:?}", backend.name());
            same(&context.outputs().unwrap(), &g.eval(&inputs).unwrap(), &what);
        }
        let waits = context.counters().backend.host_syncs;
        assert!(backend.name() != "cuda" || waits == 0, "seed {seed}: the host waited {waits} times");
    }
}

#[test]
fn random_branches_on_cpu() {
    programs(&backends::cpu(), 0..60);
}

#[test]
fn random_branches_on_wgpu() {
    backends::wgpu().unwrap().iter().for_each(|b| programs(b, 0..8));
}

#[test]
fn random_branches_on_cuda() {
    backends::cuda().unwrap().iter().for_each(|b| programs(b, 0..24));
}

/// Two rows of x, or all five.
fn two_or_five() -> Graph {
    let mut w = Writer { rng: Rng::new(1), names: 0 };
    let mut g = Graph::new("two or five");
    let x = Fact::of(TensorType::new(DType::F32, [5i64, 3]));
    let (given, c) =
        (g.add_input("x", x.clone()), g.add_input("c", Fact::of(TensorType::scalar(DType::Bool))));
    let branches = [true, false].map(|few| {
        let mut b = Graph::new(&w.name());
        let x = b.add_input("x", x.clone());
        let [from, to, axis] = [0, 2, 0].map(|n| w.ints(&mut b, &[n]));
        b.outputs = vec![if few { w.add(&mut b, "slice", Attrs::new(), &[x, from, to, axis]) } else { x }];
        b
    });
    let op = Op::new("if", Attrs::new().with("then_captures", 1i64)).unwrap();
    g.outputs = g.add_control("if", op, &[c, given, given], branches.into(), &["y".into()]).unwrap();
    g
}

/// Memory of the caller's has to hold the branch that is taken; the context's own holds both.
#[test]
fn bound_memory_that_is_too_small_is_refused_on_cuda() {
    let Some(backend) = backends::cuda().unwrap() else { return };
    let target = backend.targets().unwrap().remove(0);
    let g = two_or_five();
    let built = Builder::new(backend.clone(), target.clone()).build_graph(g.clone(), &mut |_, _, _| true);
    let program = Arc::new(built.unwrap().program);
    let inputs = |c: bool| [Rng::new(2).tensor(DType::F32, &[5, 3]), truth(c)];
    let shapes = Arc::new(Program::shapes(&program, &inputs(true)).unwrap());
    let mut cx = backend.open(&target).unwrap().load(program).unwrap().context().unwrap();
    let run = |cx: &mut Box<dyn kiln_backend::Context>, c: bool| {
        cx.enqueue(&inputs(c), &shapes).map_err(|e| e.to_string())?;
        let found = cx.outputs().unwrap();
        assert_eq!(found, g.eval(&inputs(c)).unwrap());
        Ok::<(), String>(())
    };
    run(&mut cx, true).unwrap();
    let (at, bytes) = cx.require_native().unwrap().address(Bound::Output(0)).unwrap();
    assert_eq!(bytes, 60, "as much as either branch needs");
    for (room, large) in [(60, true), (24, false), (59, false), (60, true)] {
        // SAFETY: the context's own memory, which has 60 bytes.
        unsafe { cx.require_native().unwrap().bind(Bound::Output(0), at, room) }.unwrap();
        run(&mut cx, true).unwrap();
        match run(&mut cx, false) {
            Ok(()) => assert!(large, "{room} bytes"),
            Err(e) => assert!(!large && e.contains("60 bytes") && e.contains(&room.to_string()), "{e}"),
        }
    }
    // SAFETY: null is always allowed.
    unsafe { cx.require_native().unwrap().bind(Bound::Output(0), std::ptr::null_mut(), 0) }.unwrap();
    run(&mut cx, false).unwrap();
    run(&mut cx, true).unwrap();
}

/// Values can be looked at, and steps timed, between runs that leave sizes open.
fn watched(backend: &Arc<dyn Backend>) {
    let g = two_or_five();
    let target = backend.targets().unwrap().remove(0);
    let built = Builder::new(backend.clone(), target.clone()).build_graph(g.clone(), &mut |_, _, _| true);
    let e = Engine::on_target(built.unwrap().program, Vec::new(), backend.as_ref(), target).unwrap();
    let mut context = e.create_context().unwrap();
    let x = Rng::new(3).tensor(DType::F32, &[5, 3]);
    for run in 0..12 {
        let inputs = [x.clone(), truth(run % 2 == 0)];
        let wanted = g.eval(&inputs).unwrap();
        let kept = run >= 3;
        context.set_observable(kept);
        set(&mut context, &inputs);
        context.enqueue().unwrap();
        // The size is found whether outputs or values are asked for first.
        if kept && run % 3 == 0 {
            assert_eq!(context.observe("y").unwrap(), wanted[0], "run {run}");
        }
        same(&context.outputs().unwrap(), &wanted, &format!("{}, run {run}", backend.name()));
        if kept {
            assert_eq!(context.observe("y").unwrap(), wanted[0], "run {run}");
        }
        if run >= 8 {
            let times = context.layer_times().unwrap();
            assert!(run == 8 || times.iter().any(|t| t.name.starts_with("if")), "{times:?}");
        }
    }
}

#[test]
fn values_are_observed_and_steps_timed() {
    watched(&backends::cpu());
}

#[test]
fn values_are_observed_and_steps_timed_on_cuda() {
    backends::cuda().unwrap().iter().for_each(watched);
}
