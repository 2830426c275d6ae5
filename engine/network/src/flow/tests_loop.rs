//! Loops: what they compute, and every rule that refuses one.

use crate::tests::{constant, f32s, input, int, ints, refused, run};
use crate::*;
use kiln_ir::tensor::Tensor;
use kiln_ir::{DType, Graph};

const CONCAT: LoopOutputKind = LoopOutputKind::Concatenate;
const LAST: LoopOutputKind = LoopOutputKind::LastValue;

fn op2(net: &mut Network, a: TensorId, b: TensorId, op: ElementwiseOp) -> TensorId {
    net.add_elementwise(a, b, op).unwrap().output(0).unwrap()
}

fn add(net: &mut Network, a: TensorId, b: TensorId) -> TensorId {
    op2(net, a, b, ElementwiseOp::Sum)
}

/// A network with a loop of `iterations` iterations.
fn counted(iterations: i64) -> (Network, LoopId) {
    let mut net = Network::new("loop");
    let l = net.add_loop().unwrap();
    let n = int(&mut net, DType::I32, iterations);
    net.add_trip_limit(l, n, TripLimitKind::Count).unwrap();
    (net, l)
}

fn iterator(net: &mut Network, l: LoopId, t: TensorId, axis: usize, reverse: bool) -> TensorId {
    net.add_iterator(l, t, axis, reverse).unwrap().output(0).unwrap()
}

/// A recurrence: its layer and its value.
fn recurrence(net: &mut Network, l: LoopId, initial: TensorId) -> (LayerId, TensorId) {
    let r = net.add_recurrence(l, initial).unwrap();
    (r.id(), r.output(0).unwrap())
}

fn output(
    net: &mut Network,
    l: LoopId,
    t: TensorId,
    kind: LoopOutputKind,
    axis: usize,
    len: i64,
) -> TensorId {
    let len = int(net, DType::I32, len);
    let o = net.add_loop_output(l, t, kind, axis).unwrap();
    o.set_input(1, len).unwrap().output(0).unwrap()
}

fn matrix() -> Tensor {
    f32s(&[2, 3], &[2.0, 3.0, 5.0, 4.0, 6.0, 8.0])
}

fn regions(g: &Graph) -> Vec<&Graph> {
    g.nodes().flat_map(|(_, n)| &n.regions).collect()
}

#[test]
fn l04_a_counted_sum_counts_up() {
    // for (i = j; iterations; i += k)
    let (mut net, l) = counted(4);
    let j = input(&mut net, "j", DType::I32, &[]);
    let k = input(&mut net, "k", DType::I32, &[]);
    let (rec, i) = recurrence(&mut net, l, j);
    let next = add(&mut net, i, k);
    net.set_input(rec, 1, next).unwrap();
    let last = net.add_loop_output(l, i, LAST, 0).unwrap().output(0).unwrap();
    let all = output(&mut net, l, i, CONCAT, 0, 4);
    net.mark_output(last, "last").unwrap();
    net.mark_output(all, "all").unwrap();
    let one = |n| ints(DType::I32, &[], &[n]);
    assert_eq!(run(&net, &[one(5), one(3)]), [one(17), ints(DType::I32, &[4], &[5, 8, 11, 14])]);
    let g = net.lower().unwrap();
    assert_eq!(g.nodes().count(), 1);
    assert_eq!(regions(&g).len(), 1);
}

#[test]
fn l09_no_trips_leave_the_initial_value() {
    for iterations in [0, -3] {
        let (mut net, l) = counted(iterations);
        let x = input(&mut net, "x", DType::F32, &[1]);
        let (rec, r) = recurrence(&mut net, l, x);
        let next = add(&mut net, r, r);
        net.set_input(rec, 1, next).unwrap();
        let last = net.add_loop_output(l, r, LAST, 0).unwrap().output(0).unwrap();
        net.mark_output(last, "y").unwrap();
        assert_eq!(run(&net, &[f32s(&[1], &[7.0])]), [f32s(&[1], &[7.0])]);
    }
}

#[test]
fn l07_l08_l10_iterators_cut_along_any_axis_in_either_direction() {
    // Axis of the iterator, reversed, iterations, axis of the output, what comes out.
    let cases: &[(usize, bool, i64, usize, &[usize], &[f64])] = &[
        (0, false, 2, 0, &[2, 3], &[2.0, 3.0, 5.0, 4.0, 6.0, 8.0]),
        (1, false, 3, 0, &[3, 2], &[2.0, 4.0, 3.0, 6.0, 5.0, 8.0]),
        (0, true, 2, 0, &[2, 3], &[4.0, 6.0, 8.0, 2.0, 3.0, 5.0]),
        (1, true, 2, 0, &[2, 2], &[3.0, 6.0, 2.0, 4.0]),
        (0, false, 2, 1, &[3, 2], &[2.0, 4.0, 3.0, 6.0, 5.0, 8.0]),
    ];
    for &(axis, reverse, iterations, at, shape, want) in cases {
        let (mut net, l) = counted(iterations);
        let x = input(&mut net, "x", DType::F32, &[2, 3]);
        let e = iterator(&mut net, l, x, axis, reverse);
        let y = output(&mut net, l, e, CONCAT, at, iterations);
        net.mark_output(y, "y").unwrap();
        assert_eq!(run(&net, &[matrix()]), [f32s(shape, want)]);
    }
}

#[test]
fn l11_l12_longer_outputs_are_padded_behind_what_was_computed() {
    for (kind, want) in [(CONCAT, [2.0, 4.0, 0.0]), (LoopOutputKind::Reverse, [4.0, 2.0, 0.0])] {
        let (mut net, l) = counted(2);
        let x = input(&mut net, "x", DType::F32, &[2]);
        let e = iterator(&mut net, l, x, 0, false);
        let y = output(&mut net, l, e, kind, 0, 3);
        net.mark_output(y, "y").unwrap();
        assert_eq!(run(&net, &[f32s(&[2], &[2.0, 4.0])]), [f32s(&[3], &want)]);
    }
}

/// Doubles x while it is below a limit; also counts, if `iterations` is given.
fn doubling(iterations: Option<i64>) -> Network {
    let mut net = Network::new("while");
    let l = net.add_loop().unwrap();
    let x = input(&mut net, "x", DType::F32, &[]);
    let limit = constant(&mut net, f32s(&[], &[50.0]));
    if let Some(n) = iterations {
        let n = int(&mut net, DType::I64, n);
        net.add_trip_limit(l, n, TripLimitKind::Count).unwrap();
    }
    let (rec, r) = recurrence(&mut net, l, x);
    let below = op2(&mut net, r, limit, ElementwiseOp::Less);
    net.add_trip_limit(l, below, TripLimitKind::While).unwrap();
    let next = add(&mut net, r, r);
    net.set_input(rec, 1, next).unwrap();
    let y = net.add_loop_output(l, r, LAST, 0).unwrap().output(0).unwrap();
    let all = net.add_loop_output(l, r, CONCAT, 0).unwrap().set_exact_length().unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    net.mark_output(all, "all").unwrap();
    net
}

#[test]
fn l06_the_first_limit_ends_a_loop() {
    let cases: &[(Option<i64>, f64, &[f64])] = &[
        (None, 96.0, &[3.0, 6.0, 12.0, 24.0, 48.0]),
        (Some(2), 12.0, &[3.0, 6.0]),
        (Some(9), 96.0, &[3.0, 6.0, 12.0, 24.0, 48.0]),
    ];
    for &(iterations, last, all) in cases {
        let out = run(&doubling(iterations), &[f32s(&[], &[3.0])]);
        assert_eq!(out, [f32s(&[], &[last]), f32s(&[all.len()], all)]);
    }
    // False at once: no iterations.
    let out = run(&doubling(None), &[f32s(&[], &[60.0])]);
    assert_eq!(out, [f32s(&[], &[60.0]), f32s(&[0], &[])]);
}

#[test]
fn l05_a_condition_is_a_region_of_what_it_needs() {
    let g = doubling(Some(2)).lower().unwrap();
    let r = regions(&g);
    let ops = |g: &Graph| g.nodes().map(|(_, n)| n.op.name()).collect::<Vec<_>>();
    assert_eq!((ops(r[0]), ops(r[1])), (vec!["add"], vec!["less"]));
}

#[test]
fn l16_loops_nest_by_the_flow_of_data() {
    // y[i] = Σ_j x[i][j]·x[i][j], the inner loop over an iterator of the outer one; the square of a constant stays out.
    let (mut net, outer) = counted(2);
    let x = input(&mut net, "x", DType::F32, &[2, 3]);
    let zero = constant(&mut net, f32s(&[], &[0.0]));
    let two = constant(&mut net, f32s(&[], &[2.0]));
    let four = op2(&mut net, two, two, ElementwiseOp::Prod);
    let row = iterator(&mut net, outer, x, 0, false);
    let inner = net.add_loop().unwrap();
    let three = int(&mut net, DType::I32, 3);
    net.add_trip_limit(inner, three, TripLimitKind::Count).unwrap();
    let e = iterator(&mut net, inner, row, 0, false);
    let (rec, s) = recurrence(&mut net, inner, zero);
    let squared = op2(&mut net, e, e, ElementwiseOp::Prod);
    let scaled = op2(&mut net, squared, four, ElementwiseOp::Prod);
    let next = add(&mut net, s, scaled);
    net.set_input(rec, 1, next).unwrap();
    let total = net.add_loop_output(inner, s, LAST, 0).unwrap().output(0).unwrap();
    let y = output(&mut net, outer, total, CONCAT, 0, 2);
    net.mark_output(y, "y").unwrap();
    assert_eq!(run(&net, &[matrix()]), [f32s(&[2], &[152.0, 464.0])]);
    let g = net.lower().unwrap();
    let ops = |g: &Graph| g.nodes().map(|(_, n)| n.op.name()).collect::<Vec<_>>();
    assert_eq!(ops(&g), ["mul", "loop"]);
    let body = regions(&g)[0];
    assert_eq!(ops(body), ["loop"]);
    assert_eq!(ops(regions(body)[0]), ["mul", "mul", "add"]);
}

#[test]
fn l18_dimensions_may_vary_where_they_are_allowed_to() {
    let build = |vary: bool| {
        let (mut net, l) = counted(3);
        let x = input(&mut net, "x", DType::F32, &[1]);
        let r = net.add_recurrence(l, x).unwrap();
        let r = if vary { r.set_varying(&[0]).unwrap() } else { r };
        let (rec, r) = (r.id(), r.output(0).unwrap());
        let attrs = kiln_ir::Attrs::new().with("axis", 0i64);
        let next = net.add_layer("", "concat", attrs, &[Some(r), Some(r)]).unwrap()[0];
        net.set_input(rec, 1, next)?;
        let y = net.add_loop_output(l, r, LAST, 0)?.output(0)?;
        net.mark_output(y, "y")?;
        Ok::<_, NetworkError>(net)
    };
    assert_eq!(run(&build(true).unwrap(), &[f32s(&[1], &[5.0])]), [f32s(&[8], &[5.0; 8])]);
    refused(build(false), "set_varying");
}

#[test]
fn l15_a_loop_without_outputs_vanishes() {
    let (mut net, l) = counted(2);
    let x = input(&mut net, "x", DType::F32, &[2]);
    let e = iterator(&mut net, l, x, 0, false);
    net.add_unary(e, UnaryOp::Neg).unwrap();
    let y = net.add_unary(x, UnaryOp::Abs).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    assert_eq!(net.lower().unwrap().nodes().count(), 1);
}

#[test]
fn l13_a_length_makes_a_last_value_a_concatenation() {
    let (mut net, l) = counted(2);
    let x = input(&mut net, "x", DType::F32, &[]);
    let (rec, r) = recurrence(&mut net, l, x);
    let next = add(&mut net, r, r);
    net.set_input(rec, 1, next).unwrap();
    let y = output(&mut net, l, r, LAST, 0, 2);
    net.mark_output(y, "y").unwrap();
    assert_eq!(run(&net, &[f32s(&[], &[1.0])]), [f32s(&[2], &[1.0, 2.0])]);
}

#[test]
fn l01_loops_and_layers_have_names() {
    let (mut net, l) = counted(1);
    net.set_loop_name(l, "decoder").unwrap();
    assert_eq!((net.loop_name(l).unwrap(), net.loop_layers(l).unwrap().len()), ("decoder", 1));
    let other = net.add_loop().unwrap();
    refused(net.set_loop_name(other, "decoder"), "used twice");
    refused(net.lower(), "has no iteration limit");
    let n = net.add_if_conditional().unwrap();
    refused(net.set_loop_name(LoopId(n.0), "x"), "no loop number 2");
    // Every boundary layer knows its loop.
    let x = input(&mut net, "x", DType::F32, &[2]);
    let i = net.add_iterator(l, x, 0, false).unwrap();
    assert_eq!((i.params().unwrap().of(), i.id()), (l, *net.loop_layers(l).unwrap().last().unwrap()));
    let (rec, r) = recurrence(&mut net, l, x);
    assert_eq!(net.layer_of::<Recurrence>(rec).unwrap().params().unwrap().of(), l);
    let o = net.add_loop_output(l, r, LAST, 0).unwrap();
    assert_eq!(o.params().unwrap().of(), l);
    let limit = net.loop_layers(l).unwrap()[0];
    assert_eq!(net.layer_of::<TripLimit>(limit).unwrap().params().unwrap().of(), l);
    assert_eq!((net.is_inside(r, l).unwrap(), net.is_inside(x, l).unwrap()), (true, false));
}

/// Builds a loop around x[2] in which `f` breaks a rule; the error of lowering, if adding went well.
fn broken(
    iterations: Option<i64>,
    f: impl FnOnce(&mut Network, LoopId, TensorId) -> Result<(), NetworkError>,
) -> Result<(), NetworkError> {
    let mut net = Network::new("broken");
    let l = net.add_loop()?;
    if let Some(n) = iterations {
        let n = int(&mut net, DType::I32, n);
        net.add_trip_limit(l, n, TripLimitKind::Count)?;
    }
    let x = input(&mut net, "x", DType::F32, &[2]);
    f(&mut net, l, x)?;
    net.lower().map(drop)
}

#[test]
fn l03_l04_limits_are_scalars_from_outside_one_of_each_kind() {
    refused(broken(None, |_, _, _| Ok(())), "loop \"loop.0\" has no iteration limit");
    let again = |net: &mut Network, l, _| {
        let n = int(net, DType::I32, 2);
        net.add_trip_limit(l, n, TripLimitKind::Count).map(drop)
    };
    refused(broken(Some(1), again), "two iteration limits of kind count");
    let float = |net: &mut Network, l, x| net.add_trip_limit(l, x, TripLimitKind::Count).map(drop);
    refused(broken(None, float), "is f32, wants i32 or i64");
    let vector = |net: &mut Network, l, _| {
        let n = constant(net, ints(DType::I64, &[1], &[2]));
        net.add_trip_limit(l, n, TripLimitKind::Count).map(drop)
    };
    refused(broken(None, vector), "wants no dimensions");
    let number = |net: &mut Network, l, _| {
        let n = int(net, DType::I32, 2);
        net.add_trip_limit(l, n, TripLimitKind::While).map(drop)
    };
    refused(broken(None, number), "is i32, wants bool");
    let inside = |net: &mut Network, l, _| {
        let n = int(net, DType::I32, 2);
        let (rec, r) = recurrence(net, l, n);
        net.set_input(rec, 1, r)?;
        net.add_trip_limit(l, r, TripLimitKind::Count).map(drop)
    };
    refused(broken(None, inside), "must come from outside of loop \"loop.0\"");
}

#[test]
fn l05_a_condition_depends_on_recurrences_only() {
    let of_iterator = |net: &mut Network, l, _| {
        let flags = input(net, "flags", DType::Bool, &[2]);
        let e = iterator(net, l, flags, 0, false);
        let not = net.add_unary(e, UnaryOp::Not)?.output(0)?;
        net.add_trip_limit(l, not, TripLimitKind::While).map(drop)
    };
    refused(broken(Some(2), of_iterator), "depends on \"iterator\" (iterator)");
    let of_inner_loop = |net: &mut Network, l, x| {
        let (rec, r) = recurrence(net, l, x);
        let inner = net.add_loop()?;
        let n = int(net, DType::I32, 2);
        net.add_trip_limit(inner, n, TripLimitKind::Count)?;
        let e = iterator(net, inner, r, 0, false);
        let zero = constant(net, f32s(&[], &[0.0]));
        let (inner_rec, s) = recurrence(net, inner, zero);
        let next = add(net, s, e);
        net.set_input(inner_rec, 1, next)?;
        let sum = net.add_loop_output(inner, s, LAST, 0)?.output(0)?;
        let asked = op2(net, sum, zero, ElementwiseOp::Less);
        net.set_input(rec, 1, r)?;
        net.add_trip_limit(l, asked, TripLimitKind::While).map(drop)
    };
    refused(broken(Some(2), of_inner_loop), "(loop_output); it may use recurrences only");
    // A recurrence of a loop inside is not a recurrence of this one.
    let of_another = |net: &mut Network, l, x| {
        let (rec, r) = recurrence(net, l, x);
        net.set_input(rec, 1, r)?;
        let inner = net.add_loop()?;
        let n = int(net, DType::I32, 2);
        net.add_trip_limit(inner, n, TripLimitKind::Count)?;
        let e = iterator(net, inner, r, 0, false);
        let (inner_rec, s) = recurrence(net, inner, e);
        net.set_input(inner_rec, 1, s)?;
        let asked = op2(net, s, s, ElementwiseOp::Less);
        net.add_trip_limit(l, asked, TripLimitKind::While).map(drop)
    };
    refused(broken(Some(2), of_another), "each uses values from inside of the other");
}

#[test]
fn l07_l08_iterators_stay_within_their_tensor() {
    let forward = |net: &mut Network, l, x| {
        let e = iterator(net, l, x, 0, false);
        output(net, l, e, CONCAT, 0, 3);
        Ok(())
    };
    refused(broken(Some(3), forward), "3 iterations, but iterator \"iterator\" has 2 elements");
    let axis = |net: &mut Network, l, x| net.add_iterator(l, x, 1, false).map(drop);
    refused(broken(Some(1), axis), "a dimension 1 to iterate over");
    let reversed = |net: &mut Network, l, x| {
        let yes = input(net, "go", DType::Bool, &[]);
        let (rec, go) = recurrence(net, l, yes);
        net.set_input(rec, 1, go)?;
        net.add_trip_limit(l, go, TripLimitKind::While)?;
        net.add_iterator(l, x, 0, true).map(drop)
    };
    refused(broken(None, reversed), "is reversed, but loop \"loop.0\" has no count");
    let own = |net: &mut Network, l, x| {
        let (rec, r) = recurrence(net, l, x);
        net.set_input(rec, 1, r)?;
        net.add_iterator(l, r, 0, false).map(drop)
    };
    refused(broken(Some(1), own), "input 0 of \"iterator\" must come from outside");
}

#[test]
fn l07_l11_a_dynamic_iterator_is_checked_when_it_runs() {
    let mut net = Network::new("dynamic");
    let l = net.add_loop().unwrap();
    let n = input(&mut net, "n", DType::I32, &[]);
    net.add_trip_limit(l, n, TripLimitKind::Count).unwrap();
    let x = input(&mut net, "x", DType::F32, &[2]);
    let e = iterator(&mut net, l, x, 0, false);
    let y = output(&mut net, l, e, CONCAT, 0, 3);
    net.mark_output(y, "y").unwrap();
    let g = net.lower().unwrap();
    let x = f32s(&[2], &[1.0, 2.0]);
    assert_eq!(g.eval(&[ints(DType::I32, &[], &[2]), x.clone()]).unwrap()[0], f32s(&[3], &[1.0, 2.0, 0.0]));
    refused(g.eval(&[ints(DType::I32, &[], &[3]), x.clone()]), "element 2 of axis 0, which has 2");
    refused(g.eval(&[ints(DType::I32, &[], &[4]), x]), "length 3, but there are 4 iterations");
}

#[test]
fn l14_recurrences_have_two_inputs_of_one_type() {
    let unset = |net: &mut Network, l, x| net.add_recurrence(l, x).map(drop);
    refused(broken(Some(1), unset), "input 1 (the next value) of \"recurrence\" was never set");
    let other = |net: &mut Network, l, x| {
        let (rec, _) = recurrence(net, l, x);
        let n = int(net, DType::I32, 1);
        net.set_input(rec, 1, n)
    };
    refused(broken(Some(1), other), "the same type and dimensions");
    let inside = |net: &mut Network, l, x| {
        let (a, r) = recurrence(net, l, x);
        net.set_input(a, 1, r)?;
        let (b, s) = recurrence(net, l, r);
        net.set_input(b, 1, s)
    };
    refused(broken(Some(1), inside), "input 0 of \"recurrence.2\" must come from outside");
    let third = |net: &mut Network, l, x| {
        let (a, r) = recurrence(net, l, x);
        net.set_input(a, 2, r)
    };
    refused(broken(Some(1), third), "takes 2 inputs, none with index 2");
}

#[test]
fn l14_only_the_second_input_of_a_recurrence_is_a_back_edge() {
    let cycle = |net: &mut Network, l, x| {
        let (rec, r) = recurrence(net, l, x);
        let a = net.add_unary(r, UnaryOp::Neg)?.output(0)?;
        let s = net.add_elementwise(a, r, ElementwiseOp::Sum)?;
        let (id, s) = (s.id(), s.output(0)?);
        net.set_input(rec, 1, s)?;
        net.set_input(id, 0, s)
    };
    refused(broken(Some(1), cycle), "would close a cycle");
    let count_of_itself = |net: &mut Network, l, _| {
        let n = int(net, DType::I32, 2);
        let (rec, r) = recurrence(net, l, n);
        net.set_input(rec, 1, r)?;
        let last = net.add_loop_output(l, r, LAST, 0)?.output(0)?;
        net.add_trip_limit(l, last, TripLimitKind::Count).map(drop)
    };
    refused(broken(None, count_of_itself), "depends on its own output");
}

#[test]
fn l09_l10_l11_l13_outputs_give_what_they_may() {
    let not_a_recurrence = |net: &mut Network, l, x| {
        let e = iterator(net, l, x, 0, false);
        net.add_loop_output(l, e, LAST, 0).map(drop)
    };
    refused(broken(Some(1), not_a_recurrence), "must be a recurrence of loop \"loop.0\"");
    let of_another_loop = |net: &mut Network, l, x| {
        let other = net.add_loop()?;
        let n = int(net, DType::I32, 1);
        net.add_trip_limit(other, n, TripLimitKind::Count)?;
        let (rec, r) = recurrence(net, other, x);
        net.set_input(rec, 1, r)?;
        net.add_loop_output(l, r, LAST, 0).map(drop)
    };
    refused(broken(Some(1), of_another_loop), "must be a recurrence of loop \"loop.0\"");
    let from_outside = |net: &mut Network, l, x| {
        output(net, l, x, CONCAT, 0, 1);
        Ok(())
    };
    refused(broken(Some(1), from_outside), "must be computed inside of loop \"loop.0\"");
    let no_length = |net: &mut Network, l, x| {
        let e = iterator(net, l, x, 0, false);
        net.add_loop_output(l, e, CONCAT, 0).map(drop)
    };
    refused(broken(Some(1), no_length), "input 1 (the length of the new dimension)");
    let length_inside = |net: &mut Network, l, x| {
        let e = iterator(net, l, x, 0, false);
        let n = int(net, DType::I32, 1);
        let (rec, r) = recurrence(net, l, n);
        net.set_input(rec, 1, r)?;
        net.add_loop_output(l, e, CONCAT, 0)?.set_input(1, r).map(drop)
    };
    refused(broken(Some(1), length_inside), "input 1 of \"loop_output\" must come from outside");
    let short = |net: &mut Network, l, x| {
        let e = iterator(net, l, x, 0, false);
        output(net, l, e, CONCAT, 0, 1);
        Ok(())
    };
    refused(broken(Some(2), short), "2 iterations, but its output \"loop_output\" has length 1");
    let float_length = |net: &mut Network, l, x| {
        let e = iterator(net, l, x, 0, false);
        net.add_loop_output(l, e, CONCAT, 0)?.set_input(1, x).map(drop)
    };
    refused(broken(Some(2), float_length), "the length of the new dimension");
    let far_axis = |net: &mut Network, l, x| {
        let e = iterator(net, l, x, 0, false);
        net.add_loop_output(l, e, CONCAT, 1).map(drop)
    };
    refused(broken(Some(2), far_axis), "at most 0, the rank");
}

#[test]
fn l02_nothing_leaves_a_loop_but_through_an_output() {
    let (mut net, l) = counted(2);
    let x = input(&mut net, "x", DType::F32, &[2]);
    let e = iterator(&mut net, l, x, 0, false);
    let y = net.add_unary(e, UnaryOp::Neg).unwrap().output(0).unwrap();
    refused(net.mark_output(y, "y"), "lies inside of loop \"loop.0\"");
    refused(net.mark_output(e, "y"), "lies inside of loop \"loop.0\"");
}

#[test]
fn l16_loops_that_overlap_are_refused() {
    // A layer that mixes two loops side by side.
    let (mut net, a) = counted(2);
    let b = net.add_loop().unwrap();
    let n = int(&mut net, DType::I32, 2);
    net.add_trip_limit(b, n, TripLimitKind::Count).unwrap();
    let x = input(&mut net, "x", DType::F32, &[2]);
    let (ea, eb) = (iterator(&mut net, a, x, 0, false), iterator(&mut net, b, x, 0, false));
    add(&mut net, ea, eb);
    refused(net.lower(), "layer \"elementwise\" uses values from inside of both");
    // Each loop uses values from inside of the other.
    let (mut net, a) = counted(2);
    let b = net.add_loop().unwrap();
    let n = int(&mut net, DType::I32, 2);
    net.add_trip_limit(b, n, TripLimitKind::Count).unwrap();
    let x = input(&mut net, "x", DType::F32, &[]);
    let ((ra, va), (rb, vb)) = (recurrence(&mut net, a, x), recurrence(&mut net, b, x));
    net.set_input(ra, 1, vb).unwrap();
    net.set_input(rb, 1, va).unwrap();
    refused(net.lower(), "each uses values from inside of the other");
    let text = net.lower().unwrap_err().to_string();
    assert!(text.contains("\"loop.0\"") && text.contains("\"loop.1\""), "{text}");
}

#[test]
fn l17_every_type_may_go_through_a_loop() {
    for t in [DType::F32, DType::F16, DType::BF16, DType::I32, DType::I64, DType::I8] {
        let (mut net, l) = counted(3);
        let x = input(&mut net, "x", t, &[]);
        let (rec, r) = recurrence(&mut net, l, x);
        let next = add(&mut net, r, r);
        net.set_input(rec, 1, next).unwrap();
        let y = net.add_loop_output(l, r, LAST, 0).unwrap().output(0).unwrap();
        net.mark_output(y, "y").unwrap();
        assert_eq!(run(&net, &[ints(t, &[], &[2])])[0].to_i64(), [16]);
    }
}

#[test]
fn l20_an_lstm_of_a_loop_is_the_operator() {
    // Two steps, batch 1, two inputs, two units; gates i, o, f, c as the operator packs them.
    let numbers = |n: usize, by: f64| (0..n).map(|i| ((i * 7 % 11) as f64 - 5.0) * by).collect::<Vec<_>>();
    let (x, w, r) = (f32s(&[2, 1, 2], &numbers(4, 0.3)), numbers(16, 0.1), numbers(16, 0.07));
    let mut net = Network::new("lstm");
    let xs = net.add_input("x", x.ty()).unwrap();
    let (wt, rt) = (constant(&mut net, f32s(&[8, 2], &w)), constant(&mut net, f32s(&[8, 2], &r)));
    let zero = constant(&mut net, f32s(&[1, 2], &[0.0; 2]));
    let l = net.add_loop().unwrap();
    let two = int(&mut net, DType::I32, 2);
    net.add_trip_limit(l, two, TripLimitKind::Count).unwrap();
    let step = iterator(&mut net, l, xs, 0, false);
    let ((hr, h), (cr, c)) = (recurrence(&mut net, l, zero), recurrence(&mut net, l, zero));
    let times = |net: &mut Network, a, b| {
        net.add_matrix_multiply(a, MatrixOp::None, b, MatrixOp::Transpose).unwrap().output(0).unwrap()
    };
    let (a, b) = (times(&mut net, step, wt), times(&mut net, h, rt));
    let gates = add(&mut net, a, b);
    let gate = |net: &mut Network, k: i64, f: ActivationKind| {
        let part = net.add_slice(gates, &[0, 2 * k], &[1, 2], &[1, 1]).unwrap().output(0).unwrap();
        net.add_activation(part, f).unwrap().output(0).unwrap()
    };
    let (sig, tanh) = (ActivationKind::Sigmoid, ActivationKind::Tanh);
    let (i, o) = (gate(&mut net, 0, sig), gate(&mut net, 1, sig));
    let (f, g) = (gate(&mut net, 2, sig), gate(&mut net, 3, tanh));
    let (kept, new) = (op2(&mut net, f, c, ElementwiseOp::Prod), op2(&mut net, i, g, ElementwiseOp::Prod));
    let next_c = add(&mut net, kept, new);
    let squashed = net.add_activation(next_c, tanh).unwrap().output(0).unwrap();
    let next_h = op2(&mut net, o, squashed, ElementwiseOp::Prod);
    net.set_input(hr, 1, next_h).unwrap();
    net.set_input(cr, 1, next_c).unwrap();
    let y = output(&mut net, l, next_h, CONCAT, 0, 2);
    net.mark_output(y, "y").unwrap();
    let by_loop = run(&net, &[x.clone()]).swap_remove(0);

    let mut net = Network::new("operator");
    let xs = net.add_input("x", x.ty()).unwrap();
    let (w, r) = (constant(&mut net, f32s(&[1, 8, 2], &w)), constant(&mut net, f32s(&[1, 8, 2], &r)));
    let attrs = kiln_ir::Attrs::new().with("hidden", 2i64);
    let y = net.add_layer("lstm", "lstm", attrs, &[Some(xs), Some(w), Some(r)]).unwrap()[0];
    net.mark_output(y, "y").unwrap();
    let by_operator = run(&net, &[x]).swap_remove(0);
    assert_eq!((by_loop.len(), by_operator.len()), (4, 4));
    for (a, b) in by_loop.to_f64().iter().zip(by_operator.to_f64()) {
        assert!((a - b).abs() < 1e-6 && *a != 0.0, "{a} and {b}");
    }
}
