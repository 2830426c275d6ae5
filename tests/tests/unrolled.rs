//! A backend that has several ways to run a loop is asked for the times of the whole, which decide from then on.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::{
    Backend, BackendError, Context, Counters, Device, Executable, Program, Region, Shapes, StepTime, Tactic,
    Target, TimeRequest, flow,
};
use kiln_builder::cache::TimingCache;
use kiln_builder::{BuildConfig, BuildError, Builder, Built, StepReport};
use kiln_ir::{Attrs, DType, Tensor, TensorType, ValueId};
use kiln_network::{LoopOutputKind, Network, TensorId, TripLimitKind};
use kiln_plan::Plan;
use kiln_runtime::Engine;
use kiln_tests::backends::{cpu, cpu_or_oracle, cuda};
use std::sync::Arc;

/// The CPU backend, which runs counted loops "written out" or not, as fast as it is told: nanoseconds of each limit in the order of
/// [`LIMITS`]; none cannot be timed.
#[derive(Clone, Copy)]
struct Several([Option<f64>; 3]);

const LIMITS: [i64; 3] = [64, 0, 512];

impl Backend for Several {
    fn name(&self) -> &str {
        "cpu"
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        cpu().targets()
    }

    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        let all = cpu_or_oracle().tactics(region, target)?;
        let with = |most| Tactic::plain(flow::INTERPRETED).with(flow::UNROLLED, most);
        Ok(flow::iterations(region).map_or(all, |_| LIMITS.map(with).to_vec()))
    }

    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError> {
        cpu().compile(region, tactic, target)
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        Ok(Arc::new(Clocked(*self, cpu().open(target)?)))
    }
}

/// A device, executable or context that reports the times it is given.
struct Clocked<T: ?Sized>(Several, T);

impl Device for Clocked<Arc<dyn Device>> {
    fn time(&self, request: &TimeRequest<'_>) -> Result<Vec<f64>, BackendError> {
        self.1.time(request)
    }

    fn load(&self, program: Arc<Program>) -> Result<Arc<dyn Executable>, BackendError> {
        let limit = program.steps.first().and_then(|s| s.tactic.params.get(flow::UNROLLED).copied());
        assert!(program.steps.len() == 1 && limit.is_some(), "only steps of loops are loaded here");
        assert!(!program.steps[0].bodies.is_empty(), "the bodies are built");
        let at = LIMITS.iter().position(|l| Some(*l) == limit).unwrap();
        let only = Several([self.0.0[at]; 3]);
        Ok(Arc::new(Clocked(only, self.1.load(program)?)))
    }
}

impl Executable for Clocked<Arc<dyn Executable>> {
    fn context(&self) -> Result<Box<dyn Context>, BackendError> {
        Ok(Box::new(Clocked(self.0, self.1.context()?)))
    }
}

impl Context for Clocked<Box<dyn Context>> {
    fn enqueue(&mut self, inputs: &[Tensor], shapes: &Arc<Shapes>) -> Result<(), BackendError> {
        self.1.enqueue(inputs, shapes)
    }

    fn outputs(&mut self) -> Result<Vec<Tensor>, BackendError> {
        self.1.outputs()
    }

    fn observe(&mut self, value: ValueId) -> Result<Tensor, BackendError> {
        self.1.observe(value)
    }

    fn set_observable(&mut self, on: bool) {
        self.1.set_observable(on);
    }

    fn step_times(&mut self) -> Result<Vec<StepTime>, BackendError> {
        self.1.step_times()
    }

    fn time_runs(&mut self, runs: u32) -> Result<Vec<f64>, BackendError> {
        let ns = self.0.0[0].ok_or_else(|| BackendError::Unsupported("no clock".into()))?;
        Ok(vec![ns; runs as usize])
    }

    fn counters(&self) -> Counters {
        self.1.counters()
    }
}

/// Value of x after a loop of n iterations.
fn looped(
    net: &mut Network,
    name: &str,
    n: TensorId,
    x: TensorId,
    next: impl FnOnce(&mut Network, TensorId) -> TensorId,
) -> TensorId {
    let l = net.add_loop().unwrap();
    net.set_loop_name(l, name).unwrap();
    net.add_trip_limit(l, n, TripLimitKind::Count).unwrap();
    let r = net.add_recurrence(l, x).unwrap();
    let (id, value) = (r.id(), r.output(0).unwrap());
    let next = next(net, value);
    net.set_input(id, 1, next).unwrap();
    net.add_loop_output(l, value, LoopOutputKind::LastValue, 0).unwrap().output(0).unwrap()
}

/// A sum or product with a weight, so many times.
fn net(iterations: i64, op: &str) -> Network {
    let mut net = Network::new("counted");
    let x = net.add_input("x", TensorType::new(DType::F32, [4, 4])).unwrap();
    let n = net.add_weights(None, Tensor::i64(&[], &[iterations]).unwrap()).unwrap();
    let w = net.add_weights(Some("w"), Tensor::f32(&[4, 4], &[0.25; 16]).unwrap()).unwrap();
    let last = looped(&mut net, "loop", n, x, |net, value| {
        net.add_layer("next", op, Attrs::new(), &[Some(value), Some(w)]).unwrap()[0]
    });
    net.mark_output(last, "y").unwrap();
    net
}

/// Two nested loops, the inner one of so many iterations or, without a number, as many as an input says.
fn nested(inner: Option<i64>) -> Network {
    let mut net = Network::new("nested");
    let x = net.add_input("x", TensorType::new(DType::F32, [4, 4])).unwrap();
    let asked = net.add_input("n", TensorType::new(DType::I64, [0; 0])).unwrap();
    let number = |net: &mut Network, n| net.add_weights(None, Tensor::i64(&[], &[n]).unwrap()).unwrap();
    let iterations = inner.map_or(asked, |n| number(&mut net, n));
    let five = number(&mut net, 5);
    let last = looped(&mut net, "loop", five, x, |net, value| {
        looped(net, "inner", iterations, value, |net, value| {
            net.add_layer("next", "add", Attrs::new(), &[Some(value), Some(x)]).unwrap()[0]
        })
    });
    net.mark_output(last, "y").unwrap();
    net
}

fn build(
    backend: Arc<dyn Backend>,
    cache: TimingCache,
    config: BuildConfig,
    net: &Network,
) -> (Result<Built, BuildError>, TimingCache) {
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend, target);
    builder.config = BuildConfig { samples: 2, ..config };
    builder.cache = cache;
    let built = builder.build(net);
    (built, builder.cache)
}

fn locked() -> BuildConfig {
    BuildConfig { locked: true, ..BuildConfig::default() }
}

/// The tactic of the loop, as the plan and as the report have it.
fn of_loop(b: &Built) -> (String, StepReport) {
    let step = b.program.steps.iter().find(|s| !s.bodies.is_empty()).unwrap();
    (step.tactic.id(), b.steps.iter().find(|s| s.name == step.name).unwrap().clone())
}

fn bytes(b: Built) -> Vec<u8> {
    Plan::new(b.program, Vec::new(), cpu().targets().unwrap().remove(0)).write().unwrap().to_vec()
}

#[test]
fn the_faster_way_is_recorded_and_found_in_the_cache_again() {
    let cases = [
        ([5.0, 3.0, 4.0], 0, 3.0),
        ([2.0, 3.0, 4.0], 64, 2.0),
        ([9.0, 8.0, 7.0], 512, 7.0),
        // The first stays where others gain less than 2 %.
        ([100.0, 99.0, 98.5], 64, 100.0),
    ];
    for (times, wanted, ns) in cases {
        let backend = || Arc::new(Several(times.map(Some))) as Arc<dyn Backend>;
        let net = net(7, "matmul");
        let (cold, cache) = build(backend(), TimingCache::new(), BuildConfig::default(), &net);
        let cold = cold.unwrap();
        let (taken, report) = of_loop(&cold);
        assert_eq!(taken, format!("interpreted(unrolled={wanted})"));
        assert_eq!((&report.tactic, report.candidates), (&taken, 3));
        assert_eq!(report.ns, Some(ns));
        assert!(report.key.is_some_and(|k| cache.get(&k).is_some()) && cold.timed >= 3);
        let kept = TimingCache::from_text(&cache.to_text()).unwrap();
        // Whatever the device would say now.
        let other = Arc::new(Several([None; 3]));
        let (warm, after) = build(other, kept, locked(), &net);
        let warm = warm.unwrap();
        assert_eq!((warm.timed, of_loop(&warm).0), (0, taken));
        assert!(after == cache && bytes(warm) == bytes(cold), "a warm build gives the same");
    }
}

#[test]
fn what_was_not_timed_is_a_miss_or_left_to_the_backend() {
    let backend = || Arc::new(Several([Some(3.0), Some(2.0), Some(1.0)])) as Arc<dyn Backend>;
    let untimed = BuildConfig { estimates: true, ..BuildConfig::default() };
    let (built, cache) = build(backend(), TimingCache::new(), untimed, &net(7, "matmul"));
    let (taken, report) = of_loop(&built.unwrap());
    assert_eq!((&*taken, report.ns, report.key), ("interpreted(unrolled=64)", None, None));
    assert!(cache.is_empty());
    let (_, cache) = build(backend(), cache, BuildConfig::default(), &net(7, "add"));
    // Another number of iterations, and another body, are others.
    for other in [net(8, "add"), net(7, "mul")] {
        let (refused, _) = build(backend(), cache.clone(), locked(), &other);
        let refused = refused.map(drop).unwrap_err();
        assert!(matches!(&refused, BuildError::CacheMiss { .. }), "{refused}");
    }
    assert!(build(backend(), cache, locked(), &net(7, "add")).0.is_ok());
}

/// Choices inside decide on the time of the whole.
#[test]
fn times_are_those_of_the_kernels_inside() {
    let backend = || Arc::new(Several([Some(3.0), Some(2.0), Some(1.0)])) as Arc<dyn Backend>;
    let (_, cache) = build(backend(), TimingCache::new(), BuildConfig::default(), &net(7, "matmul"));
    let key = |favourite: &str| {
        let mut swapped = TimingCache::new();
        for (key, entry) in cache.iter() {
            let mut entry = entry.clone();
            let walked = entry.candidates.keys().all(|id| id.starts_with(flow::INTERPRETED));
            let time = |id: &str| if id.contains(favourite) { 1.0 } else { 2.0 };
            let others = entry.candidates.iter_mut().filter(|_| !walked);
            others.for_each(|(id, c)| c.samples = vec![time(id); 2]);
            swapped.insert(key, entry);
        }
        let built = build(backend(), swapped, BuildConfig::default(), &net(7, "matmul")).0.unwrap();
        of_loop(&built).1.key.unwrap()
    };
    assert_ne!(key("fast"), key("oracle"));
}

#[test]
fn a_loop_that_cannot_be_timed_keeps_the_first_way() {
    let backend = || Arc::new(Several([None; 3])) as Arc<dyn Backend>;
    let (built, cache) = build(backend(), TimingCache::new(), BuildConfig::default(), &net(7, "matmul"));
    let cold = built.unwrap();
    assert_eq!(of_loop(&cold).0, "interpreted(unrolled=64)");
    let (warm, _) = build(backend(), cache.clone(), locked(), &net(7, "matmul"));
    assert!(bytes(warm.unwrap()) == bytes(cold), "that it cannot be timed is known");
    // One that can be timed one way is run that way.
    let one = Arc::new(Several([None, Some(9.0), None]));
    let (built, _) = build(one, TimingCache::new(), BuildConfig::default(), &net(7, "matmul"));
    assert_eq!(of_loop(&built.unwrap()).0, "interpreted(unrolled=0)");
}

/// Iterations that random numbers decide on may be without end.
#[test]
fn loops_around_others_are_timed_if_these_are_counted() {
    let backend = || Arc::new(Several([Some(3.0), Some(2.0), Some(1.0)])) as Arc<dyn Backend>;
    let built = |inner| {
        let (built, _) = build(backend(), TimingCache::new(), BuildConfig::default(), &nested(inner));
        built.unwrap()
    };
    let tactics = |b: &Built| {
        let walked = b.steps.iter().filter(|s| s.tactic.starts_with(flow::INTERPRETED));
        walked.map(|s| (s.tactic.clone(), s.key.is_some())).collect::<Vec<_>>()
    };
    let fastest = || ("interpreted(unrolled=512)".to_owned(), true);
    assert_eq!(tactics(&built(Some(3))), [fastest(), fastest()]);
    let untimed = [("interpreted(unrolled=64)".to_owned(), false), ("interpreted".to_owned(), false)];
    assert_eq!(tactics(&built(None)), untimed);
}

/// On CUDA, where there is a device: whichever way was taken, it is right, and stays taken.
#[test]
fn loops_are_timed_on_cuda() {
    let Some(backend) = cuda().unwrap() else { return };
    let target = backend.targets().unwrap().remove(0);
    let x = Tensor::f32(&[4, 4], &[0.5; 16]).unwrap();
    for iterations in [8, 64, 300, 700] {
        let net = net(iterations, "add");
        let (cold, cache) = build(backend.clone(), TimingCache::new(), BuildConfig::default(), &net);
        let cold = cold.unwrap();
        let (taken, report) = of_loop(&cold);
        let entry = cache.get(&report.key.unwrap()).unwrap();
        let times: Vec<String> =
            entry.candidates.iter().map(|(id, c)| format!("{id}: {:.1} us", c.median() / 1e3)).collect();
        eprintln!("{iterations} iterations: {taken} of {}", times.join(", "));
        assert_eq!(entry.candidates.len(), if iterations <= 320 { 3 } else { 2 });
        assert!(entry.candidates.values().all(|c| c.median() > 0.0 && c.median().is_finite()), "{entry:?}");
        let (warm, _) = build(backend.clone(), cache, locked(), &net);
        let warm = warm.unwrap();
        assert_eq!((of_loop(&warm).0, warm.timed), (taken, 0));
        let program = warm.program.clone();
        assert!(bytes(warm) == bytes(cold), "a warm build gives the same");
        let engine = Engine::on_target(program, Vec::new(), backend.as_ref(), target.clone()).unwrap();
        let y = engine.create_context().unwrap().run(&[("x", x.clone())]).unwrap().remove(0).1;
        let wanted = 0.5 + 0.25 * iterations as f64;
        assert!(y.to_f64().iter().all(|y| (y - wanted).abs() < 1e-3), "{iterations} iterations: {y:?}");
    }
}
