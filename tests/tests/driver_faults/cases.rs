//! Cases on the driver of tests: each loads an engine and uses it in its own way.

use crate::fake::Fake;
use crate::faults::{Faults, Outputs};
use kiln_backend::{Backend, Program, Target, TimeRequest};
use kiln_builder::{BuildConfig, Builder, Refit};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Dim, Tensor, TensorType};
use kiln_network::{LoopOutputKind, Network, PluginSpec, TensorId, TripLimitKind};
use kiln_onnx::{ImportOptions, parse_file};
use kiln_runtime::{Engine, ExecutionContext, Profile, RuntimeError};
use kiln_tests::models::data;
use std::ffi::c_void;
use std::sync::Arc;

/// The backend on the driver of tests.
pub struct Cx {
    pub fake: Fake,
    pub backend: Arc<dyn Backend>,
    pub target: Target,
    /// Whether plans are built for other versions of the backend, too.
    pub version_compatible: bool,
}

/// An engine and what is done with it.
pub struct Case {
    pub name: &'static str,
    pub program: Program,
    profiles: Vec<Profile>,
    session: fn(&Case, &Cx, &mut Faults) -> Option<Vec<Outputs>>,
}

type Made = Result<Case, String>;

impl Case {
    /// Loads the engine, uses it and drops everything; all outputs. `None` once the device was lost.
    pub fn session(&self, cx: &Cx, faults: &mut Faults) -> Option<Vec<Outputs>> {
        (self.session)(self, cx, faults)
    }

    pub fn load(&self, cx: &Cx) -> Result<Engine, RuntimeError> {
        let (program, profiles) = (self.program.clone(), self.profiles.clone());
        Engine::on_target(program, profiles, cx.backend.as_ref(), cx.target.clone())
    }

    /// Reason why the host walks each of its layers, where the input "n" is 3.
    pub fn host_layers(&self, cx: &Cx) -> Vec<String> {
        let mut context = self.load(cx).unwrap().create_context().unwrap();
        flow_run(&mut context, 3).unwrap();
        context.host_layers().unwrap().into_iter().map(|l| l.why).collect()
    }

    /// Names of its steps, those of bodies too, and that of one that is timed alone.
    pub fn layers(&self) -> Vec<String> {
        fn of(p: &Program, to: &mut Vec<String>) {
            to.extend(p.steps.iter().map(|s| s.name.clone()));
            p.steps.iter().flat_map(|s| &s.bodies).for_each(|b| of(b, to));
        }
        let mut all = vec!["n0 + n1".to_owned()];
        of(&self.program, &mut all);
        all
    }
}

/// All cases; the reason where kernels cannot be compiled.
pub fn all(cx: &Cx) -> Result<Vec<Case>, String> {
    let made = [
        images,
        profiles,
        products,
        control,
        walked,
        on_device,
        moved,
        shared_memory,
        timed,
        plugins,
        branches,
    ];
    made.iter().map(|make| make(cx)).collect()
}

fn built(
    cx: &Cx,
    name: &'static str,
    net: &Network,
    profiles: Vec<Profile>,
    session: fn(&Case, &Cx, &mut Faults) -> Option<Vec<Outputs>>,
) -> Made {
    let mut builder = Builder::new(cx.backend.clone(), cx.target.clone());
    builder.config = BuildConfig {
        estimates: true,
        search: false,
        refit: Refit::All,
        profiles: profiles.clone(),
        version_compatible: cx.version_compatible,
        ..BuildConfig::default()
    };
    let program = builder.build(net).map_err(|e| format!("{name}: {e}"))?.program;
    Ok(Case { name, program, profiles, session })
}

fn counted(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    Tensor::f32(shape, &(0..n).map(|i| i as f32).collect::<Vec<_>>()).unwrap()
}

/// Cases whose plans hold launches for every shape, if they are built version-compatible.
pub fn of_varying_shapes(cx: &Cx) -> Result<Vec<Case>, String> {
    Ok(vec![images(cx)?, rows_of_any_number(cx)?])
}

/// Layers whose sizes vary by two symbols: views, products, reductions and softmax, at every shape.
fn rows_of_any_number(cx: &Cx) -> Made {
    let mut net = Network::new("attention");
    let dims = [Dim::host("batch"), Dim::host("length"), Dim::new(32)];
    let x = net.add_input("x", TensorType { dtype: DType::F16, dims: dims.to_vec() }).unwrap();
    let w = net.add_weights(Some("w"), halves(&[32, 32])).unwrap();
    let q = plain(&mut net, "q", "matmul", &[x, w]);
    let perm = Attrs::new().with("perm", vec![0i64, 2, 1]);
    let turned = net.add_layer("turned", "transpose", perm, &[Some(x)]).unwrap()[0];
    let scores = plain(&mut net, "scores", "matmul", &[q, turned]);
    let weights = plain(&mut net, "weights", "softmax", &[scores]);
    let mixed = plain(&mut net, "mixed", "matmul", &[weights, x]);
    let axes = net.add_constant(Tensor::i64(&[1], &[1]).unwrap()).unwrap().output(0).unwrap();
    let sum = Attrs::new().with("op", "sum");
    let y = net.add_layer("sum", "reduce", sum, &[Some(mixed), Some(axes)]).unwrap()[0];
    net.mark_output(y, "y").unwrap();
    let mut p = Profile::new();
    p.set_shape("x", &[1, 1, 32], &[2, 128, 32], &[3, 300, 32]).unwrap();
    built(cx, "attention", &net, vec![p], |case, cx, faults| {
        let engine = faults.twice(|| case.load(cx))?;
        let mut context = faults.twice(|| engine.create_context())?;
        let mut all = Vec::new();
        for (batch, length) in [(1, 1), (2, 128), (3, 300), (1, 77), (3, 129), (2, 256)] {
            all.push(faults.twice(|| context.run(&[("x", halves(&[batch, length, 32]))]))?);
        }
        Some(all)
    })
}

/// A convolutional network in two contexts and two profiles, of more batch sizes than have a graph of their own; refitted in
/// between.
fn images(cx: &Cx) -> Made {
    let net = parse_file(data("digits/lenet_a.onnx"), &ImportOptions::default())
        .map_err(|e| e.to_string())?
        .network;
    let profile = |min: i64, max: i64| {
        let mut p = Profile::new();
        p.set_shape("input", &[min, 1, 28, 28], &[max, 1, 28, 28], &[max, 1, 28, 28]).unwrap();
        p
    };
    built(cx, "images", &net, vec![profile(1, 3), profile(4, 6)], |case, cx, faults| {
        let engine = faults.twice(|| case.load(cx))?;
        let mut first = faults.twice(|| engine.create_context())?;
        let mut second = faults.twice(|| engine.create_context())?;
        let mut all = Vec::new();
        let run = |context: &mut ExecutionContext, batch: usize, faults: &mut Faults| {
            faults.twice(|| context.run(&[("input", counted(&[batch, 1, 28, 28]))]))
        };
        for batch in [6, 5, 4, 3, 2, 1, 6, 5, 4, 3, 2, 1] {
            all.push(run(&mut first, batch, faults)?);
        }
        all.push(run(&mut second, 3, faults)?);
        drop(second);
        let mut refitter = engine.refitter().unwrap();
        let w = refitter.weights().find(|w| w.fixed.is_none()).unwrap().clone();
        refitter.set(&w.name, Tensor::zeros(w.dtype, &w.shape).unwrap()).unwrap();
        faults.twice(|| refitter.refit())?;
        all.push(run(&mut first, 6, faults)?);
        // A run that nobody waits for, when the engine goes before its context.
        faults.twice(|| {
            first.set_input("input", counted(&[2, 1, 28, 28]))?;
            first.enqueue()
        })?;
        drop((refitter, engine));
        drop(first);
        Some(all)
    })
}

/// Branches in several streams, with weights that are copied beside them.
fn branches(cx: &Cx) -> Made {
    let mut builder = Builder::new(cx.backend.clone(), cx.target.clone());
    builder.config =
        BuildConfig { estimates: true, search: false, max_aux_streams: 2, ..BuildConfig::default() };
    let program = builder.build(&crate::streams::network()).map_err(|e| format!("branches: {e}"))?.program;
    let session = |case: &Case, cx: &Cx, faults: &mut Faults| {
        let engine = faults.twice(|| case.load(cx))?;
        let budget = engine.least_weight_budget().max(2 * 64 * 64 * 4);
        faults.twice(|| engine.set_weight_budget(Some(budget)))?;
        let mut context = faults.twice(|| engine.create_context())?;
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(faults.twice(|| context.run(&[("x", counted(&[64, 64]))]))?);
        }
        Some(all)
    };
    Ok(Case { name: "branches", program, profiles: Vec::new(), session })
}

/// A product of one row in one profile, and of thousands in the other, which have kernels of their own.
fn profiles(cx: &Cx) -> Made {
    let mut net = Network::new("profiles");
    let dims = [Dim::host("rows"), Dim::new(512)];
    let x = net.add_input("x", TensorType { dtype: DType::F16, dims: dims.to_vec() }).unwrap();
    let w = net.add_weights(Some("w"), halves(&[512, 512])).unwrap();
    let y = plain(&mut net, "y", "matmul", &[x, w]);
    net.mark_output(y, "y").unwrap();
    let profile = |min: i64, max: i64| {
        let mut p = Profile::new();
        p.set_shape("x", &[min, 512], &[max, 512], &[max, 512]).unwrap();
        p
    };
    built(cx, "profiles", &net, vec![profile(1, 1), profile(2, 2048)], |case, cx, faults| {
        let engine = faults.twice(|| case.load(cx))?;
        let mut context = faults.twice(|| engine.create_context())?;
        let mut all = Vec::new();
        for rows in [1, 2048, 1, 3] {
            all.push(faults.twice(|| context.run(&[("x", halves(&[rows, 512]))]))?);
        }
        Some(all)
    })
}

/// A plug-in layer by its kernel, then one that the host runs, with kernels around them.
fn plugins(cx: &Cx) -> Made {
    crate::plugins::layers();
    let mut net = Network::new("plugins");
    let x = net.add_input("x", TensorType::new(DType::F32, [4, 100])).unwrap();
    let a = plain(&mut net, "a", "exp", &[x]);
    let b = net.add_plugin(&[a], PluginSpec::new("faults", "Kernel")).unwrap().output(0).unwrap();
    let c = net.add_plugin(&[b], PluginSpec::new("faults", "Host")).unwrap().output(0).unwrap();
    let y = plain(&mut net, "y", "neg", &[c]);
    net.mark_output(y, "y").unwrap();
    built(cx, "plugins", &net, Vec::new(), |case, cx, faults| {
        let engine = faults.twice(|| case.load(cx))?;
        let mut context = faults.twice(|| engine.create_context())?;
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(faults.twice(|| context.run(&[("x", counted(&[4, 100]))]))?);
        }
        faults.twice(|| context.layer_times().map(drop))?;
        all.push(faults.twice(|| context.run(&[("x", counted(&[4, 100]))]))?);
        Some(all)
    })
}

fn plain(net: &mut Network, name: &str, op: &str, inputs: &[TensorId]) -> TensorId {
    let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
    net.add_layer(name, op, Attrs::new(), &inputs).unwrap()[0]
}

fn halves(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    Tensor::from_bytes(DType::F16, shape, [0x00, 0x38].repeat(n)).unwrap()
}

/// Products of f16 whose operands are copied by tensor maps, run often enough to become a graph.
fn products(cx: &Cx) -> Made {
    let mut net = Network::new("products");
    let x = net.add_input("x", TensorType::new(DType::F16, [256, 256])).unwrap();
    let mut last = x;
    for name in ["first", "second", "third"] {
        let w = net.add_weights(Some(&format!("{name}_w")), halves(&[256, 256])).unwrap();
        last = plain(&mut net, name, "matmul", &[last, w]);
    }
    let y = plain(&mut net, "rows", "softmax", &[last]);
    net.mark_output(y, "y").unwrap();
    built(cx, "products", &net, Vec::new(), |case, cx, faults| {
        let engine = faults.twice(|| case.load(cx))?;
        let mut context = faults.twice(|| engine.create_context())?;
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(faults.twice(|| context.run(&[("x", halves(&[256, 256]))]))?);
        }
        faults.twice(|| context.time_runs(2).map(drop))?;
        context.set_observable(true);
        faults.twice(|| context.run(&[("x", halves(&[256, 256]))]).map(drop))?;
        let seen = faults.twice(|| context.observe("x").map(|t| vec![("x".to_owned(), t)]))?;
        assert_eq!(seen[0].1, halves(&[256, 256]), "an input is copied up and back");
        all.push(seen.into_iter().collect());
        faults.twice(|| context.layer_times().map(drop))?;
        all.push(faults.twice(|| context.run(&[("x", halves(&[256, 256]))]))?);
        faults.twice(|| context.layer_times().map(drop))?;
        Some(all)
    })
}

/// x through a loop of as many iterations as an input says, with a weight in the body, then through one of two branches. With
/// `places` the host has to know how many elements are not zero, and walks the loop, too.
fn flow(places: bool) -> Network {
    let mut net = Network::new("flow");
    let x = net.add_input("x", TensorType::new(DType::F32, [4, 4])).unwrap();
    let n = net.add_input("n", TensorType::new(DType::I64, [0; 0])).unwrap();
    let c = net.add_input("c", TensorType::new(DType::Bool, [0; 0])).unwrap();
    let w = net.add_weights(Some("w"), Tensor::f32(&[4, 4], &[0.5; 16]).unwrap()).unwrap();
    let l = net.add_loop().unwrap();
    net.add_trip_limit(l, n, TripLimitKind::Count).unwrap();
    let r = net.add_recurrence(l, x).unwrap();
    let (id, value) = (r.id(), r.output(0).unwrap());
    let product = plain(&mut net, "product", "matmul", &[value, w]);
    let next = plain(&mut net, "bounded", "tanh", &[product]);
    net.set_input(id, 1, next).unwrap();
    let y = net.add_loop_output(l, value, LoopOutputKind::LastValue, 0).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    if places {
        let stacked = net.add_loop_output(l, next, LoopOutputKind::Concatenate, 1).unwrap();
        let (id, all) = (stacked.id(), stacked.output(0).unwrap());
        net.set_input(id, 1, n).unwrap();
        net.mark_output(all, "all").unwrap();
    }
    let of = net.add_if_conditional().unwrap();
    net.set_condition(of, c).unwrap();
    let inside = net.add_if_input(of, y).unwrap().output(0).unwrap();
    let (a, b) = (plain(&mut net, "a", "exp", &[inside]), plain(&mut net, "b", "neg", &[inside]));
    let z = net.add_if_output(of, a, b).unwrap().output(0).unwrap();
    net.mark_output(z, "z").unwrap();
    let perm = Attrs::new().with("perm", vec![1i64, 0]);
    let turned = net.add_layer("turned", "transpose", perm, &[Some(x)]).unwrap()[0];
    net.mark_output(turned, "turned").unwrap();
    if places {
        let found = plain(&mut net, "places", "nonzero", &[z]);
        net.mark_output(found, "found").unwrap();
    }
    net
}

fn flow_run(context: &mut ExecutionContext, iterations: i64) -> Result<Outputs, RuntimeError> {
    let c = Tensor::from_bytes(DType::Bool, &[], vec![1]).unwrap();
    context.run(&[("x", counted(&[4, 4])), ("n", Tensor::i64(&[], &[iterations]).unwrap()), ("c", c)])
}

fn flow_session(case: &Case, cx: &Cx, faults: &mut Faults, iterations: i64) -> Option<Vec<Outputs>> {
    let engine = faults.twice(|| case.load(cx))?;
    let mut context = faults.twice(|| engine.create_context())?;
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(faults.twice(|| flow_run(&mut context, iterations))?);
    }
    let mut refitter = engine.refitter().unwrap();
    refitter.set("w", Tensor::f32(&[4, 4], &[0.25; 16]).unwrap()).unwrap();
    faults.twice(|| refitter.refit())?;
    for iterations in [iterations, iterations, 0] {
        all.push(faults.twice(|| flow_run(&mut context, iterations))?);
    }
    Some(all)
}

/// Graph nodes of a loop with more iterations than are unrolled.
fn control(cx: &Cx) -> Made {
    built(cx, "control", &flow(false), Vec::new(), |case, cx, faults| flow_session(case, cx, faults, 1000))
}

/// The host walks the loop and reads how many elements there are.
fn walked(cx: &Cx) -> Made {
    built(cx, "walked", &flow(true), Vec::new(), |case, cx, faults| {
        let all = flow_session(case, cx, faults, 3)?;
        assert_eq!(
            all[5][0].1,
            counted(&[4, 4]),
            "no iteration: the input, as copies of the driver brought it"
        );
        Some(all)
    })
}

/// Two layers that are kernels of their own.
fn rows() -> Network {
    let mut net = Network::new("rows");
    let x = net.add_input("x", TensorType::new(DType::F32, [8, 8])).unwrap();
    let y = plain(&mut net, "rows", "softmax", &[x]);
    let z = plain(&mut net, "next", "exp", &[y]);
    net.mark_output(z, "z").unwrap();
    net
}

/// A user's stream, memory and event.
fn on_device(cx: &Cx) -> Made {
    built(cx, "on_device", &rows(), Vec::new(), |case, cx, faults| {
        cx.fake.with_native(8 * 8 * 4, |native| {
            let at = |i: usize| native.memory[i] as usize as *mut c_void;
            let x = [("x", counted(&[8, 8]))];
            let engine = faults.twice(|| case.load(cx))?;
            let mut context = faults.twice(|| engine.create_context())?;
            let mut all = vec![faults.twice(|| context.run(&x))?];
            // SAFETY: the stream, the event and the memory outlive the context.
            unsafe {
                faults.twice(|| context.set_stream(native.stream))?;
                faults.twice(|| context.set_consumed_event(native.event))?;
                faults.twice(|| context.bind("x", at(0), 256))?;
                faults.twice(|| context.bind("z", at(1), 256))?;
            }
            context.set_input_shape("x", &[8, 8]).unwrap();
            for _ in 0..3 {
                faults.twice(|| {
                    context.enqueue()?;
                    context.wait_consumed()?;
                    context.wait()
                })?;
            }
            all.push(faults.twice(|| {
                context.enqueue()?;
                context.outputs()
            })?);
            // SAFETY: null gives them up.
            unsafe {
                faults.twice(|| context.bind("x", std::ptr::null_mut(), 0))?;
                faults.twice(|| context.bind("z", std::ptr::null_mut(), 0))?;
                faults.twice(|| context.set_consumed_event(std::ptr::null_mut()))?;
                faults.twice(|| context.set_stream(std::ptr::null_mut()))?;
            }
            all.push(faults.twice(|| context.run(&x))?);
            faults.twice(|| context.keep_on_device())?;
            all.push(faults.twice(|| {
                context.enqueue()?;
                context.outputs()
            })?);
            Some(all)
        })
    })
}

/// Products in a row. The one in the middle adds the input, so that a kernel far from both ends has an address of the caller's.
fn far_from_the_ends() -> Network {
    let mut net = Network::new("moved");
    let x = net.add_input("x", TensorType::new(DType::F32, [64, 64])).unwrap();
    let mut rng = Rng::new(9);
    let mut y = x;
    for i in 0..11 {
        let w = rng.tensor_in(DType::F32, &[64, 64], -0.2, 0.2, 1);
        let w = net.add_weights(Some(&format!("w{i}")), w).unwrap();
        y = net.add_layer(&format!("product{i}"), "matmul", Attrs::new(), &[Some(y), Some(w)]).unwrap()[0];
        if i == 5 {
            y = net.add_layer("sum", "add", Attrs::new(), &[Some(y), Some(x)]).unwrap()[0];
        }
    }
    net.mark_output(y, "y").unwrap();
    net
}

/// Memory of a user's that is elsewhere in each run.
fn moved(cx: &Cx) -> Made {
    built(cx, "moved", &far_from_the_ends(), Vec::new(), |case, cx, faults| {
        let bytes = 64 * 64 * 4u64;
        cx.fake.with_native(6 * bytes as usize, |native| {
            let at = |i: usize, set: usize| (native.memory[i] + bytes * set as u64) as usize as *mut c_void;
            let engine = faults.twice(|| case.load(cx))?;
            let mut context = faults.twice(|| engine.create_context())?;
            context.set_input_shape("x", &[64, 64]).unwrap();
            // Four sets of addresses have graphs; nodes are set from the second change of a graph on.
            for set in (0..6).cycle().take(12) {
                // SAFETY: the memory outlives the context.
                unsafe {
                    faults.twice(|| context.bind("x", at(0, set), bytes))?;
                    faults.twice(|| context.bind("y", at(1, 5 - set), bytes))?;
                }
                faults.twice(|| {
                    context.enqueue()?;
                    context.wait()
                })?;
            }
            Some(vec![faults.twice(|| {
                context.enqueue()?;
                context.outputs()
            })?])
        })
    })
}

/// Two contexts that run one after the other in the same memory of a user's.
fn shared_memory(cx: &Cx) -> Made {
    built(cx, "shared_memory", &rows(), Vec::new(), |case, cx, faults| {
        cx.fake.with_native(1 << 12, |native| {
            let memory = native.memory[0] as usize as *mut c_void;
            let x = [("x", counted(&[8, 8]))];
            let engine = faults.twice(|| case.load(cx))?;
            let mut all = Vec::new();
            let mut contexts = Vec::new();
            for _ in 0..2 {
                let mut context = faults.twice(|| engine.create_context_without_memory())?;
                // SAFETY: the memory outlives the context, and runs are waited for.
                faults.twice(|| unsafe { context.set_memory(memory, 1 << 12) })?;
                all.push(faults.twice(|| context.run(&x))?);
                contexts.push(context);
            }
            // SAFETY: as above; a stream of the user's makes the context's other memory anew, not this.
            faults.twice(|| unsafe { contexts[0].set_stream(native.stream) })?;
            all.push(faults.twice(|| contexts[0].run(&x))?);
            Some(all)
        })
    })
}

/// Builds by times that the driver of tests makes up, then times a layer of the result and runs it through the backend alone.
fn timed(cx: &Cx) -> Made {
    cx.fake.start(-1, 0);
    let mut builder = Builder::new(cx.backend.clone(), cx.target.clone());
    builder.config = BuildConfig { samples: 2, max_tactics: 2, ..BuildConfig::default() };
    let program = builder.build(&rows()).map_err(|e| format!("timed: {e}"))?.program;
    drop(builder);
    assert_eq!((cx.fake.misuse(), cx.fake.alive()), (String::new(), String::new()));
    assert!(cx.fake.trace().iter().any(|call| call == "cuEventElapsedTime"), "nothing was timed");
    Ok(Case {
        name: "timed",
        program,
        profiles: Vec::new(),
        session: |case, cx, faults| {
            let wrap = |source| RuntimeError::Backend { backend: "cuda".into(), source };
            let step = &case.program.steps[0];
            let graph = case.program.region(step).unwrap().graph;
            let inputs: Vec<Tensor> = graph.inputs.iter().map(|&v| graph.ty(v)).map(zeros).collect();
            let request = TimeRequest {
                graph: &graph,
                tactic: &step.tactic,
                blob: step.blob.as_slice(),
                inputs: &inputs,
                samples: 3,
            };
            let device = faults.twice(|| cx.backend.open(&cx.target).map_err(wrap))?;
            let times = faults.twice(|| device.time(&request).map_err(wrap))?;
            assert_eq!(times, [500_000.0; 3]);
            // A run that nobody waits for, whose context is the last to go.
            let program = Arc::new(case.program.clone());
            let x = [counted(&[8, 8])];
            let shapes = Arc::new(program.shapes(&x).unwrap());
            let made = || device.load(program.clone())?.context();
            let mut context = faults.twice(|| made().map_err(wrap))?;
            faults.twice(|| context.enqueue(&x, &shapes).map_err(wrap))?;
            drop(device);
            drop(context);
            Some(Vec::new())
        },
    })
}

fn zeros(ty: &TensorType) -> Tensor {
    Tensor::zeros(ty.dtype, &ty.static_dims().unwrap()).unwrap()
}
