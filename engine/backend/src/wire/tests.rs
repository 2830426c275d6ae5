use super::*;
use crate::assisted::{CHECKS, SIZES};
use crate::{
    Alternative, Case, HostStep, MemoryPlan, MemoryRules, Place, Program, Region, ShapeRange, Shapes, Step,
    StepTime,
};
use kiln_ir::wire::WeightList;
use kiln_ir::{Attrs, Bytes, DType, Dim, Fact, Graph, NodeId, Op, Tensor, TensorType, ValueId};
use std::collections::BTreeMap;

fn target() -> Target {
    Target {
        backend: "b".into(),
        version: "1".into(),
        arch: "a".into(),
        device: "d".into(),
        driver: String::new(),
        features: vec!["f16".into()],
        numbers: BTreeMap::from([("n".into(), 300)]),
        memory: MemoryRules { alignment: 64, max_binding: 256, in_place: true, total: 0 },
        uuid: String::new(),
        traits: BTreeMap::new(),
    }
}

/// Bytes by hand, as an author with PAYLOADS.md and a CBOR library would write them.
const TARGET: &[u8] = &[
    0xa7, 0x00, 0x61, b'b', 0x01, 0x61, b'1', 0x02, 0x61, b'a', 0x03, 0x61, b'd', // names
    0x05, 0x81, 0x63, b'f', b'1', b'6', // features
    0x06, 0xa1, 0x61, b'n', 0x19, 0x01, 0x2c, // numbers
    0x07, 0xa3, 0x00, 0x18, 0x40, 0x01, 0x19, 0x01, 0x00, 0x02, 0xf5, // memory
];

const TACTIC: &[u8] = &[
    0xa4, 0x00, 0x62, b'm', b'm', 0x01, 0xa1, 0x61, b'k', 0x20, // 0: "mm", 1: {"k": -1}
    0x02, 0x18, 0x80, // 2: 128
    0x05, 0xfb, 0x40, 0x00, 0, 0, 0, 0, 0, 0, // 5: 2.0
];

fn tactic() -> Tactic {
    Tactic { workspace: 128, estimate_ns: Some(2.0), ..Tactic::plain("mm").with("k", -1) }
}

fn reason<T: std::fmt::Debug>(r: Result<T, BackendError>) -> String {
    match r {
        Err(BackendError::Incompatible(m)) => m,
        other => panic!("{other:?}"),
    }
}

#[test]
fn targets_and_tactics_have_the_documented_bytes() {
    assert_eq!(target().to_cbor().unwrap(), TARGET);
    assert_eq!(Target::from_cbor(TARGET).unwrap(), target());
    assert_eq!(tactic().to_cbor().unwrap(), TACTIC);
    assert_eq!(Tactic::from_cbor(TACTIC).unwrap(), tactic());
    let loose = Tactic {
        deterministic: false,
        source_hash: "h".into(),
        leaves_unread: true,
        note: "slow here".into(),
        ..Tactic::plain("x")
    };
    let both = [loose, Tactic::plain("y")];
    assert_eq!(tactics_from_cbor(&tactics_to_cbor(&both).unwrap()).unwrap(), both);
    assert_eq!(targets_from_cbor(&targets_to_cbor(&[target()]).unwrap()).unwrap(), [target()]);
}

#[test]
fn refusals_name_the_field() {
    assert!(reason(Tactic::from_cbor(&[0xa0])).contains("Tactic::name"));
    let m = reason(Target::from_cbor(&[&[0xa6], &TARGET[1..TARGET.len() - 11]].concat()));
    assert!(m.contains("Target::memory"), "{m}");
    let mut odd = TARGET.to_vec();
    odd[TARGET.len() - 7] = 0x41;
    assert!(reason(Target::from_cbor(&odd)).contains("65 bytes is no power of two"));
    assert!(reason(Tactic::from_cbor(&[TACTIC, &[0]].concat())).contains("1 bytes follow"));
    let twice = [0xa2, 0x00, 0x60, 0x01, 0xa2, 0x61, b'k', 0x00, 0x61, b'k', 0x00];
    assert!(reason(Tactic::from_cbor(&twice)).contains("\"k\" is given twice"));
    let twice = [0xa2, 0x00, 0x61, b'a', 0x00, 0x61, b'b'];
    assert!(reason(Tactic::from_cbor(&twice)).contains("field 0 is given twice"));
}

#[test]
fn unknown_fields_are_skipped() {
    let more = [&[0xa5, 0x18, 0x2a, 0x81, 0xa1, 0x00, 0x00], &TACTIC[1..]].concat();
    assert_eq!(Tactic::from_cbor(&more).unwrap(), tactic());
}

#[test]
fn times_must_be_times() {
    assert_eq!(samples_from_cbor(&samples_to_cbor(&[1.5, 0.0]).unwrap()).unwrap(), [1.5, 0.0]);
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        assert!(samples_from_cbor(&samples_to_cbor(&[1.0, bad]).unwrap()).is_err(), "{bad}");
    }
    let inside = StepTime { inside: vec![(0, 2), (1, 0)], runs: 7, ..StepTime::new(3, 0.25) };
    let steps = [StepTime::new(3, 0.5), inside];
    assert_eq!(step_times_from_cbor(&step_times_to_cbor(&steps).unwrap()).unwrap(), steps);
}

#[test]
fn reasons_travel_with_and_without_advice() {
    let inside = HostStep::new(2, SIZES).within(1, 0).within(4, 1);
    assert_eq!((inside.step, &inside.inside[..]), (4, &[(1, 1), (0, 2)][..]));
    let bare = HostStep { step: 3, inside: Vec::new(), why: "so".into(), advice: String::new() };
    let all = [HostStep::new(0, CHECKS), inside, bare.clone()];
    assert_eq!(host_steps_from_cbor(&host_steps_to_cbor(&all).unwrap()).unwrap(), all);
    // A list of one map: {0: 3, 1: "so"}.
    let bytes = [0x81, 0xa2, 0x00, 0x03, 0x01, 0x62, b's', b'o'];
    assert_eq!(host_steps_to_cbor(&[bare.clone()]).unwrap(), bytes);
    // With field 9, which this version does not know, and half a pair.
    let newer = [0x81, 0xa3, 0x00, 0x03, 0x01, 0x62, b's', b'o', 0x09, 0x01];
    assert_eq!(host_steps_from_cbor(&newer).unwrap(), [bare]);
    let half = [0x81, 0xa3, 0x00, 0x03, 0x01, 0x62, b's', b'o', 0x02, 0x81, 0x01];
    let no_reason = [0x81, 0xa1, 0x00, 0x03];
    for (bytes, what) in [(&half[..], "pairs"), (&no_reason, "HostStep::why")] {
        let e = host_steps_from_cbor(bytes).unwrap_err().to_string();
        assert!(e.contains(what), "{e}");
    }
}

/// relu-like chain with a weight, whose ids are not canonical: the weight comes first and a node was removed.
fn program() -> Program {
    let mut g = Graph::new("p");
    let w = g.add_constant("w", Tensor::f32(&[32], &[0.5; 32]).unwrap());
    let x = g.add_input("x", Fact::of(TensorType::new(DType::F32, [32])));
    let op = |name: &str| Op::new(name, Attrs::new()).unwrap();
    let dead = g.add("dead", op("neg"), &[x]).unwrap();
    let a = g.add("a", op("add"), &[x, w]).unwrap();
    let b = g.add("b", op("neg"), &[a]).unwrap();
    g.remove_node(g.producer(dead).unwrap().0);
    g.outputs = vec![b];
    let step = |node: u32, blob: &[u8]| {
        Step::new(format!("s{node}"), vec![NodeId(node)], tactic(), Bytes::from(blob.to_vec()))
    };
    let arena = Place::Arena { offset: 1 << 40, size: 128 };
    let memory = MemoryPlan {
        places: vec![Place::Weight, Place::Input(0), Place::None, arena, Place::Dynamic],
        arena: 4096,
        scratch: 256,
    };
    Program::new(g, vec![step(1, b"blob"), step(2, b"")], memory)
}

/// c ? −x : x, the branches programs of their own.
fn branching() -> Program {
    let ty = TensorType::new(DType::F32, [2]);
    let mut negated = Graph::new("true");
    let x = negated.add_input("x", Fact::of(ty.clone()));
    negated.outputs = vec![negated.add("y", Op::new("neg", Attrs::new()).unwrap(), &[x]).unwrap()];
    let mut plain = Graph::new("false");
    plain.outputs = vec![plain.add_input("x", Fact::of(ty.clone()))];
    let mut g = Graph::new("if");
    let c = g.add_input("c", Fact::of(TensorType::scalar(DType::Bool)));
    let x = g.add_input("x", Fact::of(ty));
    let op = Op::new("if", Attrs::new().with("then_captures", 1i64)).unwrap();
    let regions = vec![negated.clone(), plain.clone()];
    g.outputs = g.add_control("if", op, &[c, x, x], regions, &["y".to_owned()]).unwrap();
    let mut p = Program::step_per_node(g, &Tactic::plain(crate::flow::INTERPRETED));
    let body = |g| Program::step_per_node(g, &tactic());
    p.steps[0].bodies = vec![body(negated), body(plain)];
    p
}

#[test]
fn bodies_travel_with_their_step_and_fit_its_regions() {
    let (mut w, mut b) = (WeightList::default(), BlobList::default());
    let bytes = branching().to_cbor(&mut w, &mut b).unwrap();
    let p = Program::from_cbor(&bytes, &w, &b).unwrap();
    assert_eq!(p.steps[0].bodies.len(), 2);
    assert_eq!(p.steps[0].bodies[0].graph, branching().steps[0].bodies[0].graph);
    assert_eq!(p.steps[0].bodies[0].steps[0].tactic, tactic());
    assert_eq!(p.to_cbor(&mut WeightList::default(), &mut BlobList::default()).unwrap(), bytes);
    let refused = |change: fn(&mut Program), says: &str| {
        let mut p = branching();
        change(&mut p);
        let bytes = p.to_cbor(&mut WeightList::default(), &mut BlobList::default()).unwrap();
        let e = Program::from_cbor(&bytes, &w, &b).unwrap_err().to_string();
        assert!(e.contains(says), "{e}");
    };
    refused(|p| drop(p.steps[0].bodies.pop()), "1 bodies for 2 regions");
    refused(|p| p.steps[0].bodies[1].graph.outputs.clear(), "body 1 has other inputs or outputs");
    refused(|p| p.steps[0].tactic = tactic(), "has bodies, and no node for them");
}

#[test]
fn programs_survive_in_canonical_numbers() {
    let (mut w, mut b) = (WeightList::default(), BlobList::default());
    let bytes = program().to_cbor(&mut w, &mut b).unwrap();
    assert_eq!((w.tensors().len(), b.blobs().len()), (1, 1));
    let p = Program::from_cbor(&bytes, &w, &b).unwrap();
    assert_eq!(p.graph, program().graph);
    let nodes: Vec<u32> = p.steps.iter().flat_map(|s| &s.nodes).map(|n| n.0).collect();
    assert_eq!(nodes, [0, 1]);
    let arena = Place::Arena { offset: 1 << 40, size: 128 };
    assert_eq!(p.memory.places, [Place::Input(0), Place::Weight, arena, Place::Dynamic]);
    assert_eq!((p.memory.arena, p.memory.scratch), (4096, 256));
    assert_eq!((p.steps[0].blob.as_slice(), p.steps[1].blob.as_slice()), (&b"blob"[..], &b""[..]));
    assert_eq!((p.steps[1].name.as_str(), &p.steps[0].tactic), ("s2", &tactic()));
    assert_eq!(p.to_cbor(&mut WeightList::default(), &mut BlobList::default()).unwrap(), bytes);
}

#[test]
fn programs_that_contradict_themselves_are_refused() {
    let refusal = |change: &dyn Fn(&mut Program)| {
        let mut p = program();
        p.compact().unwrap();
        change(&mut p);
        let (mut w, mut b) = (WeightList::default(), BlobList::default());
        let bytes = p.to_cbor(&mut w, &mut b).unwrap();
        reason(Program::from_cbor(&bytes, &w, &b))
    };
    assert!(refusal(&|p| p.steps.truncate(1)).contains("node 1 is in no step"));
    assert!(refusal(&|p| p.steps[1].nodes = vec![NodeId(0)]).contains("runs node 0 again"));
    assert!(refusal(&|p| p.memory.places[0] = Place::Input(9)).contains("Input(9), of 1 inputs"));
    let (mut w, mut b) = (WeightList::default(), BlobList::default());
    let bytes = program().to_cbor(&mut w, &mut b).unwrap();
    assert!(reason(Program::from_cbor(&bytes, &w, &BlobList::default())).contains("blob 0 does not exist"));
}

#[test]
fn regions_survive() {
    let r = Region::extract(&program().graph, &[NodeId(1), NodeId(2)]).unwrap();
    let mut w = TensorViews::default();
    let back = Region::from_cbor(&r.to_cbor(&mut w).unwrap(), &w).unwrap();
    assert_eq!(back.graph, r.graph);
    assert_eq!((back.inputs, back.outputs), (vec![ValueId(1), ValueId(0)], vec![ValueId(4)]));
    assert!(back.ranges.is_none());
}

#[test]
fn ranges_of_regions_survive() {
    let r = Region::extract(&program().graph, &[NodeId(1), NodeId(2)]).unwrap();
    let mut inputs = Graph::new("");
    inputs.add_input("v0", Fact::of(TensorType { dtype: DType::F32, dims: vec![Dim::host("n")] }));
    let range = ShapeRange { inputs, symbols: vec![("n".into(), -1, 1 << 40)] };
    let mut w = TensorViews::default();
    let bytes = Region { ranges: Some(vec![range.clone(), range.clone()]), ..r }.to_cbor(&mut w).unwrap();
    let back = Region::from_cbor(&bytes, &w).unwrap().ranges.unwrap();
    assert!(back.len() == 2 && back.iter().all(|b| b.inputs == range.inputs && b.symbols == range.symbols));
}

#[test]
fn shapes_survive_without_weights() {
    let p = program();
    let shapes = p.shapes(&[Tensor::f32(&[32], &[0.0; 32]).unwrap()]).unwrap();
    let order = [1, 0, 3, 4].map(ValueId);
    let bytes = shapes.to_cbor(&p, &order).unwrap();
    assert!(bytes.len() < 100, "{}", bytes.len());
    let mut q = p.clone();
    q.compact().unwrap();
    let back = Shapes::from_cbor(&bytes, &q).unwrap();
    for (new, old) in order.into_iter().enumerate() {
        assert_eq!(back.fact(ValueId(new as u32)), shapes.fact(old), "{old:?}");
    }
    assert!(reason(Shapes::from_cbor(&shapes.to_cbor(&p, &order[..3]).unwrap(), &q)).contains("3 values"));
    let bytes = shapes.in_case(7).to_cbor(&p, &order).unwrap();
    assert_eq!((back.case(), Shapes::from_cbor(&bytes, &q).unwrap().case()), (0, 7));
}

#[test]
fn kernels_for_cases_survive() {
    let mut p = program();
    p.cases = vec![Case { profile: 0, elements: Some(9) }, Case { profile: 1, elements: None }];
    let other = Alternative { tactic: tactic(), blob: Bytes::from(b"other".to_vec()), cases: vec![1] };
    p.steps[0].alternatives = vec![other];
    let (mut w, mut b) = (WeightList::default(), BlobList::default());
    let bytes = p.to_cbor(&mut w, &mut b).unwrap();
    let back = Program::from_cbor(&bytes, &w, &b).unwrap();
    assert_eq!(back.cases, p.cases);
    let read = back.steps[0].alternative(1).unwrap();
    assert_eq!((&read.tactic, read.blob.as_slice()), (&tactic(), &b"other"[..]));
    assert!(back.steps[0].alternative(0).is_none() && back.steps[1].alternatives.is_empty());
    p.cases.pop();
    let bytes = p.to_cbor(&mut w, &mut b).unwrap();
    assert!(reason(Program::from_cbor(&bytes, &w, &b)).contains("for case 1 of 1"));
}

#[test]
fn damaged_programs_never_panic() {
    let (mut w, mut b) = (WeightList::default(), BlobList::default());
    let bytes = program().to_cbor(&mut w, &mut b).unwrap();
    for n in 0..bytes.len() {
        assert!(Program::from_cbor(&bytes[..n], &w, &b).is_err(), "cut at {n}");
        for x in [0x01, 0x3f, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[n] ^= x;
            let _ = Program::from_cbor(&damaged, &w, &b);
        }
    }
}
