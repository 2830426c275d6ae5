//! Weights of several engines on one device: those of equal contents are uploaded once, and a refit uploads what it replaces.

use crate::cases::Cx;
use crate::fake::library;
use crate::{open, with_driver};
use kiln_builder::{BuildConfig, Builder, Refit};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Tensor, TensorType};
use kiln_network::Network;
use kiln_plan::Plan;
use kiln_runtime::Engine;

/// Rows and columns of a weight, of which each has a buffer of its own.
const SIZE: usize = 256;

/// Products by weights that these seeds draw.
fn plan(cx: &Cx, seeds: [u64; 3]) -> Option<Plan> {
    let mut net = Network::new("products");
    let mut y = net.add_input("x", TensorType::new(DType::F32, [4, SIZE as i64])).unwrap();
    for (i, seed) in seeds.into_iter().enumerate() {
        let w = Rng::new(seed).tensor_in(DType::F32, &[SIZE, SIZE], -1.0, 1.0, 1);
        let w = net.add_weights(Some(&format!("w{i}")), w).unwrap();
        y = net.add_layer(&format!("by w{i}"), "matmul", Attrs::new(), &[Some(y), Some(w)]).unwrap()[0];
    }
    net.mark_output(y, "y").unwrap();
    let mut builder = Builder::new(cx.backend.clone(), cx.target.clone());
    builder.config =
        BuildConfig { estimates: true, search: false, refit: Refit::All, ..BuildConfig::default() };
    match builder.build(&net) {
        Ok(built) => Some(Plan::new(built.program, Vec::new(), cx.target.clone())),
        Err(e) if e.to_string().contains("NVRTC") && std::env::var_os("KILN_REQUIRE_NVRTC").is_none() => {
            println!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn equal_weights_are_uploaded_once() {
    with_driver("weights::shared", &library(), &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn shared() {
    let Some(cx) = open() else { return };
    let (Some(same), Some(part)) = (plan(&cx, [1, 2, 3]), plan(&cx, [1, 2, 4])) else { return };
    cx.fake.start(-1, 0);
    let load = |plan: &Plan| Engine::from_plan(plan.clone(), cx.backend.clone()).unwrap();
    // Buffers and uploads of what `f` does.
    let count = |f: &mut dyn FnMut()| {
        let from = cx.fake.trace().len();
        f();
        let calls = cx.fake.trace().split_off(from);
        let of = |name: &str| calls.iter().filter(|c| c.starts_with(name)).count();
        (of("cuMemAlloc"), of("cuMemcpyHtoD"))
    };
    let mut engines = Vec::new();
    let mut loaded = |plan: &Plan| count(&mut || engines.push(load(plan)));
    assert_eq!([loaded(&same), loaded(&same)], [(3, 3), (0, 0)]);
    assert_eq!(loaded(&part), (1, 1), "two of three are there");
    let mut refitter = engines[1].refitter().unwrap();
    let mut refitted = |seed: u64| {
        let w = Rng::new(seed).tensor_in(DType::F32, &[SIZE, SIZE], -1.0, 1.0, 1);
        refitter.set("w1", w).unwrap();
        count(&mut || drop(refitter.refit().unwrap()))
    };
    assert_eq!([refitted(9), refitted(2)], [(1, 1), (0, 0)], "a new weight, and that of the others");
    // Weights stay as long as one engine uses them.
    drop(refitter);
    engines.remove(0);
    assert_eq!(count(&mut || drop(load(&same))), (0, 0));
    engines.clear();
    assert_eq!(count(&mut || drop(load(&same))), (3, 3));
    let x = Tensor::zeros(DType::F32, &[4, SIZE]).unwrap();
    let engine = load(&same);
    engine.create_context().unwrap().run(&[("x", x)]).unwrap();
    drop(engine);
    assert_eq!((cx.fake.misuse(), cx.fake.alive()), (String::new(), String::new()));
}
