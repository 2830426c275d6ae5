//! Edits of a graph that are taken back leave nothing behind.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Fact, Graph, IrError, NodeId, Op, Tensor, TensorType, ValueId};

// Operators register themselves where they are linked.
use kiln_builder as _;

fn op(name: &str) -> Op {
    Op::new(name, Attrs::new()).unwrap()
}

/// Changes something; any of the edits that rewrites make.
fn edit(g: &mut Graph, rng: &mut Rng) -> Result<(), IrError> {
    let mut any = |n: usize| rng.int(0, n.max(1) as i64 - 1) as usize;
    let v = ValueId(any(g.value_count()) as u32);
    let order = g.order().to_vec();
    let n = order.get(any(order.len())).copied().unwrap_or(NodeId(0));
    match any(8) {
        0 => drop(g.insert_node(any(order.len() + 1), "new", op("relu"), &[Some(v)])?),
        1 => g.replace_uses(v, ValueId(0)),
        2 => g.remove_node(n),
        3 => drop(g.remove_dead()),
        4 => {
            let name = std::mem::take(&mut g.value_mut(v).name);
            g.value_mut(ValueId(1)).name = name;
        }
        5 => {
            if let Some(node) = g.get_mut(n) {
                node.name = "renamed".into();
                node.inputs = vec![Some(ValueId(0))];
            }
        }
        6 => {
            let name = g.unique_name("weight");
            g.add_constant(&name, Tensor::f32(&[1], &[1.0]).unwrap());
        }
        _ => g.outputs.push(v),
    }
    Ok(())
}

/// Text of everything in a graph, and of the values that its names find.
fn all(g: &Graph, nodes: u32) -> String {
    let values: Vec<_> = g.value_ids().map(|v| (g.value(v), g.find(&g.value(v).name))).collect();
    let nodes: Vec<_> = (0..nodes + 50).map(|n| g.get(NodeId(n))).collect();
    format!("{values:?} {nodes:?} {:?} {:?} {:?}", g.order(), g.inputs, g.outputs)
}

#[test]
fn edits_are_taken_back() {
    let mut rng = Rng::new(7);
    for layers in [3, 60] {
        let mut g = Graph::new("g");
        let mut v = g.add_input("x", Fact::of(TensorType::new(DType::F32, [2])));
        for i in 0..layers {
            v = g.add(&format!("l{i}"), op("neg"), &[v]).unwrap();
        }
        g.outputs = vec![v];
        let before = all(&g, layers);
        for round in 0..200 {
            let tried = g.attempt(|g| {
                for _ in 0..rng.int(0, 12) {
                    edit(g, &mut rng)?;
                }
                Ok::<bool, IrError>(false)
            });
            assert!(matches!(tried, Ok(false) | Err(_)), "{tried:?}");
            assert_eq!(all(&g, layers), before, "round {round}");
        }
        let kept = g.attempt(|g| Ok::<_, IrError>(g.add("kept", op("neg"), &[v]).is_ok()));
        assert!(kept == Ok(true) && g.find("kept").is_some());
    }
}
