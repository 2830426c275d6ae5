//! Compaction of graphs and their equality.

use kiln_ir::{Attrs, DType, Fact, Op, Tensor, TensorType};
use kiln_ir::{Graph, ValueId};

fn op(name: &str) -> Op {
    Op::new(name, Attrs::new()).unwrap()
}

#[test]
fn holes_vanish_and_equality_ignores_ids() {
    let build = |detour: bool| {
        let mut g = Graph::new("g");
        if detour {
            g.add_constant("late", Tensor::f32(&[1], &[0.0]).unwrap());
        }
        let x = g.add_input("x", Fact::of(TensorType::new(DType::F32, [2])));
        let y = g.add("neg", op("neg"), &[x]).unwrap();
        if detour {
            let dead = g.add("dead", op("abs"), &[y]).unwrap();
            g.remove_node(g.producer(dead).unwrap().0);
        } else {
            g.add_constant("late", Tensor::f32(&[1], &[0.0]).unwrap());
        }
        let c = g.find("late").unwrap();
        let z = g.add("sum", op("add"), &[y, c]).unwrap();
        g.outputs = vec![z, x];
        g
    };
    let (a, mut b) = (build(false), build(true));
    assert_eq!(a, b);
    let map = b.compact().unwrap();
    assert_eq!(map, [Some(1), Some(0), Some(2), None, Some(3)].map(|v: Option<u32>| v.map(ValueId)));
    b.verify().unwrap();
    assert_eq!(b.outputs, [ValueId(3), ValueId(0)]);
    b.value_mut(ValueId(2)).name = "other".into();
    assert_ne!(a, b);
}

#[test]
fn a_value_read_before_its_definition_is_named() {
    let mut g = Graph::new("g");
    let x = g.add_input("x", Fact::of(TensorType::new(DType::F32, [2])));
    let y = g.add("first", op("neg"), &[x]).unwrap();
    g.insert_node(0, "second", op("neg"), &[Some(y)]).unwrap();
    assert!(g.compact().unwrap_err().to_string().contains("second"));
}
