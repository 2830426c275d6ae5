//! Engines and contexts on the reference backend.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]

mod common;

use common::{engine, f32_ty, linear, program, rows, t};
use kiln_ir::{Attrs, DType, Dim, Tensor, TensorType};
use kiln_network::Network;
use kiln_runtime::{Engine, ExecutionContext, IoMode, Outputs, Profile, RuntimeError};

#[test]
fn runs_by_name_in_any_order_and_remembers_shapes() {
    let e = engine(&linear(), vec![rows(4)]);
    let mut cx = e.create_context().unwrap();
    let out = cx.run(&[("b", t(&[1, 2], &[1.0, 2.0])), ("a", t(&[1, 2], &[3.0, 4.0]))]).unwrap();
    assert_eq!(*out, [("y".to_owned(), t(&[1, 2], &[31.0, 402.0]))]);
    for n in [3, 1, 3] {
        cx.run(&[("a", t(&[n, 2], &vec![1.0; 2 * n])), ("b", t(&[n, 2], &vec![0.0; 2 * n]))]).unwrap();
    }
    let c = cx.counters();
    assert_eq!((c.shape_inferences, c.shape_hits, c.backend.runs), (2, 2, 4));
    // Another context of the engine has the same shapes available.
    let mut other = e.create_context().unwrap();
    other.run(&[("a", t(&[3, 2], &[1.0; 6])), ("b", t(&[3, 2], &[0.0; 6]))]).unwrap();
    assert_eq!(other.counters().shape_inferences, 0);
}

#[test]
fn empty_tensors_run() {
    let mut cx = engine(&linear(), vec![rows(4)]).create_context().unwrap();
    let out = cx.run(&[("a", t(&[0, 2], &[])), ("b", t(&[0, 2], &[]))]).unwrap();
    assert_eq!(out[0].1.shape(), [0, 2]);
}

#[test]
fn io_is_described() {
    let e = engine(&linear(), vec![rows(4)]);
    let io = e.io_tensors();
    assert_eq!(io.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["a", "b", "y"]);
    assert_eq!((io[2].mode, io[2].dims_text().as_str(), io[2].dtype), (IoMode::Output, "n,2", DType::F32));
    assert_eq!(io[0].dims_or_minus_one(), [-1, 2]);
    assert!(matches!(e.io_tensor("z"), Err(RuntimeError::UnknownTensor { .. })));
}

#[test]
fn wrong_inputs_are_refused_before_anything_runs() {
    let mut cx = engine(&linear(), vec![rows(4)]).create_context().unwrap();
    let (a, b) = (t(&[1, 2], &[1.0, 2.0]), t(&[1, 2], &[1.0, 2.0]));
    let error = |r: Result<_, RuntimeError>| r.map(|_: Outputs| ()).unwrap_err();
    let e = error(cx.run(&[("a", a.clone())]));
    assert!(matches!(&e, RuntimeError::MissingInput { name, .. } if name == "b"), "{e}");
    let e = error(cx.run(&[("a", a.clone()), ("a", a.clone())]));
    assert!(matches!(&e, RuntimeError::DuplicateInput { name } if name == "a"), "{e}");
    let e = error(cx.run(&[("a", a.clone()), ("c", b.clone())]));
    assert!(e.to_string().contains("\"c\"; it has a, b"), "{e}");
    let e = error(cx.run(&[("a", Tensor::i64(&[1, 2], &[1, 2]).unwrap()), ("b", b.clone())]));
    assert!(matches!(e, RuntimeError::DType { found: DType::I64, wanted: DType::F32, .. }));
    let e = error(cx.run(&[("a", t(&[2], &[1.0, 2.0])), ("b", b.clone())]));
    assert!(matches!(e, RuntimeError::Rank { wanted_rank: 2, .. }));
    let e = error(cx.run(&[("a", t(&[1, 3], &[0.0; 3])), ("b", b.clone())]));
    assert!(matches!(e, RuntimeError::Dim { axis: 1, .. }));
    let e = error(cx.run(&[("a", t(&[2, 2], &[0.0; 4])), ("b", b)]));
    assert!(matches!(&e, RuntimeError::Symbol { symbol, a: 2, b: 1, .. } if symbol == "n"), "{e}");
    let e = error(cx.run(&[("a", t(&[5, 2], &[0.0; 10])), ("b", t(&[5, 2], &[0.0; 10]))]));
    assert!(matches!(&e, RuntimeError::OutsideProfile { name, profile: 0, .. } if name == "a"), "{e}");
    assert_eq!(cx.counters().backend.runs, 0);
    assert!(matches!(cx.outputs(), Err(RuntimeError::State(_))));
}

#[test]
fn shapes_are_inferred_without_data() {
    let mut cx = engine(&linear(), vec![rows(4)]).create_context().unwrap();
    cx.set_input_shape("a", &[2, 2]).unwrap();
    assert_eq!(cx.underspecified(), ["b"]);
    assert!(matches!(cx.infer_shapes(), Err(RuntimeError::MissingInput { .. })));
    cx.set_input_shape("b", &[2, 2]).unwrap();
    assert_eq!(cx.infer_shapes().unwrap()[0].1.static_dims().unwrap(), [2, 2]);
    cx.set_input("a", t(&[2, 2], &[1.0; 4])).unwrap();
    assert!(matches!(cx.enqueue(), Err(RuntimeError::MissingInput { .. })));
    cx.set_input("b", t(&[2, 2], &[1.0; 4])).unwrap();
    cx.enqueue().unwrap();
    assert_eq!(cx.outputs().unwrap()[0].1, t(&[2, 2], &[11.0, 101.0, 11.0, 101.0]));
}

#[test]
fn inner_tensors_are_observed_and_layers_timed() {
    let mut cx = engine(&linear(), vec![rows(4)]).create_context().unwrap();
    cx.set_observable(true);
    cx.run(&[("a", t(&[1, 2], &[1.0, 2.0])), ("b", t(&[1, 2], &[5.0, 6.0]))]).unwrap();
    assert_eq!(cx.observe("h").unwrap(), t(&[1, 2], &[10.0, 200.0]));
    assert_eq!(cx.observe("b").unwrap(), t(&[1, 2], &[5.0, 6.0]));
    assert_eq!(cx.observe("w").unwrap(), t(&[2], &[10.0, 100.0]));
    assert!(matches!(cx.observe("nothing"), Err(RuntimeError::UnknownTensor { .. })));
    let times = cx.layer_times().unwrap();
    assert_eq!(times.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["h", "sum"]);
}

#[test]
fn the_tightest_profile_is_taken_and_a_set_one_binds() {
    let e = engine(&linear(), vec![rows(8), rows(2)]);
    let mut cx = e.create_context().unwrap();
    let inputs = |n: usize| [("a", t(&[n, 2], &vec![1.0; 2 * n])), ("b", t(&[n, 2], &vec![1.0; 2 * n]))];
    cx.run(&inputs(7)).unwrap();
    assert!(matches!(cx.run(&inputs(9)), Err(RuntimeError::NoProfile { count: 2, .. })));
    cx.set_profile(Some(1)).unwrap();
    assert!(matches!(cx.run(&inputs(7)), Err(RuntimeError::OutsideProfile { profile: 1, .. })));
    assert!(cx.set_profile(Some(2)).is_err());
}

#[test]
fn many_contexts_run_on_many_threads() {
    let e = engine(&linear(), vec![rows(4)]);
    std::thread::scope(|s| {
        for k in 0..8 {
            let e = e.clone();
            s.spawn(move || {
                let mut cx = e.create_context().unwrap();
                for i in 0..20 {
                    let x = (k * 100 + i) as f32;
                    let out = cx.run(&[("a", t(&[1, 2], &[x, x])), ("b", t(&[1, 2], &[0.0, 1.0]))]).unwrap();
                    assert_eq!(out[0].1, t(&[1, 2], &[10.0 * x, 100.0 * x + 1.0]));
                }
            });
        }
    });
}

/// y = reshape(x, s): s is a shape input.
fn reshaper() -> Network {
    let mut n = Network::new("reshaper");
    let x = n.add_input("x", f32_ty(&[Dim::new(6)])).unwrap();
    let s = n.add_input("s", TensorType::new(DType::I64, [2])).unwrap();
    let y = n.add_layer("y", "reshape", Attrs::new(), &[Some(x), Some(s)]).unwrap()[0];
    n.mark_output(y, "y").unwrap();
    n
}

#[test]
fn shape_inputs_have_values_in_profiles_and_in_the_cache_key() {
    let mut p = Profile::new();
    let e = Engine::from_program(program(&reshaper()), vec![p.clone()], common::backend()).unwrap_err();
    assert!(e.to_string().contains("\"s\" is a shape input"), "{e}");
    p.set_values("s", &[1, 1], &[2, 3], &[6, 6]).unwrap();
    let e = engine(&reshaper(), vec![p]);
    assert!(e.io_tensor("s").unwrap().is_shape_input && !e.io_tensor("x").unwrap().is_shape_input);
    let mut cx = e.create_context().unwrap();
    let x = t(&[6], &[0.0; 6]);
    for (s, wanted) in [([2, 3], [2, 3]), ([3, 2], [3, 2]), ([-1, 6], [1, 6])] {
        let r = cx.run(&[("x", x.clone()), ("s", Tensor::i64(&[2], &s).unwrap())]);
        if s[0] < 0 {
            assert!(matches!(r, Err(RuntimeError::OutsideProfile { what: "values", .. })));
        } else {
            assert_eq!(r.unwrap()[0].1.shape(), wanted);
        }
    }
    assert_eq!(cx.counters().shape_inferences, 2);
    assert!(cx.infer_shapes().is_err(), "the last values lie outside the profile");
}

#[test]
fn a_static_network_needs_no_profile() {
    let mut n = Network::new("static");
    let x = n.add_input("x", f32_ty(&[Dim::new(3)])).unwrap();
    let y = n.add_layer("y", "neg", Attrs::new(), &[Some(x)]).unwrap()[0];
    n.mark_output(y, "y").unwrap();
    let e = engine(&n, vec![]);
    assert_eq!(e.profiles()[0].shapes["x"].opt, [3]);
    let out = e.create_context().unwrap().run(&[("x", t(&[3], &[1.0, 2.0, 3.0]))]).unwrap();
    assert_eq!(out[0].1, t(&[3], &[-1.0, -2.0, -3.0]));
}

/// The threads of the pool are not in the copy: a run there would wait for them for ever.
#[cfg(unix)]
#[test]
fn a_forked_process_is_refused() {
    let e = engine(&linear(), vec![rows(4)]);
    let mut cx = e.create_context().unwrap();
    let run = |cx: &mut ExecutionContext| {
        cx.run(&[("a", t(&[1, 2], &[1.0; 2])), ("b", t(&[1, 2], &[0.0; 2]))]).map(drop)
    };
    run(&mut cx).unwrap();
    // SAFETY: the copy runs on its only thread, and ends without destructors.
    let status = unsafe {
        let child = libc::fork();
        if child == 0 {
            let refused = |e: Result<(), RuntimeError>| matches!(e, Err(RuntimeError::Forked { .. }));
            let both = refused(run(&mut cx)) && refused(e.create_context().map(drop));
            drop(cx);
            libc::_exit(if both { 7 } else { 1 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status
    };
    assert_eq!(libc::WEXITSTATUS(status), 7, "not refused");
    assert!(run(&mut cx).is_ok());
}

/// A layer of the fast path or the oracle that takes long is left in the middle; the context runs again.
#[test]
fn runs_are_cancelled_and_time_out() {
    let mut n = Network::new("product");
    let [a, b] = ["a", "b"].map(|x| n.add_input(x, TensorType::new(DType::I64, [500, 3000])).unwrap());
    let b =
        n.add_layer("turned", "transpose", Attrs::new().with("perm", vec![1i64, 0]), &[Some(b)]).unwrap()[0];
    let y = n.add_layer("product", "matmul", Attrs::new(), &[Some(a), Some(b)]).unwrap()[0];
    n.mark_output(y, "y").unwrap();
    let mut cx = engine(&n, Vec::new()).create_context().unwrap();
    let zeros = Tensor::zeros(DType::I64, &[500, 3000]).unwrap();
    let inputs = [("a", zeros.clone()), ("b", zeros)];
    let limit = std::time::Duration::from_millis(40);
    cx.set_timeout(Some(limit));
    match cx.run(&inputs) {
        Err(RuntimeError::TimedOut { limit: l, .. }) => assert_eq!(l, limit),
        other => panic!("{:?}", other.map(drop)),
    }
    cx.set_timeout(None);
    let canceller = cx.canceller();
    assert!(!canceller.cancel(), "nothing is in flight");
    std::thread::scope(|s| {
        s.spawn(|| while !canceller.cancel() {});
        match cx.run(&inputs) {
            Err(RuntimeError::Cancelled { .. }) => (),
            other => panic!("{:?}", other.map(drop)),
        }
    });
}
