//! Names of values: lookup after renaming, uniqueness, speed.

use kiln_ir::{Attrs, DType, Fact, Graph, Op, TensorType};
use std::time::{Duration, Instant};

#[test]
fn renamed_values_are_found_by_their_new_name() {
    for n in [3, 100] {
        let mut g = Graph::new("g");
        let fact = Fact::of(TensorType::new(DType::F32, [1]));
        let ids: Vec<_> = (0..n).map(|i| g.add_input(&format!("x{i}"), fact.clone())).collect();
        g.value_mut(ids[1]).name = "new".into();
        assert_eq!((g.find("new"), g.find("x1"), g.find("x2")), (Some(ids[1]), None, Some(ids[2])));
        let again = g.add_input("x1", fact.clone());
        assert_eq!((g.find("new"), g.find("x1")), (Some(ids[1]), Some(again)));
        let name = std::mem::take(&mut g.value_mut(ids[0]).name);
        g.value_mut(ids[2]).name = name;
        assert_eq!((g.find("x0"), g.find("x2")), (Some(ids[2]), None));
        assert_eq!(g.unique_name("x0"), "x0.2");
        assert_eq!(g.unique_name("free"), "free");
    }
}

#[test]
fn a_hundred_thousand_nodes_of_one_name_are_named_quickly() {
    let start = Instant::now();
    let mut g = Graph::new("g");
    let mut v = g.add_input("x", Fact::of(TensorType::new(DType::F32, [1])));
    let op = Op::new("neg", Attrs::new()).unwrap();
    for _ in 0..100_000 {
        v = g.add("layer", op.clone(), &[v]).unwrap();
    }
    assert_eq!(g.value(v).name, "layer.100000");
    g.remove_dead();
    assert_eq!(g.nodes().count(), 0);
    // A search of all values for each name takes minutes.
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}
