//! The builder: one network into one program.

use crate::cache::TimingCache;
use crate::memory::{self, StepUse};
use crate::passes::{self, PassCx, PassReport};
use crate::search::{Considered, Formed, Search};
use crate::tuner::Tuner;
use crate::{BuildConfig, BuildError};
use kiln_backend::{Backend, Device, Program, Region, Step, Target};
use kiln_ir::{Bytes, Fact, Graph, Network, NodeId};
use std::collections::HashMap;
use std::sync::Arc;

/// Called as a build goes on: phase, steps done, steps in all. Returning false cancels the build.
pub type Progress<'a> = &'a mut dyn FnMut(&str, usize, usize) -> bool;

/// Builds programs for one target of one backend.
pub struct Builder {
    backend: Arc<dyn Backend>,
    target: Target,
    device: Option<Arc<dyn Device>>,
    /// Known times; builds add to it.
    pub cache: TimingCache,
    /// Settings.
    pub config: BuildConfig,
}

/// What a build made.
#[derive(Debug)]
pub struct Built {
    /// The program.
    pub program: Program,
    /// What each pass did.
    pub passes: Vec<PassReport>,
    /// Rewrites that the search considered.
    pub considered: Vec<Considered>,
    /// The steps, with what was chosen and why.
    pub steps: Vec<StepReport>,
    /// Candidates that were timed; 0 for a warm build.
    pub timed: usize,
}

/// One step of a program, for reports.
#[derive(Clone, Debug)]
pub struct StepReport {
    /// Names of its layers.
    pub name: String,
    /// Its operators.
    pub ops: String,
    /// The chosen tactic with parameters.
    pub tactic: String,
    /// Median time when it was tuned, in nanoseconds.
    pub ns: Option<f64>,
    /// How many candidates there were.
    pub candidates: usize,
    /// Key of the choice in the timing cache.
    pub key: Option<String>,
}

impl Builder {
    /// A builder for a target.
    pub fn new(backend: Arc<dyn Backend>, target: Target) -> Builder {
        Builder { backend, target, device: None, cache: TimingCache::new(), config: BuildConfig::default() }
    }

    /// What programs are built for.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Builds a network.
    pub fn build(&mut self, network: &Network) -> Result<Built, BuildError> {
        self.build_graph(network.lower()?, &mut |_, _, _| true)
    }

    /// Builds a graph, reporting progress.
    pub fn build_graph(&mut self, mut g: Graph, progress: Progress<'_>) -> Result<Built, BuildError> {
        let backend = self.backend.clone();
        let cx = PassCx { config: &self.config, backend: backend.as_ref(), target: &self.target };
        let passes = passes::run_all(&mut g, &cx)?;
        let mut tuner = Tuner {
            backend: backend.as_ref(),
            target: &self.target,
            config: &self.config,
            cache: &mut self.cache,
            device: &mut self.device,
            timed: 0,
            sites: HashMap::new(),
        };
        let mut search = Search { tuner: &mut tuner, cx, considered: Vec::new() };
        let formed = search.run(g, progress)?;
        let considered = search.considered;
        let Formed { graph, points, regions } = formed;
        let (steps, reports) = choose_all(&mut tuner, &graph, regions, &points.opt, progress)?;
        let timed = tuner.timed;
        let uses: Vec<StepUse> =
            steps.iter().map(|s| StepUse { nodes: s.nodes.clone(), workspace: s.tactic.workspace }).collect();
        let memory = memory::plan(&graph, &uses, &points.ends, &self.target.memory);
        Ok(Built { program: Program { graph, steps, memory }, passes, considered, steps: reports, timed })
    }
}

/// Chooses and compiles a tactic for each region.
fn choose_all(
    tuner: &mut Tuner<'_>,
    g: &Graph,
    regions: Vec<Vec<NodeId>>,
    opt: &[Fact],
    progress: Progress<'_>,
) -> Result<(Vec<Step>, Vec<StepReport>), BuildError> {
    let mut blobs: HashMap<String, Bytes> = HashMap::new();
    let (mut steps, mut reports) = (Vec::new(), Vec::new());
    let total = regions.len();
    for (done, nodes) in regions.into_iter().enumerate() {
        if !progress("choosing kernels", done, total) {
            return Err(BuildError::Cancelled);
        }
        let name =
            nodes.iter().filter_map(|&n| Some(g.get(n)?.name.as_str())).collect::<Vec<_>>().join(" + ");
        let region = Region::extract(g, &nodes)?;
        let facts: Vec<Fact> = region.inputs.iter().map(|v| opt[v.0 as usize].clone()).collect();
        let choice = tuner.choose(&name, &region, &facts)?;
        let id = choice.tactic.id();
        let blob_key = format!("{id}\n{}", crate::cache::describe(&region.graph));
        let blob = match blobs.get(&blob_key) {
            Some(b) => b.clone(),
            None => {
                let compiled =
                    tuner.backend.compile(&region, &choice.tactic, tuner.target).map_err(|source| {
                        BuildError::Backend { backend: tuner.backend.name().to_owned(), source }
                    })?;
                blobs.entry(blob_key).or_insert(Bytes::from(compiled)).clone()
            }
        };
        reports.push(StepReport {
            name: name.clone(),
            ops: region.label(),
            tactic: id,
            ns: choice.ns,
            candidates: choice.candidates,
            key: choice.key,
        });
        steps.push(Step { name, nodes, tactic: choice.tactic, blob });
    }
    Ok((steps, reports))
}
