//! Names inside of a function: registers by scope, variables and labels.

use crate::instruction::Register;
use std::collections::HashMap;

/// Names of a function.
#[derive(Default)]
pub struct Names<'a> {
    /// Registers by scope, the innermost last.
    pub scopes: Vec<HashMap<String, Register>>,
    /// Addresses of variables.
    pub symbols: HashMap<&'a str, u64>,
    /// Instructions behind labels, named by scope and label.
    pub labels: HashMap<String, usize>,
    /// Number of registers.
    pub next: Register,
    pub scope_numbers: Vec<usize>,
    pub scopes_seen: usize,
    /// Parameters of calls, which are kept in local memory.
    pub passed: Vec<&'a str>,
}

impl Names<'_> {
    /// The register of a name.
    pub fn register(&self, name: &str) -> Result<Register, String> {
        let found = self.scopes.iter().rev().find_map(|s| s.get(name));
        found.copied().ok_or_else(|| format!("no register {name}"))
    }

    /// The address of a variable.
    pub fn symbol(&self, name: &str) -> Option<u64> {
        self.symbols.get(name).copied()
    }

    /// Whether a variable is a parameter of a call.
    pub fn is_passed(&self, name: &str) -> bool {
        self.passed.contains(&name)
    }

    /// The instruction behind a label that is seen from here.
    pub fn label(&self, name: &str) -> Result<usize, String> {
        let scoped = self.scope_numbers.iter().rev().map(|n| format!("{n}:{name}"));
        let found = scoped.chain([format!("0:{name}")]).find_map(|n| self.labels.get(&n));
        found.copied().ok_or_else(|| format!("no label {name}"))
    }

    /// Declares a register.
    pub fn declare(&mut self, name: &str) {
        let n = self.next;
        self.next += 1;
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_owned(), n);
        }
    }

    /// Begins a scope.
    pub fn enter(&mut self) {
        self.scopes_seen += 1;
        self.scope_numbers.push(self.scopes_seen);
        self.scopes.push(HashMap::new());
    }

    /// Ends a scope.
    pub fn leave(&mut self) {
        self.scope_numbers.pop();
        self.scopes.pop();
    }
}
