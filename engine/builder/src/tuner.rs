//! Choosing a tactic for a region: from the timing cache, or by timing the candidates on the device.
//!
//! The choice is always made from stored samples, so that a warm build chooses as the cold one did.

use crate::ahead::{Spent, compile_all};
use crate::cache::{Candidate, Entry, TimingCache, describe, key};
use crate::{BuildConfig, BuildError};
use kiln_backend::{Backend, BackendError, Device, Region, Tactic, Target, TimeRequest, flow};
use kiln_ir::{Fact, Graph, Tensor, problem::Rng};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

mod whole;

/// A candidate is out once its median is this many times the best.
const ELIMINATE: f64 = 1.5;

/// What chooses tactics during one build.
pub struct Tuner<'a> {
    /// Proposes, compiles and times.
    pub backend: &'a dyn Backend,
    /// What the plan is for.
    pub target: &'a Target,
    /// Settings.
    pub config: &'a BuildConfig,
    /// Known times; new ones are added.
    pub cache: &'a mut TimingCache,
    /// Opened at the first timing.
    pub device: &'a mut Option<Arc<dyn Device>>,
    /// Candidates timed so far.
    pub timed: usize,
    /// Regions asked about so far.
    pub sites: HashMap<String, Rc<Site>>,
    /// Blobs that were compiled ahead and not yet used, by the site's key and the tactic.
    pub blobs: HashMap<(String, String), Vec<u8>>,
    /// Where the time goes.
    pub spent: Spent,
}

/// A region at the usual shapes, with the tactics that may be timed and the key of their times.
pub struct Site {
    concrete: Graph,
    candidates: Vec<Tactic>,
    /// Of all tactics, also of those that are not worth timing.
    offered: Vec<String>,
    key: String,
}

impl Site {
    /// A tactic that is chosen without its time.
    fn untimed(&self, tactic: &Tactic) -> Choice {
        Choice { tactic: tactic.clone(), ns: None, key: None, candidates: self.candidates.len() }
    }
}

/// A choice and why.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The tactic.
    pub tactic: Tactic,
    /// Its median time in nanoseconds, if it was ever timed.
    pub ns: Option<f64>,
    /// Key of the entry in the timing cache, if the choice came from there.
    pub key: Option<String>,
    /// How many candidates there were.
    pub candidates: usize,
}

impl Tuner<'_> {
    /// Chooses for a region. `layer` names it in errors; `facts` are those of its inputs at the usual shapes.
    pub fn choose(&mut self, layer: &str, region: &Region, facts: &[Fact]) -> Result<Choice, BuildError> {
        let site = self.site(layer, region, facts)?;
        // Among the ways to run control flow is chosen once its bodies are built.
        if let Some(first) = site.candidates.first().filter(|t| t.name == flow::INTERPRETED) {
            return Ok(site.untimed(first));
        }
        if let [only] = &site.candidates[..]
            && !self.known(&site.key, &site.candidates)
        {
            return Ok(site.untimed(only));
        }
        // Sizes that only a run tells can't be timed: the most promising candidate is taken.
        if !can_be_timed(&site.concrete)
            && let Some(first) = site.candidates.first()
        {
            return Ok(site.untimed(first));
        }
        if let Some(expected) = self.expected(&site) {
            return Ok(site.untimed(expected));
        }
        self.ensure(layer, region, &site)?;
        Ok(self.pick(site.key.clone(), site.candidates.clone()))
    }

    /// The most promising candidate, where nothing is to be timed.
    fn expected<'s>(&self, site: &'s Site) -> Option<&'s Tactic> {
        let ask = self.config.estimates && !self.known(&site.key, &site.candidates);
        site.candidates.first().filter(|_| ask)
    }

    /// The median of the best tactic in nanoseconds; measured if it is not known.
    pub fn time(&mut self, layer: &str, region: &Region, facts: &[Fact]) -> Result<f64, BuildError> {
        let site = self.site(layer, region, facts)?;
        // Control flow has its time in its bodies, in whatever is formed around it.
        if site.candidates.first().is_some_and(|t| t.name == flow::INTERPRETED) {
            return Ok(0.0);
        }
        if let Some(expected) = self.expected(&site) {
            return Ok(expected.estimate_ns.unwrap_or(f64::INFINITY));
        }
        // In bodies of control flow there are sizes that only a run tells.
        if !can_be_timed(&site.concrete) {
            return Ok(f64::INFINITY);
        }
        self.ensure(layer, region, &site)?;
        Ok(self.pick(site.key.clone(), site.candidates.clone()).ns.unwrap_or(f64::INFINITY))
    }

    /// Compiles what is to be timed of these regions (with their layers' names and facts), by all processors. What fails is
    /// tried again, and told, where it is timed.
    pub fn ahead<'r>(&mut self, regions: impl IntoIterator<Item = (&'r str, &'r Region, &'r [Fact])>) {
        let mut jobs: Vec<(&Region, Tactic, (String, String))> = Vec::new();
        for (layer, region, facts) in regions {
            let Ok(site) = self.site(layer, region, facts) else { continue };
            if self.is_timed(&site) {
                let name = |t: &Tactic| (site.key.clone(), t.id());
                jobs.extend(site.candidates.iter().map(|t| (region, t.clone(), name(t))));
            }
        }
        jobs.retain(|(_, _, name)| !self.blobs.contains_key(name));
        jobs.sort_by(|a, b| a.2.cmp(&b.2));
        jobs.dedup_by(|a, b| a.2 == b.2);
        let start = Instant::now();
        let what: Vec<_> = jobs.iter().map(|(region, t, _)| (*region, t)).collect();
        let blobs = compile_all(self.backend, self.target, &what);
        self.spent.compiling += start.elapsed();
        let made = jobs.into_iter().zip(blobs).filter_map(|((_, _, name), blob)| Some((name, blob.ok()?)));
        self.blobs.extend(made);
    }

    /// Will candidates of a site be timed?
    fn is_timed(&self, site: &Site) -> bool {
        let asked = !self.config.estimates && !self.config.locked && !self.known(&site.key, &site.candidates);
        let walked = site.candidates.first().is_some_and(|t| t.name == flow::INTERPRETED);
        asked && !walked && can_be_timed(&site.concrete)
    }

    /// The blob of a candidate.
    fn blob(&mut self, key: &str, region: &Region, tactic: &Tactic) -> Result<Vec<u8>, BackendError> {
        if let Some(blob) = self.blobs.remove(&(key.to_owned(), tactic.id())) {
            return Ok(blob);
        }
        let start = Instant::now();
        let blob = self.backend.compile(region, tactic, self.target);
        self.spent.compiling += start.elapsed();
        blob
    }

    /// The blobs of candidates by number. Those are left out that the backend refuses when it compiles them, as libraries do
    /// that tell only then, unless it refuses all.
    fn blobs_of(
        &mut self,
        key: &str,
        region: &Region,
        candidates: &[Tactic],
    ) -> Result<HashMap<usize, Vec<u8>>, BackendError> {
        let (mut blobs, mut refused) = (HashMap::new(), None);
        for (i, t) in candidates.iter().enumerate() {
            match self.blob(key, region, t) {
                Err(source @ BackendError::Unsupported(_)) => {
                    tracing::info!("{} is left out: {source}", t.id());
                    refused = Some(source);
                }
                blob => drop(blobs.insert(i, blob?)),
            }
        }
        match refused.filter(|_| blobs.is_empty()) {
            Some(source) => Err(source),
            None => Ok(blobs),
        }
    }

    /// What the backend expects of the most promising tactic, in nanoseconds.
    pub fn estimate(
        &mut self,
        layer: &str,
        region: &Region,
        facts: &[Fact],
    ) -> Result<Option<f64>, BuildError> {
        Ok(self.site(layer, region, facts)?.candidates.first().and_then(|t| t.estimate_ns))
    }

    /// The tactics that would be timed, with parameters.
    pub fn tactics(
        &mut self,
        layer: &str,
        region: &Region,
        facts: &[Fact],
    ) -> Result<Vec<String>, BuildError> {
        Ok(self.site(layer, region, facts)?.candidates.iter().map(Tactic::id).collect())
    }

    /// All tactics of the backend, with parameters, whether they would be timed or not.
    pub fn offered(
        &mut self,
        layer: &str,
        region: &Region,
        facts: &[Fact],
    ) -> Result<Vec<String>, BuildError> {
        Ok(self.site(layer, region, facts)?.offered.clone())
    }

    /// A text that tells regions apart that may be chosen for differently.
    pub fn text(&self, region: &Region, facts: &[Fact]) -> Result<String, BuildError> {
        Ok(describe(&region.graph) + &describe(&concretize(&region.graph, facts)?))
    }

    /// What is known of a region before it is timed; asked of the backend once.
    fn site(&mut self, layer: &str, region: &Region, facts: &[Fact]) -> Result<Rc<Site>, BuildError> {
        let text = self.text(region, facts)?;
        if let Some(known) = self.sites.get(&text) {
            return Ok(known.clone());
        }
        let concrete = concretize(&region.graph, facts)?;
        let mut candidates = self.by_promise(layer, region, &concrete)?;
        let offered = candidates.iter().map(Tactic::id).collect();
        self.keep_promising(&mut candidates);
        let key = key(&describe(&concrete), self.target, &self.flags());
        let site = Rc::new(Site { concrete, candidates, offered, key });
        self.sites.insert(text, site.clone());
        Ok(site)
    }

    fn ensure(&mut self, layer: &str, region: &Region, site: &Site) -> Result<(), BuildError> {
        if self.known(&site.key, &site.candidates) {
            return Ok(());
        }
        if self.config.locked {
            return Err(BuildError::CacheMiss { layer: layer.into(), key: site.key.clone() });
        }
        self.measure(&site.key, describe(&site.concrete), region, &site.concrete, &site.candidates)
    }

    /// Settings that change what may be chosen from.
    fn flags(&self) -> String {
        format!("max_tactics={} estimate_limit={}", self.config.max_tactics, self.config.estimate_limit)
    }

    /// The backend's tactics, the most promising at the usual shapes first.
    fn by_promise(&self, layer: &str, region: &Region, concrete: &Graph) -> Result<Vec<Tactic>, BuildError> {
        let refused = |reasons: String| {
            let g = &region.graph;
            let inputs: Vec<String> = g.inputs.iter().map(|&v| g.ty(v).to_string()).collect();
            BuildError::NoTactic {
                backend: self.backend.name().to_owned(),
                layer: layer.to_owned(),
                op: region.label(),
                inputs: inputs.join(", "),
                reasons,
            }
        };
        let mut all = self.backend.tactics(region, self.target).map_err(|e| refused(e.to_string()))?;
        if all.is_empty() {
            return Err(refused("it proposes no tactic and gives no reason".into()));
        }
        // Of ways to run control flow, whose time lies in its bodies, the backend names the most promising first.
        if all.iter().all(|t| t.name == flow::INTERPRETED) {
            return Ok(all);
        }
        let usual = Region { graph: concrete.clone(), ..region.clone() };
        let estimates = self.backend.tactics(&usual, self.target).unwrap_or_default();
        for t in &mut all {
            t.estimate_ns = estimates.iter().find(|e| e.id() == t.id()).and_then(|e| e.estimate_ns);
        }
        all.sort_by(|a, b| cost(a).total_cmp(&cost(b)).then_with(|| a.id().cmp(&b.id())));
        Ok(all)
    }

    /// Drops what is not worth timing.
    fn keep_promising(&self, sorted: &mut Vec<Tactic>) {
        let hopeless = sorted.first().map_or(f64::INFINITY, |best| cost(best) * self.config.estimate_limit);
        sorted.retain(|t| t.estimate_ns.is_none_or(|e| e <= hopeless));
        sorted.truncate(self.config.max_tactics.max(1));
    }

    fn known(&self, key: &str, candidates: &[Tactic]) -> bool {
        let Some(entry) = self.cache.get(key) else { return false };
        candidates
            .iter()
            .all(|t| entry.candidates.get(&t.id()).is_some_and(|c| c.source_hash == t.source_hash))
    }

    /// Times all candidates round-robin, dropping the slow ones between rounds.
    fn measure(
        &mut self,
        key: &str,
        region_text: String,
        region: &Region,
        concrete: &Graph,
        candidates: &[Tactic],
    ) -> Result<(), BuildError> {
        let inputs = random_inputs(concrete)?;
        let backend = self.backend;
        let wrap = |source| BuildError::Backend { backend: backend.name().to_owned(), source };
        let blobs = self.blobs_of(key, region, candidates).map_err(wrap)?;
        let start = Instant::now();
        let device = self.opened()?;
        let mut samples: Vec<Vec<f64>> = vec![Vec::new(); candidates.len()];
        let mut alive: Vec<usize> = (0..candidates.len()).filter(|i| blobs.contains_key(i)).collect();
        let mut out = Vec::new();
        // The first round warms up; after two samples the slow ones are out.
        let early = self.config.samples.min(2);
        for (round, count) in [1, early, self.config.samples - early].into_iter().enumerate() {
            for &i in alive.iter().filter(|_| count > 0) {
                let Some(blob) = blobs.get(&i) else { continue };
                let request = TimeRequest {
                    graph: concrete,
                    tactic: &candidates[i],
                    blob,
                    inputs: &inputs,
                    samples: count,
                };
                match device.time(&request) {
                    Ok(t) if round > 0 => samples[i].extend(t),
                    Ok(_) => {}
                    // Another candidate may want less memory.
                    Err(source @ BackendError::OutOfMemory { .. }) if others(&alive, &out) => {
                        tracing::warn!("{} is left out: {source}", candidates[i].id());
                        out.push(i);
                    }
                    Err(source) => return Err(wrap(source)),
                }
            }
            alive.retain(|i| !out.contains(i));
            out.iter().for_each(|&i| samples[i].clear());
            let median =
                |i: &usize| Candidate { source_hash: String::new(), samples: samples[*i].clone() }.median();
            let best = alive.iter().map(median).fold(f64::INFINITY, f64::min);
            if round > 0 && best.is_finite() {
                alive.retain(|i| median(i) <= best * ELIMINATE);
            }
        }
        self.spent.timing += start.elapsed();
        self.timed += candidates.len();
        self.remember(key, region_text, candidates, samples);
        Ok(())
    }

    /// The device, opened at the first timing.
    fn opened(&mut self) -> Result<Arc<dyn Device>, BuildError> {
        if let Some(d) = &*self.device {
            return Ok(d.clone());
        }
        let backend = || self.backend.name().to_owned();
        let opened = self.backend.open(self.target);
        let opened = opened.map_err(|source| BuildError::Backend { backend: backend(), source })?;
        Ok(self.device.insert(opened).clone())
    }

    /// Adds what was measured of each candidate to the cache.
    fn remember(&mut self, key: &str, region: String, candidates: &[Tactic], samples: Vec<Vec<f64>>) {
        let times = candidates
            .iter()
            .zip(samples)
            .map(|(t, samples)| (t.id(), Candidate { source_hash: t.source_hash.clone(), samples }));
        let entry = Entry {
            region,
            target: self.target.fingerprint(),
            device: self.target.device.clone(),
            driver: self.target.driver.clone(),
            candidates: times.collect::<BTreeMap<_, _>>(),
        };
        self.cache.insert(key, entry);
    }

    /// The median of a tactic in nanoseconds; infinite where it was not timed.
    fn median(&self, key: &str, t: &Tactic) -> f64 {
        let known = self.cache.get(key).and_then(|e| e.candidates.get(&t.id()));
        known.map_or(f64::INFINITY, Candidate::median)
    }

    /// The candidate of the least median; of equal ones the first by name.
    fn pick(&self, key: String, candidates: Vec<Tactic>) -> Choice {
        let count = candidates.len();
        let time = |t: &Tactic| self.median(&key, t);
        let best = candidates
            .into_iter()
            .min_by(|a, b| time(a).total_cmp(&time(b)).then_with(|| a.id().cmp(&b.id())));
        let tactic = best.unwrap_or_else(|| Tactic::plain("none"));
        let ns = Some(time(&tactic)).filter(|t| t.is_finite());
        Choice { tactic, ns, key: Some(key), candidates: count }
    }
}

/// Is more than one left?
fn others(alive: &[usize], out: &[usize]) -> bool {
    alive.iter().filter(|i| !out.contains(i)).count() > 1
}

/// The region with the types that its inputs have at the usual shapes.
pub fn concretize(region: &Graph, facts: &[Fact]) -> Result<Graph, BuildError> {
    let mut g = region.clone();
    for (v, f) in region.inputs.iter().zip(facts) {
        // Contents matter only where a host port reads them, or the body of a loop that already knows them.
        let host = region.nodes().any(|(_, n)| {
            n.inputs.iter().enumerate().any(|(i, x)| *x == Some(*v) && n.op.port(i).is_some_and(|p| p.host))
        });
        let known = region.value(*v).fact.as_const().is_some();
        g.value_mut(*v).fact = if host || known { f.clone() } else { Fact::of(f.ty.clone()) };
    }
    g.refresh()?;
    Ok(g)
}

/// Is there a bound for every dimension of every input, and do the bounds fit together?
fn can_be_timed(g: &Graph) -> bool {
    let bound = |d: &kiln_ir::Dim| d.upper_bound().filter(|b| b.as_const().is_some());
    let inputs = g.inputs.iter().map(|&v| {
        let mut fact = g.value(v).fact.clone();
        fact.ty.dims = fact.ty.dims.iter().map(bound).collect::<Option<_>>()?;
        Some(fact)
    });
    inputs.collect::<Option<Vec<Fact>>>().is_some_and(|facts| g.infer_from(&facts).is_ok())
}

/// Random inputs.
fn random_inputs(g: &Graph) -> Result<Vec<Tensor>, BuildError> {
    let mut rng = Rng::new(1);
    let mut out = Vec::new();
    for &v in &g.inputs {
        let def = g.value(v);
        if let Some(t) = def.fact.as_const() {
            out.push(t.clone());
            continue;
        }
        let dims: Option<Vec<usize>> =
            def.fact.ty.dims.iter().map(|d| usize::try_from(d.upper_bound()?.as_const()?).ok()).collect();
        let Some(shape) = dims else {
            return Err(BuildError::Network(kiln_ir::IrError::Structure(format!(
                "the shape {} of \"{}\" is not known for timing",
                def.fact.ty, def.name
            ))));
        };
        let t = crate::inputs::random(&mut rng, def.fact.ty.dtype, &shape).ok_or_else(|| {
            BuildError::Network(kiln_ir::IrError::Structure(format!(
                "there is no memory to time \"{}\" ({}) with",
                def.name, def.fact.ty
            )))
        })?;
        out.push(t);
    }
    Ok(out)
}

/// Expected nanoseconds; those that are not expected come last.
fn cost(t: &Tactic) -> f64 {
    t.estimate_ns.unwrap_or(f64::INFINITY)
}
