//! The index of value names, so that large graphs find names without looking at every value.

use super::{Graph, ValueDef, ValueId};
use std::collections::HashMap;
use std::fmt;

/// Graphs of fewer values are searched one by one.
const SMALL: usize = 32;

/// Index of names. Not compared: equal graphs may have different indices.
#[derive(Clone, Default)]
pub(super) struct Names {
    /// Whether there is an index.
    on: bool,
    /// The first value of each name, as far as it still has that name; empty in small graphs.
    first: HashMap<String, ValueId>,
    /// Values that may have been renamed since they were indexed.
    touched: Vec<ValueId>,
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} indexed", self.first.len())
    }
}

impl Names {
    /// Indexes all values anew.
    pub(super) fn rebuild(&mut self, values: &[ValueDef]) {
        *self = Names::default();
        if values.len() > SMALL {
            self.on = true;
            (0..values.len() as u32).for_each(|i| self.index(values, ValueId(i)));
        }
    }

    /// Takes the last value in.
    pub(super) fn added(&mut self, values: &[ValueDef]) {
        if !self.on {
            return self.rebuild(values);
        }
        for v in std::mem::take(&mut self.touched) {
            self.index(values, v);
        }
        self.index(values, ValueId(values.len() as u32 - 1));
    }

    /// Notes that a value may get another name.
    pub(super) fn touch(&mut self, v: ValueId) {
        if self.on && self.touched.last() != Some(&v) {
            self.touched.push(v);
        }
    }

    fn index(&mut self, values: &[ValueDef], v: ValueId) {
        let has = |v: ValueId, name: &str| values.get(v.0 as usize).is_some_and(|d| d.name == name);
        let Some(def) = values.get(v.0 as usize).filter(|d| !d.name.is_empty()) else { return };
        let at = self.first.entry(def.name.clone()).or_insert(v);
        if !has(*at, &def.name) {
            *at = v;
        }
    }

    fn find(&self, values: &[ValueDef], name: &str) -> Option<ValueId> {
        let has = |v: &ValueId| values.get(v.0 as usize).is_some_and(|d| d.name == name);
        if !self.on || name.is_empty() {
            return values.iter().position(|v| v.name == name).map(|i| ValueId(i as u32));
        }
        let known = self.first.get(name).copied().filter(|v| has(v));
        known.or_else(|| self.touched.iter().copied().find(has))
    }
}

impl Graph {
    /// The value of this name.
    pub fn find(&self, name: &str) -> Option<ValueId> {
        self.names.find(&self.values, name)
    }

    /// Values that are there after a run: outputs, and tensors for debugging.
    pub fn kept(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.outputs.iter().copied().chain(self.debug.iter().filter_map(|name| self.find(name)))
    }

    /// `name`, or `name.2`, `name.3`… if a value has it already.
    pub fn unique_name(&self, name: &str) -> String {
        if self.find(name).is_none() {
            return name.to_owned();
        }
        let taken = |i: usize| self.find(&format!("{name}.{i}")).is_some();
        format!("{name}.{}", first_free(taken))
    }
}

/// A number from 2 on that is free, where those below the first free one are taken: found by doubling and halving, and
/// so the first wherever names were given in order.
pub fn first_free(taken: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (1, 2);
    while taken(high) {
        (low, high) = (high, high.saturating_mul(2));
    }
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if taken(middle) { low = middle } else { high = middle }
    }
    high
}
