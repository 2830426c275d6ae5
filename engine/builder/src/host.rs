//! Steps at which runs of a program will need the host, as far as a build can tell.

use crate::bodies;
use kiln_backend::assisted::{self, HOST_IS_DEVICE, ORACLE_IS_FALLBACK, Reason};
use kiln_backend::launch::any_splits_graphs;
use kiln_backend::{HostStep, Program, Shapes, Step, Target, flow, host_layer};
use kiln_ir::{DType, Dim, Elems, Fact, Graph, Node, Tensor, ValueId};
use kiln_ops::control::LOOP;
use kiln_ops::generate::random::is_fresh;
use std::collections::BTreeSet;

/// The steps of a program, and of the bodies in it, at which runs at one of these points need the host; points are facts of
/// all values. Where the host is the device, those that only the oracle computes. Contents of shape inputs are given to the host with each run.
pub(crate) fn expected(program: &Program, points: &[Vec<Fact>], target: &Target) -> Vec<HostStep> {
    let mut all: Vec<HostStep> = Vec::new();
    if target.has(ORACLE_IS_FALLBACK) {
        all.extend(by_oracle(program));
    }
    if target.has(HOST_IS_DEVICE) {
        return all;
    }
    for facts in points {
        let facts = with_contents(program, facts, target);
        for s in at(program, &facts, target) {
            if !all.contains(&s) {
                all.push(s);
            }
        }
    }
    all.sort_by(|a, b| (a.step, &a.inside).cmp(&(b.step, &b.inside)));
    all
}

/// Steps of the tactic of the oracle, in bodies too.
fn by_oracle(program: &Program) -> Vec<HostStep> {
    let mut all = Vec::new();
    for (i, step) in program.steps.iter().enumerate() {
        if step.tactic.name == assisted::ORACLE {
            all.push(HostStep::new(i, assisted::BY_ORACLE));
        }
        let bodies = step.bodies.iter().enumerate();
        all.extend(bodies.flat_map(|(k, b)| by_oracle(b).into_iter().map(move |s| s.within(i, k))));
    }
    all
}

/// Facts in which inputs that the host plans by have contents. Where no profile has them, as for numbers that
/// are not integers and for iteration counts, they are ones. Where the network takes no ones, they are a size
/// that stands in it: any contents show what follows from them. Without contents where none of these fits.
fn with_contents(program: &Program, facts: &[Fact], target: &Target) -> Vec<Fact> {
    let g = &program.graph;
    let own: Vec<Fact> = g.inputs.iter().map(|&v| facts[v.0 as usize].clone()).collect();
    let unknown: Vec<usize> =
        planned_by(program, target).into_iter().filter(|&i| own[i].as_const().is_none()).collect();
    if unknown.is_empty() {
        return facts.to_vec();
    }
    let filled = |n: i64| {
        let mut inputs = own.clone();
        for &i in &unknown {
            let ty = &own[i].ty;
            let n = if ty.dtype == DType::Bool { 1 } else { n };
            let t = ty.static_dims().and_then(|d| filled(ty.dtype, &d, n));
            inputs[i] = t.map_or_else(|| own[i].clone(), Fact::constant);
        }
        g.infer_from(&inputs).ok()
    };
    let mut sizes = BTreeSet::new();
    bodies::sizes_in(g, &mut sizes);
    let guesses = std::iter::once(1).chain(sizes.into_iter().filter(|&n| n > 1).take(bodies::GUESSES));
    guesses.into_iter().find_map(filled).unwrap_or_else(|| facts.to_vec())
}

/// Positions of inputs whose contents come with each run and are planned by: shape inputs and inputs that decide control flow,
/// of backends that leave it to the device those that decide sizes.
fn planned_by(program: &Program, target: &Target) -> Vec<usize> {
    let mut all = program.shape_inputs();
    let decisions = match target.has(assisted::DEVICE_FLOW) {
        true => flow::Decisions::Sizes,
        false => flow::Decisions::All,
    };
    all.extend(flow::deciding_inputs(program, decisions));
    all.sort_unstable();
    all.dedup();
    all
}

fn filled(dtype: DType, shape: &[usize], n: i64) -> Option<Tensor> {
    let len: usize = shape.iter().product();
    Tensor::from_elems(dtype, shape, &Elems::F(vec![n as f64; len]))
}

/// Steps that need the host in runs at one point.
fn at(program: &Program, facts: &[Fact], target: &Target) -> Vec<HostStep> {
    let mut shapes = Shapes::new(facts.to_vec());
    let mut all = Vec::new();
    let stops = program.steps.iter().any(|s| waits(program, s, &shapes));
    for (i, step) in program.steps.iter().enumerate() {
        // Shapes that the bounds of sizes do not fit say nothing of the steps behind.
        if shapes.update(program, step).is_err() {
            break;
        }
        if let Some(node) = flow::node(&program.graph, step) {
            let inside = inside(program, step, node, &shapes, target);
            let why = match target.has(assisted::DEVICE_FLOW) {
                true => on_device(program, node, &shapes, stops, &inside)
                    .or_else(|| step.bodies.iter().any(any_splits_graphs).then_some(assisted::CALLED)),
                false => on_host(program, node, &shapes, &inside),
            };
            all.extend(why.map(|why| HostStep::new(i, why)));
            let bodies = inside.into_iter().enumerate();
            all.extend(bodies.flat_map(|(k, b)| b.steps.into_iter().map(move |s| s.within(i, k))));
        } else if host_layer::node(&program.graph, step).is_some() {
            all.push(HostStep::new(i, assisted::PLUGIN));
        } else {
            if !shapes.unknown_host_ports(program, step).is_empty() {
                all.push(HostStep::new(i, assisted::CONTENTS));
            }
            if let Some(why) = shapes.counted(program, step) {
                let bounded = |v: &ValueId| shapes.fact(*v).ty.dims.iter().all(|d| greatest(d).is_some());
                let all_bounded = nodes(program, step).flat_map(|n| &n.outputs).all(bounded);
                all.push(HostStep::new(i, if all_bounded { why } else { assisted::UNBOUNDED_SIZES }));
            }
        }
        assume_bounds(program, step, &mut shapes);
    }
    all
}

fn nodes<'a>(program: &'a Program, step: &'a Step) -> impl Iterator<Item = &'a Node> {
    step.nodes.iter().filter_map(|&n| program.graph.get(n))
}

/// Whether a step that is not control flow keeps a whole program from being one piece of work of the device.
fn waits(program: &Program, step: &Step, shapes: &Shapes) -> bool {
    host_layer::node(&program.graph, step).is_some()
        || shapes.counted(program, step).is_some()
        || nodes(program, step).any(|n| is_fresh(&n.op))
}

/// The greatest that a dimension may become, if a number bounds it.
fn greatest(d: &Dim) -> Option<i64> {
    d.as_const().or_else(|| d.upper_bound()?.as_const())
}

/// Sets sizes that the step computes to their bounds, so that no later step is reported for the same reason.
fn assume_bounds(program: &Program, step: &Step, shapes: &mut Shapes) {
    for &v in nodes(program, step).flat_map(|n| &n.outputs) {
        if shapes.shape(v).is_some() {
            continue;
        }
        let size = |d: &Dim| greatest(d).unwrap_or(1).max(0);
        let shape: Vec<usize> = shapes.fact(v).ty.dims.iter().map(|d| size(d) as usize).collect();
        shapes.set_shape(v, &shape);
    }
}

/// Facts of a body of control flow.
struct Inside {
    /// Steps of the body that need the host.
    steps: Vec<HostStep>,
    /// Whether the sizes of all its values are known before a run.
    sized: bool,
    /// Whether the host knows the contents of all its inputs that it must know.
    told: bool,
}

/// The bodies of a step of control flow.
fn inside(program: &Program, step: &Step, node: &Node, shapes: &Shapes, target: &Target) -> Vec<Inside> {
    let facts: Vec<Fact> = program.graph.value_ids().map(|v| shapes.fact(v).clone()).collect();
    let Ok(mut inputs) = bodies::region_facts(&program.graph, node, &facts) else { return Vec::new() };
    if !target.has(assisted::DEVICE_FLOW) {
        let planned: Vec<Vec<usize>> = step.bodies.iter().map(|b| planned_by(b, target)).collect();
        for (inputs, planned) in inputs.iter_mut().zip(&planned) {
            without_others(inputs, planned);
        }
        if let (Ok(s), Some(first)) = (node.loop_shape(node.inputs.len()), inputs.first_mut())
            && let (Some(body), Some(planned)) = (step.bodies.first(), planned.first())
            && let Some(walked) = walked(
                &program.graph,
                shapes,
                node.inputs.get(s.initials()).unwrap_or_default(),
                body,
                planned,
                first,
            )
        {
            *first = walked;
        }
    }
    let one = |(body, inputs): (&Program, Vec<Fact>)| {
        let read = body.shape_inputs();
        let told = read.iter().all(|&i| inputs.get(i).is_some_and(|f| f.as_const().is_some()));
        let facts = body_facts(body, &inputs).unwrap_or_default();
        let sized = !facts.is_empty() && sized(&body.graph, &facts);
        let steps = if facts.is_empty() { Vec::new() } else { at(body, &facts, target) };
        Inside { steps, sized, told }
    };
    step.bodies.iter().zip(inputs).map(one).collect()
}

/// Whether the sizes of all values that exist are numbers.
fn sized(g: &Graph, facts: &[Fact]) -> bool {
    let size = |v: &ValueId| facts.get(v.0 as usize).is_some_and(|f| f.ty.static_dims().is_some());
    g.inputs.iter().all(size) && g.nodes().flat_map(|(_, n)| &n.outputs).all(size)
}

/// Forgets the contents of all inputs but these: a context that walks a body is told no others.
fn without_others(inputs: &mut [Fact], planned: &[usize]) {
    for (_, f) in inputs.iter_mut().enumerate().filter(|(i, _)| !planned.contains(i)) {
        *f = Fact::of(f.ty.clone());
    }
}

/// Facts of the inputs of a loop's body in its second iteration, for a host that walks it. Sizes of carried
/// values are those that the first iteration computes. Elements that the host plans by are followed where
/// each iteration computes them from such. `None` where the first iterations do not determine all sizes.
fn walked(
    outer: &Graph,
    shapes: &Shapes,
    initials: &[Option<ValueId>],
    body: &Program,
    planned: &[usize],
    inputs: &[Fact],
) -> Option<Vec<Fact>> {
    let g = &body.graph;
    let mut now = inputs.to_vec();
    for (i, (fact, v)) in now.iter_mut().zip(initials).enumerate() {
        let v = (*v)?;
        let content = shapes.content(outer, v).filter(|_| planned.contains(&i));
        *fact = content.map_or_else(|| shapes.fact(v).clone(), Fact::constant);
    }
    without_others(&mut now, planned);
    let known = |facts: &[Fact]| -> Vec<bool> { facts.iter().map(|f| f.as_const().is_some()).collect() };
    for _ in 0..2 {
        let before = known(&now);
        let facts = g.infer_from(&now).ok()?;
        if !sized(g, &facts) {
            return None;
        }
        for (fact, &v) in now.iter_mut().zip(&g.outputs).take(initials.len()) {
            *fact = facts[v.0 as usize].clone();
        }
        without_others(&mut now, planned);
        // An element that is known at first alone is read in later iterations.
        let lost = before.iter().zip(known(&now)).any(|(before, now)| *before && !now);
        if lost {
            return None;
        }
    }
    Some(now)
}

/// Facts of all values of a body: from those of its inputs, or its own where these do not fit, as in a branch that is not
/// taken at these shapes.
fn body_facts(body: &Program, inputs: &[Fact]) -> Option<Vec<Fact>> {
    let g = &body.graph;
    let own = || g.inputs.iter().map(|&v| g.value(v).fact.clone()).collect::<Vec<_>>();
    g.infer_from(inputs).or_else(|_| g.infer_from(&own())).ok()
}

/// Whether the host has to read what decides a loop or conditional that it walks, or sizes of it. Iterations of a known
/// number are recorded like any other work.
fn on_host(program: &Program, node: &Node, shapes: &Shapes, inside: &[Inside]) -> Option<Reason> {
    let known = |i: usize| {
        let v = node.inputs.get(i).copied().flatten();
        v.is_some_and(|v| shapes.content(&program.graph, v).is_some())
    };
    let decided = match node.op.is(LOOP) {
        true => node
            .loop_shape(node.inputs.len())
            .is_ok_and(|s| s.count && !s.condition && known(0) && s.lengths().into_iter().all(known)),
        false => known(0),
    };
    // Sizes that the iterations change are known when the last of them is recorded.
    let walked = node.op.is(LOOP) && inside.first().is_some_and(|b| b.sized && b.told);
    let sized = walked || node.outputs.iter().all(|&v| shapes.shape(v).is_some());
    let bodies = inside.iter().all(|b| b.steps.is_empty() && b.told);
    (!decided || !sized || !bodies).then_some(assisted::DECISIONS)
}

/// Reason why a backend that keeps control flow on the device leaves this one to the host.
fn on_device(
    program: &Program,
    node: &Node,
    shapes: &Shapes,
    stops: bool,
    inside: &[Inside],
) -> Option<Reason> {
    let all_bounded = |v: &ValueId| {
        shapes.fact(*v).ty.dims.iter().all(|d| greatest(d).is_some()) || program.graph.weight(*v).is_some()
    };
    let fresh = |g: &kiln_ir::Graph| g.nodes().any(|(_, n)| is_fresh(&n.op));
    let takes_slices = || {
        let shape = node.loop_shape(node.inputs.len());
        node.op.is(LOOP) && shape.is_ok_and(|s| !s.count && s.has_slices())
    };
    if stops {
        Some(assisted::BESIDE)
    } else if inside.iter().any(|b| !b.steps.is_empty()) || node.regions.iter().any(fresh) {
        Some(assisted::INSIDE)
    } else {
        let bounded = inside.iter().all(|b| b.sized)
            && node.inputs.iter().flatten().chain(&node.outputs).all(all_bounded);
        (takes_slices() || !bounded).then_some(assisted::UNBOUNDED)
    }
}
