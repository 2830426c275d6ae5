//! Refit on the reference backend.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]

mod common;

use common::{backend, engine, linear, rows, t};
use kiln_backend::{Program, Tactic};
use kiln_backend_cpu::Cpu;
use kiln_ir::{Attrs, DType, Dim, Fact, Graph, Op, Recipe, Tensor, TensorType, Weight};
use kiln_plan::Plan;
use kiln_runtime::{Engine, ExecutionContext, RuntimeError, verify_recipes};
use std::sync::Arc;

fn op(name: &str) -> Op {
    Op::new(name, Attrs::new()).unwrap()
}

/// y = x·d with d = p·q derived; `q` is kept, `p` only if `with_p`. `e` = exp(q) is derived too and added.
fn derived(with_p: bool) -> Program {
    let ty = TensorType::new(DType::F32, [2]);
    let recipe = |name: &str, sources: &[&str]| {
        let mut g = Graph::new("recipe");
        let ins: Vec<_> = sources.iter().map(|s| g.add_input(s, Fact::of(ty.clone()))).collect();
        let v = g.add("d", op(name), &ins).unwrap();
        g.outputs = vec![v];
        Some(Arc::new(Recipe { graph: g, sources: sources.iter().map(|&s| s.into()).collect() }))
    };
    let mut g = Graph::new("derived");
    let x = g.add_input("x", Fact::of(ty.clone()));
    let weight = |v: &[f32], name: Option<&str>, recipe| Weight {
        tensor: t(&[2], v),
        name: name.map(Arc::from),
        recipe,
    };
    if with_p {
        g.add_weight("p", weight(&[2.0, 3.0], Some("p"), None));
    }
    g.add_weight("q", weight(&[5.0, 0.0], Some("q"), None));
    let d = g.add_weight("d", weight(&[10.0, 0.0], None, recipe("mul", &["p", "q"])));
    let e = g.add_weight("e", weight(&[5f32.exp(), 1.0], None, recipe("exp", &["q"])));
    let m = g.add("m", op("mul"), &[x, d]).unwrap();
    let y = g.add("y", op("add"), &[m, e]).unwrap();
    g.outputs = vec![y];
    Program::step_per_node(g, &Tactic::plain("oracle"))
}

fn y(cx: &mut ExecutionContext) -> Vec<f64> {
    cx.run(&[("x", t(&[2], &[1.0, 1.0]))]).unwrap()[0].1.to_f64()
}

#[test]
fn weights_are_replaced_between_runs_and_back_again() {
    let e = engine(&linear(), vec![rows(4)]);
    let mut cx = e.create_context().unwrap();
    let mut run = || {
        let out = cx.run(&[("a", t(&[1, 2], &[1.0, 1.0])), ("b", t(&[1, 2], &[0.0, 0.0]))]).unwrap();
        (out[0].1.to_f64(), cx.counters().reloads)
    };
    assert_eq!(run(), (vec![10.0, 100.0], 0));
    for (w, reloads) in [([1.0, 2.0], 1), ([10.0, 100.0], 2)] {
        let mut r = e.refitter().unwrap();
        r.set("w", t(&[2], &w)).unwrap();
        assert!(r.get_missing().is_empty());
        r.refit().unwrap();
        assert_eq!(run(), (w.iter().map(|&x| x.into()).collect(), reloads));
    }
}

#[test]
fn derived_weights_follow_their_sources_bit_for_bit() {
    let e = Engine::from_program(derived(true), vec![], backend()).unwrap();
    let mut cx = e.create_context().unwrap();
    let before = y(&mut cx);
    let mut r = e.refitter().unwrap();
    r.set("q", t(&[2], &[0.0, 1.0])).unwrap();
    r.refit().unwrap();
    assert_eq!(y(&mut cx), [1.0, 3.0 + f64::from(1f32.exp())]);
    assert_eq!(verify_recipes(&e.program()).unwrap().same, 2);
    r.set("q", t(&[2], &[5.0, 0.0])).unwrap();
    r.refit().unwrap();
    assert_eq!(y(&mut cx), before);
}

#[test]
fn missing_sources_are_named_and_nothing_changes_before_they_are_set() {
    let e = Engine::from_program(derived(false), vec![], backend()).unwrap();
    let mut cx = e.create_context().unwrap();
    let before = y(&mut cx);
    let mut r = e.refitter().unwrap();
    assert_eq!(r.weights().map(|w| w.name.as_str()).collect::<Vec<_>>(), ["p", "q"]);
    r.set("q", t(&[2], &[0.0, 1.0])).unwrap();
    assert_eq!(r.get_missing(), ["p"]);
    assert!(matches!(r.refit(), Err(RuntimeError::Refit(m)) if m.contains("also set p")));
    assert_eq!((y(&mut cx), cx.counters().reloads), (before, 0));
    r.set("p", t(&[2], &[1.0, 1.0])).unwrap();
    assert!(r.get_missing().is_empty());
    r.refit().unwrap();
    assert_eq!(y(&mut cx)[0], 1.0);
    assert_eq!(verify_recipes(&e.program()).unwrap().unknown, ["d"]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let e = Engine::from_program(derived(true), vec![], backend()).unwrap();
    let mut r = e.refitter().unwrap();
    let said = |r: Result<(), RuntimeError>| r.unwrap_err().to_string();
    assert!(said(r.set("z", t(&[2], &[0.0; 2]))).contains("there are p, q"));
    assert!(said(r.set("q", t(&[1], &[0.0]))).contains("f32[2]"));
    assert!(said(r.set("q", Tensor::i64(&[2], &[0, 0]).unwrap())).contains("was given i64[2]"));
    assert!(!r.unset("q"));
    let mut plan = Plan::new(derived(true), vec![], Cpu::target());
    plan.header.refittable = false;
    assert!(Engine::from_plan(plan, backend()).unwrap().refitter().is_err());
}

#[test]
fn structural_weights_are_fixed() {
    let mut n = kiln_network::Network::new("reshape");
    let x = n.add_input("x", common::f32_ty(&[Dim::new(6)])).unwrap();
    let s = n.add_weights(Some("s"), Tensor::i64(&[2], &[2, 3]).unwrap()).unwrap();
    n.add_weights(Some("gone"), t(&[1], &[0.0])).unwrap();
    let y = n.add_layer("y", "reshape", Attrs::new(), &[Some(x), Some(s)]).unwrap()[0];
    n.mark_output(y, "y").unwrap();
    let mut r = engine(&n, vec![]).refitter().unwrap();
    let said = |r: Result<(), RuntimeError>| r.unwrap_err().to_string();
    assert!(said(r.set("s", Tensor::i64(&[2], &[3, 2]).unwrap())).contains("shapes"));
    assert!(said(r.set("gone", t(&[1], &[1.0]))).contains("no layer reads it"));
}

#[test]
fn changed_derived_bytes_are_found() {
    let mut p = derived(true);
    assert_eq!(verify_recipes(&p).unwrap().same, 2);
    let d = p.graph.find("d").unwrap();
    if let kiln_ir::Source::Weight(w) = &mut p.graph.value_mut(d).source {
        w.tensor = t(&[2], &[10.0, 0.5]);
    }
    assert_eq!(verify_recipes(&p).unwrap().different, ["d"]);
}

#[test]
fn contexts_run_while_others_refit() {
    let e = engine(&linear(), vec![rows(4)]);
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let e = e.clone();
                s.spawn(move || {
                    let mut cx = e.create_context().unwrap();
                    for _ in 0..200 {
                        let inputs = [("a", t(&[1, 2], &[1.0, 1.0])), ("b", t(&[1, 2], &[0.0, 0.0]))];
                        let v = cx.run(&inputs).unwrap()[0].1.to_f64();
                        assert_eq!(v[1], 10.0 * v[0], "weights of one refit never mix with another's");
                    }
                })
            })
            .collect();
        for i in 0..20 {
            let mut r = e.refitter().unwrap();
            r.set("w", t(&[2], &[i as f32, 10.0 * i as f32])).unwrap();
            r.refit().unwrap();
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
}
