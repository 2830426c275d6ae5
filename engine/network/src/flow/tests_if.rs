//! Conditionals: what they compute, what they leave alone, and every rule that refuses one.

use crate::tests::{constant, f32s, input, int, ints, refused, run, ty};
use crate::*;
use kiln_ir::tensor::Tensor;
use kiln_ir::{Attrs, DType, Graph, IrError, OpError};

fn unary(net: &mut Network, x: TensorId, op: UnaryOp, name: &str) -> TensorId {
    net.add_unary(x, op).unwrap().set_name(name).unwrap().output(0).unwrap()
}

fn op2(net: &mut Network, a: TensorId, b: TensorId, op: ElementwiseOp) -> TensorId {
    net.add_elementwise(a, b, op).unwrap().output(0).unwrap()
}

fn inside(net: &mut Network, c: IfId, x: TensorId) -> TensorId {
    net.add_if_input(c, x).unwrap().output(0).unwrap()
}

pub(super) fn truth(b: bool) -> Tensor {
    ints(DType::Bool, &[], &[i64::from(b)])
}

/// A network with a conditional on an input.
pub(super) fn on_input() -> (Network, IfId) {
    let mut net = Network::new("if");
    let c = net.add_if_conditional().unwrap();
    let cond = input(&mut net, "cond", DType::Bool, &[]);
    net.set_condition(c, cond).unwrap();
    (net, c)
}

/// Names of the layers outside, in the true and in the false branch.
fn places(g: &Graph) -> [Vec<String>; 3] {
    let names = |g: &Graph| -> Vec<String> {
        g.nodes().filter(|(_, n)| n.regions.is_empty()).map(|(_, n)| n.name.clone()).collect()
    };
    let node = g.nodes().find(|(_, n)| n.op.name() == "if").unwrap().1;
    [names(g), names(&node.regions[0]), names(&node.regions[1])]
}

#[test]
fn c13_a_constant_condition_is_cast_from_an_integer() {
    for (constant_condition, want) in [(true, [11.0, 22.0]), (false, [-9.0, -18.0])] {
        let mut net = Network::new("simple");
        let x = input(&mut net, "x", DType::F32, &[2]);
        let y = input(&mut net, "y", DType::F32, &[2]);
        let val = net.add_constant(ints(DType::I32, &[], &[i64::from(constant_condition)])).unwrap();
        let val = val.output(0).unwrap();
        let cond = net.add_cast(val, DType::Bool).unwrap().output(0).unwrap();
        let c = net.add_if_conditional().unwrap();
        net.set_condition(c, cond).unwrap();
        let (a, b) = (inside(&mut net, c, x), inside(&mut net, c, y));
        let t = op2(&mut net, a, b, ElementwiseOp::Sum);
        let f = op2(&mut net, a, b, ElementwiseOp::Sub);
        let out = net.add_if_output(c, t, f).unwrap().output(0).unwrap();
        net.mark_output(out, "out").unwrap();
        let ins = [f32s(&[2], &[1.0, 2.0]), f32s(&[2], &[10.0, 20.0])];
        assert_eq!(run(&net, &ins), [f32s(&[2], &want)]);
    }
}

/// The three diagrams: T1 → T2 → T3 → output, with T3 also reading T1's input, for each place of that input.
fn diagram(which: char) -> (Graph, Network) {
    let (mut net, c) = on_input();
    let x = input(&mut net, "x", DType::F32, &[1]);
    let start = if which == 'A' { inside(&mut net, c, x) } else { x };
    let t1 = unary(&mut net, start, UnaryOp::Neg, "T1");
    let middle = if which == 'B' { inside(&mut net, c, t1) } else { t1 };
    let t2 = unary(&mut net, middle, UnaryOp::Abs, "T2");
    let t3 = unary(&mut net, t2, UnaryOp::Exp, "T3");
    let out = net.add_if_output(c, t3, x).unwrap().output(0).unwrap();
    net.mark_output(out, "out").unwrap();
    (net.lower().unwrap(), net)
}

#[test]
fn c05_c06_c07_c08_inputs_decide_what_is_lazy() {
    let none: [&str; 0] = [];
    let (a, net) = diagram('A');
    assert_eq!(places(&a), [none.to_vec(), vec!["T1", "T2", "T3"], none.to_vec()]);
    assert_eq!(run(&net, &[truth(false), f32s(&[1], &[5.0])]), [f32s(&[1], &[5.0])]);
    let (b, _) = diagram('B');
    assert_eq!(places(&b), [vec!["T1"], vec!["T2", "T3"], none.to_vec()]);
    let (c, net) = diagram('C');
    assert_eq!(places(&c), [vec!["T1", "T2", "T3"], none.to_vec(), none.to_vec()]);
    assert_eq!(run(&net, &[truth(true), f32s(&[1], &[0.0])]), [f32s(&[1], &[1.0])]);
}

#[test]
fn c05_what_is_not_taken_is_not_computed() {
    // The false branch fails if it runs.
    let (mut net, c) = on_input();
    let flag = input(&mut net, "flag", DType::Bool, &[]);
    let x = inside(&mut net, c, flag);
    let f = unary(&mut net, x, UnaryOp::Not, "not");
    net.add_assertion(f, "never").unwrap();
    let out = net.add_if_output(c, flag, f).unwrap().output(0).unwrap();
    net.mark_output(out, "out").unwrap();
    assert_eq!(run(&net, &[truth(true), truth(true)]), [truth(true)]);
    let e = net.lower().unwrap().eval(&[truth(false), truth(true)]);
    refused(e, "never");
}

#[test]
fn c03_c04_one_input_may_feed_both_branches_and_outputs_are_many() {
    let (mut net, c) = on_input();
    let x = input(&mut net, "x", DType::F32, &[1]);
    let n = input(&mut net, "n", DType::I32, &[2]);
    let (x, n) = (inside(&mut net, c, x), inside(&mut net, c, n));
    let t = unary(&mut net, x, UnaryOp::Neg, "t");
    let f = unary(&mut net, x, UnaryOp::Exp, "f");
    let u = unary(&mut net, n, UnaryOp::Neg, "u");
    let a = net.add_if_output(c, t, f).unwrap().output(0).unwrap();
    let b = net.add_if_output(c, u, n).unwrap().output(0).unwrap();
    net.mark_output(a, "a").unwrap();
    net.mark_output(b, "b").unwrap();
    let ins = |c| [truth(c), f32s(&[1], &[0.0]), ints(DType::I32, &[2], &[3, 4])];
    assert_eq!(run(&net, &ins(true))[1], ints(DType::I32, &[2], &[-3, -4]));
    assert_eq!(run(&net, &ins(false)), [f32s(&[1], &[1.0]), ints(DType::I32, &[2], &[3, 4])]);
}

#[test]
fn c03_c12_shapes_may_differ_ranks_only_under_a_known_condition() {
    let (mut net, c) = on_input();
    let x = input(&mut net, "x", DType::F32, &[2]);
    let y = input(&mut net, "y", DType::F32, &[3]);
    let z = net.add_if_output(c, x, y).unwrap().output(0).unwrap();
    assert_eq!(net.ty(z).dims[0].upper_bound(), Some(3.into()));
    net.mark_output(z, "z").unwrap();
    let out = run(&net, &[truth(false), f32s(&[2], &[0.0; 2]), f32s(&[3], &[1.0; 3])]);
    assert_eq!(out, [f32s(&[3], &[1.0; 3])]);
    let m = input(&mut net, "m", DType::F32, &[2, 2]);
    let r = net.add_if_output(c, x, m).unwrap().output(0).unwrap();
    refused(net.mark_output(r, "r"), "the same rank");
    let i = input(&mut net, "i", DType::I32, &[2]);
    refused(net.add_if_output(c, x, i), "the same element type");

    let mut net = Network::new("known");
    let c = net.add_if_conditional().unwrap();
    let yes = constant(&mut net, truth(true));
    net.set_condition(c, yes).unwrap();
    let x = input(&mut net, "x", DType::F32, &[2]);
    let m = input(&mut net, "m", DType::F32, &[2, 2]);
    let z = net.add_if_output(c, x, m).unwrap().output(0).unwrap();
    net.mark_output(z, "z").unwrap();
    assert_eq!(run(&net, &[f32s(&[2], &[1.0, 2.0]), f32s(&[2, 2], &[0.0; 4])]), [f32s(&[2], &[1.0, 2.0])]);
}

#[test]
fn branches_of_different_ranks_are_refused_with_what_to_do_and_that_works() {
    let (mut net, c) = on_input();
    let x = input(&mut net, "x", DType::F32, &[2]);
    let m = input(&mut net, "m", DType::F32, &[2, 2]);
    let r = net.add_if_output(c, x, m).unwrap().output(0).unwrap();
    let e = net.mark_output(r, "r").unwrap_err();
    let NetworkError::Ir(IrError::Layer { source: OpError::BranchRanks { when_true, when_false }, .. }) = &e
    else {
        panic!("{e:?}")
    };
    assert_eq!((&**when_true, &**when_false), ("f32[2]", "f32[2,2]"));
    let text = e.to_string();
    for what in ["reshape one of them", "into the branches", "make the condition a constant"] {
        assert!(text.contains(what), "{text}");
    }
    // A row in the true branch.
    let (x, m) = (inside(&mut net, c, x), inside(&mut net, c, m));
    let axis = constant(&mut net, ints(DType::I64, &[1], &[0]));
    let row = net.add_layer("row", "unsqueeze", Attrs::new(), &[Some(x), Some(axis)]).unwrap()[0];
    let rows = net.add_if_output(c, row, m).unwrap().output(0).unwrap();
    // A reader of the result, once in each branch.
    let sum = |net: &mut Network, name: &str, t: TensorId, axes: u32| {
        net.add_reduce(t, ReduceOp::Sum, axes, false).unwrap().set_name(name).unwrap().output(0).unwrap()
    };
    let (of_x, of_m) = (sum(&mut net, "of_x", x, 1), sum(&mut net, "of_m", m, 3));
    let total = net.add_if_output(c, of_x, of_m).unwrap().output(0).unwrap();
    net.mark_output(rows, "rows").unwrap();
    net.mark_output(total, "total").unwrap();
    let given = |c| [truth(c), f32s(&[2], &[1.0, 2.0]), f32s(&[2, 2], &[3.0, 4.0, 5.0, 6.0])];
    assert_eq!(run(&net, &given(true)), [f32s(&[1, 2], &[1.0, 2.0]), f32s(&[], &[3.0])]);
    assert_eq!(run(&net, &given(false)), [f32s(&[2, 2], &[3.0, 4.0, 5.0, 6.0]), f32s(&[], &[18.0])]);
}

#[test]
fn c09_c11_c13_a_loop_may_hold_a_conditional() {
    // The sum of the even elements.
    let mut net = Network::new("sum_even");
    let items = net.add_input("items", ty(DType::I32, &[5])).unwrap();
    let l = net.add_loop().unwrap();
    let n = int(&mut net, DType::I32, 5);
    net.add_trip_limit(l, n, TripLimitKind::Count).unwrap();
    let item = net.add_iterator(l, items, 0, false).unwrap().output(0).unwrap();
    let (zero, two) = (int(&mut net, DType::I32, 0), int(&mut net, DType::I32, 2));
    let r = net.add_recurrence(l, zero).unwrap();
    let (rec, s) = (r.id(), r.output(0).unwrap());
    let half = op2(&mut net, item, two, ElementwiseOp::FloorDiv);
    let even = op2(&mut net, half, two, ElementwiseOp::Prod);
    let is_even = op2(&mut net, even, item, ElementwiseOp::Equal);
    let c = net.add_if_conditional().unwrap();
    net.set_condition(c, is_even).unwrap();
    let (a, b) = (inside(&mut net, c, s), inside(&mut net, c, item));
    let more = op2(&mut net, a, b, ElementwiseOp::Sum);
    let out = net.add_if_output(c, more, s).unwrap();
    let out = out.output(0).unwrap();
    refused(net.mark_output(out, "inner"), "lies inside of loop");
    net.set_input(rec, 1, out).unwrap();
    let total = net.add_loop_output(l, s, LoopOutputKind::LastValue, 0).unwrap().output(0).unwrap();
    net.mark_output(total, "total").unwrap();
    let items = ints(DType::I32, &[5], &[1, 2, 3, 4, 6]);
    assert_eq!(run(&net, &[items]), [ints(DType::I32, &[], &[12])]);
    let g = net.lower().unwrap();
    let body = &g.nodes().next().unwrap().1.regions[0];
    assert!(body.nodes().any(|(_, n)| n.op.name() == "if"));
}

#[test]
fn c09_a_branch_may_hold_a_loop_and_a_conditional() {
    let (mut net, c) = on_input();
    let second = input(&mut net, "second", DType::Bool, &[]);
    let x = input(&mut net, "x", DType::F32, &[]);
    let lazy = inside(&mut net, c, x);
    // True: x doubled three times.
    let l = net.add_loop().unwrap();
    let n = int(&mut net, DType::I32, 3);
    net.add_trip_limit(l, n, TripLimitKind::Count).unwrap();
    let r = net.add_recurrence(l, lazy).unwrap();
    let (rec, v) = (r.id(), r.output(0).unwrap());
    let next = op2(&mut net, v, v, ElementwiseOp::Sum);
    net.set_input(rec, 1, next).unwrap();
    let t = net.add_loop_output(l, v, LoopOutputKind::LastValue, 0).unwrap().output(0).unwrap();
    // False: −x or |x|, as another conditional decides.
    let d = net.add_if_conditional().unwrap();
    net.set_condition(d, second).unwrap();
    let deep = inside(&mut net, d, lazy);
    let neg = unary(&mut net, deep, UnaryOp::Neg, "neg");
    let abs = unary(&mut net, deep, UnaryOp::Abs, "abs");
    let f = net.add_if_output(d, neg, abs).unwrap().output(0).unwrap();
    let out = net.add_if_output(c, t, f).unwrap().output(0).unwrap();
    net.mark_output(out, "out").unwrap();
    let go = |a, b| run(&net, &[truth(a), truth(b), f32s(&[], &[-5.0])]).swap_remove(0);
    assert_eq!(go(true, true), f32s(&[], &[-40.0]));
    assert_eq!((go(false, true), go(false, false)), (f32s(&[], &[5.0]), f32s(&[], &[5.0])));
    let g = net.lower().unwrap();
    assert_eq!(g.nodes().count(), 1);
    let node = g.nodes().next().unwrap().1;
    let op = |i: usize| node.regions[i].nodes().map(|(_, n)| n.op.name()).collect::<Vec<_>>();
    assert_eq!((op(0), op(1)), (vec!["loop"], vec!["if"]));
}

fn broken(
    f: impl FnOnce(&mut Network, IfId, TensorId) -> Result<(), NetworkError>,
) -> Result<(), NetworkError> {
    let (mut net, c) = on_input();
    let x = input(&mut net, "x", DType::F32, &[2]);
    f(&mut net, c, x)?;
    net.lower().map(drop)
}

#[test]
fn c01_c02_a_conditional_has_one_condition_and_an_output() {
    refused(broken(|_, _, _| Ok(())), "conditional \"if.0\" has no output");
    let mut net = Network::new("none");
    let c = net.add_if_conditional().unwrap();
    let x = input(&mut net, "x", DType::F32, &[2]);
    net.add_if_output(c, x, x).unwrap();
    refused(net.lower(), "conditional \"if.0\" has no condition");
    let twice = |net: &mut Network, c, _| {
        let b = input(net, "b", DType::Bool, &[]);
        net.set_condition(c, b).map(drop)
    };
    refused(broken(twice), "has a condition already: \"condition\"");
    let mut net = Network::new("types");
    let c = net.add_if_conditional().unwrap();
    let x = input(&mut net, "x", DType::F32, &[]);
    refused(net.set_condition(c, x), "is f32, wants bool");
    let i = net.add_if_input(c, x).unwrap();
    assert_eq!(i.params().unwrap().of(), c);
    let v = input(&mut net, "v", DType::Bool, &[1]);
    refused(net.set_condition(c, v), "wants no dimensions");
}

#[test]
fn c10_branches_share_no_layers() {
    let both = |net: &mut Network, c, x| {
        let x = inside(net, c, x);
        let shared = unary(net, x, UnaryOp::Neg, "shared");
        let t = unary(net, shared, UnaryOp::Abs, "t");
        net.add_if_output(c, t, shared).map(drop)
    };
    refused(broken(both), "layer \"shared\" belongs to both branches of conditional \"if.0\"");
}

#[test]
fn c11_results_leave_through_outputs_only() {
    let (mut net, c) = on_input();
    let x = input(&mut net, "x", DType::F32, &[2]);
    let lazy = inside(&mut net, c, x);
    let t = unary(&mut net, lazy, UnaryOp::Neg, "t");
    refused(net.mark_output(t, "y"), "lies inside of conditional \"if.0\"");
    net.add_if_output(c, t, x).unwrap();
    let d = net.add_if_conditional().unwrap();
    let inner = net.add_if_input(d, lazy).unwrap().output(0).unwrap();
    let cond = net.find("cond").unwrap();
    net.set_condition(d, cond).unwrap();
    let nested = net.add_if_output(d, inner, lazy).unwrap().output(0).unwrap();
    refused(net.mark_output(nested, "z"), "lies inside of conditional \"if.0\"");
}

#[test]
fn c02_a_condition_may_not_follow_from_its_own_result() {
    let mut net = Network::new("own");
    let c = net.add_if_conditional().unwrap();
    let x = input(&mut net, "x", DType::Bool, &[]);
    let out = net.add_if_output(c, x, x).unwrap().output(0).unwrap();
    net.set_condition(c, out).unwrap();
    refused(net.lower(), "conditional \"if.0\" depends on its own output");
}

#[test]
fn c07_without_inputs_a_conditional_is_a_select() {
    let (mut net, c) = on_input();
    let x = input(&mut net, "x", DType::F32, &[2]);
    let (t, f) = (unary(&mut net, x, UnaryOp::Neg, "t"), unary(&mut net, x, UnaryOp::Abs, "f"));
    let out = net.add_if_output(c, t, f).unwrap().output(0).unwrap();
    net.mark_output(out, "out").unwrap();
    let none: [&str; 0] = [];
    assert_eq!(places(&net.lower().unwrap()), [vec!["t", "f"], none.to_vec(), none.to_vec()]);
    let x = f32s(&[2], &[-1.0, 2.0]);
    assert_eq!(run(&net, &[truth(true), x.clone()]), [f32s(&[2], &[1.0, -2.0])]);
    assert_eq!(run(&net, &[truth(false), x]), [f32s(&[2], &[1.0, 2.0])]);
}

#[test]
fn c10_an_edge_from_branch_to_branch_is_refused() {
    let across = |net: &mut Network, c, x| {
        let x = inside(net, c, x);
        let t = unary(net, x, UnaryOp::Neg, "t");
        let f = unary(net, x, UnaryOp::Exp, "f");
        let mixed = op2(net, f, t, ElementwiseOp::Sum);
        net.add_if_output(c, t, mixed).map(drop)
    };
    refused(broken(across), "layer \"t\" belongs to both branches of conditional \"if.0\"");
}
