//! Selection of algorithms by the user: a selector that is asked for each layer, and rules by name.

use crate::BuildError;
use crate::report::{StepReport, TensorLayout};
use kiln_backend::{Region, Tactic, is_view_op};
use kiln_ir::Graph;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A layer for which algorithms are selected: network layers that one kernel would run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerContext {
    /// Names of its network layers, joined by " + ".
    pub layer: String,
    /// Their operators, joined by " + ".
    pub operators: String,
    /// Tensors that it reads.
    pub inputs: Vec<TensorLayout>,
    /// Tensors that it writes.
    pub outputs: Vec<TensorLayout>,
    /// Least and greatest dimensions of each input, then of each output.
    pub bounds: Vec<ShapeBounds>,
    /// Key of its times in the timing cache.
    pub key: String,
}

/// Dimensions of a tensor at the least and the greatest shapes of the profile that the usual ones are of; -1 where a run determines them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeBounds {
    /// At the least shapes.
    pub least: Vec<i64>,
    /// At the greatest shapes.
    pub greatest: Vec<i64>,
}

impl LayerContext {
    pub(crate) fn of(
        layer: &str,
        region: &Region,
        concrete: &Graph,
        key: &str,
        bounds: Vec<ShapeBounds>,
    ) -> LayerContext {
        LayerContext {
            bounds,
            layer: layer.to_owned(),
            operators: region.label(),
            inputs: TensorLayout::all(concrete, &concrete.inputs),
            outputs: TensorLayout::all(concrete, &concrete.outputs),
            key: key.to_owned(),
        }
    }
}

/// One way to run a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Algorithm {
    /// The kernel: "matmul.tiled".
    pub implementation: String,
    /// The kernel with its parameters, which names the way among all of the layer.
    pub tactic: String,
    /// Scratch memory in bytes.
    pub workspace: u64,
    /// Whether it yields the same bits every time.
    pub deterministic: bool,
    /// Median time in nanoseconds if the timing cache has it; 0 for layers that may only rename memory.
    pub time_ns: Option<f64>,
    /// Time that the backend expects.
    pub estimate_ns: Option<f64>,
}

impl Algorithm {
    pub(crate) fn of(t: &Tactic, region: &Region, time_ns: Option<f64>) -> Algorithm {
        let view = region.graph.nodes().all(|(_, n)| is_view_op(&n.op));
        Algorithm {
            implementation: t.name.clone(),
            tactic: t.id(),
            workspace: t.workspace,
            deterministic: t.deterministic,
            time_ns: if view { Some(0.0) } else { time_ns },
            estimate_ns: t.estimate_ns,
        }
    }
}

/// Selects the algorithms that a build chooses from.
///
/// The search tries several cuts and formats of the network. A selector is asked for each layer that it prices, so also for
/// such as the plan does not have in the end.
pub trait AlgorithmSelector: Send {
    /// Returns the positions among `choices` that the build may take. It takes the fastest of them; what is not needed for that is
    /// not timed. None: any of them, or an error if `BuildConfig::reject_empty` is set.
    ///
    /// # Errors
    /// A text that ends the build.
    fn select(&mut self, layer: &LayerContext, choices: &[Algorithm]) -> Result<Vec<usize>, String>;

    /// Selects as [`AlgorithmSelector::select`] does, or returns `None`: no algorithm may run the layer in this form. The search then leaves
    /// out the cut or the formats that led to it. The build fails where there is no other form.
    ///
    /// # Errors
    /// A text that ends the build.
    fn select_or_refuse(
        &mut self,
        layer: &LayerContext,
        choices: &[Algorithm],
    ) -> Result<Option<Vec<usize>>, String> {
        self.select(layer, choices).map(Some)
    }

    /// Receives the final choice of each layer of the plan, once a build.
    fn report(&mut self, layers: &[StepReport]);
}

/// A selector that builds share.
#[derive(Clone)]
pub struct Selector {
    inner: Arc<Mutex<dyn AlgorithmSelector>>,
    /// Whether it selects what a record has.
    replays: bool,
}

impl Selector {
    /// Shares a selector. The caller may keep a clone of the handle, to read what was reported.
    pub fn new<S: AlgorithmSelector + 'static>(selector: Arc<Mutex<S>>) -> Selector {
        Selector { inner: selector, replays: false }
    }

    /// A selector that chooses what a record has.
    pub(crate) fn replay(record: impl AlgorithmSelector + 'static) -> Selector {
        Selector { inner: Arc::new(Mutex::new(record)), replays: true }
    }

    pub(crate) fn replays(&self) -> bool {
        self.replays
    }

    pub(crate) fn select(
        &self,
        layer: &LayerContext,
        choices: &[Algorithm],
    ) -> Result<Option<Vec<usize>>, BuildError> {
        let mut selector = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = |message: String| BuildError::Selection { layer: layer.layer.clone(), message };
        let Some(mut found) = selector.select_or_refuse(layer, choices).map_err(refused)? else {
            return Ok(None);
        };
        found.sort_unstable();
        found.dedup();
        match found.iter().find(|&&i| i >= choices.len()) {
            Some(i) => Err(refused(format!("the selector chose {i} of {} algorithms", choices.len()))),
            None => Ok(Some(found)),
        }
    }

    pub(crate) fn report(&self, layers: &[StepReport]) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).report(layers);
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Selector")
    }
}

/// Forces or forbids a tactic for layers of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TacticRule {
    /// Name of a network layer, or of the layers of a kernel joined by " + "; "*" stands for all. Layers in bodies of control flow go
    /// by their own name, or by one with the names of the bodies in front: "body / product".
    pub layer: String,
    /// The tactic with its parameters, its name, or the part of its name in front of a dot.
    pub tactic: String,
    /// Whether the tactic is forbidden instead of forced.
    pub forbidden: bool,
}

impl TacticRule {
    /// Whether the rule is for a layer of this name, which may have names of bodies in front.
    pub fn is_for(&self, layer: &str) -> bool {
        let named = |own: &str| self.layer == own || own.split(" + ").any(|l| l == self.layer);
        self.layer == "*" || self.layer == layer || named(layer.rsplit(INSIDE).next().unwrap_or(layer))
    }

    /// Whether a tactic is the one of the rule.
    pub fn names(&self, tactic: &Tactic) -> bool {
        named(&self.tactic, tactic)
    }
}

/// Between the name of a body of control flow and that of a layer in it.
const INSIDE: &str = " / ";

/// The name of a layer with those of the bodies that it is in.
pub(crate) fn inside(bodies: &[String], layer: &str) -> String {
    let names = bodies.iter().map(String::as_str).chain([layer]);
    names.collect::<Vec<_>>().join(INSIDE)
}

/// Notes on rules of which no kernel of a plan runs the layer.
pub(crate) fn unused(rules: &[TacticRule], steps: &[StepReport]) -> Vec<String> {
    let lost = rules.iter().filter(|r| r.layer != "*" && !steps.iter().any(|s| r.is_for(&s.name)));
    lost.map(|r| format!("the rule \"{r}\" has no effect: no kernel runs a layer of this name")).collect()
}

/// Whether a text names a tactic: by its id, its name, or the part of the name in front of a dot.
pub(crate) fn named(text: &str, tactic: &Tactic) -> bool {
    let start = tactic.name.strip_prefix(text).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    start || tactic.id() == text
}

impl fmt::Display for TacticRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}{}", self.layer, if self.forbidden { "!" } else { "" }, self.tactic)
    }
}

/// Rules as text: `layer=tactic` forces, `layer=!tactic` forbids.
impl std::str::FromStr for TacticRule {
    type Err = String;

    fn from_str(text: &str) -> Result<TacticRule, String> {
        let split = text.split_once('=').filter(|(layer, tactic)| !layer.is_empty() && !tactic.is_empty());
        let (layer, tactic) = split.ok_or("wanted LAYER=TACTIC, or LAYER=!TACTIC to forbid one")?;
        let forbidden = tactic.strip_prefix('!');
        let tactic = forbidden.unwrap_or(tactic).to_owned();
        Ok(TacticRule { layer: layer.to_owned(), tactic, forbidden: forbidden.is_some() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test panics")]
mod tests {
    use super::*;

    #[test]
    fn rules_name_layers_and_tactics() {
        let rule: TacticRule = "fc=matmul".parse().unwrap();
        assert!(rule.is_for("fc") && rule.is_for("conv + fc") && !rule.is_for("fc2") && !rule.forbidden);
        assert!(rule.is_for("body / conv + fc") && !rule.is_for("fc / conv"));
        let inner: TacticRule = "body / fc=matmul".parse().unwrap();
        assert!(inner.is_for("body / fc") && !inner.is_for("fc") && !inner.is_for("other / fc"));
        let tactic = Tactic::plain("matmul.tiled");
        assert!(rule.names(&tactic));
        assert!(!"fc=mat".parse::<TacticRule>().unwrap().names(&tactic));
        let rule: TacticRule = "*=!matmul.tiled".parse().unwrap();
        assert!(rule.is_for("anything") && rule.forbidden && rule.names(&tactic));
        assert!("fc".parse::<TacticRule>().is_err() && "=x".parse::<TacticRule>().is_err());
    }
}
