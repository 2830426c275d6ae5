//! Coverage of programs: families of operators, by the construct around them and by element type.

use super::families::{FAMILIES, of_op};
use super::grow::Grow;
use kiln_ir::{DType, Graph};
use std::collections::BTreeSet;

/// A body that operators lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A loop with a count.
    Counted,
    /// A loop with a condition.
    While,
    /// A loop with both.
    Both,
    /// A branch of a conditional.
    Branch,
}

/// All places.
pub const PLACES: [Place; 4] = [Place::Counted, Place::While, Place::Both, Place::Branch];

/// A family (by its number), the place, and the type of the first input.
pub type Pair = (usize, Place, DType);

/// Every pair that there can be: a family takes a type if it takes a small matrix of it.
pub fn all() -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (i, family) in FAMILIES.iter().enumerate() {
        for dtype in DType::ALL {
            let mut g = Grow::new("probe", 0, false);
            let takes = g.input(dtype, &[2, 3], None).is_ok_and(|x| (family.make)(&mut g, &x).is_ok());
            pairs.extend(PLACES.iter().filter(|_| takes).map(|&p| (i, p, dtype)));
        }
    }
    pairs
}

/// The pairs that a lowered network has in its bodies.
pub fn of(graph: &Graph) -> BTreeSet<Pair> {
    let mut found = BTreeSet::new();
    visit(graph, None, &mut found);
    found
}

fn visit(graph: &Graph, place: Option<Place>, found: &mut BTreeSet<Pair>) {
    for (_, node) in graph.nodes() {
        let first = node.inputs.first().copied().flatten();
        if let (Some(place), Some(family), Some(v)) = (place, of_op(node.op.name()), first) {
            // The data of a selection is its second input.
            let about = if node.op.name() == "select" { node.inputs.get(1).copied().flatten() } else { None };
            found.insert((family, place, graph.ty(about.unwrap_or(v)).dtype));
        }
        let flag = |name: &str| node.op.attrs().bool(name).unwrap_or(false);
        let inner = match (node.op.name(), flag("count"), flag("while")) {
            ("if", ..) => Place::Branch,
            (_, true, true) => Place::Both,
            (_, _, true) => Place::While,
            _ => Place::Counted,
        };
        // The body of a loop, not its condition, which is small.
        let bodies = if node.op.name() == "loop" { 1 } else { 2 };
        node.regions.iter().take(bodies).for_each(|r| visit(r, Some(inner), found));
    }
}
