//! Layers between positions and the sine or cosine of an angle. A position in a long text is large, and so is its angle, of which only
//! what is left of whole turns counts: f16 has none of that from 2,048 radians on, bf16 from 256 on. Such layers keep f32.

use kiln_ir::{Graph, NodeId, ValueId};
use kiln_ops::cast::CAST;
use std::collections::HashSet;

/// Layers that compute an angle out of integers, and the periodic functions of it.
pub fn angles(g: &Graph) -> HashSet<NodeId> {
    let mut counted: HashSet<ValueId> = HashSet::new();
    let mut from: HashSet<NodeId> = HashSet::new();
    for (id, n) in g.nodes() {
        let reads = |v: &ValueId| counted.contains(v);
        let whole = |v: &ValueId| !g.ty(*v).dtype.is_float();
        let begins = n.op.is(CAST) && n.inputs.iter().flatten().any(whole);
        let floats = n.outputs.iter().any(|&v| g.ty(v).dtype.is_float());
        if floats && (begins || n.inputs.iter().flatten().any(reads)) {
            from.insert(id);
            if !n.op.roles().periodic {
                counted.extend(n.outputs.iter().copied());
            }
        }
    }
    let uses = g.uses();
    let mut found: HashSet<NodeId> = HashSet::new();
    for (id, n) in g.nodes().rev().filter(|(id, _)| from.contains(id)) {
        let mut readers = n.outputs.iter().flat_map(|&v| uses.of_value(v)).peekable();
        let ends = readers.peek().is_some() && readers.all(|(reader, _)| found.contains(reader));
        let stays = !n.outputs.iter().any(|&v| uses.is_output(v));
        if n.op.roles().periodic || ends && stays {
            found.insert(id);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_become_angles() {
        let text = "graph \"g\" { input %ids: i64[4] input %x: f32[4] weight %by: f32[1] = [0.5]
            %p = cast(%ids) {to=f32} %a = mul(%p, %by) %c = cos(%a) %s = sin(%a) %t = mul(%c, %s)
            %z = mul(%x, %by) %w = sin(%z) %other = cast(%ids) {to=f32} %q = mul(%other, %by) %r = exp(%q) %u = sin(%q)
            output %t, %w, %r, %u }";
        let g = Graph::from_text(text).unwrap();
        let found = angles(&g);
        let names: Vec<&str> =
            g.nodes().filter(|(id, _)| found.contains(id)).map(|(_, n)| n.name.as_str()).collect();
        assert_eq!(names, ["p", "a", "c", "s", "u"]);
    }
}
