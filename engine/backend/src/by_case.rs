//! Kernels of steps by the case of a run.

use crate::cases::{Alternative, Case};
use crate::flow::INTERPRETED;
use crate::program::{Program, Step};
use crate::tactic::Tactic;
use std::collections::HashSet;

impl Program {
    /// The case of a run within a profile, with so many elements of all inputs together: 0 of a program without cases. A number beyond
    /// its cases is one in which steps run by their own kernels.
    pub fn case_of(&self, profile: usize, elements: u64) -> u32 {
        if self.cases.is_empty() {
            return 0;
        }
        let holds = |c: &Case| c.profile as usize == profile && c.elements.is_none_or(|n| elements <= n);
        self.cases.iter().position(holds).map_or(u32::MAX, |i| i as u32)
    }

    /// The cases in which each kernel of a step runs, its own first, as words. Empty where it has a single one.
    pub fn cases_of<'s>(&self, step: &'s Step) -> Vec<(&'s Tactic, Vec<String>)> {
        if step.alternatives.is_empty() {
            return Vec::new();
        }
        let all = || 0..self.cases.len() as u32;
        let words = |i: u32| self.cases.get(i as usize).map(Case::describe).unwrap_or_default();
        let own = all().filter(|&i| step.alternative(i).is_none()).map(words).collect();
        let others = step.alternatives.iter().map(|a| {
            let cases = all().filter(|&i| step.alternative(i).is_some_and(|b| std::ptr::eq(a, b)));
            (&a.tactic, cases.map(words).collect())
        });
        std::iter::once((&step.tactic, own)).chain(others).collect()
    }
}

impl Step {
    /// The kernel in the place of the step's own in a case.
    pub fn alternative(&self, case: u32) -> Option<&Alternative> {
        self.alternatives.iter().find(|a| a.cases.contains(&case))
    }

    /// The tactic of the step in a case.
    pub fn tactic_in(&self, case: u32) -> &Tactic {
        self.alternative(case).map_or(&self.tactic, |a| &a.tactic)
    }

    /// The step with an alternative in the place of its own kernel.
    pub fn by(&self, alternative: &Alternative) -> Step {
        let (tactic, blob) = (alternative.tactic.clone(), alternative.blob.clone());
        Step { bodies: self.bodies.clone(), ..Step::new(&self.name, self.nodes.clone(), tactic, blob) }
    }

    /// All tactics of the step, its own first.
    pub fn tactics(&self) -> impl Iterator<Item = &Tactic> {
        std::iter::once(&self.tactic).chain(self.alternatives.iter().map(|a| &a.tactic))
    }

    /// Bytes of scratch memory that the step wants in any case.
    pub fn workspace(&self) -> u64 {
        self.tactics().map(|t| t.workspace).max().unwrap_or(0)
    }
}

/// Refuses kernels for cases that the program does not have, two for one case, and any of control flow.
pub(crate) fn check_cases(program: &Program) -> Result<(), String> {
    for step in program.steps.iter().filter(|s| !s.alternatives.is_empty()) {
        let refused = |why: String| Err(format!("step \"{}\" has a kernel {why}", step.name));
        if step.tactics().any(|t| t.name == INTERPRETED) {
            return refused("for some shapes, and is control flow".into());
        }
        let mut seen = HashSet::new();
        for &case in step.alternatives.iter().flat_map(|a| &a.cases) {
            if case as usize >= program.cases.len() {
                return refused(format!("for case {case} of {}", program.cases.len()));
            }
            if !seen.insert(case) {
                return refused(format!("for case {case} twice"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test panics")]
mod tests {
    use super::*;
    use crate::MemoryPlan;
    use kiln_ir::{Bytes, Graph};

    #[test]
    fn runs_find_the_case_of_their_profile_and_size() {
        let case = |profile, elements| Case { profile, elements };
        let mut program = Program::new(Graph::new("g"), Vec::new(), MemoryPlan::default());
        assert_eq!(program.case_of(3, 8), 0, "a program without cases has one");
        program.cases = vec![case(0, None), case(1, Some(10)), case(1, None)];
        let found = [(0, 9), (1, 10), (1, 11), (7, 1)].map(|(p, n)| program.case_of(p, n));
        assert_eq!(found, [0, 1, 2, u32::MAX]);
    }

    #[test]
    fn steps_name_the_cases_of_each_kernel() {
        let mut program = Program::new(Graph::new("g"), Vec::new(), MemoryPlan::default());
        program.cases =
            (0..3).map(|profile| Case { profile, elements: (profile == 1).then_some(5) }).collect();
        let blob = || Bytes::from(Vec::new());
        let mut step = Step::new("s", Vec::new(), Tactic::plain("a"), blob());
        assert!(program.cases_of(&step).is_empty());
        let tactic = Tactic { workspace: 64, ..Tactic::plain("b") };
        step.alternatives = vec![Alternative { tactic, blob: blob(), cases: vec![1, 2] }];
        let names = |t: &(&Tactic, Vec<String>)| (t.0.name.clone(), t.1.join(", "));
        let all: Vec<_> = program.cases_of(&step).iter().map(names).collect();
        assert_eq!(all[0], ("a".into(), "profile 0".into()));
        assert_eq!(all[1], ("b".into(), "profile 1 up to 5 elements, profile 2".into()));
        assert_eq!((step.workspace(), step.tactic_in(0).name.as_str()), (64, "a"));
        assert_eq!(step.tactic_in(2).name, "b");
        assert_eq!(step.by(&step.alternatives[0]).tactic.name, "b");
    }

    #[test]
    fn kernels_of_no_case_are_refused() {
        let refused = |change: &dyn Fn(&mut Step)| {
            let blob = || Bytes::from(Vec::new());
            let mut step = Step::new("s", Vec::new(), Tactic::plain("a"), blob());
            step.alternatives =
                vec![Alternative { tactic: Tactic::plain("b"), blob: blob(), cases: vec![1] }];
            change(&mut step);
            let mut program = Program::new(Graph::new("g"), vec![step], MemoryPlan::default());
            program.cases = (0..2).map(|profile| Case { profile, elements: None }).collect();
            check_cases(&program).err().unwrap_or_default()
        };
        assert_eq!(refused(&|_| ()), "");
        assert!(refused(&|s| s.alternatives[0].cases = vec![2]).contains("for case 2 of 2"));
        assert!(refused(&|s| s.alternatives[0].cases = vec![1, 1]).contains("case 1 twice"));
        assert!(refused(&|s| s.tactic = Tactic::plain(INTERPRETED)).contains("control flow"));
    }
}
