//! Kernels of a program: a tactic for each region, at the usual shapes and in other cases, compiled.

use crate::ahead::compile_all;
use crate::cases::CasePoint;
use crate::memory::{self, StepUse};
use crate::passes::PassCx;
use crate::points::{Points, Span};
use crate::report::{AlternativeReport, StepReport, TensorLayout};
use crate::search::{Considered, Formed, Given, Search};
use crate::tuner::{Choice, Tuner, concretize};
use crate::{BuildError, bodies, largest, selection};
use kiln_backend::{Alternative, BackendError, Case, Program, Region, Step, Tactic, Target, flow};
use kiln_ir::{Bytes, Fact, Graph, Node, NodeId, ValueId};
use std::collections::HashSet;
use std::time::Instant;

/// Layers with several kernels that the note of a build names.
const NAMED: usize = 8;

/// A program with its memory plan. `streams` are those of the steps, none where all are in one.
pub(crate) fn planned(
    graph: Graph,
    steps: Vec<Step>,
    points: &Points,
    target: &Target,
    streams: Vec<u32>,
) -> Program {
    let step = |s: &Step| StepUse {
        nodes: s.nodes.clone(),
        workspace: s.workspace(),
        leaves_unread: s.tactics().all(|t| t.leaves_unread),
    };
    let uses: Vec<StepUse> = steps.iter().map(step).collect();
    let memory = memory::plan(&graph, &uses, &points.sizes(&graph), &target.memory, &streams);
    Program { streams, ..Program::new(graph, steps, memory) }
}

/// The note on steps that have several kernels.
pub(crate) fn varying(program: &Program) -> String {
    let mut several = Vec::new();
    collect_varying(program, &mut several);
    let one = |(program, s): &(&Program, &Step)| {
        let kernel = |(t, shapes): (&Tactic, Vec<String>)| format!("{} by {}", shapes.join(", "), t.id());
        let kernels: Vec<String> =
            program.cases_of(s).into_iter().filter(|(_, shapes)| !shapes.is_empty()).map(kernel).collect();
        format!("\"{}\" at {}", s.name, kernels.join(", at "))
    };
    let named: Vec<String> = several.iter().take(NAMED).map(one).collect();
    let more = if several.len() > NAMED { "; the inspector shows all" } else { "" };
    format!("{} layers have kernels by shape: {}{more}", several.len(), named.join("; "))
}

/// Steps that have several kernels, those of bodies behind theirs.
fn collect_varying<'a>(program: &'a Program, all: &mut Vec<(&'a Program, &'a Step)>) {
    for step in &program.steps {
        if !step.alternatives.is_empty() {
            all.push((program, step));
        }
        step.bodies.iter().for_each(|body| collect_varying(body, all));
    }
}

/// Shapes that kernels are chosen for.
#[derive(Clone, Copy)]
pub(crate) struct Shaped<'a> {
    /// The usual ones, and bounds.
    pub(crate) points: &'a Points,
    /// The cases of the program, with facts of the graph's own values.
    pub(crate) cases: &'a [CasePoint],
}

/// Writes down which steps launch nothing; reports come in the order of the steps, those of bodies behind theirs.
pub(crate) fn note_views<'a>(program: &Program, reports: &mut impl Iterator<Item = &'a mut StepReport>) {
    for step in &program.steps {
        if let Some(r) = reports.next() {
            r.view = program.is_view(step);
        }
        step.bodies.iter().for_each(|body| note_views(body, reports));
    }
}

/// Steps with their kernels.
#[derive(Default)]
pub(crate) struct Chosen {
    pub(crate) steps: Vec<Step>,
    /// Reports in the order of the steps, those of bodies after their step.
    pub(crate) reports: Vec<StepReport>,
    /// Rewrites that were considered in bodies.
    pub(crate) inside: Vec<Considered>,
}

/// A region with its tactic.
struct Picked {
    name: String,
    nodes: Vec<NodeId>,
    region: Region,
    /// The region at the usual shapes.
    concrete: Graph,
    choice: Choice,
    /// Text of everything that its blob depends on.
    key: String,
    /// Choices for some cases.
    others: Vec<Other>,
}

/// The choice for some cases of the program.
struct Other {
    choice: Choice,
    /// Text of everything that its blob depends on.
    key: String,
    cases: Vec<u32>,
    report: AlternativeReport,
}

/// Chooses and compiles a tactic for each region. `slices` are values that lie elsewhere in every iteration of a loop.
pub(crate) fn choose_all(
    tuner: &mut Tuner<'_>,
    g: &Graph,
    regions: Vec<Vec<NodeId>>,
    at: Shaped<'_>,
    slices: &[ValueId],
) -> Result<Chosen, BuildError> {
    let points = at.points;
    let picked = pick_all(tuner, g, regions, at, slices)?;
    compile_picked(tuner, &picked)?;
    let mut all = Chosen::default();
    for p in picked {
        all.reports.push(StepReport {
            name: p.name.clone(),
            ops: p.region.label(),
            tactic: p.choice.tactic.id(),
            ns: p.choice.ns,
            candidates: p.choice.candidates,
            key: p.choice.key,
            inputs: TensorLayout::all(&p.concrete, &p.concrete.inputs),
            outputs: TensorLayout::all(&p.concrete, &p.concrete.outputs),
            workspace: p.choice.tactic.workspace,
            deterministic: p.choice.tactic.deterministic,
            view: false,
            note: p.choice.tactic.note.clone(),
            alternatives: p.others.iter().map(|o| o.report.clone()).collect(),
        });
        // Every key was compiled.
        let blob =
            |key: &str| tuner.chosen_blobs.get(key).cloned().unwrap_or_else(|| Bytes::from(Vec::new()));
        let mut step = Step::new(p.name, p.nodes, p.choice.tactic, blob(&p.key));
        let others = p.others.into_iter();
        step.alternatives = others
            .map(|o| Alternative { blob: blob(&o.key), tactic: o.choice.tactic, cases: o.cases })
            .collect();
        if let Some(node) = flow::node(g, &step) {
            let own = all.reports.len() - 1;
            step.bodies = build_bodies(tuner, g, node, at, &mut all)?;
            let choice = tuner.choose_whole(&step, &p.region, &usual(&p.region, points))?;
            if let Some(r) = all.reports.get_mut(own) {
                (r.tactic, r.ns, r.key) = (choice.tactic.id(), choice.ns, choice.key);
            }
            step.tactic = choice.tactic;
        }
        all.steps.push(step);
    }
    Ok(all)
}

/// Facts of a region's inputs at the usual shapes.
fn usual(region: &Region, points: &Points) -> Vec<Fact> {
    inputs_of(region, &points.opt)
}

/// Facts of a region's inputs, of those of all values.
fn inputs_of(region: &Region, facts: &[Fact]) -> Vec<Fact> {
    region.inputs.iter().map(|v| facts[v.0 as usize].clone()).collect()
}

/// The choices of a region for cases in which another tactic is faster than its own. `region` has the shapes at which stored launches run.
fn pick_others(
    tuner: &mut Tuner<'_>,
    g: &Graph,
    name: &str,
    region: &Region,
    at: Shaped<'_>,
    (own, slices): (&Tactic, &[ValueId]),
) -> Result<Vec<Other>, BuildError> {
    let mut others: Vec<Other> = Vec::new();
    // Regions of fixed shapes are the same in all cases, and control flow has kernels of its own inside.
    let fixed = region.graph.value_ids().all(|v| region.graph.ty(v).static_dims().is_some());
    if fixed || own.name == flow::INTERPRETED {
        return Ok(others);
    }
    for (i, CasePoint { case, facts }) in at.cases.iter().enumerate() {
        let found = tuner.choose_at(name, region, &inputs_of(region, facts), own)?;
        let Some((choice, own_ns)) = found else { continue };
        let (ns, key) = (choice.ns, choice.key.clone());
        let mut choice = largest::checked(tuner, g, name, region, at.points, choice)?;
        if choice.tactic.id() == own.id() {
            continue;
        }
        choice.tactic = flow::sliced(choice.tactic, region, slices);
        let tactic = choice.tactic.id();
        let known = others.iter().position(|o| o.report.tactic == tactic);
        let at = known.unwrap_or_else(|| {
            let report = AlternativeReport {
                shapes: Vec::new(),
                tactic: tactic.clone(),
                ns,
                own_ns,
                keys: Vec::new(),
            };
            let key = format!("{tactic}\n{}", blob_key(region));
            others.push(Other { choice, key, cases: Vec::new(), report });
            others.len() - 1
        });
        if let Some(o) = others.get_mut(at) {
            o.cases.push(i as u32);
            o.report.shapes.push(case.describe());
            o.report.keys.extend(key);
        }
    }
    Ok(others)
}

fn pick_all(
    tuner: &mut Tuner<'_>,
    g: &Graph,
    regions: Vec<Vec<NodeId>>,
    at: Shaped<'_>,
    slices: &[ValueId],
) -> Result<Vec<Picked>, BuildError> {
    let points = at.points;
    let mut known = Vec::with_capacity(regions.len());
    let uses = g.uses();
    for nodes in regions {
        let name: Vec<&str> = nodes.iter().filter_map(|&n| Some(g.get(n)?.name.as_str())).collect();
        let region = Region::extract_with(g, &nodes, &uses)?;
        let facts = usual(&region, points);
        known.push((name.join(" + "), nodes, region, facts));
    }
    tuner.ahead(known.iter().map(|(name, _, region, facts)| (name.as_str(), region, facts.as_slice())))?;
    for case in at.cases {
        let there: Vec<Vec<Fact>> =
            known.iter().map(|(_, _, region, _)| inputs_of(region, &case.facts)).collect();
        let all = known.iter().zip(&there);
        tuner.ahead(all.map(|((name, _, region, _), facts)| (name.as_str(), region, facts.as_slice())))?;
    }
    let total = known.len();
    let mut picked = Vec::with_capacity(total);
    let phase = tuner.progress.start("choosing kernels", total)?;
    for (name, nodes, region, facts) in known {
        let choice = tuner.choose(&name, &region, &facts);
        let choice = choice.and_then(|c| largest::checked(tuner, g, &name, &region, points, c));
        let mut choice = choice.map_err(|e| e.with_names(g, &region))?;
        let own = choice.tactic.clone();
        choice.tactic = flow::sliced(choice.tactic, &region, slices);
        let ranges = tuner.config.version_compatible.then(|| crate::ranges::of(g, &region, points));
        let region = Region { ranges, ..region };
        let key = format!("{}\n{}", choice.tactic.id(), blob_key(&region));
        let others = pick_others(tuner, g, &name, &region, at, (&own, slices));
        let others = others.map_err(|e| e.with_names(g, &region))?;
        let concrete = concretize(&region.graph, &facts)?;
        picked.push(Picked { name, nodes, region, concrete, choice, key, others });
        tuner.progress.step()?;
    }
    tuner.progress.finish(phase);
    Ok(picked)
}

/// Text that is equal for regions that share a blob: blobs hold launches, which follow from shapes, and from the contents that
/// are known of inputs.
fn blob_key(region: &Region) -> String {
    let inputs =
        |g: &Graph| -> String { g.inputs.iter().map(|&v| format!("{:?}\n", g.value(v).fact)).collect() };
    let g = &region.graph;
    let known = g.inputs.iter().map(|&v| format!("{:?}\n", g.value(v).fact.value)).collect::<String>();
    let ranges = region.ranges.iter().flatten().map(|r| format!("{}{:?}\n", inputs(&r.inputs), r.symbols));
    crate::cache::describe(g) + &known + &ranges.collect::<String>()
}

/// Compiles all that was picked and is not compiled yet.
fn compile_picked(tuner: &mut Tuner<'_>, picked: &[Picked]) -> Result<(), BuildError> {
    let start = Instant::now();
    let mut seen = HashSet::new();
    let all = picked.iter().flat_map(|p| {
        let others = p.others.iter().map(move |o| (p, &o.key, &o.choice.tactic));
        std::iter::once((p, &p.key, &p.choice.tactic)).chain(others)
    });
    let new = |key: &String| !tuner.chosen_blobs.contains_key(key);
    let first: Vec<_> = all.filter(|(_, key, _)| new(key) && seen.insert(*key)).collect();
    let jobs: Vec<_> = first.iter().map(|(p, _, tactic)| (&p.region, *tactic)).collect();
    let blobs = compile_all(tuner.backend, tuner.target, &jobs, &mut tuner.progress)?;
    tuner.spent.compiling += start.elapsed();
    let refused = |p: &Picked, tactic: &Tactic, source: BackendError| match source {
        BackendError::Unsupported(why) if tuner.config.version_compatible => {
            BuildError::VersionCompatible { layer: p.name.clone(), tactic: tactic.id(), why }
        }
        source => BuildError::Backend { backend: tuner.backend.name().to_owned(), source },
    };
    for ((p, key, tactic), blob) in first.iter().zip(blobs) {
        let blob = blob.map_err(|e| refused(p, tactic, e))?;
        tuner.chosen_blobs.insert((*key).clone(), Bytes::from(blob));
    }
    Ok(())
}

/// A program for each region of a node of control flow, built like the graph around it; reports go to `all`.
fn build_bodies(
    tuner: &mut Tuner<'_>,
    g: &Graph,
    node: &Node,
    around: Shaped<'_>,
    all: &mut Chosen,
) -> Result<Vec<Program>, BuildError> {
    let points = around.points;
    let usual = bodies::region_facts(g, node, &points.sure)?;
    let spans = |i: usize| {
        let inside = |s: &Span| Ok(s.inside(bodies::region_facts(g, node, &s.facts)?.swap_remove(i)));
        points.spans.iter().map(inside).collect::<Result<Vec<Span>, BuildError>>()
    };
    let mut programs = Vec::with_capacity(node.regions.len());
    let phase =
        tuner.progress.start(format!("building the bodies of \"{}\"", node.name), node.regions.len())?;
    for (i, region) in node.regions.iter().enumerate() {
        let mut body = region.clone();
        bodies::forget_weights(&mut body);
        let cx = PassCx::new(tuner.config, tuner.backend, tuner.target, tuner.work);
        let spans = spans(i)?;
        let given = Given::Facts(&usual[i], &spans);
        tuner.path.push(region.name.clone());
        let mut search = Search { tuner: &mut *tuner, cx, given, considered: Vec::new() };
        let (Formed { mut graph, points, regions }, _) = search.build(body)?;
        let considered = search.considered;
        tuner.config.refit.finish(&mut graph);
        let slices = flow::slices(node, i, &graph, tuner.target);
        let cases = inner_cases(g, node, i, around.cases, (&graph, &points));
        let at = Shaped { points: &points, cases: &cases };
        let Chosen { steps, reports, inside } = choose_all(tuner, &graph, regions, at, &slices)?;
        tuner.path.pop();
        let path = |name: String| selection::inside(std::slice::from_ref(&region.name), &name);
        all.reports.extend(reports.into_iter().map(|r| StepReport { name: path(r.name), ..r }));
        let considered = considered.into_iter().chain(inside);
        all.inside.extend(considered.map(|c| Considered { layer: path(c.layer), ..c }));
        programs.push(planned(graph, steps, &points, tuner.target, Vec::new()));
        tuner.progress.step()?;
    }
    tuner.progress.finish(phase);
    Ok(programs)
}

/// The cases of the program around a body, with the facts of the body's values. Where its shapes are not those that a case has in it, the
/// usual ones stand for them.
fn inner_cases(
    g: &Graph,
    node: &Node,
    region: usize,
    cases: &[CasePoint],
    (body, points): (&Graph, &Points),
) -> Vec<CasePoint> {
    let facts = |c: &CasePoint| {
        let inputs = bodies::region_facts(g, node, &c.facts).ok()?.into_iter().nth(region)?;
        let inside = bodies::points(body, &inputs, &[]).ok()?.opt;
        let known = body.value_ids().all(|v| inside[v.0 as usize].ty.static_dims().is_some());
        known.then_some(inside)
    };
    let one =
        |c: &CasePoint| CasePoint { case: c.case, facts: facts(c).unwrap_or_else(|| points.opt.clone()) };
    cases.iter().map(one).collect()
}

/// Writes the cases into a program and its bodies, where steps have kernels for some of them. Returns whether there are any.
pub(crate) fn set_cases(program: &mut Program, cases: &[Case]) -> bool {
    let mut varies = false;
    for step in &mut program.steps {
        varies |= !step.alternatives.is_empty();
        for body in &mut step.bodies {
            varies |= set_cases(body, cases);
        }
    }
    if varies {
        program.cases = cases.to_vec();
    }
    varies
}
