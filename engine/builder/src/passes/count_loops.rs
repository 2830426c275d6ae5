//! Turns loops into counted ones where no iteration changes the condition. The number of iterations is then
//! known in front of the loop. No condition is read in between, and what the loop stacks has a known length.

use super::writer::Writer;
use super::{Pass, PassCx};
use crate::BuildError;
use kiln_ir::{Attrs, Graph, IrError, LoopShape, Node, NodeId, Op, ValueId};
use kiln_ops::cast::IDENTITY;
use kiln_ops::control::LOOP;
use kiln_ops::pointwise::binary::MIN;
use kiln_ops::pointwise::select::SELECT;

/// The pass.
pub const PASS: Pass = Pass { name: "count-loops", run };

fn run(g: &mut Graph, _: &PassCx<'_>) -> Result<usize, BuildError> {
    let changes = in_graph(g)?;
    if changes > 0 {
        g.refresh()?;
        g.remove_dead();
    }
    Ok(changes)
}

/// Changes the loops of a graph and of its regions, inner ones first.
fn in_graph(g: &mut Graph) -> Result<usize, IrError> {
    let mut changes = 0;
    for id in g.order().to_vec() {
        for region in g.get_mut(id).into_iter().flat_map(|n| &mut n.regions) {
            changes += in_graph(region)?;
        }
        let found = g.get(id).and_then(|n| Conditions::of(g, n));
        if let Some(found) = found {
            found.count(g, id)?;
            changes += 1;
        }
    }
    Ok(changes)
}

/// A condition in terms of the graph around the loop.
#[derive(Clone, Copy, PartialEq)]
enum Condition {
    Constant(bool),
    Value(ValueId),
}

/// The conditions of a loop that has an iteration count.
struct Conditions {
    count: ValueId,
    /// The condition of the first iteration.
    first: Condition,
    /// The condition of every further iteration.
    further: Condition,
    /// The number of inputs that remain without the condition region.
    inputs: usize,
}

impl Conditions {
    /// The conditions of a loop, if they are known in front of it.
    fn of(g: &Graph, node: &Node) -> Option<Conditions> {
        if !node.op.is(LOOP) {
            return None;
        }
        let s = node.loop_shape(node.inputs.len()).ok().filter(|s| s.count && s.condition)?;
        let count = node.inputs.first().copied().flatten()?;
        let (first, further) = conditions(g, node, &s)?;
        let single = |v: ValueId| g.ty(v).static_volume() == Some(1);
        let known = [first, further]
            .iter()
            .all(|c| matches!(c, Condition::Constant(_)) || c.value().is_some_and(single));
        // An iterated tensor that is read from its end is indexed by the count.
        let reversed = s.iterated.iter().any(|&(_, reverse)| reverse);
        let kept = further == first || further == Condition::Constant(true);
        let fits = known && single(count) && (kept || !reversed);
        fits.then_some(Conditions { count, first, further, inputs: s.captures().end })
    }

    /// Makes the number of iterations the loop's count, and removes the condition.
    fn count(self, g: &mut Graph, id: NodeId) -> Result<(), IrError> {
        let count = self.iterations(&mut Writer::before(g, id))?;
        let Some(node) = g.get_mut(id) else { return Ok(()) };
        node.op = Op::new(LOOP, node.op.attrs().clone().with("while", false))?;
        node.inputs.truncate(self.inputs);
        if let Some(first) = node.inputs.first_mut() {
            *first = Some(count);
        }
        node.regions.truncate(1);
        Ok(())
    }

    fn iterations(&self, w: &mut Writer<'_>) -> Result<ValueId, IrError> {
        let dtype = w.g.ty(self.count).dtype;
        let mut number = self.count;
        if self.further != self.first && self.further != Condition::Constant(true) {
            let one = w.scalar(1.0, dtype)?;
            let once = w.op(MIN, Attrs::new(), &[self.count, one])?;
            number = self.further.choose(w, number, once)?;
        }
        if self.first == Condition::Constant(true) {
            return Ok(number);
        }
        let zero = w.scalar(0.0, dtype)?;
        self.first.choose(w, number, zero)
    }
}

impl Condition {
    fn value(self) -> Option<ValueId> {
        match self {
            Condition::Value(v) => Some(v),
            Condition::Constant(_) => None,
        }
    }

    /// One of two numbers.
    fn choose(self, w: &mut Writer<'_>, yes: ValueId, no: ValueId) -> Result<ValueId, IrError> {
        match self {
            Condition::Constant(c) => Ok(if c { yes } else { no }),
            Condition::Value(c) => w.op(SELECT, Attrs::new(), &[c, yes, no]),
        }
    }

    /// A value of the graph, or what it is where no refit can change it.
    fn read(g: &Graph, v: ValueId) -> Condition {
        let fixed = g.weight(v).filter(|w| w.name.is_none() && w.recipe.is_none());
        match fixed.and_then(|w| w.tensor.scalar_i64()) {
            Some(c) => Condition::Constant(c != 0),
            None => Condition::Value(v),
        }
    }
}

/// The conditions of the first iteration and of all further ones; `None` where an iteration computes one.
fn conditions(g: &Graph, node: &Node, s: &LoopShape) -> Option<(Condition, Condition)> {
    let outer = |i: usize| Some(Condition::read(g, node.inputs.get(i).copied().flatten()?));
    let (body, asked) = (node.regions.first()?, node.regions.get(1)?);
    let carried = match origin(asked, *asked.outputs.first()?)? {
        Origin::Constant(c) => return Some((Condition::Constant(c), Condition::Constant(c))),
        Origin::Input(i) if i < s.carried => i,
        Origin::Input(i) => {
            let captured = outer(s.captures().end + i - s.carried)?;
            return Some((captured, captured));
        }
    };
    let first = outer(s.initials().start + carried)?;
    let own = s.carried + s.iterated.len();
    let further = match origin(body, *body.outputs.get(carried)?)? {
        Origin::Constant(c) => Condition::Constant(c),
        Origin::Input(i) if i == carried => first,
        Origin::Input(i) => outer(s.captures().start + i.checked_sub(own)?)?,
    };
    Some((first, further))
}

/// Source of a value that a region passes through unchanged.
enum Origin {
    Input(usize),
    Constant(bool),
}

/// The origin of a value that a region does not compute.
fn origin(region: &Graph, mut v: ValueId) -> Option<Origin> {
    while let Some((_, node)) = region.producer(v) {
        let view = node.op.is(IDENTITY)
            || kiln_backend::is_view_op(&node.op) && region.ty(v).static_volume() == Some(1);
        v = node
            .inputs
            .first()
            .copied()
            .flatten()
            .filter(|&x| view && region.ty(x).dtype == region.ty(v).dtype)?;
    }
    match Condition::read(region, v) {
        Condition::Constant(c) => Some(Origin::Constant(c)),
        Condition::Value(v) => region.inputs.iter().position(|&i| i == v).map(Origin::Input),
    }
}
