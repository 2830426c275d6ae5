//! Loops and conditionals, written as boundary layers: what is inside follows from the flow of data.

mod branch;
mod build;
mod check;
mod rules;
mod scope;
mod sides;
mod split;
#[cfg(test)]
mod tests_effects;
#[cfg(test)]
mod tests_if;
#[cfg(test)]
mod tests_loop;
#[cfg(test)]
mod tests_ranks;

pub use branch::{Condition, IfInput, IfOutput};
pub use rules::{LoopIterator, LoopOutput, Recurrence, TripLimit};
pub(super) use scope::Scopes;
pub(super) use sides::{Expanded, Sides, meet};

use super::ids::{ConstructId, LayerId};

/// Condition that ends a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TripLimitKind {
    /// A number of iterations, known before the loop starts; a negative one means none.
    Count,
    /// A condition, asked before every iteration.
    While,
}

impl TripLimitKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            TripLimitKind::Count => "count",
            TripLimitKind::While => "while",
        }
    }
}

/// Data of a loop or a conditional in the network.
#[derive(Clone, Debug)]
pub(super) struct Construct {
    pub(super) name: String,
    pub(super) conditional: bool,
    /// Boundary layers, in the order in which they were added.
    pub(super) layers: Vec<LayerId>,
}

impl Construct {
    /// The words for it in messages.
    pub(super) fn label(&self) -> String {
        format!("{} \"{}\"", if self.conditional { "conditional" } else { "loop" }, self.name)
    }
}

/// A layer at the boundary of a loop or conditional.
#[derive(Clone, Debug)]
pub enum Boundary {
    /// Ends the loop.
    TripLimit(TripLimit),
    /// Elements of a tensor, one an iteration.
    Iterator(LoopIterator),
    /// A value carried from iteration to iteration.
    Recurrence(Recurrence),
    /// A result of the loop.
    LoopOutput(LoopOutput),
    /// Condition of a conditional.
    Condition(Condition),
    /// A value that only the branches use.
    IfInput(IfInput),
    /// A result of the branch that was taken.
    IfOutput(IfOutput),
}

impl Boundary {
    pub(super) fn construct(&self) -> ConstructId {
        match self {
            Boundary::TripLimit(b) => b.of.0,
            Boundary::Iterator(b) => b.of.0,
            Boundary::Recurrence(b) => b.of.0,
            Boundary::LoopOutput(b) => b.of.0,
            Boundary::Condition(b) => b.of.0,
            Boundary::IfInput(b) => b.of.0,
            Boundary::IfOutput(b) => b.of.0,
        }
    }

    /// Whether its outputs lie inside of the construct.
    pub(super) fn opens(&self) -> bool {
        matches!(self, Boundary::Iterator(_) | Boundary::Recurrence(_) | Boundary::IfInput(_))
    }

    /// Whether its outputs lie outside, its inputs inside.
    pub(super) fn closes(&self) -> bool {
        matches!(self, Boundary::LoopOutput(_) | Boundary::IfOutput(_))
    }

    /// Whether this input is the only one that may depend on the layer's own output.
    pub(super) fn is_back_edge(&self, input: usize) -> bool {
        matches!(self, Boundary::Recurrence(_)) && input == 1
    }
}
