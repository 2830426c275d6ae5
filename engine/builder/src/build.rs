//! The builder: one network into one program.

use crate::ahead::Spent;
use crate::borders::{self, Attempt, Candidates};
use crate::cache::{CacheStore, TimingCache};
use crate::kernels::{Chosen, Shaped, choose_all, note_views, planned, set_cases, varying};
use crate::passes::{PassCx, PassReport, PassWork};
use crate::points::{Points, profile_ends};
use crate::progress::Phases;
use crate::record::{Replay, TacticRecord};
use crate::report::StepReport;
use crate::search::{Considered, Formed};
use crate::selection::{self, Selector};
use crate::tuner::Tuner;
use crate::{BuildConfig, BuildError, Progress, Sparsity, cases, debug, limit, pools, streams};
use kiln_backend::{
    Backend, Case, Device, HostStep, Program, SPARSE_WEIGHTS, Target, offer_feature, source_feature,
};
use kiln_ir::Graph;
use kiln_network::Network;
use kiln_plan::HostLayer;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

/// The variable that forbids TF32 in builds where it is "0". Other values mean nothing.
const TF32_OVERRIDE: &str = "NVIDIA_TF32_OVERRIDE";

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
    /// [`BuildError::OtherRecord`] if another backend's build was recorded, [`BuildError::ReplayAndSelector`] if a selector is set.
    pub fn replay(&mut self, record: &TacticRecord) -> Result<(), BuildError> {
        if self.config.selector.as_ref().is_some_and(|s| !s.replays()) {
            return Err(BuildError::ReplayAndSelector);
        }
        if record.backend != self.target.backend {
            let (found, wanted) = (record.backend.clone(), self.target.backend.clone());
            return Err(BuildError::OtherRecord { found, wanted });
        }
        self.cache = record.times.clone();
        (self.config.locked, self.config.estimates) = (!record.estimates, record.estimates);
        if let Some(effort) = &record.effort {
            effort.apply(&mut self.config);
        }
        self.config.selector = Some(Selector::replay(Replay::of(record)));
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
        let work = PassWork::new(&self.config);
        self.config.refit.prepare(&mut g)?;
        let weight_uses = std::mem::take(&mut g.weight_uses);
        config.estimate_limit = config.estimate_limit.max(1.0);
        for (name, range) in std::mem::take(&mut g.ranges) {
            config.ranges.entry(name).or_insert(range);
        }
        crate::requests::apply(&mut g, &self.config)?;
        streams::check(&self.config)?;
        let sizes = cases::sizes(&g, &self.config)?;
        crate::passes::precision::note_unknown_ranges(&g, &config, &work.notes);
        borders::convert(&mut g, &mut config)?;
        let candidates = Candidates::new(&g, &config)?;
        let cx = PassCx::new(&config, backend.as_ref(), &target, &work);
        let exposed = debug::expose(&mut g, &self.config)?;
        let ranges = match config.selector {
            Some(_) => Points::of(&g, &config)?.spans.into_iter().map(|s| s.ranges).collect(),
            None => Vec::new(),
        };
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
            chosen_blobs: HashMap::new(),
            notes: Vec::new(),
            spent: Spent::default(),
            work: &work,
            progress: Phases::new(progress, self.config.monitor.clone()),
            path: Vec::new(),
            ranges,
        };
        let phase = tuner.progress.start(format!("building \"{}\"", g.name), 3)?;
        let Attempt { formed, passes, mut considered, config: settings, packings } =
            borders::search(&mut tuner, cx, g, &candidates)?;
        let Formed { mut graph, points, regions } = formed;
        exposed.conceal(&mut graph)?;
        tuner.progress.step()?;
        crate::passes::precision::note_emulated(&graph, &target, &work.notes);
        crate::passes::sparsity::report(&graph, &considered, &config, &target, &work.notes);
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
        notes.extend(selection::unused(&config.tactic_rules, &reports));
        notes.extend(work.folding.notes());
        notes.extend(work.notes.all());
        let streams = streams::assign(&graph, &steps, &config, &target, &mut notes);
        let mut program = planned(graph, steps, &points, &target, streams);
        let all: Vec<Case> = cases.iter().map(|c| c.case).collect();
        if set_cases(&mut program, &all) {
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
