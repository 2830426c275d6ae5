//! Plan files: what is written is read back, and nothing else is read.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]

mod common;

use common::{backend, linear, program, rows, t};
use kiln_backend::{Backend, MemoryPlan, Place};
use kiln_backend_cpu::Cpu;
use kiln_ir::{Bytes, Tensor};
use kiln_plan::{Plan, PlanError, PlanHeader, Requirement, Verbosity, verify};
use kiln_runtime::{Backends, Engine, RuntimeError};
use std::sync::Arc;

fn plan() -> Plan {
    let mut p = program(&linear());
    p.steps[0].blob = Bytes::from(b"kernel of both".to_vec());
    p.steps[1].blob = p.steps[0].blob.clone();
    Plan::new(p, vec![rows(4)], Cpu::target())
        .with_plugins(vec![Requirement {
            name: "p".into(),
            version: "1.2".into(),
            digest: "00ff".into(),
            layers: vec!["l".into()],
            called: true,
            embedded: 0,
        }])
        .with_verbosity(Verbosity::Detailed)
        .with_network(linear().lower().unwrap())
}

/// A plan whose weights need several chunks.
fn large() -> Plan {
    let mut n = kiln_network::Network::new("large");
    let x = n.add_input("x", common::f32_ty(&[kiln_ir::Dim::new(1)])).unwrap();
    let mut last = x;
    for i in 0..3 {
        let data: Vec<f32> = (0..200_001).map(|k| (k * (i + 1)) as f32).collect();
        let w = n.add_weights(Some(&format!("w{i}")), Tensor::f32(&[200_001], &data).unwrap()).unwrap();
        last = n.add_layer("", "add", kiln_ir::Attrs::new(), &[Some(last), Some(w)]).unwrap()[0];
    }
    n.mark_output(last, "y").unwrap();
    Plan::new(program(&n), vec![], Cpu::target())
}

#[test]
fn a_plan_survives_its_file() {
    let p = plan();
    let bytes = p.write().unwrap();
    let q = Plan::read(bytes.clone()).unwrap();
    assert_eq!(q.header, p.header);
    assert_eq!(q.layers, p.layers);
    assert_eq!(q.network, p.network);
    assert_eq!(q.program.steps[1].blob.as_slice(), b"kernel of both");
    assert_eq!(q.write().unwrap(), bytes, "what was read is written as the same bytes");
    assert_eq!(
        bytes.windows(14).filter(|w| w == b"kernel of both").count(),
        1,
        "equal blobs are stored once"
    );
    let mut cx = Engine::from_plan(q, backend()).unwrap().create_context().unwrap();
    let out = cx.run(&[("a", t(&[1, 2], &[1.0, 2.0])), ("b", t(&[1, 2], &[0.5, 0.5]))]).unwrap();
    assert_eq!(out[0].1, t(&[1, 2], &[10.5, 200.5]));
}

#[test]
fn files_are_read_peeked_at_and_loaded_by_backend_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.plan");
    let p = large();
    p.write_file(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), p.write().unwrap());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    assert_eq!(PlanHeader::peek(&path).unwrap(), p.header);
    let mut backends = Backends::new();
    let e = Engine::load(&path, &backends).unwrap_err();
    assert!(matches!(&e, RuntimeError::NoBackend { name, .. } if name == "cpu"), "{e}");
    backends.register(backend()).unwrap();
    assert!(backends.register(backend()).is_err());
    let mut cx = Engine::load(&path, &backends).unwrap().create_context().unwrap();
    let y = cx.run(&[("x", t(&[1], &[1.0]))]).unwrap()[0].1.to_f64();
    assert_eq!((y[0], y[7], y.len()), (1.0, 43.0, 200_001));
    assert!(matches!(Plan::open(&dir.path().join("none")), Err(PlanError::Io { .. })));
}

#[test]
fn every_truncation_is_refused() {
    let bytes = plan().write().unwrap();
    for n in 0..bytes.len() {
        assert!(Plan::read(bytes[..n].to_vec()).is_err(), "cut to {n} bytes");
    }
    let mut long = bytes;
    long.push(0);
    assert!(matches!(Plan::read(long), Err(PlanError::Layout(_))));
}

#[test]
fn every_changed_byte_is_noticed() {
    let bytes = plan().write().unwrap();
    for i in 0..bytes.len() {
        let mut b = bytes.clone();
        b[i] ^= 0x41;
        assert!(Plan::read(b).is_err(), "byte {i} of {}", bytes.len());
    }
}

#[test]
fn damaged_weights_are_found_when_they_are_taken() {
    let bytes = large().write().unwrap();
    let mut b = bytes.clone();
    let at = b.len() - 10;
    b[at] ^= 1;
    let e = Plan::read(b).unwrap_err().to_string();
    assert!(e.contains("chunk 2 of the weights"), "{e}");
}

#[test]
fn foreign_and_future_files_are_named() {
    assert!(matches!(Plan::read(Vec::new()), Err(PlanError::Magic { .. })));
    let e = Plan::read(b"\x7fELF and so on".to_vec()).unwrap_err().to_string();
    assert!(e.contains("no Kiln plan"), "{e}");
    let mut b = plan().write().unwrap();
    b[8] = 9;
    assert!(matches!(Plan::read(b), Err(PlanError::Version { found: 9, .. })));
}

/// Changes the section table at will and repairs its hash.
fn with_table(change: impl FnOnce(&mut [u8])) -> Result<Plan, PlanError> {
    let mut b = plan().write().unwrap();
    let n = u32::from_le_bytes(b[12..16].try_into().unwrap()) as usize;
    change(&mut b[128..128 + 64 * n]);
    let hash = *blake3::hash(&[&b[..48], &b[128..128 + 64 * n]].concat()).as_bytes();
    b[48..80].copy_from_slice(&hash);
    Plan::read(b)
}

#[test]
fn absurd_tables_are_refused_before_anything_is_allocated() {
    let put = |at: usize, v: u64| move |t: &mut [u8]| t[at..at + 8].copy_from_slice(&v.to_le_bytes());
    for (at, v) in [(8, 0), (8, u64::MAX), (8, 129), (16, u64::MAX), (16, 1 << 40), (24, 1), (64 + 8, 512)] {
        assert!(matches!(with_table(put(at, v)), Err(PlanError::Layout(_))), "{v} at {at}");
    }
    assert!(matches!(with_table(|t| t[0] = 99), Err(PlanError::Layout(m)) if m.contains("does not know")));
    assert!(matches!(with_table(|t| t[4] = 2), Err(PlanError::Layout(m)) if m.contains("newer")));
    // A section of a kind that may be skipped is skipped; here that is the header itself.
    assert_eq!(with_table(|t| t[3] = 0x80).unwrap_err(), PlanError::MissingSection("header"));
    with_table(|_| ()).unwrap();
}

#[test]
fn compatibility_refuses_or_warns() {
    let header = plan().header;
    let own = Cpu::target();
    assert_eq!(header.check_compatibility(&own), Default::default());
    let with = |f: &dyn Fn(&mut kiln_backend::Target)| {
        let mut t = own.clone();
        f(&mut t);
        header.check_compatibility(&t)
    };
    for c in [
        with(&|t| t.backend = "cuda".into()),
        with(&|t| t.arch = "sm_90".into()),
        with(&|t| t.version = "9".into()),
        with(&|t| t.memory.alignment = 256),
        with(&|t| t.memory.max_binding = 1),
        with(&|t| t.memory.in_place = false),
    ] {
        assert!(!c.ok(), "{c:?}");
    }
    let version_compatible = PlanHeader { version_compatible: true, ..header.clone() };
    for (change, runs) in [("backend", false), ("arch", false), ("version", true)] {
        let mut t = own.clone();
        match change {
            "backend" => t.backend = "cuda".into(),
            "arch" => t.arch = "sm_90".into(),
            _ => t.version = "9".into(),
        }
        assert_eq!(version_compatible.check_compatibility(&t).ok(), runs, "{change}");
    }
    let c = with(&|t| t.device = "other".into());
    assert!(c.ok() && c.warnings[0].contains("\"other\""));
    assert_eq!(with(&|t| t.driver = "570".into()), Default::default());
    let mut other = header.clone();
    other.target.features.push("f16".into());
    other.target.numbers.insert("sm_count".into(), 132);
    let c = other.check_compatibility(&own);
    assert!(c.refusal.unwrap().contains("lacks \"f16\""));
    assert!(c.warnings[0].contains("sm_count is unknown, was 132"));
    let mut foreign = plan();
    foreign.header.target.arch = "sm_90a".into();
    assert!(matches!(Engine::from_plan(foreign, backend()), Err(RuntimeError::Incompatible(_))));
}

#[test]
fn the_verifier_finds_bad_steps_and_memory() {
    let rules = backend().targets().unwrap()[0].memory;
    let p = program(&linear());
    let said = |f: &dyn Fn(&mut kiln_backend::Program)| {
        let mut p = p.clone();
        f(&mut p);
        verify(&p, &rules).map_err(|e| e.to_string())
    };
    said(&|_| ()).unwrap();
    assert!(said(&|p| drop(p.steps.pop())).unwrap_err().contains("\"sum\" is in no step"));
    assert!(said(&|p| p.steps.push(p.steps[0].clone())).unwrap_err().contains("run twice"));
    assert!(said(&|p| p.steps.swap(0, 1)).unwrap_err().contains("before it is computed"));

    // a, b, w, h, y: 32 bytes each, h and y next to each other.
    let arena = |offset| Place::Arena { offset, size: 32 };
    let planned = |h, y| MemoryPlan {
        places: vec![Place::Input(0), Place::Input(1), Place::Weight, h, y],
        arena: 128,
        scratch: 128,
    };
    let memory = |m: MemoryPlan| said(&move |p| p.memory = m.clone());
    memory(planned(arena(0), arena(64))).unwrap();
    memory(planned(arena(0), arena(0))).unwrap();
    assert!(memory(planned(arena(128), arena(0))).unwrap_err().contains("lies at 128"));
    assert!(memory(planned(arena(8), arena(64))).unwrap_err().contains("multiples of 64"));
    assert!(memory(planned(Place::Weight, arena(64))).unwrap_err().contains("can't lie"));
    let large = Place::Arena { offset: 0, size: 128 };
    assert!(memory(planned(large, arena(64))).unwrap_err().contains("the same memory"));
}

#[test]
fn a_plan_that_cannot_be_loaded_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("engine");
    plan().write_file(&path).unwrap();
    let old = std::fs::read(&path).unwrap();
    let mut broken = plan();
    broken.program.steps.pop();
    let e = broken.write_file(&path).unwrap_err();
    assert!(matches!(&e, PlanError::Unloadable(_)) && e.to_string().contains("is in no step"), "{e}");
    assert_eq!(std::fs::read(&path).unwrap(), old);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary file is left");
}

#[test]
fn the_inspector_tells_as_much_as_it_may() {
    let p = plan();
    let json: serde_json::Value = serde_json::from_str(&p.layers.to_json()).unwrap();
    let layer = &json["Layers"][1];
    assert_eq!(layer["Name"], "sum");
    assert_eq!(layer["LayerType"], "add");
    assert_eq!(layer["Inputs"][0]["Dimensions"], serde_json::json!([-1, 2]));
    assert_eq!(layer["Outputs"][0]["Format/Datatype"], "Row major linear FP32 format");
    assert_eq!(json["Layers"][0]["Weights"][0]["Count"], 2);
    let text = p.layers.to_text();
    assert!(text.lines().count() == 3 && text.contains("f32[n,2]"), "{text}");
    let names = p.clone().with_verbosity(Verbosity::Names).layers.to_json();
    assert!(names.contains("\"sum\"") && !names.contains("oracle"));
    let none = p.with_verbosity(Verbosity::None).layers.to_json();
    assert!(none.contains("\"0\"") && !none.contains("sum"));
    let e = Engine::from_plan(plan(), Arc::new(Cpu::new())).unwrap();
    let mut cx = e.create_context().unwrap();
    cx.set_input_shape("a", &[3, 2]).unwrap();
    cx.set_input_shape("b", &[3, 2]).unwrap();
    assert!(cx.inspector().unwrap().to_text().contains("f32[3,2]"));
}

/// A mapped file that is truncated ends the process; one that is overwritten changes weights that were checked.
#[test]
fn a_loaded_engine_does_not_depend_on_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.plan");
    let p = large();
    let mut backends = Backends::new();
    backends.register(backend()).unwrap();
    let write =
        |truncate: bool| std::fs::OpenOptions::new().write(true).truncate(truncate).open(&path).unwrap();
    for truncate in [true, false] {
        p.write_file(&path).unwrap();
        let (engine, plan) = (Engine::load(&path, &backends).unwrap(), Plan::open(&path).unwrap());
        let size = std::fs::metadata(&path).unwrap().len() as usize;
        let mut file = write(truncate);
        if !truncate {
            std::io::Write::write_all(&mut file, &vec![0x5a; size]).unwrap();
        }
        let y = engine.create_context().unwrap().run(&[("x", t(&[1], &[1.0]))]).unwrap()[0].1.to_f64();
        assert_eq!((y[0], y[7], y.len()), (1.0, 43.0, 200_001), "truncated: {truncate}");
        assert_eq!(plan.write().unwrap(), p.write().unwrap());
        std::fs::remove_file(&path).unwrap();
    }
    // Mapped: replacing the file by a rename is fine.
    p.write_file(&path).unwrap();
    // SAFETY: the file is replaced below, neither truncated nor written in place.
    let engine = unsafe { Engine::load_mapped(&path, &backends) }.unwrap();
    plan().write_file(&path).unwrap();
    let y = engine.create_context().unwrap().run(&[("x", t(&[1], &[1.0]))]).unwrap()[0].1.to_f64();
    assert_eq!(y[7], 43.0);
}
