//! Launch programs: the launches of a step as a plan stores them.

use super::table::{LaunchTables, Recorder, Variable};
use super::{Condition, Launch, LaunchSite};
use crate::BackendError;
use minicbor::{Decode, Encode};
use std::cell::RefCell;

/// The form whose launches are those of one shape.
const CONSTANTS: u32 = 1;
/// The form that has launches for every shape of the plan's profiles.
const TABLES: u32 = 2;
/// More conditions than these are left to the host's code: each doubles the number of cases.
const MOST_CONDITIONS: usize = 6;

/// The launches of a step, evaluated when the step was compiled.
///
/// Shapes and contents that launches depend on were known then, or are [variables](Variable) with a table row for each of their
/// values. What only a run knows beside them are [conditions](Condition): there is a case or a table for each combination of
/// those that matter.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct LaunchProgram {
    /// The form, which [`LaunchProgram::record`] and [`LaunchProgram::of_tables`] set; other forms are not evaluated.
    #[n(0)]
    pub form: u32,
    /// Iterations that all loops of one thread may make in one launch, on the device that the program was made for.
    #[n(1)]
    pub rounds: u64,
    /// The cases; exactly one of them holds in a run. None where there are tables.
    #[n(2)]
    pub cases: Vec<LaunchCase>,
    /// The launches of every shape of the plan's profiles, in the place of cases.
    #[n(3)]
    pub tables: Option<LaunchTables>,
}

/// Launches under some conditions.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct LaunchCase {
    /// The conditions, and whether each has to hold or not.
    #[n(0)]
    pub when: Vec<(Condition, bool)>,
    /// The launches, in order.
    #[n(1)]
    pub launches: Vec<Launch>,
}

impl LaunchProgram {
    /// Evaluates `launches` for every outcome of the conditions that it asks for; `None` where it fails, as it does if it
    /// needs what only a run knows, or where the conditions are too many.
    pub fn record(
        rounds: usize,
        launches: impl Fn(&dyn Fn(Condition) -> bool) -> Result<Vec<Launch>, BackendError>,
    ) -> Option<LaunchProgram> {
        let cases = cases(launches).ok()?;
        Some(LaunchProgram { form: CONSTANTS, rounds: rounds as u64, cases, tables: None })
    }

    /// Evaluates `launches` for every outcome of the conditions at each point: values of the variables.
    pub fn of_tables(
        rounds: usize,
        variables: Vec<Variable>,
        points: impl IntoIterator<Item = Vec<i64>>,
        launches: impl Fn(&[i64], &dyn Fn(Condition) -> bool) -> Result<Vec<Launch>, BackendError>,
    ) -> Result<LaunchProgram, BackendError> {
        let mut recorder = Recorder::default();
        for values in points {
            for case in cases(|holds| launches(&values, holds))? {
                recorder.add(&values, case.when, &case.launches);
            }
        }
        let tables = Some(recorder.finish(variables)?);
        Ok(LaunchProgram { form: TABLES, rounds: rounds as u64, cases: Vec::new(), tables })
    }

    /// Whether the program can be evaluated: its form is known, and it was made for devices that end loops after so many
    /// iterations.
    pub fn fits(&self, rounds: usize) -> bool {
        [CONSTANTS, TABLES].contains(&self.form) && self.rounds == rounds as u64
    }

    /// Whether its tables have all rows and columns.
    pub fn is_whole(&self) -> bool {
        self.tables.as_ref().is_none_or(LaunchTables::is_whole)
    }

    /// Whether it holds the launches of one shape only.
    pub fn is_of_one_shape(&self) -> bool {
        self.tables.is_none()
    }

    /// The launches of a run; `None` where the program does not [fit](LaunchProgram::fits).
    ///
    /// # Errors
    /// If it has no launches for the shapes of the run.
    pub fn evaluate(&self, site: &LaunchSite<'_>) -> Result<Option<Vec<Launch>>, BackendError> {
        if !self.fits(site.rounds) {
            return Ok(None);
        }
        if let Some(tables) = &self.tables {
            return tables.find(site).map(Some);
        }
        let case = self.cases.iter().find(|c| c.when.iter().all(|&(c, wanted)| (site.holds)(c) == wanted));
        Ok(case.map(|c| c.launches.clone()))
    }
}

/// The launches for every outcome of the conditions that `launches` asks for.
fn cases(
    launches: impl Fn(&dyn Fn(Condition) -> bool) -> Result<Vec<Launch>, BackendError>,
) -> Result<Vec<LaunchCase>, BackendError> {
    let mut cases = Vec::new();
    // Outcomes that are still to be evaluated. What is asked for beyond them is answered by "no", and put here as "yes".
    let mut open: Vec<Vec<(Condition, bool)>> = vec![Vec::new()];
    while let Some(given) = open.pop() {
        let asked = RefCell::new(given.clone());
        let holds = |c: Condition| {
            let mut asked = asked.borrow_mut();
            if let Some((_, known)) = asked.iter().find(|(k, _)| *k == c) {
                return *known;
            }
            asked.push((c, false));
            false
        };
        let launches = launches(&holds)?;
        let when = asked.into_inner();
        if when.len() > MOST_CONDITIONS {
            return Err(BackendError::Unsupported(format!(
                "launches that depend on {} conditions",
                when.len()
            )));
        }
        for at in given.len()..when.len() {
            let mut other = when[..=at].to_vec();
            other[at].1 = true;
            open.push(other);
        }
        cases.push(LaunchCase { when, launches });
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tactic;
    use crate::launch::KernelOperands;
    use kiln_ir::{DType, Fact, Graph, TensorType};

    const A: Condition = Condition::Weight(1);
    const B: Condition = Condition::Aliased(0, 0);

    /// Asks for the second condition only if the first holds.
    fn launches(holds: &dyn Fn(Condition) -> bool) -> Result<Vec<Launch>, BackendError> {
        let n = match (holds(A), holds(A) && holds(B)) {
            (false, _) => 1,
            (true, false) => 2,
            (true, true) => 3,
        };
        Ok(vec![Launch::map(0, vec![n]); n as usize])
    }

    /// The launches of a program in a run with these outcomes.
    fn evaluate(
        p: &LaunchProgram,
        rounds: usize,
        holds: impl Fn(Condition) -> bool,
    ) -> Result<Option<Vec<Launch>>, BackendError> {
        let (graph, operands, tactic) = (Graph::new(""), KernelOperands::default(), Tactic::plain("t"));
        let nothing = Fact::of(TensorType::new(DType::F32, [1]));
        let fact = |_| &nothing;
        let (graph, operands, tactic) = (&graph, &operands, &tactic);
        let (nodes, wanted) = (&[][..], &[][..]);
        p.evaluate(&LaunchSite { graph, nodes, operands, tactic, fact: &fact, wanted, rounds, holds: &holds })
    }

    #[test]
    fn every_outcome_of_the_conditions_has_the_launches_of_the_host() {
        let p = LaunchProgram::record(7, launches).unwrap();
        assert_eq!(p.cases.len(), 3);
        let p: LaunchProgram = minicbor::decode(&minicbor::to_vec(&p).unwrap()).unwrap();
        for (a, b) in [(false, false), (false, true), (true, false), (true, true)] {
            let holds = |c| if c == A { a } else { b };
            assert_eq!(evaluate(&p, 7, holds), launches(&holds).map(Some), "{a} {b}");
        }
    }

    #[test]
    fn programs_of_other_forms_and_devices_are_not_evaluated() {
        let p = LaunchProgram::record(7, launches).unwrap();
        assert_eq!(evaluate(&p, 8, |_| false), Ok(None));
        assert_eq!(evaluate(&LaunchProgram { form: 3, ..p }, 7, |_| false), Ok(None));
    }

    #[test]
    fn what_only_a_run_knows_is_not_recorded() {
        let fails = |holds: &dyn Fn(Condition) -> bool| match holds(A) {
            true => Err(BackendError::Internal("the shape is not known".into())),
            false => Ok(Vec::new()),
        };
        assert_eq!(LaunchProgram::record(7, fails), None);
        let many = |holds: &dyn Fn(Condition) -> bool| {
            (0..9).for_each(|i| _ = holds(Condition::Weight(i)));
            Ok(Vec::new())
        };
        assert_eq!(LaunchProgram::record(7, many), None);
    }
}
