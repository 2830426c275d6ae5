//! The builder: one network into one program.

use crate::ahead::{Spent, compile_all};
use crate::borders::{self, Attempt, Candidates};
use crate::cache::{CacheStore, TimingCache};
use crate::cases::CasePoint;
use crate::memory::{self, StepUse};
use crate::passes::folding::FoldWork;
use crate::passes::{Notes, PassCx, PassReport};
use crate::points::{Points, Span, profile_ends};
use crate::progress::Phases;
use crate::record::{Replay, TacticRecord};
use crate::report::{AlternativeReport, StepReport, TensorLayout};
use crate::search::{Considered, Formed, Given, Search};
use crate::selection::Selector;
use crate::tuner::{Choice, Tuner, concretize};
use crate::{BuildConfig, BuildError, Progress, Sparsity, bodies, cases, debug, largest, limit, pools};
use kiln_backend::{
    Alternative, Backend, BackendError, Device, HostStep, Program, Region, SPARSE_WEIGHTS, Step, Tactic,
    Target, flow, offer_feature, source_feature,
};
use kiln_ir::{Bytes, Fact, Graph, Node, NodeId, ValueId};
use kiln_network::Network;
use kiln_plan::HostLayer;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The variable that forbids TF32 in builds where it is "0". Other values mean nothing.
const TF32_OVERRIDE: &str = "NVIDIA_TF32_OVERRIDE";

/// Layers with several kernels that the note of a build names.
const NAMED: usize = 8;

/// Builds programs for one target of one backend.
pub struct Builder {
    backend: Arc<dyn Backend>,
    target: Target,
    device: Option<Arc<dyn Device>>,
    /// Known times; builds add to it.
    pub cache: TimingCache,
    /// The file that new times are added to as soon as they are taken.
    pub store: Option<CacheStore>,
    /// Settings.
    pub config: BuildConfig,
}

/// Result of a build.
#[derive(Debug)]
pub struct Built {
    /// The program.
    pub program: Program,
    /// Report of each pass.
    pub passes: Vec<PassReport>,
    /// Rewrites that the search considered.
    pub considered: Vec<Considered>,
    /// The steps, with what was chosen and why.
    pub steps: Vec<StepReport>,
    /// Entries of the timing cache that the build used.
    pub times: TimingCache,
    /// Candidates that were timed; 0 for a warm build.
    pub timed: usize,
    /// Time of the build by kind of work.
    pub spent: Spent,
    /// Notes for the user, such as candidates that could not be timed.
    pub notes: Vec<String>,
    /// Layers at which runs are expected to need the host, and why.
    pub host_layers: Vec<HostLayer>,
}

impl Builder {
    /// A builder for a target.
    pub fn new(backend: Arc<dyn Backend>, target: Target) -> Builder {
        let (device, cache, store) = (None, TimingCache::new(), None);
        Builder { backend, target, device, cache, store, config: BuildConfig::default() }
    }

    /// Device that programs are built for.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The target with what the settings permit.
    fn permitted(&self) -> Result<Target, BuildError> {
        let mut target = self.target.clone();
        for source in &self.config.tactic_sources {
            if self.config.version_compatible {
                return Err(BuildError::VersionCompatibleLibrary { name: source.clone() });
            }
            if !target.has(&offer_feature(source)) {
                let offers = target.features.iter().filter_map(|f| f.strip_prefix(&offer_feature("")));
                return Err(BuildError::TacticSource {
                    backend: target.backend.clone(),
                    name: source.clone(),
                    offers: offers.collect::<Vec<_>>().join(", "),
                });
            }
            target.features.push(source_feature(source));
        }
        let tf32 = self.config.tf32 && std::env::var_os(TF32_OVERRIDE).is_none_or(|v| v != "0");
        target.features.retain(|f| tf32 || f != "tf32");
        let sparse = self.config.sparsity != Sparsity::Disable;
        target.features.retain(|f| sparse || f != SPARSE_WEIGHTS);
        target.features.sort_unstable();
        target.features.dedup();
        Ok(target)
    }

    /// Lets the next builds choose as a recorded one did, without timing anything.
    ///
    /// # Errors
    /// [`BuildError::OtherRecord`] if another backend's build was recorded.
    pub fn replay(&mut self, record: &TacticRecord) -> Result<(), BuildError> {
        if record.backend != self.target.backend {
            let (found, wanted) = (record.backend.clone(), self.target.backend.clone());
            return Err(BuildError::OtherRecord { found, wanted });
        }
        self.cache = record.times.clone();
        (self.config.locked, self.config.estimates) = (!record.estimates, record.estimates);
        self.config.selector = Some(Selector::new(Arc::new(Mutex::new(Replay::of(record)))));
        Ok(())
    }

    /// Refuses a timing cache that has entries, but none of the target of this build.
    ///
    /// # Errors
    /// [`BuildError::OtherCache`].
    pub fn check_cache(&self) -> Result<(), BuildError> {
        let mut target = self.permitted()?;
        self.config.limit.apply(&mut target);
        let target = pools::limited(target, &self.config, &mut |_| ())?;
        let fingerprint = target.fingerprint();
        let Some((_, first)) = self.cache.iter().next().filter(|_| !self.cache.is_of(&fingerprint)) else {
            return Ok(());
        };
        let (found, wanted) = (first.device.clone(), self.target.device.clone());
        Err(BuildError::OtherCache { found, wanted })
    }

    /// Builds a network.
    pub fn build(&mut self, network: &Network) -> Result<Built, BuildError> {
        self.build_graph(network.lower()?, &mut |_, _, _| true)
    }

    /// Builds a graph, reporting progress.
    pub fn build_graph(&mut self, mut g: Graph, progress: Progress<'_>) -> Result<Built, BuildError> {
        kiln_backend::process::check_process().map_err(BuildError::Process)?;
        let start = Instant::now();
        kiln_backend::threads::prepare();
        let backend = self.backend.clone();
        let mut limits = Vec::new();
        let own_target = self.permitted()?;
        let mut config = self.config.clone();
        let mut part = own_target.clone();
        limit::apply(&mut part, &mut config, &mut |note| limits.push(note))?;
        let target = pools::limited(part, &config, &mut |note| limits.push(note))?;
        let folding = FoldWork::new(self.config.fold_budget);
        self.config.refit.prepare(&mut g)?;
        let weight_uses = std::mem::take(&mut g.weight_uses);
        config.estimate_limit = config.estimate_limit.max(1.0);
        for (name, range) in std::mem::take(&mut g.ranges) {
            config.ranges.entry(name).or_insert(range);
        }
        crate::requests::apply(&mut g, &self.config)?;
        let sizes = cases::sizes(&g, &self.config)?;
        let noted = Notes::default();
        crate::passes::precision::note_unknown_ranges(&g, &config, &noted);
        borders::convert(&mut g, &mut config)?;
        let candidates = Candidates::new(&g, &config)?;
        let cx = PassCx {
            config: &config,
            backend: backend.as_ref(),
            target: &target,
            folding: &folding,
            notes: &noted,
        };
        let exposed = debug::expose(&mut g, &self.config)?;
        let mut tuner = Tuner {
            backend: backend.as_ref(),
            target: &target,
            own_target: &own_target,
            config: &config,
            cache: &mut self.cache,
            store: self.store.as_mut(),
            device: &mut self.device,
            timed: 0,
            used: BTreeSet::new(),
            sites: HashMap::new(),
            blobs: HashMap::new(),
            notes: Vec::new(),
            spent: Spent::default(),
            folding: &folding,
            noted: &noted,
            progress: Phases::new(progress, self.config.monitor.clone()),
        };
        let phase = tuner.progress.start(format!("building \"{}\"", g.name), 3)?;
        let Attempt { formed, passes, mut considered, config: settings, packings } =
            borders::search(&mut tuner, cx, g, &candidates)?;
        let Formed { mut graph, points, regions } = formed;
        exposed.conceal(&mut graph)?;
        tuner.progress.step()?;
        crate::passes::precision::note_emulated(&graph, &target, &noted);
        crate::passes::sparsity::report(&graph, &considered, &config, &target, &noted);
        self.config.refit.finish(&mut graph);
        graph.weight_uses = weight_uses;
        let cases = cases::of(&graph, &settings, &sizes)?;
        let at = Shaped { points: &points, cases: &cases };
        let Chosen { steps, mut reports, inside } = choose_all(&mut tuner, &graph, regions, at, &[])?;
        tuner.progress.step()?;
        considered.extend(inside);
        let (timed, spent, mut notes) = (tuner.timed, tuner.spent, std::mem::take(&mut tuner.notes));
        let times = tuner.cache.part(&tuner.used);
        notes.extend(limits);
        notes.extend(folding.notes());
        notes.extend(noted.all());
        let varies = steps.iter().any(|s| !s.alternatives.is_empty());
        let mut program = planned(graph, steps, &points, &target);
        if varies {
            program.cases = cases.iter().map(|c| c.case).collect();
            notes.push(varying(&program));
        }
        tuner.progress.step()?;
        tuner.progress.finish(phase);
        drop(tuner);
        limit::check_memory(&program, &self.config)?;
        note_views(&program, &mut reports.iter_mut());
        if let Some(selector) = &self.config.selector {
            selector.report(&reports);
        }
        let ends = profile_ends(&program.graph, &settings)?;
        program.graph.packings = packings;
        if self.config.direct_io {
            let reformats = borders::left(&program);
            if !reformats.is_empty() {
                return Err(BuildError::DirectIo { backend: target.backend, reformats });
            }
        }
        let expected = crate::host::expected(&program, &ends, &target);
        let named = |steps: &[HostStep]| -> Vec<HostLayer> {
            steps.iter().cloned().filter_map(|s| HostLayer::of(&program, s)).collect()
        };
        let host_layers = named(&expected);
        if self.config.strict {
            let refused: Vec<HostStep> = expected.into_iter().filter(|s| !s.reads_sizes()).collect();
            let layers = named(&refused);
            if !layers.is_empty() {
                return Err(BuildError::NeedsHost { backend: target.backend, layers });
            }
        }
        let spent = Spent { total: start.elapsed(), ..spent };
        Ok(Built { program, passes, considered, steps: reports, times, timed, spent, notes, host_layers })
    }
}

/// A program with its memory plan.
fn planned(graph: Graph, steps: Vec<Step>, points: &Points, target: &Target) -> Program {
    let step = |s: &Step| StepUse {
        nodes: s.nodes.clone(),
        workspace: s.workspace(),
        leaves_unread: s.tactics().all(|t| t.leaves_unread),
    };
    let uses: Vec<StepUse> = steps.iter().map(step).collect();
    let memory = memory::plan(&graph, &uses, &points.sizes(&graph), &target.memory);
    Program::new(graph, steps, memory)
}

/// The note on steps that have several kernels.
fn varying(program: &Program) -> String {
    let several: Vec<&Step> = program.steps.iter().filter(|s| !s.alternatives.is_empty()).collect();
    let one = |s: &Step| {
        let kernel = |(t, shapes): (&Tactic, Vec<String>)| format!("{} by {}", shapes.join(", "), t.id());
        let kernels: Vec<String> =
            program.cases_of(s).into_iter().filter(|(_, shapes)| !shapes.is_empty()).map(kernel).collect();
        format!("\"{}\" at {}", s.name, kernels.join(", at "))
    };
    let named: Vec<String> = several.iter().take(NAMED).map(|s| one(s)).collect();
    let more = if several.len() > NAMED { "; the inspector shows all" } else { "" };
    format!("{} layers have kernels by shape: {}{more}", several.len(), named.join("; "))
}

/// Shapes that kernels are chosen for.
#[derive(Clone, Copy)]
struct Shaped<'a> {
    /// The usual ones, and bounds.
    points: &'a Points,
    /// The cases of the program; none in bodies of control flow.
    cases: &'a [CasePoint],
}

/// Writes down which steps launch nothing; reports come in the order of the steps, those of bodies behind theirs.
fn note_views<'a>(program: &Program, reports: &mut impl Iterator<Item = &'a mut StepReport>) {
    for step in &program.steps {
        if let Some(r) = reports.next() {
            r.view = program.is_view(step);
        }
        step.bodies.iter().for_each(|body| note_views(body, reports));
    }
}

/// Steps with their kernels.
#[derive(Default)]
struct Chosen {
    steps: Vec<Step>,
    /// Reports in the order of the steps, those of bodies after their step.
    reports: Vec<StepReport>,
    /// Rewrites that were considered in bodies.
    inside: Vec<Considered>,
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
fn choose_all(
    tuner: &mut Tuner<'_>,
    g: &Graph,
    regions: Vec<Vec<NodeId>>,
    at: Shaped<'_>,
    slices: &[ValueId],
) -> Result<Chosen, BuildError> {
    let points = at.points;
    let picked = pick_all(tuner, g, regions, at, slices)?;
    let blobs = compile_picked(tuner, &picked)?;
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
        let blob = |key: &str| blobs.get(key).cloned().unwrap_or_else(|| Bytes::from(Vec::new()));
        let mut step = Step::new(p.name, p.nodes, p.choice.tactic, blob(&p.key));
        let others = p.others.into_iter();
        step.alternatives = others
            .map(|o| Alternative { blob: blob(&o.key), tactic: o.choice.tactic, cases: o.cases })
            .collect();
        if let Some(node) = flow::node(g, &step) {
            let own = all.reports.len() - 1;
            step.bodies = build_bodies(tuner, g, node, points, &mut all)?;
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
    own: &Tactic,
) -> Result<Vec<Other>, BuildError> {
    let mut others: Vec<Other> = Vec::new();
    // What has fixed shapes is the same in all cases, and control flow has kernels of its own inside.
    let fixed = region.graph.value_ids().all(|v| region.graph.ty(v).static_dims().is_some());
    if fixed || own.name == flow::INTERPRETED {
        return Ok(others);
    }
    for (i, CasePoint { case, facts }) in at.cases.iter().enumerate() {
        let found = tuner.choose_at(name, region, &inputs_of(region, facts), own)?;
        let Some((choice, own_ns)) = found else { continue };
        let (ns, key) = (choice.ns, choice.key.clone());
        let choice = largest::checked(tuner, g, name, region, at.points, choice)?;
        let tactic = choice.tactic.id();
        if tactic == own.id() {
            continue;
        }
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
        choice.tactic = flow::sliced(choice.tactic, &region, slices);
        let ranges = tuner.config.version_compatible.then(|| crate::ranges::of(g, &region, points));
        let region = Region { ranges, ..region };
        let key = format!("{}\n{}", choice.tactic.id(), blob_key(&region));
        let others = pick_others(tuner, g, &name, &region, at, &choice.tactic);
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

/// The blobs of all that was picked, by what they depend on.
fn compile_picked(tuner: &mut Tuner<'_>, picked: &[Picked]) -> Result<HashMap<String, Bytes>, BuildError> {
    let start = Instant::now();
    let mut seen = HashSet::new();
    let all = picked.iter().flat_map(|p| {
        let others = p.others.iter().map(move |o| (p, &o.key, &o.choice.tactic));
        std::iter::once((p, &p.key, &p.choice.tactic)).chain(others)
    });
    let first: Vec<_> = all.filter(|(_, key, _)| seen.insert(*key)).collect();
    let jobs: Vec<_> = first.iter().map(|(p, _, tactic)| (&p.region, *tactic)).collect();
    let blobs = compile_all(tuner.backend, tuner.target, &jobs, &mut tuner.progress)?;
    tuner.spent.compiling += start.elapsed();
    let refused = |p: &Picked, tactic: &Tactic, source: BackendError| match source {
        BackendError::Unsupported(why) if tuner.config.version_compatible => {
            BuildError::VersionCompatible { layer: p.name.clone(), tactic: tactic.id(), why }
        }
        source => BuildError::Backend { backend: tuner.backend.name().to_owned(), source },
    };
    let named = first.iter().zip(blobs).map(|((p, key, tactic), blob)| {
        let blob = blob.map_err(|e| refused(p, tactic, e))?;
        Ok(((*key).clone(), Bytes::from(blob)))
    });
    named.collect()
}

/// A program for each region of a node of control flow, built like the graph around it; reports go to `all`.
fn build_bodies(
    tuner: &mut Tuner<'_>,
    g: &Graph,
    node: &Node,
    points: &Points,
    all: &mut Chosen,
) -> Result<Vec<Program>, BuildError> {
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
        let (config, folding, notes) = (tuner.config, tuner.folding, tuner.noted);
        let cx = PassCx { config, backend: tuner.backend, target: tuner.target, folding, notes };
        let spans = spans(i)?;
        let given = Given::Facts(&usual[i], &spans);
        let mut search = Search { tuner: &mut *tuner, cx, given, considered: Vec::new() };
        let (Formed { mut graph, points, regions }, _) = search.build(body)?;
        let considered = search.considered;
        tuner.config.refit.finish(&mut graph);
        let slices = flow::slices(node, i, &graph, tuner.target);
        let at = Shaped { points: &points, cases: &[] };
        let Chosen { steps, reports, inside } = choose_all(tuner, &graph, regions, at, &slices)?;
        let path = |name: String| format!("{} / {name}", region.name);
        all.reports.extend(reports.into_iter().map(|r| StepReport { name: path(r.name), ..r }));
        let considered = considered.into_iter().chain(inside);
        all.inside.extend(considered.map(|c| Considered { layer: path(c.layer), ..c }));
        programs.push(planned(graph, steps, &points, tuner.target));
        tuner.progress.step()?;
    }
    tuner.progress.finish(phase);
    Ok(programs)
}
