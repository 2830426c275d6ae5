//! Bounds of output sizes before a run, and dimensions without names.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_builder::{BuildConfig, Builder};
use kiln_ir::{DType, Graph, Tensor, TensorType};
use kiln_network::{Network, UnaryOp};
use kiln_runtime::{Engine, Profile, RuntimeError};
use kiln_tests::backends::cpu;

fn engine(graph: Graph, profiles: Vec<Profile>) -> Engine {
    let target = cpu().targets().unwrap().remove(0);
    let mut b = Builder::new(cpu(), target);
    b.config = BuildConfig { profiles: profiles.clone(), estimates: true, ..BuildConfig::default() };
    let built = b.build_graph(graph, &mut |_, _, _| true).unwrap();
    Engine::from_program(built.program, profiles, cpu()).unwrap()
}

fn range(name: &str, ends: [&[i64]; 3]) -> Profile {
    let mut p = Profile::new();
    p.set_shape(name, ends[0], ends[1], ends[2]).unwrap();
    p
}

#[test]
fn sizes_are_bounded_by_profiles_and_shapes() {
    // As many indices as `x` has elements at most; `y` has two elements for each of `x`.
    let g = "graph \"g\" { input %x: f32[n,3] %i = nonzero(%x) %y = concat(%x, %x) {axis=1} output %i output %y }";
    let small = range("x", [&[1, 3], &[2, 3], &[4, 3]]);
    let large = range("x", [&[1, 3], &[8, 3], &[16, 3]]);
    let e = engine(Graph::from_text(g).unwrap(), vec![small, large]);
    let mut c = e.create_context().unwrap();
    let sizes = |c: &mut kiln_runtime::ExecutionContext| {
        [c.max_output_size("i").unwrap(), c.max_output_size("y").unwrap()]
    };
    let of = |n: u64| [2 * n * 3 * 8, n * 6 * 4];
    assert_eq!(sizes(&mut c), of(16), "over all profiles");
    c.set_profile(Some(0)).unwrap();
    assert_eq!(sizes(&mut c), of(4), "in one profile");
    c.set_input_shape("x", &[3, 3]).unwrap();
    assert_eq!(sizes(&mut c), of(3), "at shapes that are set");
    // The size of the output of a run is within the bound.
    let x = Tensor::f32(&[3, 3], &[0.0, 1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 0.0, 5.0]).unwrap();
    let out = c.run(&[("x", x)]).unwrap();
    assert_eq!(out.get("i").unwrap().shape(), [2, 5]);
    let e = c.max_output_size("z").unwrap_err();
    assert!(matches!(e, RuntimeError::UnknownTensor { .. }), "{e}");
}

#[test]
fn dimensions_need_no_names() {
    let mut net = Network::new("net");
    let ty = || TensorType::new(DType::F32, [-1, 2, -1]);
    let a = net.add_input("a", ty()).unwrap();
    let b = net.add_input("b", ty()).unwrap();
    let y = net.add_unary(a, UnaryOp::Neg).unwrap().output(0).unwrap();
    let z = net.add_unary(b, UnaryOp::Abs).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    net.mark_output(z, "z").unwrap();
    let mut p = range("a", [&[1, 2, 1], &[3, 2, 4], &[5, 2, 6]]);
    p.set_shape("b", &[1, 2, 1], &[2, 2, 2], &[7, 2, 8]).unwrap();
    let e = engine(net.lower().unwrap(), vec![p]);
    assert_eq!(e.io_tensor("a").unwrap().dims_or_minus_one(), [-1, 2, -1]);
    // They are not equal to each other.
    let zeros = |shape: &[usize]| Tensor::zeros(DType::F32, shape).unwrap();
    let out = e.create_context().unwrap().run(&[("a", zeros(&[5, 2, 1])), ("b", zeros(&[1, 2, 8]))]).unwrap();
    assert_eq!(
        (out.get("y").unwrap().shape(), out.get("z").unwrap().shape()),
        (&[5, 2, 1][..], &[1, 2, 8][..])
    );
    // A name makes them equal; other negative sizes are refused.
    let mut net = net;
    net.set_dimension_name(a, 0, "n").unwrap();
    net.set_dimension_name(b, 0, "n").unwrap();
    assert!(net.lower().unwrap().to_text().matches("[n,2,").count() >= 2);
    assert!(net.add_input("c", TensorType::new(DType::F32, [-2])).is_err());
    net.set_dimensions(a, [(-1i64).into(), 2.into(), 3.into()]).unwrap();
}
