//! Plans with plug-in layers.

use crate::devices::{built, devices};
use crate::examples::{boxes, net_of, reference};
use crate::{example, row_norm};
use kiln_backend::Backend;
use kiln_ir::{Attrs, Fact, Graph, Op, Tensor};
use kiln_network::PluginSpec;
use kiln_plan::{Plan, PlanError, Profile};
use kiln_runtime::plugin::{PluginError, Policy, embed, load_embedded};
use kiln_runtime::{Engine, RuntimeError};
use std::sync::Arc;

fn plan(backend: &Arc<dyn Backend>, spec: PluginSpec, inputs: &[Tensor]) -> Plan {
    let built = built(backend, &net_of(spec, inputs));
    Plan::new(built.program, Vec::<Profile>::new(), backend.targets().unwrap().remove(0))
}

#[test]
fn a_plan_names_its_libraries() {
    let digest = example("nms")[0].library.digest.clone();
    let bytes = plan(&reference(), PluginSpec::new("example", "BestBoxes"), &boxes()).write().unwrap();
    let read = Plan::read(bytes).unwrap();
    let [r] = &read.header.plugins[..] else { panic!("{:?}", read.header.plugins) };
    assert_eq!((&*r.name, &*r.version, &r.digest, r.called), ("nms", "1.0.0", &digest, true));
    assert_eq!(r.layers, ["\"example::BestBoxes\", version 1"]);
    let engine = Engine::from_plan(read, reference()).unwrap();
    let named = boxes().into_iter().zip(["x0", "x1"]).map(|(t, n)| (n, t)).collect::<Vec<_>>();
    let out = engine.create_context().unwrap().run(&named).unwrap();
    assert_eq!(out.get("y1").unwrap().to_i64(), [1, 2]);
}

/// Expressions and compiled kernels are in the plan: it names their libraries, and runs do not call them.
#[test]
fn compiled_layers_need_no_library() {
    example("swish");
    row_norm();
    let x = crate::examples::f32s(&[2, 3], &[1.0; 6]);
    let swish = plan(&reference(), PluginSpec::new("example", "Swish"), std::slice::from_ref(&x));
    assert!(!swish.header.plugins[0].called && swish.header.plugins[0].name == "swish");
    for b in devices() {
        let inputs = [x.clone(), crate::examples::f32s(&[3], &[1.0; 3])];
        let norm = plan(&b, PluginSpec::new("example", "RowNorm"), &inputs);
        assert!(!norm.header.plugins[0].called, "{:?}", norm.header.plugins);
    }
}

/// The plan with an attribute of its layer changed, as one that was built elsewhere has it.
fn elsewhere(plan: &Plan, change: impl Fn(&Attrs) -> Attrs) -> Plan {
    let old = &plan.program.graph;
    let mut g = Graph::new(&old.name);
    let input = |g: &mut Graph, v| g.add_input(&old.value(v).name, Fact::of(old.ty(v).clone()));
    let inputs: Vec<_> = old.inputs.iter().map(|&v| Some(input(&mut g, v))).collect();
    let node = old.nodes().next().unwrap().1;
    let op = Op::new("plugin", change(node.op.attrs())).unwrap();
    g.outputs = g.add_node(&node.name, op, &inputs).unwrap();
    let mut program = plan.program.clone();
    program.graph = g;
    Plan::new(program, Vec::new(), plan.header.target.clone())
}

#[test]
fn another_library_is_refused() {
    example("nms");
    let own = plan(&reference(), PluginSpec::new("example", "BestBoxes"), &boxes());
    for (name, value, says) in [
        ("plugin", "WorstBoxes", "no library here has it"),
        ("version", "2", "there is version 1 of the layer"),
        ("library", "nms 2.0.0 ", "from the library \"nms\" 2.0.0; loaded is \"nms\" 1.0.0"),
        (
            "library",
            "nms 1.0.0 0123456789abcdef0123",
            "(hash 0123456789abcdef…); loaded is \"nms\" 1.0.0 (hash ",
        ),
    ] {
        let other = elsewhere(&own, |a| a.clone().with(name, value));
        let e = Engine::from_plan(other, reference()).map(drop).unwrap_err();
        assert!(matches!(e, RuntimeError::PluginLayer { .. }), "{e}");
        let text = e.to_string();
        assert!(text.contains(says) && text.contains("install that library and name its path"), "{text}");
    }
    assert!(Engine::from_plan(elsewhere(&own, Clone::clone), reference()).is_ok());
}

/// A plan holds bytes of libraries that it needs only, and they are opened only if their hash is the header's.
#[test]
fn a_plan_holds_libraries_by_hash() {
    let library = std::fs::read(&example("nms")[0].library.path).unwrap();
    let own = || plan(&reference(), PluginSpec::new("example", "BestBoxes"), &boxes());
    let e = own().with_library(b"another library".to_vec()).unwrap_err();
    assert!(matches!(&e, PlanError::Library { .. }) && e.to_string().contains("no layer"), "{e}");
    let held = embed(own()).unwrap();
    let read = Plan::read(held.write().unwrap()).unwrap();
    assert_eq!(read.header.plugins[0].embedded, library.len() as u64);
    assert_eq!(read.libraries.values().map(|b| b.as_slice()).collect::<Vec<_>>(), [&library[..]]);
    assert_eq!(Engine::from_plan(read, reference()).unwrap().plan().write(), held.write());
    // The library is loaded already.
    assert!(load_embedded(&held, &Policy::default()).unwrap().is_empty());
    let change = |digest: &str, bytes: &[u8]| {
        let mut other = held.clone();
        other.header.plugins[0].digest = digest.to_owned();
        other.libraries = [(digest.to_owned(), bytes.to_vec().into())].into();
        load_embedded(&other, &Policy::default()).map(drop).unwrap_err()
    };
    let e = change("00", &library);
    assert!(matches!(e, PluginError::Embedded { .. }) && e.to_string().contains("have the hash"), "{e}");
    let garbage = b"no library at all";
    let e = change(blake3::hash(garbage).to_hex().as_str(), garbage);
    assert!(matches!(e, PluginError::Open { .. }) && e.to_string().contains("nms 1.0.0 in the plan"), "{e}");
    let mut missing = held.clone();
    missing.libraries.clear();
    assert!(matches!(missing.write(), Err(PlanError::Library { .. })));
}
