//! One deterministic search over rewrites that may be taken or left, and over the cuts of regions.
//!
//! A rewrite is decided by what the graph costs with it and without it: the sum, over its regions, of the best tactic's
//! median and of a launch. Regions that both have cost nothing to compare. Equal sites (the same layers with the same
//! types) are decided together, once. Only stored samples count, so that a warm build decides as the cold one did.

mod join;
mod price;
mod rewrite;
mod side;
mod split;
mod types;
mod whole;

use crate::passes::{self, Pass, PassCx, PassReport};
use crate::points::{Points, Span};
use crate::tuner::Tuner;
use crate::{BuildError, bodies, borders, regions};
use kiln_ir::{Fact, Graph, NodeId};
use rewrite::{Rewrite, by_late_patterns, by_patterns, formats, next_class, padded};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// A rewrite must be faster by this part to be taken.
pub(crate) const GAIN: f64 = 0.02;

/// Part by which runs of one network differ: where sums of steps are faster, runs may be slower by this.
const TIE: f64 = 0.005;

/// Comparison of a rewrite with the original.
pub enum Verdict {
    /// Nanoseconds of the regions that differ.
    Timed {
        /// Time of the regions before.
        without: f64,
        /// Time of the regions after.
        with: f64,
    },
    /// Nanoseconds of runs of the whole network.
    Runs {
        /// Time of the network before.
        without: f64,
        /// Time of the network after.
        with: f64,
    },
    /// Fewer kernels only reformat inputs and outputs, which counts more than time.
    Direct,
    /// More layers have a tactic that the user's selection allows, which counts more than time.
    Selectable,
    /// The backend expects it to take so many times as long: not timed.
    Hopeless(f64),
    /// The backend lacks a kernel for it.
    Refused(String),
}

impl Verdict {
    /// Whether the rewrite is taken.
    fn pays(&self) -> bool {
        match *self {
            Verdict::Timed { without, with } => with < without * (1.0 - GAIN),
            Verdict::Runs { without, with } => with < without * (1.0 + TIE),
            Verdict::Direct | Verdict::Selectable => true,
            Verdict::Hopeless(_) | Verdict::Refused(_) => false,
        }
    }
}

/// A rewrite that was considered, and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Considered {
    /// Kind of rewrite: "types", "formats", "channels-last", "padded-channels", "plug-in formats", "split", "join moves", "join reductions", the name of a pattern.
    pub rewrite: &'static str,
    /// The first layer of its first site.
    pub layer: String,
    /// Number of equal sites.
    pub sites: usize,
    /// Time of what it replaces, in nanoseconds, if that was timed.
    pub without_ns: Option<f64>,
    /// Time of what it puts there.
    pub with_ns: Option<f64>,
    /// Whether it is in the program.
    pub taken: bool,
    /// Reason, in words.
    pub why: String,
}

/// A graph cut into regions.
#[derive(Clone)]
pub struct Formed {
    /// After all passes.
    pub graph: Graph,
    /// Facts of its values.
    pub points: Points,
    /// Nodes of each region, in execution order.
    pub regions: Vec<Vec<NodeId>>,
}

/// Facts of a graph's inputs.
#[derive(Clone, Copy)]
pub enum Given<'a> {
    /// Profiles of a network.
    Profiles,
    /// Facts of a body of control flow: at the usual shapes, and over those of every profile.
    Facts(&'a [Fact], &'a [Span]),
}

/// Search over rewrites of a graph, by measured or estimated times.
pub struct Search<'a, 'b> {
    /// Source of times.
    pub tuner: &'b mut Tuner<'a>,
    /// Context of passes.
    pub cx: PassCx<'b>,
    /// Facts of the inputs.
    pub given: Given<'b>,
    /// Rewrites that were considered so far.
    pub considered: Vec<Considered>,
}

impl Search<'_, '_> {
    /// Decides all alternatives of a graph.
    pub fn run(&mut self, g: Graph) -> Result<Formed, BuildError> {
        let mut best = self.form(g)?;
        if !self.cx.config.search {
            return Ok(best);
        }
        let rewrites: [fn(&Graph, &PassCx<'_>) -> Vec<Rewrite>; 4] =
            [by_patterns, formats, padded, by_late_patterns];
        let cuts: [fn(&mut Self, &mut Formed) -> Result<(), BuildError>; 3] =
            [Self::split, Self::join, Self::join_reductions];
        let cuts = if self.cx.config.fuse { &cuts[..] } else { &[] };
        let phase = self.tuner.progress.start("searching", rewrites.len() + cuts.len())?;
        let mut seen = BTreeSet::new();
        for find in rewrites {
            while let Some(class) = next_class(&best.graph, find(&best.graph, &self.cx), &mut seen)? {
                let name = class.first().map_or("none", |r| r.name());
                let one = self.tuner.progress.start(format!("trying {name}"), 1)?;
                if self.decide(&best, &class)? {
                    best = self.take(best, &class)?;
                }
                self.tuner.progress.step()?;
                self.tuner.progress.finish(one);
            }
            self.tuner.progress.step()?;
        }
        for cut in cuts {
            cut(self, &mut best)?;
            self.tuner.progress.step()?;
        }
        self.tuner.progress.finish(phase);
        Ok(best)
    }

    /// Runs passes, a step each.
    fn passes(&mut self, g: &mut Graph, list: &[Pass]) -> Result<Vec<PassReport>, BuildError> {
        let phase = self.tuner.progress.start("running passes", list.len())?;
        let mut reports = Vec::with_capacity(list.len());
        for pass in list {
            reports.extend(passes::run_list(g, &self.cx, std::slice::from_ref(pass))?);
            self.tuner.progress.step()?;
        }
        self.tuner.progress.finish(phase);
        Ok(reports)
    }

    fn form(&self, graph: Graph) -> Result<Formed, BuildError> {
        let points = match self.given {
            Given::Profiles => Points::of(&graph, self.cx.config)?,
            Given::Facts(usual, spans) => bodies::points(&graph, usual, spans)?,
        };
        let regions = regions::form(&graph, self.cx.backend, self.cx.target, self.cx.config.fuse);
        Ok(Formed { graph, points, regions })
    }

    /// Whether a rewrite pays at the first site of a class.
    fn decide(&mut self, now: &Formed, class: &[Rewrite]) -> Result<bool, BuildError> {
        let Some(first) = class.first() else { return Ok(false) };
        let layer = first.nodes().first().and_then(|&n| now.graph.get(n));
        let layer = layer.map_or(String::new(), |n| n.name.clone());
        let verdict = match &self.trial(now, first)? {
            Some(one) => self.judge(now, one, first)?,
            None => Verdict::Refused("the backend lacks a kernel for it".into()),
        };
        let verdict = self.confirm(now, class, verdict)?;
        Ok(self.note(first.name(), layer, class.len(), verdict))
    }

    /// The verdict on a form. A format that does not pay alone is judged with the channels padded that it brings: a later decision pads
    /// them.
    fn judge(&mut self, now: &Formed, one: &Formed, site: &Rewrite) -> Result<Verdict, BuildError> {
        let alone = self.weigh(now, one)?;
        if alone.pays() || !matches!(site, Rewrite::ChannelsLast(_)) {
            return Ok(alone);
        }
        let mut sets = padded(&one.graph, &self.cx);
        sets.retain(|s| s.nodes().iter().any(|&n| now.graph.get(n).is_none()));
        match self.trial_of(one, &sets)? {
            Some(both) => Ok(Some(self.weigh(now, &both)?).filter(Verdict::pays).unwrap_or(alone)),
            None => Ok(alone),
        }
    }

    /// The verdict on one form in the place of another.
    fn weigh(&mut self, now: &Formed, other: &Formed) -> Result<Verdict, BuildError> {
        Ok(match self.compare(now, other)? {
            Verdict::Refused(why) => Verdict::Refused(why),
            Verdict::Selectable => Verdict::Selectable,
            timed => self.directly(now, other).unwrap_or(timed),
        })
    }

    /// The verdict where kernels that only reformat count more than time.
    fn directly(&self, now: &Formed, other: &Formed) -> Option<Verdict> {
        let count = |f: &Formed| borders::count(&f.graph, &f.regions);
        match count(other).cmp(&count(now)) {
            _ if !self.cx.config.direct_io => None,
            Ordering::Less => Some(Verdict::Direct),
            Ordering::Equal => None,
            Ordering::Greater => Some(Verdict::Refused("inputs or outputs would need more reformats".into())),
        }
    }

    /// The graph with a rewrite at one site, to be looked at: large constants are not evaluated. `None` where the rewrite
    /// does not apply.
    fn trial(&self, now: &Formed, site: &Rewrite) -> Result<Option<Formed>, BuildError> {
        self.trial_of(now, std::slice::from_ref(site))
    }

    /// A trial of several rewrites, of which some may not apply; `None` where none of them does.
    fn trial_of(&self, now: &Formed, sites: &[Rewrite]) -> Result<Option<Formed>, BuildError> {
        let mut g = now.graph.clone();
        let mut changed = false;
        for site in sites {
            changed |= site.apply(&mut g, &self.cx)?;
        }
        if !changed {
            return Ok(None);
        }
        let work = self.cx.work.clone();
        passes::run_list(&mut g, &self.cx.trial(&work), passes::CLEAN)?;
        self.form(g).map(Some)
    }

    /// The graph with a rewrite at all these sites. The old one is given up, so that no weight is there in both forms.
    fn take(&self, now: Formed, sites: &[Rewrite]) -> Result<Formed, BuildError> {
        let Formed { graph: mut g, points, .. } = now;
        // Facts hold constants, too.
        drop(points);
        for site in sites {
            site.apply(&mut g, &self.cx)?;
        }
        passes::run_list(&mut g, &self.cx, passes::CLEAN)?;
        self.form(g)
    }

    /// Writes down what became of a rewrite. Is it taken?
    fn note(&mut self, rewrite: &'static str, layer: String, sites: usize, verdict: Verdict) -> bool {
        let (without_ns, with_ns, taken, why) = match verdict {
            Verdict::Timed { without, with } => {
                let taken = Verdict::Timed { without, with }.pays();
                let why = if taken { "faster" } else { "not faster" };
                let finite = |ns: f64| Some(ns).filter(|ns| ns.is_finite());
                (finite(without), finite(with), taken, why.to_owned())
            }
            Verdict::Runs { without, with } => {
                let taken = Verdict::Runs { without, with }.pays();
                let why = if taken {
                    "faster, and runs of the network agree"
                } else {
                    "runs of the network are slower"
                };
                (Some(without), Some(with), taken, why.to_owned())
            }
            Verdict::Direct => (None, None, true, "inputs or outputs need fewer reformats".into()),
            Verdict::Selectable => (None, None, true, "more layers have a tactic that is selected".into()),
            Verdict::Hopeless(times) => {
                (None, None, false, format!("expected to take {times:.1} times as long"))
            }
            Verdict::Refused(why) => (None, None, false, why),
        };
        self.record(Considered { rewrite, layer, sites, without_ns, with_ns, taken, why });
        taken
    }

    /// Writes down what was considered.
    fn record(&mut self, it: Considered) {
        let Considered { rewrite, layer, sites, without_ns, with_ns, taken, why } = &it;
        tracing::debug!(rewrite, layer, sites, without_ns, with_ns, taken, why, "considered");
        self.considered.push(it);
    }
}
