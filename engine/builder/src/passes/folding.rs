//! The work that folding may spend on a build, and what it left in the graph for want of it.

use kiln_ir::work::Work;
use kiln_ir::{Graph, Node};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// A layer may take this part of the whole budget.
const SHARE: u64 = 4;

/// Counts what folding spends. One for a build, shared by all its passes.
#[derive(Clone, Debug)]
pub struct FoldWork {
    budget: u64,
    spent: Cell<u64>,
    left: RefCell<BTreeMap<String, String>>,
}

impl FoldWork {
    /// A budget of so many operations, of which none is spent.
    pub fn new(budget: u64) -> FoldWork {
        FoldWork { budget, spent: Cell::new(0), left: RefCell::default() }
    }

    /// The most operations that one layer may take beyond passes over its inputs and outputs.
    pub fn of_a_layer(&self) -> u64 {
        self.budget / SHARE
    }

    /// Whether a layer's work is within what is left. Layers that only pass over weights of the network always are: their
    /// work is bounded by the size of the model, and what other layers derive from them is needed.
    pub fn allows(&self, g: &Graph, node: &Node) -> bool {
        let work = work(g, node);
        let named = |w: &kiln_ir::Weight| w.name.is_some() || w.recipe.is_some();
        let derives = || node.inputs.iter().flatten().any(|v| g.weight(*v).is_some_and(named));
        let fits = work.total() <= self.budget.saturating_sub(self.spent.get());
        work.beyond <= self.of_a_layer() && (fits || work.beyond == 0 && derives())
    }

    /// Counts a layer that is evaluated.
    pub fn spend(&self, g: &Graph, node: &Node) {
        self.spent.set(self.spent.get().saturating_add(work(g, node).total()));
    }

    /// Notes a layer that stays in the graph, although all its inputs are constants.
    pub fn leave(&self, g: &Graph, node: &Node) {
        let (n, layer, budget) = (work(g, node).total(), self.of_a_layer(), self.budget);
        let why = format!(
            "layer \"{}\" ({}) has constant inputs, but runs with the engine: evaluating it takes about {n} operations, and \
             the build may spend {layer} on one layer and {budget} in all (--fold-budget)",
            node.name,
            node.op.name(),
        );
        self.left.borrow_mut().entry(node.name.clone()).or_insert(why);
    }

    /// Forgets that a layer stays: another pass evaluated it.
    pub fn done(&self, node: &Node) {
        self.left.borrow_mut().remove(&node.name);
    }

    /// A note for each layer that stays in the graph.
    pub fn notes(&self) -> Vec<String> {
        self.left.borrow().values().cloned().collect()
    }
}

fn work(g: &Graph, node: &Node) -> Work {
    let inputs: Vec<_> = node.inputs.iter().map(|v| v.map(|v| g.ty(v))).collect();
    let outputs: Vec<_> = node.outputs.iter().map(|&v| g.ty(v)).collect();
    node.op.work(&inputs, &outputs)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]
mod tests {
    use super::*;

    /// The only node of a graph, and whether a budget allows it.
    fn allowed(text: &str, budget: u64) -> bool {
        let g = Graph::from_text(text).unwrap_or_else(|e| panic!("{e}"));
        let (_, node) = g.nodes().next().unwrap();
        FoldWork::new(budget).allows(&g, node)
    }

    #[test]
    fn a_layer_takes_at_most_its_share() {
        let product = "graph \"g\" { input %a: f32[8,8] %y = matmul(%a, %a) output %y }";
        assert!(allowed(product, 4 * 512) && !allowed(product, 4 * 512 - 4));
    }

    #[test]
    fn the_budget_is_spent_but_for_passes_over_weights() {
        let g = Graph::from_text("graph \"g\" { input %a: f32[8,8] %y = add(%a, %a) output %y }").unwrap();
        let (_, node) = g.nodes().next().unwrap();
        let budget = FoldWork::new(500);
        assert!(budget.allows(&g, node));
        budget.spend(&g, node);
        assert!(budget.allows(&g, node));
        budget.spend(&g, node);
        assert!(!budget.allows(&g, node));
        budget.leave(&g, node);
        assert!(budget.notes()[0].contains("192 operations"), "{:?}", budget.notes());
    }
}
