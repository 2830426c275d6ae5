//! Choosing a tactic for a region: from the timing cache, or by timing the candidates on the device.
//!
//! The choice is always made from stored samples, so that a warm build chooses as the cold one did.

use crate::ahead::{Spent, compile_all};
use crate::cache::{CacheStore, Candidate, TimingCache, describe, key};
use crate::inputs::can_be_timed;
use crate::passes::PassWork;
use crate::points::Ranges;
use crate::pools;
use crate::progress::Phases;
use crate::selection::{self, Algorithm, LayerContext, TacticRule};
use crate::{BuildConfig, BuildError};
use kiln_backend::{Backend, Device, Region, Tactic, Target, flow};
use kiln_ir::{Bytes, Fact, Graph};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

mod bounds;
mod cases;
mod freed;
mod measure;
mod whole;

/// Choice of tactics during one build.
pub struct Tuner<'a> {
    /// Proposes, compiles and times.
    pub backend: &'a dyn Backend,
    /// Device that the plan is for, with what the settings permit.
    pub target: &'a Target,
    /// The device as the backend knows it.
    pub own_target: &'a Target,
    /// Settings.
    pub config: &'a BuildConfig,
    /// Known times; new ones are added.
    pub cache: &'a mut TimingCache,
    /// The file that new times are added to at once.
    pub store: Option<&'a mut CacheStore>,
    /// Opened at the first timing.
    pub device: &'a mut Option<Arc<dyn Device>>,
    /// Candidates timed so far.
    pub timed: usize,
    /// Keys of the timing cache that were looked up.
    pub used: BTreeSet<String>,
    /// Regions asked about so far.
    pub sites: HashMap<String, Rc<Site>>,
    /// Blobs that were compiled ahead and not yet used, by the site's key and the tactic.
    pub blobs: HashMap<(String, String), Vec<u8>>,
    /// Blobs of chosen kernels, by the text of everything that they depend on.
    pub chosen_blobs: HashMap<String, Bytes>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Time by kind of work.
    pub spent: Spent,
    /// Work of all passes of the build.
    pub work: &'a PassWork,
    /// Told of what is done.
    pub(crate) progress: Phases<'a>,
    /// Names of the bodies of control flow that are being built, the innermost last.
    pub(crate) path: Vec<String>,
    /// Values of symbols over the shapes of each profile, where somebody selects.
    pub(crate) ranges: Vec<Arc<Ranges>>,
}

/// A region at the usual shapes, with the tactics that may be timed and the key of their times.
pub struct Site {
    concrete: Graph,
    candidates: Vec<Tactic>,
    /// Ids of all tactics, also of those that are not worth timing.
    offered: Vec<String>,
    key: String,
    /// The backend's estimate for the most promising of all, in nanoseconds.
    estimate_ns: Option<f64>,
    /// Whether somebody chose the candidates: the user by a rule or a selector, or the timing cache by a pin.
    chosen: bool,
}

impl Site {
    /// A tactic that is chosen without its time.
    fn untimed(&self, tactic: &Tactic) -> Choice {
        // A record of the build names what somebody chose by its key.
        let key = self.chosen.then(|| self.key.clone());
        Choice { tactic: tactic.clone(), ns: None, key, candidates: self.candidates.len() }
    }
}

/// A choice and why.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The tactic.
    pub tactic: Tactic,
    /// Median time in nanoseconds, if it was ever timed.
    pub ns: Option<f64>,
    /// Key of the layer in the timing cache, if the choice came from there or was made by somebody.
    pub key: Option<String>,
    /// Number of candidates.
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

    /// Adds a note for the report, once.
    fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            tracing::warn!("{text}");
            self.notes.push(text);
        }
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
            let estimate = if site.chosen { site.estimate_ns } else { expected.estimate_ns };
            return Ok(estimate.unwrap_or(f64::INFINITY));
        }
        // Tactics that a user chose do not change the cut of the network: it follows the fastest tactic of known time.
        if site.chosen {
            if let Some(best) = self.best_known(&site.key) {
                self.used.insert(site.key.clone());
                return Ok(best);
            }
            // A locked build cannot time it: it counts as the backend expects it.
            if self.config.locked {
                return Ok(site.estimate_ns.unwrap_or(f64::INFINITY));
            }
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
    pub fn ahead<'r>(
        &mut self,
        regions: impl IntoIterator<Item = (&'r str, &'r Region, &'r [Fact])>,
    ) -> Result<(), BuildError> {
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
        let blobs = compile_all(self.backend, self.target, &what, &mut self.progress)?;
        self.spent.compiling += start.elapsed();
        let made = jobs.into_iter().zip(blobs).filter_map(|((_, _, name), blob)| Some((name, blob.ok()?)));
        self.blobs.extend(made);
        Ok(())
    }

    /// Will candidates of a site be timed?
    fn is_timed(&self, site: &Site) -> bool {
        let known = self.known(&site.key, &site.candidates);
        let asked = !self.config.estimates && !self.config.locked && !known;
        let walked = site.candidates.first().is_some_and(|t| t.name == flow::INTERPRETED);
        asked && !walked && can_be_timed(&site.concrete)
    }

    /// The backend's estimate for the most promising tactic, in nanoseconds.
    pub fn estimate(
        &mut self,
        layer: &str,
        region: &Region,
        facts: &[Fact],
    ) -> Result<Option<f64>, BuildError> {
        Ok(self.site(layer, region, facts)?.estimate_ns)
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

    /// Text that distinguishes regions for which different tactics may be chosen.
    pub fn text(&self, region: &Region, facts: &[Fact]) -> Result<String, BuildError> {
        Ok(described(&region.graph, &concretize(&region.graph, facts)?))
    }

    /// Facts of a region before it is timed; the backend is asked once.
    fn site(&mut self, layer: &str, region: &Region, facts: &[Fact]) -> Result<Rc<Site>, BuildError> {
        let concrete = concretize(&region.graph, facts)?;
        let mut text = described(&region.graph, &concrete);
        if self.differs_by_layer() {
            text = format!("{}\n{text}", self.full_name(layer));
        }
        if let Some(known) = self.sites.get(&text) {
            return Ok(known.clone());
        }
        let all = self.by_promise(layer, region, &concrete)?;
        let offered = all.iter().map(Tactic::id).collect();
        let estimate_ns = all.first().and_then(|t| t.estimate_ns);
        let mut flags = self.flags();
        if !self.config.share_times {
            flags = format!("{flags} layer={layer}");
        }
        let key = key(&describe(&concrete), self.target, &flags);
        let (candidates, chosen) = self.chosen(layer, region, &concrete, &key, all)?;
        let site = Rc::new(Site { concrete, candidates, offered, key, estimate_ns, chosen });
        self.sites.insert(text, site.clone());
        Ok(site)
    }

    /// Times the candidates of a site unless their times are known.
    fn ensure(&mut self, layer: &str, region: &Region, site: &Site) -> Result<(), BuildError> {
        self.used.insert(site.key.clone());
        if self.known(&site.key, &site.candidates) {
            return Ok(());
        }
        if self.config.locked {
            return Err(BuildError::CacheMiss { layer: layer.into(), key: site.key.clone() });
        }
        self.measure(layer, region, site)
    }

    /// Settings that change what may be chosen from.
    fn flags(&self) -> String {
        let c = self.config;
        format!("max_tactics={} estimate_limit={}{}", c.max_tactics, c.estimate_limit, pools::flags(c))
    }

    /// The error for a region that the backend refuses.
    pub fn refused(&self, layer: &str, region: &Region, reasons: String) -> BuildError {
        let g = &region.graph;
        let inputs: Vec<String> = g.inputs.iter().map(|&v| g.ty(v).to_string()).collect();
        BuildError::NoTactic {
            backend: self.backend.name().to_owned(),
            layer: layer.to_owned(),
            op: region.label(),
            inputs: inputs.join(", "),
            reasons,
        }
    }

    /// The backend's tactics, the most promising at the usual shapes first.
    fn by_promise(&self, layer: &str, region: &Region, concrete: &Graph) -> Result<Vec<Tactic>, BuildError> {
        let refused = |reasons: String| self.refused(layer, region, reasons);
        let mut all = self.backend.tactics(region, self.target).map_err(|e| refused(e.to_string()))?;
        if all.is_empty() {
            return Err(refused("it proposes no tactic and gives no reason".into()));
        }
        let forbidden: Vec<&TacticRule> = self.rules_of(layer).filter(|r| r.forbidden).collect();
        let excluded = |t: &Tactic| {
            self.config.excluded_tactics.iter().any(|e| selection::named(e, t))
                || forbidden.iter().any(|r| r.names(t))
                || (self.config.deterministic && !t.deterministic)
        };
        if all.iter().all(excluded) {
            let names: Vec<&str> = all.iter().map(|t| &*t.name).collect();
            return Err(refused(format!(
                "all of its tactics are excluded by this build, by name or as not deterministic: {}",
                names.join(", ")
            )));
        }
        all.retain(|t| !excluded(t));
        pools::keep_fitting(&mut all, concrete, self.config).map_err(refused)?;
        // Of ways to run control flow, whose time lies in its bodies, the backend names the most promising first.
        if all.iter().all(|t| t.name == flow::INTERPRETED) {
            return Ok(all);
        }
        // Estimates are those of the usual shapes.
        if !same_inputs(&region.graph, concrete) {
            let usual = Region { graph: concrete.clone(), ..region.clone() };
            let usual = self.backend.tactics(&usual, self.target).unwrap_or_default();
            let estimates: HashMap<String, Option<f64>> =
                usual.into_iter().map(|t| (t.id(), t.estimate_ns)).collect();
            all.iter_mut().for_each(|t| t.estimate_ns = estimates.get(&t.id()).copied().flatten());
        }
        all.sort_by(|a, b| cost(a).total_cmp(&cost(b)).then_with(|| a.id().cmp(&b.id())));
        Ok(all)
    }

    /// Whether layers that compute the same may be run differently.
    fn differs_by_layer(&self) -> bool {
        let c = self.config;
        c.selector.is_some() || !c.tactic_rules.is_empty() || !c.share_times
    }

    /// The tactics to choose from, and whether somebody chose them: those that a rule forces, else those that the selector
    /// returns, else the one that the timing cache pins, else the most promising.
    fn chosen(
        &self,
        layer: &str,
        region: &Region,
        concrete: &Graph,
        key: &str,
        mut all: Vec<Tactic>,
    ) -> Result<(Vec<Tactic>, bool), BuildError> {
        let forced: Vec<&TacticRule> = self.rules_of(layer).filter(|r| !r.forbidden).collect();
        if !forced.is_empty() {
            let kept: Vec<Tactic> =
                all.iter().filter(|t| forced.iter().any(|r| r.names(t))).cloned().collect();
            if kept.is_empty() {
                let wanted: Vec<&str> = forced.iter().map(|r| r.tactic.as_str()).collect();
                let offers: Vec<String> = all.iter().map(Tactic::id).collect();
                return Err(self.refused(
                    layer,
                    region,
                    format!(
                        "this build forces {}, which is not offered; there are {}",
                        wanted.join(", "),
                        offers.join(", ")
                    ),
                ));
            }
            return Ok((kept, true));
        }
        // Among the ways to run control flow is selected once its bodies are built.
        if all.iter().all(|t| t.name == flow::INTERPRETED) {
            return Ok((all, false));
        }
        if let Some(selected) = self.selected(layer, region, concrete, key, &all)? {
            return Ok((selected, true));
        }
        self.keep_promising(&mut all);
        Ok((all, false))
    }

    /// The tactics that the selector returns, else the one that the timing cache pins.
    fn selected(
        &self,
        layer: &str,
        region: &Region,
        concrete: &Graph,
        key: &str,
        all: &[Tactic],
    ) -> Result<Option<Vec<Tactic>>, BuildError> {
        if let Some(selector) = &self.config.selector {
            let name = layer;
            let layer = self.full_name(layer);
            let bounds = bounds::bounds(&region.graph, concrete, &self.ranges);
            let context = LayerContext::of(&layer, region, concrete, key, bounds);
            let median = |t: &Tactic| Some(self.median(key, t)).filter(|ns| ns.is_finite());
            let choices: Vec<Algorithm> = all.iter().map(|t| Algorithm::of(t, region, median(t))).collect();
            let Some(selected) = selector.select(&context, &choices)? else {
                return Err(self.refused(name, region, "the selector refuses all of its algorithms".into()));
            };
            if !selected.is_empty() {
                return Ok(Some(selected.into_iter().filter_map(|i| all.get(i).cloned()).collect()));
            }
            if self.config.reject_empty {
                let message =
                    "the selector chose none of the algorithms, and the build wants one (reject_empty)";
                return Err(BuildError::Selection { layer, message: message.into() });
            }
        }
        let pinned = self.cache.get(key).and_then(|e| e.pinned.as_ref());
        Ok(pinned.and_then(|p| all.iter().find(|t| t.id() == *p)).map(|t| vec![t.clone()]))
    }

    /// The name of a layer with those of the bodies of control flow that it is in.
    fn full_name(&self, layer: &str) -> String {
        selection::inside(&self.path, layer)
    }

    /// The rules for a layer, by its own name or the full one.
    fn rules_of<'s>(&'s self, layer: &'s str) -> impl Iterator<Item = &'s TacticRule> {
        let full = self.full_name(layer);
        self.config.tactic_rules.iter().filter(move |r| r.is_for(&full))
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

    /// The least median of an entry.
    fn best_known(&self, key: &str) -> Option<f64> {
        let medians = self.cache.get(key)?.candidates.values().map(Candidate::median);
        Some(medians.fold(f64::INFINITY, f64::min)).filter(|ns| ns.is_finite())
    }

    /// The median of a tactic in nanoseconds; infinite where it was not timed.
    fn median(&self, key: &str, t: &Tactic) -> f64 {
        let known = self.cache.get(key).and_then(|e| e.candidates.get(&t.id()));
        known.map_or(f64::INFINITY, Candidate::median)
    }

    /// The candidate of the least median; of equal ones the first by name. Where none has a time, the most promising.
    fn pick(&self, key: String, candidates: Vec<Tactic>) -> Choice {
        let count = candidates.len();
        let time = |t: &Tactic| self.median(&key, t);
        if let Some(first) = candidates.first().filter(|_| candidates.iter().all(|t| time(t).is_infinite())) {
            return Choice { tactic: first.clone(), ns: None, key: Some(key), candidates: count };
        }
        let best = candidates
            .into_iter()
            .min_by(|a, b| time(a).total_cmp(&time(b)).then_with(|| a.id().cmp(&b.id())));
        let tactic = best.unwrap_or_else(|| Tactic::plain("none"));
        let ns = Some(time(&tactic)).filter(|t| t.is_finite());
        Choice { tactic, ns, key: Some(key), candidates: count }
    }
}

/// A region's text, and that of the region at the usual shapes.
fn described(region: &Graph, concrete: &Graph) -> String {
    let own = describe(region);
    match same_inputs(region, concrete) {
        true => own.repeat(2),
        false => own + &describe(concrete),
    }
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

/// Whether a graph knows of its inputs what another one does.
fn same_inputs(g: &Graph, other: &Graph) -> bool {
    g.inputs.len() == other.inputs.len()
        && g.inputs.iter().zip(&other.inputs).all(|(a, b)| g.value(*a).fact == other.value(*b).fact)
}

/// Expected nanoseconds; those that are not expected come last.
fn cost(t: &Tactic) -> f64 {
    t.estimate_ns.unwrap_or(f64::INFINITY)
}
