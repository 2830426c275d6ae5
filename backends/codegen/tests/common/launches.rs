//! Launches of a backend as data, for every operator's problems: those that a build stores are those that the host's code plans
//! before a run, whatever a run adds to what the build knew.

use kiln_backend::launch::{Condition, LaunchProgram, LaunchSite, PlanLaunches};
use kiln_backend::{Backend, BackendError, Program, Region, ShapeRange, Tactic, Target};
use kiln_codegen::planned::Planned;
use kiln_ir::problem::Rng;
use kiln_ir::{Dim, Fact, Graph, NodeId, Tensor, ValueId};

/// Plans the launches of a region's kernel by a tactic.
pub type Plan = fn(&Region, &Tactic, &Target) -> Result<Planned, BackendError>;

/// Number of kernels, and of those whose launches are data.
#[derive(Default)]
pub struct Counts {
    kernels: usize,
    data: usize,
    /// Kernels with shapes that only a run knows.
    open_kernels: usize,
    open_data: usize,
    /// Kernels with ranges of shapes, and of those whose launches are data at all of them.
    ranged_kernels: usize,
    ranged_data: usize,
}

/// Checks the launches of all tactics that a backend offers for these targets.
pub fn check(backend: &dyn Backend, targets: &[Target], rounds: usize, plan: Plan) {
    let mut counts = Counts::default();
    for target in targets {
        for def in kiln_ops::all() {
            for p in (def.problems)(&mut Rng::new(5)) {
                let Ok((program, given)) = Program::single(&p.op, &p.inputs) else { continue };
                let label = format!("{} {} ({})", target.arch, def.name, p.label);
                for (_, region) in super::offers::regions(&program) {
                    of_region(backend, target, rounds, plan, &region, &given, &label, &mut counts);
                }
            }
        }
    }
    let Counts { kernels, data, open_kernels, open_data, ranged_kernels, ranged_data } = counts;
    eprintln!("{data} of {kernels} kernels; of varying shape {open_data} of {open_kernels}");
    eprintln!("of ranges of shapes {ranged_data} of {ranged_kernels}");
    assert!(
        kernels > 1000 && data * 100 >= kernels * 95,
        "{data} of {kernels} kernels have launches as data"
    );
    assert!(open_data > 50, "{open_data} of {open_kernels} kernels of varying shape have launches as data");
    assert!(
        ranged_kernels > 1000 && ranged_data * 100 >= ranged_kernels * 95,
        "{ranged_data} of {ranged_kernels} kernels of ranges of shapes have launches as data"
    );
}

/// Checks one region, with the shapes that it has, and with such as only a run knows.
#[allow(clippy::too_many_arguments, reason = "a test")]
fn of_region(
    backend: &dyn Backend,
    target: &Target,
    rounds: usize,
    plan: Plan,
    region: &Region,
    given: &[Tensor],
    label: &str,
    counts: &mut Counts,
) {
    let Ok(found) = backend.tactics(region, target) else { return };
    let runs = facts(&region.graph, given);
    for t in found {
        let planned = plan(region, &t, target).unwrap_or_else(|e| panic!("{label} {}: {e}", t.id()));
        counts.kernels += 1;
        let Some(data) = &planned.launches else { continue };
        counts.data += 1;
        runs.iter().for_each(|facts| same(&planned, data, &region.graph, &t, facts, rounds, label));
    }
    let Some(open) = varying(region) else { return };
    for t in backend.tactics(&open, target).unwrap_or_default() {
        let planned = plan(&open, &t, target).unwrap_or_else(|e| panic!("{label} {}: {e}", t.id()));
        counts.open_kernels += 1;
        let ranged =
            plan(&Region { ranges: Some(vec![range(&open, region, given)]), ..open.clone() }, &t, target);
        counts.ranged_kernels += 1;
        match ranged.as_ref().map(|p| p.launches.as_ref()) {
            Ok(Some(data)) => {
                counts.ranged_data += 1;
                runs.iter()
                    .skip(1)
                    .for_each(|facts| same(&planned, data, &open.graph, &t, facts, rounds, label));
            }
            Ok(None) => panic!("{label} {}: no launches, and no refusal", t.id()),
            Err(BackendError::Unsupported(why)) => eprintln!("{label} {}: {why}", t.id()),
            Err(e) => panic!("{label} {}: {e}", t.id()),
        }
        let Some(data) = &planned.launches else { continue };
        counts.open_data += 1;
        runs.iter().for_each(|facts| same(&planned, data, &open.graph, &t, facts, rounds, label));
    }
}

/// The shapes of a region's inputs around those of a run, with the contents of the run.
fn range(open: &Region, region: &Region, given: &[Tensor]) -> ShapeRange {
    let (mut inputs, mut symbols) = (Graph::new(""), Vec::new());
    for (i, &v) in open.graph.inputs.iter().enumerate() {
        let small = given.get(i).filter(|t| t.len() <= 64).cloned();
        let value = small.and_then(|t| Fact::constant(t).value);
        let ty = open.graph.value(v).fact.ty.clone();
        let shape = region.graph.ty(region.graph.inputs[i]).static_dims().unwrap_or_default();
        for (dim, n) in ty.dims.iter().zip(shape) {
            // Two sizes of each of the first dimensions: the others are one number.
            let more = i64::from(symbols.len() < 6);
            dim.visit(&mut |s| symbols.push((s.name.to_string(), n as i64, n as i64 + more)));
        }
        inputs.add_input(&format!("v{i}"), Fact { ty, value });
    }
    ShapeRange { inputs, symbols }
}

/// Facts of all values in runs: with shapes alone, and with contents that the host happens to know.
fn facts(g: &Graph, given: &[Tensor]) -> Vec<Vec<Fact>> {
    let shapes: Vec<Fact> = g.inputs.iter().map(|&v| g.value(v).fact.clone()).collect();
    let mut known = shapes.clone();
    for (fact, t) in known.iter_mut().zip(given) {
        *fact = Fact::constant(t.clone());
    }
    [shapes, known].iter().filter_map(|facts| g.infer_from(facts).ok()).collect()
}

/// The region with a symbol for each dimension of its inputs; none where it cannot be inferred so.
fn varying(region: &Region) -> Option<Region> {
    let mut open = region.clone();
    let inputs: Vec<Fact> = open.graph.inputs.iter().map(|&v| open.graph.value(v).fact.clone()).collect();
    let symbols = |(i, mut fact): (usize, Fact)| {
        for (d, dim) in fact.ty.dims.iter_mut().enumerate() {
            *dim = Dim::host(format!("d{i}_{d}"));
        }
        fact.value = None;
        fact
    };
    let inputs: Vec<Fact> = inputs.into_iter().enumerate().map(symbols).collect();
    let facts = open.graph.infer_from(&inputs).ok()?;
    for (v, fact) in open.graph.value_ids().zip(facts).collect::<Vec<_>>() {
        open.graph.value_mut(v).fact = fact;
    }
    Some(open)
}

/// Compares data and code under each outcome of some conditions.
fn same(
    planned: &Planned,
    data: &LaunchProgram,
    graph: &Graph,
    tactic: &Tactic,
    facts: &[Fact],
    rounds: usize,
    label: &str,
) {
    let nodes: Vec<NodeId> = graph.nodes().map(|(id, _)| id).collect();
    let anchor = planned.operands.anchor.and_then(|k| graph.get(nodes[k as usize]));
    let results = anchor.map(|n| n.outputs.clone()).unwrap_or_default();
    let wanted: Vec<bool> = results.iter().map(|v| graph.outputs.contains(v)).collect();
    for outcome in 0..8 {
        let holds = |c: Condition| match c {
            Condition::Weight(_) => outcome & 1 != 0,
            Condition::Aliased(..) => outcome & 2 != 0,
            Condition::Given(_) => outcome & 4 != 0,
        };
        let fact = |v: ValueId| &facts[v.0 as usize];
        let site = LaunchSite {
            graph,
            nodes: &nodes,
            operands: &planned.operands,
            tactic,
            fact: &fact,
            wanted: &wanted,
            rounds,
            holds: &holds,
        };
        if site.computes_nothing() {
            continue;
        }
        let wanted = planned.planner.launches(&site);
        let wanted =
            wanted.unwrap_or_else(|e| panic!("{label} {}: data where the host refuses: {e}", tactic.id()));
        let found = data.evaluate(&site);
        assert_eq!(found, Ok(Some(wanted)), "{label} {} under {outcome}", tactic.id());
    }
}
