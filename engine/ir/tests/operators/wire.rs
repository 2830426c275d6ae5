//! The CBOR form of graphs.

use kiln_ir::graph::{Meta, Recipe, Weight};
use kiln_ir::wire::*;
use kiln_ir::{
    Attr, Attrs, DType, Dim, Fact, Graph, IrError, Op, Packing, Tensor, TensorFormat, TensorType, Value,
};
use minicbor::Encoder;
use std::sync::Arc;

fn op(name: &str) -> Op {
    Op::new(name, Attrs::new()).unwrap()
}

/// y = -x as someone with the table at the top of `wire` and a CBOR library would write it. Bytes by hand.
const NEG: &[u8] = &[
    0xa5, 0x00, 0x61, b'g', // 0: "g"
    0x01, 0x81, 0xa2, 0x00, 0x61, b'x', 0x01, 0xa1, 0x00, // 1: [{0: "x", 1: {0:
    0xa2, 0x00, 0x01, 0x01, 0x81, 0x03, // {0: f32, 1: [3]}}}]
    0x02, 0x80, // 2: []
    0x03, 0x81, 0xa4, 0x00, 0x61, b'y', 0x01, 0xa2, 0x00, 0x63, b'n', b'e', b'g', 0x01,
    0xa0, // 3: [{0: "y", 1: op
    0x02, 0x81, 0x00, // 2: [0]
    0x03, 0x81, 0xa2, 0x00, 0x61, b'y', 0x01, 0xa1, 0x00, 0xa2, 0x00, 0x01, 0x01, 0x81,
    0x03, // 3: outputs
    0x04, 0x81, 0x01, // 4: [1]
];

fn neg() -> Graph {
    let mut g = Graph::new("g");
    let x = g.add_input("x", Fact::of(TensorType::new(DType::F32, [3])));
    let y = g.add("y", op("neg"), &[x]).unwrap();
    g.outputs = vec![y];
    g
}

/// Symbols of all kinds, weights inline and stored, a recipe, a region, meta, absent inputs, contents.
fn rich() -> Graph {
    let n = Dim::host("n");
    let k = Dim::device("k.n", Some(n.clone() * 4.into() + 1.into()));
    let mut g = Graph::new("rich");
    let x = g.add_input(
        "x",
        Fact::of(TensorType { dtype: DType::F32, dims: vec![n.clone(), k.floor_div(&2.into())] }),
    );
    let s = Fact {
        value: Some(Value::Dims(vec![Dim::content("s0"), n.max_with(&7.into())])),
        ..Fact::of(TensorType::new(DType::I64, [2]))
    };
    let s = g.add_input("s", s);
    let big = Tensor::f32(&[1, 40], &[0.5; 40]).unwrap();
    let mut r = Graph::new("fold");
    let a = r.add_input("a", Fact::of(big.ty()));
    let b = r.add("b", op("neg"), &[a]).unwrap();
    r.outputs = vec![b];
    let recipe = Recipe { graph: r, sources: vec!["a".into()] };
    g.add_weight("w", Weight { tensor: big.clone(), name: Some("w".into()), recipe: None });
    let w = g.add_weight("w2", Weight { tensor: big, name: None, recipe: Some(Arc::new(recipe)) });
    g.add_constant("c", Tensor::i64(&[2], &[-1, 1 << 40]).unwrap());
    let y = g.add("y", op("neg"), &[w]).unwrap();
    let z = g.add("z", op("neg"), &[x]).unwrap();
    g.outputs = vec![z, y, z, s];
    g.allowed_formats = [("x".to_owned(), TensorFormat::Hwc.into())].into();
    let dims = [1, 3, 2, 2].map(Dim::new);
    let packing = Packing::new(TensorFormat::Chw32, DType::F32, &dims).unwrap();
    g.packings = [("z".to_owned(), packing)].into();
    let id = g.producer(y).unwrap().0;
    let node = g.get_mut(id).unwrap();
    node.regions = vec![neg(), neg()];
    node.meta = Meta {
        precision: Some(DType::F16),
        output_types: vec![None, Some(DType::I8)],
        metadata: "a\n\"b\"".into(),
    };
    g
}

fn store() -> WeightList {
    WeightList::default()
}

fn back(g: &Graph) -> Graph {
    let mut w = store();
    let bytes = g.to_cbor(&mut w).unwrap();
    Graph::from_cbor(&bytes, &w).unwrap()
}

#[test]
fn a_graph_has_the_documented_bytes() {
    assert_eq!(neg().to_cbor(&mut store()).unwrap(), NEG);
    assert_eq!(Graph::from_cbor(NEG, &store()).unwrap(), neg());
}

#[test]
fn everything_survives() {
    let g = rich();
    let mut w = store();
    let bytes = g.to_cbor(&mut w).unwrap();
    assert_eq!(w.tensors().len(), 2, "the weight, once, and the folded contents of its negation");
    let h = Graph::from_cbor(&bytes, &w).unwrap();
    assert_eq!(h, g);
    // Equality of symbols ignores origins and bounds; equal bytes don't.
    assert_eq!(h.to_cbor(&mut store()).unwrap(), bytes);
    let k = &h.ty(h.inputs[0]).dims[1];
    assert_eq!(k.upper_bound().unwrap(), (Dim::host("n") * 4.into() + 1.into()).floor_div(&2.into()));
    h.verify().unwrap();
}

#[test]
fn ids_and_holes_leave_no_trace() {
    let mut g = neg();
    let dead = g.add("dead", op("abs"), &[g.inputs[0]]).unwrap();
    g.remove_node(g.producer(dead).unwrap().0);
    assert_eq!(g.to_cbor(&mut store()).unwrap(), NEG);
    assert_eq!(back(&g), neg());
}

#[test]
fn graphs_of_every_operator_survive() {
    for def in kiln_ops::all() {
        for p in (def.problems)(&mut kiln_ir::problem::Rng::new(3)) {
            let g = of_problem(&p);
            assert_eq!(
                back(&g).to_cbor(&mut store()).unwrap(),
                g.to_cbor(&mut store()).unwrap(),
                "{}",
                def.name
            );
        }
    }
}

/// A graph of one node whose inputs are, by turns, inputs and weights.
fn of_problem(p: &kiln_ir::problem::Problem) -> Graph {
    let mut g = Graph::new(&p.label);
    let inputs: Vec<_> = p
        .inputs
        .iter()
        .enumerate()
        .map(|(i, t)| {
            let t = t.clone()?;
            let host = p.op.port(i).is_some_and(|p| p.host);
            let name = format!("v{i}");
            Some(if host || i % 2 == 1 {
                g.add_constant(&name, t)
            } else {
                g.add_input(&name, Fact::of(t.ty()))
            })
        })
        .collect();
    g.outputs = g.add_node("y", p.op.clone(), &inputs).unwrap();
    g
}

#[test]
fn every_kind_of_attribute_survives() {
    let attrs = Attrs::new()
        .with("i", i64::MIN)
        .with("f", 0.1)
        .with("b", true)
        .with("s", "é\"")
        .with("is", vec![1i64, -2])
        .with("none", Vec::<i64>::new())
        .with("fs", vec![f64::INFINITY, -0.0])
        .with("ss", vec!["a".to_owned()])
        .with("t", DType::BF16)
        .with("raw", vec![0u8, 255]);
    let bytes = minicbor::to_vec(&attrs).unwrap();
    assert_eq!(minicbor::decode::<Attrs>(&bytes).unwrap(), attrs);
    let none = minicbor::decode::<Attr>(&[0xa1, 0x05, 0x80]).unwrap();
    assert_eq!(none, Attr::Floats(vec![]));
}

/// The payload with the byte at `at` replaced.
fn edited(at: usize, by: &[u8]) -> Vec<u8> {
    [&NEG[..at], by, &NEG[at + 1..]].concat()
}

fn refusal(bytes: &[u8]) -> String {
    match Graph::from_cbor(bytes, &store()) {
        Err(IrError::Payload(m)) => m,
        other => panic!("{other:?}"),
    }
}

#[test]
fn refusals_name_what_is_unknown_or_missing() {
    let op = refusal(&edited(32, b"a"));
    assert!(op.contains("\"nag\""), "{op}");
    let dtype = refusal(&edited(15, &[0x17]));
    assert!(dtype.contains("23"), "{dtype}");
    let later = refusal(&edited(38, &[0x01]));
    assert!(later.contains("value 1 before it is defined"), "{later}");
    let attr = refusal(&edited(35, &[0xa1, 0x61, b'q', 0xa1, 0x09, 0x00]));
    assert!(attr.contains("9 is the code of no kind"), "{attr}");
    let attr = refusal(&edited(35, &[0xa1, 0x61, b'q', 0xa1, 0x00, 0x00]));
    assert!(attr.contains("\"q\""), "{attr}");
    let no_outputs = [&[0xa4], &NEG[1..NEG.len() - 3]].concat();
    assert!(refusal(&no_outputs).contains("field 4 (outputs)"), "{}", refusal(&no_outputs));
    assert!(refusal(&[NEG, &[0]].concat()).contains("1 bytes follow"));
    let twice = [&[0xa6, 0x00, 0x60], &NEG[1..]].concat();
    assert!(refusal(&twice).contains("field 0 is given twice"), "{}", refusal(&twice));
}

#[test]
fn unknown_fields_and_indefinite_lengths_are_read_over() {
    let more = [&[0xa6, 0x18, 0x63, 0x82, 0xa1, 0x00, 0x9f, 0xff, 0xf6], &NEG[1..]].concat();
    assert_eq!(Graph::from_cbor(&more, &store()).unwrap(), neg());
    let open = [&[0xbf], &NEG[1..], &[0xff]].concat();
    assert_eq!(Graph::from_cbor(&open, &store()).unwrap(), neg());
}

#[test]
fn nesting_is_bounded() {
    let mut e = Encoder::new(Vec::new());
    for _ in 0..100_000 {
        e.map(1).unwrap().u8(0).unwrap().array(1).unwrap().map(1).unwrap().u8(1).unwrap().array(1).unwrap();
        e.map(1).unwrap().u8(4).unwrap();
    }
    let e = minicbor::decode::<Dim>(&e.into_writer()).unwrap_err();
    assert!(e.to_string().contains("nests deeper"), "{e}");
    let mut g = neg();
    for _ in 0..MAX_NESTING + 1 {
        let mut outer = neg();
        outer.get_mut(kiln_ir::NodeId(0)).unwrap().regions = vec![g];
        g = outer;
    }
    assert!(refusal(&g.to_cbor(&mut store()).unwrap()).contains("nest deeper"));
}

#[test]
fn claimed_lengths_allocate_nothing() {
    for head in [0x9b, 0xbb, 0x5b] {
        let huge = [head, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        refusal(&[&[0xa1, 0x01], &huge[..]].concat());
        refusal(&[&[0xa1, 0x09], &huge[..]].concat());
    }
    let t = minicbor::decode::<Tensor>(&[0xa3, 0, 1, 1, 0x82, 0x1b, 0x40, 0, 0, 0, 0, 0, 0, 0, 8, 2, 0x40]);
    assert!(t.unwrap_err().to_string().contains("0 bytes are not those of a tensor"));
}

#[test]
fn negative_sizes_are_refused() {
    // The dimension of the input, then that of the output.
    let dims: Vec<usize> = (0..NEG.len() - 1).filter(|&i| NEG[i..i + 2] == [0x81, 0x03]).collect();
    assert_eq!(dims.len(), 2);
    for at in dims {
        let mut bytes = NEG.to_vec();
        bytes[at + 1] = 0x22;
        let e = Graph::from_cbor(&bytes, &store()).unwrap_err().to_string();
        assert!(e.contains("f32[-3]") && e.contains("size -3 along axis 0"), "{e}");
    }
}

#[test]
fn damaged_payloads_never_panic() {
    let mut w = store();
    let bytes = rich().to_cbor(&mut w).unwrap();
    for n in 0..bytes.len() {
        assert!(Graph::from_cbor(&bytes[..n], &w).is_err(), "cut at {n}");
        for x in [0x00, 0x01, 0x3f, 0x7f, 0x80, 0x9f, 0xbf, 0xf6, 0xff] {
            let mut b = bytes.clone();
            b[n] ^= x;
            if let Ok(g) = Graph::from_cbor(&b, &w) {
                let _ = g.verify();
            }
        }
    }
}
