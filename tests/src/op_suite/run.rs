//! One problem on one backend.

use super::guard::Guarded;
use super::table::Table;
use super::{dtype_of, problems, random};
use kiln_backend::compare::{Expectation, Latitude};
use kiln_backend::{Backend, BackendError, Context, Device, Region, Shapes, Tactic, Target};
use kiln_ir::Tensor;
use kiln_ir::problem::Problem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Treatment of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Runs it by every tactic, and compares.
    Test,
    /// Asks for tactics and compiles them; no device is opened.
    Support,
}

impl Mode {
    /// `KILN_OP_SUITE=test` (default) or `support`.
    pub fn of_environment() -> Result<Mode, String> {
        match std::env::var("KILN_OP_SUITE").as_deref() {
            Err(_) | Ok("" | "test") => Ok(Mode::Test),
            Ok("support") => Ok(Mode::Support),
            Ok(other) => Err(format!("KILN_OP_SUITE is \"{other}\", wants test or support")),
        }
    }
}

/// Whether a tactic is one of those that run: `KILN_TACTICS` is a part of their names.
pub(super) fn wanted(tactic: &Tactic) -> bool {
    std::env::var("KILN_TACTICS").map_or(true, |named| tactic.name.contains(&named))
}

/// A backend under test.
pub struct Subject {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) target: Target,
    pub(super) device: Option<Arc<dyn Device>>,
    pub(super) latitude: Latitude,
}

/// Reason why a problem did not pass.
enum Trouble {
    Refused(String),
    Failed(String),
}

impl From<BackendError> for Trouble {
    fn from(e: BackendError) -> Trouble {
        match e {
            BackendError::Unsupported(why) => Trouble::Refused(why),
            e => Trouble::Failed(e.to_string()),
        }
    }
}

impl Subject {
    /// The backend's first target.
    pub fn new(backend: Arc<dyn Backend>, mode: Mode, latitude: Latitude) -> Result<Subject, BackendError> {
        let first = backend.targets()?.into_iter().next();
        let target = first.ok_or_else(|| BackendError::Unsupported("no device".into()))?;
        let device = (mode == Mode::Test).then(|| backend.open(&target)).transpose()?;
        Ok(Subject { backend, target, device, latitude })
    }

    /// Removes features of the device; nothing can be run then.
    pub fn without(mut self, features: &[&str]) -> Subject {
        self.device = None;
        self.target.features.retain(|f| !features.contains(&f.as_str()));
        self
    }

    /// One line on what the problems run on.
    pub fn describe(&self) -> String {
        let Target { device, driver, features, .. } = &self.target;
        format!("{device} {driver}; features: {}", features.join(" "))
    }

    /// One of `every` problems of the operators that `pick` names (all where it is `None`), on half of the processor: other
    /// tests run beside.
    pub fn run(&self, pick: Option<&str>, every: usize) -> Table {
        let picked = |name: &str| pick.is_none_or(|p| p.split(',').any(|o| o == name));
        let whole = problems();
        let wanted = whole.iter().filter(|p| picked(p.op.name()));
        let problems: Vec<&Problem> = wanted.step_by(every.max(1)).collect();
        let jobs = std::thread::available_parallelism().map_or(1, |n| (n.get() / 2).max(1));
        let next = AtomicUsize::new(0);
        let take = || problems.get(next.fetch_add(1, Ordering::Relaxed));
        let work = || std::iter::from_fn(take).map(|p| (*p, self.outcome(p))).collect::<Vec<_>>();
        let mut all: Vec<(&Problem, Result<(), Trouble>)> = std::thread::scope(|s| {
            let threads: Vec<_> = (0..jobs).map(|_| s.spawn(work)).collect();
            threads.into_iter().filter_map(|t| t.join().ok()).flatten().collect()
        });
        all.sort_by_key(|(p, _)| std::ptr::from_ref::<Problem>(p));
        assert_eq!(all.len(), problems.len(), "a thread of the suite was lost");
        let mut table = Table::default();
        for (p, outcome) in all {
            let row = table.row(p.op.name(), dtype_of(p));
            match outcome {
                Ok(()) => row.passed += 1,
                Err(Trouble::Refused(why)) => row.refused.push(why),
                Err(Trouble::Failed(why)) => row.failed.push(format!("{}: {why}", p.label)),
            }
        }
        table
    }

    /// Outcome of a problem; a panic is a failure.
    fn outcome(&self, p: &Problem) -> Result<(), Trouble> {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.problem(p)));
        outcome.unwrap_or_else(|_| Err(Trouble::Failed("panicked".into())))
    }

    /// A problem by every tactic.
    fn problem(&self, p: &Problem) -> Result<(), Trouble> {
        let mut guarded = Guarded::new(p, &self.target.memory)?;
        let region = guarded.program.region(&guarded.program.steps[Guarded::STEP])?;
        let tactics = self.backend.tactics(&region, &self.target)?;
        if tactics.is_empty() {
            return Err(Trouble::Failed("neither a tactic nor a refusal".into()));
        }
        if self.device.is_some() {
            guarded.program.choose(&*self.backend, &self.target)?;
        }
        let compared = self.device.is_some() && !p.op.def().traits.random;
        let expected = compared.then(|| Expectation::new(&p.op, &p.inputs, self.latitude)).transpose();
        let expected = expected.map_err(Trouble::Failed)?;
        for t in tactics.into_iter().filter(wanted) {
            let name = t.id();
            self.tactic(p, expected.as_ref(), &mut guarded, &region, t).map_err(|e| match e {
                Trouble::Failed(why) => Trouble::Failed(format!("by {name}: {why}")),
                refused => refused,
            })?;
        }
        Ok(())
    }

    fn tactic(
        &self,
        p: &Problem,
        expected: Option<&Expectation>,
        g: &mut Guarded,
        region: &Region,
        tactic: Tactic,
    ) -> Result<(), Trouble> {
        let blob = self.backend.compile(region, &tactic, &self.target)?;
        if blob != self.backend.compile(region, &tactic, &self.target)? {
            return Err(Trouble::Failed("compiles to another blob each time".into()));
        }
        let Some(device) = &self.device else { return Ok(()) };
        let repeats = tactic.deterministic && !p.op.def().traits.random;
        g.program.steps[Guarded::STEP].blob = blob.into();
        g.program.steps[Guarded::STEP].tactic = tactic;
        let program = Arc::new(g.program.clone());
        let shapes = Arc::new(program.shapes(&g.inputs)?);
        let mut cx = device.load(program)?.context()?;
        let first = once(p, expected, g, &mut *cx, &shapes)?;
        let second = once(p, expected, g, &mut *cx, &shapes).map_err(|e| match e {
            Trouble::Failed(why) | Trouble::Refused(why) => Trouble::Failed(format!("second run: {why}")),
        })?;
        let same = first.iter().zip(&second).all(|(a, b)| a.bytes() == b.bytes());
        if repeats && !same {
            return Err(Trouble::Failed("is deterministic, but the second run gave other bits".into()));
        }
        Ok(())
    }
}

/// One run; random results are checked by their distribution, all others against the oracle.
fn once(
    p: &Problem,
    expected: Option<&Expectation>,
    g: &Guarded,
    cx: &mut dyn Context,
    shapes: &Arc<Shapes>,
) -> Result<Vec<Tensor>, Trouble> {
    cx.enqueue(&g.inputs, shapes)?;
    let found = g.take(cx.outputs()?).map_err(Trouble::Failed)?;
    match expected {
        None => random::check(p, &found),
        Some(expected) => expected.check(&found),
    }
    .map_err(Trouble::Failed)?;
    Ok(found)
}
