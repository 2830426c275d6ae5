//! Layers that are not needed do not run: seen by layers that fail where they run.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_ir::{Attrs, DType, Tensor, TensorType};
use kiln_network::{IfId, LoopId, LoopOutputKind, Network, TensorId, TripLimitKind};
use kiln_tests::backends;
use kiln_tests::lazy::Spec;
use kiln_tests::suite::{Setting, run_graph};

fn ints(shape: &[usize], v: &[i64]) -> Tensor {
    Tensor::i64(shape, v).unwrap()
}

fn truth(b: bool) -> Tensor {
    Tensor::from_bytes(DType::Bool, &[], vec![u8::from(b)]).unwrap()
}

fn layer(net: &mut Network, name: &str, op: &str, inputs: &[TensorId]) -> TensorId {
    let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
    net.add_layer(name, op, Attrs::new(), &inputs).unwrap()[0]
}

/// A network of one conditional, decided by input "c".
fn conditional() -> (Network, IfId) {
    let mut net = Network::new("lazy");
    let c = net.add_input("c", TensorType::new(DType::Bool, [0i64; 0])).unwrap();
    let of = net.add_if_conditional().unwrap();
    net.set_condition(of, c).unwrap();
    (net, of)
}

fn inside(net: &mut Network, of: IfId, t: TensorId) -> TensorId {
    net.add_if_input(of, t).unwrap().output(0).unwrap()
}

/// A loop of n iterations that adds the elements 1 and 2 to a value.
fn adding(net: &mut Network, name: &str, t: TensorId, n: TensorId) -> TensorId {
    let table = net.add_weights(None, ints(&[2, 1], &[1, 2])).unwrap();
    let l = net.add_loop().unwrap();
    net.set_loop_name(l, name).unwrap();
    net.add_trip_limit(l, n, TripLimitKind::Count).unwrap();
    let element = net.add_iterator(l, table, 0, false).unwrap().output(0).unwrap();
    let r = net.add_recurrence(l, t).unwrap();
    let (id, sum) = (r.id(), r.output(0).unwrap());
    let next = layer(net, "", "add", &[sum, element]);
    net.set_input(id, 1, next).unwrap();
    net.add_loop_output(l, sum, LoopOutputKind::LastValue, 0).unwrap().output(0).unwrap()
}

/// The chapter's diagrams: T1 → T2 → T3 → output if true, x otherwise. In A the input of the conditional is
/// before T1, in B after it, in C there is none. One of the layers is a loop of n iterations over two
/// elements.
fn diagram(which: char, fails: usize) -> Network {
    let (mut net, of) = conditional();
    let x = net.add_input("x", TensorType::new(DType::I64, [1i64])).unwrap();
    let n = net.add_input("n", TensorType::new(DType::I64, [0i64; 0])).unwrap();
    let zero = net.add_weights(None, ints(&[1], &[0])).unwrap();
    let mut t = if which == 'A' { inside(&mut net, of, x) } else { x };
    for i in 1..=3 {
        let name = format!("T{i}");
        t = match i == fails {
            true => adding(&mut net, &name, t, n),
            false => layer(&mut net, &name, "add", &[t, zero]),
        };
        if which == 'B' && i == 1 {
            t = inside(&mut net, of, t);
        }
    }
    let y = net.add_if_output(of, t, x).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    net
}

fn settings() -> Vec<Setting> {
    let all = [Some(backends::cpu()), backends::wgpu().unwrap(), backends::cuda().unwrap()];
    all.into_iter().flatten().map(|b| Setting::of(b, true).unwrap()).collect()
}

fn run(s: &Setting, net: &Network, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    run_graph(s, net.lower().map_err(|e| e.to_string())?, inputs)
}

#[test]
fn the_place_of_the_input_layer_decides_what_is_lazy() {
    // How many of T1, T2, T3 are eager.
    for (which, eager) in [('A', 0), ('B', 1), ('C', 3)] {
        for fails in 1..=3 {
            let net = diagram(which, fails);
            let (x, n) = (ints(&[1], &[5]), ints(&[], &[3]));
            for s in settings() {
                let name = format!("{}, diagram {which}, T{fails} fails", s.backend.name());
                let e = run(&s, &net, &[truth(true), x.clone(), n.clone()]).unwrap_err();
                assert!(e.contains(&format!("T{fails}")), "{name}: {e}");
                let not_taken = run(&s, &net, &[truth(false), x.clone(), n.clone()]);
                match fails <= eager {
                    true => assert!(not_taken.unwrap_err().contains(&format!("T{fails}")), "{name}"),
                    false => assert_eq!(not_taken.as_deref(), Ok(&[x.clone()][..]), "{name}"),
                }
            }
        }
    }
}

#[test]
fn by_definition_nothing_that_is_not_needed_is_computed() {
    for which in ['A', 'B', 'C'] {
        let net = diagram(which, 4);
        let inputs = |c| [truth(c), ints(&[1], &[5]), ints(&[], &[3])];
        let (taken, not) = (inputs(true), inputs(false));
        let mut spec = Spec::new(&net, &taken).unwrap();
        spec.run().unwrap();
        assert_eq!(spec.ran, ["T1", "T2", "T3"]);
        let mut spec = Spec::new(&net, &not).unwrap();
        spec.run().unwrap();
        assert!(spec.ran.is_empty(), "{which}: {:?}", spec.ran);
    }
}

/// A network whose true branch has a loop of n iterations, which adds up the elements of x; x has two.
fn too_many_trips() -> Network {
    let (mut net, of) = conditional();
    let x = net.add_input("x", TensorType::new(DType::I64, [2i64])).unwrap();
    let n = net.add_input("n", TensorType::new(DType::I32, [0i64; 0])).unwrap();
    let (x, n) = (inside(&mut net, of, x), inside(&mut net, of, n));
    let zero = net.add_weights(None, ints(&[], &[0])).unwrap();
    let l = net.add_loop().unwrap();
    net.set_loop_name(l, "adding").unwrap();
    net.add_trip_limit(l, n, TripLimitKind::Count).unwrap();
    let element = net.add_iterator(l, x, 0, false).unwrap().output(0).unwrap();
    let r = net.add_recurrence(l, zero).unwrap();
    let (id, sum) = (r.id(), r.output(0).unwrap());
    let next = layer(&mut net, "", "add", &[sum, element]);
    net.set_input(id, 1, next).unwrap();
    let last = net.add_loop_output(l, sum, LoopOutputKind::LastValue, 0).unwrap().output(0).unwrap();
    let y = net.add_if_output(of, last, zero).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    net
}

#[test]
fn a_loop_that_goes_too_far_fails_only_in_the_branch_that_is_taken() {
    let net = too_many_trips();
    let inputs = |c: bool, n: i64| {
        let n = Tensor::from_elems(DType::I32, &[], &kiln_ir::Elems::I(vec![n])).unwrap();
        [truth(c), ints(&[2], &[3, 4]), n]
    };
    for s in settings() {
        assert_eq!(run(&s, &net, &inputs(true, 2)), Ok(vec![ints(&[], &[7])]));
        assert_eq!(run(&s, &net, &inputs(false, 9)), Ok(vec![ints(&[], &[0])]));
        let e = run(&s, &net, &inputs(true, 9)).unwrap_err();
        assert!(e.contains("adding") && e.contains("element 2"), "{e}");
    }
}

/// Counts to n, by a count or by a condition, and stacks the numbers in an output of a given length.
fn stacking(asked: bool) -> (Network, LoopId) {
    let mut net = Network::new("stacking");
    let scalar = |d| TensorType::new(d, [0i64; 0]);
    let n = net.add_input("n", scalar(DType::I64)).unwrap();
    let length = net.add_input("length", scalar(DType::I32)).unwrap();
    let l = net.add_loop().unwrap();
    net.set_loop_name(l, "counting").unwrap();
    let (zero, one) = (ints(&[], &[0]), ints(&[], &[1]));
    let (zero, one) = (net.add_weights(None, zero).unwrap(), net.add_weights(None, one).unwrap());
    let r = net.add_recurrence(l, zero).unwrap();
    let (id, i) = (r.id(), r.output(0).unwrap());
    let next = layer(&mut net, "", "add", &[i, one]);
    net.set_input(id, 1, next).unwrap();
    if asked {
        let go = layer(&mut net, "", "less", &[i, n]);
        net.add_trip_limit(l, go, TripLimitKind::While).unwrap();
    } else {
        net.add_trip_limit(l, n, TripLimitKind::Count).unwrap();
    }
    let out = net.add_loop_output(l, i, LoopOutputKind::Reverse, 0).unwrap();
    let y = out.set_input(1, length).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    (net, l)
}

#[test]
fn an_output_that_is_too_short_is_an_error_that_names_the_loop_and_both_numbers() {
    for asked in [false, true] {
        let (net, _) = stacking(asked);
        let inputs = |n: i64, length: i64| {
            let length = kiln_ir::Elems::I(vec![length]);
            [ints(&[], &[n]), Tensor::from_elems(DType::I32, &[], &length).unwrap()]
        };
        let e = Spec::new(&net, &inputs(7, 4)).unwrap().run().unwrap_err();
        assert!(["counting", "4", "7"].iter().all(|w| e.contains(w)), "{e}");
        for s in settings() {
            let found = run(&s, &net, &inputs(3, 5)).unwrap();
            assert_eq!(found, [ints(&[5], &[2, 1, 0, 0, 0])]);
            let e = run(&s, &net, &inputs(7, 4)).unwrap_err();
            assert!(["counting", "length 4", "7 iterations"].iter().all(|w| e.contains(w)), "{e}");
        }
    }
}

#[test]
fn what_does_not_vary_from_trip_to_trip_is_computed_outside() {
    let (mut net, l) = stacking(false);
    let n = net.find("n").unwrap();
    let twice = layer(&mut net, "invariant", "add", &[n, n]);
    let i = net.find("recurrence").unwrap();
    let y = layer(&mut net, "varying", "add", &[i, twice]);
    let out = net.add_loop_output(l, y, LoopOutputKind::Concatenate, 0).unwrap();
    let z = out.set_exact_length().unwrap().output(0).unwrap();
    net.mark_output(z, "z").unwrap();
    let graph = net.lower().unwrap();
    let names = |g: &kiln_ir::Graph| g.nodes().map(|(_, n)| n.name.clone()).collect::<Vec<_>>();
    assert!(names(&graph).contains(&"invariant".to_owned()));
    let (_, looping) = graph.nodes().find(|(_, n)| n.op.name() == "loop").unwrap();
    assert!(names(&looping.regions[0]).contains(&"varying".to_owned()));
    assert!(!names(&looping.regions[0]).contains(&"invariant".to_owned()));
}
