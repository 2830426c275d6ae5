//! Choices of a build as text, by which another build makes the same without timing anything.

use crate::BuildConfig;
use crate::cache::TimingCache;
use crate::report::StepReport;
use crate::selection::{Algorithm, AlgorithmSelector, LayerContext};
use kiln_backend::Target;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Version of the text.
const FORMAT: u32 = 1;

/// The choice for one layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TacticChoice {
    /// Names of its network layers, joined by " + ".
    pub layer: String,
    /// Their operators.
    pub operators: String,
    /// Key of the layer in the timing cache; empty where nothing was to be chosen.
    pub key: String,
    /// The tactic with its parameters.
    pub tactic: String,
}

/// Settings of a build that decide how much it tries: times are known under them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedEffort {
    search: bool,
    share_times: bool,
    max_tactics: usize,
    /// None: no limit, which has no number in JSON.
    estimate_limit: Option<f64>,
    pools: BTreeMap<String, u64>,
}

impl RecordedEffort {
    fn of(c: &BuildConfig) -> RecordedEffort {
        RecordedEffort {
            search: c.search,
            share_times: c.share_times,
            max_tactics: c.max_tactics,
            estimate_limit: Some(c.estimate_limit).filter(|x| x.is_finite()),
            pools: c.pools.iter().map(|(pool, bytes)| (pool.name().to_owned(), *bytes)).collect(),
        }
    }

    /// Puts the settings into those of a build.
    pub(crate) fn apply(&self, c: &mut BuildConfig) {
        (c.search, c.share_times, c.max_tactics) = (self.search, self.share_times, self.max_tactics);
        c.estimate_limit = self.estimate_limit.unwrap_or(f64::INFINITY);
        let pools = self.pools.iter().filter_map(|(name, bytes)| Some((name.parse().ok()?, *bytes)));
        c.pools = pools.collect();
    }
}

/// The choices of a build, with the times that decided its search.
#[derive(Clone, Debug, PartialEq)]
pub struct TacticRecord {
    /// Name of the backend.
    pub backend: String,
    /// Name of the device.
    pub device: String,
    /// Whether the build took what the backend expects to be best instead of timing.
    pub estimates: bool,
    /// Settings under which it chose, which a replay takes over; none in records of earlier versions.
    pub effort: Option<RecordedEffort>,
    /// Choices in execution order. Editing a tactic forces it.
    pub layers: Vec<TacticChoice>,
    /// Times that the build used.
    pub times: TimingCache,
}

#[derive(Serialize, Deserialize)]
struct Header {
    kiln_tactics: u32,
    backend: String,
    device: String,
    estimates: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    effort: Option<RecordedEffort>,
    /// Number of lines of choices; the rest is a timing cache.
    layers: usize,
}

impl TacticRecord {
    /// The record of a build: its steps, and the times that it used.
    pub fn of(steps: &[StepReport], times: &TimingCache, target: &Target, estimates: bool) -> TacticRecord {
        let choice = |s: &StepReport, key: Option<&String>, tactic: &str| TacticChoice {
            layer: s.name.clone(),
            operators: s.ops.clone(),
            key: key.cloned().unwrap_or_default(),
            tactic: tactic.to_owned(),
        };
        let choices = |s: &StepReport| {
            let mut all = vec![choice(s, s.key.as_ref(), &s.tactic)];
            for a in &s.alternatives {
                all.extend(a.keys.iter().map(|key| choice(s, Some(key), &a.tactic)));
            }
            all
        };
        TacticRecord {
            backend: target.backend.clone(),
            device: target.device.clone(),
            estimates,
            effort: None,
            layers: steps.iter().flat_map(choices).collect(),
            times: times.clone(),
        }
    }

    /// The record with the settings of its build that decide how much is tried.
    #[must_use]
    pub fn with_effort(mut self, config: &BuildConfig) -> TacticRecord {
        self.effort = Some(RecordedEffort::of(config));
        self
    }

    /// The record as JSON lines: a header, a line for each layer, and a timing cache.
    pub fn to_text(&self) -> String {
        let header = Header {
            kiln_tactics: FORMAT,
            backend: self.backend.clone(),
            device: self.device.clone(),
            estimates: self.estimates,
            effort: self.effort.clone(),
            layers: self.layers.len(),
        };
        // Text and numbers always have a JSON form.
        let mut text = serde_json::to_string(&header).unwrap_or_default();
        for choice in &self.layers {
            text.push('\n');
            text.push_str(&serde_json::to_string(choice).unwrap_or_default());
        }
        text + "\n" + &self.times.to_text()
    }

    /// Reads what [`TacticRecord::to_text`] wrote, or what a person made of it.
    ///
    /// # Errors
    /// A text that names the line.
    pub fn from_text(text: &str) -> Result<TacticRecord, String> {
        let (first, mut rest) = text.split_once('\n').unwrap_or((text, ""));
        let header: Header = serde_json::from_str(first)
            .map_err(|e| format!("the first line is not the header of recorded tactics: {e}"))?;
        if header.kiln_tactics != FORMAT {
            let found = header.kiln_tactics;
            return Err(format!(
                "format {found} is not {FORMAT}, which this version reads: record the tactics again"
            ));
        }
        let mut layers = Vec::new();
        for i in 0..header.layers {
            let (line, after) = rest.split_once('\n').ok_or_else(|| {
                format!("it ends after {i} of {} layers: record the tactics again", header.layers)
            })?;
            layers.push(serde_json::from_str(line).map_err(|e| format!("line {}: {e}", i + 2))?);
            rest = after;
        }
        let Header { backend, device, estimates, effort, .. } = header;
        let times = TimingCache::from_text(rest).map_err(|e| format!("times behind the layers: {e}"))?;
        Ok(TacticRecord { backend, device, estimates, effort, layers, times })
    }
}

/// Selects what a record has.
pub(crate) struct Replay {
    /// Tactics by layer and key.
    choices: HashMap<(String, String), String>,
}

impl Replay {
    pub(crate) fn of(record: &TacticRecord) -> Replay {
        let choice = |c: &TacticChoice| ((c.layer.clone(), c.key.clone()), c.tactic.clone());
        Replay { choices: record.layers.iter().filter(|c| !c.key.is_empty()).map(choice).collect() }
    }
}

impl AlgorithmSelector for Replay {
    fn select(&mut self, layer: &LayerContext, choices: &[Algorithm]) -> Result<Vec<usize>, String> {
        let Some(wanted) = self.choices.get(&(layer.layer.clone(), layer.key.clone())) else {
            return Ok(Vec::new());
        };
        match choices.iter().position(|c| c.tactic == *wanted) {
            Some(i) => Ok(vec![i]),
            None => {
                let offers: Vec<&str> = choices.iter().map(|c| c.tactic.as_str()).collect();
                Err(format!("the recorded tactic {wanted} is not offered; there are {}", offers.join(", ")))
            }
        }
    }

    fn report(&mut self, _: &[StepReport]) {}
}
