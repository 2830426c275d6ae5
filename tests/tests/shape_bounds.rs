//! Bounds of memory over profiles: random programs of shape arithmetic at random shapes of their profile never need more than
//! was planned, and never are "outside the profile". `KILN_BOUNDS` (programs, 400) and `KILN_BOUNDS_SEED` (1) say how many and
//! which.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use kiln_backend::{Backend, Place, Program};
use kiln_backend_cpu::Cpu;
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Dim, Fact, Graph, Op, Tensor, TensorType, ValueId};
use kiln_runtime::{Engine, Profile};
use kiln_tests::backends;
use std::sync::Arc;

/// Sizes beyond this are not run.
const MOST: i64 = 4000;

/// Contents beyond this could overflow in what follows.
const FAR: i64 = 1 << 40;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// A program over two vectors whose lengths a profile lets vary.
struct Sample {
    graph: Graph,
    /// Integers that it computes with, and those that become sizes.
    pool: Vec<ValueId>,
    sizes: Vec<ValueId>,
    ends: [[i64; 2]; 2],
}

struct Writer {
    rng: Rng,
    g: Graph,
    names: usize,
}

impl Writer {
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.int(0, of.len() as i64 - 1) as usize]
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("v{}", self.names)
    }

    fn ints(&mut self, v: &[i64]) -> ValueId {
        let name = self.name();
        self.g.add_constant(&name, Tensor::i64(&[v.len()], v).unwrap())
    }

    fn add(&mut self, op: &str, attrs: Attrs, inputs: &[ValueId]) -> Option<ValueId> {
        let name = self.name();
        self.g.add(&name, Op::new(op, attrs).unwrap(), inputs).ok()
    }

    fn slice(&mut self, x: ValueId, from: ValueId, to: ValueId, axis: i64) -> Option<ValueId> {
        let axis = self.ints(&[axis]);
        self.add("slice", Attrs::new(), &[x, from, to, axis])
    }

    fn sizes_of(&mut self, x: ValueId, axis: i64) -> Option<ValueId> {
        let shape = self.add("shape", Attrs::new(), &[x])?;
        let (from, to) = (self.ints(&[axis]), self.ints(&[axis + 1]));
        self.slice(shape, from, to, 0)
    }

    /// One more integer made of those there are.
    fn step(&mut self, pool: &[ValueId]) -> Option<ValueId> {
        let ops = ["add", "sub", "mul", "div", "floor_div", "mod", "min", "max"];
        let op = self.pick(&ops);
        let (a, b) = (self.pick(pool), self.pick(pool));
        self.add(op, Attrs::new(), &[a, b])
    }
}

fn sample(seed: u64) -> Option<Sample> {
    let mut w = Writer { rng: Rng::new(seed), g: Graph::new("shapes"), names: 0 };
    let mut inputs = Vec::new();
    for name in ["x", "y"] {
        let ty = TensorType { dtype: DType::F32, dims: vec![Dim::host(name)] };
        inputs.push(w.g.add_input(name, Fact::of(ty)));
    }
    let mut pool: Vec<ValueId> = inputs.iter().map(|&x| w.sizes_of(x, 0)).collect::<Option<_>>()?;
    for _ in 0..2 {
        let n = w.pick(&[0, 1, 2, 3, 5, 7, 17, 100, 1000, -1, -4]);
        pool.push(w.ints(&[n]));
    }
    if w.rng.int(0, 2) == 0 {
        let found = w.add("nonzero", Attrs::new(), &[inputs[0]])?;
        let n = w.sizes_of(found, 1)?;
        pool.push(n);
    }
    for _ in 0..w.rng.int(1, 6) {
        let next = w.step(&pool)?;
        pool.push(next);
    }
    let mut sizes = Vec::new();
    let mut wide = w.pick(&inputs);
    for _ in 0..w.rng.int(1, 3) {
        let n = w.pick(&pool[2..]);
        wide = match w.rng.int(0, 3) {
            0 => {
                let to = w.pick(&pool);
                w.slice(wide, n, to, 0)?
            }
            1 => w.add("concat", Attrs::new().with("axis", 0i64), &[wide, inputs[0]])?,
            _ => {
                sizes.push(n);
                let name = w.name();
                let one = w.g.add_constant(&name, Tensor::f32(&[1], &[1.5]).unwrap());
                let more = w.add("expand", Attrs::new(), &[one, n])?;
                let more = w.add("neg", Attrs::new(), &[more])?;
                w.add("concat", Attrs::new().with("axis", 0i64), &[wide, more])?
            }
        };
        wide = w.add("tanh", Attrs::new(), &[wide])?;
    }
    w.g.outputs = vec![wide];
    let mut end = || {
        let (a, b) = (w.rng.int(0, 60), w.rng.int(0, 60));
        [a.min(b), a.max(b)]
    };
    let ends = [end(), end()];
    Some(Sample { graph: w.g, pool, sizes, ends })
}

impl Sample {
    fn profile(&self) -> Profile {
        let mut p = Profile::new();
        for (name, [min, max]) in ["x", "y"].into_iter().zip(self.ends) {
            p.set_shape(name, &[min], &[(min + max) / 2], &[max]).unwrap();
        }
        p
    }

    /// Inputs of a shape in the profile, a third of their elements zero; `None` where the program is not valid there.
    fn inputs(&self, rng: &mut Rng) -> Option<(Vec<Tensor>, Tensor)> {
        let mut vector = |[min, max]: [i64; 2]| {
            let n = rng.int(min, max) as usize;
            let v: Vec<f32> = (0..n).map(|_| rng.int(0, 2) as f32).collect();
            Tensor::f32(&[n], &v).unwrap()
        };
        let inputs: Vec<Tensor> = self.ends.into_iter().map(&mut vector).collect();
        let mut numbers = self.graph.clone();
        numbers.outputs = [&self.pool[..], &self.sizes].concat();
        numbers.remove_dead();
        let all = numbers.eval(&inputs).ok()?;
        let small = |t: &Tensor, most: i64| t.to_i64().iter().all(|n| n.abs() <= most);
        let (pool, sizes) = all.split_at(self.pool.len());
        let valid = pool.iter().all(|t| small(t, FAR))
            && sizes.iter().all(|t| small(t, MOST) && t.to_i64().iter().all(|&n| n >= 0));
        let wanted = self.graph.eval(&inputs).ok().filter(|_| valid)?.remove(0);
        Some((inputs, wanted))
    }

    /// The program and its profile; `None` if the usual shapes are not valid.
    fn build(&self, backend: &Arc<dyn Backend>) -> Option<(Program, Profile, kiln_backend::Target)> {
        let target = backend.targets().unwrap().remove(0);
        let mut b = Builder::new(backend.clone(), target.clone());
        let profiles = vec![self.profile()];
        b.config = BuildConfig { profiles, estimates: true, search: false, ..BuildConfig::default() };
        let built = b.build_graph(self.graph.clone(), &mut |_, _, _| true).ok()?;
        Some((built.program, self.profile(), target))
    }
}

/// Whether every planned place holds its value at these inputs; the first that does not, in words.
fn overrun(p: &Program, inputs: &[Tensor]) -> Option<String> {
    let mut g = p.graph.clone();
    let planned = |v: &ValueId| matches!(p.memory.places[v.0 as usize], Place::Arena { .. });
    g.outputs = g.value_ids().filter(planned).collect();
    let values = g.eval(inputs).unwrap_or_else(|e| panic!("valid before passes: {e}"));
    g.outputs.iter().zip(values).find_map(|(&v, t)| {
        let Place::Arena { size, .. } = p.memory.places[v.0 as usize] else { return None };
        let bytes = t.bytes().len() as u64;
        (bytes > size).then(|| format!("{} has {bytes} bytes, {size} were planned", g.value(v).name))
    })
}

#[test]
fn planned_places_hold_every_shape_of_the_profile() {
    let backend: Arc<dyn Backend> = Arc::new(Cpu::new());
    let (first, programs) = (number("KILN_BOUNDS_SEED", 1), number("KILN_BOUNDS", 400));
    println!("seeds {first} to {}", first + programs - 1);
    let (mut runs, mut planned, mut dynamic) = (0, 0, 0);
    for seed in first..first + programs {
        let Some(s) = sample(seed) else { continue };
        let Some((p, ..)) = s.build(&backend) else { continue };
        let places = |of: fn(&Place) -> bool| p.memory.places.iter().filter(|x| of(x)).count();
        planned += places(|p| matches!(p, Place::Arena { .. }));
        dynamic += places(|p| matches!(p, Place::Dynamic));
        let mut rng = Rng::new(seed ^ 0x5eed);
        for _ in 0..6 {
            let Some((inputs, _)) = s.inputs(&mut rng) else { continue };
            runs += 1;
            if let Some(found) = overrun(&p, &inputs) {
                panic!("seed {seed}: {found}\n{}", s.graph.to_text());
            }
        }
    }
    println!("{runs} runs; {planned} values planned, {dynamic} dynamic");
    assert!(
        runs as u64 >= programs && planned > 4 * dynamic,
        "{runs} runs, {planned} planned, {dynamic} dynamic"
    );
}

fn runs_on(backend: &Arc<dyn Backend>, programs: u64) {
    let first = number("KILN_BOUNDS_SEED", 1) + 1_000_000;
    println!("{}: seeds {first} to {}", backend.name(), first + programs - 1);
    let mut runs = 0;
    for seed in first..first + programs {
        let Some(s) = sample(seed) else { continue };
        let Some((p, profile, target)) = s.build(backend) else { continue };
        let engine = Engine::on_target(p, vec![profile], backend.as_ref(), target).unwrap();
        let mut context = engine.create_context().unwrap();
        let mut rng = Rng::new(seed);
        for _ in 0..4 {
            let Some((inputs, wanted)) = s.inputs(&mut rng) else { continue };
            let given = [("x", inputs[0].clone()), ("y", inputs[1].clone())];
            let found = context.run(&given).unwrap_or_else(|e| {
                panic!("{} refuses a valid run, seed {seed}: {e}\n{}", backend.name(), s.graph.to_text())
            });
            let found = &found[0].1;
            let (name, text) = (backend.name(), s.graph.to_text());
            let at: Vec<_> = inputs.iter().map(|x| x.shape().to_vec()).collect();
            assert_eq!(found.shape(), wanted.shape(), "{name}, seed {seed}, inputs {at:?}\n{text}");
            let off =
                found.to_f64().iter().zip(wanted.to_f64()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(off < 1e-5, "{name}, seed {seed}: off by {off}\n{text}");
            runs += 1;
        }
    }
    println!("{}: {runs} runs", backend.name());
    assert!(runs as u64 >= programs / 2, "{runs} runs of {programs} programs");
}

#[test]
fn valid_runs_inside_the_profile_never_fail() {
    for backend in backends::all().unwrap().iter() {
        let programs = number("KILN_BOUNDS", 400);
        runs_on(backend, if backend.name() == "cpu" { programs / 2 } else { programs / 20 });
    }
}

/// A program in text with the profile of `n` and `m`, run at shapes that the ends of the profile say nothing of.
fn named(text: &str, ends: [[i64; 2]; 2], at: [usize; 2], nonzero: usize, wanted: usize) {
    for backend in backends::all().unwrap().iter() {
        let graph = Graph::from_text(text).unwrap_or_else(|e| panic!("{e}"));
        let s = Sample { graph, pool: vec![], sizes: vec![], ends };
        let (p, profile, target) = s.build(backend).unwrap();
        let engine = Engine::on_target(p, vec![profile], backend.as_ref(), target).unwrap();
        let mut context = engine.create_context().unwrap();
        let ones = |n: usize| {
            let v: Vec<f32> = (0..n).map(|i| f32::from(u8::from(i < nonzero))).collect();
            Tensor::f32(&[n], &v).unwrap()
        };
        let found = context.run(&[("x", ones(at[0])), ("y", ones(at[1]))]);
        let found = found.unwrap_or_else(|e| panic!("{}: {e}", backend.name()));
        assert_eq!(found[0].1.shape(), [wanted], "{}", backend.name());
    }
}

const HEAD: &str = "graph \"g\" { input %x: f32[n] input %y: f32[m] weight %one: f32[1] = [1.5]
    weight %k17: i64[1] = [17] weight %k1000: i64[1] = [1000] weight %i0: i64[1] = [0] weight %i1: i64[1] = [1]
    weight %i2: i64[1] = [2] %sx = shape(%x) %sy = shape(%y) ";

#[test]
fn sizes_that_are_largest_inside_the_profile_run() {
    let tail = "%e = expand(%one, %s) %z = neg(%e) output %z }";
    let range = [[10, 50], [10, 50]];
    named(&format!("{HEAD} %s = sub(%sx, %sy) {tail}"), range, [50, 10], 0, 40);
    named(&format!("{HEAD} %s = mod(%sx, %k17) {tail}"), [[17, 34], [1, 1]], [33, 1], 0, 16);
    let count = "%f = nonzero(%x) %sf = shape(%f) %c = slice(%sf, %i1, %i2, %i0) %s = div(%k1000, %c)";
    named(&format!("{HEAD} {count} {tail}"), [[1, 20], [1, 1]], [20, 1], 2, 500);
}

/// A view of more elements than there can be: the engine is built, and every run is refused at the view.
#[test]
fn views_that_never_fit_are_refused_when_run() {
    let text = "graph \"g\" { input %x: f32[3] weight %k: i64[1] = [64] %f = nonzero(%x) %v = reshape(%f, %k) %z = neg(%v) output %z }";
    for backend in backends::all().unwrap().iter() {
        let target = backend.targets().unwrap().remove(0);
        let mut b = Builder::new(backend.clone(), target.clone());
        b.config = BuildConfig { estimates: true, search: false, ..BuildConfig::default() };
        let built = b.build_graph(Graph::from_text(text).unwrap(), &mut |_, _, _| true).unwrap();
        let engine = Engine::on_target(built.program, vec![], backend.as_ref(), target);
        let mut context =
            engine.unwrap_or_else(|e| panic!("{}: {e}", backend.name())).create_context().unwrap();
        let refused = context.run(&[("x", Tensor::f32(&[3], &[1.0; 3]).unwrap())]).unwrap_err().to_string();
        assert!(refused.contains("64"), "{}: {refused}", backend.name());
    }
}

/// Quotients by sizes that may be 0, and of differences that may be negative, where they become sizes.
#[test]
fn quotients_of_sizes_are_those_of_the_operators() {
    let tail = "%e = expand(%one, %s) %z = neg(%e) output %z }";
    let same = format!("{HEAD} %q = floor_div(%sx, %sy) %s = floor_div(%q, %q) {tail}");
    named(&same, [[0, 50], [1, 50]], [10, 20], 0, 0);
    named(&same, [[0, 50], [1, 50]], [20, 20], 0, 1);
    let below = format!("{HEAD} %d = sub(%sx, %sy) %q = div(%d, %i2) %s = add(%q, %k17) {tail}");
    named(&below, [[0, 50], [1, 50]], [10, 15], 0, 15);
    named(&below, [[0, 50], [1, 50]], [15, 10], 0, 19);
}
