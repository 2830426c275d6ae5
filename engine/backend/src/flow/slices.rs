//! Elements of tensors and parts of stacked outputs that the kernels of a loop's body use where they lie. They lie elsewhere
//! in every iteration, so a kernel must be compiled to find their addresses in memory: its tactic says of which values.

use crate::{Region, Tactic, Target, is_view_op};
use kiln_ir::{Graph, Node, ValueId};
use kiln_ops::control::LOOP;

/// The feature of a target whose backend compiles such kernels.
pub const SLICES: &str = "slices_in_place";

/// The parameter of a tactic that names them: bit i for input i of the region, bit 32 + j for output j.
const PARAMETER: &str = "slices";
/// Inputs and outputs beyond are never used in place.
const INPUTS: usize = 32;
const OUTPUTS: usize = 31;

/// The values of `graph`, the program of body number `body` of a node, that lie elsewhere in every iteration: elements, views of
/// them, and what is stacked. None where the target has no kernels for it.
pub fn slices(node: &Node, body: usize, graph: &Graph, target: &Target) -> Vec<ValueId> {
    if body != 0 || !node.op.is(LOOP) || !target.has(SLICES) {
        return Vec::new();
    }
    let Ok(shape) = node.loop_shape(node.inputs.len()) else { return Vec::new() };
    let mut all: Vec<ValueId> =
        graph.inputs.iter().skip(shape.carried).take(shape.iterated.len()).copied().collect();
    for (_, n) in graph.nodes().filter(|(_, n)| is_view_op(&n.op)) {
        if n.inputs.first().copied().flatten().is_some_and(|v| all.contains(&v)) {
            all.extend(&n.outputs);
        }
    }
    all.extend(graph.outputs.iter().skip(shape.carried));
    all
}

/// The tactic, told which inputs and outputs of its region are among these values.
pub fn sliced(tactic: Tactic, region: &Region, slices: &[ValueId]) -> Tactic {
    if tactic.name == super::INTERPRETED {
        return tactic;
    }
    let bits = |all: &[ValueId], most: usize| {
        let found = all.iter().take(most).enumerate().filter(|(_, v)| slices.contains(v));
        found.fold(0i64, |bits, (i, _)| bits | 1 << i)
    };
    match bits(&region.inputs, INPUTS) | bits(&region.outputs, OUTPUTS) << INPUTS {
        0 => tactic,
        bits => tactic.with(PARAMETER, bits),
    }
}

/// Whether the tactic reads input `i` of its region at any address.
pub fn takes_slice(tactic: &Tactic, i: usize) -> bool {
    i < INPUTS && bit(tactic, i)
}

/// Whether the tactic writes output `j` of its region to any address.
pub fn gives_slice(tactic: &Tactic, j: usize) -> bool {
    j < OUTPUTS && bit(tactic, INPUTS + j)
}

fn bit(tactic: &Tactic, at: usize) -> bool {
    tactic.params.get(PARAMETER).is_some_and(|bits| bits >> at & 1 == 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use crate::MemoryRules;
    use kiln_ir::{Attr, Attrs, DType, Fact, Op, TensorType};

    fn target(features: &[&str]) -> Target {
        Target {
            backend: "some".into(),
            version: "1".into(),
            arch: "any".into(),
            device: "any".into(),
            driver: String::new(),
            features: features.iter().map(|&f| f.to_owned()).collect(),
            numbers: Default::default(),
            memory: MemoryRules { alignment: 256, max_binding: u64::MAX, in_place: true, total: 0 },
            uuid: String::new(),
            traits: std::collections::BTreeMap::new(),
        }
    }

    /// A loop that adds to a sum the elements, as rows, and stacks their negatives.
    fn looping() -> Graph {
        let ty = |dims: &[i64]| Fact::of(TensorType::new(DType::F32, dims.iter().copied()));
        let op = |name: &str, attrs| Op::new(name, attrs).unwrap();
        let mut b = Graph::new("body");
        let (sum, e) = (b.add_input("sum", ty(&[1, 4])), b.add_input("e", ty(&[4])));
        let axes = b.add_constant("axes", kiln_ir::Tensor::i64(&[1], &[0]).unwrap());
        let row = b.add("row", op("unsqueeze", Attrs::new()), &[e, axes]).unwrap();
        let next = b.add("next", op("add", Attrs::new()), &[sum, row]).unwrap();
        let neg = b.add("neg", op("neg", Attrs::new()), &[e]).unwrap();
        b.outputs = vec![next, neg];
        let attrs = Attrs::new()
            .with("count", true)
            .with("while", false)
            .with("carried", 1i64)
            .with("iter_axes", vec![0i64])
            .with("iter_reverse", vec![0i64])
            .with("body_captures", 0i64)
            .with("out_kinds", Attr::Strs(vec!["last".into(), "concat".into()]))
            .with("out_index", vec![0i64, 0])
            .with("out_axes", vec![0i64, 0])
            .with("out_length", vec![0i64, 0]);
        let mut g = Graph::new("g");
        let n = g.add_input("n", Fact::of(TensorType::scalar(DType::I64)));
        let given = [n, g.add_input("sum", ty(&[1, 4])), g.add_input("x", ty(&[9, 4]))];
        let names = ["last".to_owned(), "all".to_owned()];
        g.outputs = g.add_control("loop", op("loop", attrs), &given, vec![b], &names).unwrap();
        g
    }

    #[test]
    fn elements_their_views_and_what_is_stacked_are_named() {
        let g = looping();
        let (_, node) = g.nodes().next().unwrap();
        let body = &node.regions[0];
        let names = |all: Vec<ValueId>| all.iter().map(|&v| body.value(v).name.clone()).collect::<Vec<_>>();
        let found = slices(node, 0, body, &target(&[SLICES]));
        assert_eq!(names(found.clone()), ["e", "row", "neg"]);
        assert!(slices(node, 0, body, &target(&["f16"])).is_empty());
        assert!(slices(node, 1, body, &target(&[SLICES])).is_empty());
        let told = |name: &str| {
            let (id, _) = body.nodes().find(|(_, n)| n.name == name).unwrap();
            let t = sliced(Tactic::plain("t"), &Region::extract(body, &[id]).unwrap(), &found);
            (takes_slice(&t, 0), takes_slice(&t, 1), gives_slice(&t, 0), gives_slice(&t, 31))
        };
        assert_eq!(told("next"), (false, true, false, false));
        assert_eq!(told("neg"), (true, false, true, false));
        let none = sliced(Tactic::plain("t"), &Region::extract(body, &[]).unwrap(), &found);
        assert_eq!(none, Tactic::plain("t"));
    }
}
