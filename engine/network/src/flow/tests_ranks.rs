//! Conditionals whose branches yield different ranks.

use super::tests_if::{on_input, truth};
use crate::tests::{f32s, input, ints, refused, run};
use crate::*;
use kiln_ir::DType;
use kiln_ir::attr::Attrs;

/// A conditional on the first input, x f32[2] if true and m f32[2,3] if false, and its result.
fn either(net: &mut Network, c: IfId) -> [TensorId; 3] {
    let x = input(net, "x", DType::F32, &[2]);
    let m = input(net, "m", DType::F32, &[2, 3]);
    let r = net.add_if_output(c, x, m).unwrap().output(0).unwrap();
    [x, m, r]
}

fn given(c: bool) -> [kiln_ir::Tensor; 3] {
    [truth(c), f32s(&[2], &[1.0, 2.0]), f32s(&[2, 3], &[3.0, 4.0, 5.0, 6.0, 7.0, 8.0])]
}

#[test]
fn layers_are_inferred_for_both_branches_until_the_ranks_agree() {
    let (mut net, c) = on_input();
    let [_, _, r] = either(&mut net, c);
    let types = net.branch_types(r).unwrap().map(|t| t.to_string());
    assert_eq!(types, ["f32[2]", "f32[2,3]"]);
    let twice = net.add_unary(r, UnaryOp::Neg).unwrap().set_name("negated").unwrap().output(0).unwrap();
    assert!(net.branch_types(twice).is_some());
    let flat = net.add_shuffle(twice).unwrap().set_reshape_dimensions(&[-1]).unwrap().output(0).unwrap();
    assert!(net.branch_types(flat).is_none());
    assert_eq!(net.ty(flat).dims[0].upper_bound(), Some(6.into()));
    // Behind it the network goes on as usual.
    let sum = net.add_reduce(flat, ReduceOp::Sum, 1, false).unwrap().output(0).unwrap();
    net.mark_output(flat, "flat").unwrap();
    net.mark_output(sum, "sum").unwrap();
    assert_eq!(run(&net, &given(true)), [f32s(&[2], &[-1.0, -2.0]), f32s(&[], &[-3.0])]);
    let all = f32s(&[6], &[-3.0, -4.0, -5.0, -6.0, -7.0, -8.0]);
    assert_eq!(run(&net, &given(false)), [all, f32s(&[], &[-33.0])]);
}

#[test]
fn what_follows_from_a_result_is_computed_inside_where_it_meets_one() {
    let (mut net, c) = on_input();
    let [_, _, r] = either(&mut net, c);
    // The shape has a length of its own in each branch, and the reshape reads it together with the result.
    let shape = net.add_shape(r).unwrap().output(0).unwrap();
    let copy = net.add_identity(shape).unwrap().output(0).unwrap();
    let doubled = net.add_elementwise(r, r, ElementwiseOp::Sum).unwrap().output(0).unwrap();
    let same = net.add_layer("same", "reshape", Attrs::new(), &[Some(doubled), Some(copy)]).unwrap()[0];
    let total = net.add_reduce(same, ReduceOp::Sum, 1, false);
    // A reduction of axis 0 leaves ranks 0 and 1.
    let total = total.unwrap().output(0).unwrap();
    assert!(net.branch_types(total).is_some());
    let flat = net.add_shuffle(total).unwrap().set_reshape_dimensions(&[-1]).unwrap().output(0).unwrap();
    net.mark_output(flat, "flat").unwrap();
    net.mark_output(shape, "dims").unwrap();
    let dims = |v: &[i64]| ints(DType::I64, &[v.len()], v);
    assert_eq!(run(&net, &given(true)), [f32s(&[1], &[6.0]), dims(&[2])]);
    assert_eq!(run(&net, &given(false)), [f32s(&[3], &[18.0, 22.0, 26.0]), dims(&[2, 3])]);
}

#[test]
fn results_of_two_ranks_do_not_leave_the_network() {
    let (mut net, c) = on_input();
    let [x, _, r] = either(&mut net, c);
    refused(net.mark_output(r, "r"), "no tensor has two ranks");
    let l = net.add_loop().unwrap();
    refused(net.add_recurrence(l, r).map(drop), "another rank in each branch (f32[2] or f32[2,3])");
    let other = net.add_if_conditional().unwrap();
    let c2 = input(&mut net, "c2", DType::Bool, &[]);
    net.set_condition(other, c2).unwrap();
    refused(net.add_if_input(other, r).map(drop), "another rank in each branch");
    let row = input(&mut net, "row", DType::F32, &[1, 1]);
    let second = net.add_if_output(other, x, row).unwrap().output(0).unwrap();
    let both = net.add_elementwise(r, second, ElementwiseOp::Sum).map(drop);
    refused(both, "together with the result of another such conditional");
    // A known condition needs none of this.
    let mut net = Network::new("known");
    let c = net.add_if_conditional().unwrap();
    let [_, _, r] = either(&mut net, c);
    assert!(net.branch_types(r).is_some());
    let no = net.add_weights(None, truth(false)).unwrap();
    net.set_condition(c, no).unwrap();
    assert!(net.branch_types(r).is_none());
    net.mark_output(r, "r").unwrap();
    assert_eq!(run(&net, &given(false)[1..]), [given(false)[2].clone()]);
}

#[test]
fn parameters_of_layers_change_for_both_branches() {
    let (mut net, c) = on_input();
    let [_, _, r] = either(&mut net, c);
    let reduce = net.add_reduce(r, ReduceOp::Sum, 1, true).unwrap();
    let (id, sums) = (reduce.id(), reduce.output(0).unwrap());
    let types = net.branch_types(sums).unwrap().map(|t| t.to_string());
    assert_eq!(types, ["f32[1]", "f32[1,3]"]);
    refused(net.layer_of::<Reduce>(id).unwrap().set_reduce_axes(2).map(drop), "lowest 1 bits");
    net.layer_of::<Reduce>(id).unwrap().set_operation(ReduceOp::Max).unwrap();
    let flat = net.add_shuffle(sums).unwrap().set_reshape_dimensions(&[-1]).unwrap().output(0).unwrap();
    net.mark_output(flat, "flat").unwrap();
    assert_eq!(run(&net, &given(true)), [f32s(&[1], &[2.0])]);
    assert_eq!(run(&net, &given(false)), [f32s(&[3], &[6.0, 7.0, 8.0])]);
}

#[test]
fn weights_of_layers_serve_both_branches() {
    let (mut net, c) = on_input();
    let a = input(&mut net, "a", DType::F32, &[2, 1, 1]);
    let b = input(&mut net, "b", DType::F32, &[2, 2, 1, 1]);
    let r = net.add_if_output(c, a, b).unwrap().output(0).unwrap();
    let fc = net.add_fully_connected(r, 1, f32s(&[2], &[1.0, 10.0]), Weights::None).unwrap();
    let fc = fc.set_weights_name(WeightsRole::Kernel, "w").unwrap().output(0).unwrap();
    let flat = net.add_shuffle(fc).unwrap().set_reshape_dimensions(&[-1]).unwrap().output(0).unwrap();
    net.mark_output(flat, "flat").unwrap();
    let given = |c| [truth(c), f32s(&[2, 1, 1], &[1.0, 2.0]), f32s(&[2, 2, 1, 1], &[3.0, 4.0, 5.0, 6.0])];
    assert_eq!(run(&net, &given(true)), [f32s(&[1], &[21.0])]);
    assert_eq!(run(&net, &given(false)), [f32s(&[2], &[43.0, 65.0])]);
    // A refit knows the weights once.
    let uses = net.lower().unwrap().weight_uses;
    assert!(uses.iter().all(|u| &*u.weight == "w") && uses.len() == 2, "{uses:?}");
}

#[test]
fn results_of_two_ranks_are_read_inside_of_loops_and_branches() {
    // For each item: the sum of x if it is positive, else that of m, times the item.
    let mut net = Network::new("loop");
    let items = input(&mut net, "items", DType::F32, &[3]);
    let x = input(&mut net, "x", DType::F32, &[2]);
    let m = input(&mut net, "m", DType::F32, &[2, 2]);
    let l = net.add_loop().unwrap();
    let count = net.add_weights(None, ints(DType::I64, &[], &[3])).unwrap();
    net.add_trip_limit(l, count, TripLimitKind::Count).unwrap();
    let item = net.add_iterator(l, items, 0, false).unwrap().output(0).unwrap();
    let zero = net.add_weights(None, f32s(&[], &[0.0])).unwrap();
    let total = net.add_recurrence(l, zero).unwrap();
    let (total, now) = (total.id(), total.output(0).unwrap());
    let positive = net.add_elementwise(item, zero, ElementwiseOp::Greater).unwrap().output(0).unwrap();
    let c = net.add_if_conditional().unwrap();
    net.set_condition(c, positive).unwrap();
    let r = net.add_if_output(c, x, m).unwrap().output(0).unwrap();
    let twice = net.add_elementwise(r, r, ElementwiseOp::Sum).unwrap().output(0).unwrap();
    let flat = net.add_shuffle(twice).unwrap().set_reshape_dimensions(&[-1]).unwrap().output(0).unwrap();
    let sum = net.add_reduce(flat, ReduceOp::Sum, 1, false).unwrap().output(0).unwrap();
    let part = net.add_elementwise(sum, item, ElementwiseOp::Prod).unwrap().output(0).unwrap();
    let next = net.add_elementwise(now, part, ElementwiseOp::Sum).unwrap().output(0).unwrap();
    net.set_input(total, 1, next).unwrap();
    let y = net.add_loop_output(l, now, kiln_ir::graph::LoopOutputKind::LastValue, 0).unwrap();
    let y = y.output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    let given =
        [f32s(&[3], &[1.0, -2.0, 3.0]), f32s(&[2], &[1.0, 2.0]), f32s(&[2, 2], &[1.0, 1.0, 1.0, 2.0])];
    // 2·(1·3 − 2·5 + 3·3)
    assert_eq!(run(&net, &given), [f32s(&[], &[4.0])]);

    // In a branch of another conditional.
    let (mut net, outer) = on_input();
    let c2 = input(&mut net, "c2", DType::Bool, &[]);
    let x = input(&mut net, "x", DType::F32, &[2]);
    let m = input(&mut net, "m", DType::F32, &[2, 2]);
    let [c2, x, m] = [c2, x, m].map(|t| net.add_if_input(outer, t).unwrap().output(0).unwrap());
    let inner = net.add_if_conditional().unwrap();
    net.set_condition(inner, c2).unwrap();
    let r = net.add_if_output(inner, x, m).unwrap().output(0).unwrap();
    let flat = net.add_shuffle(r).unwrap().set_reshape_dimensions(&[-1]).unwrap().output(0).unwrap();
    let sum = net.add_reduce(flat, ReduceOp::Sum, 1, true).unwrap().output(0).unwrap();
    let minus = net.add_weights(None, f32s(&[1], &[-1.0])).unwrap();
    let y = net.add_if_output(outer, sum, minus).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    let go = |a, b| {
        let (x, m) = (f32s(&[2], &[1.0, 2.0]), f32s(&[2, 2], &[3.0, 4.0, 5.0, 6.0]));
        run(&net, &[truth(a), truth(b), x, m]).remove(0)
    };
    assert_eq!(go(true, true), f32s(&[1], &[3.0]));
    assert_eq!(go(true, false), f32s(&[1], &[18.0]));
    assert_eq!(go(false, false), f32s(&[1], &[-1.0]));
}

#[test]
fn long_chains_behind_two_ranks_take_time_in_proportion() {
    let (mut net, c) = on_input();
    let [_, _, mut r] = either(&mut net, c);
    for _ in 0..3000 {
        r = net.add_unary(r, UnaryOp::Neg).unwrap().output(0).unwrap();
    }
    let flat = net.add_shuffle(r).unwrap().set_reshape_dimensions(&[-1]).unwrap().output(0).unwrap();
    net.mark_output(flat, "flat").unwrap();
    let start = std::time::Instant::now();
    let g = net.lower().unwrap();
    // Each layer is in both branches, the shuffle too.
    assert_eq!(g.nodes().count(), 1 + 2 * 3001);
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
}
