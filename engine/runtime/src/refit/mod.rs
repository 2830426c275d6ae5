//! Refit: new weights for an engine or a plan, all or nothing, while contexts run.

mod known;
mod on_device;
mod ranges;
mod recipes;
mod several;
mod strip;
mod structure;
mod task;
mod times;

pub use known::NamedWeight;
pub use recipes::{RecipeReport, verify_recipes};
pub use strip::strip;
pub use task::RefitTask;
pub use times::RefitTimes;

use crate::RuntimeError;
use crate::engine::{Engine, Shared};
use crate::error::listed;
use crate::weights::{held, refused, renew_network, replace, weights};
use kiln_backend::Program;
use kiln_ir::{Recipe, Tensor, Weight, WeightsRole};
use kiln_plan::{AbsentWeight, Plan};
use known::Known;
use on_device::OnDevice;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use times::Clock;

/// Collects new weights for an engine or a plan and puts them in.
pub struct Refitter {
    subject: Subject,
    known: Known,
    set: BTreeMap<Arc<str>, Tensor>,
    /// Weights that the refit reads from the device.
    on_device: OnDevice,
    /// Whether only the elements of the build may be set.
    identical: bool,
    validation: bool,
    times: RefitTimes,
}

/// The holder of the weights.
enum Subject {
    Engine(Arc<Shared>),
    Plan(Box<Plan>),
}

/// Report of a refit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefitReport {
    /// Weights that were set and replaced.
    pub replaced: usize,
    /// Weights that were derived again from them.
    pub derived: usize,
    /// Defects of the new weights, such as elements that overflow the type of a derived weight.
    pub warnings: Vec<String>,
}

impl Engine {
    /// A refitter; refused if the plan was built without refit.
    pub fn refitter(&self) -> Result<Refitter, RuntimeError> {
        let header = &self.shared.header;
        let made = Refitter::new(Subject::Engine(self.shared.clone()), header.refittable, header.identical);
        self.shared.recorder.note(made)
    }
}

impl Refitter {
    /// A refitter of a plan, which needs no device; [`Refitter::into_plan`] returns the plan. Refused if the plan was built
    /// without refit.
    pub fn of_plan(plan: Plan) -> Result<Refitter, RuntimeError> {
        let (refittable, identical) = (plan.header.refittable, plan.header.identical);
        Refitter::new(Subject::Plan(Box::new(plan)), refittable, identical)
    }

    fn new(subject: Subject, refittable: bool, identical: bool) -> Result<Refitter, RuntimeError> {
        if !refittable {
            let why = "the plan was built without refit, or of a network without weights; build it again with refit enabled";
            return Err(refused(why.into()));
        }
        let known = subject.with_program(Known::of);
        let (set, on_device) = (BTreeMap::new(), OnDevice::default());
        let times = RefitTimes::default();
        Ok(Refitter { subject, known, set, on_device, identical, validation: true, times })
    }

    /// All named weights, in the order of names.
    pub fn weights(&self) -> impl Iterator<Item = &NamedWeight> {
        self.known.all.values()
    }

    /// Names of all weights that can be replaced.
    pub fn get_all(&self) -> Vec<String> {
        self.weights().filter(|w| w.fixed.is_none()).map(|w| w.name.clone()).collect()
    }

    /// Layers and roles of all weights that can be replaced. A weight that several layers share has one for each.
    pub fn get_all_roles(&self) -> Vec<(String, WeightsRole)> {
        self.known.roles()
    }

    /// Type and shape that a weight must have, its layers, and whether it can be replaced.
    pub fn prototype(&self, name: &str) -> Result<&NamedWeight, RuntimeError> {
        Ok(self.known.named(name)?.1)
    }

    /// Name, type and shape of the weights of a layer in a role. [`WeightsRole::Any`] stands for the only weights of a layer.
    pub fn prototype_of(&self, layer: &str, role: WeightsRole) -> Result<&NamedWeight, RuntimeError> {
        self.prototype(self.known.role(layer, role)?)
    }

    /// Sets new elements of the type and shape of the old. Dimensions of 1 may be left out, and all elements may be given in
    /// one dimension. Nothing changes before [`Refitter::refit`].
    ///
    /// # Errors
    /// [`RuntimeError::Refit`] if no weight has the name, it cannot be replaced, or type or shape differ. Where the plan takes
    /// identical weights only, also if the elements differ from those of the build, unless validation is off.
    pub fn set(&mut self, name: &str, tensor: Tensor) -> Result<(), RuntimeError> {
        let result = self.try_set(name, tensor);
        self.noted(result)
    }

    fn try_set(&mut self, name: &str, tensor: Tensor) -> Result<(), RuntimeError> {
        let (key, w) = self.known.named(name)?;
        if let Some(why) = &w.fixed {
            return Err(refused(format!("weight \"{name}\" can't be replaced: {why}")));
        }
        let shaped = (tensor.dtype() == w.dtype).then(|| in_shape(&tensor, &w.shape)).flatten();
        let Some(tensor) = shaped else {
            let (d, s) = (w.dtype, &w.shape);
            return Err(refused(format!("weight \"{name}\" is {d}{s:?}, was given {}", tensor.ty())));
        };
        if self.identical && self.validation && !self.is_original(name, &tensor) {
            return Err(refused(format!(
                "weight \"{name}\" has other elements than when the plan was built, and the plan takes identical weights only; \
                 give those of the model that it was built of, or build it with refit of all weights"
            )));
        }
        let key = key.clone();
        self.on_device.forget(&key);
        self.set.insert(key, tensor);
        Ok(())
    }

    /// Sets new elements of a layer's weights, as [`Refitter::set`] does.
    pub fn set_weights(
        &mut self,
        layer: &str,
        role: WeightsRole,
        tensor: Tensor,
    ) -> Result<(), RuntimeError> {
        let name = self.known.role(layer, role)?.clone();
        self.set(&name, tensor)
    }

    /// The elements that were set and are not yet put in.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.set.get(name)
    }

    /// Takes back what was set.
    pub fn unset(&mut self, name: &str) -> bool {
        self.on_device.forget(name) | self.set.remove(name).is_some()
    }

    /// Takes back what was set for a layer's weights.
    pub fn unset_weights(&mut self, layer: &str, role: WeightsRole) -> Result<bool, RuntimeError> {
        let name = self.known.role(layer, role)?.clone();
        Ok(self.unset(&name))
    }

    /// Switches checks of elements on (the default) or off: whether they are those of the build where the plan wants that, and
    /// whether they overflow the types of derived weights.
    pub fn set_validation(&mut self, on: bool) {
        self.validation = on;
    }

    /// Whether a weight holds these elements now. A weight of a stripped plan is compared by its hash.
    pub fn is_current(&self, name: &str, tensor: &Tensor) -> bool {
        self.is_original(name, tensor)
    }

    fn is_original(&self, name: &str, tensor: &Tensor) -> bool {
        if let Some(a) = self.subject.absent().iter().find(|a| a.name == name) {
            return *blake3::hash(tensor.bytes()).as_bytes() == a.hash;
        }
        let same = |p: &Program| {
            let mut named = weights(p).filter(|(_, w)| w.name.as_deref() == Some(name));
            named.next().is_some_and(|(_, w)| w.tensor == *tensor)
        };
        self.subject.with_program(same)
    }

    /// Weights that must be set as well: sources of derived weights that are made of what was set, and that the engine
    /// does not hold. Of a stripped plan all weights that it leaves out. Setting exactly these makes nothing else missing.
    pub fn get_missing(&self) -> Vec<String> {
        let absent = self.subject.absent();
        let left_out: BTreeSet<Arc<str>> = absent.iter().map(|a| Arc::from(a.name.as_str())).collect();
        let mut missing: BTreeSet<Arc<str>> = left_out.iter().filter(|n| !self.is_set(n)).cloned().collect();
        let mut known: BTreeSet<Arc<str>> =
            self.set.keys().chain(self.on_device.names()).chain(&left_out).cloned().collect();
        self.subject.with_program(|program| {
            let held = held(program);
            let recipes: Vec<&Arc<Recipe>> =
                weights(program).filter_map(|(_, w)| w.recipe.as_ref()).collect();
            loop {
                let touched = recipes.iter().filter(|r| r.sources.iter().any(|s| known.contains(s)));
                let new: Vec<Arc<str>> = touched
                    .flat_map(|r| &r.sources)
                    .filter(|s| !known.contains(*s) && !held.contains_key(*s))
                    .cloned()
                    .collect();
                if new.is_empty() {
                    break;
                }
                known.extend(new.iter().cloned());
                missing.extend(new);
            }
        });
        missing.into_iter().map(|s| s.to_string()).collect()
    }

    fn is_set(&self, name: &str) -> bool {
        self.set.contains_key(name) || self.on_device.has(name)
    }

    /// The missing weights by layer and role.
    pub fn get_missing_roles(&self) -> Vec<(String, WeightsRole)> {
        self.known.roles_of(&self.get_missing())
    }

    /// Replaces the weights, with all weights that are computed from them. Of an engine it loads them beside the old ones and
    /// lets the next runs use them. Runs that have begun finish with the old weights. After an error the
    /// engine is unchanged and the weights that were set stay set.
    pub fn refit(&mut self) -> Result<RefitReport, RuntimeError> {
        let result = self.try_refit();
        self.noted(result)
    }

    /// A result, reported to the recorder of the engine if it is an error.
    fn noted<T>(&self, result: Result<T, RuntimeError>) -> Result<T, RuntimeError> {
        match &self.subject {
            Subject::Engine(shared) => shared.recorder.note(result),
            Subject::Plan(_) => result,
        }
    }

    fn try_refit(&mut self) -> Result<RefitReport, RuntimeError> {
        let shared = match &self.subject {
            Subject::Engine(shared) => Some(shared.clone()),
            Subject::Plan(_) => None,
        };
        let mut clock = Clock::start();
        let lock = shared.as_ref().map(|s| s.refitting.lock().unwrap_or_else(PoisonError::into_inner));
        let missing = self.get_missing();
        if !missing.is_empty() {
            return Err(refused(format!("also set {}", listed(&missing))));
        }
        self.read_device()?;
        let mut times = RefitTimes { read: clock.lap(), ..RefitTimes::default() };
        let (program, report) = self.subject.with_program(|p| self.renewed(p, (&mut times, &mut clock)))?;
        times.checked = clock.lap();
        match &mut self.subject {
            Subject::Engine(shared) => {
                shared.swap(program)?;
                shared.set_complete();
            }
            Subject::Plan(plan) => {
                if let Some(network) = &mut plan.network {
                    renew_network(network, &program);
                }
                plan.program = program;
                plan.header.absent.clear();
            }
        }
        drop(lock);
        times.loaded = clock.lap();
        tracing::debug!("refit: {times}");
        self.times = times;
        self.set.clear();
        report.warnings.iter().for_each(|w| tracing::warn!("refit: {w}"));
        Ok(report)
    }

    /// The time that each phase of the last refit took; zeros where none has ended.
    pub fn times(&self) -> RefitTimes {
        self.times
    }

    /// The plan, refitted if [`Refitter::refit`] was called. Of an engine [`Engine::plan`].
    pub fn into_plan(self) -> Plan {
        match self.subject {
            Subject::Plan(plan) => *plan,
            Subject::Engine(shared) => Engine { shared }.plan(),
        }
    }

    /// The program with the new weights.
    fn renewed(
        &self,
        old: &Program,
        (times, clock): (&mut RefitTimes, &mut Clock),
    ) -> Result<(Program, RefitReport), RuntimeError> {
        let mut program = old.clone();
        let mut sources = held(old);
        sources.extend(self.set.clone());
        let mut report = RefitReport::default();
        let changed = |name: &Arc<str>| self.set.contains_key(name);
        let kept = |w: &Weight| w.name.as_ref().is_some_and(changed);
        let derived = weights(old).filter(|(_, w)| !kept(w)).filter_map(|(v, w)| {
            let recipe = w.recipe.as_ref().filter(|r| r.sources.iter().any(changed))?;
            Some((v, recipe.as_ref(), old.graph.value(v).name.as_str()))
        });
        let mut derived = several::evaluate(derived.collect(), &sources)?;
        times.derived = clock.lap();
        for (v, w) in weights(old) {
            let label = &old.graph.value(v).name;
            let tensor = match &w.name {
                Some(name) if changed(name) => {
                    report.replaced += 1;
                    self.set.get(name).cloned()
                }
                _ => derived.remove(&v).inspect(|_| report.derived += 1),
            };
            let Some(tensor) = tensor else { continue };
            if tensor.ty() != w.tensor.ty() {
                let was = w.tensor.ty();
                return Err(refused(format!(
                    "derived weight \"{label}\" would become {}, is {was}",
                    tensor.ty()
                )));
            }
            if self.validation && w.recipe.is_some() && kiln_recipes::has_infinity(&tensor) {
                report.warnings.push(format!(
                    "derived weight \"{label}\" has elements beyond the range of {}: they became infinite",
                    tensor.dtype()
                ));
            }
            replace(&mut program.graph, v, &tensor);
        }
        program.graph.refresh()?;
        let changed = program.graph.value_ids().find(|&v| program.graph.ty(v) != old.graph.ty(v));
        if let Some(v) = changed {
            let (is, was) = (program.graph.ty(v), old.graph.ty(v));
            return Err(refused(format!("\"{}\" would become {is}, is {was}", old.graph.value(v).name)));
        }
        Ok((program, report))
    }
}

/// Elements in the shape of a weight, if they have the same dimensions but for those of 1, or a single one.
fn in_shape(t: &Tensor, shape: &[usize]) -> Option<Tensor> {
    let longer = |s: &[usize]| -> Vec<usize> { s.iter().copied().filter(|&d| d != 1).collect() };
    let fits = t.shape().len() == 1 || longer(t.shape()) == longer(shape);
    fits.then(|| t.reshaped(shape)).flatten()
}

impl Subject {
    fn with_program<T>(&self, f: impl FnOnce(&Program) -> T) -> T {
        match self {
            Subject::Engine(shared) => f(&shared.current().program),
            Subject::Plan(plan) => f(&plan.program),
        }
    }

    /// Weights that a stripped plan leaves out and nobody has supplied.
    fn absent(&self) -> Arc<[AbsentWeight]> {
        match self {
            Subject::Engine(shared) => shared.absent(),
            Subject::Plan(plan) => plan.header.absent.as_slice().into(),
        }
    }
}
