//! Every tactic's text for every operator's problems passes naga's validator. Needs no device.

use kiln_backend::{Backend, BackendError, MemoryRules, Program, Target};
use kiln_backend_wgpu::{Wgpu, text_of};
use kiln_ir::problem::Rng;
use std::collections::{BTreeMap, BTreeSet};

fn target(features: &[&str]) -> Target {
    Target {
        backend: "wgpu".into(),
        version: "0".into(),
        arch: "vulkan".into(),
        device: "none".into(),
        driver: String::new(),
        features: features.iter().map(|f| (*f).to_owned()).collect(),
        numbers: BTreeMap::from([
            ("shared_memory".into(), 48 << 10),
            ("workgroup_threads".into(), 1024),
            ("storage_buffers".into(), 32),
            ("cooperative_part".into(), 16),
            ("subgroup_size".into(), 32),
        ]),
        memory: MemoryRules { alignment: 256, max_binding: 128 << 20, in_place: true, total: 0 },
        uuid: String::new(),
        traits: BTreeMap::new(),
    }
}

fn validate(text: &str) -> Result<(), String> {
    let module = naga::front::wgsl::parse_str(text).map_err(|e| e.emit_to_string(text))?;
    use naga::valid::Capabilities;
    let capabilities = Capabilities::SHADER_INT64
        | Capabilities::SHADER_FLOAT16
        | Capabilities::SHADER_FLOAT16_IN_FLOAT32
        | Capabilities::SUBGROUP
        | Capabilities::COOPERATIVE_MATRIX;
    naga::valid::Validator::new(naga::valid::ValidationFlags::all(), capabilities)
        .validate(&module)
        .map(drop)
        .map_err(|e| e.emit_to_string(text))
}

#[test]
fn every_text_is_valid() {
    let target = target(&["cooperative_matrix", "exact_halves", "f16", "i64", "subgroup"]);
    let mut seen = BTreeSet::new();
    for def in kiln_ops::all() {
        for p in (def.problems)(&mut Rng::new(3)) {
            let Ok((program, _)) = Program::single(&p.op, &p.inputs) else { continue };
            let region = program.region(&program.steps[0]).expect("a region of one node");
            let tactics = match Wgpu.tactics(&region, &target) {
                Ok(t) => t,
                Err(BackendError::Unsupported(_)) => continue,
                Err(e) => panic!("{} ({}): {e}", def.name, p.label),
            };
            for t in tactics {
                let blob = Wgpu.compile(&region, &t, &target).expect("what is offered compiles");
                assert_eq!(blob, Wgpu.compile(&region, &t, &target).expect("twice"), "{} is random", t.name);
                let text = text_of(&blob).expect("text");
                if seen.insert(text.clone())
                    && let Err(e) = validate(&text)
                {
                    panic!("{} ({}), {}: {e}\n{text}", def.name, p.label, t.id());
                }
            }
        }
    }
    assert!(seen.len() > 100, "only {} texts", seen.len());
    let cooperative = seen.iter().filter(|t| t.contains("enable wgpu_cooperative_matrix;")).count();
    assert!(cooperative > 10, "only {cooperative} texts of cooperative matrices");
}

#[test]
fn other_shapes_give_the_same_text() {
    let target = target(&["i64"]);
    let text = |shape: &[usize]| {
        let mut rng = Rng::new(1);
        let op = kiln_ir::Op::new("softmax", kiln_ir::Attrs::new()).expect("softmax");
        let x = rng.tensor(kiln_ir::DType::F32, shape);
        let (program, _) = Program::single(&op, &[Some(x)]).expect("a program");
        let region = program.region(&program.steps[0]).expect("a region");
        let tactic = Wgpu.tactics(&region, &target).expect("tactics").remove(0);
        text_of(&Wgpu.compile(&region, &tactic, &target).expect("a text")).expect("a text")
    };
    assert_eq!(text(&[2, 3]), text(&[5, 700]));
}

#[test]
fn what_the_device_lacks_is_refused_with_its_name() {
    let op = kiln_ir::Op::new("neg", kiln_ir::Attrs::new()).expect("neg");
    let x = kiln_ir::Tensor::i64(&[1], &[1]).expect("a tensor");
    let (program, _) = Program::single(&op, &[Some(x)]).expect("a program");
    let region = program.region(&program.steps[0]).expect("a region");
    let refusal = Wgpu.tactics(&region, &target(&[])).expect_err("no 64-bit integers");
    assert!(matches!(&refusal, BackendError::Unsupported(why) if why.contains("SHADER_INT64")), "{refusal}");
    assert!(Wgpu.tactics(&region, &target(&["i64"])).is_ok());
}
