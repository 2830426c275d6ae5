//! Plans of one process share the weights of equal bytes, and refits on a thread of their own let runs go on.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::{Backend, BackendError, Device, Executable, Program, Region, Tactic, Target, TimeRequest};
use kiln_builder::{BuildConfig, Builder, Refit};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Tensor, TensorType};
use kiln_network::Network;
use kiln_plan::Plan;
use kiln_runtime::{Engine, LoadOptions};
use kiln_tests::backends::{cpu, cuda, wgpu};
use kiln_tests::driver::Driver;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

const ROWS: usize = 256;

fn plan(backend: &Arc<dyn Backend>, seed: u64) -> Plan {
    let mut net = Network::new("large");
    let x = net.add_input("x", TensorType::new(DType::F32, [2, ROWS as i64])).unwrap();
    let mut v = x;
    let mut rng = Rng::new(seed);
    for name in ["w1", "w2", "w3"] {
        let w = rng.tensor(DType::F32, &[ROWS, ROWS]);
        let w = net.add_weights(Some(name), w).unwrap();
        v = net.add_layer(&format!("by {name}"), "matmul", Attrs::new(), &[Some(v), Some(w)]).unwrap()[0];
    }
    net.mark_output(v, "y").unwrap();
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target.clone());
    builder.config =
        BuildConfig { estimates: true, search: false, refit: Refit::All, ..BuildConfig::default() };
    Plan::new(builder.build(&net).unwrap().program, Vec::new(), target)
}

fn addresses(program: &Program) -> Vec<*const u8> {
    program.weights().map(|(_, t)| t.bytes().as_ptr()).collect()
}

fn x() -> Tensor {
    Rng::new(2).tensor(DType::F32, &[2, ROWS])
}

fn run(engine: &Engine) -> Tensor {
    engine.create_context().unwrap().run(&[("x", x())]).unwrap().remove(0).1
}

/// Eight engines of one file have its weights in memory once, also where one of them is refitted; another file has its own.
#[test]
fn engines_of_one_plan_share_its_weights() {
    let backend = cpu();
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("a.kiln"), folder.path().join("b.kiln"));
    plan(&backend, 5).write_file(&path).unwrap();
    plan(&backend, 6).write_file(&other).unwrap();
    let first = Engine::from_plan(Plan::open(&path).unwrap(), backend.clone()).unwrap();
    let weights: u64 = first.program().weights().map(|(_, t)| t.bytes().len() as u64).sum();
    assert!(weights >= 3 * (ROWS * ROWS * 4) as u64);
    let left = kiln_ir::budget::left();
    let plans: Vec<Plan> = (0..7).map(|_| Plan::open(&path).unwrap()).collect();
    let taken = left.saturating_sub(kiln_ir::budget::left());
    assert!(taken < weights / 4, "seven more plans take {taken} bytes, the weights have {weights}");
    let engines: Vec<Engine> =
        plans.into_iter().map(|p| Engine::from_plan(p, backend.clone()).unwrap()).collect();
    let own = addresses(&first.program());
    assert!(engines.iter().all(|e| addresses(&e.program()) == own));
    let wanted = run(&first);
    let mut refitter = engines[0].refitter().unwrap();
    refitter.set("w2", Tensor::zeros(DType::F32, &[ROWS, ROWS]).unwrap()).unwrap();
    refitter.refit().unwrap();
    assert_ne!(run(&engines[0]), wanted);
    assert!(engines[1..].iter().all(|e| run(e) == wanted), "the others have their weights");
    let apart = Engine::from_plan(Plan::open(&other).unwrap(), backend.clone()).unwrap();
    assert!(addresses(&apart.program()).iter().all(|a| !own.contains(a)));
    assert_ne!(run(&apart), wanted);
    // Bytes in memory are shared as well, and gone weights are read again.
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(addresses(&Plan::read(bytes).unwrap().program), own);
    drop((first, engines));
    let again = Engine::from_plan(Plan::open(&path).unwrap(), backend).unwrap();
    assert_eq!(run(&again), wanted);
}

/// Engines on one CUDA device have equal weights there once. A refit of one puts new weights beside, and the others keep theirs. Bytes are
/// counted on the driver of tests, as others hand out memory in large pieces.
#[test]
fn engines_on_one_device_share_its_weights() {
    let Some(backend) = cuda().unwrap() else { return };
    let one = (ROWS * ROWS * 4) as u64;
    let device = backend.open(&backend.targets().unwrap().remove(0)).unwrap();
    let load = |seed: u64| Engine::from_plan(plan(&backend, seed), backend.clone()).unwrap();
    let counted = Driver::open().is_of_tests();
    let before = device.free_memory().unwrap();
    let taken = || before - device.free_memory().unwrap();
    let check = |bytes: u64, wanted: u64| {
        assert!(!counted || bytes.abs_diff(wanted) < one / 4, "{bytes} bytes are taken, wanted {wanted}");
    };
    let first = load(5);
    check(taken(), 3 * one);
    let engines: Vec<Engine> = (0..7).map(|_| load(5)).collect();
    check(taken(), 3 * one);
    let wanted = run(&first);
    assert!(engines.iter().all(|e| run(e) == wanted));
    // An engine of other weights has all of them beside.
    let apart = load(6);
    check(taken(), 6 * one);
    assert_ne!(run(&apart), wanted);
    drop(apart);
    // One weight of one engine is replaced, then it is that of before again.
    let old = Rng::new(5).tensor(DType::F32, &[ROWS, ROWS]);
    let mut refitter = engines[0].refitter().unwrap();
    for (tensor, more) in [(Tensor::zeros(DType::F32, &[ROWS, ROWS]).unwrap(), one), (old, 0)] {
        refitter.set("w1", tensor).unwrap();
        refitter.refit().unwrap();
        // Replaced weights go in the order of a stream, so that they may be there a while.
        if more > 0 {
            check(taken(), 3 * one + more);
        }
        assert_eq!(run(&engines[0]) == wanted, more == 0);
        assert!(engines[1..].iter().all(|e| run(e) == wanted), "the others have their weights");
    }
    drop((refitter, engines));
    check(taken(), 3 * one);
    assert_eq!(run(&first), wanted);
    drop(first);
    check(taken(), 0);
}

/// A device that reports how much memory it has.
struct Small(Arc<dyn Backend>, u64);

impl Backend for Small {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        let mut all = self.0.targets()?;
        all.iter_mut().for_each(|t| t.memory.total = self.1);
        Ok(all)
    }

    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        self.0.tactics(region, target)
    }

    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError> {
        self.0.compile(region, tactic, target)
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        self.0.open(target)
    }
}

#[test]
fn automatic_budgets_leave_room_for_a_context() {
    let Some(gpu) = wgpu().unwrap() else { return };
    let plan = plan(&gpu, 5);
    let mut automatic = LoadOptions::default();
    automatic.automatic_weight_budget = true;
    let load = |total: u64, options: &LoadOptions| {
        let backend: Arc<dyn Backend> = Arc::new(Small(gpu.clone(), total));
        Engine::from_plan_with(plan.clone(), backend, options).unwrap()
    };
    let roomy = load(1 << 30, &automatic);
    assert_eq!((roomy.weight_budget(), roomy.automatic_weight_budget()), (None, None));
    assert_eq!(load(0, &automatic).weight_budget(), None, "the device does not tell");
    let wanted = run(&roomy);
    let total = roomy.least_weight_budget() + roomy.context_memory() + 4096;
    let tight = load(total, &automatic);
    assert_eq!(tight.weight_budget(), Some(total - roomy.context_memory()));
    assert_eq!(run(&tight), wanted);
    assert_eq!(load(total, &LoadOptions::default()).weight_budget(), None, "nobody asked");
    assert_eq!(load(1, &automatic).weight_budget(), Some(roomy.least_weight_budget()));
}

/// A backend whose loads wait for permission, but the first.
struct Held(Arc<dyn Backend>, Arc<Mutex<Receiver<()>>>);

struct HeldDevice(Arc<dyn Device>, Arc<Mutex<Receiver<()>>>, Mutex<bool>);

impl Backend for Held {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        self.0.targets()
    }

    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        self.0.tactics(region, target)
    }

    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError> {
        self.0.compile(region, tactic, target)
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        Ok(Arc::new(HeldDevice(self.0.open(target)?, self.1.clone(), Mutex::new(false))))
    }
}

impl Device for HeldDevice {
    fn time(&self, request: &TimeRequest<'_>) -> Result<Vec<f64>, BackendError> {
        self.0.time(request)
    }

    fn load(&self, program: Arc<Program>) -> Result<Arc<dyn Executable>, BackendError> {
        if std::mem::replace(&mut *self.2.lock().unwrap(), true) {
            self.1.lock().unwrap().recv().unwrap();
        }
        self.0.load(program)
    }
}

#[test]
fn refits_return_before_they_are_done() {
    let (permit, wait): (Sender<()>, Receiver<()>) = channel();
    let backend: Arc<dyn Backend> = Arc::new(Held(cpu(), Arc::new(Mutex::new(wait))));
    let engine = Engine::from_plan(plan(&cpu(), 5), backend).unwrap();
    let mut context = engine.create_context().unwrap();
    let mut now = || context.run(&[("x", x())]).unwrap().remove(0).1;
    let before = now();
    let mut refitter = engine.refitter().unwrap();
    refitter.set("w1", Tensor::zeros(DType::F32, &[ROWS, ROWS]).unwrap()).unwrap();
    let task = refitter.refit_async().unwrap();
    assert!(!task.is_done(), "the device has not loaded the weights");
    assert_eq!(now(), before, "runs go on with the old weights");
    permit.send(()).unwrap();
    let (mut refitter, report) = task.wait().unwrap();
    assert_eq!(report.unwrap().replaced, 1);
    assert!(now().to_f64().iter().all(|&y| y == 0.0));
    // The task reports failures, and weights that were set stay set.
    refitter.set("w1", Tensor::zeros(DType::F32, &[ROWS, ROWS]).unwrap()).unwrap();
    drop(permit);
    let task = refitter.refit_async().unwrap();
    assert!(task.wait().is_err(), "the device panics");
    assert!(now().to_f64().iter().all(|&y| y == 0.0), "the engine is as before");
    let of_plan = kiln_runtime::Refitter::of_plan(plan(&cpu(), 5)).unwrap();
    assert!(of_plan.refit_async().unwrap_err().to_string().contains("call refit"));
}
